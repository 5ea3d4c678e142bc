//! The skel against the native firmware: what a host may send, and what no correct host sends.

use super::*;
use crate::FIRMWARE;
use core::sync::atomic::{AtomicI32, Ordering};
use estream_idl::PROTOCOL;
use estream_idl::call::{Reply, Request};
use estream_idl::control::CONTROL_PAGES;
use estream_idl::fastrpc::from_return;
use std::boxed::Box;
use std::vec::Vec;

/// Descriptors that [`map`] knows: one page-aligned buffer each, never given back.
const KNOWN: [i32; 2] = [7, 8];
const UNALIGNED: i32 = 9;

/// A skel whose mappings are counted in the thread that runs the test.
fn skel() -> Skel {
    Skel::new(FIRMWARE, Buffers { map, unmap })
}

std::thread_local! {
    static MAPPED: AtomicI32 = const { AtomicI32::new(0) };
}

fn map(fd: i32) -> Option<NonNull<u8>> {
    let memory = Box::leak(Box::new(Memory::request(CONTROL_PAGES as usize * PAGE)?));
    let buffer = NonNull::from(memory.as_mut_slice()).cast::<u8>();
    let buffer = match fd {
        fd if KNOWN.contains(&fd) => buffer,
        // SAFETY: one byte into a buffer of pages.
        UNALIGNED => unsafe { buffer.add(1) },
        _ => return None,
    };
    MAPPED.with(|count| count.fetch_add(1, Ordering::Relaxed));
    Some(buffer)
}

fn unmap(fd: i32) {
    assert!(KNOWN.contains(&fd) || fd == UNALIGNED);
    MAPPED.with(|count| count.fetch_sub(1, Ordering::Relaxed));
}

fn mapped() -> i32 {
    MAPPED.with(|count| count.load(Ordering::Relaxed))
}

fn argument(bytes: &mut [u8]) -> RemoteArg {
    RemoteArg { buffer: RemoteBuffer { data: bytes.as_mut_ptr(), bytes: bytes.len() } }
}

fn block_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn invoke(skel: &Skel, handle: u64, scalars: u32, arguments: &mut [RemoteArg]) -> i32 {
    // SAFETY: each test gives as many arguments as its scalars say, made by `argument` of live buffers, or null.
    unsafe { skel.invoke(handle, scalars, arguments.as_mut_ptr()) }
}

fn open(skel: &Skel) -> u64 {
    let mut uri = *b"file:///x\0";
    let (mut length, handle) = (block_of(&[10]), RemoteArg { handle: 0 });
    let mut arguments = [argument(&mut length), argument(&mut uri), handle];
    assert_eq!(invoke(skel, 0, 0x0002_0001, &mut arguments), 0);
    // SAFETY: an out-handle.
    unsafe { arguments[2].handle }
}

fn close(skel: &Skel, handle: u64) -> i32 {
    invoke(skel, 0, 0x0100_0010, &mut [RemoteArg { handle }])
}

fn attach(skel: &Skel, handle: u64, words: &[u32]) -> i32 {
    invoke(skel, handle, 0x0201_0000, &mut [argument(&mut block_of(words))])
}

/// A call with a reply of `capacity` bytes: what it returned, and the reply.
fn call(skel: &Skel, handle: u64, request: &[u8], capacity: usize) -> (i32, Vec<u8>) {
    // One byte off, as FastRPC's own copies may lie.
    let (mut shifted, mut reply) = (std::vec![0; request.len() + 1], std::vec![0xee; capacity + 1]);
    shifted[1..].copy_from_slice(request);
    let (mut sizes, mut length) = (block_of(&[request.len() as u32, capacity as u32]), std::vec![0xee; 5]);
    let mut arguments = [
        argument(&mut sizes),
        argument(&mut shifted[1..]),
        argument(&mut length[1..]),
        argument(&mut reply[1..]),
    ];
    let returned = invoke(skel, handle, 0x0302_0200, &mut arguments);
    let written = u32::from_le_bytes(length[1..].try_into().unwrap()) as usize;
    (returned, if returned == 0 { reply[1..1 + written].to_vec() } else { reply })
}

fn hello() -> Vec<u8> {
    let mut bytes = [0; 16];
    postcard::to_slice(&Request::Hello { protocol: PROTOCOL }, &mut bytes).unwrap().to_vec()
}

#[test]
fn a_session_opens_answers_and_closes_once() {
    let skel = skel();
    let handle = open(&skel);
    assert_ne!(handle, 0);
    let (returned, reply) = call(&skel, handle, &hello(), 256);
    assert_eq!(returned, 0);
    let Ok(Reply::Hello(answer)) = postcard::from_bytes(&reply) else { panic!("{reply:?}") };
    assert_eq!((answer.protocol, answer.processors), (PROTOCOL, platform::processors()));
    assert_eq!(close(&skel, handle), 0);
    assert_eq!(from_return(close(&skel, handle)), Some(Status::BadHandle));
    assert_eq!(from_return(call(&skel, handle, &hello(), 256).0), Some(Status::BadHandle));
}

#[test]
fn handles_that_were_never_opened_are_refused_by_every_method() {
    let skel = skel();
    let real = open(&skel);
    for handle in [0, 1, u64::MAX, real ^ 1 << 16, real ^ 1 << 40, real | 0xffff] {
        assert_eq!(from_return(close(&skel, handle)), Some(Status::BadHandle), "{handle:#x}");
        assert_eq!(from_return(attach(&skel, handle, &[7, 1, 1, 1, 1, 1])), Some(Status::BadHandle));
        assert_eq!(from_return(call(&skel, handle, &hello(), 256).0), Some(Status::BadHandle));
    }
    assert_eq!(mapped(), 0, "a refused attach keeps nothing mapped");
    assert_eq!(close(&skel, real), 0);
}

#[test]
fn a_session_holds_one_buffer_until_it_closes() {
    let skel = skel();
    let (one, two) = (open(&skel), open(&skel));
    let pages = [CONTROL_PAGES, 0, 0, 0, 0];
    let block = |fd: i32, pages: [u32; 5]| [&[fd as u32][..], &pages].concat();
    assert_eq!(attach(&skel, one, &block(7, pages)), 0);
    assert_eq!(attach(&skel, one, &block(8, pages)), 0);
    assert_eq!(mapped(), 1, "the second attach ends the first one's use");
    assert_eq!(attach(&skel, two, &block(7, pages)), 0);
    assert_eq!(from_return(attach(&skel, one, &block(-1, pages))), Some(Status::NoMemory), "not mapped");
    assert_eq!(from_return(attach(&skel, one, &block(UNALIGNED, pages))), Some(Status::Protocol));
    assert_eq!(mapped(), 2);
    assert_eq!((close(&skel, one), mapped()), (0, 1));
    assert_eq!((close(&skel, two), mapped()), (0, 0));
}

#[test]
fn a_reply_that_does_not_fit_is_refused_and_not_written() {
    let skel = skel();
    let handle = open(&skel);
    for capacity in [0, 1, 3] {
        let (returned, reply) = call(&skel, handle, &hello(), capacity);
        assert_eq!(from_return(returned), Some(Status::ReplyTooSmall));
        assert!(reply.iter().all(|&byte| byte == 0xee));
    }
    for request in [&[][..], &[0xff], &[0xff; 4000]] {
        assert_eq!(from_return(call(&skel, handle, request, 256).0), Some(Status::Protocol));
    }
    assert_eq!(close(&skel, handle), 0);
}

#[test]
fn wrong_scalars_are_told_apart_from_unknown_methods() {
    let skel = skel();
    let mut bytes = [0u8; 64];
    let mut arguments = [argument(&mut bytes); 8];
    for scalars in [0x0002_0000, 0x0001_0001, 0x0100_0011, 0x0201_0100, 0x0302_0201, 0x2201_0000] {
        assert_eq!(invoke(&skel, 1, scalars, &mut arguments), BAD_ARGUMENTS, "{scalars:#x}");
    }
    for scalars in [0x0400_0000, 0x1f02_0200, 0x0500_0000 | 0x0001_0000, u32::MAX] {
        assert_eq!(invoke(&skel, 1, scalars, &mut arguments), UNKNOWN_METHOD, "{scalars:#x}");
    }
}

#[test]
fn short_and_null_buffers_are_refused_before_they_are_read() {
    let skel = skel();
    let null = |bytes| RemoteArg { buffer: RemoteBuffer { data: core::ptr::null_mut(), bytes } };
    // SAFETY: a null argument block is refused.
    assert_eq!(unsafe { skel.invoke(0, OPEN, core::ptr::null_mut()) }, BAD_ARGUMENTS);

    let mut uri = *b"u\0";
    for (length, block_bytes, uri) in [
        (2, 3, argument(&mut uri)),
        (3, 4, argument(&mut uri)),
        (u32::MAX, 4, argument(&mut uri)),
        (2, 4, null(2)),
    ] {
        let mut block = block_of(&[length]);
        let mut arguments = [argument(&mut block[..block_bytes]), uri, RemoteArg { handle: 0 }];
        assert_eq!(invoke(&skel, 0, OPEN, &mut arguments), BAD_ARGUMENTS);
    }
    assert_eq!(
        invoke(&skel, 1, ATTACH, &mut [argument(&mut [0; 20])]),
        BAD_ARGUMENTS,
        "no room for five counts"
    );
    assert_eq!(invoke(&skel, 1, ATTACH, &mut [null(24)]), BAD_ARGUMENTS);

    let handle = open(&skel);
    let (mut request, mut length, mut reply) = (hello(), [0u8; 4], [0u8; 64]);
    let sizes = |request: u32, reply: u32| block_of(&[request, reply]);
    let good = [argument(&mut request), argument(&mut length), argument(&mut reply)];
    let cases = [
        ("request longer than its buffer", sizes(request.len() as u32 + 1, 64), good),
        ("reply longer than its buffer", sizes(2, 65), good),
        ("null request", sizes(2, 64), [null(2), good[1], good[2]]),
        ("null length", sizes(2, 64), [good[0], null(4), good[2]]),
        ("short length", sizes(2, 64), [good[0], argument(&mut length[..3]), good[2]]),
        ("null reply", sizes(2, 64), [good[0], good[1], null(64)]),
        ("short sizes", sizes(2, 64)[..7].to_vec(), good),
    ];
    for (name, mut sizes, [request, length, reply]) in cases {
        let returned = invoke(&skel, handle, CALL, &mut [argument(&mut sizes), request, length, reply]);
        assert_eq!(returned, BAD_ARGUMENTS, "{name}");
    }
    let mut sizes = sizes(0, 64);
    let empty = invoke(&skel, handle, CALL, &mut [argument(&mut sizes), null(0), good[1], good[2]]);
    assert_eq!(
        from_return(empty),
        Some(Status::Protocol),
        "an empty sequence may be null; the session judges it"
    );
    assert_eq!(close(&skel, handle), 0);
}
