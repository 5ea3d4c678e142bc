//! How calls travel to a firmware: the seam between a session and a device.
//!
//! Calls, the memory and the peer's death are all that differs between devices: messages go over rings in shared memory
//! everywhere.

pub mod native;
pub mod sim;

pub use native::Native;
pub use sim::{Sim, Simulator, SkelReport};

use crate::Error;
use estream_idl::call::{Reply, Request};
use estream_idl::memory::SharedMemory;
use std::os::fd::BorrowedFd;

/// Bytes of a request beside the recipe and the directory: the configuration's numbers and two lengths, at their longest.
const REQUEST_OVERHEAD: usize = 256;

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

    /// The file that the shared memory has to stand on, for a firmware that can map no other. It is as long as the
    /// memory from `attach` on.
    fn memory_file(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether the firmware is still there, looked at several times a second during a pass. One in this process always is.
    ///
    /// # Errors
    /// When it has ended without being told to, with how.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// What ends a firmware that does not answer, from any thread and while a call is waiting; a call that waits then
    /// returns. `None` where nothing but the end of this process can.
    fn terminator(&self) -> Option<Box<dyn FnOnce() + Send>> {
        None
    }
}

/// The bytes of a request.
fn encode(request: &Request<'_>) -> Result<Vec<u8>, Error> {
    let bytes = match request {
        Request::Plan(prepare) | Request::Start(prepare) => prepare.recipe.len() + prepare.directory.len(),
        Request::Hello { .. } | Request::Stop => 0,
    };
    let mut buffer = vec![0; bytes + REQUEST_OVERHEAD];
    let length = postcard::to_slice(request, &mut buffer)
        .map_err(|error| Error::runtime("request", format!("a call cannot be encoded: {error}")))?
        .len();
    buffer.truncate(length);
    Ok(buffer)
}

/// The reply that lies in the first `length` bytes of a buffer.
fn decode(buffer: &[u8], length: usize) -> Result<Reply, Error> {
    let reply = buffer.get(..length).ok_or_else(|| Error::protocol("a reply longer than its buffer"))?;
    postcard::from_bytes(reply).map_err(|error| Error::protocol(format!("a reply does not decode: {error}")))
}
