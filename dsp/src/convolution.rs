//! Short convolution: each channel mixes the last few tokens of its own request.

use crate::view::Rows;

/// One row: `out[c] = C_t[c] · Σ_j kernel[c][j] · u_{t−taps+1+j}[c]`, `u = B ∘ X`, nothing before the request's first token.
///
/// `gates` holds `[B | C | X]` a token, `token` is the row, `position` its place in the request. The sum runs over
/// ascending j, with products rounded before they are added.
pub fn row(gates: Rows<'_>, token: usize, position: usize, kernel: &[f32], taps: usize, out: &mut [f32]) {
    let width = out.len();
    out.fill(0.0);
    for tap in taps.saturating_sub(position + 1)..taps {
        let source = gates.row(token + tap + 1 - taps);
        let (b, x) = (&source[..width], &source[2 * width..3 * width]);
        for (channel, out) in out.iter_mut().enumerate() {
            *out += kernel[channel * taps + tap] * (b[channel] * x[channel]);
        }
    }
    let c = &gates.row(token)[width..2 * width];
    out.iter_mut().zip(c).for_each(|(out, c)| *out *= c);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn a_row_sees_its_own_request_and_the_last_tap_is_itself() {
        // Two channels, three taps, rows of [B | C | X]; the request begins at row 1.
        let gates: Vec<f32> = (0..4).flat_map(|t| [t, 1, 2, 3, 1, t + 1].map(|v: u32| v as f32)).collect();
        let gates = Rows::new(&gates, 6);
        let kernel = [100.0, 10.0, 1.0, 0.0, 0.0, 1.0];
        let u = |t: usize| [t as f32, (t + 1) as f32];
        let mut out = [0.0; 2];
        row(gates, 1, 0, &kernel, 3, &mut out);
        assert_eq!(out, [2.0 * u(1)[0], 3.0 * u(1)[1]], "what stands before the request is not seen");
        row(gates, 3, 2, &kernel, 3, &mut out);
        assert_eq!(out, [2.0 * (100.0 * u(1)[0] + 10.0 * u(2)[0] + u(3)[0]), 3.0 * u(3)[1]]);
    }
}
