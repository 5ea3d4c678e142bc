//! Mistakes in the oracle: right weights, wrong computation.

use crate::{LOOSEST, ORACLE};
use estream_tests::oracle::{
    Attention, Convolution, Experts, Feed, Gating, Latent, Layer, Mixer, Model, Pairs, Units, Values,
    Weighing,
};

/// A mistake.
pub struct Mistake {
    /// What is wrong.
    pub what: &'static str,
    /// Makes it.
    pub make: fn(&mut Model),
    /// The bound that notices it.
    pub bound: f64,
    /// Whether it would be lost in the rounding of 8-bit activations.
    pub hidden: bool,
}

const fn mistake(what: &'static str, make: fn(&mut Model)) -> Mistake {
    Mistake { what, make, bound: LOOSEST, hidden: false }
}

const fn hidden(what: &'static str, make: fn(&mut Model)) -> Mistake {
    Mistake { hidden: true, ..mistake(what, make) }
}

/// For each golden what can go wrong with it.
pub static MISTAKES: [(&str, &[Mistake]); 8] = [
    ("olmoe", &OLMOE),
    ("qwen3moe", &QWEN3MOE),
    ("mixtral", &MIXTRAL),
    ("lfm2moe", &LFM2MOE),
    ("deepseek2-new", &DEEPSEEK2),
    ("deepseek2-old", &DEEPSEEK2_OLD),
    ("ernie4_5-moe", &ERNIE),
    ("dots1", &DOTS),
];

static OLMOE: [Mistake; 16] = [
    mistake("weights divided by their sum", |m| experts(m, |e| e.router.renormalise = true)),
    mistake("one expert fewer", fewer),
    mistake("the sigmoid for softmax", |m| experts(m, |e| e.router.gating = Gating::Sigmoid)),
    mistake("experts 0 and 1 exchanged in one layer", exchange_experts),
    mistake("gate and up exchanged", |m| experts(m, |e| exchange(&mut e.units))),
    mistake("no norm of queries and keys", |m| attention(m, |a| a.norms = None)),
    mistake("norm of queries and keys by heads", |m| attention(m, norm_by_heads)),
    mistake("rotary frequencies 2 % off", faster),
    mistake("adjacent pairs", |m| attention(m, |a| a.rotation.pairs = Pairs::Adjacent)),
    mistake("scale without the root", |m| attention(m, |a| a.scale *= a.scale)),
    hidden("ε of 1e-3 for 1e-5", |m| epsilon(m, 1e-3)),
    // Too small for any kernels' bound: f32 rounding is as large.
    Mistake { bound: ORACLE, ..mistake("ε of 1e-6 for 1e-5", |m| epsilon(m, 1e-6)) },
    mistake("last norm without its weights", |m| m.final_norm.data.fill(1.0)),
    mistake("norms before mixer and experts exchanged", exchange_norms),
    mistake("the embedding for a head", |m| m.head = None),
    mistake("a layer left out", |m| drop(m.layers.pop())),
];

static QWEN3MOE: [Mistake; 8] = [
    mistake("weights not divided by their sum", not_divided),
    mistake("one expert fewer", fewer),
    mistake("no norm of queries and keys", |m| attention(m, |a| a.norms = None)),
    mistake("norm of queries and keys over all heads", |m| attention(m, norm_whole)),
    mistake("keys shared in turn", |m| attention(m, share_in_turn)),
    mistake("scale by width over heads", |m| attention(m, |a| a.scale = 1.0 / 32f64.sqrt())),
    mistake("rotary frequencies 2 % off", faster),
    mistake("adjacent pairs", |m| attention(m, |a| a.rotation.pairs = Pairs::Adjacent)),
];

static MIXTRAL: [Mistake; 5] = [
    mistake("weights not divided by their sum", not_divided),
    mistake("one expert fewer", fewer),
    mistake("keys shared in turn", |m| attention(m, share_in_turn)),
    mistake("rotary frequencies 2 % off", faster),
    mistake("split pairs", |m| attention(m, |a| a.rotation.pairs = Pairs::Halves)),
];

static LFM2MOE: [Mistake; 14] = [
    mistake("weights not divided by their sum", not_divided),
    mistake("one expert fewer", fewer),
    mistake("softmax for the sigmoid", |m| experts(m, |e| e.router.gating = Gating::Softmax)),
    mistake("selection bias dropped", |m| experts(m, |e| e.router.bias = None)),
    mistake("selection bias in the weights", |m| experts(m, |e| e.router.weighing = Weighing::Score)),
    mistake("kernel reversed", |m| taps(m, <[f32]>::reverse)),
    mistake("kernel a token late", |m| taps(m, |taps| taps.rotate_left(1))),
    mistake("state of one token for two", |m| taps(m, |taps| taps[0] = 0.0)),
    mistake("gates B and C exchanged", |m| convolution(m, |c| exchange_thirds(c, 0, 1))),
    mistake("gate C and input X exchanged", |m| convolution(m, |c| exchange_thirds(c, 1, 2))),
    mistake("no norm of queries and keys", |m| attention(m, |a| a.norms = None)),
    mistake("keys shared in turn", |m| attention(m, share_in_turn)),
    hidden("rotary frequencies 2 % off", faster),
    mistake("dense gate and up exchanged", |m| units(m, exchange)),
];

static DEEPSEEK2: [Mistake; 13] = [
    mistake("no mscale in the scale", |m| latent(m, |l| l.scale = plain_scale(l))),
    mistake("mscale once", |m| latent(m, |l| l.scale = (l.scale * plain_scale(l)).sqrt())),
    mistake("frequencies not interpolated", |m| latent(m, |l| interpolate(l, 1.0))),
    mistake("all frequencies interpolated", |m| latent(m, |l| interpolate(l, 8.0))),
    mistake("split pairs", |m| latent(m, |l| l.rotation.pairs = Pairs::Halves)),
    mistake("latent not normed", |m| latent(m, |l| l.epsilon = 1e3)),
    mistake("latent's norm without its weights", |m| latent(m, |l| l.norm.data.fill(1.0))),
    mistake("heads exchanged", |m| latent(m, exchange_heads)),
    mistake("no shared experts", |m| experts(m, |e| e.shared = None)),
    mistake("one shared expert of two", |m| experts(m, halve_shared)),
    mistake("weights divided by their sum", |m| experts(m, |e| e.router.renormalise = true)),
    mistake("one expert fewer", fewer),
    mistake("dense gate and up exchanged", |m| units(m, exchange)),
];

static DEEPSEEK2_OLD: [Mistake; 4] = [
    mistake("no mscale in the scale", |m| latent(m, |l| l.scale = plain_scale(l))),
    mistake("frequencies not interpolated", |m| latent(m, |l| interpolate(l, 1.0))),
    mistake("all keys before all values", |m| latent(m, keys_before_values)),
    mistake("heads exchanged", |m| latent(m, exchange_heads)),
];

static ERNIE: [Mistake; 5] = [
    mistake("selection bias dropped", |m| experts(m, |e| e.router.bias = None)),
    mistake("selection bias in the weights", |m| experts(m, |e| e.router.weighing = Weighing::Score)),
    mistake("weights not divided by their sum", not_divided),
    mistake("no shared experts", |m| experts(m, |e| e.shared = None)),
    mistake("split pairs", |m| attention(m, |a| a.rotation.pairs = Pairs::Halves)),
];

static DOTS: [Mistake; 5] = [
    mistake("weights not scaled", |m| experts(m, |e| e.router.scale = 1.0)),
    mistake("weights not divided by their sum", not_divided),
    mistake("selection bias in the weights", |m| experts(m, |e| e.router.weighing = Weighing::Score)),
    mistake("softmax for the sigmoid", |m| experts(m, |e| e.router.gating = Gating::Softmax)),
    mistake("no norm of queries and keys", |m| attention(m, |a| a.norms = None)),
];

/// Changes every part of a kind, of which there is one at least.
fn all<'a, T: 'a>(parts: impl Iterator<Item = &'a mut T>, change: impl Fn(&mut T)) {
    assert!(parts.map(change).count() > 0, "no layer has the part");
}

fn experts(m: &mut Model, change: impl Fn(&mut Experts)) {
    let part = |layer| match layer {
        &mut Layer { feed: Feed::Experts(ref mut experts), .. } => Some(experts.as_mut()),
        _ => None,
    };
    all(m.layers.iter_mut().filter_map(part), change);
}

fn units(m: &mut Model, change: impl Fn(&mut Units)) {
    let part = |layer| match layer {
        &mut Layer { feed: Feed::Unit(ref mut unit), .. } => Some(unit),
        _ => None,
    };
    all(m.layers.iter_mut().filter_map(part), change);
}

fn attention(m: &mut Model, change: impl Fn(&mut Attention)) {
    let part = |layer| match layer {
        &mut Layer { mixer: Mixer::Attention(ref mut attention), .. } => Some(attention),
        _ => None,
    };
    all(m.layers.iter_mut().filter_map(part), change);
}

fn latent(m: &mut Model, change: impl Fn(&mut Latent)) {
    let part = |layer| match layer {
        &mut Layer { mixer: Mixer::Latent(ref mut latent), .. } => Some(latent),
        _ => None,
    };
    all(m.layers.iter_mut().filter_map(part), change);
}

fn convolution(m: &mut Model, change: impl Fn(&mut Convolution)) {
    let part = |layer| match layer {
        &mut Layer { mixer: Mixer::Convolution(ref mut convolution), .. } => Some(convolution),
        _ => None,
    };
    all(m.layers.iter_mut().filter_map(part), change);
}

fn taps(m: &mut Model, with: impl Fn(&mut [f32])) {
    convolution(m, |c| c.kernel.data.chunks_mut(c.kernel.shape[0]).for_each(&with));
}

fn fewer(m: &mut Model) {
    experts(m, |e| e.router.chosen -= 1);
}

fn not_divided(m: &mut Model) {
    experts(m, |e| e.router.renormalise = false);
}

fn faster(m: &mut Model) {
    attention(m, |a| a.rotation.frequencies.iter_mut().for_each(|frequency| *frequency *= 1.02));
}

/// Of all norms.
fn epsilon(m: &mut Model, epsilon: f64) {
    m.epsilon = epsilon;
    attention(m, |a| a.epsilon = epsilon);
}

fn exchange_norms(m: &mut Model) {
    m.layers.iter_mut().for_each(|layer| std::mem::swap(&mut layer.mixer_norm, &mut layer.feed_norm));
}

fn exchange(units: &mut Units) {
    std::mem::swap(&mut units.gate, &mut units.up);
}

fn exchange_experts(m: &mut Model) {
    let Feed::Experts(experts) = &mut m.layers[0].feed else { panic!("no experts") };
    for values in [&mut experts.units.gate, &mut experts.units.up] {
        exchange_matrices(values);
    }
}

/// The first two matrices of many.
fn exchange_matrices(values: &mut Values) {
    let each = values.shape[0] * values.shape[1];
    let (first, rest) = values.data.split_at_mut(each);
    first.swap_with_slice(&mut rest[..each]);
}

/// Width of a head of queries and keys.
fn key_width(a: &Attention) -> usize {
    a.query.shape[1] / a.heads
}

fn norm_by_heads(a: &mut Attention) {
    let width = key_width(a);
    for norm in a.norms.as_mut().expect("norms") {
        norm.data.truncate(width);
    }
}

fn norm_whole(a: &mut Attention) {
    let heads = [a.heads, a.kv_heads];
    for (norm, heads) in a.norms.as_mut().expect("norms").iter_mut().zip(heads) {
        norm.data = norm.data.repeat(heads);
    }
}

/// Query head h sees head h mod n of keys and values, not ⌊h·n/heads⌋: query heads change their places, and what the output
/// makes of them follows.
fn share_in_turn(a: &mut Attention) {
    let (width, inputs, sharing) = (key_width(a), a.query.shape[0], a.heads / a.kv_heads);
    let value_width = a.value.shape[1] / a.kv_heads;
    let place = |head: usize| head % a.kv_heads * sharing + head / a.kv_heads;
    let (query, output) = (a.query.data.clone(), a.output.data.clone());
    for head in 0..a.heads {
        let (from, to) = (head * width * inputs, place(head) * width * inputs);
        a.query.data[to..][..width * inputs].copy_from_slice(&query[from..][..width * inputs]);
        let rows = a.output.data.chunks_exact_mut(a.output.shape[0]);
        for (to, from) in rows.zip(output.chunks_exact(a.output.shape[0])) {
            to[place(head) * value_width..][..value_width]
                .copy_from_slice(&from[head * value_width..][..value_width]);
        }
    }
}

/// Two of the three parts of the input projection.
fn exchange_thirds(c: &mut Convolution, first: usize, second: usize) {
    let third = c.input.data.len() / 3;
    for index in 0..third {
        c.input.data.swap(first * third + index, second * third + index);
    }
}

/// The scale without YaRN's part in it.
fn plain_scale(l: &Latent) -> f64 {
    1.0 / ((l.query.shape[1] / l.heads) as f64).sqrt()
}

/// All frequencies divided by the factor; the goldens' base is 10,000.
fn interpolate(l: &mut Latent, factor: f64) {
    let pairs = l.rotation.frequencies.len() as f64;
    for (i, frequency) in l.rotation.frequencies.iter_mut().enumerate() {
        *frequency = 1e4f64.powf(-(i as f64) / pairs) / factor;
    }
}

fn exchange_heads(l: &mut Latent) {
    exchange_matrices(&mut l.key);
}

/// As if the rows of all heads' keys stood before those of all heads' values.
fn keys_before_values(l: &mut Latent) {
    let [latent, plain, heads] = [l.key.shape[0], l.key.shape[1], l.heads];
    let value_width = l.value.shape[1];
    let each =
        |values: &Values, rows: usize| values.data.chunks(rows * latent).map(<[f32]>::to_vec).collect();
    let (keys, values): (Vec<_>, Vec<_>) = (each(&l.key, plain), each(&l.value, value_width));
    let stored: Vec<f32> =
        keys.into_iter().zip(values).flat_map(|(key, value)| [key, value].concat()).collect();
    let (keys, values) = stored.split_at(heads * plain * latent);
    (l.key.data, l.value.data) = (keys.to_vec(), values.to_vec());
}

fn halve_shared(e: &mut Experts) {
    let unit = e.shared.as_mut().expect("a shared unit");
    let inner = unit.gate.shape[1] / 2;
    for values in [&mut unit.gate, &mut unit.up] {
        values.data.truncate(values.shape[0] * inner);
        values.shape[1] = inner;
    }
    let down = unit.down.data.chunks_exact(2 * inner).flat_map(|row| &row[..inner]).copied().collect();
    unit.down.data = down;
    unit.down.shape[0] = inner;
}
