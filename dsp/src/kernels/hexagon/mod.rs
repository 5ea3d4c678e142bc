//! The kernels of Hexagon: vectors of 128 bytes, and tiles for the matrix unit.
//!
//! Written once over the vector unit's face ([`hvx`]). Natively the same code runs over the units' software models, as
//! `hmx-model`: its results are the skel's, bit for bit as v73 computes them. What is here belongs to one vector thread;
//! [`crate::matrix`] has the machine around it.

pub mod activate;
#[allow(unsafe_code)]
mod blocks;
pub mod decode;
pub mod float;
#[allow(unsafe_code)]
pub mod gather;
#[allow(unsafe_code)]
pub mod hvx;
pub mod rows;
mod scales;
#[allow(unsafe_code)]
pub mod scatter;
pub mod softmax;
#[allow(unsafe_code)]
mod steady;
pub mod tiles;

use super::{Chain, Kernels, Strip};
use crate::view::{Block, Rows};
use core::ops::Range;
use estream_idl::address::TILE;
use estream_idl::recipe::RopePairs;

/// The vector unit's functions of f32.
#[derive(Clone, Copy, Debug)]
pub struct Vector;

impl Kernels for Vector {
    fn decode(&self, strip: Strip<'_>, tiles: Range<usize>, out: &mut [f32]) {
        let planes = decode::Planes::new(strip.format, strip.k, strip.bytes)
            .expect("a strip stands at a vector's border");
        let (out, rest) = out.as_chunks_mut::<TILE>();
        assert!(out.len() == tiles.len() * TILE && rest.is_empty(), "1024 weights a tile");
        planes.rows(tiles, out);
    }
    fn multiply(&self, x: Rows<'_>, weights: &[f32], out: Block<'_>, chain: Chain) {
        rows::multiply(x, weights, out, chain);
    }
    fn rms_norm(&self, x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
        rows::rms_norm(x, weight, epsilon, out);
    }
    fn swiglu(&self, gate: &[f32], up: &[f32], out: &mut [f32]) {
        rows::swiglu(gate, up, out);
    }
    fn add_scaled(&self, factor: f32, x: &[f32], y: &mut [f32]) {
        rows::add_scaled(factor, x, y);
    }
    fn scale(&self, factor: f32, x: &mut [f32]) {
        rows::scale(factor, x);
    }
    fn rotate(&self, pairs: RopePairs, head: &mut [f32], cos: &[f32], sin: &[f32]) {
        rows::rotate(pairs, head, cos, sin);
    }
    fn max(&self, x: &[f32]) -> f32 {
        rows::max(x)
    }
    fn exp_sum(&self, x: &mut [f32], max: f32) -> f32 {
        rows::exp_sum(x, max)
    }
    fn sum_exp(&self, x: &[f32], max: f32) -> f32 {
        rows::sum_exp(x, max)
    }
}
