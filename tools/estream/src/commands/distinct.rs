//! An output must not be one of the files that the command reads, nor the one that it answers into: it would replace
//! them. Files are told apart by device and inode, so that links and other spellings of a path deceive nobody.

use estream::{Error, Exit, Result};
use std::fs::{File, Metadata};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Checks `output` against standard output and `inputs`. What does not exist is the same as nothing.
///
/// # Errors
/// `same-file`, naming the input.
pub fn distinct<'a>(output: &Path, inputs: impl IntoIterator<Item = &'a Path>) -> Result<()> {
    let Ok(metadata) = output.metadata() else { return Ok(()) };
    let is_output = |other: &Metadata| (other.dev(), other.ino()) == (metadata.dev(), metadata.ino());
    let refused = |message: String| Err(Error::new("same-file", Exit::Input, message).in_file(output));
    if let Some(input) =
        inputs.into_iter().find(|input| input.metadata().is_ok_and(|other| is_output(&other)))
    {
        return refused(format!("the output would replace {}, which is read", input.display()));
    }
    let answer = std::io::stdout().as_fd().try_clone_to_owned().map(File::from);
    match answer.and_then(|answer| answer.metadata()) {
        Ok(answer) if metadata.is_file() && is_output(&answer) => {
            refused("the output would replace the file that standard output goes to".to_owned())
        }
        _ => Ok(()),
    }
}
