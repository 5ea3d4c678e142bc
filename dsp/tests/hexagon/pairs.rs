//! Row pairs: gathered, activated and scattered, against f64.

use crate::Random;
use estream_dsp::kernels::hexagon::activate::{BLOCK, activate, gate_offsets};
use estream_dsp::kernels::hexagon::gather::{largest, pack_rows};
use estream_dsp::kernels::hexagon::hvx::{V, first_q, from_words, lift, splat_f, to_words, zero};
use estream_dsp::kernels::hexagon::scatter::{Aim, scatter};
use estream_dsp::kernels::hexagon::tiles::{ACTIVATION_ROOM, Exponent, saturated};
use half::f16;

fn halves(values: [f32; 64]) -> V {
    let half = |i: usize| u32::from(f16::from_f32(values[i]).to_bits());
    from_words(core::array::from_fn(|word| half(2 * word) | half(2 * word + 1) << 16))
}

fn values(v: V) -> [f64; 64] {
    let words = to_words(v);
    core::array::from_fn(|i| f64::from(f16::from_bits((words[i / 2] >> (16 * (i % 2))) as u16).to_f32()))
}

fn floats(random: &mut Random, scale: f32) -> V {
    from_words(core::array::from_fn(|_| (random.unit() * scale).to_bits()))
}

/// 2^-n.
fn unit(n: i32) -> f64 {
    2f64.powi(-n)
}

/// Activates one block of equal vectors, of rows raised by `raises`.
fn activated(gate: V, up: V, raises: [i32; 2]) -> ([f64; 64], bool) {
    let mut out = [[zero(); BLOCK]];
    let offsets = gate_offsets(raises.map(Exponent));
    let seen = activate(&[[gate; BLOCK]], &[[up; BLOCK]], &[[offsets; BLOCK]], &mut out);
    let [first, rest @ ..] = out[0];
    assert!(rest.iter().all(|other| other == &first), "a vector's place in its block does not matter");
    (values(first), saturated(seen))
}

#[test]
fn activations_are_within_their_bound_whatever_the_rows_size() {
    let mut random = Random::new(11);
    let room = 2f64.powi(ACTIVATION_ROOM);
    for round in 0..4000 {
        let raises = [random.bits() as i32 % 59, [0, 3, -4, 7, -18, -30, 58, -58][round % 8]];
        let scale = [1.0, 30.0, 0.02, 1e-3][round / 8 % 4];
        let (gate, up) = (
            halves(core::array::from_fn(|_| random.unit() * scale)),
            halves(core::array::from_fn(|_| random.unit() * 8.0)),
        );
        let (h, over) = activated(gate, up, raises);
        assert!(!over);
        for (i, ((h, g), u)) in h.into_iter().zip(values(gate)).zip(values(up)).enumerate() {
            let share = 1.0 / (1.0 + (-g * unit(raises[i % 2])).exp());
            let exact = g * u * share * room;
            // The share's error, two roundings to halves, and the least half.
            let mut bound = (g * u).abs() * room * unit(13) + exact.abs() * unit(10) * 1.01 + unit(24);
            if g.abs() < unit(14) {
                bound += u.abs() * unit(15) * room;
            }
            assert!(
                (h - exact).abs() <= bound,
                "{g} {u} raised by {raises:?}: {h} for {exact} within {bound}"
            );
        }
    }
}

#[test]
fn shares_end_at_nothing_and_at_all() {
    let gates = halves(core::array::from_fn(|i| [-60_000.0, -20.0, 0.0, 20.0, 1000.0, -0.0][i % 6]));
    let ups = halves(core::array::from_fn(|i| if i % 6 == 4 { 0.5 } else { 1.0 }));
    let (h, over) = activated(gates, ups, [0, 0]);
    assert!(!over);
    for (i, h) in h.into_iter().enumerate() {
        let exact = [0.0, 0.0, 0.0, 320.0, 8000.0, 0.0][i % 6];
        assert!((h - exact).abs() <= exact * unit(10), "{i}: {h} for {exact}");
    }
}

#[test]
fn what_leaves_the_range_is_seen_on_either_side() {
    let one = halves([1.0; 64]);
    let lane = |value: u32| {
        let mut words = to_words(one);
        words[17] = words[17] & 0xffff | value << 16;
        from_words(words)
    };
    assert!(!activated(one, one, [0, 0]).1);
    for value in [0x7c00, 0x7fff, 0xffff, 0xfc01] {
        assert!(activated(lane(value), one, [0, 0]).1, "gate {value:#x}");
        assert!(activated(one, lane(value), [0, 0]).1, "up {value:#x}");
    }
    let large = halves([200.0; 64]);
    assert!(activated(large, large, [0, 0]).1, "200 · 200 · 2^4 is no half");
}

#[test]
fn rows_are_packed_side_by_side_and_their_largest_is_found() {
    let mut random = Random::new(12);
    for count in [1, 2, 3, 4, 5, 8, 31, 32] {
        let [a, b]: [Vec<V>; 2] =
            [3.0, 0.01].map(|scale| (0..count).map(|_| floats(&mut random, scale)).collect());
        let magnitude = |v: V| to_words(v).map(|word| word & 0x7fff_ffff);
        for row in [&a, &b] {
            let expected = row
                .iter()
                .fold([0; 32], |seen, &v| core::array::from_fn(|lane| magnitude(v)[lane].max(seen[lane])));
            assert_eq!(to_words(largest(row)), expected);
        }
        let powers = [0.5, 64.0];
        let (stride, apart) = (3, size_of::<V>());
        let mut out = vec![zero(); count * stride];
        // SAFETY: `out` has a vector at every third place for each of the row's.
        unsafe { pack_rows([&a, &b], powers.map(splat_f), out.as_mut_ptr(), stride * apart) };
        for (i, out) in out.iter().enumerate() {
            let packed = values(*out);
            for lane in 0..64 {
                let row = if lane % 2 == 0 { &a } else { &b };
                let exact = f64::from(f32::from_bits(to_words(row[i / stride])[lane / 2]) * powers[lane % 2]);
                let bound = if i % stride == 0 { exact.abs() * unit(11) * 1.001 + unit(25) } else { 0.0 };
                let exact = if i % stride == 0 { exact } else { 0.0 };
                assert!(
                    (packed[lane] - exact).abs() <= bound,
                    "{count} {i} {lane}: {} {exact}",
                    packed[lane]
                );
            }
        }
    }
}

#[test]
fn weighted_rows_go_where_they_are_aimed_and_nowhere_else() {
    let mut random = Random::new(13);
    for (pairs, add) in [(1, true), (2, true), (3, true), (9, true), (1, false), (6, false)] {
        let rows = 2 * pairs + 3;
        let tile: Vec<V> =
            (0..pairs).map(|_| halves(core::array::from_fn(|_| random.unit() * 5.0))).collect();
        // Rows of two vectors, of which the second is met; each once, backwards, three left out.
        let place = |row: usize| rows - 2 - row;
        let factor = |row: usize| 0.3 + row as f32 / 7.0;
        let aims: Vec<Aim> = (0..pairs)
            .map(|pair| Aim {
                rows: [0, 1].map(|side| place(2 * pair + side) * 2 * size_of::<V>()),
                factors: [0, 1].map(|side| first_q(lift(splat_f(factor(2 * pair + side))))),
            })
            .collect();
        let before: Vec<V> = (0..2 * rows).map(|_| floats(&mut random, 2.0)).collect();
        let mut after = before.clone();
        let mut seen = zero();
        // SAFETY: all places are rows of `after`, and each comes once.
        unsafe { scatter(&tile, &aims, after.as_mut_ptr().add(1), add, &mut seen) };
        let largest = tile.iter().flat_map(|&v| values(v)).fold(0f64, |largest, x| largest.max(x.abs()));
        let found = values(seen).into_iter().fold(0f64, f64::max);
        assert!(!saturated(seen) && found == largest, "{found} for {largest}");
        let mut exact: Vec<[f64; 32]> =
            before.iter().map(|&v| to_words(v).map(|word| f64::from(f32::from_bits(word)))).collect();
        for row in 0..2 * pairs {
            let halves = values(tile[row / 2]);
            for (lane, exact) in exact[2 * place(row) + 1].iter_mut().enumerate() {
                let held = if add { *exact } else { 0.0 };
                *exact = held + halves[2 * lane + row % 2] * f64::from(factor(row));
            }
        }
        for (i, (after, exact)) in after.iter().zip(exact).enumerate() {
            let met = i % 2 == 1 && (0..2 * pairs).any(|row| place(row) == i / 2);
            for (after, exact) in to_words(*after).into_iter().zip(exact) {
                let after = f64::from(f32::from_bits(after));
                let bound = if met { 40.0 * unit(23) } else { 0.0 };
                assert!((after - exact).abs() <= bound, "{pairs} pairs, vector {i}: {after} for {exact}");
            }
        }
    }
}
