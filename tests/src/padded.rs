//! What a pass costs on the matrix unit: multiplies of whole tiles, by a model's shapes and its routing alone.
//!
//! The unit multiplies 32 rows by 32 inputs by 32 columns at a time, so each of the three is padded. Shapes are read from
//! the GGUF and the routing is the oracle's; nothing of the product is asked, so the sum is what its counters must come to.
//! A matrix that all tokens pass costs ⌈T/32⌉·⌈k/32⌉·⌈n/32⌉, an expert the same with its own rows, and none without any;
//! matrices that stand apart for each head are padded apart. Attention goes over 32 keys at a time in tiles of 32 query rows
//! of one head: all keys that a row of the tile sees, one strip of keys and a tile of each strip of values.

use crate::gguf::{Parts, Piece};
use crate::oracle::{Choice, Mixer, Model};

const TILE: usize = 32;
/// ggml's number for halves, which need no decoding.
const F16: u32 = 1;
/// Matrices that do not go to the unit: the router's logits stay in f32, the convolution's taps are a vector's.
const ON_VECTORS: [&str; 2] = ["ffn_gate_inp.weight", "shortconv.conv.weight"];

/// Multiplies of tiles, of 32·32·32 multiply-adds each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tiles {
    /// Of matrices with activations.
    pub products: u64,
    /// Of attention.
    pub attention: u64,
    /// Weight tiles that are decoded for the products at least once, those left out that lie in the unit's order already.
    pub decoded: u64,
    /// Those of the products that one more row tile of logits costs.
    pub head: u64,
}

impl Tiles {
    /// The multiplies of one prompt of `tokens` tokens, with logits at every position, by what each layer's router chose.
    ///
    /// # Panics
    /// When the routing is not that of the file.
    #[must_use]
    pub fn of(file: &Parts, model: &Model, routing: &[Vec<Choice>], tokens: usize) -> Self {
        let sparse: Vec<usize> =
            (0..model.layers.len()).filter(|&layer| has(file, layer, "ffn_gate_exps")).collect();
        assert_eq!(sparse.len(), routing.len(), "one list of choices for each layer with experts");
        let tied = model.head.is_none();
        let mut tiles = Self::default();
        for piece in &file.tensors {
            let Some([k, n, each]) = matrix(piece, tied) else { continue };
            let one = (k.div_ceil(TILE) * n.div_ceil(TILE)) as u64;
            if layer(&piece.name).is_none() {
                tiles.head += one;
            }
            let placed = layer(&piece.name).filter(|_| piece.name.contains("_exps."));
            let place = placed.and_then(|layer| sparse.iter().position(|&sparse| sparse == layer));
            for expert in 0..each {
                let rows = match place {
                    Some(place) => routes(&routing[place][..tokens], expert),
                    None => tokens,
                };
                tiles.products += rows.div_ceil(TILE) as u64 * one;
                tiles.decoded += if rows > 0 && piece.kind != F16 { one } else { 0 };
            }
        }
        for (number, layer) in model.layers.iter().enumerate() {
            tiles.attention += attention(&layer.mixer, has(file, number, "attn_k_b"), tokens);
        }
        tiles
    }
}

/// Tokens that chose an expert.
fn routes(choices: &[Choice], expert: usize) -> usize {
    choices.iter().filter(|choice| choice.experts.contains(&expert)).count()
}

fn has(file: &Parts, layer: usize, part: &str) -> bool {
    file.tensors.iter().any(|piece| piece.name == format!("blk.{layer}.{part}.weight"))
}

fn layer(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}

/// Inputs, columns and how many there are of a matrix that goes to the unit: the embedding does as a tied head alone.
fn matrix(piece: &Piece, tied: bool) -> Option<[usize; 3]> {
    let [k, n, rest @ ..] = piece.shape.as_slice() else { return None };
    let embedding = piece.name == "token_embd.weight" && !tied;
    let elsewhere = ON_VECTORS.iter().any(|name| piece.name.ends_with(name)) || embedding;
    (!elsewhere).then(|| [*k as usize, *n as usize, rest.iter().product::<u64>() as usize])
}

/// The multiplies of one layer's attention over one prompt.
fn attention(mixer: &Mixer, absorbed: bool, tokens: usize) -> u64 {
    let (heads, key, value) = match mixer {
        Mixer::Convolution(_) => return 0,
        Mixer::Attention(mixer) => {
            (mixer.heads, mixer.key.shape[1] / mixer.kv_heads, mixer.value.shape[1] / mixer.kv_heads)
        }
        // [c | rotated] and c where queries go to the latent space; the expanded keys and values where they do not.
        Mixer::Latent(mixer) if absorbed => (mixer.heads, mixer.down.shape[1], mixer.key.shape[0]),
        Mixer::Latent(mixer) => {
            let rotated = mixer.down.shape[1] - mixer.key.shape[0];
            (mixer.heads, mixer.key.shape[1] + rotated, mixer.value.shape[1])
        }
    };
    let tile = key.div_ceil(TILE) + value.div_ceil(TILE);
    let seen: usize = (0..tokens).step_by(TILE).map(|position| position / TILE + 1).sum();
    (heads * seen * tile) as u64
}
