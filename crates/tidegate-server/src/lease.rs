//! The leases of a call as one text: opaque to clients, who hand it back as it is.
//!
//! Each lease takes 24 hexadecimal digits: 8 for the limit that gave it, 16 for its number.

use std::fmt::Write as _;

use tidegate::LeaseId;
use tidegate::rules::Held;
use tidegate_rules::compile::CompiledRules;

const DIGITS: usize = 24;
const TAG_DIGITS: usize = 8;
/// The most leases of one call: one for each of its limits.
const LEASES_MAX: usize = CompiledRules::CHARGES_MAX;

/// `None` where there is no lease.
pub(crate) fn written(leases: impl Iterator<Item = Held>) -> Option<String> {
    let mut text = String::new();
    for Held { tag, lease } in leases {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{tag:08x}{:016x}", lease.as_u64());
    }
    (!text.is_empty()).then_some(text)
}

/// `None` where the text is none that [`written`] makes.
pub(crate) fn read(text: &str) -> Option<Vec<Held>> {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let count = text.len() / DIGITS;
    if !is_hex || !text.len().is_multiple_of(DIGITS) || !(1..=LEASES_MAX).contains(&count) {
        return None;
    }
    let one = |start: usize| {
        let (tag, lease) = text[start..start + DIGITS].split_at(TAG_DIGITS);
        let lease = LeaseId::from_u64(u64::from_str_radix(lease, 16).ok()?)?;
        Some(Held { tag: u32::from_str_radix(tag, 16).ok()?, lease })
    };
    (0..count).map(|index| one(index * DIGITS)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_come_back_as_they_were_written() {
        let leases = [(7, 1), (u32::MAX, u64::MAX)]
            .map(|(tag, lease)| Held { tag, lease: LeaseId::from_u64(lease).unwrap() });
        let text = written(leases.into_iter()).unwrap();
        assert_eq!(text, "000000070000000000000001ffffffffffffffffffffffff");
        assert_eq!(read(&text).as_deref(), Some(&leases[..]));
        assert_eq!(written(std::iter::empty()), None);
    }

    #[test]
    fn other_texts_are_no_leases() {
        let zero = "000000070000000000000000";
        let signed = "+00000070000000000000001";
        let long = "000000070000000000000001".repeat(LEASES_MAX + 1);
        for text in ["", "7", zero, signed, "öööööööööööö", &long] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
