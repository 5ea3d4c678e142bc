//! Energy by the processor's own package counters (Linux powercap, RAPL), where this user may read them.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the kernel shows its power zones.
const ZONES: &str = "/sys/class/powercap";

/// Package counters at a moment, in microjoules.
#[derive(Debug)]
pub struct Counter(Vec<(PathBuf, u64)>);

/// Whether there is a counter to read.
#[must_use]
pub fn available() -> bool {
    Counter::start().is_some()
}

impl Counter {
    /// The counters now.
    #[must_use]
    pub fn start() -> Option<Self> {
        let packages: Vec<_> = fs::read_dir(ZONES)
            .ok()?
            .filter_map(|entry| Some(entry.ok()?.path()))
            // Sub-zones (core, uncore) are parts of a package and would count twice.
            .filter(|zone| read_text(&zone.join("name")).is_some_and(|name| name.starts_with("package")))
            .filter_map(|zone| Some((zone.clone(), read_number(&zone.join("energy_uj"))?)))
            .collect();
        (!packages.is_empty()).then_some(Self(packages))
    }

    /// Joules since.
    #[must_use]
    pub fn joules(&self) -> Option<f64> {
        let mut total = 0;
        for (zone, before) in &self.0 {
            let now = read_number(&zone.join("energy_uj"))?;
            let range = read_number(&zone.join("max_energy_range_uj"));
            total += since(*before, now, range)?;
        }
        Some(total as f64 / 1e6)
    }
}

/// Microjoules from `before` to `now` of a counter that begins anew past `range`.
fn since(before: u64, now: u64, range: Option<u64>) -> Option<u64> {
    if now >= before { Some(now - before) } else { range?.checked_sub(before)?.checked_add(now) }
}

fn read_text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn read_number(path: &Path) -> Option<u64> {
    read_text(path)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_begins_anew_goes_on() {
        assert_eq!(since(10, 25, Some(100)), Some(15));
        assert_eq!(since(90, 5, Some(100)), Some(15));
        assert_eq!(since(90, 5, None), None);
    }
}
