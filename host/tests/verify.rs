//! Nothing that is not the whole and undamaged pack gets past `Pack::open`.

mod support;

use estream_host::{Exit, IoMode, Pack, Verify};
use estream_idl::address::PAGE;
use estream_idl::pack::Header;
use std::cell::RefCell;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;
use zerocopy::FromBytes as _;

fn open(path: &Path, policy: Verify) -> Result<Pack, estream_host::Error> {
    Pack::open(path, policy, &|_, _| ())
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[test]
fn a_whole_pack_opens_and_gives_its_tables() {
    let folder = tempfile::tempdir().unwrap();
    let path = support::write(folder.path());
    let told = RefCell::new(Vec::new());
    let pack = Pack::open(&path, Verify::Once, &|done, all| told.borrow_mut().push((done, all))).unwrap();
    assert_eq!(pack.recipe(), support::RECIPE);
    assert_eq!(pack.directory(), support::directory());
    assert_eq!(pack.tables().layers.len(), 1);
    assert_eq!(pack.tokenizer().unwrap(), support::tokenizer());
    let size = fs::metadata(&path).unwrap().len();
    assert_eq!(told.borrow().last(), Some(&(size, size)));
}

#[test]
fn the_pass_is_remembered_for_this_very_file_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = support::write(folder.path());
    let state = || {
        let pack = open(&path, Verify::Once).unwrap();
        let report = pack.verified().clone();
        assert_eq!(report.not_remembered, None);
        (report.ran, report.remembered)
    };
    assert_eq!(state(), (true, false));
    assert_eq!(state(), (false, true));
    // A byte flipped in place right after the pass, and one flipped back: both are other files now.
    let file = File::options().write(true).open(&path).unwrap();
    let at = (support::EXPERTS_AT * PAGE + 77) as u64;
    file.write_all_at(&[support::weight(at as usize) ^ 4], at).unwrap();
    assert_eq!(open(&path, Verify::Once).unwrap_err().code, "checksum");
    file.write_all_at(&[support::weight(at as usize)], at).unwrap();
    assert_eq!(state(), (true, false));
    assert_eq!(state(), (false, true));
    // A memory that was tampered with is no memory.
    fs::write(beside(&path, ".verified"), "estream-verified 1\n").unwrap();
    assert_eq!(state(), (true, false));
    for policy in [Verify::Always, Verify::Never] {
        let pack = open(&path, policy).unwrap();
        assert_eq!((pack.verified().ran, pack.verified().remembered), (false, false));
    }
}

#[test]
fn a_pass_that_cannot_be_remembered_says_so_and_is_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let path = support::write(folder.path());
    fs::create_dir_all(beside(&path, ".verified").join("occupied")).unwrap();
    for _ in 0..2 {
        let pack = open(&path, Verify::Once).unwrap();
        assert!(pack.verified().ran);
        let reason = pack.verified().not_remembered.clone().unwrap();
        assert!(reason.contains("small.estream.verified"), "{reason}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no temporary file stays");
}

#[test]
fn any_flipped_byte_is_found_whatever_it_belongs_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = support::write(folder.path());
    let bytes = support::bytes();
    let mut random = 0x1234_5678_9ABC_DEF0u64;
    let borders = (0..bytes.len() / PAGE).flat_map(|page| [page * PAGE, page * PAGE + PAGE - 1]);
    let some = (0..60).map(|_| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as usize % bytes.len()
    });
    let file = File::options().write(true).open(&path).unwrap();
    for at in borders.chain(some) {
        file.write_all_at(&[bytes[at] ^ (1 << (at % 8))], at as u64).unwrap();
        let error = open(&path, Verify::Once).expect_err("a flipped byte");
        file.write_all_at(&bytes[at..=at], at as u64).unwrap();
        assert_eq!(error.exit, Exit::Input, "byte {at}: {error}");
        let offset = error.offset.expect("an offset") as usize;
        assert!(offset <= at || at < PAGE, "byte {at}: {error}");
        assert!(error.message.contains("small.estream"), "{error}");
    }
    open(&path, Verify::Once).unwrap();
}

#[test]
fn the_header_and_its_tables_are_checked_under_every_policy() {
    let folder = tempfile::tempdir().unwrap();
    let path = support::write(folder.path());
    let bytes = support::bytes();
    let file = File::options().write(true).open(&path).unwrap();
    for at in [0, 8, 13, 17, 40, 4000, PAGE + 3, 2 * PAGE, 3 * PAGE + 9, 4 * PAGE, 6 * PAGE - 1] {
        file.write_all_at(&[bytes[at] ^ 0x20], at as u64).unwrap();
        for policy in [Verify::Always, Verify::Never] {
            assert!(open(&path, policy).is_err(), "byte {at}");
        }
        file.write_all_at(&bytes[at..=at], at as u64).unwrap();
    }
}

#[test]
fn a_pack_cut_short_or_grown_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = support::write(folder.path());
    let bytes = support::bytes();
    let lengths = [0, 1, 7, 8, 24, 4095, 4096, 5000, 8 * PAGE, bytes.len() - 1, bytes.len() - PAGE];
    let begin = Instant::now();
    for length in lengths {
        fs::write(&path, &bytes[..length]).unwrap();
        let error = open(&path, Verify::Never).expect_err("a cut pack");
        assert_eq!(error.exit, Exit::Input);
        assert!(error.message.contains("small.estream"), "{error}");
        if length >= 8 {
            assert_eq!(error.code, "truncated");
            assert!(error.message.contains(&length.to_string()), "{error}");
        }
    }
    fs::write(&path, [&bytes[..], &[0; 10]].concat()).unwrap();
    assert_eq!(open(&path, Verify::Never).unwrap_err().code, "truncated");
    assert!(begin.elapsed().as_millis() < 1000);
}

#[test]
fn what_is_no_pack_is_named_and_a_pipe_does_not_block() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other");
    let refused = |code: &str, word: &str| {
        let error = open(&path, Verify::Once).expect_err("no pack");
        assert_eq!((error.code, error.exit), (code, Exit::Input), "{error}");
        assert!(error.message.contains(word), "{error}");
    };
    refused("unreadable", "No such file");
    fs::write(&path, b"GGUF\x03\0\0\0 and so on").unwrap();
    refused("not_a_pack", "packed first");
    fs::write(&path, vec![0xFF; 3 * PAGE]).unwrap();
    refused("not_a_pack", "\\xff");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    refused("not_a_file", "regular");
    fs::remove_dir(&path).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    refused("not_a_file", "regular");
}

#[test]
fn a_header_whose_ranges_do_not_tile_the_file_is_refused_though_its_checksum_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("forged.estream");
    let page = PAGE as u64;
    type Change = fn(&mut Header);
    let changes: [(&str, Change); 8] = [
        ("version", |h| h.version = 2),
        ("bad_header", |h| h.recipe.file = !4095),
        ("bad_header", |h| h.recipe.bytes = u32::MAX),
        ("bad_header", |h| h.dense.bytes += 4096),
        ("bad_header", |h| h.embedding.bytes = u64::MAX - 8191),
        ("bad_header", |h| h.experts.bytes -= 4096),
        ("bad_header", |h| h.experts.file += 512),
        ("truncated", |h| h.file_bytes += 1),
    ];
    for (code, change) in changes {
        let mut bytes = support::bytes();
        let mut header = Header::read_from_bytes(&bytes[..PAGE]).unwrap();
        change(&mut header);
        support::seal(&mut bytes, header);
        fs::write(&path, &bytes).unwrap();
        let error = open(&path, Verify::Never).expect_err("a forged header");
        assert_eq!(error.code, code, "{error}");
        assert!(error.offset.is_some_and(|offset| offset <= bytes.len() as u64 + page));
    }
}

#[test]
fn a_pack_whose_header_and_directory_disagree_is_refused_though_every_checksum_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("forged.estream");
    // The arena is bounded by the header's W_e, and the firmware cuts it by the directory's.
    type Change = fn(&mut Header, &mut [u8]);
    let changes: [(&str, usize, Change); 6] = [
        ("largest expert record", 136, |h, _| h.record_bytes = 4096),
        ("number of experts", 148, |h, _| h.experts_per_layer = 2),
        ("layers with experts", 144, |h, _| h.sparse_layers = 2),
        // The directory: a head of 72 bytes, then the layer's number, experts, place and record size.
        ("no possible size", 2 * PAGE + 72, |_, directory| directory[72 + 16] = 1),
        ("before it end", 2 * PAGE + 72, |_, directory| directory[72 + 9] += 0x10),
        ("no permutation", 2 * PAGE + 72 + 152 + 3 * 56 + 14, |_, directory| {
            let last = directory.len() - 2;
            directory[last] = 3;
        }),
    ];
    for (word, offset, change) in changes {
        let mut bytes = support::bytes();
        let mut header = Header::read_from_bytes(&bytes[..PAGE]).unwrap();
        let mut directory = support::directory();
        change(&mut header, &mut directory);
        header.directory = support::place(&mut bytes, 2, &directory);
        support::seal(&mut bytes, header);
        fs::write(&path, &bytes).unwrap();
        for policy in [Verify::Once, Verify::Always, Verify::Never] {
            let error = open(&path, policy).expect_err("a forged pack");
            assert_eq!((error.code, error.exit), ("bad_directory", Exit::Input), "{error}");
            assert_eq!(error.offset, Some(offset as u64), "{error}");
            assert!(error.message.contains(word) && error.message.contains("forged.estream"), "{error}");
        }
    }
}

#[test]
fn every_file_system_is_read_one_way_or_the_other_and_the_reason_is_told() {
    for folder in [tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap()] {
        let pack = open(&support::write(folder.path()), Verify::Once).unwrap();
        eprintln!("{}: {:?}", folder.path().display(), pack.io_mode());
        if let IoMode::Buffered { reason } = pack.io_mode() {
            assert!(reason.contains("O_DIRECT"), "{reason}");
        }
    }
}
