//! What a thread's context holds and where: stubs, the entry that they call, and the models agree on it here.
//!
//! The global pointer of every thread points to its context, in multiples of a vector. Results stand first, since a stub
//! loads them with offsets of up to seven vectors. Offsets are bytes from the global pointer.

use crate::site::RESULTS;
use crate::vector::VECTOR_BYTES;

/// The vectors that models made, ready to be loaded.
pub const RESULTS_AT: u32 = 0;
/// r0 to r31 as they were before the packet; the odd register of a pair is the upper word of its double.
pub const REGISTERS_AT: u32 = RESULTS_AT + RESULTS as u32 * VECTOR_BYTES;
/// sa0, lc0, sa1, lc1, as c3:0.
pub const LOOPS_AT: u32 = REGISTERS_AT + 32 * 4;
/// m0 and m1, as c7:6.
pub const MODIFIERS_AT: u32 = LOOPS_AT + 16;
/// p3:0.
pub const PREDICATES_AT: u32 = MODIFIERS_AT + 8;
/// The user status register.
pub const STATUS_AT: u32 = PREDICATES_AT + 4;
/// The link register at the entry's call, which is the way back to the stub.
pub const RETURN_AT: u32 = STATUS_AT + 4;
/// The top of the stack that models run on.
pub const STACK_AT: u32 = RETURN_AT + 4;
/// r1:0, r3:2 and r31:30 while a stub commits.
pub const SAVED_AT: u32 = STACK_AT + 4;
/// The scalars that models made, by the place of their word in the packet.
pub const SCALARS_AT: u32 = SAVED_AT + 24;
/// The address that the late store writes.
pub const STORE_AT: u32 = SCALARS_AT + 16;
/// The base register of the late store, after its step.
pub const BASE_AT: u32 = STORE_AT + 4;
/// The simulator's three counters when the entry was called.
pub const ENTERED_AT: u32 = BASE_AT + 4;
/// What stubs, entry and models have executed beyond the packets whose place they took, by counter.
pub const SURPLUS_AT: u32 = ENTERED_AT + 12;
/// Where words with a false condition store.
pub const SINK_AT: u32 = (SURPLUS_AT + 12).next_multiple_of(VECTOR_BYTES);
/// Bytes of the whole.
pub const CONTEXT_BYTES: u32 = SINK_AT + VECTOR_BYTES;

const _: () =
    assert!(LOOPS_AT.is_multiple_of(8) && MODIFIERS_AT.is_multiple_of(8) && SAVED_AT.is_multiple_of(8));
