//! How large the arena is, and how it is cut: from a size (or a group and banks) to G and B.
//!
//! Until a tuner measures the machine one rule serves everywhere. P = ⌊SIZE / W_e⌋ slots; G is the largest power of two
//! whose group is at most 8 MiB (a read long enough for flash to give its full rate) and of which three banks fit (one
//! computing, two filling); B = ⌊P / G⌋. Q, the reads in flight, is [`DEPTH`]. Larger groups than the model has experts
//! do not exist, so G is clamped to E; more banks than groups would stay empty, so B is clamped to their number.

use crate::errors::{Error, Exit};
use crate::model::Model;

/// Reads in flight unless the user says otherwise.
pub const DEPTH: u32 = 2;
/// The largest group that the rule chooses, in bytes.
pub const GROUP_BYTES: u64 = 8 << 20;
/// Banks that the rule wants before it makes groups larger than one record.
pub const WANTED_BANKS: u64 = 3;
/// The default arena is the model's experts divided by this.
pub const DEFAULT_SHARE: u64 = 4;

/// What the user said about the arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arena {
    /// A quarter of the experts, at least one slot.
    #[default]
    Default,
    /// At most so many bytes.
    Bytes(u64),
    /// G experts a group, in so many banks (`None`: as many as the default size holds).
    Group(u32, Option<Banks>),
    /// The rule's largest group, in so many banks.
    Banks(Banks),
    /// A group for each layer, in so many banks.
    Layers(Banks),
}

/// How many banks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Banks {
    /// So many.
    Count(u32),
    /// One for every group of every layer.
    All,
}

/// The arena as it will be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Experts a group, G.
    pub group: u32,
    /// Banks, B.
    pub banks: u32,
    /// The G that was asked for, where the model has fewer experts.
    pub group_asked: Option<u32>,
    /// The B that was asked for, where the model has fewer groups.
    pub banks_asked: Option<u32>,
}

impl Arena {
    /// G and B for a model.
    ///
    /// # Errors
    /// `arena-too-small` (exit 1: nothing is wrong with the file or the command, they only do not fit each other) where
    /// not one expert record fits, with W_e in bytes.
    pub fn cut(self, model: &Model) -> Result<Cut, Error> {
        let record = model.record_bytes;
        let default_bytes = (model.expert_bytes / DEFAULT_SHARE).max(record);
        let slots = |bytes: u64| match bytes / record {
            0 => Err(Error::new(
                "arena-too-small",
                Exit::Runtime,
                format!(
                    "an arena of {bytes} bytes does not hold one expert record: this model needs at least {record} bytes"
                ),
            )),
            slots => Ok(slots),
        };
        let fit = |group: u32, slots: u64| u32::try_from(slots / u64::from(group)).unwrap_or(u32::MAX);
        let count = |group: u32, banks: Banks| match banks {
            Banks::Count(banks) => banks,
            Banks::All => model.groups(group),
        };
        let (asked, group, banks) = match self {
            Self::Default | Self::Bytes(_) => {
                let slots = slots(if let Self::Bytes(bytes) = self { bytes } else { default_bytes })?;
                let asked = largest_group(record, slots);
                let group = asked.min(model.experts);
                (group, group, fit(group, slots))
            }
            Self::Group(asked, banks) => {
                let group = asked.clamp(1, model.experts);
                let banks = match banks {
                    Some(banks) => count(group, banks),
                    None => fit(group, slots(default_bytes)?),
                };
                (asked, group, banks)
            }
            Self::Layers(banks) => (model.experts, model.experts, count(model.experts, banks)),
            Self::Banks(banks) => {
                let group = largest_group(record, u64::MAX).min(model.experts);
                (group, group, count(group, banks))
            }
        };
        let most = model.groups(group);
        let banks_asked = match self {
            Self::Group(_, Some(Banks::Count(asked))) | Self::Banks(Banks::Count(asked)) => Some(asked),
            _ => None,
        };
        Ok(Cut {
            group,
            banks: banks.clamp(1, most),
            group_asked: (asked > group).then_some(asked),
            banks_asked: banks_asked.filter(|&asked| asked > most),
        })
    }
}

/// The largest power of two with `G · record ≤ 8 MiB` and `⌊slots / G⌋ ≥ 3`, else 1.
fn largest_group(record: u64, slots: u64) -> u32 {
    let fits = |group: u64| group.saturating_mul(record) <= GROUP_BYTES && slots / group >= WANTED_BANKS;
    (0..=23).rev().map(|power| 1_u32 << power).find(|&group| fits(u64::from(group))).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// OLMoE-1B-7B in Q4_0: 16 layers of 64 experts; a record is 3 · 2048 · 1024 weights of 4.5 bits = 3,538,944 bytes.
    fn olmoe() -> Model {
        let record = 3 * 2048 * 1024 * 9 / 16;
        assert_eq!(record, 3_538_944);
        Model::for_tests(record, &[64; 16])
    }

    fn cut(model: &Model, arena: Arena) -> (u32, u32) {
        let cut = arena.cut(model).expect("it fits");
        (cut.group, cut.banks)
    }

    #[test]
    fn the_default_is_a_quarter_of_the_experts() {
        // 1024 records / 4 = 256 slots; 2 records are 6.75 MiB, 4 would be 13.5; 256 / 2 = 128 banks.
        assert_eq!(cut(&olmoe(), Arena::Default), (2, 128));
        // 2 layers of 1 expert: a quarter of two records is no slot, so one.
        assert_eq!(cut(&Model::for_tests(4096, &[1, 1]), Arena::Default), (1, 1));
    }

    #[test]
    fn a_size_is_cut_by_the_rule() {
        let olmoe = olmoe();
        // 512 MiB / 3.375 MiB = 151.7 slots; G = 2; 75 banks.
        assert_eq!(cut(&olmoe, Arena::Bytes(512 * MIB)), (2, 75));
        // 20 MiB: 5 slots; ⌊5/2⌋ = 2 banks are too few, so G = 1.
        assert_eq!(cut(&olmoe, Arena::Bytes(20 * MIB)), (1, 5));
        // 6 slots exactly: three banks of two.
        assert_eq!(cut(&olmoe, Arena::Bytes(6 * 3_538_944)), (2, 3));
        // Exactly one slot.
        assert_eq!(cut(&olmoe, Arena::Bytes(3_538_944)), (1, 1));
        // Mixtral: 3 · 4096 · 14336 weights, 99,090,432 bytes: one record is beyond 8 MiB already.
        assert_eq!(cut(&Model::for_tests(99_090_432, &[8; 32]), Arena::Bytes(1024 * MIB)), (1, 10));
        // Small records: 8 MiB / 128 KiB = 64 records a group, and 1024 slots give 16 banks.
        assert_eq!(cut(&Model::for_tests(131_072, &[256; 8]), Arena::Bytes(128 * MIB)), (64, 16));
    }

    #[test]
    fn groups_and_banks_are_clamped_to_what_the_model_has() {
        // 16 experts of 4 KiB: the rule's G of 2048 becomes 16; 4 layers give 4 groups whatever the size.
        let small = Model::for_tests(4096, &[16; 4]);
        assert_eq!(cut(&small, Arena::Bytes(1 << 40)), (16, 4));
        let asked = Arena::Group(100, Some(Banks::Count(2))).cut(&small).expect("it fits");
        assert_eq!(asked, Cut { group: 16, banks: 2, group_asked: Some(100), banks_asked: None });
        let asked = Arena::Group(4, Some(Banks::Count(1000))).cut(&small).expect("it fits");
        assert_eq!(asked, Cut { group: 4, banks: 16, group_asked: None, banks_asked: Some(1000) });
        assert_eq!(cut(&small, Arena::Group(4, None)), (4, 4));
    }

    #[test]
    fn all_banks_are_the_groups_of_all_layers() {
        // Layers of 5 and 8 experts in groups of 3: 2 + 3.
        let uneven = Model::for_tests(4096, &[5, 8]);
        assert_eq!(cut(&uneven, Arena::Group(3, Some(Banks::All))), (3, 5));
        assert_eq!(cut(&olmoe(), Arena::Banks(Banks::All)), (2, 512));
        assert_eq!(cut(&olmoe(), Arena::Banks(Banks::Count(3))), (2, 3));
        assert_eq!(cut(&olmoe(), Arena::Layers(Banks::Count(2))), (64, 2));
        assert_eq!(cut(&olmoe(), Arena::Layers(Banks::All)), (64, 16));
    }

    #[test]
    fn below_one_slot_is_refused_with_the_bytes_of_one() {
        for bytes in [0, 1, 3_538_943] {
            let error = Arena::Bytes(bytes).cut(&olmoe()).expect_err("no slot");
            assert_eq!((error.code.as_ref(), error.exit), ("arena-too-small", Exit::Runtime));
            assert!(error.message.contains("3538944"), "{}", error.message);
        }
    }
}
