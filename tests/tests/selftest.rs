//! The start-up self-test refuses a backend whose kernels are wrong, with the numbers: wrong kernels are injected here, the
//! right ones with one slip each.

use estream_dsp::kernels::int8::ScalarInt8;
use estream_dsp::kernels::scalar::Scalar;
use estream_dsp::kernels::{Chain, Decoded, Input, Kernels, Plain, Products, Strip, choose};
use estream_dsp::selftest;
use estream_dsp::view::{Block, Rows};
use estream_dsp::vtcm::Packing;
use estream_idl::call::KernelSet;
use estream_idl::format::Format;
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

/// A slip of integer products.
#[derive(Clone, Copy, Debug)]
enum IntegerSlip {
    /// None: the control.
    None,
    /// Low digits are lost.
    Digits,
    /// Sums begin at zero, as if codes were signed.
    Offset,
    /// A block has the scale of the one before.
    Scale,
    /// Two neighbouring columns' codes are exchanged.
    Columns,
}

/// The portable integer products with a slip. A block of theirs is 16 words of digits, the scale, three offsets, three
/// sums, and what the scale adds to a float's bits.
struct Integers(IntegerSlip);

impl Products for Integers {
    fn packing(&self, formats: &[Format]) -> Packing {
        ScalarInt8::<2>.packing(formats)
    }

    fn in_place(&self) -> bool {
        false
    }

    fn pack(&self, x: &[f32], out: &mut [f32]) {
        ScalarInt8::<2>.pack(x, out);
        let words = out.len() / x.len().div_ceil(32);
        for block in out.chunks_mut(words) {
            match self.0 {
                IntegerSlip::Digits => {
                    block[..16].iter_mut().for_each(|two| *two = f32::from_bits(two.to_bits() & 0xFF00_FF00));
                }
                IntegerSlip::Offset => block[17..20].fill(0.0),
                IntegerSlip::None | IntegerSlip::Scale | IntegerSlip::Columns => {}
            }
        }
    }

    fn decode(&self, strip: Strip<'_>, tiles: Range<usize>, out: &mut [f32]) {
        let last = tiles.start > 0;
        ScalarInt8::<2>.decode(strip, tiles, out);
        match self.0 {
            IntegerSlip::Scale if last => out[256..].iter_mut().for_each(|scale| *scale /= 4.0),
            IntegerSlip::Columns => out.swap(6, 7),
            _ => {}
        }
    }

    fn multiply(&self, x: Input<'_>, weights: Decoded<'_>, out: Block<'_>, chain: Chain) {
        ScalarInt8::<2>.multiply(x, weights, out, chain);
    }
}

#[test]
fn slips_of_integer_products_are_refused_and_all_backends_pass() {
    selftest::check(&Integers(IntegerSlip::None)).expect("the products are right");
    for slip in [IntegerSlip::Digits, IntegerSlip::Offset, IntegerSlip::Scale, IntegerSlip::Columns] {
        let refusal = selftest::check(&Integers(slip)).expect_err("the products are wrong");
        assert_eq!(refusal.status, Status::SelfTest, "{slip:?}");
        assert_ne!(refusal.needed, refusal.limit, "{slip:?}");
    }
    for set in KernelSet::DIGITS.iter() {
        for backend in [set, set | KernelSet::ONE_DIGIT].into_iter().filter_map(choose) {
            for products in backend.products() {
                selftest::check(products).unwrap_or_else(|refusal| panic!("{backend:?}: {refusal:?}"));
            }
        }
    }
}
