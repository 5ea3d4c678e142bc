//! Which crate may depend on which (law 3): read from the manifests, development dependencies included.

use super::{Breach, File};

/// The edges of the house. Host and firmware never meet; only the command line and the tests link both.
const ALLOWED: [(&str, &[&str]); 19] = [
    ("estream-idl", &[]),
    ("hexagon-sdk-sys", &[]),
    ("estream-kernels-asm", &[]),
    ("estream-shim", &[]),
    // What puts stubs in a skel's code in the simulator also checks it: the one package that the task runner shares.
    ("estream-patch", &["estream-kernels-asm"]),
    ("xtask", &["estream-patch"]),
    ("estream-dsp", &["estream-idl", "hexagon-sdk-sys", "estream-kernels-asm"]),
    ("estream-skel", &["estream-dsp"]),
    ("estream-host", &["estream-idl"]),
    ("estream-pack", &["estream-idl"]),
    ("estream-text", &["estream-pack"]),
    ("estream-tune", &["estream-idl", "estream-host"]),
    (
        "estream",
        &["estream-idl", "estream-dsp", "estream-host", "estream-pack", "estream-text", "estream-tune"],
    ),
    (
        "estream-tests",
        &[
            "estream",
            "estream-idl",
            "estream-dsp",
            "estream-host",
            "estream-pack",
            "estream-text",
            "estream-tune",
            "estream-kernels-asm",
        ],
    ),
    ("estream-fuzz", &["estream-tests"]),
    // The simulated protection domain knows nothing of the firmware; tests on the target link it in a device's place.
    ("estream-sim", &["estream-idl", "estream-kernels-asm", "estream-patch"]),
    ("on-target-std", &["estream-sim"]),
    ("on-target-test", &["on-target-std"]),
    ("estream-on-target", &["estream-dsp", "estream-idl", "on-target-std", "on-target-test"]),
];

/// Checks every manifest of a package.
pub(super) fn check(files: &[File]) -> Vec<Breach> {
    files.iter().filter(|file| file.path.ends_with("Cargo.toml")).flat_map(manifest).collect()
}

fn manifest(file: &File) -> Vec<Breach> {
    let mut section = "";
    let mut package = None;
    let mut breaches = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').trim();
        }
        let key = line.split(['=', '.']).next().unwrap_or_default().trim().trim_matches('"');
        if section == "package" && key == "name" {
            package =
                line.split('"').nth(1).and_then(|name| ALLOWED.iter().find(|(allowed, _)| *allowed == name));
            if package.is_none() {
                breaches.push(file.breach(index + 1, "a package that the edges of the house do not know"));
            }
        }
        // `[dependencies.name]` is a section of its own.
        let (kind, dependency) = match section.rsplit_once('.') {
            Some((kind, name)) if kind.ends_with("dependencies") => (kind, name),
            _ => (section, key),
        };
        let ours = ALLOWED.iter().any(|(name, _)| *name == dependency);
        if let Some((name, allowed)) = package
            && kind.ends_with("dependencies")
            && ours
            && !allowed.contains(&dependency)
        {
            breaches.push(file.breach(index + 1, format!("{name} must not depend on {dependency}")));
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches(name: &str, dependencies: &str) -> usize {
        let text = format!("[package]\nname = \"{name}\"\n\n{dependencies}");
        check(&[File { path: "x/Cargo.toml".into(), text }]).len()
    }

    #[test]
    fn host_and_firmware_never_meet() {
        assert_eq!(breaches("estream-host", "[dependencies]\nestream-idl.workspace = true\nlibc = \"1\""), 0);
        assert_eq!(breaches("estream-host", "[dependencies]\nestream-dsp.workspace = true"), 1);
        assert_eq!(breaches("estream-host", "[dev-dependencies]\nestream-dsp = { path = \"../dsp\" }"), 1);
        assert_eq!(
            breaches("estream-dsp", "[target.'cfg(unix)'.dependencies]\nestream-host.workspace = true"),
            1
        );
        assert_eq!(breaches("estream-dsp", "[dependencies.estream-host]"), 1);
        assert_eq!(
            breaches(
                "estream",
                "[dependencies]\nestream-dsp.workspace = true\nestream-host.workspace = true"
            ),
            0
        );
        assert_eq!(breaches("newcomer", ""), 1);
    }

    #[test]
    fn the_workspace_table_is_no_edge() {
        let text = "[workspace.dependencies]\nestream-dsp = { path = \"dsp\" }\n".into();
        assert_eq!(check(&[File { path: "Cargo.toml".into(), text }]), []);
    }
}
