//! The house rules as a test: what review would otherwise say again and again.
//!
//! Rules look at text, not at types, and are exact about what they look at: code, comments or strings ([`text`]). A rule
//! that gives a false alarm is to be made sharper, not to be silenced at the place of the alarm: there is no opt-out.

mod edges;
mod fences;
mod source;
mod text;

use std::path::{Path, PathBuf};

/// Something that breaks a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Breach {
    /// Relative to the root.
    file: String,
    /// Counted from 1; 0 for the file as a whole.
    line: usize,
    message: String,
}

/// A text file of the tree.
#[derive(Debug)]
pub(crate) struct File {
    /// Relative to the root, with forward slashes.
    path: String,
    text: String,
}

impl File {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn breach(&self, line: usize, message: impl Into<String>) -> Breach {
        Breach { file: self.path.clone(), line, message: message.into() }
    }
}

/// Applies all rules to the tree below `root`.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let mut files = Vec::new();
    collect(root, root, &mut files)?;
    let breaches = check(&files);
    for breach in &breaches {
        println!("{}:{}: {}", breach.file, breach.line, breach.message);
    }
    let mut lengths: Vec<_> = files.iter().filter(|f| f.is_rust()).map(|f| f.text.lines().count()).collect();
    lengths.sort_unstable();
    if let (Some(median), Some(longest)) = (lengths.get(lengths.len() / 2), lengths.last()) {
        println!("{} Rust files, median {median} lines, longest {longest}", lengths.len());
    }
    if breaches.is_empty() { Ok(()) } else { Err(format!("{} breaches of the house rules", breaches.len())) }
}

fn check(files: &[File]) -> Vec<Breach> {
    let mut breaches: Vec<_> = files.iter().flat_map(source::check).collect();
    breaches.extend(edges::check(files));
    breaches.extend(fences::check(files));
    match files.iter().find(|file| file.path == "README.md") {
        Some(readme) if readme.text.lines().count() > 150 => {
            breaches.push(readme.breach(0, "the README has more than 150 lines"));
        }
        Some(_) => {}
        None => {
            breaches.push(Breach { file: "README.md".into(), line: 0, message: "there is no README".into() })
        }
    }
    breaches.sort();
    breaches
}

/// Text files below `folder`: build output and version control left out, binary files passed over.
fn collect(root: &Path, folder: &Path, files: &mut Vec<File>) -> Result<(), String> {
    let list = |path: &Path| -> std::io::Result<Vec<PathBuf>> {
        std::fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect()
    };
    let mut entries = list(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() {
            if name != "target" && name != ".git" {
                collect(root, &path, files)?;
            }
            continue;
        }
        let known = ["rs", "toml", "md", "json", "txt", "sh", "idl", "ld", "yml"];
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let relative = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
        if known.contains(&extension) || relative.starts_with(".ci/") {
            let text =
                std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            files.push(File { path: relative, text });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_without_a_readme_or_with_a_long_one_is_refused() {
        let readme = |lines: usize| vec![File { path: "README.md".into(), text: "x\n".repeat(lines) }];
        assert_eq!(check(&readme(150)), []);
        assert_eq!(check(&readme(151)).len(), 1);
        assert_eq!(check(&[]).len(), 1);
    }
}
