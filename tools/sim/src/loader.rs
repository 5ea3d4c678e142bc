//! Loading the skel: read, digest, link, put stubs where its code needs them, and hand the entry over.

use crate::calls::{Invoke, exclusive};
use crate::elf::{Object, Refusal};
use crate::{Settings, Text};
use core::fmt::Write;
use estream_idl::carrier::DIGEST_BYTES;
use estream_sim::memory::{self, Source};
use estream_sim::patch::Area;
use estream_sim::sys::Errno;
use estream_sim::{exports, fault, patch, power, sys, units};
use sha2::{Digest, Sha256};

/// What a skel exports, and all that it exports.
const ENTRY: &str = "estream_skel_handle_invoke";

/// A skel that is ready to be called. It stays loaded for the life of the program.
pub struct Loaded {
    /// SHA-256 of the bytes that were loaded.
    pub digest: [u8; DIGEST_BYTES],
    /// Its `e_flags`.
    pub flags: u32,
    /// Its entry.
    pub invoke: Invoke,
}

/// Why a skel was not loaded.
pub enum Failure<'a> {
    /// The file cannot be read.
    File(&'static str, u32),
    /// It does not fit the address space.
    Memory,
    /// It is refused.
    Refused(Refusal<'a>),
    /// Its code cannot be run.
    Code(patch::Failure),
}

impl Failure<'_> {
    /// Writes the reason as a sentence without its subject.
    pub fn tell(&self, to: &mut Text) {
        // A `Text` takes whatever fits and never fails.
        let _ = match self {
            Self::File(what, errno) => write!(to, "it cannot be {what} (error {errno})"),
            Self::Memory => to.write_str("it does not fit the address space"),
            Self::Refused(refusal) => write!(to, "{refusal}"),
            Self::Code(failure) => write!(to, "{failure}"),
        };
    }
}

/// Loads the skel and tells `greet` how it went; names in a failure lie in the file's bytes.
pub fn load<T>(settings: &Settings, greet: impl FnOnce(Result<Loaded, Failure<'_>>) -> T) -> T {
    let file = match read(settings.skel) {
        Ok(file) => file,
        Err(failure) => return greet(Err(failure)),
    };
    greet(link(file, settings))
}

/// The file's bytes, which stay for the life of the program.
fn read(path: &core::ffi::CStr) -> Result<&'static [u8], Failure<'static>> {
    let failed = |what| move |Errno(number)| Failure::File(what, number);
    let fd = sys::open(path).map_err(failed("opened"))?;
    let length = sys::length(fd).map_err(failed("measured"))?;
    sys::rewind(fd).map_err(failed("rewound"))?;
    let range = u32::try_from(length).ok().and_then(|bytes| memory::map(bytes, Source::Zeros));
    let range = range.ok_or(Failure::Memory)?;
    // SAFETY: the mapping was made here, and nobody else knows of it.
    let bytes = unsafe { exclusive(range) };
    let mut filled = 0;
    while filled < length as usize {
        match sys::read(fd, &mut bytes[filled..length as usize]).map_err(failed("read"))? {
            0 => break,
            count => filled += count,
        }
    }
    sys::close(fd);
    Ok(&bytes[..filled])
}

/// Where debuggers stop to learn the skel's address, which is in r0: a skel is loaded and has not run.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn estream_sim_loaded(base: u32) {
    core::hint::black_box(base);
}

fn link(file: &'static [u8], settings: &Settings) -> Result<Loaded, Failure<'static>> {
    let digest = Sha256::digest(file).into();
    let object = Object::parse(file).map_err(Failure::Refused)?;
    // Stubs stand behind the image, in reach of a jump.
    let count = patch::check(file).map_err(Failure::Code)?;
    let stubs = count.bytes().ok_or(Failure::Memory)?;
    let image_bytes = object.image_bytes().next_multiple_of(patch::ALIGNMENT);
    let range = image_bytes.checked_add(stubs).and_then(|bytes| memory::map(bytes, Source::Image));
    let range = range.ok_or(Failure::Memory)?;
    // SAFETY: the mapping was made here, and nobody else knows of it before the entry runs.
    let image = unsafe { exclusive(range) };
    let bind = |name: &str| exports::address(name).filter(|_| !settings.without.contains(&name));
    let base = range.base.addr().get() as u32;
    let entry = object.link(image, base, ENTRY, bind).map_err(Failure::Refused)?;
    patch::install(file, base, count, Area { at: base + image_bytes, bytes: stubs })
        .map_err(Failure::Code)?;
    fault::set_image(file, base, image_bytes);
    units::set_architecture(object.flags & 0xff);
    power::set_architecture(object.flags & 0xff);
    estream_sim_loaded(base);
    // SAFETY: the address is that of the symbol of this name in an image that was linked by its own tables; that the
    // symbol is a function of this type is the contract between a domain and its skels.
    let invoke = unsafe {
        core::mem::transmute::<*const (), Invoke>(core::ptr::with_exposed_provenance(entry as usize))
    };
    Ok(Loaded { digest, flags: object.flags, invoke })
}
