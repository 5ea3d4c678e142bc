//! What this processor's units can do at most, for measurements to hold the kernels against.
//!
//! A peak is a loop of one instruction over as many independent chains as hide its latency, with nothing to load: no kernel
//! that needs that instruction can be faster. The loops only compute; whoever asks has the clock.

use estream_idl::call::KernelSet;

/// One unit's peak.
#[derive(Clone, Copy, Debug)]
pub struct Peak {
    /// The instruction.
    pub name: &'static str,
    /// What is counted.
    pub unit: &'static str,
    /// Sets of kernels whose products are made of it.
    pub sets: KernelSet,
    /// Operations of a multiply-add with two digits and with one.
    pub operations: [u32; 2],
    /// Does some steps and returns their operations.
    pub run: fn(steps: u32) -> u64,
}

/// The peaks that can be measured here.
pub fn peaks() -> impl Iterator<Item = Peak> {
    #[cfg(target_arch = "x86_64")]
    return super::x86::peak::peaks().into_iter().flatten();
    #[cfg(not(target_arch = "x86_64"))]
    return core::iter::empty();
}
