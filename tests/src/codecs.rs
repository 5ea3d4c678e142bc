//! Blocks of every ggml type that has a codec with the values that somebody else's dequantiser gives them
//! (`data/codecs.py` made them), and small models around such blocks.

use crate::compare;
use crate::gguf::{F32, Parts, Piece};
use std::path::Path;

/// Widths and rows of the types with blocks of at most 32, in the files' order.
const SMALL: [(usize, usize); 4] = [(32, 33), (96, 5), (288, 3), (2880, 1)];
/// Those of the types with blocks of 256.
const SUPER: [(usize, usize); 3] = [(256, 33), (768, 2), (2304, 1)];

/// Names and ggml numbers of the types.
pub const TYPES: [(&str, u32); 15] = [
    ("F32", 0),
    ("F16", 1),
    ("BF16", 30),
    ("Q4_0", 2),
    ("Q4_1", 3),
    ("Q5_0", 6),
    ("Q5_1", 7),
    ("Q8_0", 8),
    ("Q2_K", 10),
    ("Q3_K", 11),
    ("Q4_K", 12),
    ("Q5_K", 13),
    ("Q6_K", 14),
    ("IQ4_NL", 20),
    ("MXFP4", 39),
];

/// Rows of one width, as a file stores them and as numbers.
#[derive(Clone, Debug)]
pub struct Rows {
    /// ggml's number for the type.
    pub kind: u32,
    /// Elements of a row.
    pub width: usize,
    /// The rows' bytes.
    pub stored: Vec<u8>,
    /// Their values.
    pub values: Vec<f32>,
}

impl Rows {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.values.len() / self.width
    }

    /// `count` rows, the first ones again after the last.
    #[must_use]
    pub fn cycle(&self, count: usize) -> Self {
        let each = self.stored.len() / self.count();
        let stored = self.stored.chunks_exact(each).cycle().take(count).flatten().copied().collect();
        let values = self.values.chunks_exact(self.width).cycle().take(count).flatten().copied().collect();
        Self { stored, values, ..*self }
    }
}

/// The fixture of a type, width by width.
///
/// # Panics
/// When a file is missing or damaged.
#[must_use]
pub fn rows(name: &str) -> Vec<Rows> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/codecs");
    let stored = std::fs::read(folder.join(format!("{name}.bin"))).expect("the blocks");
    let values = compare::read_npy_vector(&folder.join(format!("{name}.npy"))).expect("the values");
    let (_, kind) = TYPES.into_iter().find(|(known, _)| *known == name).expect("a type with a codec");
    let widths: &[_] = if name.ends_with("_K") { &SUPER } else { &SMALL };
    let total: usize = widths.iter().map(|(width, count)| width * count).sum();
    assert_eq!(values.len(), total, "{name}");
    let mut at = 0;
    let cut = |&(width, count): &(usize, usize)| {
        let (first, last) = (at, at + width * count);
        at = last;
        let byte = |element: usize| element * stored.len() / total;
        let (stored, values) = (stored[byte(first)..byte(last)].to_vec(), values[first..last].to_vec());
        Rows { kind, width, stored, values }
    };
    widths.iter().map(cut).collect()
}

/// Whole blocks of a type, `elements` of them, out of its fixture.
///
/// # Panics
/// As [`rows`].
#[must_use]
pub fn blocks(name: &str, elements: usize) -> Vec<u8> {
    let all: Vec<u8> = rows(name).into_iter().flat_map(|rows| rows.stored).collect();
    let total: usize = rows(name).iter().map(|rows| rows.values.len()).sum();
    all.iter().copied().cycle().take(elements * all.len() / total).collect()
}

fn keys(width: usize, inner: usize) -> Parts {
    let mut parts = Parts::default();
    let text = |value: &str| {
        [&8u32.to_le_bytes()[..], &(value.len() as u64).to_le_bytes(), value.as_bytes()].concat()
    };
    parts.keys.push(("general.architecture".to_owned(), text("olmoe")));
    let epsilon = [&6u32.to_le_bytes()[..], &1e-5f32.to_le_bytes()].concat();
    parts.keys.push(("olmoe.attention.layer_norm_rms_epsilon".to_owned(), epsilon));
    for (key, value) in [
        ("block_count", 1),
        ("context_length", 64),
        ("embedding_length", width as u32),
        ("feed_forward_length", inner as u32),
        ("attention.head_count", 1),
        ("attention.key_length", 32),
        ("attention.value_length", 32),
        ("expert_count", 1),
        ("expert_used_count", 1),
    ] {
        parts.set(&format!("olmoe.{key}"), value);
    }
    parts
}

/// A model of one layer and one expert with `rows` as its embedding, head, query, gate and up, or (where `deep`) its
/// down matrix; all else is zero and plain. `rows` has 32 rows or more where `deep`.
#[must_use]
pub fn model(rows: &Rows, deep: bool) -> Parts {
    let (width, inner) = if deep { (32, rows.width) } else { (rows.width, rows.count()) };
    let mut parts = keys(width, inner);
    let mut add = |name: &str, shape: &[usize], of: Option<&Rows>| {
        let shape: Vec<u64> = shape.iter().map(|&extent| extent as u64).collect();
        let (kind, data) = match of {
            Some(rows) => (rows.kind, rows.stored.clone()),
            None => (F32, vec![0; 4 * shape.iter().product::<u64>() as usize]),
        };
        parts.tensors.push(Piece::new(name, &shape, kind, data));
    };
    let wide = (!deep).then_some(rows);
    let vocab = if deep { 32 } else { rows.count() };
    let heads = rows.cycle(32);
    add("token_embd.weight", &[width, vocab], wide);
    for name in ["attn_norm", "ffn_norm"] {
        add(&format!("blk.0.{name}.weight"), &[width], None);
    }
    add("blk.0.attn_q.weight", &[width, 32], (!deep).then_some(&heads));
    add("blk.0.attn_k.weight", &[width, 32], None);
    add("blk.0.attn_v.weight", &[width, 32], None);
    add("blk.0.attn_output.weight", &[32, width], None);
    add("blk.0.attn_q_norm.weight", &[32], None);
    add("blk.0.attn_k_norm.weight", &[32], None);
    add("blk.0.ffn_gate_inp.weight", &[width, 1], None);
    add("blk.0.ffn_gate_exps.weight", &[width, inner, 1], wide);
    add("blk.0.ffn_up_exps.weight", &[width, inner, 1], wide);
    add("blk.0.ffn_down_exps.weight", &[inner, width, 1], deep.then_some(rows));
    add("output_norm.weight", &[width], None);
    add("output.weight", &[width, vocab], wide);
    parts
}
