//! The ordinary instructions that take a packet's place: encoders for the few that stubs are made of.
//!
//! Encodings as LLVM 22 assembles them. A stub reaches its thread's context through the global pointer, so that it needs
//! no register of its own: `memd(gp+#k)` saves one without another. Position-independent code has no use for that register
//! (small data is off), and the site check refuses text that touches it.

use estream_kernels_asm::word::{Parse, with_parse};

/// An instruction that does nothing.
pub const NOP: u32 = 0x7f00_0000;

/// The fields of a scattered immediate, as (lowest bit, bits), the lowest field first.
pub type Field = &'static [(u32, u32)];

/// Puts the low bits of `value` into a field.
#[must_use]
pub fn insert(word: u32, field: Field, value: u32) -> u32 {
    let mut value = value;
    field.iter().fold(word, |word, &(low, bits)| {
        let mask = (1 << bits) - 1;
        let placed = word & !(mask << low) | (value & mask) << low;
        value >>= bits;
        placed
    })
}

/// Reads a field, not sign-extended.
#[must_use]
pub fn extract(word: u32, field: Field) -> u32 {
    let (value, _) = field.iter().fold((0, 0), |(value, at), &(low, bits)| {
        (value | (word >> low & ((1 << bits) - 1)) << at, at + bits)
    });
    value
}

/// The bits of a field.
#[must_use]
pub fn width(field: Field) -> u32 {
    field.iter().map(|&(_, bits)| bits).sum()
}

/// `#r22:2` of jumps and calls.
pub const B22: Field = &[(1, 13), (16, 9)];
const EXTENDER: Field = &[(0, 14), (16, 12)];
const GLOBAL_STORE: Field = &[(0, 8), (13, 1), (16, 5), (25, 2)];
const GLOBAL_LOAD: Field = &[(5, 9), (16, 5), (25, 2)];
const TRANSFER: Field = &[(5, 9), (16, 5), (22, 2)];

/// The constant extender in front of an instruction with this immediate.
#[must_use]
pub fn extender(value: u32) -> u32 {
    insert(0, EXTENDER, value >> 6)
}

/// The upper 26 bits that an extender carries, in place.
#[must_use]
pub fn extended(extender: u32) -> u32 {
    extract(extender, EXTENDER) << 6
}

/// `jump` to an address up to 8 MiB away.
#[must_use]
pub fn jump(from: u32, to: u32) -> Option<u32> {
    let distance = to.wrapping_sub(from).cast_signed() >> 2;
    let reach = 1 << 21;
    (-reach..reach).contains(&distance).then(|| insert(0x5800_0000, B22, distance.cast_unsigned()))
}

/// `jump ##to` in a packet at `from`: extender and instruction.
#[must_use]
pub fn far_jump(from: u32, to: u32) -> [u32; 2] {
    far(0x5800_0000, from, to)
}

/// `call ##to` in a packet at `from`: extender and instruction.
#[must_use]
pub fn far_call(from: u32, to: u32) -> [u32; 2] {
    far(0x5a00_0000, from, to)
}

fn far(opcode: u32, from: u32, to: u32) -> [u32; 2] {
    let distance = to.wrapping_sub(from);
    [extender(distance), insert(opcode, B22, distance & 0x3f)]
}

/// `Rd=##value`: extender and instruction.
#[must_use]
pub fn transfer_immediate(d: u8, value: u32) -> [u32; 2] {
    [extender(value), insert(0x7800_0000 | u32::from(d), TRANSFER, value & 0x3f)]
}

/// `Rd=#-1`.
#[must_use]
pub fn all_ones(d: u8) -> u32 {
    insert(0x7800_0000 | u32::from(d), TRANSFER, u32::MAX)
}

/// `Rd=gp`.
#[must_use]
pub fn global_pointer(d: u8) -> u32 {
    0x6a0b_0000 | u32::from(d)
}

/// `Rd=add(Rs,#immediate)`.
#[must_use]
pub fn add(d: u8, s: u8, immediate: u32) -> u32 {
    insert(0xb000_0000 | u32::from(s) << 16 | u32::from(d), &[(5, 9), (21, 7)], immediate)
}

/// `memw(gp+#offset)=Rt`.
#[must_use]
pub fn store_word(offset: u32, t: u8) -> u32 {
    insert(0x4880_0000 | u32::from(t) << 8, GLOBAL_STORE, offset / 4)
}

/// `memd(gp+#offset)=Rtt`, the pair by its even number.
#[must_use]
pub fn store_double(offset: u32, t: u8) -> u32 {
    insert(0x48c0_0000 | u32::from(t) << 8, GLOBAL_STORE, offset / 8)
}

/// `Rd=memw(gp+#offset)`.
#[must_use]
pub fn load_word(d: u8, offset: u32) -> u32 {
    insert(0x4980_0000 | u32::from(d), GLOBAL_LOAD, offset / 4)
}

/// `Rdd=memd(gp+#offset)`, the pair by its even number.
#[must_use]
pub fn load_double(d: u8, offset: u32) -> u32 {
    insert(0x49c0_0000 | u32::from(d), GLOBAL_LOAD, offset / 8)
}

/// `Vd=vmem(Rt+#vectors)`, from 0 to 7 vectors away.
#[must_use]
pub fn load_vector(d: u8, t: u8, vectors: u32) -> u32 {
    0x2800_0000 | u32::from(t) << 16 | (vectors & 7) << 8 | u32::from(d)
}

/// `Vd.tmp=vmem(Rt+#vectors)`, from 0 to 7 vectors away.
#[must_use]
pub fn load_temporary(d: u8, t: u8, vectors: u32) -> u32 {
    load_vector(d, t, vectors) | 2 << 5
}

/// `Qd=vand(Vu,Rt)`.
#[must_use]
pub fn predicate_of(d: u8, u: u8, t: u8) -> u32 {
    0x19a0_0048 | u32::from(t) << 16 | u32::from(u) << 8 | u32::from(d)
}

/// Closes a packet: parse bits for all words, the last one being no duplex.
pub fn close(words: &mut [u32]) {
    let last = words.len().saturating_sub(1);
    for (index, word) in words.iter_mut().enumerate() {
        *word = with_parse(*word, if index == last { Parse::Last } else { Parse::More });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(word: u32) -> u32 {
        with_parse(word, Parse::Last)
    }

    /// Words from `llvm-mc-22`, the mnemonics beside them.
    #[test]
    fn words_are_the_assemblers() {
        assert_eq!(closed(store_word(4, 0)), 0x4880_c001); // memw(gp+#4)=r0
        assert_eq!(closed(load_word(0, 4)), 0x4980_c020); // r0=memw(gp+#4)
        assert_eq!(closed(store_double(8, 0)), 0x48c0_c001); // memd(gp+#8)=r1:0
        assert_eq!(closed(store_double(0x1000, 30)), 0x48c1_de00); // memd(gp+#0x1000)=r31:30
        assert_eq!(closed(store_word(0x404, 5)), 0x4880_e501); // memw(gp+#0x404)=r5
        assert_eq!(closed(add(1, 0, 384)), 0xb000_f001); // r1=add(r0,#384)
        assert_eq!(closed(add(1, 0, 896)), 0xb020_f001); // r1=add(r0,#896)
        assert_eq!(closed(global_pointer(0)), 0x6a0b_c000); // r0=gp
        assert_eq!(closed(load_vector(0, 1, 2)), 0x2801_c200); // v0=vmem(r1+#2)
        assert_eq!(closed(load_temporary(0, 1, 2)), 0x2801_c240); // v0.tmp=vmem(r1+#2)
        assert_eq!(closed(predicate_of(0, 1, 0)), 0x19a0_c148); // q0=vand(v1,r0)
        assert_eq!(jump(0, 0).map(closed), Some(0x5800_c000));
        assert_eq!(far_call(0x11c, 0x1234_5794).map(closed), [0x0123_d159, 0x5a00_c070]);
        assert_eq!(transfer_immediate(5, 0x1234_5678).map(closed), [0x0123_d159, 0x7800_c705]);
        assert_eq!(closed(all_ones(1)), 0x78df_ffe1); // r1=#-1
    }

    #[test]
    fn jumps_reach_eight_mebibytes() {
        assert!(jump(0, (8 << 20) - 4).is_some());
        assert!(jump(8 << 20, 0).is_some());
        assert_eq!(jump(0, 8 << 20), None);
        assert_eq!(jump((8 << 20) + 4, 0), None);
        assert_eq!(jump(4, 0).map(|word| word & 0x1fff_ffff), Some(0x19ff_3ffe));
    }
}
