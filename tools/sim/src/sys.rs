//! System calls of Linux on Hexagon, as `qemu-hexagon` serves them: number in r6, arguments in r0 to r5, `trap0(#1)`.

use core::arch::asm;

/// Numbers of the calls that are used.
pub mod number {
    /// `close(fd)`.
    pub const CLOSE: u32 = 57;
    /// `openat(directory, path, flags, mode)`.
    pub const OPENAT: u32 = 56;
    /// `_llseek(fd, high, low, result, whence)`.
    pub const LLSEEK: u32 = 62;
    /// `read(fd, buffer, bytes)`.
    pub const READ: u32 = 63;
    /// `write(fd, buffer, bytes)`.
    pub const WRITE: u32 = 64;
    /// `exit(status)`: the calling thread alone.
    pub const EXIT: u32 = 93;
    /// `exit_group(status)`.
    pub const EXIT_GROUP: u32 = 94;
    /// `futex(word, operation, value, timeout, …)`.
    pub const FUTEX: u32 = 98;
    /// `munmap(address, bytes)`.
    pub const MUNMAP: u32 = 215;
    /// `rt_sigaction(signal, action, old, bytes of the set)`.
    pub const RT_SIGACTION: u32 = 134;
    /// `clone(flags, stack, parent_tid, child_tid, tls)`.
    pub const CLONE: u32 = 220;
    /// `mmap2(address, bytes, protection, flags, fd, offset in 4 KiB)`.
    pub const MMAP2: u32 = 222;
    /// `mprotect(address, bytes, protection)`.
    pub const MPROTECT: u32 = 226;
    /// `clock_gettime64(clock, timespec)`.
    pub const CLOCK_GETTIME64: u32 = 403;
    /// `clock_nanosleep_time64(clock, flags, request, remain)`.
    pub const CLOCK_NANOSLEEP64: u32 = 407;
}

/// A call's error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub u32);

/// One system call.
///
/// # Errors
/// The kernel's error number.
///
/// # Safety
/// Whatever the call of that number demands of its arguments.
pub unsafe fn call(number: u32, arguments: [u32; 6]) -> Result<u32, Errno> {
    let [a, b, c, d, e, f] = arguments;
    let result: u32;
    // SAFETY: the kernel changes r0 and what the call itself changes, which is the caller's business.
    unsafe {
        asm!(
            "trap0(#1)",
            inlateout("r0") a => result,
            in("r1") b,
            in("r2") c,
            in("r3") d,
            in("r4") e,
            in("r5") f,
            in("r6") number,
        );
    }
    // The last page of numbers is errors.
    if result > 0xffff_f000 { Err(Errno(result.wrapping_neg())) } else { Ok(result) }
}

/// Seconds and nanoseconds, both 64 bits wide.
#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

const CLOCK_MONOTONIC: u32 = 1;

/// Nanoseconds of the monotonic clock.
#[must_use]
pub fn now_ns() -> u64 {
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    let to = (&raw mut time).addr() as u32;
    // SAFETY: the kernel writes one timespec to a live one.
    let read = unsafe { call(number::CLOCK_GETTIME64, [CLOCK_MONOTONIC, to, 0, 0, 0, 0]) };
    if read.is_err() {
        return 0;
    }
    time.seconds.cast_unsigned() * 1_000_000_000 + time.nanoseconds.cast_unsigned()
}

/// Sleeps; a signal may end it early.
pub fn sleep_us(microseconds: u64) {
    let time = Timespec {
        seconds: (microseconds / 1_000_000).cast_signed(),
        nanoseconds: (microseconds % 1_000_000 * 1000).cast_signed(),
    };
    let from = (&raw const time).addr() as u32;
    // SAFETY: the kernel reads one live timespec. Every outcome means: time has passed.
    let _ = unsafe { call(number::CLOCK_NANOSLEEP64, [CLOCK_MONOTONIC, 0, from, 0, 0, 0]) };
}

/// Ends the program.
pub fn exit(status: u32) -> ! {
    loop {
        // SAFETY: ends all threads at once; nothing is left to be broken.
        let _ = unsafe { call(number::EXIT_GROUP, [status, 0, 0, 0, 0, 0]) };
    }
}

/// Reads up to `buffer.len()` bytes; 0 at the end.
///
/// # Errors
/// The kernel's error number.
pub fn read(fd: i32, buffer: &mut [u8]) -> Result<usize, Errno> {
    let (to, bytes) = (buffer.as_mut_ptr().addr() as u32, buffer.len() as u32);
    // SAFETY: the kernel writes at most `bytes` bytes into a live, exclusive buffer.
    unsafe { call(number::READ, [fd.cast_unsigned(), to, bytes, 0, 0, 0]) }.map(|count| count as usize)
}

/// Writes up to `bytes.len()` bytes.
///
/// # Errors
/// The kernel's error number.
pub fn write(fd: i32, bytes: &[u8]) -> Result<usize, Errno> {
    let (from, count) = (bytes.as_ptr().addr() as u32, bytes.len() as u32);
    // SAFETY: the kernel reads a live buffer.
    unsafe { call(number::WRITE, [fd.cast_unsigned(), from, count, 0, 0, 0]) }.map(|count| count as usize)
}

/// The length of an open file.
///
/// # Errors
/// The kernel's error number, for what is no file.
pub fn length(fd: i32) -> Result<u64, Errno> {
    const END: u32 = 2;
    let mut length = 0u64;
    let to = (&raw mut length).addr() as u32;
    // SAFETY: the kernel writes one u64 to a live one.
    unsafe { call(number::LLSEEK, [fd.cast_unsigned(), 0, 0, to, END, 0]) }?;
    Ok(length)
}

/// Moves to the first byte of an open file.
///
/// # Errors
/// The kernel's error number.
pub fn rewind(fd: i32) -> Result<(), Errno> {
    let mut at = 0u64;
    let to = (&raw mut at).addr() as u32;
    // SAFETY: as in `length`.
    unsafe { call(number::LLSEEK, [fd.cast_unsigned(), 0, 0, to, 0, 0]) }.map(drop)
}

/// Opens a file for reading.
///
/// # Errors
/// The kernel's error number.
pub fn open(path: &core::ffi::CStr) -> Result<i32, Errno> {
    const HERE: u32 = (-100i32).cast_unsigned();
    // SAFETY: the kernel reads a live string that ends.
    unsafe { call(number::OPENAT, [HERE, path.as_ptr().addr() as u32, 0, 0, 0, 0]) }.map(u32::cast_signed)
}

/// Closes a descriptor.
pub fn close(fd: i32) {
    // SAFETY: descriptors are numbers; the caller is done with this one. An error leaves nothing to do.
    let _ = unsafe { call(number::CLOSE, [fd.cast_unsigned(), 0, 0, 0, 0, 0]) };
}
