//! Unsafe code stays inside its fences (law 8): crate roots deny it, and the `#[allow(unsafe_code)] mod` lines are the
//! whole list of exceptions. The compiler enforces the lint; this checks that nobody removes it, and that no allowance
//! stands anywhere else.
//!
//! Only `src` trees count: an integration test or a bench is no part of the product. A `-sys` crate is a fence as a
//! whole: it declares what others define, and every line of it is foreign.

use super::text::{Kind, keep, lines_with};
use super::{Breach, File};

/// Checks all crates.
pub(super) fn check(files: &[File]) -> Vec<Breach> {
    let sources: Vec<_> = files.iter().filter(|file| file.is_rust() && is_ours(&file.path)).collect();
    let fences: Vec<String> = sources.iter().flat_map(|file| fences_of(file)).collect();
    let mut breaches = Vec::new();
    for file in sources {
        let code = keep(&file.text, &[Kind::Code]);
        if is_root(&file.path)
            && !["deny", "forbid"].iter().any(|level| code.contains(&format!("#![{level}(unsafe_code)]")))
        {
            breaches.push(file.breach(0, "a crate root denies or forbids unsafe_code"));
        }
        let fenced = fences
            .iter()
            .any(|fence| file.path == format!("{fence}.rs") || file.path.starts_with(&format!("{fence}/")));
        if !fenced {
            let lines = lines_with(&code, "unsafe");
            breaches.extend(lines.into_iter().map(|line| file.breach(line, "unsafe code outside a fence")));
        }
        for (index, line) in code.lines().enumerate() {
            let next = code.lines().nth(index + 1).unwrap_or_default();
            if line.contains("allow(unsafe_code)") && module(line, next).is_none() {
                breaches.push(file.breach(index + 1, "unsafe_code is allowed on `mod` lines only"));
            }
        }
    }
    breaches
}

fn is_ours(path: &str) -> bool {
    path.contains("/src/") && !path.contains("-sys/src/")
}

fn is_root(path: &str) -> bool {
    path.ends_with("src/lib.rs") || path.ends_with("src/main.rs")
}

/// The module that an allowance on `line` is for, on the same line or the next.
fn module<'a>(line: &'a str, next: &'a str) -> Option<&'a str> {
    let after = line.split_once("#[allow(unsafe_code)]")?.1.trim();
    let item = if after.is_empty() { next.trim() } else { after };
    let (visibility, name) = item.strip_suffix(';')?.rsplit_once("mod ")?;
    (visibility.is_empty() || visibility.starts_with("pub")).then_some(name.trim())
}

/// Paths, without extension, of the modules that `file` fences.
fn fences_of(file: &File) -> Vec<String> {
    let code = keep(&file.text, &[Kind::Code]);
    let stem = file.path.trim_end_matches(".rs");
    let folder = if is_root(&file.path) || file.path.ends_with("/mod.rs") {
        stem.rsplit_once('/').map_or("", |(folder, _)| folder)
    } else {
        stem
    };
    let lines: Vec<_> = code.lines().collect();
    let pairs = lines
        .iter()
        .enumerate()
        .map(|(index, line)| (*line, lines.get(index + 1).copied().unwrap_or_default()));
    pairs.filter_map(|(line, next)| module(line, next)).map(|name| format!("{folder}/{name}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let file = |(path, text): &(&str, &str)| File { path: (*path).into(), text: (*text).into() };
        let files: Vec<_> = files.iter().map(file).collect();
        check(&files).into_iter().map(|breach| (breach.file, breach.line)).collect()
    }

    #[test]
    fn fences_hold_their_modules_and_nothing_else() {
        let root = ("a/src/lib.rs", "#![deny(unsafe_code)]\n#[allow(unsafe_code)]\npub mod view;\nmod b;\n");
        let unsafe_text = "fn f() { unsafe { g() } }";
        assert_eq!(tree(&[root, ("a/src/view.rs", unsafe_text), ("a/src/view/x.rs", unsafe_text)]), []);
        assert_eq!(tree(&[root, ("a/src/b.rs", unsafe_text)]), [("a/src/b.rs".into(), 1)]);
        assert_eq!(tree(&[root, ("b/src/view.rs", unsafe_text)]), [("b/src/view.rs".into(), 1)]);
        assert_eq!(tree(&[root, ("a/src/b.rs", "// unsafe\nlet s = \"unsafe\";")]), []);
        assert_eq!(tree(&[root, ("a/tests/b.rs", unsafe_text), ("a/b-sys/src/lib.rs", unsafe_text)]), []);
    }

    #[test]
    fn nested_fences_are_found_beside_their_parent() {
        let root = ("a/src/lib.rs", "#![deny(unsafe_code)]\nmod k;\n");
        let unsafe_text = "unsafe fn f() {}";
        let parent = "#[cfg(unix)]\n#[allow(unsafe_code)]\nmod x;";
        assert_eq!(tree(&[root, ("a/src/k/mod.rs", parent), ("a/src/k/x.rs", unsafe_text)]), []);
        assert_eq!(tree(&[root, ("a/src/k.rs", parent), ("a/src/k/x.rs", unsafe_text)]), []);
    }

    #[test]
    fn roots_deny_and_allowances_stand_on_mod_lines() {
        assert_eq!(tree(&[("a/src/main.rs", "fn main() {}")]), [("a/src/main.rs".into(), 0)]);
        let allowed = "#![forbid(unsafe_code)]\n#[allow(unsafe_code)]\nfn f() {}";
        assert_eq!(tree(&[("a/src/lib.rs", allowed)]), [("a/src/lib.rs".into(), 2)]);
    }
}
