//! The pure logic of the firmware against models that are dumber than it: one binary, since it links once.

// Random delays on the host's own threads: the target's stand-in for std has neither locks nor sleep.
#[cfg(not(target_arch = "hexagon"))]
mod executor;
// Hundreds of searches over whole integers, which take minutes under emulation and show nothing new there.
#[cfg(not(target_arch = "hexagon"))]
mod matrix;
mod pipeline;
// Every schedule in thousands of worlds: minutes under emulation as well.
#[cfg(not(target_arch = "hexagon"))]
mod residency;
mod routes;
mod vtcm;
