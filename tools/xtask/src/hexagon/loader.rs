//! What a DSP's loader would refuse, as rules by name. A skel that breaks one fails on the phone with "unable to load" and
//! at best a line in a log that needs root; here it fails the build, with the symbol, the tag or the address.

use super::arch::Arch;
use super::crc::{self, Crc};
use super::elf::{Image, Symbol, dt, pt};
use super::imports::{Strength, strength};
use std::fmt;

/// The one symbol that a skel exports, which FastRPC looks up.
const ENTRY: &str = "estream_skel_handle_invoke";
/// Bytes of the file at most.
pub(crate) const LIMIT: usize = 400 * 1024;
const HEXAGON: u16 = 164;
const SHARED_OBJECT: u16 = 3;
/// Pages of the loader, to which segments are mapped.
const PAGE: u32 = 4096;
/// `DF_SYMBOLIC`, the one bit of DT_FLAGS that changes nothing for the loader.
const FLAG_SYMBOLIC: u32 = 2;
const FLAG_TEXTREL: u32 = 4;
const FLAG_STATIC_TLS: u32 = 0x10;
const SECTION_TLS: u32 = 0x400;
const SYMBOL_TLS: u8 = 6;
const SYMBOL_FUNCTION: u8 = 2;
const GLOBAL: u8 = 1;
const WEAK: u8 = 2;

/// A rule of the loader (or ours) that a skel breaks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Breach {
    pub(crate) rule: &'static str,
    pub(crate) detail: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.detail)
    }
}

/// What there is to tell about a skel that passed.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) arch: Arch,
    /// Bytes of the file.
    pub(crate) file: usize,
    /// Bytes loaded read-only.
    pub(crate) text: u32,
    /// Bytes loaded writable.
    pub(crate) data: u32,
    /// Zeroed bytes beside them.
    pub(crate) bss: u32,
    /// Imports, and how many of them are weak.
    pub(crate) imports: (usize, usize),
    pub(crate) crc: Crc,
}

/// Checks a skel against every rule. `arch` is what it must be built for, if that is known; `name` its file's name.
pub(crate) fn check(bytes: &[u8], name: &str, arch: Option<Arch>) -> Result<Report, Vec<Breach>> {
    let mut breaches = Breaches::default();
    let image = match Image::parse(bytes) {
        Ok(image) => image,
        Err(damaged) => {
            breaches.add("elf", damaged.to_string());
            return Err(breaches.0);
        }
    };
    header(&image, arch, &mut breaches);
    segments(&image, &mut breaches);
    dynamic(&image, name, &mut breaches);
    relocations(&image, &mut breaches);
    symbols(&image, &mut breaches);
    let crc = crc::verify(bytes, &image);
    if crc == Crc::Wrong {
        breaches.add("crc", "the checksum section does not match the loaded segments".into());
    }
    if bytes.len() > LIMIT {
        breaches.add("size", format!("{} bytes, more than {LIMIT}", bytes.len()));
    }
    let (Some(arch), []) = (Arch::of_flags(image.flags), &breaches.0[..]) else { return Err(breaches.0) };
    let imported = || image.symbols.iter().skip(1).filter(|symbol| !symbol.defined);
    let loaded = |writable: bool| image.loads().filter(move |load| load.writable() == writable);
    Ok(Report {
        arch,
        file: bytes.len(),
        text: loaded(false).map(|load| load.file_bytes).sum(),
        data: loaded(true).map(|load| load.file_bytes).sum(),
        bss: image.loads().map(|load| load.memory_bytes - load.file_bytes).sum(),
        imports: (imported().count(), imported().filter(|symbol| symbol.binding == WEAK).count()),
        crc,
    })
}

#[derive(Default)]
struct Breaches(Vec<Breach>);

impl Breaches {
    fn add(&mut self, rule: &'static str, detail: String) {
        self.0.push(Breach { rule, detail });
    }
}

fn header(image: &Image<'_>, arch: Option<Arch>, breaches: &mut Breaches) {
    if (image.kind, image.machine) != (SHARED_OBJECT, HEXAGON) {
        breaches.add(
            "machine",
            format!("type {} for machine {}, not a shared object for Hexagon", image.kind, image.machine),
        );
    }
    match (Arch::of_flags(image.flags), arch) {
        (None, _) => breaches.add("arch", format!("e_flags {:#x} is no version that we build", image.flags)),
        (Some(built), Some(wanted)) if built != wanted => {
            let (built, wanted, flags) = (built.name(), wanted.name(), image.flags);
            breaches.add("arch", format!("e_flags {flags:#x} says {built}, not {wanted}"));
        }
        _ => {}
    }
}

fn segments(image: &Image<'_>, breaches: &mut Breaches) {
    let mut end = 0;
    for load in image.loads() {
        let at = load.address;
        if at % PAGE != load.offset % PAGE {
            breaches.add(
                "segment",
                format!("{at:#x} is loaded from offset {:#x} of another page offset", load.offset),
            );
        }
        // Pages, not bytes: two segments in one page cannot have different rights.
        if u64::from(at / PAGE * PAGE) < end {
            breaches.add(
                "segment",
                format!("{at:#x} shares a page with the segment before it, or is out of order"),
            );
        }
        end = (u64::from(at) + u64::from(load.memory_bytes)).next_multiple_of(PAGE.into());
        if load.writable() && load.executable() {
            breaches.add("segment", format!("{at:#x} is writable and executable"));
        }
    }
    if end == 0 {
        breaches.add("segment", "nothing is loaded".into());
    }
    for segment in &image.segments {
        match segment.kind {
            pt::TLS => {
                breaches.add("tls", format!("a thread-local segment of {} bytes", segment.memory_bytes))
            }
            // The null segments are a signature's.
            pt::NULL | pt::LOAD | pt::DYNAMIC | pt::PHDR => {}
            kind => {
                breaches.add("segment", format!("a segment of type {kind:#x}, which no known-good skel has"))
            }
        }
    }
    if image.sections.iter().any(|section| section.flags & SECTION_TLS != 0) {
        breaches.add("tls", "a thread-local section".into());
    }
}

fn dynamic(image: &Image<'_>, name: &str, breaches: &mut Breaches) {
    for &(tag, value) in &image.dynamic {
        match tag {
            dt::NEEDED => {
                let library = image.string(value).unwrap_or("a name that is damaged, too");
                breaches.add("needed", format!("{library}, which not every image has"));
            }
            dt::TEXTREL => breaches.add("textrel", "DT_TEXTREL: relocations in read-only memory".into()),
            dt::GNU_HASH => breaches.add("gnu-hash", "DT_GNU_HASH, which the loader does not read".into()),
            dt::FLAGS => {
                if value & FLAG_TEXTREL != 0 {
                    breaches.add("textrel", "DF_TEXTREL: relocations in read-only memory".into());
                }
                if value & FLAG_STATIC_TLS != 0 {
                    breaches.add("tls", "DF_STATIC_TLS: thread-local data at fixed offsets".into());
                }
                let other = value & !(FLAG_SYMBOLIC | FLAG_TEXTREL | FLAG_STATIC_TLS);
                if other != 0 {
                    breaches.add("dynamic", format!("DT_FLAGS with {other:#x}"));
                }
            }
            dt::INIT | dt::FINI | dt::INIT_ARRAY | dt::FINI_ARRAY | dt::PREINIT_ARRAY => {
                breaches.add("initialiser", format!("dynamic tag {tag}: code that runs at load or unload"));
            }
            dt::SONAME
            | dt::SYMBOLIC
            | dt::HASH
            | dt::STRTAB
            | dt::STRSZ
            | dt::SYMTAB
            | dt::SYMENT
            | dt::RELA
            | dt::RELASZ
            | dt::RELAENT
            | dt::RELACOUNT
            | dt::JMPREL
            | dt::PLTRELSZ
            | dt::PLTREL
            | dt::PLTGOT
            | dt::DEBUG
            | dt::HEXAGON_VER => {}
            _ => breaches.add("dynamic", format!("tag {tag:#x}, which no known-good skel has")),
        }
    }
    match image.tag(dt::SONAME).map(|offset| image.string(offset)) {
        None => breaches.add("soname", "there is none".into()),
        Some(Ok(soname)) if soname != name => {
            breaches.add("soname", format!("{soname:?}, but the file is {name:?}"))
        }
        Some(Ok(_)) => {}
        Some(Err(damaged)) => breaches.add("soname", damaged.to_string()),
    }
    if image.tag(dt::HASH).is_none() {
        breaches.add("hash", "no DT_HASH: the loader finds no symbol".into());
    }
    for (tag, size) in [(dt::SYMENT, 16), (dt::RELAENT, 12), (dt::PLTREL, dt::RELA)] {
        if image.tag(tag).is_some_and(|value| value != size) {
            breaches.add("dynamic", format!("tag {tag} is not {size}"));
        }
    }
}

fn relocations(image: &Image<'_>, breaches: &mut Breaches) {
    for relocation in &image.relocations {
        let (kind, at) = (relocation.kind, relocation.address);
        // R_HEX_GLOB_DAT, R_HEX_JMP_SLOT, R_HEX_RELATIVE.
        if !matches!(kind, 33..=35) {
            breaches.add("relocation", format!("kind {kind} at {at:#x}, not 33, 34 or 35"));
        }
        if relocation.symbol >= image.symbols.len().max(1) {
            breaches.add("relocation", format!("symbol {} at {at:#x} does not exist", relocation.symbol));
        }
        match image.loads().find(|load| load.holds(at, 4)) {
            Some(load) if load.writable() => {}
            Some(_) => breaches.add("textrel", format!("a relocation at {at:#x}, in read-only memory")),
            None => breaches.add("relocation", format!("{at:#x} lies outside every segment")),
        }
    }
}

fn symbols(image: &Image<'_>, breaches: &mut Breaches) {
    let mut entry = false;
    for symbol in image.symbols.iter().skip(1) {
        let name = symbol.name;
        if symbol.kind == SYMBOL_TLS {
            breaches.add("tls", format!("the thread-local variable {name}"));
        } else if !symbol.defined {
            import(symbol, breaches);
        } else if name == ENTRY && symbol.binding == GLOBAL {
            entry = true;
            let inside = |load: &super::elf::Segment| load.executable() && load.holds(symbol.value, 4);
            if symbol.kind != SYMBOL_FUNCTION || !image.loads().any(inside) {
                breaches.add("entry", format!("{name} at {:#x} is not a function", symbol.value));
            }
        } else if symbol.binding != 0 {
            breaches.add("export", format!("{name} beside the entry"));
        }
    }
    if !entry {
        breaches.add("entry", format!("{ENTRY} is not exported"));
    }
}

fn import(symbol: &Symbol<'_>, breaches: &mut Breaches) {
    let name = symbol.name;
    match strength(name) {
        None => breaches.add("import", format!("{name} is not on the list of what every image has")),
        Some(Strength::Weak) if symbol.binding != WEAK => {
            breaches.add("import", format!("{name} is missing on some images and must be a weak reference"));
        }
        Some(_) => {}
    }
}

#[cfg(test)]
mod tests;
