//! An output file that exists whole or not at all.
//!
//! Where the file system can, the file has no name while it is written (`O_TMPFILE`), so that even a killed process
//! leaves nothing behind. Elsewhere it has a temporary name in the target's folder and is removed when the writer is
//! dropped: an interrupted process has to unwind for that. Either way it is synced before it gets its name, and the name
//! replaces an older file in one step.

use crate::error::{Error, Result};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tempfile::{NamedTempFile, TempPath};

/// Owner, group and others may read and write, less the process's mask, as for any new file.
const MODE: u32 = 0o666;

pub(crate) struct Output {
    file: File,
    /// The temporary name, where the file needs one.
    name: Option<TempPath>,
    folder: PathBuf,
    target: PathBuf,
}

impl Output {
    /// Begins a file of `bytes` bytes that will be called `target`. The space is asked for at once, so that a full disk
    /// is known before the work and not after it.
    pub(crate) fn create(target: &Path, bytes: u64) -> Result<Self> {
        let failed = |error: &io::Error| Error::write(error).in_file(target);
        if target.is_dir() {
            return Err(Error::input("not-a-file", "the output is a folder").in_file(target));
        }
        let folder = match target.parent() {
            Some(parent) if parent != Path::new("") => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        let (file, name) = match nameless(&folder) {
            Some(file) => (file, None),
            None => {
                let (file, name) = named(&folder).map_err(|error| failed(&error))?.into_parts();
                (file, Some(name))
            }
        };
        // Some file systems cannot promise space; there the writes will tell.
        if let Err(error) = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes)
            && matches!(error, Errno::NOSPC | Errno::FBIG | Errno::DQUOT)
        {
            let mut error = failed(&error.into());
            error.message = format!("{} ({bytes} bytes are needed)", error.message);
            return Err(error);
        }
        Ok(Self { file, name, folder, target: target.to_path_buf() })
    }

    pub(crate) fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, offset).map_err(|error| self.failed(&error))
    }

    /// Makes the file durable and gives it its name.
    pub(crate) fn commit(mut self) -> Result<()> {
        self.file.sync_all().map_err(|error| self.failed(&error))?;
        let name = match self.name.take() {
            Some(name) => name,
            None => link(&self.file, &self.folder).map_err(|error| self.failed(&error))?,
        };
        name.persist(&self.target).map_err(|error| self.failed(&error.error))?;
        // The new name is durable once its folder is; file systems that cannot sync a folder order names themselves.
        if let Ok(folder) = File::open(&self.folder) {
            let _ = folder.sync_all();
        }
        Ok(())
    }

    fn failed(&self, error: &io::Error) -> Error {
        Error::write(error).in_file(&self.target)
    }
}

fn named(folder: &Path) -> io::Result<NamedTempFile> {
    use std::os::unix::fs::PermissionsExt;
    let permissions = std::fs::Permissions::from_mode(MODE);
    tempfile::Builder::new().prefix(".estream-").permissions(permissions).tempfile_in(folder)
}

/// A file without a name, if the file system has them and they can be named later (which takes `/proc`).
fn nameless(folder: &Path) -> Option<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(folder, flags, Mode::from_raw_mode(MODE)).ok()?);
    descriptor_path(&file).exists().then_some(file)
}

fn descriptor_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Gives a nameless file a temporary name, from which it is renamed at once: a link cannot replace a file.
fn link(file: &File, folder: &Path) -> io::Result<TempPath> {
    let linked = tempfile::Builder::new().prefix(".estream-").make_in(folder, |path| {
        rustix::fs::linkat(CWD, descriptor_path(file), CWD, path, AtFlags::SYMLINK_FOLLOW)?;
        Ok(())
    })?;
    Ok(linked.into_temp_path())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("out");
        std::fs::write(&target, b"old").unwrap();
        let output = Output::create(&target, 8).unwrap();
        output.write_at(0, b"halfdone").unwrap();
        drop(output);
        assert_eq!(std::fs::read(&target).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["out"]);

        let output = Output::create(&target, 4).unwrap();
        output.write_at(0, b"new!").unwrap();
        output.commit().unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"new!");
        assert_eq!(names(folder.path()), ["out"]);
    }

    #[test]
    fn a_named_temporary_is_removed_when_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let (_file, name) = named(folder.path()).unwrap().into_parts();
        assert_eq!(names(folder.path()).len(), 1);
        drop(name);
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn a_missing_folder_is_the_machines_failure() {
        let error = Output::create(Path::new("/nonexistent-folder/out"), 1).err().unwrap();
        assert!(!error.is_input());
        assert_eq!(error.code, "write");
    }
}
