//! Numbers and names as headers and bodies write them, without the machinery of formatting.

use std::ops::Range;

use crate::standing::Policy;

/// The longest name that is written; rules have none that is longer.
const NAME_CHARS_MAX: usize = 128;

/// The largest integer of a structured field (RFC 9651, section 3.3.1).
pub(crate) const INTEGER_MAX: u64 = 999_999_999_999_999;

pub(crate) fn put_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// An integer of a structured field: what is larger is written as the largest.
pub(crate) fn put_integer(out: &mut Vec<u8>, number: u64) {
    put_number(out, number.min(INTEGER_MAX));
}

/// A short text that is put together where it is, with as few steps as there are parts.
pub(crate) struct Line {
    bytes: [u8; Self::BYTES_MAX],
    length: usize,
}

impl Line {
    /// More than the policies of most rules need.
    const BYTES_MAX: usize = 128;
    /// As long as what it begins with may be, so that two numbers have room behind it.
    pub(crate) const START_BYTES_MAX: usize = 64;

    /// A line that begins with a text of at most [`Self::START_BYTES_MAX`].
    #[inline]
    pub(crate) fn starting_with(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::BYTES_MAX];
        bytes[..Self::START_BYTES_MAX].get_mut(..text.len())?.copy_from_slice(text);
        Some(Self { bytes, length: text.len() })
    }

    /// Appends an integer of a structured field, and says where it stands.
    #[inline]
    pub(crate) fn put_integer(&mut self, number: u64) -> Range<usize> {
        let start = self.length;
        self.put(itoa::Buffer::new().format(number.min(INTEGER_MAX)).as_bytes());
        start..self.length
    }

    #[inline]
    pub(crate) fn put(&mut self, text: &[u8]) {
        let end = self.length + text.len();
        if let Some(place) = self.bytes.get_mut(self.length..end) {
            place.copy_from_slice(text);
            self.length = end;
        }
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// The name of a policy as a string, which structured fields and JSON write alike once nothing but
/// printable ASCII is left. The second policy of a name is `"name#2"`.
pub(crate) fn put_name(out: &mut Vec<u8>, (policy, before): (&Policy<'_>, usize)) {
    out.push(b'"');
    let name = policy.name();
    if is_plain(name) {
        out.extend_from_slice(name.as_bytes());
    } else {
        for byte in written(name) {
            if matches!(byte, b'"' | b'\\') {
                out.push(b'\\');
            }
            out.push(byte);
        }
    }
    if before > 0 {
        out.push(b'#');
        put_number(out, before as u64 + 1);
    }
    out.push(b'"');
}

/// Whether a name is written as it is, which nearly all are.
fn is_plain(name: &str) -> bool {
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
    name.len() <= NAME_CHARS_MAX && name.bytes().all(is_plain)
}

/// Whether two names are one once they are written.
pub(crate) fn is_written_alike(a: &str, b: &str) -> bool {
    a == b || written(a).eq(written(b))
}

/// A name in printable ASCII, before anything is escaped.
fn written(name: &str) -> impl Iterator<Item = u8> {
    let is_printable = |c: &char| matches!(c, ' '..='~');
    let chars = name.chars().take(NAME_CHARS_MAX);
    chars.map(move |c| if is_printable(&c) { c as u8 } else { b'?' })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_line_is_its_parts(start in "[ -~]{0,80}", first: u64, second: u64) {
            let line = Line::starting_with(start.as_bytes());
            prop_assert_eq!(line.is_some(), start.len() <= Line::START_BYTES_MAX);
            if let Some(mut line) = line {
                line.put(b";r=");
                let place = line.put_integer(first);
                line.put(b";t=");
                line.put_integer(second);
                let [first, second] = [first, second].map(|number| number.min(INTEGER_MAX));
                let expected = format!("{start};r={first};t={second}");
                prop_assert_eq!(line.as_bytes(), expected.as_bytes());
                let first = first.to_string();
                prop_assert_eq!(&line.as_bytes()[place], first.as_bytes());
            }
        }
    }
}
