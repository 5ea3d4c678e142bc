//! What the tuner found, kept beside the pack in `PACK.tuned`: JSON, one entry for each device, storage and number of
//! threads.
//!
//! A pack that is opened without a word about its arena takes the settings of the last `tune`. An entry is for the very
//! pack (by the header's checksum, which seals the rest) and the very place: on another disk, with other threads or other
//! kernels it is not looked at. A file that cannot be read or understood is as good as none: settings never change a
//! result, so nothing is worth an error.

use crate::errors::{Error, Exit, Result};
use estream_host::Pack;
use estream_tune::{Choice, Profile};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Version of the file.
const VERSION: u32 = 1;

/// What a tuning is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The pack: its header's checksum.
    pub pack: u32,
    /// The device that computes.
    pub device: String,
    /// The kernels asked for.
    pub kernels: String,
    /// The storage: device numbers of the file system, and how it is read.
    pub storage: String,
    /// Threads that compute.
    pub threads: u32,
}

impl Key {
    /// The key of a pack that is run on `device` with `kernels` and `threads`.
    #[must_use]
    pub fn of(pack: &Pack, device: &str, kernels: &str, threads: u32) -> Self {
        let place = fs::metadata(pack.path()).map(|stat| stat.dev());
        let (major, minor) = place.map_or((0, 0), |dev| (rustix::fs::major(dev), rustix::fs::minor(dev)));
        Self {
            pack: pack.header().crc,
            device: device.to_owned(),
            kernels: kernels.to_owned(),
            storage: format!("{major}:{minor} {}", pack.io_mode().name()),
            threads,
        }
    }
}

/// What was found for a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    /// What it is for.
    pub key: Key,
    /// The settings that a run takes: those of the first budget of the last `tune`.
    pub choice: Choice,
    /// What any budget is answered from.
    pub profile: Profile,
}

#[derive(Serialize, Deserialize)]
struct Tunings {
    version: u32,
    tunings: Vec<Tuning>,
}

/// Where the tunings of the pack at `path` are kept.
#[must_use]
pub fn beside(path: &Path) -> PathBuf {
    let mut name: OsString = path.into();
    name.push(".tuned");
    name.into()
}

/// The tuning for `key`, where there is one.
#[must_use]
pub fn load(path: &Path, key: &Key) -> Option<Tuning> {
    read(path).into_iter().find(|tuning| tuning.key == *key)
}

fn read(path: &Path) -> Vec<Tuning> {
    let text = fs::read(beside(path)).unwrap_or_default();
    let tunings: Option<Tunings> = serde_json::from_slice(&text).ok();
    tunings.filter(|tunings| tunings.version == VERSION).map(|tunings| tunings.tunings).unwrap_or_default()
}

/// Keeps a tuning in place of an earlier one for the same key; those for other packs are dropped.
///
/// # Errors
/// Where the file cannot be written.
pub fn store(path: &Path, tuning: Tuning) -> Result<()> {
    let mut tunings = read(path);
    tunings.retain(|other| other.key != tuning.key && other.key.pack == tuning.key.pack);
    tunings.push(tuning);
    let file = beside(path);
    let text = serde_json::to_vec(&Tunings { version: VERSION, tunings })
        .map_err(|error| Error::new("output", Exit::Runtime, error.to_string()))?;
    // Whole or not at all: a reader never meets half a file.
    let written = || {
        // With the permissions that any new file of this user has.
        let permissions = fs::Permissions::from_mode(0o666);
        let mut new = tempfile::Builder::new().permissions(permissions).tempfile_in(folder(&file))?;
        io::Write::write_all(&mut new, &text)?;
        new.persist(&file).map_err(|error| error.error)
    };
    written().map(drop).map_err(|error| Error::unwritable(&file, &error))
}

fn folder(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning(pack: u32, threads: u32, banks: u32) -> Tuning {
        let key = Key {
            pack,
            device: "native".into(),
            kernels: "auto".into(),
            storage: "254:0 direct".into(),
            threads,
        };
        let choice = Choice {
            budget_bytes: 1 << 30,
            group: 2,
            depth: 2,
            banks,
            most_banks: banks,
            streamed: false,
            gap_bytes: Some(4096),
            merge_bytes: Some(1 << 20),
            memory_bytes: 1 << 29,
            arena_bytes: 1 << 28,
            predicted_ns: 7,
        };
        Tuning { key, choice, profile: Profile::default() }
    }

    #[test]
    fn a_tuning_is_found_by_its_key_alone_and_damage_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("m.estream");
        let [one, two, again] = [tuning(1, 2, 10), tuning(1, 4, 20), tuning(1, 2, 30)];
        assert_eq!(load(&path, &one.key), None);
        store(&path, one.clone()).expect("it is written");
        store(&path, two.clone()).expect("it is written");
        assert_eq!(load(&path, &one.key).as_ref(), Some(&one));
        store(&path, again.clone()).expect("it is written");
        assert_eq!(load(&path, &one.key), Some(again));
        assert_eq!(load(&path, &two.key), Some(two));
        // Another pack in its place: what is known of the old one goes.
        let other = tuning(9, 2, 40);
        store(&path, other.clone()).expect("it is written");
        assert_eq!((load(&path, &one.key), load(&path, &other.key).is_some()), (None, true));
        fs::write(beside(&path), b"{\"version\":1,\"tunings\":[{}]}").expect("it is written");
        assert_eq!(load(&path, &other.key), None);
        let nowhere = folder.path().join("no/m.estream");
        assert_eq!(store(&nowhere, other).expect_err("no folder").code, "write");
    }
}
