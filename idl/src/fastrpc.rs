//! The skel's face as FastRPC reaches it: methods, the scalars of each, and statuses as return values.
//!
//! The packing is the one that the vendor's generator makes of `estream.idl`, so a generated stub and the simulator's
//! hand-written caller send the same buffers. Arguments stand in the order: in-buffers, out-buffers, in-handles,
//! out-handles. Every integer is little-endian.
//!
//! | method | in-buffers | out-buffers | handles |
//! |---|---|---|---|
//! | open | length of the URI with its NUL (u32); URI | | out: the session |
//! | close | | | in: the session |
//! | attach | fd (i32), pages of the five segments (u32 each) | | |
//! | call | length of the request, capacity of the reply (u32 each); request | length of the reply (u32); reply | |

use crate::status::Status;

/// The scalars word of a call: its method, and how many buffers and handles stand in the arguments.
#[must_use]
pub const fn scalars(
    method: u32,
    in_buffers: u32,
    out_buffers: u32,
    in_handles: u32,
    out_handles: u32,
) -> u32 {
    method << 24 | in_buffers << 16 | out_buffers << 8 | in_handles << 4 | out_handles
}

/// Makes a session.
pub const OPEN: u32 = scalars(0, 2, 0, 0, 1);
/// Stops a session if it runs, and forgets its handle.
pub const CLOSE: u32 = scalars(1, 0, 0, 1, 0);
/// Tells a session of the buffer that both sides map.
pub const ATTACH: u32 = scalars(2, 1, 0, 0, 0);
/// One call: postcard bytes of [`crate::call::Request`] in, of [`crate::call::Reply`] out.
pub const CALL: u32 = scalars(3, 2, 2, 0, 0);

/// Bytes of `attach`'s in-buffer: the file descriptor and five page counts.
pub const ATTACH_BYTES: usize = 24;
/// Bytes of `call`'s first in-buffer: two lengths.
pub const CALL_BYTES: usize = 8;

/// The URI that names the skel's file and entry to FastRPC.
pub const URI: &core::ffi::CStr =
    c"file:///libestream_skel.so?estream_skel_handle_invoke&_modver=1.0&_dom=cdsp";

/// What a generated skel answers when scalars or buffer lengths are not those of the method.
pub const BAD_ARGUMENTS: i32 = 0x8000_040e_u32.cast_signed();
/// What a generated skel answers to a method that it does not have.
pub const UNKNOWN_METHOD: i32 = 0x8000_0414_u32.cast_signed();

/// Where our statuses begin among return values ("ES" in the high half): apart from the platform's own, which are small
/// or begin with 0x8000.
const STATUS_BASE: u32 = 0x4553_0000;

/// The return value that stands for `status`: 0 for `Ok`.
#[must_use]
pub const fn to_return(status: Status) -> i32 {
    match status {
        Status::Ok => 0,
        _ => (STATUS_BASE | status as u32).cast_signed(),
    }
}

/// The status that a return value stands for, or `None` when it is the platform's own error.
#[must_use]
pub const fn from_return(value: i32) -> Option<Status> {
    match value.cast_unsigned() {
        0 => Some(Status::Ok),
        word if word & 0xffff_0000 == STATUS_BASE => Some(Status::from_wire(word & 0xffff)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_are_those_of_generated_stubs() {
        assert_eq!([OPEN, CLOSE, ATTACH, CALL], [0x0002_0001, 0x0100_0010, 0x0201_0000, 0x0302_0200]);
    }

    #[test]
    fn statuses_survive_the_return_value_and_platform_errors_are_told_apart() {
        for status in [Status::Ok, Status::BadHandle, Status::Protocol, Status::Stopped] {
            assert_eq!(from_return(to_return(status)), Some(status));
        }
        for foreign in [BAD_ARGUMENTS, UNKNOWN_METHOD, 14, -1] {
            assert_eq!(from_return(foreign), None);
        }
    }
}
