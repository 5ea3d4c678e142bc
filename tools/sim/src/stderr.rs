//! Lines on the standard error: what a device would write to its log.

use crate::sys;
use core::fmt::{self, Write};

const FD: i32 = 2;

/// One line, gathered so that it is written at once and lines of several threads do not mix. What does not fit is cut.
struct Line {
    bytes: [u8; 1024],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.length..];
        let count = room.len().min(text.len());
        room[..count].copy_from_slice(&text.as_bytes()[..count]);
        self.length += count;
        Ok(())
    }
}

/// Writes one line.
pub fn line(arguments: fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; 1024], length: 0 };
    // Gathering never fails; and there is nobody to tell that the log cannot be written.
    let _ = writeln!(line, "{arguments}");
    let _ = sys::write(FD, &line.bytes[..line.length]);
}
