//! The start-up self-test refuses a backend whose kernels are wrong, with the numbers: wrong kernels are injected here, the
//! right ones with one slip each.

use estream_dsp::kernels::scalar::Scalar;
use estream_dsp::kernels::{Chain, Kernels, Plain, Strip};
use estream_dsp::selftest;
use estream_dsp::view::{Block, Rows};
use estream_idl::recipe::RopePairs;
use estream_idl::status::Status;
use std::ops::Range;

/// A slip.
#[derive(Clone, Copy, Debug)]
enum Slip {
    /// None: the control.
    None,
    /// Two neighbouring columns are exchanged, as by a wrong lane order.
    Columns,
    /// Two neighbouring k are exchanged, as by a wrong nibble order.
    Inputs,
    /// The last tile's weights are those of the scale before.
    Scale,
    /// One weight has the wrong sign, as by a wrong entry of a table.
    Sign,
    /// The second part of a chain begins anew.
    Restart,
}

/// The portable kernels with a slip.
struct Slipped(Slip);

impl Kernels for Slipped {
    fn decode(&self, strip: Strip<'_>, tiles: Range<usize>, out: &mut [f32]) {
        let last = tiles.start > 0;
        Scalar.decode(strip, tiles, out);
        match self.0 {
            Slip::None | Slip::Restart => {}
            Slip::Columns => out.swap(6, 7),
            Slip::Inputs => (0..32).for_each(|column| out.swap(column, 32 + column)),
            Slip::Scale if last => out.iter_mut().for_each(|weight| *weight /= 4.0),
            Slip::Scale => {}
            // Column 5 of k 9: the code there is not the table's zero.
            Slip::Sign => out[9 * 32 + 5] *= -1.0,
        }
    }

    fn multiply(&self, x: Rows<'_>, weights: &[f32], out: Block<'_>, chain: Chain) {
        let chain = if matches!(self.0, Slip::Restart) { Chain::Start } else { chain };
        Scalar.multiply(x, weights, out, chain);
    }

    fn rms_norm(&self, x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
        Scalar.rms_norm(x, weight, epsilon, out);
    }

    fn swiglu(&self, gate: &[f32], up: &[f32], out: &mut [f32]) {
        Scalar.swiglu(gate, up, out);
    }

    fn add_scaled(&self, factor: f32, x: &[f32], y: &mut [f32]) {
        Scalar.add_scaled(factor, x, y);
    }

    fn scale(&self, factor: f32, x: &mut [f32]) {
        Scalar.scale(factor, x);
    }

    fn rotate(&self, pairs: RopePairs, head: &mut [f32], cos: &[f32], sin: &[f32]) {
        Scalar.rotate(pairs, head, cos, sin);
    }

    fn max(&self, x: &[f32]) -> f32 {
        Scalar.max(x)
    }

    fn exp_sum(&self, x: &mut [f32], max: f32) -> f32 {
        Scalar.exp_sum(x, max)
    }

    fn sum_exp(&self, x: &[f32], max: f32) -> f32 {
        Scalar.sum_exp(x, max)
    }
}

#[test]
fn every_slip_is_refused_with_the_numbers_and_none_is_not() {
    selftest::check(&Plain(Slipped(Slip::None))).expect("the kernels are right");
    for slip in [Slip::Columns, Slip::Inputs, Slip::Scale, Slip::Sign, Slip::Restart] {
        let refusal = selftest::check(&Plain(Slipped(slip))).expect_err("the kernels are wrong");
        assert_eq!(refusal.status, Status::SelfTest, "{slip:?}");
        let [got, wanted] = [refusal.needed, refusal.limit].map(|bits| f32::from_bits(bits as u32));
        assert!(got != wanted && wanted.is_finite(), "{slip:?}: {got} in place of {wanted}");
    }
}
