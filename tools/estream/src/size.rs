//! Sizes as people write and read them.
//!
//! `512MiB` is binary, `512MB` decimal, a bare number is bytes. Single letters (`512M`) are refused: half the tools mean
//! one and half the other, and an arena that is 5 % off is a wrong answer to a question about memory.

/// Unit names in lower case and their bytes.
const UNITS: [(&str, u64); 10] = [
    ("", 1),
    ("b", 1),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
];

/// Digits after the point that a size may have.
const MAX_FRACTION: usize = 9;

/// The bytes of a size such as `65536`, `64KiB`, `1.5GiB` or `512MB`; a broken byte is dropped.
///
/// # Errors
/// A sentence that says what is wrong with `text`.
pub fn parse(text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    let number_end = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(number_end);
    let unit = unit.trim_start().to_ascii_lowercase();
    let Some(&(_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(format!("{text:?} has no known unit: write bytes, KiB, MiB, GiB, TiB, KB, MB, GB or TB"));
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') || fraction.len() > MAX_FRACTION {
        return Err(format!("{text:?} is not a size such as 512MiB or 1.5GiB"));
    }
    let too_large = || format!("{text:?} is larger than any memory");
    let whole: u64 = whole.parse().map_err(|_| too_large())?;
    let digits: u64 = if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| too_large())? };
    let part = u128::from(digits) * u128::from(scale) / 10_u128.pow(fraction.len() as u32);
    let bytes = u128::from(whole) * u128::from(scale) + part;
    u64::try_from(bytes).map_err(|_| too_large())
}

/// `bytes` in the largest binary unit that keeps a digit before the point.
#[must_use]
pub fn human(bytes: u64) -> String {
    let (unit, scale) = match bytes {
        0..0x400 => return format!("{bytes} B"),
        0x400..0x10_0000 => ("KiB", 10),
        0x10_0000..0x4000_0000 => ("MiB", 20),
        _ => ("GiB", 30),
    };
    format!("{:.2} {unit}", bytes as f64 / f64::from(1_u32 << scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_written() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64KiB", 65_536),
            ("512MiB", 536_870_912),
            ("1GiB", 1_073_741_824),
            ("1 gib", 1_073_741_824),
            ("1.5GiB", 1_610_612_736),
            ("0.25KiB", 256),
            ("2KB", 2_000),
            ("512MB", 512_000_000),
            ("3tb", 3_000_000_000_000),
            ("7B", 7),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "",
            "MiB",
            "-1",
            "+1",
            "1M",
            "512m",
            "1e9",
            "1..5GiB",
            "1.2.3",
            ".5GiB",
            "0x10",
            "1 G iB",
            "１MiB",
            "18446744073709551616",
            "99999999999999999999",
            "17179869184GiB",
            "1.0000000001GiB",
        ] {
            assert!(parse(text).is_err(), "{text:?} gave {:?}", parse(text));
        }
    }

    #[test]
    fn bytes_are_shown_in_their_unit() {
        assert_eq!(human(0), "0 B");
        assert_eq!(human(1023), "1023 B");
        assert_eq!(human(1024), "1.00 KiB");
        assert_eq!(human(1_572_864), "1.50 MiB");
        assert_eq!(human(3_758_096_384), "3.50 GiB");
    }
}
