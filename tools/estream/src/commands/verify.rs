//! `estream verify`: every checksum of a pack, whatever was remembered.

use crate::cli::VerifyPack;
use crate::console::Console;
use estream::Result;
use estream::size::human;

/// Runs the command.
pub fn run(arguments: &VerifyPack, console: &Console) -> Result<()> {
    let verified = {
        let bar = console.bytes_bar("verifying");
        estream_pack::verify(&arguments.pack, &|done, total| bar.show(done, total))?
    };
    console.answer(&verified, || {
        format!(
            "{}: whole; {} in {} extents and {} embedding pages match their checksums\n",
            arguments.pack.display(),
            human(verified.file_bytes),
            verified.extents,
            verified.embedding_pages
        )
    })
}
