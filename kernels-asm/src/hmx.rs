//! The words of the matrix unit, emitted.
//!
//! No open assembler knows them, so they are `.word`s, built by the assembler from symbols that turn a register's printed
//! name into its number (`hxr_r0` = 0, …): the compiler chooses the registers. The symbols are set in every block that uses
//! them, since a block may be inlined into any object file. Each packet is its own `asm!`: the fused pair is one packet of two
//! words, activation first, with nothing else in it; everything else stands alone. Bits 15:14 of the opcodes below are the
//! parse bits, 01 for "more words follow" and 11 for "last".
//!
//! Addresses are 32-bit numbers in VTCM, limits the last byte's offset (2048·tiles − 1). What a word may be given is what
//! [`model::hmx`](crate::model::hmx) checks.

use core::arch::asm;

/// `mxclracc.hf`: clears both accumulators.
///
/// # Safety
/// The calling thread holds the unit's lock and a power vote is in force.
#[inline(always)]
pub unsafe fn clear() {
    // SAFETY: the caller holds the unit; the word touches no memory and no register.
    unsafe { asm!(".word 0xa6e0c013", options(nostack)) }
}

/// `mxswapacc.hf`: the other accumulator becomes the current one.
///
/// # Safety
/// As [`clear`].
#[inline(always)]
pub unsafe fn swap() {
    // SAFETY: as in `clear`.
    unsafe { asm!(".word 0xa6e0c015", options(nostack)) }
}

/// `bias=mxmem2(Rs)`: loads 256 bytes of scales and biases into bank 0.
///
/// # Safety
/// As [`clear`]; `block` is 256-byte aligned in VTCM, and nobody writes its 256 bytes meanwhile.
#[inline(always)]
pub unsafe fn load_bias(block: u32) {
    // SAFETY: the caller vouches for the unit and the block. The asm may read memory, so earlier stores stay before it.
    unsafe {
        asm!(
            include_str!("hmx/registers.s"),
            ".word 0x9200c3fe + (hxr_{s} << 16)",
            s = in(reg) block,
            options(nostack)
        );
    }
}

/// The packet `{ activation.hf=mxmem(Rs,Rt):deep; weight.hf=mxmem(Rs,Rt) }`: adds activation · weight over 1 to 32 tiles of
/// depth 32 to the current accumulator.
///
/// # Safety
/// As [`clear`]; both operands are 2048-byte aligned in VTCM, lie in one page, have the same number of tiles, and nobody
/// writes them meanwhile.
#[inline(always)]
pub unsafe fn multiply(activation: u32, weight: u32, limit: u32) {
    // SAFETY: the caller vouches for the unit and the tiles. One `.word` a line, so that the compiler counts their bytes.
    unsafe {
        asm!(
            include_str!("hmx/registers.s"),
            ".word 0x920040e2 + (hxr_{a} << 16) + (hxr_{t} << 8)",
            ".word 0x9200e0ef + (hxr_{w} << 16) + (hxr_{t} << 8)",
            a = in(reg) activation,
            w = in(reg) weight,
            t = in(reg) limit,
            options(nostack)
        );
    }
}

/// `mxmem(Rs,Rt):after.hf=acc`: converts by bank 0, stores a tile and gives the current accumulator up.
///
/// # Safety
/// As [`clear`]; `tile` is 2048-byte aligned in VTCM, and nobody reads or writes its 2048 bytes meanwhile.
#[inline(always)]
pub unsafe fn store(tile: u32) {
    // SAFETY: the caller vouches for the unit and the tile, which this writes: the asm may write memory.
    unsafe {
        asm!(
            include_str!("hmx/registers.s"),
            ".word 0xa6e0e004 + (hxr_{s} << 16) + (hxr_{t} << 8)",
            s = in(reg) tile,
            t = in(reg) 0u32,
            options(nostack)
        );
    }
}
