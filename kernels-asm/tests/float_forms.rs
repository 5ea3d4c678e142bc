//! Every arithmetic form by its spelling: what the mnemonic says is computed here on the host's floats and compared with
//! what executing the form gives. Finds forms that are mixed up, operands that are swapped and lanes that are misplaced.

mod support;

use estream_kernels_asm::model::float::{Operands, Pair, execute};
use estream_kernels_asm::word::Float;
use half::{bf16, f16};
use support::Random;

/// An element type, as mnemonics spell it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Hf,
    Sf,
    Bf,
    Qf16,
    Qf32,
}

impl Kind {
    fn named(name: &str) -> Option<Self> {
        let kinds = [
            ("hf", Self::Hf),
            ("sf", Self::Sf),
            ("bf", Self::Bf),
            ("qf16", Self::Qf16),
            ("qf32", Self::Qf32),
        ];
        kinds.into_iter().find(|(kind, _)| *kind == name).map(|(_, kind)| kind)
    }

    fn bytes(self) -> usize {
        if matches!(self, Self::Sf | Self::Qf32) { 4 } else { 2 }
    }

    /// How far a result may be off, as a part of itself.
    fn precision(self) -> f64 {
        match self {
            Self::Hf | Self::Sf | Self::Bf => 0.0,
            Self::Qf16 => 2f64.powi(-9),
            Self::Qf32 => 2f64.powi(-21),
        }
    }

    fn value(self, vectors: &Pair, lane: usize) -> f64 {
        let word = vectors[lane * self.bytes() / 128][lane * self.bytes() % 128 / 4];
        let half = (word >> (lane % 2 * 16)) as u16;
        let odd = |m: i32, exponent: i32| f64::from(2 * m + 1) * 2f64.powi(exponent);
        match self {
            Self::Hf => f16::from_bits(half).to_f64(),
            Self::Bf => bf16::from_bits(half).to_f64(),
            Self::Sf => f64::from(f32::from_bits(word)),
            Self::Qf16 => odd(i32::from(half as i16 >> 5), i32::from(half & 31) - 25),
            Self::Qf32 => odd(word as i32 >> 8, (word & 0xff) as i32 - 150),
        }
    }

    /// A vector of ordinary numbers of this type.
    fn vector(self, random: &mut Random) -> [u32; 32] {
        std::array::from_fn(|_| {
            let value = |random: &mut Random| random.half(-3, 3);
            match self {
                Self::Sf => (value(random).to_f32() * (1.0 + random.below(8) as f32 / 1e6)).to_bits(),
                // m with its leading bit set, either sign, and an exponent around 1.
                Self::Qf32 => {
                    let m = (random.below(1 << 22) as u32 | 1 << 22)
                        ^ if random.below(2) == 0 { 0 } else { 0xff_ffff };
                    m << 8 | (126 + random.below(4) as u32)
                }
                Self::Qf16 => {
                    let half = |random: &mut Random| {
                        let m = (random.below(1 << 9) as u32 | 1 << 9)
                            ^ if random.below(2) == 0 { 0 } else { 0x7ff };
                        m << 5 | (14 + random.below(3) as u32)
                    };
                    half(random) | half(random) << 16
                }
                Self::Hf => u32::from(value(random).to_bits()) | u32::from(value(random).to_bits()) << 16,
                Self::Bf => {
                    let half =
                        |random: &mut Random| u32::from(bf16::from_f32(value(random).to_f32()).to_bits());
                    half(random) | half(random) << 16
                }
            }
        })
    }

    /// The nearest number of this type, for the exact ones.
    fn round(self, value: f64) -> f64 {
        match self {
            // Through single: what is added here has few enough bits for that to be exact.
            Self::Hf => f16::from_f32(value as f32).to_f64(),
            Self::Bf => bf16::from_f32(value as f32).to_f64(),
            Self::Sf => f64::from(value as f32),
            Self::Qf16 | Self::Qf32 => value,
        }
    }
}

/// `Vd32.sf=vadd(Vu32.sf,Vv32.sf)` taken apart: assignment, operation, types.
struct Spelling<'a> {
    assignment: &'a str,
    operation: &'a str,
    destination: &'a str,
    sources: Vec<&'a str>,
}

fn spelling(mnemonic: &str) -> Option<Spelling<'_>> {
    let equals = mnemonic.find('=')?;
    let (left, right) = (&mnemonic[..equals], &mnemonic[equals + 1..]);
    let (target, assignment) = left.split_at(left.find(['+', '&', '|', '^']).unwrap_or(left.len()));
    let (operation, operands) = right.strip_suffix(')')?.split_once('(')?;
    Some(Spelling {
        assignment,
        operation,
        destination: target.split_once('.').map_or("", |(_, kind)| kind),
        sources: operands
            .split(',')
            .map(|operand| operand.split_once('.').map_or("", |(_, kind)| kind))
            .collect(),
    })
}

/// The number of forms that were checked in this way.
fn check_arithmetic(random: &mut Random) -> usize {
    let mut checked = 0;
    for &float in Float::ALL {
        let mnemonic = float.mnemonic();
        let Some(Spelling { assignment, operation, destination, sources }) = spelling(mnemonic) else {
            continue;
        };
        let (Some(kind), Some(source)) = (Kind::named(destination), Kind::named(sources[0])) else {
            continue;
        };
        let second = sources.get(1).map_or(Some(source), |name| Kind::named(name));
        let Some(second) = second else { continue };
        let operands = Operands {
            u: [source.vector(random); 2],
            v: if mnemonic.contains("Rt32") { [second.vector(random)[0]; 32] } else { second.vector(random) },
            x: [kind.vector(random), kind.vector(random)],
        };
        let (u, v) = (&operands.u, &[operands.v; 2]);
        let apply: fn(f64, f64) -> f64 = match operation {
            "vadd" => |a, b| a + b,
            "vsub" => |a, b| a - b,
            "vmpy" => |a, b| a * b,
            "vmax" | "vfmax" => f64::max,
            "vmin" | "vfmin" => f64::min,
            "vabs" => |a, _| a.abs(),
            "vneg" | "vfneg" => |a, _| -a,
            _ => continue,
        };
        let result = execute(float, &operands).expect(mnemonic);
        let wide = kind.bytes() > source.bytes();
        for lane in 0..128 / source.bytes() {
            // Widened: even lanes low, odd lanes high.
            let to = if wide { lane / 2 + lane % 2 * 32 } else { lane };
            let (a, b) = (source.value(u, lane), second.value(v, lane));
            let mut exact = apply(a, b);
            let mut scale = exact.abs().max(a.abs()).max(b.abs());
            if assignment == "+" {
                let x = kind.value(&operands.x, to);
                (exact, scale) = (exact + x, scale.max(x.abs()));
            }
            let error = (kind.value(&result, to) - kind.round(exact)).abs();
            assert!(
                error <= kind.precision() * scale,
                "{mnemonic} lane {lane}: off by {error:e} from {exact}"
            );
        }
        checked += 1;
    }
    checked
}

#[test]
fn arithmetic_does_what_it_is_called() {
    let mut random = Random(31);
    for _ in 0..50 {
        assert_eq!(check_arithmetic(&mut random), 62);
    }
}

#[test]
fn comparisons_do_what_they_are_called() {
    let mut random = Random(32);
    let mut checked = 0;
    for &float in Float::ALL {
        let mnemonic = float.mnemonic();
        let Some(Spelling { assignment, operation, sources, .. }) = spelling(mnemonic) else { continue };
        let greater = match operation {
            "vcmp.gt" => true,
            "vcmp.eq" => false,
            _ => continue,
        };
        let kind = Kind::named(sources[0]).expect(mnemonic);
        let (u, mut v) = (kind.vector(&mut random), kind.vector(&mut random));
        // Some lanes are equal.
        v[..8].copy_from_slice(&u[..8]);
        // An old predicate of whole words, every second one set.
        let x: [u32; 32] = std::array::from_fn(|i| if i % 2 == 0 { u32::MAX } else { 0 });
        let operands = Operands { u: [u; 2], v, x: [x; 2] };
        let result = execute(float, &operands).expect(mnemonic)[0];
        for lane in 0..128 / kind.bytes() {
            let (a, b) = (kind.value(&[u; 2], lane), kind.value(&[v; 2], lane));
            let holds = if greater { a > b } else { a == b };
            let old = (lane * kind.bytes() / 4).is_multiple_of(2);
            let expected = match assignment {
                "&" => old && holds,
                "|" => old || holds,
                "^" => old != holds,
                _ => holds,
            };
            for byte in 0..kind.bytes() {
                let at = lane * kind.bytes() + byte;
                let found = result[at / 4].to_le_bytes()[at % 4];
                assert_eq!(found, if expected { 0xff } else { 0 }, "{mnemonic} lane {lane}");
            }
        }
        checked += 1;
    }
    assert_eq!(checked, 20);
}

/// A conversion keeps what both of its formats hold: small integers come through all of them.
#[test]
fn conversions_keep_small_integers() {
    let numbers: [f32; 64] = std::array::from_fn(|i| i as f32 - 20.0);
    let pack = |bits: fn(f32) -> u16| -> [u32; 32] {
        std::array::from_fn(|i| u32::from(bits(numbers[2 * i])) | u32::from(bits(numbers[2 * i + 1])) << 16)
    };
    let halves = pack(|value| f16::from_f32(value).to_bits());
    let integers = pack(|value| value as i16 as u16);
    let run = |float, u: [u32; 32]| {
        execute(float, &Operands { u: [u; 2], ..Operands::default() }).expect("a model")
    };
    for (float, from, to) in [
        (Float::HFromHf, halves, integers),
        (Float::HFromHfRnd, halves, integers),
        (Float::CvtHHf, halves, integers),
        (Float::HfFromH, integers, halves),
        (Float::CvtHfH, integers, halves),
    ] {
        assert_eq!(run(float, from)[0], to, "{}", float.mnemonic());
    }
    let singles: [u32; 32] = std::array::from_fn(|i| numbers[i].to_bits());
    let words: [u32; 32] = std::array::from_fn(|i| numbers[i] as i32 as u32);
    assert_eq!(run(Float::SfFromW, words)[0], singles);
    assert_eq!(run(Float::WFromSf, singles)[0], words);
    // Into qfloat and back: an odd significand, so within one unit, which halves do not see.
    let through = run(Float::HfFromQf32, run(Float::Qf32FromSf, singles)[0])[0];
    for (lane, number) in numbers[..32].iter().enumerate() {
        let [low, high] = [through[lane] as u16, (through[lane] >> 16) as u16];
        assert_eq!((f16::from_bits(low).to_f32(), low), (*number, high));
    }
    let bfloats = run(Float::BfFromQf32, run(Float::Qf32FromSf, singles)[0])[0];
    assert_eq!(bf16::from_bits(bfloats[25] as u16).to_f32(), numbers[25]);
}

/// What has no model says so in both places.
#[test]
fn forms_without_a_model_are_refused() {
    for &float in Float::ALL {
        assert_eq!(
            execute(float, &Operands::default()).is_some(),
            float.is_modelled(),
            "{}",
            float.mnemonic()
        );
    }
    assert_eq!(Float::ALL.iter().filter(|float| !float.is_modelled()).count(), 10);
}
