//! The short convolution of LFM2: `[B | C | X] = in(x)`, `y = out(C ∘ conv(B ∘ X))`, causal, no bias and no activation.

use super::Error;
use super::gguf::Values;
use super::keys::Keys;
use super::linear::{Rows, multiply};

/// One layer's convolution.
#[derive(Clone, Debug)]
pub struct Convolution {
    /// Width → three widths: B, C, X.
    pub input: Values,
    /// Taps of each channel, the last one on the token itself.
    pub kernel: Values,
    /// Width → width.
    pub output: Values,
}

impl Convolution {
    pub(super) fn load(keys: &Keys<'_>, layer: usize) -> Result<Self, Error> {
        let part = |name: &str| keys.part(layer, &format!("shortconv.{name}.weight"));
        Ok(Self { input: part("in_proj")?, kernel: part("conv")?, output: part("out_proj")? })
    }

    /// The convolution's contribution for the normed rows `x` of one prompt.
    pub(super) fn forward(&self, x: &Rows) -> Rows {
        let (gates, width, taps) = (multiply(x, &self.input, 0), x.width, self.kernel.shape[0]);
        let mixed = Rows::compute(x.len(), width, |t, out| {
            let c = &gates.row(t)[width..2 * width];
            for (channel, out) in out.iter_mut().enumerate() {
                let kernel = &self.kernel.data[channel * taps..][..taps];
                // Tap j from the end sees the token j before; those before the first are 0.
                for (age, &weight) in kernel.iter().rev().enumerate().take(t + 1) {
                    let row = gates.row(t - age);
                    *out += f64::from(weight) * row[channel] * row[2 * width + channel];
                }
                *out *= c[channel];
            }
        });
        multiply(&mixed, &self.output, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One channel whose B is 1, C is 2 and X the input; in is x ↦ (1·x, 2·x, 1·x), so u = x² and C = 2x.
    #[test]
    fn the_last_tap_is_the_token_itself_and_nothing_stands_before_the_first() {
        let values = |shape: &[usize], data: &[f32]| Values { shape: shape.to_vec(), data: data.to_vec() };
        let convolution = Convolution {
            input: values(&[1, 3], &[1.0, 2.0, 1.0]),
            kernel: values(&[3, 1], &[100.0, 10.0, 1.0]),
            output: values(&[1, 1], &[1.0]),
        };
        let out = convolution.forward(&Rows { data: vec![1.0, 2.0, 3.0, 4.0], width: 1 });
        assert_eq!(out.data, [2.0, 4.0 * 14.0, 6.0 * 149.0, 8.0 * (400.0 + 90.0 + 16.0)]);
    }
}
