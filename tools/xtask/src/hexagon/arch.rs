//! The Hexagon versions that a skel is built for: one shared object each, since their vector and matrix units differ.

use clap::ValueEnum;
use clap::builder::PossibleValue;
use std::path::PathBuf;

/// A Hexagon version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arch {
    /// Snapdragon 8 Gen 2; what the simulator runs.
    V73,
    /// Snapdragon 8 Gen 3.
    V75,
    /// Snapdragon 8 Elite.
    V79,
    /// Snapdragon 8 Elite Gen 5.
    V81,
}

impl Arch {
    pub(crate) const ALL: [Self; 4] = [Self::V73, Self::V75, Self::V79, Self::V81];

    /// As in folder names.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::V73 => "v73",
            Self::V75 => "v75",
            Self::V79 => "v79",
            Self::V81 => "v81",
        }
    }

    /// The ELF header's flags word: the version's digits as hexadecimal ones.
    pub(crate) const fn flags(self) -> u32 {
        match self {
            Self::V73 => 0x73,
            Self::V75 => 0x75,
            Self::V79 => 0x79,
            Self::V81 => 0x81,
        }
    }

    /// The name of its target, which is that of the file in `targets/`. The `-none` in it makes compiler-builtins bring
    /// the functions on memory.
    pub(crate) fn target(self) -> String {
        format!("hexagon{}-none-elf", self.name())
    }

    /// Its folder below the root.
    pub(crate) fn folder(self) -> PathBuf {
        PathBuf::from("target-hexagon").join(self.name())
    }

    /// The version with this flags word.
    pub(crate) fn of_flags(flags: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|arch| arch.flags() == flags)
    }

    /// The version that a path's last folder names.
    pub(crate) fn of_path(path: &std::path::Path) -> Option<Self> {
        let folder = path.parent()?.file_name()?.to_str()?;
        Self::ALL.into_iter().find(|arch| arch.name() == folder)
    }
}

/// One architecture or all of them, as `--arch` has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Archs(Option<Arch>);

impl Archs {
    pub(crate) fn list(&self) -> &[Arch] {
        self.0.as_ref().map_or(&Arch::ALL, std::slice::from_ref)
    }
}

impl ValueEnum for Archs {
    fn value_variants<'a>() -> &'a [Self] {
        const {
            &[
                Self(None),
                Self(Some(Arch::V73)),
                Self(Some(Arch::V75)),
                Self(Some(Arch::V79)),
                Self(Some(Arch::V81)),
            ]
        }
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.map_or("all", Arch::name)))
    }
}
