//! The vendor's signer, for those who have it and need it.
//!
//! Nobody needs it to run EStream: an unsigned protection domain has the vector and matrix units and the whole VTCM, is
//! what retail devices accept, and takes the skel as it is. A signed domain is for devices whose debug fuse is set (or
//! whose maker signs); there the SDK's signer is driven, and what it made is checked before it is believed.

use super::arch::Arch;
use super::elf::{HEADER, Image, SEGMENT, Segment, pt};
use super::loader;
use super::skel::SKEL;
use crate::steps::run;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the SDK has its signer.
const SIGNER: &str = "tools/elfsigner/elfsigner.py";
const UNSIGNED: &str = "An unsigned protection domain suffices for EStream: it has HVX, HMX and the whole VTCM, is what retail devices accept, and takes the skel as `cargo xtask skel` made it.";

/// The vendor's signer.
struct Signer {
    interpreter: &'static str,
    script: PathBuf,
}

impl Signer {
    fn find(sdk: &Path) -> Result<Self, String> {
        let script = sdk.join(SIGNER);
        if script.is_file() {
            Ok(Self { interpreter: "python3", script })
        } else {
            Err(format!("HEXAGON_SDK_ROOT has no {SIGNER}: {} is not there", script.display()))
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.interpreter);
        command.arg(&self.script);
        command
    }

    /// Signs one skel into a folder.
    fn sign(&self, skel: &Path, folder: &Path) -> Result<PathBuf, String> {
        run(self.command().arg("-i").arg(skel).arg("-o").arg(folder).arg("--no_disclaimer"))?;
        let signed = folder.join(SKEL);
        verify(&read(skel)?, &read(&signed)?).map_err(|reason| format!("{}: {reason}", signed.display()))?;
        Ok(signed)
    }

    /// Makes the test signature of one device.
    fn test_signature(&self, serial: u32, folder: &Path) -> Result<PathBuf, String> {
        let serial = format!("{serial:#x}");
        run(self.command().arg("-t").arg(&serial).arg("-o").arg(folder).arg("--no_disclaimer"))?;
        let signature = folder.join(format!("testsig-{serial}.so"));
        Image::parse(&read(&signature)?).map_err(|damaged| format!("{}: {damaged}", signature.display()))?;
        Ok(signature)
    }
}

/// Signs the skels (all that are built, where none is named), each into `signed/` beside it; with a serial number, makes
/// that device's test signature instead.
pub(crate) fn run_signer(
    root: &Path,
    sdk: Option<&Path>,
    serial: Option<u32>,
    files: &[PathBuf],
) -> Result<(), String> {
    println!("{UNSIGNED}");
    let sdk = sdk.ok_or("nothing is signed: HEXAGON_SDK_ROOT is not set")?;
    let signer = Signer::find(sdk)?;
    if let Some(serial) = serial {
        let signature = signer.test_signature(serial, &root.join("target-hexagon"))?;
        println!("{}", signature.display());
        return Ok(());
    }
    let files = if files.is_empty() {
        Arch::ALL
            .map(|arch| root.join(arch.folder()).join(SKEL))
            .into_iter()
            .filter(|file| file.exists())
            .collect()
    } else {
        files.to_vec()
    };
    if files.is_empty() {
        return Err("no skel is built: cargo xtask skel".into());
    }
    for skel in files {
        let folder = skel.parent().unwrap_or(root).join("signed");
        println!("{}", signer.sign(&skel, &folder)?.display());
    }
    Ok(())
}

/// A device's serial number, in hexadecimal as devices print it.
pub(crate) fn serial(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u32::from_str_radix(digits, 16)
        .map_err(|error| format!("a serial number is hexadecimal, as 0x1a2b3c4d: {error}"))
}

/// Whether `signed` is `skel` with a signature: it passes the loader's rules, has the signature's two segments, and loads
/// the same bytes at the same places.
fn verify(skel: &[u8], signed: &[u8]) -> Result<(), String> {
    loader::check(signed, SKEL, None)
        .map_err(|breaches| breaches.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    let parse = |bytes| Image::parse(bytes).map_err(|damaged| damaged.to_string());
    let (plain, signed) = (parse(skel)?, parse(signed)?);
    if signed.segments.iter().filter(|segment| segment.kind == pt::NULL).count() != 2 {
        return Err("the signer left no signature in it".into());
    }
    // The headers at the beginning of the first segment are what signing changes.
    let headers = HEADER + plain.segments.len().max(signed.segments.len()) * SEGMENT;
    let loaded = |image: &Image<'_>| -> Vec<(u32, u32, Vec<u8>)> {
        let skipped = |load: &Segment| if load.address == 0 { headers } else { 0 };
        let body = |load: &Segment| image.content(load).get(skipped(load)..).unwrap_or_default().to_vec();
        image.loads().map(|load| (load.address, load.memory_bytes, body(load))).collect()
    };
    if loaded(&plain) == loaded(&signed) { Ok(()) } else { Err("the signed skel loads other bytes".into()) }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::super::sample::Sample;
    use super::*;
    use std::fs;

    /// A folder with a signer that writes its arguments down and gives out `signed` (and a test signature) as its work.
    struct Sdk {
        folder: tempfile::TempDir,
        skel: PathBuf,
    }

    impl Sdk {
        fn new(signed: &[u8], exit: u8) -> (Self, Signer) {
            let folder = tempfile::tempdir().unwrap();
            let script = folder.path().join(SIGNER);
            fs::create_dir_all(script.parent().unwrap()).unwrap();
            let here = folder.path().display();
            let fake = format!(
                "echo \"$@\" > {here}/arguments\nmkdir -p \"$4\"\ncase $1 in\n-i) cp {here}/work \"$4/{SKEL}\";;\n\
                 -t) cp {here}/work \"$4/testsig-$2.so\";;\nesac\nexit {exit}\n"
            );
            fs::write(&script, fake).unwrap();
            fs::write(folder.path().join("work"), signed).unwrap();
            let skel = folder.path().join(SKEL);
            fs::write(&skel, Sample::default().bytes()).unwrap();
            (Self { folder, skel }, Signer { interpreter: "sh", script })
        }

        fn arguments(&self) -> String {
            fs::read_to_string(self.folder.path().join("arguments")).unwrap()
        }
    }

    fn signature() -> Sample {
        Sample { segments: vec![[0; 8]; 2], ..Sample::default() }
    }

    #[test]
    fn the_signer_is_called_as_its_manual_says_and_its_work_is_checked() {
        let (sdk, signer) = Sdk::new(&signature().bytes(), 0);
        let folder = sdk.folder.path().join("signed");
        let signed = signer.sign(&sdk.skel, &folder).unwrap();
        assert_eq!(signed, folder.join(SKEL));
        let expected = format!("-i {} -o {} --no_disclaimer\n", sdk.skel.display(), folder.display());
        assert_eq!(sdk.arguments(), expected);

        let made = signer.test_signature(0xab_cd01, &folder).unwrap();
        assert_eq!(made, folder.join("testsig-0xabcd01.so"));
        assert_eq!(sdk.arguments(), format!("-t 0xabcd01 -o {} --no_disclaimer\n", folder.display()));
    }

    #[test]
    fn work_that_is_not_the_signed_skel_is_refused() {
        let other = Sample { relocations: Vec::new(), ..signature() };
        let wrong = Sample { flags: 0x12, ..signature() };
        for (work, exit, reason) in [
            (Sample::default().bytes(), 0, "no signature"),
            (other.bytes(), 0, "other bytes"),
            (wrong.bytes(), 0, "arch"),
            (signature().bytes()[..300].to_vec(), 0, "elf"),
            (signature().bytes(), 3, "exit status: 3"),
        ] {
            let (sdk, signer) = Sdk::new(&work, exit);
            let refused = signer.sign(&sdk.skel, &sdk.folder.path().join("signed")).unwrap_err();
            assert!(refused.contains(reason), "{reason}: {refused}");
        }
    }

    #[test]
    fn without_an_sdk_or_its_signer_the_refusal_says_so() {
        let empty = tempfile::tempdir().unwrap();
        let refusal = run_signer(empty.path(), None, None, &[]).unwrap_err();
        assert!(refusal.contains("HEXAGON_SDK_ROOT is not set"));
        let refusal = run_signer(empty.path(), Some(empty.path()), None, &[]).unwrap_err();
        assert!(refusal.contains("elfsigner.py"));
    }
}
