//! The files of one model, found from any of them or from their folder.
//!
//! A split model's files are called `NAME-00001-of-0000N.gguf`. Given one of them, all are taken; given a folder, the one
//! model in it. All names are looked for before any file is read, and a name that is missing is told. What the files then
//! say of themselves is checked when they are read ([`Gguf::read_all`]).

use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::source::{FileRange, Source};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Files of one model; the largest that are published have a few dozen.
const MAX_FILES: u32 = 512;
/// Names that an error lists.
const LISTED: usize = 8;

/// A model's open files, in order.
#[derive(Debug)]
pub struct ModelFiles {
    files: Vec<FileRange>,
}

impl ModelFiles {
    /// Opens the model at `path`: a GGUF, any file of a split one, or a folder with one model.
    ///
    /// # Errors
    /// An input error that names the file that is missing, or the models among which the folder leaves a choice.
    pub fn open(path: &Path) -> Result<Self> {
        let first = if path.is_dir() { in_folder(path)? } else { path.to_owned() };
        if let Some(what) = byte_piece(&first) {
            return Err(Error::input("split-file", what).in_file(&first));
        }
        let names = match ShardName::of(&first) {
            Some(name) => name.all(&first)?,
            None => vec![first],
        };
        let files = names.iter().map(|name| FileRange::open(name)).collect::<Result<_>>()?;
        Ok(Self { files })
    }

    /// Reads the metadata of all of them.
    ///
    /// # Errors
    /// As [`Gguf::read_all`].
    pub fn gguf(&self) -> Result<Gguf<'_>> {
        let sources: Vec<&dyn Source> = self.files.iter().map(|file| file as &dyn Source).collect();
        Gguf::read_all(&sources)
    }

    /// Bytes of all files together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(Source::bytes).sum()
    }

    /// The files' paths, in order.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().filter_map(|file| file.path())
    }
}

/// A name of the form `STEM-00002-of-00003.gguf`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ShardName {
    stem: String,
    count: u32,
    number: u32,
}

impl ShardName {
    fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
        let (rest, count) = name.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let (number, count) = (digits(number)?, digits(count)?);
        (count > 0 && (1..=count).contains(&number) && !stem.is_empty()).then(|| Self {
            stem: stem.to_owned(),
            count,
            number,
        })
    }

    /// The paths of all shards beside `path`, which must be there.
    fn all(&self, path: &Path) -> Result<Vec<PathBuf>> {
        if self.count > MAX_FILES {
            let message = format!("a model of {} files; {MAX_FILES} are possible", self.count);
            return Err(Error::input("split-file", message).in_file(path));
        }
        let shard =
            |number: u32| path.with_file_name(format!("{}-{number:05}-of-{:05}.gguf", self.stem, self.count));
        let paths: Vec<PathBuf> = (1..=self.count).map(shard).collect();
        let missing: Vec<&PathBuf> = paths.iter().filter(|path| !path.exists()).collect();
        match missing.first() {
            None => Ok(paths),
            Some(first) => {
                let message = format!(
                    "this file is missing: of the {} files of the model {} are there",
                    paths.len(),
                    paths.len() - missing.len()
                );
                Err(Error::input("missing-shard", message).in_file(first))
            }
        }
    }
}

/// Five digits and nothing else, as llama.cpp's splitter writes them.
fn digits(text: &str) -> Option<u32> {
    (text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

/// Why a file that somebody cut into bytes cannot be read, if its name says that it is one (`….part1of2`).
fn byte_piece(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let (_, part) = name.rsplit_once(".part")?;
    let (number, count) = part.split_once("of").unwrap_or((part, ""));
    let numeric = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    (!number.is_empty() && numeric(number) && numeric(count))
        .then(|| "one piece of a file that was cut into bytes: join the pieces first (cat)".to_owned())
}

/// The one model of a folder, by its first file.
fn in_folder(folder: &Path) -> Result<PathBuf> {
    let refused = |code, message: String| Err(Error::input(code, message).in_file(folder));
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return refused("unreadable", format!("cannot be listed: {error}")),
    };
    let mut models = BTreeSet::new();
    for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
        if path.extension().is_none_or(|extension| extension != "gguf") {
            continue;
        }
        models.insert(match ShardName::of(&path) {
            Some(name) => path.with_file_name(format!("{}-{:05}-of-{:05}.gguf", name.stem, 1, name.count)),
            None => path,
        });
    }
    let names: Vec<_> = models
        .iter()
        .take(LISTED)
        .map(|path| path.file_name().unwrap_or_default().to_string_lossy())
        .collect();
    match models.len() {
        0 => refused("not-found", "the folder holds no GGUF file".to_owned()),
        1 => Ok(models.pop_first().unwrap_or_default()),
        count => refused(
            "several-models",
            format!("the folder holds {count} models, name one: {}", names.join(", ")),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_splitters_names_are_shards() {
        let of = |name: &str| ShardName::of(Path::new(name));
        let shard = of("a/b-of-c-00002-of-00003.gguf").unwrap();
        assert_eq!((shard.stem.as_str(), shard.number, shard.count), ("b-of-c", 2, 3));
        for other in [
            "best-of-breed.gguf",
            "m-00004-of-00003.gguf",
            "m-00000-of-00003.gguf",
            "m-2-of-3.gguf",
            "m-00001-of-00003.bin",
            "-00001-of-00003.gguf",
            "m-+0001-of-00003.gguf",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
        assert!(byte_piece(Path::new("m.gguf.part1of2")).is_some());
        assert!(byte_piece(Path::new("m.partial.gguf")).is_none());
    }
}
