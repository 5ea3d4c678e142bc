//! Panics: there is no unwinding here, so a panic ends its thread and leaves what the thread had.

use alloc::string::{String, ToString};
use estream_sim::{qurt, stderr, sys};
use spin::Mutex;

pub use core::panic::*;

/// The status of a thread, or of the program, that panicked.
pub const PANICKED: i32 = 101;

static LAST: Mutex<Option<String>> = Mutex::new(None);

/// The message of the last panic, taken out.
pub fn take_message() -> Option<String> {
    LAST.lock().take()
}

#[panic_handler]
fn panicked(info: &core::panic::PanicInfo<'_>) -> ! {
    stderr::line(format_args!("{info}"));
    *LAST.lock() = Some(info.message().to_string());
    if qurt::qurt_thread_get_id() == 0 {
        sys::exit(PANICKED.cast_unsigned());
    }
    qurt::qurt_thread_exit(PANICKED)
}
