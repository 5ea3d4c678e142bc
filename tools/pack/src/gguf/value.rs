//! Values of the key-value area: scalars are kept, strings and arrays are only located and read when someone asks.

use super::cursor::Cursor;
use crate::error::{Error, Result};
use crate::source::Source;

/// Bytes of a string value.
const STRING_LIMIT: usize = 4 << 20;

/// The type numbers of GGUF values.
pub(crate) mod kind {
    pub(crate) const UINT8: u32 = 0;
    pub(crate) const INT8: u32 = 1;
    pub(crate) const UINT16: u32 = 2;
    pub(crate) const INT16: u32 = 3;
    pub(crate) const UINT32: u32 = 4;
    pub(crate) const INT32: u32 = 5;
    pub(crate) const FLOAT32: u32 = 6;
    pub(crate) const BOOL: u32 = 7;
    pub(crate) const STRING: u32 = 8;
    pub(crate) const ARRAY: u32 = 9;
    pub(crate) const UINT64: u32 = 10;
    pub(crate) const INT64: u32 = 11;
    pub(crate) const FLOAT64: u32 = 12;
}

/// One key with its value.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the record (key, type, value) begins in the file.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
    /// The value.
    pub value: Value,
}

/// A value, or where it stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// An unsigned integer of any width.
    Unsigned(u64),
    /// A signed integer of any width.
    Signed(i64),
    /// A single or double.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A string: its length word's offset.
    String {
        /// Byte offset of the length word.
        at: u64,
    },
    /// An array.
    Array {
        /// The elements' type number.
        kind: u32,
        /// Elements.
        count: u64,
        /// Byte offset of the first element.
        at: u64,
    },
}

impl Value {
    /// The type's name, for messages.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Unsigned(_) => "an unsigned integer",
            Self::Signed(_) => "a signed integer",
            Self::Float(_) => "a float",
            Self::Bool(_) => "a truth value",
            Self::String { .. } => "a string",
            Self::Array { .. } => "an array",
        }
    }

    /// The value as an unsigned integer, if it is one.
    #[must_use]
    pub fn unsigned(&self) -> Option<u64> {
        match *self {
            Self::Unsigned(value) => Some(value),
            Self::Signed(value) => u64::try_from(value).ok(),
            _ => None,
        }
    }

    pub(super) fn parse(cursor: &mut Cursor<'_>, number: u32) -> Result<Self> {
        let at = cursor.position();
        match number {
            kind::STRING => {
                cursor.string_bytes(STRING_LIMIT)?;
                Ok(Self::String { at })
            }
            kind::ARRAY => Self::parse_array(cursor),
            _ => Self::parse_scalar(cursor, number),
        }
    }

    fn parse_scalar(cursor: &mut Cursor<'_>, number: u32) -> Result<Self> {
        let at = cursor.position();
        Ok(match number {
            kind::UINT8 => Self::Unsigned(u64::from(u8::from_le_bytes(cursor.array()?))),
            kind::INT8 => Self::Signed(i64::from(i8::from_le_bytes(cursor.array()?))),
            kind::UINT16 => Self::Unsigned(u64::from(u16::from_le_bytes(cursor.array()?))),
            kind::INT16 => Self::Signed(i64::from(i16::from_le_bytes(cursor.array()?))),
            kind::UINT32 => Self::Unsigned(u64::from(cursor.u32()?)),
            kind::INT32 => Self::Signed(i64::from(i32::from_le_bytes(cursor.array()?))),
            kind::FLOAT32 => Self::Float(f64::from(f32::from_le_bytes(cursor.array()?))),
            kind::BOOL => Self::Bool(u8::from_le_bytes(cursor.array()?) != 0),
            kind::UINT64 => Self::Unsigned(cursor.u64()?),
            kind::INT64 => Self::Signed(i64::from_le_bytes(cursor.array()?)),
            kind::FLOAT64 => Self::Float(f64::from_le_bytes(cursor.array()?)),
            _ => {
                let message = format!("{} has the value type {number}, which does not exist", cursor.part);
                return Err(Error::input("bad-value-type", message).at(at));
            }
        })
    }

    fn parse_array(cursor: &mut Cursor<'_>) -> Result<Self> {
        let start = cursor.position();
        let (number, count) = (cursor.u32()?, cursor.u64()?);
        let at = cursor.position();
        let each = match number {
            kind::UINT8 | kind::INT8 | kind::BOOL => 1,
            kind::UINT16 | kind::INT16 => 2,
            kind::UINT32 | kind::INT32 | kind::FLOAT32 => 4,
            kind::UINT64 | kind::INT64 | kind::FLOAT64 | kind::STRING => 8,
            kind::ARRAY => {
                let message = format!("{} is an array of arrays, which no model uses", cursor.part);
                return Err(Error::input("nested-array", message).at(start));
            }
            _ => {
                let message =
                    format!("{} is an array of the type {number}, which does not exist", cursor.part);
                return Err(Error::input("bad-value-type", message).at(start));
            }
        };
        // A string takes at least its length word, so this bounds both kinds before the walk.
        match count.checked_mul(each) {
            Some(bytes) if bytes <= cursor.left() => {
                if number == kind::STRING {
                    for _ in 0..count {
                        let length = cursor.u64()?;
                        cursor.skip(length)?;
                    }
                } else {
                    cursor.skip(bytes)?;
                }
            }
            _ => {
                let left = cursor.left();
                let message =
                    format!("the file ends in {}: an array of {count} in {left} bytes", cursor.part);
                return Err(Error::input("truncated", message).at(start));
            }
        }
        Ok(Self::Array { kind: number, count, at })
    }
}

/// Reads a located string; bytes that are not UTF-8 become replacement characters.
pub(super) fn read_string(source: &dyn Source, at: u64) -> Result<String> {
    let bytes = Cursor::new(source, at).string_bytes(STRING_LIMIT)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Visits the strings of a located array in order.
pub(super) fn visit_strings(
    source: &dyn Source,
    at: u64,
    count: u64,
    mut visit: impl FnMut(Vec<u8>) -> Result<()>,
) -> Result<()> {
    let mut cursor = Cursor::new(source, at);
    (0..count).try_for_each(|_| visit(cursor.string_bytes(STRING_LIMIT)?))
}

/// Reads a located array of integers, at most `limit` of them.
pub(super) fn read_integers(source: &dyn Source, value: Value, limit: u64) -> Result<Option<Vec<i64>>> {
    let Value::Array { kind: number, count, at } = value else { return Ok(None) };
    if count > limit {
        return Ok(None);
    }
    let mut cursor = Cursor::new(source, at);
    (0..count)
        .map(|_| match Value::parse_scalar(&mut cursor, number)? {
            Value::Unsigned(value) => Ok(i64::try_from(value).ok()),
            Value::Signed(value) => Ok(Some(value)),
            Value::Bool(value) => Ok(Some(i64::from(value))),
            _ => Ok(None),
        })
        .collect()
}

/// Reads a located array of single-precision floats, at most `limit` of them.
pub(super) fn read_floats(source: &dyn Source, value: Value, limit: u64) -> Result<Option<Vec<f32>>> {
    match value {
        Value::Array { kind: kind::FLOAT32, count, at } if count <= limit => {
            let mut cursor = Cursor::new(source, at);
            (0..count).map(|_| cursor.array().map(f32::from_le_bytes)).collect::<Result<_>>().map(Some)
        }
        _ => Ok(None),
    }
}
