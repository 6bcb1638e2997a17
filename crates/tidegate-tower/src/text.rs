//! Numbers and names as headers and bodies write them, without the machinery of formatting.

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
