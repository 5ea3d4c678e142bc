//! Reading byte ranges of the pack whole: short reads are continued, interrupted ones repeated, alignment is kept.
//!
//! O_DIRECT wants offset, length and address at multiples of a block, so after a short read the transfer goes on from
//! the last whole block, and where a read ends inside its first block that block is taken from the page cache through
//! the second descriptor: the bytes are the same, and progress is certain even on a file system that never fills a
//! request. The seam [`ReadAt`] is where tests put a disk that misbehaves.

use estream_idl::address::PAGE;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::path::Path;

/// One positioned read, which may be short, interrupted or refused.
pub(crate) trait ReadAt: Send + Sync {
    /// Bytes read into the front of `into` from `offset`; 0 at the end of the file.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl ReadAt for File {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::preadv(self, &mut [IoSliceMut::new(into)], offset)?)
    }
}

/// The pack's bytes by two ways: past the page cache where that works, and through it.
pub(crate) struct Reader {
    direct: Option<Box<dyn ReadAt>>,
    cached: Box<dyn ReadAt>,
}

impl Reader {
    /// A reader that prefers `direct`.
    pub(crate) fn new(direct: Option<Box<dyn ReadAt>>, cached: Box<dyn ReadAt>) -> Self {
        Self { direct, cached }
    }

    /// Fills `into`, which is page-aligned in address and length, from the page-aligned `offset`.
    pub(crate) fn fill(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let Some(direct) = &self.direct else {
            return self.fill_cached(into, offset);
        };
        let mut done = 0;
        while done < into.len() {
            let read = read_once(direct.as_ref(), &mut into[done..], offset + done as u64)?;
            if done + read == into.len() {
                break;
            }
            let whole = (done + read) / PAGE * PAGE;
            if whole > done {
                done = whole;
            } else {
                let end = into.len().min(done + PAGE);
                self.fill_cached(&mut into[done..end], offset + done as u64)?;
                done = end;
            }
        }
        Ok(())
    }

    /// Fills `into` from any offset through the page cache.
    pub(crate) fn fill_cached(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < into.len() {
            done += read_once(self.cached.as_ref(), &mut into[done..], offset + done as u64)?;
        }
        Ok(())
    }
}

/// One read of at least a byte; interruptions are repeated, the end of the file is an error.
fn read_once(source: &dyn ReadAt, into: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match source.read_at(into, offset) {
            Ok(0) => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    format!("the file ends at or before byte {offset}"),
                ));
            }
            Ok(read) => return Ok(read.min(into.len())),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Opens `path` for reads past the page cache.
pub(crate) fn open_direct(path: &Path) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map(File::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Buffer;
    use std::sync::Mutex;

    /// A disk whose every read is answered by the next entry of a script, then in full.
    struct Scripted {
        data: Vec<u8>,
        aligned: bool,
        script: Mutex<Vec<Answer>>,
        calls: Mutex<Vec<(u64, usize)>>,
    }

    #[derive(Clone, Copy)]
    enum Answer {
        Short(usize),
        Interrupted,
        Io,
    }

    impl ReadAt for std::sync::Arc<Scripted> {
        fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
            self.calls.lock().unwrap().push((offset, into.len()));
            if self.aligned && !(offset.is_multiple_of(4096) && into.len().is_multiple_of(4096)) {
                return Err(Errno::INVAL.into());
            }
            let mut script = self.script.lock().unwrap();
            let answer = (!script.is_empty()).then(|| script.remove(0));
            let rest = &self.data[(offset as usize).min(self.data.len())..];
            let wanted = match answer {
                Some(Answer::Short(bytes)) => bytes,
                Some(Answer::Interrupted) => return Err(Errno::INTR.into()),
                Some(Answer::Io) => return Err(Errno::IO.into()),
                None => usize::MAX,
            };
            let read = wanted.min(into.len()).min(rest.len());
            into[..read].copy_from_slice(&rest[..read]);
            Ok(read)
        }
    }

    fn disk(aligned: bool, script: &[Answer]) -> std::sync::Arc<Scripted> {
        let data = (0..16 * PAGE).map(|i| (i * 7 + i / 251) as u8).collect();
        let (script, calls) = (Mutex::new(script.to_vec()), Mutex::default());
        std::sync::Arc::new(Scripted { data, aligned, script, calls })
    }

    fn read(direct: &[Answer], cached: &[Answer]) -> (io::Result<Vec<u8>>, Vec<(u64, usize)>) {
        let (fast, slow) = (disk(true, direct), disk(false, cached));
        let reader = Reader::new(Some(Box::new(fast.clone())), Box::new(slow));
        let mut buffer = Buffer::new(8 * PAGE).unwrap();
        let result = reader.fill(buffer.bytes(), 2 * PAGE as u64);
        let calls = fast.calls.lock().unwrap().clone();
        (result.map(|()| buffer.bytes().to_vec()), calls)
    }

    #[test]
    fn short_and_interrupted_reads_still_give_every_byte_and_stay_aligned() {
        use Answer::{Interrupted, Short};
        let expected = &disk(false, &[]).data[2 * PAGE..10 * PAGE];
        let scripts: [&[Answer]; 5] = [
            &[],
            &[Interrupted, Interrupted, Short(4 * PAGE)],
            &[Short(4 * PAGE + 17), Interrupted, Short(PAGE)],
            &[Short(1), Short(100), Short(2 * PAGE - 1)],
            &[Short(2048); 8],
        ];
        for script in scripts {
            let (bytes, calls) = read(script, &[Short(2048), Interrupted, Short(1024)]);
            assert_eq!(bytes.unwrap(), expected);
            assert!(calls.iter().all(|&(offset, len)| offset % 4096 == 0 && len % 4096 == 0), "{calls:?}");
        }
    }

    #[test]
    fn a_short_read_goes_on_from_the_last_whole_block() {
        let (_, calls) = read(&[Answer::Short(3 * PAGE + 5)], &[]);
        assert_eq!(calls, [(2 * PAGE as u64, 8 * PAGE), (5 * PAGE as u64, 5 * PAGE)]);
    }

    #[test]
    fn errors_and_the_end_of_the_file_are_told() {
        let (bytes, _) = read(&[Answer::Short(PAGE), Answer::Io], &[]);
        assert_eq!(bytes.unwrap_err().raw_os_error(), Some(Errno::IO.raw_os_error()));
        let reader = Reader::new(Some(Box::new(disk(true, &[]))), Box::new(disk(false, &[])));
        let mut buffer = Buffer::new(2 * PAGE).unwrap();
        let error = reader.fill(buffer.bytes(), 15 * PAGE as u64).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
