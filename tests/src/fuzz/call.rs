//! The firmware's `call` with any bytes, on a session that has no memory and on handles that nobody was given.

use estream_dsp::FIRMWARE;
use estream_idl::call::{REPLY_BYTES, Reply, Request};
use estream_idl::status::Status;

/// Calls the firmware with the bytes.
pub fn call(bytes: &[u8]) {
    let handle = (FIRMWARE.open)().expect("a session is free");
    let mut reply = [0xA5; REPLY_BYTES];
    match (FIRMWARE.call)(handle, bytes, &mut reply) {
        Err(status) => assert_ne!(status, Status::Ok, "no failure is called Ok"),
        Ok(length) => {
            let (request, rest): (Request<'_>, _) =
                postcard::take_from_bytes(bytes).expect("what was answered was a request");
            assert!(rest.is_empty(), "bytes behind a request are refused");
            let (reply, rest): (Reply, _) =
                postcard::take_from_bytes(&reply[..length]).expect("a reply is a reply");
            assert!(rest.is_empty());
            match (request, reply) {
                (Request::Hello { .. }, Reply::Hello(_))
                | (Request::Plan(_), Reply::Plan(_))
                | (_, Reply::Refused(_)) => {}
                (request, reply) => panic!("{reply:?} to {request:?}, without memory"),
            }
        }
    }
    // A reply that does not fit is an error, never a piece of one.
    if let Ok(length) = (FIRMWARE.call)(handle, bytes, &mut []) {
        panic!("a reply of {length} bytes in no room");
    }
    if let Some(&other) = bytes.first_chunk().map(|chunk| u64::from_le_bytes(*chunk)).as_ref()
        && other != handle
    {
        assert_eq!((FIRMWARE.call)(other, bytes, &mut reply), Err(Status::BadHandle));
        assert_eq!((FIRMWARE.close)(other), Err(Status::BadHandle));
    }
    assert_eq!((FIRMWARE.close)(handle), Ok(()));
    assert_eq!((FIRMWARE.call)(handle, bytes, &mut reply), Err(Status::BadHandle));
}
