//! A Hexagon shared object as bytes: what it needs, and its image relocated in place.
//!
//! Everything is checked before it is used, so a damaged or foreign file is refused with a reason and never followed
//! outside its bytes. The rules are a device's, but for the architecture: no library that it would need, no text relocation, no
//! thread-local storage, relocations of three kinds, every import that is not weak bound. Symbols are looked up through
//! the SysV hash table, the only one that devices read.
//!
//! The module is pure: the image is a slice, addresses are numbers, and binding asks the caller.

use core::fmt;

/// The machine number of Hexagon.
const MACHINE: u16 = 164;
const ELF32_LITTLE: [u8; 6] = [0x7f, b'E', b'L', b'F', 1, 1];
const DYNAMIC_OBJECT: u16 = 3;
const HEADER_BYTES: usize = 52;
const PROGRAM_HEADER_BYTES: usize = 32;
const SYMBOL_BYTES: u32 = 16;
const RELOCATION_BYTES: u32 = 12;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_TLS: u32 = 7;
const PF_W: u32 = 2;

const R_GLOB_DAT: u32 = 33;
const R_JMP_SLOT: u32 = 34;
const R_RELATIVE: u32 = 35;

const STB_WEAK: u8 = 2;

/// Bytes of the largest image: far beyond any skel, and no overflow of a 32-bit address.
const MAX_IMAGE: u32 = 256 << 20;
/// Load segments at the most.
const MAX_LOADS: usize = 8;

/// Why a file is no skel that this domain loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal<'a> {
    /// No 32-bit little-endian ELF shared object.
    NotShared,
    /// Another machine's code.
    Machine(u16),
    /// A table or string that lies outside the file or the image.
    Damaged(&'static str),
    /// A segment with thread-local storage.
    ThreadLocal,
    /// A library that is needed beside it.
    Needed(&'a str),
    /// Relocations in segments that are not writable.
    TextRelocation,
    /// A relocation of another kind.
    Kind(u32),
    /// An import that nobody provides and that is not weak.
    Import(&'a str),
    /// The entry is not exported.
    NoEntry(&'a str),
}

impl fmt::Display for Refusal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotShared => f.write_str("it is no 32-bit little-endian ELF shared object"),
            Self::Machine(machine) => write!(f, "it is code for ELF machine {machine}, Hexagon is {MACHINE}"),
            Self::Damaged(what) => write!(f, "it is damaged: {what}"),
            Self::ThreadLocal => f.write_str("it has thread-local storage"),
            Self::Needed(library) => write!(f, "it needs the library {library:?}"),
            Self::TextRelocation => f.write_str("it has relocations in a segment that is not writable"),
            Self::Kind(kind) => write!(f, "it has a relocation of kind {kind}"),
            Self::Import(name) => write!(f, "undefined symbol {name:?}: the domain does not provide it"),
            Self::NoEntry(name) => write!(f, "it does not export {name:?}"),
        }
    }
}

fn slice(bytes: &[u8], at: u32, count: usize) -> Option<&[u8]> {
    let at = usize::try_from(at).ok()?;
    bytes.get(at..at.checked_add(count)?)
}

fn half(bytes: &[u8], at: u32) -> Option<u16> {
    slice(bytes, at, 2)?.try_into().ok().map(u16::from_le_bytes)
}

fn word(bytes: &[u8], at: u32) -> Option<u32> {
    slice(bytes, at, 4)?.try_into().ok().map(u32::from_le_bytes)
}

/// A range of the image that is loaded from the file.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    file: u32,
    file_bytes: u32,
    at: u32,
    bytes: u32,
    writable: bool,
}

impl Load {
    /// Whether `count` bytes at `at` lie inside.
    fn holds(&self, at: u32, count: u32) -> bool {
        at >= self.at && at.checked_add(count).is_some_and(|end| end <= self.at + self.bytes)
    }
}

/// A checked file: its segments fit file and image.
#[derive(Clone, Copy, Debug)]
pub struct Object<'a> {
    file: &'a [u8],
    /// The architecture and its flags, as linked.
    pub flags: u32,
    loads: [Load; MAX_LOADS],
    count: usize,
    dynamic: u32,
    dynamic_bytes: u32,
}

impl<'a> Object<'a> {
    /// Reads the headers of `file`. Every architecture will do: what the simulator lacks of a newer one is served by models.
    ///
    /// # Errors
    /// Why the file is refused.
    pub fn parse(file: &'a [u8]) -> Result<Self, Refusal<'a>> {
        let header = file.get(..HEADER_BYTES).filter(|header| header.starts_with(&ELF32_LITTLE));
        let header = header.ok_or(Refusal::NotShared)?;
        let field = |at| half(header, at).ok_or(Refusal::NotShared);
        let wide = |at| word(header, at).ok_or(Refusal::NotShared);
        match field(18)? {
            MACHINE => {}
            machine => return Err(Refusal::Machine(machine)),
        }
        if field(16)? != DYNAMIC_OBJECT {
            return Err(Refusal::NotShared);
        }
        let flags = wide(36)?;
        let damaged = Refusal::Damaged("program headers");
        if usize::from(field(42)?) != PROGRAM_HEADER_BYTES {
            return Err(damaged);
        }
        let mut object =
            Self { file, flags, loads: Default::default(), count: 0, dynamic: 0, dynamic_bytes: 0 };
        let (first, count) = (wide(28)?, u32::from(field(44)?));
        for index in 0..count {
            let at = first.checked_add(index * PROGRAM_HEADER_BYTES as u32).ok_or(damaged)?;
            let header = slice(file, at, PROGRAM_HEADER_BYTES).ok_or(damaged)?;
            let field = |at| word(header, at).ok_or(damaged);
            match field(0)? {
                PT_LOAD => object.add(header, damaged)?,
                PT_DYNAMIC => (object.dynamic, object.dynamic_bytes) = (field(8)?, field(20)?),
                PT_TLS => return Err(Refusal::ThreadLocal),
                _ => {}
            }
        }
        let dynamic = object.loads().iter().any(|load| load.holds(object.dynamic, object.dynamic_bytes));
        if object.dynamic_bytes == 0 || !dynamic {
            return Err(Refusal::Damaged("no dynamic table in a loaded segment"));
        }
        Ok(object)
    }

    fn add(&mut self, header: &[u8], damaged: Refusal<'a>) -> Result<(), Refusal<'a>> {
        let field = |at| word(header, at).ok_or(damaged);
        let load = Load {
            file: field(4)?,
            at: field(8)?,
            file_bytes: field(16)?,
            bytes: field(20)?,
            writable: field(24)? & PF_W != 0,
        };
        let fits = slice(self.file, load.file, load.file_bytes as usize).is_some()
            && load.file_bytes <= load.bytes
            && load.at.checked_add(load.bytes).is_some_and(|end| end <= MAX_IMAGE)
            && self.loads().iter().all(|other| load.at >= other.at + other.bytes);
        let slot = self.loads.get_mut(self.count).filter(|_| fits);
        *slot.ok_or(Refusal::Damaged("a segment outside the file, the image or its order"))? = load;
        self.count += 1;
        Ok(())
    }

    fn loads(&self) -> &[Load] {
        &self.loads[..self.count]
    }

    /// Bytes of the image.
    #[must_use]
    pub fn image_bytes(&self) -> u32 {
        self.loads().iter().map(|load| load.at + load.bytes).max().unwrap_or(0)
    }

    /// Fills `image` (zeros, at least [`Self::image_bytes`] long, to run at address `base`), relocates it, and returns the
    /// address of `entry`. `bind` gives the address of an import.
    ///
    /// # Errors
    /// Why the file is refused; the image is of no use then.
    pub fn link(
        &self,
        image: &mut [u8],
        base: u32,
        entry: &'static str,
        bind: impl Fn(&str) -> Option<u32>,
    ) -> Result<u32, Refusal<'a>> {
        for load in self.loads() {
            let (from, to) = (load.file as usize, load.at as usize);
            let bytes = load.file_bytes as usize;
            let to = image.get_mut(to..to + bytes).ok_or(Refusal::Damaged("the image's size"))?;
            to.copy_from_slice(&self.file[from..from + bytes]);
        }
        // The tables are read from the file and not from the image that is being changed: relocations that point into
        // the tables change nothing then.
        let tables = Tables::read(self)?;
        let mut resolved = Ok(());
        tables.each_relocation(|at, kind, symbol, addend| {
            if !self.loads().iter().any(|load| load.writable && load.holds(at, 4)) {
                return Err(Refusal::TextRelocation);
            }
            let value = match kind {
                R_RELATIVE => base.wrapping_add(addend),
                R_GLOB_DAT | R_JMP_SLOT => tables.symbol(symbol)?.address(base, &bind)?.wrapping_add(addend),
                kind => return Err(Refusal::Kind(kind)),
            };
            let at = at as usize;
            match image.get_mut(at..at + 4) {
                Some(place) => place.copy_from_slice(&value.to_le_bytes()),
                None => resolved = Err(Refusal::TextRelocation),
            }
            Ok(())
        })?;
        resolved?;
        tables.exported(entry)?.map(|value| base.wrapping_add(value)).ok_or(Refusal::NoEntry(entry))
    }

    /// Bytes at an address of the image, as the file has them.
    fn at(&self, address: u32, count: u32) -> Option<&'a [u8]> {
        let load = self.loads().iter().find(|load| load.holds(address, count))?;
        let within = address - load.at;
        within.checked_add(count).filter(|&end| end <= load.file_bytes)?;
        slice(self.file, load.file + within, count as usize)
    }
}

/// A symbol.
struct Symbol<'a> {
    name: &'a str,
    value: u32,
    defined: bool,
    weak: bool,
}

impl<'a> Symbol<'a> {
    fn address(&self, base: u32, bind: impl Fn(&str) -> Option<u32>) -> Result<u32, Refusal<'a>> {
        match (self.defined, bind(self.name), self.weak) {
            (true, ..) => Ok(base.wrapping_add(self.value)),
            (false, Some(address), _) => Ok(address),
            (false, None, true) => Ok(0),
            (false, None, false) => Err(Refusal::Import(self.name)),
        }
    }
}

/// The tables that the dynamic section names.
struct Tables<'a> {
    object: Object<'a>,
    symbols: u32,
    strings: &'a [u8],
    hash: u32,
    relocations: [&'a [u8]; 2],
}

impl<'a> Tables<'a> {
    fn read(object: &Object<'a>) -> Result<Self, Refusal<'a>> {
        let damaged = Refusal::Damaged("the dynamic table");
        let dynamic = object.at(object.dynamic, object.dynamic_bytes).ok_or(damaged)?;
        let entries = || {
            let pairs = dynamic.chunks_exact(8);
            let pairs = pairs.filter_map(|pair| Some((word(pair, 0)?, word(pair, 4)?)));
            pairs.take_while(|&(tag, _)| tag != 0)
        };
        let find = |wanted| entries().find(|&(tag, _)| tag == wanted).map(|(_, value)| value);
        let need = |tag| find(tag).ok_or(damaged);
        let table = |address: Option<u32>, bytes: Option<u32>| match (address, bytes) {
            (Some(address), Some(bytes)) if bytes.is_multiple_of(RELOCATION_BYTES) => {
                object.at(address, bytes).ok_or(Refusal::Damaged("a relocation table"))
            }
            (None, None) => Ok(&[][..]),
            _ => Err(Refusal::Damaged("a relocation table")),
        };
        let strings = object.at(need(5)?, need(10)?).ok_or(Refusal::Damaged("the string table"))?;
        let tables = Self {
            object: *object,
            symbols: need(6)?,
            strings,
            hash: need(4)?,
            relocations: [table(find(7), find(8))?, table(find(23), find(2))?],
        };
        if let Some(name) = find(1) {
            return Err(Refusal::Needed(tables.string(name)?));
        }
        const DF_TEXTREL: u32 = 4;
        if find(22).is_some() || find(30).is_some_and(|flags| flags & DF_TEXTREL != 0) {
            return Err(Refusal::TextRelocation);
        }
        Ok(tables)
    }

    fn string(&self, at: u32) -> Result<&'a str, Refusal<'a>> {
        let damaged = Refusal::Damaged("a name");
        let rest = self.strings.get(at as usize..).ok_or(damaged)?;
        let text = core::ffi::CStr::from_bytes_until_nul(rest).map_err(|_| damaged)?;
        text.to_str().map_err(|_| damaged)
    }

    fn symbol(&self, index: u32) -> Result<Symbol<'a>, Refusal<'a>> {
        let damaged = Refusal::Damaged("the symbol table");
        let at = index.checked_mul(SYMBOL_BYTES).and_then(|offset| self.symbols.checked_add(offset));
        let symbol = at.and_then(|at| self.object.at(at, SYMBOL_BYTES)).ok_or(damaged)?;
        let field = |at| word(symbol, at).ok_or(damaged);
        Ok(Symbol {
            name: self.string(field(0)?)?,
            value: field(4)?,
            defined: half(symbol, 14).ok_or(damaged)? != 0,
            weak: symbol[12] >> 4 == STB_WEAK,
        })
    }

    fn each_relocation(
        &self,
        mut relocate: impl FnMut(u32, u32, u32, u32) -> Result<(), Refusal<'a>>,
    ) -> Result<(), Refusal<'a>> {
        for entry in self.relocations.iter().flat_map(|table| table.chunks_exact(RELOCATION_BYTES as usize)) {
            let field = |at| word(entry, at).ok_or(Refusal::Damaged("a relocation table"));
            let (at, info, addend) = (field(0)?, field(4)?, field(8)?);
            relocate(at, info & 0xff, info >> 8, addend)?;
        }
        Ok(())
    }

    /// The value of a defined symbol, through the hash table.
    fn exported(&self, name: &str) -> Result<Option<u32>, Refusal<'a>> {
        let damaged = Refusal::Damaged("the hash table");
        let entry = |index: u32| {
            let at = index.checked_mul(4).and_then(|offset| self.hash.checked_add(offset));
            at.and_then(|at| self.object.at(at, 4)).and_then(|bytes| word(bytes, 0)).ok_or(damaged)
        };
        let (buckets, chains) = (entry(0)?, entry(1)?);
        if buckets == 0 {
            return Ok(None);
        }
        let first = 2 + hash(name) % buckets;
        let mut index = entry(first)?;
        // A chain visits each symbol once at the most: a loop in a damaged one ends here.
        for _ in 0..chains {
            if index == 0 {
                return Ok(None);
            }
            let symbol = self.symbol(index)?;
            if symbol.defined && symbol.name == name {
                return Ok(Some(symbol.value));
            }
            let next = buckets.checked_add(2).and_then(|chain| chain.checked_add(index)).ok_or(damaged)?;
            index = entry(next)?;
        }
        Ok(None)
    }
}

/// The SysV hash of a name.
fn hash(name: &str) -> u32 {
    name.bytes().fold(0u32, |hash, byte| {
        let hash = (hash << 4).wrapping_add(byte.into());
        let high = hash & 0xf000_0000;
        (hash ^ high >> 24) & !high
    })
}
