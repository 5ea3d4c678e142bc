//! An output file that exists whole or not at all.
//!
//! Where the file system can, the file has no name while it is written (`O_TMPFILE`), so that even a killed process
//! leaves nothing behind. Elsewhere it has a temporary name in the target's folder and is removed when the writer is
//! dropped: an interrupted process has to unwind for that, and [`interrupt`] makes it. Either way it is synced before it
//! gets its name, and the name replaces an older file in one step.
//!
//! Only a regular file is ever replaced. A rename would put the new file in the place of whatever has the name, so that a
//! device, a pipe or a folder with it is refused before any work. A symbolic link stays: the file that it names is
//! replaced, and written in that file's folder.

use crate::error::{Error, Result};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::{NamedTempFile, TempPath};

/// Owner, group and others may read and write, less the process's mask, as for any new file.
const MODE: u32 = 0o666;

/// Whether [`interrupt`] was called.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Makes every later write of this process fail with `cancelled`, so that whoever writes gives up, unwinds and leaves
/// nothing behind. It is for a process that was told to end, hence without a way back.
pub fn interrupt() {
    // Ordering: nothing is handed over with the flag.
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// A file that is being written, without its name until [`Self::commit`].
#[derive(Debug)]
pub struct Output {
    file: File,
    /// The temporary name, where the file needs one.
    name: Option<TempPath>,
    folder: PathBuf,
    /// The file that will be replaced or made; never a symbolic link.
    target: PathBuf,
}

impl Output {
    /// Begins a file of `bytes` bytes that will be called `target`. The space is asked for at once, so that a full disk
    /// is known before the work and not after it.
    ///
    /// # Errors
    /// `bad-output` where something has the name that is no regular file; run-time errors where the folder or the disk
    /// does not take the file.
    pub fn create(target: &Path, bytes: u64) -> Result<Self> {
        let failed = |error: &io::Error| Error::write(error).in_file(target);
        let place = place(target).map_err(|error| error.in_file(target))?;
        let folder = match place.parent() {
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
        Ok(Self { file, name, folder, target: place })
    }

    /// Writes `bytes` at byte `offset`.
    ///
    /// # Errors
    /// Where the disk does not take them, and `cancelled` after [`interrupt`].
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if INTERRUPTED.load(Ordering::Relaxed) {
            return Err(Error::runtime("cancelled", "writing was interrupted").in_file(&self.target));
        }
        self.file.write_all_at(bytes, offset).map_err(|error| self.failed(&error))
    }

    /// Makes the file durable and gives it its name.
    ///
    /// # Errors
    /// Where the disk or the folder does not take it.
    pub fn commit(mut self) -> Result<()> {
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

/// Where the file called `target` stands or will stand.
fn place(target: &Path) -> Result<PathBuf> {
    let refused =
        |what: &str| Err(Error::runtime("bad-output", format!("the output is {what}, no regular file")));
    if target.as_os_str().as_bytes().ends_with(b"/") {
        return refused("a folder");
    }
    let kind = match target.symlink_metadata() {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(target.to_path_buf()),
        Err(error) => return Err(Error::write(&error)),
    };
    if kind.is_file() {
        return Ok(target.to_path_buf());
    }
    if !kind.is_symlink() {
        return refused(if kind.is_dir() { "a folder" } else { "a device, a pipe or a socket" });
    }
    match target.canonicalize() {
        Ok(place) if place.is_file() => Ok(place),
        Ok(_) => refused("a symbolic link to a folder, a device, a pipe or a socket"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => refused("a symbolic link to nothing"),
        Err(error) => Err(Error::write(&error)),
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
    fn only_regular_files_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let kind = |name: &str| path(name).symlink_metadata().unwrap().file_type();
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(CWD, path("fifo"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
        std::fs::create_dir(path("folder")).unwrap();
        std::os::unix::fs::symlink(path("fifo"), path("to-fifo")).unwrap();
        std::os::unix::fs::symlink(path("folder"), path("to-folder")).unwrap();
        std::os::unix::fs::symlink("nothing", path("to-nothing")).unwrap();
        std::os::unix::fs::symlink("to-itself", path("to-itself")).unwrap();
        for name in ["fifo", "folder", "to-fifo", "to-folder", "to-nothing", "new/"] {
            let error = Output::create(&path(name), 4).expect_err(name);
            assert_eq!((error.code, error.is_input()), ("bad-output", false), "{name}: {error}");
            assert_eq!(error.file, Some(path(name)));
        }
        assert_eq!(Output::create(&path("to-itself"), 4).expect_err("a loop").code, "write");
        use std::os::unix::fs::FileTypeExt;
        assert!(kind("fifo").is_fifo() && kind("folder").is_dir());
        assert_eq!(names(folder.path()).len(), 6, "{:?}", names(folder.path()));
    }

    #[test]
    fn a_symbolic_link_stays_and_its_file_is_replaced() {
        let (links, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (link, file) = (links.path().join("link"), files.path().join("file"));
        std::fs::write(&file, b"old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let output = Output::create(&link, 4).unwrap();
        output.write_at(0, b"new!").unwrap();
        output.commit().unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&file).unwrap(), b"new!");
        assert_eq!((names(links.path()), names(files.path())), (vec!["link".into()], vec!["file".into()]));
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
