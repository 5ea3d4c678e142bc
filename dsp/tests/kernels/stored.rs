//! Strips and rows made from loose numbers, and what their weights are in f64.
//!
//! Places are written out from the design's sentences about the tile order, values from ggml's formulas; nothing here
//! calls the firmware's decoders or the contract's place functions.

use estream_idl::format::{Codec, Element, Format, Min, Scale};
use half::{bf16, f16};

/// Splitmix64: the suite's only source of chance.
pub struct Chance(pub u64);

impl Chance {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Uniform in −1..1.
    pub fn real(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub fn reals(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.real()).collect()
    }

    /// Bits of a half of either sign, subnormal to just under 2.
    fn half(&mut self) -> u32 {
        (self.below(0x4000) | self.below(2) << 15) as u32
    }
}

/// Every format that a directory may hold, with tables and biases that show a mistaken sign or order.
pub fn formats() -> Vec<Format> {
    let iq4_nl = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
    let mut all = vec![Format::Q4_0, Format::Q8_0, Format::Q6_K];
    for element in [Element::F16, Element::BF16, Element::F32] {
        all.push(Format { element, ..Format::F32 });
    }
    for (codec, extra_bits) in [(Codec::N4, 0), (Codec::B8, 0), (Codec::B8, 1), (Codec::B8, 2)] {
        for scale in [Scale::F16, Scale::E8M0, Scale::SuperU8, Scale::SuperI8] {
            for min in [Min::None, Min::F16, Min::SuperU8] {
                for sub_block in [16, 32] {
                    let table = if codec == Codec::N4 { iq4_nl } else { [0; 16] };
                    let bias = 8 << extra_bits;
                    let element = Element::None;
                    let format = Format { codec, sub_block, scale, min, extra_bits, element, bias, table };
                    all.extend(format.to_bytes().check());
                }
            }
        }
    }
    all
}

/// A matrix of 32 columns as its stored numbers; k is a multiple of 32.
pub struct Stored {
    pub format: Format,
    pub k: usize,
    /// Raw codes or element bits, `[k][32]`.
    codes: Vec<u32>,
    /// `[sub-block][32]`.
    scales: Vec<u32>,
    /// `[sub-block][32]`.
    mins: Vec<u32>,
    /// `d` bits, `[super-block][32]`.
    d: Vec<u32>,
    /// `dmin` bits, `[super-block][32]`.
    dmin: Vec<u32>,
}

fn half(bits: u32) -> f64 {
    f16::from_bits(bits as u16).to_f64()
}

impl Stored {
    pub fn random(format: Format, k: usize, chance: &mut Chance) -> Self {
        let mut fill = |count: usize, mut value: Box<dyn FnMut(&mut Chance) -> u32>| -> Vec<u32> {
            (0..count * 32).map(|_| value(chance)).collect()
        };
        let code: Box<dyn FnMut(&mut Chance) -> u32> = match (format.codec, format.element) {
            (Codec::F16, Element::F32) => Box::new(|c| c.real().to_bits()),
            (Codec::F16, Element::BF16) => Box::new(|c| bf16::from_f32(c.real()).to_bits().into()),
            (Codec::F16, _) => Box::new(Chance::half),
            (Codec::B8, _) if format.extra_bits == 0 => Box::new(|c| c.below(256) as u32),
            _ => Box::new(move |c| c.below(16 << format.extra_bits) as u32),
        };
        let scale: Box<dyn FnMut(&mut Chance) -> u32> = match format.scale {
            Scale::F16 => Box::new(Chance::half),
            Scale::E8M0 => Box::new(|c| if c.below(8) == 0 { 0 } else { 60 + c.below(80) as u32 }),
            _ => Box::new(|c| c.below(256) as u32),
        };
        let min: Box<dyn FnMut(&mut Chance) -> u32> = match format.min {
            Min::F16 => Box::new(Chance::half),
            _ => Box::new(|c| c.below(256) as u32),
        };
        let (subs, supers) = (k / format.sub_block, k.div_ceil(256));
        Self {
            format,
            k,
            codes: fill(k, code),
            scales: fill(subs, scale),
            mins: fill(subs, min),
            d: fill(supers, Box::new(Chance::half)),
            dmin: fill(supers, Box::new(Chance::half)),
        }
    }

    /// A weight's code as a whole number; not for plain elements.
    pub fn code(&self, k: usize, column: usize) -> i64 {
        let code = self.codes[k * 32 + column];
        match (self.format.codec, self.format.extra_bits) {
            (Codec::N4, _) => self.format.table[code as usize].into(),
            (Codec::B8, 0) => (code as u8 as i8).into(),
            _ => i64::from(code) - i64::from(self.format.bias),
        }
    }

    /// Scale of the sub-block of `k`, and what is added to its weights.
    pub fn factors(&self, k: usize, column: usize) -> (f64, f64) {
        let (sub, of_super) = (k / self.format.sub_block * 32 + column, k / 256 * 32 + column);
        let (scale, min) = (self.scales[sub], self.mins[sub]);
        let scale = match self.format.scale {
            Scale::None => 1.0,
            Scale::F16 => half(scale),
            Scale::E8M0 => f64::from(scale as i32 - 127).exp2(),
            Scale::SuperU8 => half(self.d[of_super]) * f64::from(scale),
            Scale::SuperI8 => half(self.d[of_super]) * f64::from(scale as u8 as i8),
        };
        let min = match self.format.min {
            Min::None => 0.0,
            Min::F16 => half(min),
            Min::SuperU8 => -half(self.dmin[of_super]) * f64::from(min),
        };
        (scale, min)
    }

    /// The two terms of a weight: scale·code, and what is added to it.
    pub fn terms(&self, k: usize, column: usize) -> (f64, f64) {
        let code = self.codes[k * 32 + column];
        match (self.format.codec, self.format.element) {
            (Codec::F16, Element::F32) => return (f64::from(f32::from_bits(code)), 0.0),
            (Codec::F16, Element::BF16) => return (bf16::from_bits(code as u16).to_f64(), 0.0),
            (Codec::F16, _) => return (half(code), 0.0),
            _ => {}
        }
        let (scale, min) = self.factors(k, column);
        (scale * self.code(k, column) as f64, min)
    }

    /// Weight (k, column) of the tile whose nibble stands in byte `byte` of vector `i`: row pairs 4i and 4i+2 in even
    /// bytes, 4i+1 and 4i+3 in odd ones; halfword h of a pair is k = 2·pair + (h & 1), column = h >> 1.
    fn nibble(&self, tile: usize, i: usize, byte: usize, high: usize) -> u32 {
        let (pair, h) = (4 * i + byte % 2 + 2 * high, byte / 2);
        self.codes[(32 * tile + 2 * pair + h % 2) * 32 + h / 2]
    }

    /// The strip's bytes.
    pub fn strip(&self) -> Vec<u8> {
        let mut planes = [const { Vec::new() }; 5];
        for tile in 0..self.k / 32 {
            self.tile(tile, &mut planes);
        }
        for super_block in 0..self.k.div_ceil(256) {
            let columns = 32 * super_block..32 * super_block + 32;
            self.supers(columns, &mut planes[2]);
        }
        for sub in 0..self.scales.len() {
            self.scale(sub, &mut planes[3]);
            self.min(sub, &mut planes[4]);
        }
        let mut strip = Vec::new();
        for mut plane in planes {
            plane.resize(plane.len().next_multiple_of(128), 0);
            strip.extend(plane);
        }
        strip
    }

    fn tile(&self, tile: usize, planes: &mut [Vec<u8>; 5]) {
        let at = |k: usize, column: usize| self.codes[(32 * tile + k) * 32 + column];
        match (self.format.codec, self.format.extra_bits) {
            (Codec::F16, _) => {
                for (pair, h) in (0..16).flat_map(|pair| (0..64).map(move |h| (pair, h))) {
                    let bytes = at(2 * pair + h % 2, h / 2).to_le_bytes();
                    let width = if self.format.element == Element::F32 { 4 } else { 2 };
                    planes[0].extend(&bytes[..width]);
                }
            }
            (Codec::B8, 0) => {
                for (i, column) in (0..8).flat_map(|i| (0..32).map(move |column| (i, column))) {
                    planes[0].extend([0, 2, 1, 3].map(|k| at(4 * i + k, column) as u8));
                }
            }
            (_, bits) => {
                for (i, byte) in (0..4).flat_map(|i| (0..128).map(move |byte| (i, byte))) {
                    let [low, high] = [0, 1].map(|high| self.nibble(tile, i, byte, high) & 15);
                    planes[0].push((low | high << 4) as u8);
                }
                // Bit n of lane c: nibble number n of that lane over the four vectors.
                for (bit, c) in (0..bits).flat_map(|bit| (0..32).map(move |c| (bit, c))) {
                    let lane = (0..32).fold(0u32, |lane, n| {
                        let code = self.nibble(tile, n / 8, 4 * c + n % 8 / 2, n % 2);
                        lane | ((code >> (4 + bit)) & 1) << n
                    });
                    planes[1].extend(lane.to_le_bytes());
                }
            }
        }
    }

    fn supers(&self, columns: std::ops::Range<usize>, plane: &mut Vec<u8>) {
        if matches!(self.format.scale, Scale::SuperU8 | Scale::SuperI8) {
            plane.extend(self.d[columns.clone()].iter().flat_map(|&d| (d as u16).to_le_bytes()));
        }
        if self.format.min == Min::SuperU8 {
            plane.extend(self.dmin[columns].iter().flat_map(|&d| (d as u16).to_le_bytes()));
        }
    }

    fn scale(&self, sub: usize, plane: &mut Vec<u8>) {
        match self.format.scale {
            Scale::None => {}
            Scale::F16 => plane.extend((self.scales[sub] as u16).to_le_bytes()),
            _ => plane.push(self.scales[sub] as u8),
        }
    }

    fn min(&self, sub: usize, plane: &mut Vec<u8>) {
        match self.format.min {
            Min::None => {}
            Min::F16 => plane.extend((self.mins[sub] as u16).to_le_bytes()),
            Min::SuperU8 => plane.push(self.mins[sub] as u8),
        }
    }

    /// One column's first `k` elements as an embedding row.
    pub fn row(&self, column: usize) -> Vec<u8> {
        let codes: Vec<u32> = (0..self.k).map(|k| self.codes[k * 32 + column]).collect();
        let mut row = Vec::new();
        match (self.format.codec, self.format.extra_bits) {
            (Codec::F16, _) if self.format.element == Element::F32 => {
                row.extend(codes.iter().flat_map(|code| code.to_le_bytes()));
            }
            (Codec::F16, _) => row.extend(codes.iter().flat_map(|&code| (code as u16).to_le_bytes())),
            (Codec::B8, 0) => row.extend(codes.iter().map(|&code| code as u8)),
            (_, bits) => {
                row.extend(codes.chunks(2).map(|two| (two[0] & 15 | (two[1] & 15) << 4) as u8));
                for bit in 4..4 + bits {
                    let byte = |eight: &[u32]| (0..8).fold(0, |byte, i| byte | ((eight[i] >> bit) & 1) << i);
                    row.extend(codes.chunks(8).map(|eight| byte(eight) as u8));
                }
            }
        }
        for super_block in 0..self.k.div_ceil(256) {
            let at = 32 * super_block + column;
            self.supers(at..at + 1, &mut row);
        }
        let subs = self.k / self.format.sub_block;
        (0..subs).for_each(|sub| self.scale(32 * sub + column, &mut row));
        (0..subs).for_each(|sub| self.min(32 * sub + column, &mut row));
        row.resize(row.len().next_multiple_of(16), 0);
        row
    }
}
