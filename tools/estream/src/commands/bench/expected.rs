//! What a pass should have read, from what it computed: the check that streaming reads what is routed, once, and no more.
//!
//! The firmware's events say which groups were run. Each of them must have been read, whole; every other group that was
//! read counts as read in vain, and there must be as many of those as the firmware admits. Beside them stand the pages that
//! hold the prompt's embedding rows and, where dense weights are streamed, all of these but the final norm. Where records
//! without routes may be left out (`--gap`), a run group may be read in part, and the routed pairs bound it from below.

use estream::{
    DenseWeights, Error, Event, EventKind, Exit, Pass, ReadSpan, Result, Schedule, Streaming, WHOLE_GROUPS,
};
use estream_host::Pack;
use estream_idl::address::{PAGE, Segment};
use estream_idl::pack::{LayerEntry, Role};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes that a pass must have read: at least and at most; equal where groups are read whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Expected {
    /// At least.
    pub least: u64,
    /// At most.
    pub most: u64,
}

/// Checks the reads of a pass over `ids` with groups of `group`; `None` where events were lost.
///
/// # Errors
/// `reads-differ` where anything else was read, or anything twice.
pub fn check(
    pack: &Pack,
    pass: &Pass,
    ids: &[u32],
    group: u32,
    streaming: Streaming,
) -> Result<Option<Expected>> {
    if pass.report.events_dropped > 0 {
        return Ok(None);
    }
    let tables = pack.tables();
    let experts = if streaming.schedule == Schedule::Resident {
        Expected { least: 0, most: 0 }
    } else {
        let stored = Stored { layers: tables.layers.iter().map(Records::from).collect(), group };
        let whole = streaming.gap == WHOLE_GROUPS;
        let read = stored.read(&pass.reads)?;
        let run = stored.run(&pass.events);
        let most = stored.compare(&read, &run, whole, pass.report.speculative)?;
        let smallest = stored.layers.iter().map(|layer| layer.record_bytes).min().unwrap_or(0);
        let routed = u64::from(pass.report.pairs_routed) * smallest;
        Expected { least: if whole { most } else { routed.min(most) }, most }
    };
    let row = u64::from(tables.header.row_bytes);
    let page_of = |byte: u64| byte / PAGE as u64;
    let pages = |&id: &u32| page_of(u64::from(id) * row)..=page_of((u64::from(id) + 1) * row - 1);
    let embedding = ids.iter().flat_map(pages).collect::<BTreeSet<_>>().len() as u64 * PAGE as u64;
    let streamed = tables.matrices.iter().filter(|matrix| matrix.role != Role::FinalNorm as u16);
    let dense = match streaming.dense {
        DenseWeights::Resident => 0,
        DenseWeights::Streamed => streamed.map(|matrix| matrix.bytes).sum(),
    };
    let beside = embedding + dense;
    let expected = Expected { least: experts.least + beside, most: experts.most + beside };
    let read = pass.io.bytes;
    if (expected.least..=expected.most).contains(&read) {
        Ok(Some(expected))
    } else {
        let Expected { least, most } = expected;
        Err(differ(format!("{read} bytes were read where the routes call for {least} to {most}")))
    }
}

/// The records of a layer.
struct Records {
    layer: u32,
    file: u64,
    record_bytes: u64,
    experts: u32,
}

impl From<LayerEntry> for Records {
    fn from(entry: LayerEntry) -> Self {
        let LayerEntry { layer, file, record_bytes, experts, .. } = entry;
        Self { layer, file, record_bytes, experts }
    }
}

/// Records as they stand in the pack, in groups of so many.
struct Stored {
    layers: Vec<Records>,
    group: u32,
}

/// A group: index of its layer, number in it.
type Group = (usize, u32);

impl Stored {
    /// Bytes of a group; the last one may be short.
    fn bytes(&self, (layer, number): Group) -> u64 {
        let layer = &self.layers[layer];
        let first = number.saturating_mul(self.group);
        u64::from(self.group.min(layer.experts.saturating_sub(first))) * layer.record_bytes
    }

    /// Bytes that were read of each group.
    fn read(&self, reads: &[ReadSpan]) -> Result<BTreeMap<Group, u64>> {
        let mut read = BTreeMap::new();
        for span in reads.iter().filter(|read| read.segment == Segment::Arena) {
            let bytes = u64::from(span.pages) * PAGE as u64;
            let group = self.group_at(span.file).ok_or_else(|| {
                differ(format!("{bytes} bytes at byte {} were read as experts and are none", span.file))
            })?;
            *read.entry(group).or_default() += bytes;
        }
        Ok(read)
    }

    fn group_at(&self, file: u64) -> Option<Group> {
        let index = self.layers.partition_point(|layer| layer.file <= file).checked_sub(1)?;
        let layer = &self.layers[index];
        let record = u32::try_from((file - layer.file) / layer.record_bytes.max(1)).ok()?;
        (record < layer.experts).then_some((index, record / self.group.max(1)))
    }

    /// Groups that were run.
    fn run(&self, events: &[Event]) -> BTreeSet<Group> {
        let index = |layer| self.layers.iter().position(|entry| entry.layer == layer);
        let begun = events.iter().filter(|event| event.kind == EventKind::BankBegin);
        begun.filter_map(|event| Some((index(event.layer)?, event.group))).collect()
    }

    /// The bytes of all groups that were read, each of which must have been read as it should.
    fn compare(
        &self,
        read: &BTreeMap<Group, u64>,
        run: &BTreeSet<Group>,
        whole: bool,
        told: u32,
    ) -> Result<u64> {
        let mut sum = 0;
        for &group in run.iter().chain(read.keys().filter(|group| !run.contains(group))) {
            let (bytes, got) = (self.bytes(group), read.get(&group).copied().unwrap_or(0));
            let in_part = !whole && got > 0 && got < bytes;
            if got != bytes && !in_part {
                let (layer, number) = (self.layers[group.0].layer, group.1);
                return Err(differ(format!(
                    "layer {layer}, group {number}: {got} of {bytes} bytes were read"
                )));
            }
            sum += bytes;
        }
        let vain = read.keys().filter(|group| !run.contains(group)).count();
        if vain == told as usize {
            Ok(sum)
        } else {
            Err(differ(format!("{vain} groups were read in vain where the firmware counts {told}")))
        }
    }
}

fn differ(message: String) -> Error {
    Error::new("reads-differ", Exit::Runtime, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: u64 = PAGE as u64;

    /// Two layers of 5 and 3 records of 2 and 1 pages, in groups of 2.
    fn stored() -> Stored {
        let layers = vec![
            Records { layer: 1, file: 10 * P, record_bytes: 2 * P, experts: 5 },
            Records { layer: 3, file: 20 * P, record_bytes: P, experts: 3 },
        ];
        Stored { layers, group: 2 }
    }

    /// Checks reads given as (file page, pages), of a pass that ran layer 1's groups 0 and 2 and layer 3's group 1.
    fn checked(reads: &[(u64, u32)], whole: bool, told: u32) -> std::result::Result<u64, String> {
        let span = |&(file, pages): &(u64, u32)| ReadSpan {
            segment: Segment::Arena,
            page: 0,
            pages,
            file: file * P,
            reader: 0,
            begin_ns: 0,
            end_ns: 0,
        };
        let event = |(layer, group)| Event { kind: EventKind::BankBegin, layer, index: 0, group, time_ns: 0 };
        let run = stored().run(&[(1, 0), (1, 2), (3, 1)].map(event));
        let reads: Vec<_> = reads.iter().map(span).collect();
        let read = stored().read(&reads).map_err(|error| error.message.clone())?;
        let pages = stored().compare(&read, &run, whole, told).map_err(|error| error.message)?;
        Ok(pages / P)
    }

    #[test]
    fn what_was_run_was_read_and_the_rest_is_counted() {
        assert_eq!(checked(&[(10, 4), (18, 2), (22, 1)], true, 0), Ok(7));
        assert_eq!(checked(&[(10, 2), (12, 2), (18, 2), (22, 1)], true, 0), Ok(7), "in pieces");
        assert_eq!(checked(&[(10, 4), (14, 4), (18, 2), (22, 1)], true, 1), Ok(11), "one in vain");
        assert_eq!(checked(&[(12, 2), (18, 2), (22, 1)], false, 0), Ok(7), "in part");
    }

    #[test]
    fn anything_else_is_an_error_that_says_where() {
        let says = |reads: &[(u64, u32)], whole, told, word: &str| {
            let message = checked(reads, whole, told).expect_err("a difference");
            assert!(message.contains(word), "{message}");
        };
        says(&[(10, 4), (22, 1)], true, 0, "layer 1, group 2: 0 of 8192");
        says(&[(10, 4), (22, 1)], false, 0, "layer 1, group 2: 0 of 8192");
        says(&[(10, 2), (18, 2), (22, 1)], true, 0, "layer 1, group 0: 8192 of 16384");
        says(&[(10, 4), (10, 4), (18, 2), (22, 1)], true, 0, "layer 1, group 0: 32768 of 16384");
        says(
            &[(10, 4), (14, 4), (18, 2), (22, 1)],
            true,
            0,
            "1 groups were read in vain where the firmware counts 0",
        );
        says(&[(10, 4), (18, 2), (22, 1)], true, 2, "0 groups were read in vain where the firmware counts 2");
        says(&[(10, 4), (18, 2), (22, 1), (23, 1)], true, 0, "are none");
        says(&[(2, 1)], true, 0, "are none");
    }
}
