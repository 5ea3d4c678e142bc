//! Section headers of a skel, for what a device's loader never looks at: where code is, and what it is called.
//!
//! A loaded segment holds tables and constants beside code, so that only the section headers tell which bytes are packets.
//! Names come from the symbol table of a copy that was not stripped. Everything read here is checked against the file's
//! bytes; what does not add up reads as absent.

const HEADER_BYTES: usize = 40;
const SYMBOL_BYTES: usize = 16;
const SYMBOLS: u32 = 2;
const EXECUTABLE: u32 = 4;
const FUNCTION: u8 = 2;

/// A section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section<'a> {
    kind: u32,
    flags: u32,
    link: u32,
    /// The address of its first byte.
    pub address: u32,
    /// Its bytes.
    pub bytes: &'a [u8],
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes)
}

fn half(bytes: &[u8], at: usize) -> Option<usize> {
    bytes.get(at..at.checked_add(2)?)?.try_into().ok().map(u16::from_le_bytes).map(usize::from)
}

/// The sections of a 32-bit ELF file that have bytes in it.
pub fn all(file: &[u8]) -> impl Iterator<Item = Section<'_>> {
    let table = word(file, 32).unwrap_or(0) as usize;
    let count = if half(file, 46) == Some(HEADER_BYTES) { half(file, 48).unwrap_or(0) } else { 0 };
    (0..count).filter_map(move |index| section(file, table.checked_add(index * HEADER_BYTES)?))
}

fn section(file: &[u8], at: usize) -> Option<Section<'_>> {
    let header = file.get(at..at.checked_add(HEADER_BYTES)?)?;
    let field = |at| word(header, at);
    let (offset, bytes) = (field(16)? as usize, field(20)? as usize);
    Some(Section {
        kind: field(4)?,
        flags: field(8)?,
        link: field(24)?,
        address: field(12)?,
        bytes: file.get(offset..offset.checked_add(bytes)?).unwrap_or(&[]),
    })
}

/// The sections that are code.
pub fn code(file: &[u8]) -> impl Iterator<Item = Section<'_>> {
    all(file).filter(|section| section.flags & EXECUTABLE != 0 && !section.bytes.is_empty())
}

/// The function that an address of the image lies in or behind, and the distance from its start.
#[must_use]
pub fn function(file: &[u8], address: u32) -> Option<(&str, u32)> {
    let table = all(file).find(|section| section.kind == SYMBOLS)?;
    let names = all(file).nth(table.link as usize)?.bytes;
    let symbols = table.bytes.chunks_exact(SYMBOL_BYTES);
    let functions = symbols.filter(|symbol| symbol[12] & 0xf == FUNCTION);
    let starts = functions.filter_map(|symbol| Some((word(symbol, 4)?, word(symbol, 0)?)));
    let (start, name) = starts.filter(|&(start, _)| start <= address).max()?;
    let name = core::ffi::CStr::from_bytes_until_nul(names.get(name as usize..)?).ok()?;
    Some((name.to_str().ok()?, address - start))
}
