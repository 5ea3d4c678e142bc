//! Whether the simulator can run a skel's code: every packet with a word that it must serve itself has a supported form.
//!
//! The walk is the very code that puts stubs in place when the simulator loads the skel (`estream-patch`), so what passes
//! here is not refused there. Which bytes are code is told by the section headers; a skel without any passes, since it was
//! signed and was checked before.

use super::elf::Image;
use super::loader::Breach;
use estream_patch::sites;

/// `SHF_EXECINSTR`.
const EXECUTABLE: u32 = 4;

/// The number of packets that the simulator serves.
pub(crate) fn check(bytes: &[u8]) -> Result<usize, Vec<Breach>> {
    let breach = |detail| Breach { rule: "simulator", detail };
    let image = Image::parse(bytes).map_err(|damaged| vec![breach(damaged.to_string())])?;
    let (mut served, mut breaches) = (0, Vec::new());
    for section in image.sections.iter().filter(|section| section.flags & EXECUTABLE != 0) {
        let loaded = image.loads().find(|load| {
            let within = u64::from(section.offset).checked_sub(load.offset.into());
            within.is_some_and(|within| within + u64::from(section.bytes) <= load.file_bytes.into())
        });
        let Some(load) = loaded else {
            breaches.push(breach(format!(
                "code at byte {:#x} of the file that no segment loads",
                section.offset
            )));
            continue;
        };
        let within = section.offset - load.offset;
        let text = &image.content(load)[within as usize..][..section.bytes as usize];
        for site in sites(text, load.address.wrapping_add(within)) {
            match site {
                Ok(_) => served += 1,
                Err(refusal) => breaches.push(breach(refusal.to_string())),
            }
        }
    }
    if breaches.is_empty() { Ok(served) } else { Err(breaches) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hexagon::elf::{SECTION, SHNUM_AT, SHOFF_AT};
    use crate::hexagon::sample::{ENTRY_AT, Sample};

    /// The sample with a section of code that holds these words at the entry.
    fn with_code(words: &[u32]) -> Vec<u8> {
        let mut bytes = Sample::default().bytes();
        let at = ENTRY_AT as usize;
        for (to, word) in bytes[at..].chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let headers = bytes.len() as u32;
        bytes[SHOFF_AT..SHOFF_AT + 4].copy_from_slice(&headers.to_le_bytes());
        bytes[SHNUM_AT - 2..SHNUM_AT].copy_from_slice(&(SECTION as u16).to_le_bytes());
        bytes[SHNUM_AT..SHNUM_AT + 2].copy_from_slice(&1_u16.to_le_bytes());
        let section = [0, 1, 6, ENTRY_AT, ENTRY_AT, 4 * words.len() as u32, 0, 0, 0, 0];
        bytes.extend(section.iter().flat_map(|word| word.to_le_bytes()));
        bytes
    }

    #[test]
    fn supported_packets_are_counted_and_others_named() {
        // v3.sf=vadd(v1.sf,v2.sf); then the same with a return; then a nop.
        let code = [0x1f82_e1c3, 0x1f82_61c3, 0x529f_c000, 0x7f00_c000];
        assert_eq!(check(&with_code(&code)), Ok(2));
        // cvt.hf=acc(r0), which has no model.
        let breaches = check(&with_code(&[0x7f00_c000, 0xa6e0_da10])).expect_err("a breach");
        assert!(
            breaches.len() == 1 && breaches[0].detail.contains(&format!("{:#x}", ENTRY_AT + 4)),
            "{breaches:?}"
        );
        // A packet without an end.
        assert!(check(&with_code(&[0x7f00_4000])).is_err());
        assert_eq!(check(&Sample::default().bytes()), Ok(0));
    }
}
