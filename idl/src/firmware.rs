//! The firmware's face towards whatever carries a call: four functions, the same on every device.
//!
//! On a DSP the skel's entry stands behind them; natively the transport is given [`Firmware`] as a value, so that host
//! and firmware never name each other.

use crate::memory::SharedMemory;
use crate::status::Status;

/// A session's handle; validated by the firmware at each call.
pub type Handle = u64;

/// Tells a session where the shared memory is mapped on its side.
pub type Attach = fn(Handle, SharedMemory<'static>) -> Result<(), Status>;
/// One call: request bytes in, reply bytes out; the reply's length.
pub type Call = fn(Handle, &[u8], &mut [u8]) -> Result<usize, Status>;

/// The firmware as function values.
#[derive(Clone, Copy, Debug)]
pub struct Firmware {
    /// Makes a session.
    pub open: fn() -> Result<Handle, Status>,
    /// Tells the session where the shared memory is mapped on its side, before `start`.
    pub attach: Attach,
    /// One call: postcard bytes of [`crate::call::Request`] in, of [`crate::call::Reply`] out; the reply's length.
    pub call: Call,
    /// Stops the session if it runs, and forgets the handle.
    pub close: fn(Handle) -> Result<(), Status>,
}
