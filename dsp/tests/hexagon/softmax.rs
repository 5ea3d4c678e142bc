//! The softmax over key blocks against f64: weights, what rows see, and what is carried from block to block.

use crate::Random;
use estream_dsp::kernels::hexagon::hvx::{V, from_words, half_of_h, lift, splat_f, to_words, zero};
use estream_dsp::kernels::hexagon::softmax::{Running, Tile, accumulate, factors, weigh};
use estream_dsp::kernels::hexagon::tiles::saturated;
use half::f16;

const ROWS: usize = 32;
const KEYS: usize = 64;

/// A block of scores, weights or values: `[row][key]`.
type Block = [[f32; KEYS]; ROWS];

/// The word and the half of it where a key of a row stands in its tile.
fn place(row: usize, key: usize) -> (usize, usize, usize, u32) {
    (key / 32, row / 2, key % 32, 16 * (row as u32 % 2))
}

fn tiles(block: &Block) -> [Tile; 2] {
    let mut words = [[[0; 32]; 16]; 2];
    for (row, keys) in block.iter().enumerate() {
        for (key, &score) in keys.iter().enumerate() {
            let (half, pair, lane, shift) = place(row, key);
            words[half][pair][lane] |= u32::from(f16::from_f32(score).to_bits()) << shift;
        }
    }
    words.map(|tile| tile.map(from_words))
}

fn values(tiles: &[Tile; 2], row: usize, key: usize) -> f32 {
    let (half, pair, lane, shift) = place(row, key);
    f16::from_bits((to_words(tiles[half][pair])[lane] >> shift) as u16).to_f32()
}

/// The weights, with zeros where the rows see nothing of the second half.
fn softmax(
    scores: &Block,
    (halves, triangle): (usize, bool),
    factor: f32,
    running: &mut Running,
) -> [Tile; 2] {
    let mut weights = [[zero(); 16]; 2];
    let factors = factors(from_words([0; 32]), 1.0, factor);
    weigh(&tiles(scores)[..halves], triangle, factors, running, &mut weights[..halves], &mut zero());
    weights
}

/// Keys of a block that a row sees.
fn seen((halves, triangle): (usize, bool), row: usize) -> usize {
    if triangle { 32 * halves - 31 + row } else { 32 * halves }
}

fn block(random: &mut Random, scale: f32) -> Block {
    [(); ROWS].map(|()| [(); KEYS].map(|()| f16::from_f32(random.unit() * scale).to_f32()))
}

#[test]
fn weights_are_exponentials_of_what_a_row_sees() {
    let mut random = Random::new(11);
    for (round, rows) in [(1, true), (2, true), (2, false)].into_iter().cycle().take(60).enumerate() {
        let scale = [0.1, 3.0, 20.0, 300.0][round % 4];
        let scores = block(&mut random, scale);
        let mut running = Running::new();
        let weights = softmax(&scores, rows, 0.7, &mut running);
        let inverse = running.inverse().map(f32::from_bits);
        for (row, scores) in scores.iter().enumerate() {
            let seen = seen(rows, row);
            let top = scores[..seen].iter().copied().fold(f32::MIN, f32::max);
            let mut sum = 0.0;
            for (key, &score) in scores.iter().enumerate() {
                let weight = f64::from(values(&weights, row, key));
                sum += weight;
                if key >= seen {
                    assert_eq!(weight.to_bits(), 0, "row {row} does not see key {key}");
                    continue;
                }
                let exact = 256.0 * (0.7 * f64::from(score - top)).exp();
                // The distance to the largest score is exact to its last bit, and to 2^-17 of a whole.
                let bound = exact * (6e-4 + 1e-6 * f64::from(score.abs() + top.abs()));
                let least = 2f64.powi(-14);
                assert!(
                    (weight - exact).abs() <= bound || exact < least && weight <= least * 1.001,
                    "row {row}, key {key}: {weight} for {exact}"
                );
            }
            assert!((f64::from(inverse[row]) * sum - 1.0).abs() < 2e-5, "row {row}: the sum");
        }
    }
}

#[test]
fn a_score_far_below_weighs_nothing() {
    let mut scores = [[-60000.0; KEYS]; ROWS];
    scores.iter_mut().for_each(|row| row[5] = 1.0);
    let weights = softmax(&scores, (2, false), 1.0, &mut Running::new());
    for row in 0..ROWS {
        for key in 0..KEYS {
            assert_eq!(values(&weights, row, key), if key == 5 { 256.0 } else { 0.0 });
        }
    }
}

/// Where a sum with what makes weights of scores loses its whole numbers, scores are told, on either side.
#[test]
fn scores_too_far_from_zero_are_told_and_near_ones_are_right() {
    for (score, factor, told) in
        [(6e4, 32.0, false), (-6e4, 32.0, false), (6e4, 64.0, true), (-6e4, 64.0, true), (6e4, 1e9, true)]
    {
        let (scores, factors) = ([[score; KEYS]; ROWS], factors(from_words([0; 32]), 1.0, factor));
        let (mut weights, mut running, mut seen) = ([[zero(); 16]; 2], Running::new(), zero());
        weigh(&tiles(&scores), false, factors, &mut running, &mut weights, &mut seen);
        assert_eq!(saturated(seen), told, "{score} by {factor}");
        if told {
            continue;
        }
        let inverse = f32::from_bits(running.inverse()[3]);
        for weight in (0..KEYS).map(|key| values(&weights, 3, key)) {
            assert!((0.5..=2.0).contains(&(weight / 256.0)), "{score} by {factor}: {weight}");
            assert!((weight * inverse * KEYS as f32 - 1.0).abs() < 2e-5, "{score} by {factor}: a share");
        }
    }
}

#[test]
fn blocks_are_carried_on() {
    let mut random = Random::new(12);
    let rows = (2, false);
    let mut running = Running::new();
    let mut sums = [zero(); ROWS];
    let mut exact = [(f64::MIN, 0.0, 0.0); ROWS];
    for round in 0..6 {
        let scores = block(&mut random, [2.0, 9.0][round % 2]);
        let weights = softmax(&scores, rows, 1.0, &mut running);
        // A mixture of small whole numbers, raised by 2^3.
        let mixed: [[i16; 32]; ROWS] =
            [(); ROWS].map(|()| [(); 32].map(|()| (random.bits() % 2001) as i16 - 1000));
        let tile: Tile = core::array::from_fn(|pair| {
            half_of_h(from_words(core::array::from_fn(|lane| {
                let [even, odd] = [0, 1].map(|odd| u32::from(mixed[2 * pair + odd][lane].cast_unsigned()));
                even | odd << 16
            })))
        });
        accumulate(&tile, lift(splat_f(0.125)), &running, &mut sums, &mut zero());
        for (row, (top, sum, value)) in exact.iter_mut().enumerate() {
            let next: f64 = scores[row].iter().copied().fold(*top as f32, f32::max).into();
            let decay: f64 = (*top - next).exp();
            let added: f64 = (0..KEYS).map(|key| f64::from(values(&weights, row, key))).sum();
            (*top, *sum) = (next, *sum * decay + added);
            *value = *value * decay + f64::from(mixed[row][7]) / 8.0;
        }
    }
    let inverse = running.inverse().map(f32::from_bits);
    for (row, (_, sum, value)) in exact.into_iter().enumerate() {
        // What decays adds up to values as large as a part that has come in.
        let near = |found: f64, exact: f64, part: f64| {
            assert!((found - exact).abs() <= 1e-5 * part, "row {row}: {found} for {exact}");
        };
        near(f64::from(inverse[row]) * sum, 1.0, 2.0);
        near(f32::from_bits(to_words(sums[row])[7]).into(), value, 125.0);
    }
}

#[test]
fn a_rows_factor_is_its_scale() {
    let exponents = from_words(core::array::from_fn(|row| (row as i32 - 16).cast_unsigned()));
    let found: V = factors(exponents, 0.25, 3.0);
    for (row, word) in to_words(found).into_iter().enumerate() {
        let exact = 0.75 / std::f64::consts::LN_2 * 2f64.powi(16 - row as i32);
        assert!((f64::from(f32::from_bits(word)) / exact - 1.0).abs() < 1e-6, "row {row}");
    }
}
