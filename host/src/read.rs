//! Reading byte ranges of the pack whole: short reads are continued, interrupted ones repeated, alignment is kept.
//!
//! O_DIRECT wants offset, length and address at multiples of a block, so after a short read the transfer goes on from
//! the last whole block, and where a read ends inside its first block that block is taken from the page cache through
//! the second descriptor: the bytes are the same, and progress is certain even on a file system that never fills a
//! request. The seam [`ReadAt`] is where tests put a disk that misbehaves.
//!
//! Ranges that lie end to end in the file and apart in memory are asked for as one request ([`Reader::fill_parts`]). What
//! such a request does not deliver, for whatever reason, is read again part by part: so each part has an outcome of its
//! own, and no error of one is told of another.

use estream_idl::address::PAGE;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::path::Path;

/// One positioned read, which may be short, interrupted or refused.
pub(crate) trait ReadAt: Send + Sync {
    /// Bytes read from `offset` into `into`, slice after slice from the front; 0 at the end of the file.
    fn read_vectored_at(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize>;

    /// Bytes read into the front of `into` from `offset`; 0 at the end of the file.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_vectored_at(&mut [IoSliceMut::new(into)], offset)
    }
}

impl ReadAt for File {
    fn read_vectored_at(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::preadv(self, into, offset)?)
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

    /// Fills `parts`, each page-aligned, with the bytes from the page-aligned `offset` on, one part after the other, by
    /// one request where the system answers it whole. The outcomes of the parts, in their order.
    pub(crate) fn fill_parts(&self, parts: &mut [&mut [u8]], offset: u64) -> Vec<io::Result<()>> {
        let mut given = 0;
        if parts.len() > 1 {
            let source = self.direct.as_ref().unwrap_or(&self.cached);
            let mut slices: Vec<_> = parts.iter_mut().map(|part| IoSliceMut::new(part)).collect();
            // An error here is met again, and told, by the part that it belongs to.
            given = source.read_vectored_at(&mut slices, offset).unwrap_or(0);
        }
        let mut at = offset;
        let fill = |part: &mut &mut [u8]| {
            let whole = given.min(part.len()) / PAGE * PAGE;
            let filled = self.fill(&mut part[whole..], at + whole as u64);
            given -= given.min(part.len());
            at += part.len() as u64;
            filled
        };
        parts.iter_mut().map(fill).collect()
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
        calls: Mutex<Vec<Call>>,
    }

    #[derive(Clone, Copy)]
    enum Answer {
        Short(usize),
        Interrupted,
        Io,
    }

    impl ReadAt for std::sync::Arc<Scripted> {
        fn read_vectored_at(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
            let length: usize = into.iter().map(|slice| slice.len()).sum();
            self.calls.lock().unwrap().push((offset, length));
            let aligned = into.iter().all(|slice| slice.len().is_multiple_of(4096));
            if self.aligned && !(offset.is_multiple_of(4096) && aligned) {
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
            let read = wanted.min(length).min(rest.len());
            let mut left = &rest[..read];
            for slice in into {
                let (here, after) = left.split_at(left.len().min(slice.len()));
                slice[..here.len()].copy_from_slice(here);
                left = after;
            }
            Ok(read)
        }
    }

    /// Offset and length of a call.
    type Call = (u64, usize);

    fn disk(aligned: bool, script: &[Answer]) -> std::sync::Arc<Scripted> {
        let data = (0..16 * PAGE).map(|i| (i * 7 + i / 251) as u8).collect();
        let (script, calls) = (Mutex::new(script.to_vec()), Mutex::default());
        std::sync::Arc::new(Scripted { data, aligned, script, calls })
    }

    fn read(direct: &[Answer], cached: &[Answer]) -> (io::Result<Vec<u8>>, Vec<Call>) {
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

    #[test]
    fn parts_come_by_one_request_and_what_it_leaves_comes_part_by_part() {
        use Answer::{Interrupted, Io, Short};
        // Three parts of 2, 1 and 3 pages from page 2 on: the request for all, then those that are not whole.
        let whole = (2 * PAGE as u64, 6 * PAGE);
        let part = |first: usize, pages: usize| ((first * PAGE) as u64, pages * PAGE);
        let cases: [(&[Answer], Vec<Call>); 5] = [
            (&[], vec![whole]),
            (&[Short(2 * PAGE)], vec![whole, part(4, 1), part(5, 3)]),
            (&[Short(PAGE + 7)], vec![whole, part(3, 1), part(4, 1), part(5, 3)]),
            (&[Short(4 * PAGE)], vec![whole, part(6, 2)]),
            (&[Interrupted], vec![whole, part(2, 2), part(4, 1), part(5, 3)]),
        ];
        let read = |script: &[Answer]| {
            let fast = disk(true, script);
            let reader = Reader::new(Some(Box::new(fast.clone())), Box::new(disk(false, &[])));
            let mut buffers = [2, 1, 3].map(|pages| Buffer::new(pages * PAGE).unwrap());
            let mut parts: Vec<&mut [u8]> = buffers.iter_mut().map(Buffer::bytes).collect();
            let outcomes = reader.fill_parts(&mut parts, 2 * PAGE as u64);
            let calls = fast.calls.lock().unwrap().clone();
            (outcomes, parts.concat(), calls)
        };
        for (script, expected) in cases {
            let (outcomes, bytes, calls) = read(script);
            assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
            assert_eq!(bytes, &disk(false, &[]).data[2 * PAGE..8 * PAGE]);
            assert_eq!(calls, expected);
        }
        // The disk fails in the second part: the others are whole.
        let (outcomes, bytes, _) = read(&[Short(2 * PAGE), Io]);
        assert_eq!(outcomes.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
        assert_eq!(bytes[3 * PAGE..], disk(false, &[]).data[5 * PAGE..8 * PAGE]);
    }
}
