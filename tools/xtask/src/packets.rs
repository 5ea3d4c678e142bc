//! How many packets the Hexagon kernels take, held against a snapshot that a change must update knowingly.
//!
//! A program for the simulator (`tests/on-target/src`) calls each kernel on known sizes, built as the skel is, and
//! tells packets, loads and stores of a unit of work. The bound beside a figure is what no schedule can go below: a packet
//! holds one vector load and one vector store, so a kernel takes at least as many packets as it has of the more frequent of
//! the two (a tile of any format has sixteen vectors to store, which is the bound of nearly every decode). Where neither
//! bounds it (the matrix unit's products, the DMA engine's copies, an expert as a whole) there is no bound to show.
//!
//! Counts are exact and the same on every machine, as compiler and simulator are pinned, so any difference is a change of
//! the code. Fewer packets are a difference too: the snapshot says what is true.

use crate::hexagon;
use std::fmt::Write as _;
use std::path::Path;

const SNAPSHOT: &str = "tools/xtask/packets.snap";
const HEAD: &str = "Packets of the Hexagon kernels in the simulator, and their bound from loads and stores.\n\
                    Made by `cargo xtask packets --update`; see tools/xtask/src/packets.rs.\n\n";

/// What the program tells of a kernel.
#[derive(Debug, PartialEq, Eq)]
struct Figure<'a> {
    kernel: &'a str,
    unit: &'a str,
    /// Thousandths of a packet.
    packets: u64,
    loads: u64,
    stores: u64,
}

impl<'a> Figure<'a> {
    /// Reads `packets`, kernel, unit, thousandths, loads, stores, each behind a tab; `None` for any other line.
    fn read(line: &'a str) -> Option<Self> {
        let mut words = line.strip_prefix("packets\t")?.split('\t');
        let (kernel, unit) = (words.next()?, words.next()?);
        let mut number = || words.next()?.parse().ok();
        Some(Self { kernel, unit, packets: number()?, loads: number()?, stores: number()? })
    }

    fn bound(&self) -> u64 {
        self.loads.max(self.stores)
    }
}

/// The table of all figures in a program's output.
fn table(output: &str) -> Result<String, String> {
    let mut table = String::from(HEAD);
    let mut line = |kernel: &str, unit: &str, packets: &str, bound: &str, times: &str| {
        let _ = writeln!(table, "{kernel:<24} {unit:<20} {packets:>9} {bound:>6} {times:>6}");
    };
    line("kernel", "for a", "packets", "bound", "times");
    let mut figures = 0;
    for figure in output.lines().filter_map(Figure::read) {
        let (packets, bound) = (figure.packets as f64 / 1000.0, figure.bound());
        let (shown, times) = match bound {
            0 => ("-".into(), "-".into()),
            bound => (bound.to_string(), format!("{:.1}", packets / bound as f64)),
        };
        line(figure.kernel, figure.unit, &format!("{packets:.1}"), &shown, &times);
        figures += 1;
    }
    if figures == 0 { Err(format!("the program tells no figure:\n{output}")) } else { Ok(table) }
}

/// The lines that are in one text alone, each with a sign.
fn difference(old: &str, new: &str) -> String {
    let only = |sign: char, one: &str, other: &str| -> String {
        let missing = one.lines().filter(|line| !other.lines().any(|found| found == *line));
        missing.map(|line| format!("{sign} {line}\n")).collect()
    };
    only('-', old, new) + &only('+', new, old)
}

/// Measures, prints, and compares with the snapshot or writes it anew.
pub(crate) fn run(root: &Path, update: bool) -> Result<(), String> {
    let new = table(&hexagon::packets(root)?)?;
    print!("{new}");
    let path = root.join(SNAPSHOT);
    if update {
        return std::fs::write(&path, new).map_err(|error| format!("{}: {error}", path.display()));
    }
    let old = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    if old == new {
        return Ok(());
    }
    let changed = difference(&old, &new);
    Err(format!(
        "packets are not those of {SNAPSHOT}:\n{changed}cargo xtask packets --update takes them over"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_stands_beside_the_bound_of_what_is_more_frequent() {
        let output = "noise\npackets\tdecode\ttile\t24016\t5\t16\npackets\tfetch\tstrip\t151563\t0\t0\n";
        let table = table(output).expect("two figures");
        let last: Vec<&str> = table.lines().rev().take(2).collect();
        assert_eq!(last[1].split_whitespace().collect::<Vec<_>>(), ["decode", "tile", "24.0", "16", "1.5"]);
        assert_eq!(last[0].split_whitespace().collect::<Vec<_>>(), ["fetch", "strip", "151.6", "-", "-"]);
        assert!(super::table("packets\tdecode\ttile\tmany\t5\t16\n").is_err());
    }

    #[test]
    fn a_difference_names_both_sides() {
        assert_eq!(difference("a\nb\n", "a\nc\n"), "- b\n+ c\n");
        assert_eq!(difference("a\n", "a\n"), "");
    }
}
