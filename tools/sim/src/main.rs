//! The simulated protection domain: it loads the very skel that ships, as a device's loader would, and carries FastRPC
//! calls to it until the host goes away.
//!
//! `estream-sim SKEL [vtcm=BYTES] [counts=on] [without=IMPORT]…`, under `qemu-hexagon`, with the socket and the shared
//! memory in the places that `estream_idl::carrier` names. `vtcm=0` has the query refused; `without` takes an import
//! away; `counts=on` has a line per operator written to the log at the end. A skel that cannot be loaded is told to the
//! host in the greeting, and the program ends with status 1.
//!
//! # Fences
//! Unsafe code is denied in the crate but for the modules listed with `#[allow(unsafe_code)]` below.
#![no_std]
#![no_main]
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod calls;
mod elf;
#[allow(unsafe_code)]
mod entry;
#[allow(unsafe_code)]
mod loader;

use core::ffi::CStr;
use estream_idl::carrier::{LOADED, REFUSED};
use estream_sim::{counts, hap, stderr, sys};
use loader::Loaded;

/// What the command line says.
pub struct Settings {
    skel: &'static CStr,
    /// Whether counts are reported at the end.
    counts: bool,
    without: [&'static str; 8],
}

/// Reads the arguments; `None` when one is not understood.
fn settings(arguments: impl Iterator<Item = &'static CStr>) -> Option<Settings> {
    let mut arguments = arguments;
    let mut settings = Settings { skel: arguments.next()?, counts: false, without: [""; 8] };
    let mut without = settings.without.iter_mut();
    for argument in arguments {
        match argument.to_str().ok()?.split_once('=')? {
            ("vtcm", bytes) => hap::set_vtcm(bytes.parse().ok()?),
            ("counts", "on") => settings.counts = true,
            ("without", name) => *without.next()? = name,
            _ => return None,
        }
    }
    Some(settings)
}

/// Loads and serves; the exit status.
fn run(arguments: impl Iterator<Item = &'static CStr>) -> u32 {
    let Some(settings) = settings(arguments) else {
        stderr::line(format_args!("usage: estream-sim SKEL [vtcm=BYTES] [counts=on] [without=IMPORT]..."));
        return 2;
    };
    let greeted = loader::load(&settings, |loaded| match loaded {
        Ok(Loaded { digest, flags, invoke }) => {
            calls::send(&[&LOADED.to_le_bytes(), &digest, &flags.to_le_bytes()]).map(|()| invoke)
        }
        Err(failure) => {
            let mut text = Text { bytes: [0; 512], length: 0 };
            failure.tell(&mut text);
            calls::send(&[&REFUSED.to_le_bytes(), &text.bytes[..text.length]]).and(Err(calls::End::Closed))
        }
    });
    let ended = greeted.map(calls::serve);
    if settings.counts {
        counts::report();
    }
    match ended {
        Ok(calls::End::Closed) => 0,
        Ok(end) => {
            stderr::line(format_args!("estream-sim: the service ends: {end:?}"));
            1
        }
        Err(_) => 1,
    }
}

/// A sentence of bounded length; what does not fit is cut.
struct Text {
    bytes: [u8; 512],
    length: usize,
}

impl core::fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for character in text.chars() {
            let room = &mut self.bytes[self.length..];
            if room.len() < character.len_utf8() {
                break;
            }
            self.length += character.encode_utf8(room).len();
        }
        Ok(())
    }
}

/// The exit status of a program that panicked, as std has it.
const PANICKED: u32 = 101;

#[panic_handler]
fn panicked(info: &core::panic::PanicInfo<'_>) -> ! {
    stderr::line(format_args!("estream-sim: {info}"));
    sys::exit(PANICKED)
}
