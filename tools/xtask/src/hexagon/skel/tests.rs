//! The linker's own work, right and wrong: what these flags make passes the checks, and what a slip in the sources or the
//! flags would make is refused by name. Objects are assembled by the pinned compiler, since no assembler comes with it.

use super::super::loader::Breach;
use super::*;
use crate::hexagon::toolchain::{RUSTC, present};
use std::fs;

const SOUND: &str = "
    .text
    .globl estream_skel_handle_invoke
    .type estream_skel_handle_invoke, @function
    estream_skel_handle_invoke:
        call qurt_sleep
        jumpr r31
    .size estream_skel_handle_invoke, . - estream_skel_handle_invoke
    .data
    .globl table
    table: .word estream_skel_handle_invoke
";

/// A folder to link in, or `None` where the toolchain is absent.
fn bench() -> Option<tempfile::TempDir> {
    if let Err(reason) = present() {
        assert!(
            std::env::var_os("ESTREAM_REQUIRE_HEXAGON").is_none_or(|value| value != "1"),
            "the toolchain is required: {reason}"
        );
        eprintln!("skipped: {reason}");
        return None;
    }
    Some(tempfile::tempdir().unwrap())
}

fn object(folder: &Path, assembly: &str, arch: Arch) -> PathBuf {
    let (source, object) = (folder.join("source.rs"), folder.join("object.o"));
    let text = format!(
        "#![feature(no_core, rustc_attrs, decl_macro, asm_experimental_arch)]\n#![no_core]\n\
         #[rustc_builtin_macro] macro global_asm($template:expr) {{}}\nglobal_asm!({assembly:?});\n"
    );
    fs::write(&source, text).unwrap();
    output(
        Command::new(RUSTC)
            .env("RUSTC_BOOTSTRAP", "1")
            .env_remove("LD_LIBRARY_PATH")
            .args(["--edition", "2024", "--crate-type", "lib", "--emit", "obj", "-Ainternal_features"])
            .args(["--target", "hexagon-unknown-none-elf", "-o"])
            .arg(&object)
            .arg(format!("-Ctarget-cpu=hexagon{}", arch.name()))
            .arg(&source),
    )
    .unwrap();
    object
}

fn linked(folder: &Path, assembly: &str, arch: Arch, flags: &[&str]) -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let out = folder.join(SKEL);
    link(root, &object(folder, assembly, arch), &out, flags).unwrap();
    fs::read(out).unwrap()
}

fn breaches(folder: &Path, more: &str, flags: &[&str]) -> Vec<Breach> {
    let bytes = linked(folder, &format!("{SOUND}{more}"), Arch::V73, flags);
    loader::check(&bytes, SKEL, Some(Arch::V73)).map_or_else(|breaches| breaches, |_| Vec::new())
}

#[test]
fn what_the_flags_make_passes_for_every_architecture_with_and_without_a_checksum() {
    let Some(folder) = bench() else { return };
    for arch in Arch::ALL {
        let bytes = linked(folder.path(), SOUND, arch, &["--strip-all"]);
        let report = loader::check(&bytes, SKEL, Some(arch)).unwrap();
        assert_eq!((report.arch, report.imports), (arch, (1, 0)));
        for other in Arch::ALL.into_iter().filter(|&other| other != arch) {
            assert_eq!(loader::check(&bytes, SKEL, Some(other)).unwrap_err()[0].rule, "arch");
        }
        let summed = super::super::crc::add(&bytes).unwrap();
        assert!(matches!(loader::check(&summed, SKEL, Some(arch)).unwrap().crc, Crc::Right(_)));
    }
}

#[test]
fn what_a_slip_would_make_is_refused_by_name() {
    let Some(folder) = bench() else { return };
    let folder = folder.path();
    let libc = folder.join("libc.so");
    let library = object(folder, ".globl strlen\n.type strlen, @function\nstrlen: jumpr r31\n", Arch::V73);
    output(Command::new(LINKER).args(["-shared", "-soname=libc.so", "-o"]).arg(&libc).arg(&library)).unwrap();
    let exports = folder.join("exports.map");
    fs::write(&exports, "{ global: table; };").unwrap();
    let (libc, exports) = (libc.to_str().unwrap(), format!("--version-script={}", exports.display()));

    let thread_local = ".section .tdata.counter, \"awTR\", @progbits\ncounter: .word 1\n";
    let cases: [(&str, &str, &str, &[&str]); 9] = [
        ("needed", "libc.so", "", &["--no-as-needed", libc]),
        ("import", "malloc", ".text\ncall malloc\n", &[]),
        ("import", "memalign", ".text\ncall memalign\n", &[]),
        ("tls", "segment of 4 bytes", thread_local, &[]),
        ("textrel", "DT_TEXTREL", ".text\n.word table\n", &["-z", "notext"]),
        ("relocation", "kind 6", ".data\n.word qurt_sleep\n", &[]),
        ("export", "table", "", &[&exports]),
        ("gnu-hash", "DT_GNU_HASH", "", &["--hash-style=both"]),
        ("soname", "libother.so", "", &["-soname=libother.so"]),
    ];
    assert_eq!(breaches(folder, "", &[]), []);
    for (rule, words, assembly, flags) in cases {
        let breaches = breaches(folder, assembly, flags);
        let named = breaches.iter().any(|breach| breach.rule == rule && breach.detail.contains(words));
        // A text relocation breaks its rule twice: by the tag and at its address; so does thread-local data.
        let alone = breaches.iter().all(|breach| breach.rule == rule);
        assert!(named && alone, "{rule} ({words}): {breaches:?}");
    }
}
