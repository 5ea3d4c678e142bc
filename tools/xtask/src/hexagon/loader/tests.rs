//! Every rule refuses its mutation by name, and nothing but it; no bytes make the reader panic.

use super::super::sample::{ENTRY_AT, GOT_AT, Sample};
use super::*;

const NAME: &str = "libestream_skel.so";

fn breaches(sample: &Sample) -> Vec<Breach> {
    check(&sample.bytes(), NAME, Some(Arch::V73)).map_or_else(|breaches| breaches, |_| Vec::new())
}

/// Asserts that a mutation breaks one rule, with words that tell where.
fn refused(rule: &str, words: &str, mutation: impl FnOnce(&mut Sample)) {
    let mut sample = Sample::default();
    mutation(&mut sample);
    let breaches = breaches(&sample);
    assert!(
        matches!(&breaches[..], [breach] if breach.rule == rule && breach.detail.contains(words)),
        "{rule} ({words}): {breaches:?}"
    );
}

#[test]
fn a_correct_object_passes_with_its_numbers() {
    let report = check(&Sample::default().bytes(), NAME, Some(Arch::V73)).unwrap();
    assert_eq!((report.arch, report.file, report.crc), (Arch::V73, 8192, Crc::Absent));
    assert_eq!((report.text, report.data, report.bss), (4096, 4096, 64));
    assert_eq!(report.imports, (2, 1));
}

#[test]
fn what_the_loader_refuses_is_refused_by_name() {
    refused("needed", "libc.so", |sample| sample.needed.push("libc.so"));
    refused("import", "malloc is not on the list", |sample| sample.symbols.push(("malloc", 0, 0x12, 0)));
    refused("import", "memalign is missing on some images", |sample| {
        sample.symbols.push(("memalign", 0, 0x10, 0))
    });
    refused("textrel", "DT_TEXTREL", |sample| sample.dynamic.push((dt::TEXTREL, 0)));
    refused("textrel", "DF_TEXTREL", |sample| sample.dynamic[0].1 |= 4);
    refused("textrel", "0xf00", |sample| sample.relocations.push((ENTRY_AT, 35, 0)));
    refused("tls", "segment of 16 bytes", |sample| sample.segments.push([pt::TLS, 0, 0, 0, 0, 16, 4, 4]));
    refused("tls", "DF_STATIC_TLS", |sample| sample.dynamic[0].1 |= 0x10);
    refused("tls", "counter", |sample| sample.symbols.push(("counter", 0, 0x16, 1)));
    refused("relocation", "kind 6 at 0x1f00", |sample| sample.relocations[0].1 = 6);
    refused("relocation", "kind 32", |sample| sample.relocations[0].1 = 32);
    refused("relocation", "symbol 9", |sample| sample.relocations[1].2 = 9);
    refused("relocation", "outside", |sample| sample.relocations[1].0 = GOT_AT + 0x10_0000);
    refused("gnu-hash", "does not read", |sample| sample.dynamic.push((dt::GNU_HASH, 0x200)));
    refused("arch", "0x75 says v75, not v73", |sample| sample.flags = 0x75);
    refused("arch", "0x68", |sample| sample.flags = 0x68);
    refused("soname", "none", |sample| sample.soname = None);
    refused("soname", "libother.so", |sample| sample.soname = Some("libother.so"));
    refused("export", "helper", |sample| sample.symbols.push(("helper", ENTRY_AT, 0x12, 1)));
    refused("export", "table", |sample| sample.symbols.push(("table", GOT_AT, 0x21, 2)));
    refused("entry", "not exported", |sample| sample.symbols[0].2 = 0x02);
    refused("entry", "not a function", |sample| sample.symbols[0].1 = GOT_AT);
    refused("segment", "writable and executable", |sample| sample.rights = 7);
    refused("segment", "0x6474e552", |sample| sample.segments.push([0x6474_e552, 0, 0, 0, 0, 0, 4, 1]));
    refused("segment", "0x0 shares a page", |sample| {
        sample.segments.push([pt::LOAD, 0, 0x3000, 0, 0, 8, 4, 4096]);
    });
    refused("initialiser", "tag 25", |sample| sample.dynamic.push((dt::INIT_ARRAY, 0x1f00)));
    refused("dynamic", "0x1d", |sample| sample.dynamic.push((29, 1)));
}

#[test]
fn a_skel_without_a_hash_table_has_no_symbols_at_all() {
    let rules: Vec<_> =
        breaches(&Sample { hash: dt::HEXAGON_VER, relocations: Vec::new(), ..Sample::default() })
            .into_iter()
            .map(|breach| breach.rule)
            .collect();
    assert_eq!(rules, ["hash", "entry"]);
}

#[test]
fn a_checksum_that_does_not_match_is_refused() {
    let mut bytes = crc::add(&Sample::default().bytes()).unwrap();
    assert!(matches!(check(&bytes, NAME, None).unwrap().crc, Crc::Right(_)));
    bytes[0x1800] ^= 1;
    assert_eq!(check(&bytes, NAME, None).unwrap_err()[0].rule, "crc");
}

#[test]
fn an_oversized_skel_is_refused() {
    let mut bytes = Sample::default().bytes();
    bytes.resize(LIMIT + 1, 0);
    assert_eq!(check(&bytes, NAME, None).unwrap_err()[0].rule, "size");
}

#[test]
fn other_files_are_refused_with_a_byte_offset() {
    for bytes in [&b""[..], b"\x7fELF", b"\x7fELF\x02\x01\x01 a 64-bit file", b"#!/bin/sh\necho no\n"] {
        let breaches = check(bytes, NAME, None).unwrap_err();
        assert_eq!((breaches.len(), breaches[0].rule), (1, "elf"));
        assert!(breaches[0].detail.starts_with("byte 0x"));
    }
}

#[test]
fn no_truncation_and_no_flipped_byte_makes_the_reader_panic() {
    let bytes = crc::add(&Sample::default().bytes()).unwrap();
    for end in 0..bytes.len() {
        assert!(check(&bytes[..end], NAME, None).is_err(), "the first {end} bytes");
    }
    // The headers and tables, with the values that break arithmetic.
    for at in (0..0x400).chain(0x1000..0x1100).chain(0x2000..bytes.len()) {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut hostile = bytes.clone();
            hostile[at] = value;
            let _ = check(&hostile, NAME, None);
            if let Some(word) = hostile.get_mut(at..at + 4) {
                word.fill(value);
                let _ = check(&hostile, NAME, None);
            }
        }
    }
}
