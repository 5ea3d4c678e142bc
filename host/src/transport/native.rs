//! The native transport: the firmware is a value of functions in this process and runs on its own threads.

use super::Transport;
use crate::Error;
use estream_idl::call::{REPLY_BYTES, Reply, Request};
use estream_idl::firmware::{Firmware, Handle};
use estream_idl::memory::SharedMemory;

/// Bytes of a request beside the recipe and the directory: the configuration's numbers and two lengths, at their longest.
const REQUEST_OVERHEAD: usize = 256;

/// A session of a firmware in this process.
#[derive(Debug)]
pub struct Native {
    firmware: Firmware,
    handle: Handle,
}

impl Native {
    /// Opens a session of `firmware`.
    ///
    /// # Errors
    /// When the firmware has none to give.
    pub fn open(firmware: Firmware) -> Result<Self, Error> {
        Ok(Self { firmware, handle: (firmware.open)()? })
    }
}

impl Transport for Native {
    fn call(&mut self, request: &Request<'_>) -> Result<Reply, Error> {
        let bytes = match request {
            Request::Plan(prepare) | Request::Start(prepare) => {
                prepare.recipe.len() + prepare.directory.len()
            }
            Request::Hello { .. } | Request::Stop => 0,
        };
        let mut buffer = vec![0; bytes + REQUEST_OVERHEAD];
        let encoded = postcard::to_slice(request, &mut buffer)
            .map_err(|error| Error::runtime("request", format!("a call cannot be encoded: {error}")))?;
        let mut reply = [0; REPLY_BYTES];
        let length = (self.firmware.call)(self.handle, encoded, &mut reply)?;
        let reply = reply.get(..length).ok_or_else(|| Error::protocol("a reply longer than its buffer"))?;
        postcard::from_bytes(reply)
            .map_err(|error| Error::protocol(format!("a reply does not decode: {error}")))
    }

    fn attach(&mut self, memory: SharedMemory<'static>) -> Result<(), Error> {
        Ok((self.firmware.attach)(self.handle, memory)?)
    }

    fn needs_shared_memory(&self) -> bool {
        false
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // Nobody is left to tell: the session was stopped before, and a handle that is unknown is closed.
        let _ = (self.firmware.close)(self.handle);
    }
}
