//! A bounds-checked reader of ELF32 shared objects, as a loader sees them: by program headers and the dynamic segment.
//! Sections are read as headers only, since a loader does not look at them and a signed object has none.
//!
//! Written by hand because the checks need exactly the loader's view, the errors name byte offsets, and it is short. Any
//! bytes give an image or a [`Damaged`]; sizes in the file bound no allocation before they are known to lie in it.

use std::fmt;

/// Bytes of the ELF header.
pub(crate) const HEADER: usize = 52;
/// Bytes of a program header.
pub(crate) const SEGMENT: usize = 32;
/// Bytes of a section header.
pub(crate) const SECTION: usize = 40;
/// Bytes of memory of a loaded segment at most: ten times what a domain has for a program to begin with, so that what walks
/// a segment ends.
const LOAD_LIMIT: u32 = 50 << 20;
const SYMBOL: usize = 16;
const RELOCATION: usize = 12;

/// Where the header holds the section header table's offset, and its number of entries.
pub(crate) const SHOFF_AT: usize = 32;
pub(crate) const SHNUM_AT: usize = 48;

/// Program header types.
pub(crate) mod pt {
    pub(crate) const NULL: u32 = 0;
    pub(crate) const LOAD: u32 = 1;
    pub(crate) const DYNAMIC: u32 = 2;
    pub(crate) const PHDR: u32 = 6;
    pub(crate) const TLS: u32 = 7;
}

/// Dynamic tags.
pub(crate) mod dt {
    pub(crate) const NULL: u32 = 0;
    pub(crate) const NEEDED: u32 = 1;
    pub(crate) const PLTRELSZ: u32 = 2;
    pub(crate) const PLTGOT: u32 = 3;
    pub(crate) const HASH: u32 = 4;
    pub(crate) const STRTAB: u32 = 5;
    pub(crate) const SYMTAB: u32 = 6;
    pub(crate) const RELA: u32 = 7;
    pub(crate) const RELASZ: u32 = 8;
    pub(crate) const RELAENT: u32 = 9;
    pub(crate) const STRSZ: u32 = 10;
    pub(crate) const SYMENT: u32 = 11;
    pub(crate) const INIT: u32 = 12;
    pub(crate) const FINI: u32 = 13;
    pub(crate) const SONAME: u32 = 14;
    pub(crate) const SYMBOLIC: u32 = 16;
    pub(crate) const PLTREL: u32 = 20;
    pub(crate) const DEBUG: u32 = 21;
    pub(crate) const TEXTREL: u32 = 22;
    pub(crate) const JMPREL: u32 = 23;
    pub(crate) const INIT_ARRAY: u32 = 25;
    pub(crate) const FINI_ARRAY: u32 = 26;
    pub(crate) const FLAGS: u32 = 30;
    pub(crate) const PREINIT_ARRAY: u32 = 32;
    pub(crate) const HEXAGON_VER: u32 = 0x7000_0001;
    pub(crate) const GNU_HASH: u32 = 0x6fff_fef5;
    pub(crate) const RELACOUNT: u32 = 0x6fff_fff9;
}

/// The bytes are not a shared object that a loader could follow.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Damaged {
    /// Byte offset in the file.
    at: usize,
    what: &'static str,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {:#x}: {}", self.at, self.what)
    }
}

/// A program header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) kind: u32,
    pub(crate) offset: u32,
    pub(crate) address: u32,
    pub(crate) file_bytes: u32,
    pub(crate) memory_bytes: u32,
    pub(crate) flags: u32,
}

impl Segment {
    pub(crate) const fn writable(&self) -> bool {
        self.flags & 2 != 0
    }

    pub(crate) const fn executable(&self) -> bool {
        self.flags & 1 != 0
    }

    /// Whether `bytes` bytes at `address` lie in its memory.
    pub(crate) fn holds(&self, address: u32, bytes: u32) -> bool {
        let (first, end) = (u64::from(self.address), u64::from(self.address) + u64::from(self.memory_bytes));
        u64::from(address) >= first && u64::from(address) + u64::from(bytes) <= end
    }
}

/// A section header, as far as the checks look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section {
    pub(crate) kind: u32,
    pub(crate) flags: u32,
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
}

/// A dynamic symbol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: u32,
    /// 0 local, 1 global, 2 weak.
    pub(crate) binding: u8,
    /// 2 function, 6 thread-local.
    pub(crate) kind: u8,
    pub(crate) defined: bool,
}

/// A dynamic relocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relocation {
    pub(crate) address: u32,
    pub(crate) kind: u8,
    pub(crate) symbol: usize,
}

/// A shared object.
#[derive(Debug)]
pub(crate) struct Image<'a> {
    bytes: &'a [u8],
    /// `e_type`: 3 for a shared object.
    pub(crate) kind: u16,
    /// `e_machine`: 164 for Hexagon.
    pub(crate) machine: u16,
    /// `e_flags`.
    pub(crate) flags: u32,
    pub(crate) segments: Vec<Segment>,
    pub(crate) sections: Vec<Section>,
    /// (Tag, value), without the closing null entry.
    pub(crate) dynamic: Vec<(u32, u32)>,
    /// The null symbol included, so that relocations index it.
    pub(crate) symbols: Vec<Symbol<'a>>,
    pub(crate) relocations: Vec<Relocation>,
}

impl<'a> Image<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, Damaged> {
        if range(bytes, 0, 7)? != b"\x7fELF\x01\x01\x01" {
            return Err(Damaged { at: 0, what: "not a little-endian ELF32 file" });
        }
        range(bytes, 0, HEADER)?;
        let table = |offset_at, entry_at, entry: usize, what| -> Result<Vec<usize>, Damaged> {
            let (offset, count) = (u32_at(bytes, offset_at)? as usize, u16_at(bytes, entry_at + 2)? as usize);
            if count > 0 && usize::from(u16_at(bytes, entry_at)?) != entry {
                return Err(Damaged { at: entry_at, what });
            }
            if count > 0 {
                range(bytes, offset, count * entry)?;
            }
            Ok((0..count).map(|index| offset + index * entry).collect())
        };
        let segments = table(28, 42, SEGMENT, "program headers of another size")?
            .into_iter()
            .map(|at| segment(bytes, at))
            .collect::<Result<Vec<_>, _>>()?;
        let sections = table(SHOFF_AT, SHNUM_AT - 2, SECTION, "section headers of another size")?
            .into_iter()
            .map(|at| section(bytes, at))
            .collect::<Result<Vec<_>, _>>()?;
        let mut image = Self {
            bytes,
            kind: u16_at(bytes, 16)?,
            machine: u16_at(bytes, 18)?,
            flags: u32_at(bytes, 36)?,
            segments,
            sections,
            dynamic: Vec::new(),
            symbols: Vec::new(),
            relocations: Vec::new(),
        };
        image.dynamic = image.read_dynamic()?;
        image.symbols = image.read_symbols()?;
        image.relocations = image.read_relocations(dt::RELA, dt::RELASZ)?;
        image.relocations.extend(image.read_relocations(dt::JMPREL, dt::PLTRELSZ)?);
        Ok(image)
    }

    /// The value of the first entry with this tag.
    pub(crate) fn tag(&self, tag: u32) -> Option<u32> {
        self.dynamic.iter().find(|entry| entry.0 == tag).map(|entry| entry.1)
    }

    /// The segments that are loaded, in their order in the file.
    pub(crate) fn loads(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|segment| segment.kind == pt::LOAD)
    }

    /// A segment's bytes in the file.
    pub(crate) fn content(&self, segment: &Segment) -> &'a [u8] {
        &self.bytes[segment.offset as usize..][..segment.file_bytes as usize]
    }

    /// The string at an offset of the dynamic string table.
    pub(crate) fn string(&self, offset: u32) -> Result<&'a str, Damaged> {
        let (Some(table), Some(size)) = (self.tag(dt::STRTAB), self.tag(dt::STRSZ)) else {
            return Err(Damaged { at: 0, what: "no dynamic string table" });
        };
        let (at, table) = self.memory(table, size)?;
        let damaged = Damaged { at: at.saturating_add(offset as usize), what: "a string without an end" };
        let Some(rest) = table.get(offset as usize..) else { return Err(damaged) };
        let Some(end) = rest.iter().position(|&byte| byte == 0) else { return Err(damaged) };
        std::str::from_utf8(&rest[..end])
            .map_err(|_| Damaged { what: "a string that is not UTF-8", ..damaged })
    }

    /// The file's bytes behind `bytes` bytes at an address, and their offset.
    fn memory(&self, address: u32, bytes: u32) -> Result<(usize, &'a [u8]), Damaged> {
        let inside = |load: &&Segment| {
            load.holds(address, bytes)
                && u64::from(address - load.address) + u64::from(bytes) <= u64::from(load.file_bytes)
        };
        let Some(load) = self.loads().find(inside) else {
            return Err(Damaged { at: address as usize, what: "an address whose bytes no segment loads" });
        };
        let at = (load.offset + (address - load.address)) as usize;
        Ok((at, range(self.bytes, at, bytes as usize)?))
    }

    fn read_dynamic(&self) -> Result<Vec<(u32, u32)>, Damaged> {
        let Some(dynamic) = self.segments.iter().find(|segment| segment.kind == pt::DYNAMIC) else {
            return Err(Damaged { at: 28, what: "no dynamic segment" });
        };
        let (at, bytes) = self.memory(dynamic.address, dynamic.file_bytes)?;
        let mut entries = Vec::new();
        for entry in 0..bytes.len() / 8 {
            match (u32_at(bytes, entry * 8)?, u32_at(bytes, entry * 8 + 4)?) {
                (dt::NULL, _) => return Ok(entries),
                entry => entries.push(entry),
            }
        }
        Err(Damaged { at, what: "a dynamic segment without an end" })
    }

    /// As many symbols as the hash table chains, which is how a loader knows.
    fn read_symbols(&self) -> Result<Vec<Symbol<'a>>, Damaged> {
        let (Some(hash), Some(table)) = (self.tag(dt::HASH), self.tag(dt::SYMTAB)) else {
            return Ok(Vec::new());
        };
        let (at, counts) = self.memory(hash, 8)?;
        let count = u32_at(counts, 4)?;
        let size = count.checked_mul(SYMBOL as u32);
        let size = size.ok_or(Damaged { at: at + 4, what: "more symbols than memory" })?;
        let (_, bytes) = self.memory(table, size)?;
        (0..count as usize)
            .map(|index| {
                let at = index * SYMBOL;
                let info = bytes[at + 12];
                Ok(Symbol {
                    name: self.string(u32_at(bytes, at)?)?,
                    value: u32_at(bytes, at + 4)?,
                    binding: info >> 4,
                    kind: info & 15,
                    defined: u16_at(bytes, at + 14)? != 0,
                })
            })
            .collect()
    }

    fn read_relocations(&self, table: u32, size: u32) -> Result<Vec<Relocation>, Damaged> {
        let (table, size) = match (self.tag(table), self.tag(size)) {
            (Some(table), Some(size)) => (table, size),
            _ => return Ok(Vec::new()),
        };
        let (at, bytes) = self.memory(table, size)?;
        if bytes.len() % RELOCATION != 0 {
            return Err(Damaged { at, what: "a part of a relocation" });
        }
        (0..bytes.len() / RELOCATION)
            .map(|index| {
                let (address, info) = (u32_at(bytes, index * 12)?, u32_at(bytes, index * 12 + 4)?);
                Ok(Relocation { address, kind: info as u8, symbol: (info >> 8) as usize })
            })
            .collect()
    }
}

fn segment(bytes: &[u8], at: usize) -> Result<Segment, Damaged> {
    let word = |index: usize| u32_at(bytes, at + index * 4);
    let segment = Segment {
        kind: word(0)?,
        offset: word(1)?,
        address: word(2)?,
        file_bytes: word(4)?,
        memory_bytes: word(5)?,
        flags: word(6)?,
    };
    range(bytes, segment.offset as usize, segment.file_bytes as usize)?;
    if segment.address.checked_add(segment.memory_bytes).is_none() {
        return Err(Damaged { at, what: "a segment beyond the end of the address space" });
    }
    if segment.kind == pt::LOAD && segment.memory_bytes > LOAD_LIMIT {
        return Err(Damaged { at, what: "a segment larger than a protection domain begins with" });
    }
    if segment.kind == pt::LOAD && segment.file_bytes > segment.memory_bytes {
        return Err(Damaged { at, what: "a segment with more bytes than memory" });
    }
    Ok(segment)
}

fn section(bytes: &[u8], at: usize) -> Result<Section, Damaged> {
    let word = |index: usize| u32_at(bytes, at + index * 4);
    Ok(Section { kind: word(1)?, flags: word(2)?, offset: word(4)?, bytes: word(5)? })
}

/// `count` bytes from `at`.
pub(crate) fn range(bytes: &[u8], at: usize, count: usize) -> Result<&[u8], Damaged> {
    let end = at.checked_add(count).filter(|&end| end <= bytes.len());
    end.map(|end| &bytes[at..end]).ok_or(Damaged { at, what: "the file ends before this does" })
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, Damaged> {
    range(bytes, at, 2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, Damaged> {
    range(bytes, at, 4).map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}
