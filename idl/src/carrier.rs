//! How FastRPC calls travel to the simulated protection domain: frames over a socket, because there is no FastRPC
//! driver beneath it.
//!
//! A frame is its length (u32) and that many bytes; every integer is little-endian. The domain speaks first, with the
//! greeting of a skel that it has loaded or the reason why it has not; then each call is answered by one return.
//!
//! | frame | content |
//! |---|---|
//! | greeting | [`LOADED`] (u32), SHA-256 of the skel's bytes (32 bytes), its `e_flags` (u32) |
//! | greeting | [`REFUSED`] (u32), a sentence (UTF-8) |
//! | call | handle (u64), scalars (u32), each in-buffer as length (u32) and bytes, the capacity of each out-buffer (u32), each in-handle (u64) |
//! | return | value (i32), each out-buffer as length (u32) and bytes, each out-handle (u64) |
//!
//! Descriptors are passed by standing in the place of the standard streams, so nothing else needs to be inherited.

/// The domain's descriptor of the socket.
pub const CALLS_FD: i32 = 0;
/// The domain's descriptor of the shared memory, as `attach` names it.
pub const MEMORY_FD: i32 = 1;
/// Bytes of the largest frame: a recipe and a directory fit many times.
pub const MAX_FRAME: usize = 64 << 20;
/// Buffers and handles of a call at the most.
pub const MAX_ARGUMENTS: usize = 16;
/// Bytes of a SHA-256.
pub const DIGEST_BYTES: usize = 32;

/// Greeting of a domain that has loaded the skel.
pub const LOADED: u32 = 0;
/// Greeting of a domain that has not.
pub const REFUSED: u32 = 1;

/// Reads a frame from its start; whatever is cut short reads as `None`.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// A reader at the start of a frame's content.
    #[must_use]
    pub const fn new(frame: &'a [u8]) -> Self {
        Self(frame)
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    /// The next word.
    pub fn word(&mut self) -> Option<u32> {
        self.bytes(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    /// The next double word.
    pub fn double(&mut self) -> Option<u64> {
        self.bytes(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    /// The next buffer: its length and its bytes.
    pub fn buffer(&mut self) -> Option<&'a [u8]> {
        let length = self.word()?;
        self.bytes(usize::try_from(length).ok()?)
    }

    /// What has not been read.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_short_is_not_read() {
        let frame = [2, 0, 0, 0, 7, 8, 9];
        let mut reader = Reader::new(&frame);
        assert_eq!((reader.buffer(), reader.word(), reader.rest()), (Some(&[7, 8][..]), None, &[9][..]));
        assert_eq!(Reader::new(&[255, 255, 255, 255, 1]).buffer(), None);
        assert_eq!(Reader::new(&frame).double(), None);
    }
}
