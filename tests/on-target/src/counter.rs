//! The simulator's counter of packets, and who is told of marks.

unsafe extern "C" {
    /// The simulated domain's: has each mark told to the listener, with the operator that was worked for before it.
    safe fn estream_sim_listen(listener: extern "C" fn(u32));
}

/// Has each mark told to `listener`, with the operator that was worked for before it.
pub fn listen(listener: extern "C" fn(u32)) {
    estream_sim_listen(listener);
}

/// Packets that this thread has executed so far, the simulator's own work left out.
#[must_use]
pub fn packets() -> u32 {
    let count: u32;
    // SAFETY: reads c20, a counter of the simulator's, into r0; the assembler does not know its name. The packet is served
    // by a stub, which takes off what stubs and models execute.
    unsafe { core::arch::asm!(".word 0x6a14c000", out("r0") count) };
    count
}

/// Packets of a call.
pub fn of(body: impl FnOnce()) -> u32 {
    let before = packets();
    body();
    packets().wrapping_sub(before)
}
