//! Kernels that can be called: decode to fp16 tiles, and functions of rows.

use crate::memory::{Bytes, Floats};
use crate::{Line, counter};
use estream_dsp::kernels::Kernels;
use estream_dsp::kernels::hexagon::Vector;
use estream_dsp::kernels::hexagon::decode::{PAIRS, Planes};
use estream_dsp::kernels::hexagon::hvx;
use estream_idl::format::Format;
use estream_idl::recipe::RopePairs;

const VECTOR_BYTES: u32 = 128;
const VECTOR_FLOATS: u32 = 32;
/// Two sizes, in tiles or in vectors.
const SIZES: [u32; 2] = [32, 96];

/// Packets of the difference of two calls.
fn difference(mut call: impl FnMut(u32) -> u32) -> (u32, u32) {
    let [few, many] = SIZES.map(&mut call);
    (many - few, SIZES[1] - SIZES[0])
}

/// Decode of each format, a tile: all planes of it are loaded, sixteen vectors stored.
pub fn decode() {
    let formats = [
        ("decode Q4_0", Format::Q4_0),
        ("decode Q4_1", Format::Q4_1),
        ("decode IQ4_NL", Format::IQ4_NL),
        ("decode MXFP4", Format::MXFP4),
        ("decode Q4_K", Format::Q4_K),
        ("decode Q5_0", Format::Q5_0),
        ("decode Q8_0", Format::Q8_0),
        ("decode Q6_K", Format::Q6_K),
        ("decode F16", Format::F16),
        ("decode BF16", Format::BF16),
    ];
    for (kernel, format) in formats {
        let layout = format.strip(SIZES[1] as usize * 32);
        let bytes = Bytes::small(layout.bytes);
        let planes = Planes::new(format, SIZES[1] as usize * 32, bytes.get()).expect("planes");
        let mut out = vec![[hvx::zero(); PAIRS]; SIZES[1] as usize];
        let mut worst = 0;
        let (packets, count) = difference(|tiles| {
            let tiles = tiles as usize;
            counter::of(|| worst = planes.tiles(0..tiles, &mut out[..tiles]).max(worst))
        });
        assert!(worst < 0x7c00, "{kernel} saturates");
        let loads = (layout.bytes as u32).div_ceil(VECTOR_BYTES * SIZES[1]);
        Line { kernel, unit: "tile", packets, count, loads, stores: PAIRS as u32 }.print();
    }
}

/// Functions of rows, a vector of 32 elements.
pub fn rows() {
    let most = (SIZES[1] * VECTOR_FLOATS) as usize;
    let (x, weight) = (Floats::all(0.5, most), Floats::all(1.0, most));
    let mut out = Floats::all(0.0, most);
    let mut line = |kernel, loads, stores, call: &mut dyn FnMut(&mut [f32])| {
        let (packets, count) = difference(|vectors| {
            let out = &mut out.get_mut()[..(vectors * VECTOR_FLOATS) as usize];
            counter::of(|| call(out))
        });
        Line { kernel, unit: "vector", packets, count, loads, stores }.print();
    };
    // The row twice, once for its mean square, and the weights.
    line("norm", 3, 1, &mut |out| {
        Vector.rms_norm(&x.get()[..out.len()], &weight.get()[..out.len()], 1e-5, out)
    });
    line("softmax: largest", 1, 0, &mut |out| assert!(Vector.max(out) < f32::INFINITY));
    line("softmax: exponentials", 1, 1, &mut |out| assert!(Vector.exp_sum(out, 1.0) > 0.0));
    line("add weighted", 2, 1, &mut |out| Vector.add_scaled(0.5, &x.get()[..out.len()], out));
    // Each vector of a head, and a half of one of cosines and one of sines.
    line("rotate halves", 2, 1, &mut |out| {
        let pairs = out.len() / 2;
        Vector.rotate(RopePairs::Halves, out, &x.get()[..pairs], &weight.get()[..pairs]);
    });
    line("rotate neighbours", 2, 1, &mut |out| {
        let pairs = out.len() / 2;
        Vector.rotate(RopePairs::Adjacent, out, &x.get()[..pairs], &weight.get()[..pairs]);
    });
}
