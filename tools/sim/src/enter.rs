//! What stubs call: the entry that saves a thread's registers and runs the models, and the routines that move vectors.
//!
//! The entry finds the thread's context in the global pointer and switches to the context's stack. Models are ordinary
//! code that uses no vector register, so those stay live: a routine per register reads one. It does so word by word, since
//! the simulator stores a vector byte by byte (1.7 µs against 0.1). What was executed between the first and the last
//! instruction here is taken off the simulator's counters; what the entry executes behind its last reading of a counter is
//! told by walking its own packets.

use crate::context::{Aligned, Vector};
use estream_patch::context::{
    ENTERED_AT, LOOPS_AT, MODIFIERS_AT, PREDICATES_AT, REGISTERS_AT, RETURN_AT, STACK_AT, SURPLUS_AT,
};
use estream_patch::packet::Packets;
use estream_patch::site::Weight;

// Labels are global, since the address of a local one goes through the global offset table by its section and a distance,
// which the linker takes for the address of an entry.
core::arch::global_asm!(
    ".text",
    ".balign 32",
    ".global estream_sim_enter",
    "estream_sim_enter:",
    // r1 = c20, c21, c22: the assembler does not know the simulator's registers.
    ".word 0x6a14c001",
    "memw(gp+#{entered}) = r1",
    ".word 0x6a15c001",
    "memw(gp+#{entered}+4) = r1",
    ".word 0x6a16c001",
    "memw(gp+#{entered}+8) = r1",
    "memw(gp+#{back}) = r31",
    "memd(gp+#{registers}+8) = r3:2",
    "memd(gp+#{registers}+16) = r5:4",
    "memd(gp+#{registers}+24) = r7:6",
    "memd(gp+#{registers}+32) = r9:8",
    "memd(gp+#{registers}+40) = r11:10",
    "memd(gp+#{registers}+48) = r13:12",
    "memd(gp+#{registers}+56) = r15:14",
    "memd(gp+#{registers}+64) = r17:16",
    "memd(gp+#{registers}+72) = r19:18",
    "memd(gp+#{registers}+80) = r21:20",
    "memd(gp+#{registers}+88) = r23:22",
    "memd(gp+#{registers}+96) = r25:24",
    "memd(gp+#{registers}+104) = r27:26",
    "memd(gp+#{registers}+112) = r29:28",
    "r3:2 = c1:0",
    "memd(gp+#{loops}) = r3:2",
    "r3:2 = c3:2",
    "memd(gp+#{loops}+8) = r3:2",
    "r3:2 = c7:6",
    "memd(gp+#{modifiers}) = r3:2",
    "r2 = p3:0",
    "r3 = usr",
    "memd(gp+#{predicates}) = r3:2",
    "r1 = gp",
    "r29 = memw(gp+#{stack})",
    "call estream_sim_serve",
    "r3:2 = memd(gp+#{loops})",
    "c1:0 = r3:2",
    "r3:2 = memd(gp+#{loops}+8)",
    "c3:2 = r3:2",
    "r3:2 = memd(gp+#{predicates})",
    "p3:0 = r2",
    "usr = r3",
    "r5 = memw(gp+#{entered})",
    "r6 = memw(gp+#{surplus})",
    // r4 = c20, c21, c22.
    ".word 0x6a14c004",
    ".global estream_sim_enter_packets",
    "estream_sim_enter_packets:",
    "r6 += sub(r4,r5)",
    "memw(gp+#{surplus}) = r6",
    "r5 = memw(gp+#{entered}+4)",
    "r6 = memw(gp+#{surplus}+4)",
    ".word 0x6a15c004",
    ".global estream_sim_enter_instructions",
    "estream_sim_enter_instructions:",
    "r6 += sub(r4,r5)",
    "memw(gp+#{surplus}+4) = r6",
    "r5 = memw(gp+#{entered}+8)",
    "r6 = memw(gp+#{surplus}+8)",
    ".word 0x6a16c004",
    ".global estream_sim_enter_vectors",
    "estream_sim_enter_vectors:",
    "r6 += sub(r4,r5)",
    "memw(gp+#{surplus}+8) = r6",
    "r29:28 = memd(gp+#{registers}+112)",
    "r15:14 = memd(gp+#{registers}+56)",
    "r13:12 = memd(gp+#{registers}+48)",
    "r11:10 = memd(gp+#{registers}+40)",
    "r9:8 = memd(gp+#{registers}+32)",
    "r7:6 = memd(gp+#{registers}+24)",
    "r5:4 = memd(gp+#{registers}+16)",
    "r3:2 = memd(gp+#{registers}+8)",
    "r31 = memw(gp+#{back})",
    "jumpr r31",
    ".global estream_sim_enter_end",
    "estream_sim_enter_end:",
    entered = const ENTERED_AT,
    surplus = const SURPLUS_AT,
    registers = const REGISTERS_AT,
    loops = const LOOPS_AT,
    modifiers = const MODIFIERS_AT,
    predicates = const PREDICATES_AT,
    back = const RETURN_AT,
    stack = const STACK_AT,
);

// Copies the vector at r1 to r0; changes r3:2 and nothing else.
core::arch::global_asm!(
    ".text",
    ".balign 32",
    ".global estream_sim_copy",
    "estream_sim_copy:",
    ".irp at, 0,8,16,24,32,40,48,56,64,72,80,88,96,104,112,120",
    "r3:2 = memd(r1+#\\at)",
    "memd(r0+#\\at) = r3:2",
    ".endr",
    "jumpr r31",
    ".global estream_sim_copy_end",
    "estream_sim_copy_end:",
);

// Reads a vector register into 128 bytes at r0. One routine per register, all of the same size. Vector instructions stand
// here as words, since where a crate has several codegen units its assembly is also read by a target without vectors:
// 0x9201c02d is rd=vextract(v0,r1), 0x19a0c0a0 is v0=vand(q0,r0), 0x2800c000 is v0=vmem(r0+#0).
core::arch::global_asm!(
    ".text",
    ".balign 32",
    ".global estream_sim_read",
    "estream_sim_read:",
    ".irp v, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
    "r1 = #0",
    "loop0(.Lread\\v,#8)",
    ".Lread\\v:",
    ".word 0x9201c022 + (\\v << 8)",
    "r1 = add(r1,#4)",
    ".word 0x9201c023 + (\\v << 8)",
    "r1 = add(r1,#4)",
    ".word 0x9201c024 + (\\v << 8)",
    "{{ r1 = add(r1,#4)",
    "memd(r0++#8) = r3:2 }}",
    ".word 0x9201c025 + (\\v << 8)",
    "{{ r1 = add(r1,#4)",
    "memd(r0++#8) = r5:4 }}:endloop0",
    "jumpr r31",
    ".endr",
    ".global estream_sim_read_end",
    "estream_sim_read_end:",
    // The bytes of a predicate register into v0; and v0 from what r0 points to.
    ".irp q, 0,1,2,3",
    ".global estream_sim_expand\\q",
    "estream_sim_expand\\q:",
    "r0 = #-1",
    ".word 0x19a0c0a0 + (\\q << 8)",
    "jumpr r31",
    ".endr",
    ".global estream_sim_load",
    "estream_sim_load:",
    ".word 0x2800c000",
    "jumpr r31",
);

unsafe extern "C" {
    static estream_sim_enter: u8;
    static estream_sim_enter_packets: u8;
    static estream_sim_enter_instructions: u8;
    static estream_sim_enter_vectors: u8;
    static estream_sim_enter_end: u8;
    static estream_sim_copy: u8;
    static estream_sim_copy_end: u8;
    static estream_sim_read: u8;
    static estream_sim_read_end: u8;
    fn estream_sim_expand0();
    fn estream_sim_expand1();
    fn estream_sim_expand2();
    fn estream_sim_expand3();
    fn estream_sim_load(from: *const Vector);
}

/// The address of the entry.
#[must_use]
pub fn entry() -> u32 {
    (&raw const estream_sim_enter).addr() as u32
}

/// The address behind the entry.
#[must_use]
pub fn entry_end() -> u32 {
    (&raw const estream_sim_enter_end).addr() as u32
}

/// The address of the routine that copies a vector.
#[must_use]
pub fn copy() -> u32 {
    (&raw const estream_sim_copy).addr() as u32
}

/// What the program executes between two of its labels, which have no branch between them.
fn weight(from: *const u8, to: *const u8) -> Weight {
    // SAFETY: both labels are of one section, and its bytes are this program's text.
    let text = unsafe { core::slice::from_raw_parts(from, to.addr() - from.addr()) };
    let mut weight = Weight::default();
    for packet in Packets::new(text, 0).flatten() {
        weight.add(packet.words());
    }
    weight
}

/// What the entry executes after it has read each counter for the last time.
#[must_use]
pub fn entry_tail() -> Weight {
    let end = &raw const estream_sim_enter_end;
    // Each counter is read in a packet before its label, which that reading does not count.
    let one = Weight { packets: 1, instructions: 1, vectors: 0 };
    Weight {
        packets: weight(&raw const estream_sim_enter_packets, end).packets + one.packets,
        instructions: weight(&raw const estream_sim_enter_instructions, end).instructions + one.instructions,
        vectors: weight(&raw const estream_sim_enter_vectors, end).vectors,
    }
}

/// What the copying routine executes.
#[must_use]
pub fn copy_weight() -> Weight {
    weight(&raw const estream_sim_copy, &raw const estream_sim_copy_end)
}

/// Reads the value of a vector register, which nothing has changed since the packet of the skel.
pub fn vector(number: u8, into: &mut Vector) {
    let (base, end) = ((&raw const estream_sim_read).addr(), (&raw const estream_sim_read_end).addr());
    let routine = base + (end - base) / 32 * usize::from(number & 31);
    // SAFETY: the routines lie end to end and are of one size.
    let read = unsafe {
        core::mem::transmute::<*const (), unsafe extern "C" fn(*mut Vector)>(
            core::ptr::with_exposed_provenance(routine),
        )
    };
    // SAFETY: it writes 128 bytes to a live value, in doubles, and changes registers as any call does.
    unsafe { read(into) };
}

/// Reads the value of a vector predicate: a byte of ones or zeros a bit.
pub fn predicate(number: u8, into: &mut Vector) {
    let expand = [estream_sim_expand0, estream_sim_expand1, estream_sim_expand2, estream_sim_expand3];
    let mut saved = Aligned([0; 32]);
    vector(0, &mut saved.0);
    // SAFETY: v0 is changed, read and put back; no code in between uses vector registers.
    unsafe { expand[usize::from(number & 3)]() };
    vector(0, into);
    // SAFETY: it loads 128 bytes of a live value.
    unsafe { estream_sim_load(&raw const saved.0) };
}
