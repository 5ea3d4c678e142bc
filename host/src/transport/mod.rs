//! How calls travel to a firmware: the seam between a session and a device.
//!
//! Three methods are all that differs between devices: messages go over rings in shared memory everywhere.

pub mod native;

pub use native::Native;

use crate::Error;
use estream_idl::call::{Reply, Request};
use estream_idl::memory::SharedMemory;

/// A way to one firmware session, which is closed when the transport is dropped.
pub trait Transport: Send {
    /// One synchronous call. A refusal is a reply.
    ///
    /// # Errors
    /// When the call did not get through or its reply makes no sense.
    fn call(&mut self, request: &Request<'_>) -> Result<Reply, Error>;

    /// Tells the firmware where the shared memory is; the caller keeps it mapped until this transport is dropped.
    ///
    /// # Errors
    /// When the firmware cannot map it.
    fn attach(&mut self, memory: SharedMemory<'static>) -> Result<(), Error>;

    /// Whether the firmware lives in another process (or processor), so that the memory must be shareable.
    fn needs_shared_memory(&self) -> bool;
}
