//! What memory a session takes, by component, and what the kernel measured.
//!
//! The plan is known at open: the segments, the firmware's private block and its stacks are what `plan` answered, and the
//! rest of the process (code, heap, the pack's tables) is what was resident just before the session was made. Nothing
//! large is allocated after that, so their sum is the peak, unless verifying the pack took more before. `measured_peak`
//! is there to be held against it.

use estream_host::MemoryReport;
use serde::Serialize;

/// Bytes by component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// The sum of the components below, or what the process held before the session where that was more.
    pub peak_bytes: u64,
    /// The banks: B·G·W_e.
    pub arena_bytes: u64,
    /// Every weight that is not a routed expert, and the head.
    pub dense_bytes: u64,
    /// The firmware's tables, activations, K and V.
    pub activation_bytes: u64,
    /// Token ids, results and logits panels.
    pub io_bytes: u64,
    /// Rings, doorbells and heartbeat.
    pub control_bytes: u64,
    /// Staging for embedding pages.
    pub embed_bytes: u64,
    /// Stacks of the firmware's threads.
    pub stack_bytes: u64,
    /// The rest of the process: code, heap, the pack's tables.
    pub process_bytes: u64,
}

impl Memory {
    /// The components of a session, in a process that held `process_bytes` just before and `peak_before` at the most.
    #[must_use]
    pub fn new(report: &MemoryReport, process_bytes: u64, peak_before: u64) -> Self {
        let mut memory = Self {
            peak_bytes: 0,
            arena_bytes: report.arena_bytes,
            dense_bytes: report.dense_bytes,
            activation_bytes: report.private_bytes,
            io_bytes: report.io_bytes,
            control_bytes: report.control_bytes,
            embed_bytes: report.embed_bytes,
            stack_bytes: report.stack_bytes,
            process_bytes,
        };
        memory.peak_bytes = report.total_bytes().saturating_add(process_bytes).max(peak_before);
        memory
    }

    /// The components by name, what the user chooses first.
    #[must_use]
    pub const fn components(&self) -> [(&'static str, u64); 8] {
        [
            ("arena", self.arena_bytes),
            ("dense weights", self.dense_bytes),
            ("activations", self.activation_bytes),
            ("ids and results", self.io_bytes),
            ("embedding pages", self.embed_bytes),
            ("control", self.control_bytes),
            ("stacks", self.stack_bytes),
            ("process", self.process_bytes),
        ]
    }
}

/// Bytes of this process that are resident now, where the kernel says.
#[must_use]
pub fn resident() -> Option<u64> {
    status_field("VmRSS:")
}

/// The most bytes that were ever resident, where the kernel says.
#[must_use]
pub fn measured_peak() -> Option<u64> {
    status_field("VmHWM:")
}

/// Bytes that the machine could give to a new program, where the kernel says.
#[must_use]
pub fn available() -> Option<u64> {
    parse_field(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

fn status_field(name: &str) -> Option<u64> {
    parse_field(&std::fs::read_to_string("/proc/self/status").ok()?, name)
}

fn parse_field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_the_status_file_are_read_in_bytes() {
        let status = "Name:\testream\nVmHWM:\t   12340 kB\nVmRSS:\t    8000 kB\n";
        assert_eq!(parse_field(status, "VmHWM:"), Some(12_636_160));
        assert_eq!(parse_field(status, "VmRSS:"), Some(8_192_000));
        assert_eq!(parse_field(status, "VmSwap:"), None);
        assert_eq!(parse_field("VmHWM: many kB", "VmHWM:"), None);
    }
}
