//! Words whose result IEEE arithmetic determines, against this machine's own.

use crate::bench::{State, Vector};
use crate::floats::Checked;
use half::f16;

fn lanes(vector: &Vector) -> [f32; 32] {
    vector.map(f32::from_bits)
}

/// A halfword of a vector.
fn half(vector: &Vector, index: usize) -> f16 {
    f16::from_bits((vector[index / 2] >> (16 * (index & 1))) as u16)
}

fn halves(of: impl Fn(usize) -> f16) -> Vector {
    std::array::from_fn(|word| {
        u32::from(of(2 * word).to_bits()) | u32::from(of(2 * word + 1).to_bits()) << 16
    })
}

/// Sums and products of two halves are exact in doubles, so that rounding happens once.
fn exactly(u: f16, v: f16, of: fn(f64, f64) -> f64) -> f64 {
    of(u.to_f64(), v.to_f64())
}

fn single(text: &str, of: fn(f32, f32) -> f32) -> Checked {
    Checked::new(text, format!("\t{text}"), move |state| {
        let [u, v] = [lanes(&state.vectors[1]), lanes(&state.vectors[2])];
        state.vectors[3] = std::array::from_fn(|lane| of(u[lane], v[lane]).to_bits());
    })
}

fn double(text: &str, of: fn(f64, f64) -> f64) -> Checked {
    Checked::new(text, format!("\t{text}"), move |state| {
        let [u, v] = [state.vectors[20], state.vectors[21]];
        state.vectors[3] = halves(|index| f16::from_f64(exactly(half(&u, index), half(&v, index), of)));
    })
}

/// Even halfwords widen into the low vector, odd ones into the high one.
fn widening(text: &str, of: fn(f64, f64) -> f64) -> Checked {
    Checked::new(text, format!("\t{text}"), move |state| {
        let [u, v] = [state.vectors[20], state.vectors[21]];
        let lane = |odd: usize, lane: usize| {
            let index = 2 * lane + odd;
            (exactly(half(&u, index), half(&v, index), of) as f32).to_bits()
        };
        state.vectors[4] = std::array::from_fn(|word| lane(0, word));
        state.vectors[5] = std::array::from_fn(|word| lane(1, word));
    })
}

pub fn cases() -> Vec<Checked> {
    vec![
        single("v3.sf = vadd(v1.sf,v2.sf)", |u, v| u + v),
        single("v3.sf = vsub(v1.sf,v2.sf)", |u, v| u - v),
        single("v3.sf = vmpy(v1.sf,v2.sf)", |u, v| u * v),
        single("v3.sf = vmax(v1.sf,v2.sf)", f32::max),
        single("v3.sf = vmin(v1.sf,v2.sf)", f32::min),
        single("v3.sf = vabs(v1.sf)", |u, _| u.abs()),
        single("v3.sf = vfneg(v1.sf)", |u, _| -u),
        double("v3.hf = vadd(v20.hf,v21.hf)", |u, v| u + v),
        double("v3.hf = vsub(v20.hf,v21.hf)", |u, v| u - v),
        double("v3.hf = vmpy(v20.hf,v21.hf)", |u, v| u * v),
        double("v3.hf = vmax(v20.hf,v21.hf)", f64::max),
        double("v3.hf = vfneg(v20.hf)", |u, _| -u),
        widening("v5:4.sf = vadd(v20.hf,v21.hf)", |u, v| u + v),
        widening("v5:4.sf = vmpy(v20.hf,v21.hf)", |u, v| u * v),
        Checked::new("halves from singles", "\tv3.hf = vcvt(v1.sf,v2.sf)", |state| {
            let [u, v] = [lanes(&state.vectors[1]), lanes(&state.vectors[2])];
            state.vectors[3] = halves(|index| f16::from_f32(if index & 1 == 0 { u } else { v }[index / 2]));
        }),
        Checked::new("words from singles and back", "\tv3.w = v1.sf\n\tv4.sf = v3.w", |state| {
            let whole = lanes(&state.vectors[1]).map(f32::trunc);
            state.vectors[3] = whole.map(|lane| (lane as i32).cast_unsigned());
            // There is no negative zero among whole numbers.
            state.vectors[4] = whole.map(|lane| (lane as i32 as f32).to_bits());
        }),
        Checked::new("a comparison", "\tq1 = vcmp.gt(v1.sf,v2.sf)", |state| {
            let [u, v] = [lanes(&state.vectors[1]), lanes(&state.vectors[2])];
            state.predicates[1] = std::array::from_fn(|lane| if u[lane] > v[lane] { u32::MAX } else { 0 });
        }),
        Checked::new("a comparison added to another", "\tq1 |= vcmp.gt(v20.hf,v21.hf)", |state| {
            let [u, v] = [state.vectors[20], state.vectors[21]];
            let greater = |index: usize| if half(&u, index) > half(&v, index) { 0xffff } else { 0 };
            state.predicates[1] = std::array::from_fn(|word| {
                state.predicates[1][word] | greater(2 * word) | greater(2 * word + 1) << 16
            });
        }),
    ]
}

/// The state that the cases need.
pub fn state() -> State {
    let mut state = State::random(3);
    state.predicates[1] = std::array::from_fn(|word| if word % 5 == 0 { u32::MAX } else { 0 });
    state
}
