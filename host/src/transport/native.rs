//! The native transport: the firmware is a value of functions in this process and runs on its own threads.

use super::{Transport, decode, encode};
use crate::Error;
use estream_idl::call::{REPLY_BYTES, Reply, Request};
use estream_idl::firmware::{Firmware, Handle};
use estream_idl::memory::SharedMemory;

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
        let request = encode(request)?;
        let mut reply = [0; REPLY_BYTES];
        let length = (self.firmware.call)(self.handle, &request, &mut reply)?;
        decode(&reply, length)
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
