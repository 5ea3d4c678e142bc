//! A split model of any files: a byte says how many, four more each how long; the last one takes the rest.

use super::gguf::{accepted, check};
use estream_pack::Source;
use estream_pack::gguf::Gguf;

const MOST: u8 = 6;

/// Reads the bytes as the files of one model.
pub fn split(bytes: &[u8]) {
    let Some((&count, mut rest)) = bytes.split_first() else { return };
    let mut files = Vec::new();
    for _ in 1..count.clamp(1, MOST) {
        let Some((length, behind)) = rest.split_first_chunk() else { return };
        let length = (u32::from_le_bytes(*length) as usize).min(behind.len());
        let (file, behind) = behind.split_at(length);
        files.push(file.to_vec());
        rest = behind;
    }
    files.push(rest.to_vec());
    let sources: Vec<&dyn Source> = files.iter().map(|file| file as &dyn Source).collect();
    if let Some(gguf) = accepted(Gguf::read_all(&sources)) {
        let lengths: Vec<usize> = files.iter().map(Vec::len).collect();
        check(&gguf, &lengths);
    }
}
