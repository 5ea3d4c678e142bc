//! What the simulator says that its units did for each operator: the lines that `--sim-counts` has it write at its end.

use std::collections::BTreeMap;

/// Counts by operator and kind, under the names of the report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<String, BTreeMap<String, u64>>);

impl Counts {
    /// Reads the lines `estream-sim: operator=NAME kind=N …` out of a domain's log.
    ///
    /// # Panics
    /// When such a line has something else in it: a count that cannot be read must not pass for none.
    #[must_use]
    pub fn read(log: &str) -> Self {
        let mut all = BTreeMap::new();
        for line in log.lines() {
            let Some(line) = line.strip_prefix("estream-sim: operator=") else { continue };
            let (name, counts) = line.split_once(' ').unwrap_or_else(|| panic!("no counts: {line}"));
            let pair = |word: &str| {
                let (kind, count) = word.split_once('=')?;
                Some((kind.to_owned(), count.parse().ok()?))
            };
            let read = |word| pair(word).unwrap_or_else(|| panic!("{word} is no count: {line}"));
            all.insert(name.to_owned(), counts.split_whitespace().map(read).collect());
        }
        Self(all)
    }

    /// A count; 0 where nothing was counted for the operator.
    ///
    /// # Panics
    /// When the report has the operator and not this kind.
    #[must_use]
    pub fn of(&self, operator: &str, kind: &str) -> u64 {
        let Some(counts) = self.0.get(operator) else { return 0 };
        *counts.get(kind).unwrap_or_else(|| panic!("no count {kind} of {operator}: {counts:?}"))
    }

    /// A kind's count over all operators but `without`.
    #[must_use]
    pub fn total(&self, kind: &str, without: &str) -> u64 {
        self.0.keys().filter(|name| *name != without).map(|name| self.of(name, kind)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_counts_are_read_and_others_are_not() {
        let log = "qemu: a word\nestream-sim: operator=gather float=7 pairs=0\nestream-sim: operator=head float=2 pairs=3\n";
        let counts = Counts::read(log);
        assert_eq!(
            [counts.of("gather", "float"), counts.of("head", "pairs"), counts.of("norm", "float")],
            [7, 3, 0]
        );
        assert_eq!((counts.total("float", "head"), counts.total("pairs", "none")), (7, 3));
    }

    #[test]
    #[should_panic(expected = "is no count")]
    fn a_damaged_line_is_no_zero() {
        let _ = Counts::read("estream-sim: operator=gather float=many");
    }
}
