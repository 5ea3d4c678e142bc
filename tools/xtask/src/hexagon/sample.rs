//! A small shared object, built word by word, for tests of the checks: correct as it is, wrong where a test says so.

use super::elf::{HEADER, SEGMENT, dt, pt};

const PAGE: usize = 4096;
/// Where the default object's entry and got stand.
pub(crate) const ENTRY_AT: u32 = 0xf00;
pub(crate) const GOT_AT: u32 = 0x1f00;

/// The parts of the object.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) flags: u32,
    pub(crate) soname: Option<&'static str>,
    pub(crate) needed: Vec<&'static str>,
    /// More dynamic entries.
    pub(crate) dynamic: Vec<(u32, u32)>,
    /// More program headers.
    pub(crate) segments: Vec<[u32; 8]>,
    /// Name, value, binding << 4 | type, section.
    pub(crate) symbols: Vec<(&'static str, u32, u8, u16)>,
    /// Address, kind, symbol.
    pub(crate) relocations: Vec<(u32, u32, u32)>,
    /// DT_HASH, or another tag in its place.
    pub(crate) hash: u32,
    /// Rights of the first segment.
    pub(crate) rights: u32,
}

impl Default for Sample {
    fn default() -> Self {
        Self {
            flags: 0x73,
            soname: Some("libestream_skel.so"),
            needed: Vec::new(),
            dynamic: vec![(dt::FLAGS, 2)],
            segments: Vec::new(),
            symbols: vec![
                ("estream_skel_handle_invoke", ENTRY_AT, 0x12, 1),
                ("qurt_sleep", 0, 0x10, 0),
                ("qurt_futex_wait", 0, 0x20, 0),
            ],
            relocations: vec![(GOT_AT, 35, 0), (GOT_AT + 4, 34, 2), (GOT_AT + 8, 33, 3)],
            hash: dt::HASH,
            rights: 5,
        }
    }
}

impl Sample {
    /// The file: two pages, read-only then writable, and nothing behind them.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut strings = vec![0];
        let mut string = |text: &str| {
            let at = strings.len() as u32;
            strings.extend(text.bytes().chain([0]));
            at
        };
        let mut symbols = vec![0; 16];
        for &(name, value, info, section) in &self.symbols {
            symbols.extend([string(name), value, 4].map(u32::to_le_bytes).concat());
            symbols.extend([info, 0]);
            symbols.extend(section.to_le_bytes());
        }
        let mut dynamic: Vec<_> = self.needed.iter().map(|name| (dt::NEEDED, string(name))).collect();
        dynamic.extend(self.soname.map(|name| (dt::SONAME, string(name))));
        let hash = [1, self.symbols.len() as u32 + 1].map(u32::to_le_bytes).concat();
        let relocation = |&(at, kind, symbol): &(u32, u32, u32)| {
            [at, symbol << 8 | kind, 0].map(u32::to_le_bytes).concat()
        };
        let relocations: Vec<u8> = self.relocations.iter().flat_map(relocation).collect();

        let mut file = vec![0; 0x200];
        let mut place = |part: &[u8]| {
            let at = file.len() as u32;
            file.extend(part);
            file.resize(file.len().next_multiple_of(4), 0);
            at
        };
        let sizes = [(dt::STRSZ, strings.len()), (dt::RELASZ, relocations.len())];
        let tables =
            [(dt::SYMTAB, &symbols), (self.hash, &hash), (dt::STRTAB, &strings), (dt::RELA, &relocations)];
        dynamic.extend(tables.map(|(tag, table)| (tag, place(table))));
        dynamic.extend(sizes.map(|(tag, size)| (tag, size as u32)));
        dynamic.extend([(dt::SYMENT, 16), (dt::RELAENT, 12)]);
        dynamic.extend(&self.dynamic);
        dynamic.push((dt::NULL, 0));
        assert!(file.len() <= ENTRY_AT as usize, "the sample's tables outgrew its first page");
        file.resize(PAGE, 0xa5);
        let entries: Vec<u8> =
            dynamic.iter().flat_map(|&(tag, value)| [tag, value].map(u32::to_le_bytes).concat()).collect();
        file.extend(&entries);
        file.resize(2 * PAGE, 0x5a);

        let page = PAGE as u32;
        let mut segments = self.segments.clone();
        segments.extend([
            [pt::LOAD, 0, 0, 0, page, page, self.rights, page],
            [pt::LOAD, page, page, page, page, page + 64, 6, page],
            [pt::DYNAMIC, page, page, page, entries.len() as u32, entries.len() as u32, 6, 4],
        ]);
        let headers: Vec<u8> = segments.iter().flatten().copied().flat_map(u32::to_le_bytes).collect();
        file[..7].copy_from_slice(b"\x7fELF\x01\x01\x01");
        for (at, half) in [(16, 3), (18, 164), (40, HEADER), (42, SEGMENT), (44, segments.len()), (46, 40)] {
            file[at..at + 2].copy_from_slice(&(half as u16).to_le_bytes());
        }
        for (at, word) in [(20, 1), (28, HEADER as u32), (36, self.flags)] {
            file[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        file[HEADER..HEADER + headers.len()].copy_from_slice(&headers);
        file
    }
}
