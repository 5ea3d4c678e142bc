//! The checksum section that the loaders of some newer and automotive images want in an unsigned skel, and without which
//! they answer "unable to load"; older images ignore it.
//!
//! One more section header, of a type of its own, names 16 bytes behind everything that is loaded: a magic word, zlib's
//! CRC-32 of every loaded segment in the order of the program headers (its bytes in the file, then zeros up to its size in
//! memory), and eight zeros. The ELF header is part of the first segment, so the section table's place and size are final
//! before the sum is taken. A signed skel must not be changed.

use super::elf::{Image, SECTION, SHNUM_AT, SHOFF_AT, Section, pt};

const SECTION_TYPE: u32 = 0xd357_4956;
/// "SWIV" in the file.
const MAGIC: u32 = 0x5649_5753;
const BYTES: usize = 16;

/// What a skel says about its own bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crc {
    /// No checksum section.
    Absent,
    /// A section with the right sum.
    Right(u32),
    /// A section that a loader would refuse.
    Wrong,
}

/// Looks for the section and verifies it.
pub(crate) fn verify(bytes: &[u8], image: &Image<'_>) -> Crc {
    let mut found = image.sections.iter().filter(|section| section.kind == SECTION_TYPE);
    match (found.next(), found.next()) {
        (None, _) => Crc::Absent,
        (Some(section), None) if content(bytes, section) == Some(&record(sum(image))) => {
            Crc::Right(sum(image))
        }
        _ => Crc::Wrong,
    }
}

/// A copy of the skel with the section. One that has it already is given back as it is.
pub(crate) fn add(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let image = Image::parse(bytes).map_err(|damaged| damaged.to_string())?;
    match verify(bytes, &image) {
        Crc::Absent => {}
        Crc::Right(_) => return Ok(bytes.to_vec()),
        Crc::Wrong => return Err("has a checksum section with a wrong sum: link it anew".into()),
    }
    if image.segments.iter().any(|segment| segment.kind == pt::NULL) {
        return Err("is signed, and its bytes must not change".into());
    }
    let headers = u32::from_le_bytes(bytes[SHOFF_AT..SHOFF_AT + 4].try_into().unwrap_or_default()) as usize;
    let old = image.sections.len() * SECTION;
    let mut out = bytes.to_vec();
    out.resize(out.len().next_multiple_of(BYTES), 0);
    let record_at = out.len();
    out.extend([0; BYTES]);
    let table_at = out.len();
    // A stripped file gets the null section that every table begins with.
    out.extend(if old == 0 { vec![0; SECTION] } else { bytes[headers..headers + old].to_vec() });
    let place = u32::try_from(record_at).map_err(|_| "is larger than 4 GiB".to_string())?;
    out.extend(
        [0, SECTION_TYPE, 0, 0, place, BYTES as u32, 0, 0, BYTES as u32, 0].map(u32::to_le_bytes).concat(),
    );
    let count =
        u16::try_from((out.len() - table_at) / SECTION).map_err(|_| "has too many sections".to_string())?;
    out[SHOFF_AT..SHOFF_AT + 4].copy_from_slice(&(table_at as u32).to_le_bytes());
    out[SHNUM_AT - 2..SHNUM_AT].copy_from_slice(&(SECTION as u16).to_le_bytes());
    out[SHNUM_AT..SHNUM_AT + 2].copy_from_slice(&count.to_le_bytes());
    let record = record(sum(&Image::parse(&out).map_err(|damaged| damaged.to_string())?));
    out[record_at..table_at].copy_from_slice(&record);
    Ok(out)
}

fn content<'a>(bytes: &'a [u8], section: &Section) -> Option<&'a [u8]> {
    let first = section.offset as usize;
    bytes.get(first..first.checked_add(section.bytes as usize)?)
}

/// The section's bytes.
fn record(sum: u32) -> [u8; BYTES] {
    let mut record = [0; BYTES];
    record[..4].copy_from_slice(&MAGIC.to_le_bytes());
    record[4..8].copy_from_slice(&sum.to_le_bytes());
    record
}

fn sum(image: &Image<'_>) -> u32 {
    let memory = image.loads().flat_map(|load| {
        let padding = (load.memory_bytes - load.file_bytes) as usize;
        image.content(load).iter().copied().chain(std::iter::repeat_n(0, padding))
    });
    crc32(memory)
}

/// zlib's CRC-32, bit by bit: a few hundred KiB, once a build.
fn crc32(bytes: impl Iterator<Item = u8>) -> u32 {
    !bytes.fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

#[cfg(test)]
mod tests {
    use super::super::elf::HEADER;
    use super::super::sample::Sample;
    use super::*;

    #[test]
    fn the_sum_is_that_of_zlib() {
        assert_eq!(
            crc32(b"123456789".iter().copied()),
            0xcbf4_3926,
            "the check value that CRC catalogues give"
        );
        assert_eq!(crc32(std::iter::repeat_n(0, 4)), 0x2144_df1c, "zlib.crc32(bytes(4))");
    }

    #[test]
    fn the_section_is_added_once_and_covers_every_loaded_byte() {
        let skel = Sample::default().bytes();
        assert_eq!(verify(&skel, &Image::parse(&skel).unwrap()), Crc::Absent);
        let summed = add(&skel).unwrap();
        let image = Image::parse(&summed).unwrap();
        assert!(matches!(verify(&summed, &image), Crc::Right(_)));
        assert_eq!(add(&summed).unwrap(), summed);
        // The loaded bytes are those of before, but for the header's words on the section table.
        assert_eq!(summed[HEADER..skel.len()], skel[HEADER..]);
        let loaded = image.loads().map(|load| load.offset as usize..(load.offset + load.file_bytes) as usize);
        for at in loaded.flatten().filter(|at| at % 7 == 0) {
            let mut flipped = summed.clone();
            flipped[at] ^= 0x10;
            if let Ok(image) = Image::parse(&flipped) {
                assert_ne!(
                    verify(&flipped, &image),
                    verify(&summed, &Image::parse(&summed).unwrap()),
                    "byte {at}"
                );
            }
        }
    }

    #[test]
    fn a_signed_skel_is_left_alone() {
        let signed = Sample { segments: vec![[pt::NULL, 0, 0, 0, 0, 0, 0, 0]], ..Sample::default() };
        assert!(add(&signed.bytes()).unwrap_err().contains("signed"));
    }
}
