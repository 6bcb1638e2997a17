//! The one normal form of all spellings of a path.
//!
//! A path can be spelled in so many ways that a limit on `/login` is worth nothing unless all of
//! them count as `/login`. Where back ends differ in how they read a spelling, the reading is taken
//! that makes more spellings one path.

use std::borrow::Cow;

/// The normal form of a path.
///
/// What is normal already is handed back as it is, without allocation. The normal form of a normal
/// form is itself; it begins with `/`, has no `//`, and no segment of it is `.` or `..`.
///
/// | spelling | becomes | why |
/// | --- | --- | --- |
/// | `http://host/a` | `/a` | the absolute form that proxies are sent |
/// | `/a?b`, `/a#b` | `/a` | query and fragment are no part of the path |
/// | `/%61` | `/a` | a byte may be encoded or not; only `?`, `#`, `;`, `%` and control bytes stay encoded, in upper case |
/// | `/a%2Fb`, `/a%5Cb`, `/a\b` | `/a/b` | many back ends decode before they split, and read a backslash as a slash |
/// | `//a///b/` | `/a/b` | empty segments and a slash at the end mean nothing |
/// | `/a/./b/../c` | `/a/c` | resolved, never above the root |
/// | `/a;x=1/b` | `/a/b` | parameters of a segment, up to the next slash that is written as one |
/// | `/a.`, `/a..` | `/a` | file systems that drop dots at the end of a name; `/...` stays |
/// | `/a%zz` | `/a%25zz` | a `%` that encodes nothing is a `%`, and is spelled in one way |
/// | `/a%252Fb` | `/a%252Fb` | decoded once only: this is a `%` and then `2F` |
///
/// The case of letters is kept.
///
/// ```
/// use tidegate_rules::path::normalise;
///
/// assert_eq!(normalise(b"//Login/..;x=y/%6cogin/?next=/"), b"/login".as_slice());
/// ```
pub fn normalise(path: &[u8]) -> Cow<'_, [u8]> {
    let is_normal = is_plain(path) || is_normal(path);
    if is_normal { Cow::Borrowed(path) } else { Cow::Owned(rewrite(path)) }
}

/// What a byte means while a path is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Itself.
    Plain,
    Slash,
    Percent,
    /// In a normal path only in its encoded form, or as a slash.
    Never,
}

const KINDS: [Kind; 256] = {
    let mut kinds = [Kind::Plain; 256];
    let mut byte = 0;
    while byte < 256 {
        kinds[byte] = match byte as u8 {
            b'/' => Kind::Slash,
            b'%' => Kind::Percent,
            b'\\' | b';' | b'?' | b'#' | 0x00..=0x1F | 0x7F => Kind::Never,
            _ => Kind::Plain,
        };
        byte += 1;
    }
    kinds
};

/// Whether nothing needs to change, since nothing is encoded and no byte is out of place.
///
/// The path is looked at in blocks, each of which takes a few instructions for all of its bytes. A path
/// of a few bytes is not. What is not plain may be normal all the same.
pub(crate) fn is_plain(path: &[u8]) -> bool {
    let ([b'/', after @ ..], [before @ .., end]) = (path, path) else { return false };
    if !may_end_segment(*end) {
        return false;
    }
    let firsts = (before.first_chunk(), after.first_chunk());
    let lasts = (before.last_chunk(), after.last_chunk());
    let ((Some(before_first), Some(first)), (Some(before_last), Some(last))) = (firsts, lasts)
    else {
        let (Some(before), Some(block)) = (block_of(before), block_of(after)) else { return false };
        return is_plain_block(&before, &block);
    };
    // The last block overlaps with the one before it.
    let are_plain = is_plain_block(before_first, first) & is_plain_block(before_last, last);
    are_plain && (after.len() <= 2 * BLOCK || are_plain_blocks(before, after))
}

/// Whether no byte of a long path needs a closer look, as far as there are whole blocks.
#[inline(never)]
fn are_plain_blocks(before: &[u8], after: &[u8]) -> bool {
    let (before, after) = (before.as_chunks().0, after.as_chunks().0);
    before.iter().zip(after).all(|(before, block)| is_plain_block(before, block))
}

/// How many bytes are looked at together.
const BLOCK: usize = 16;

/// A block of all bytes of a text that is shorter than one, some of them more than once. Texts of one
/// length have their bytes in the same places.
#[inline]
fn block_of(text: &[u8]) -> Option<[u8; BLOCK]> {
    let eights = (text.first_chunk(), text.last_chunk());
    let (first, last) = if let (Some(first), Some(last)) = eights {
        (u64::from_le_bytes(*first), u64::from_le_bytes(*last))
    } else {
        let first = u64::from(u32::from_le_bytes(*text.first_chunk()?));
        let last = u64::from(u32::from_le_bytes(*text.last_chunk()?));
        (first << 32 | first, last << 32 | last)
    };
    Some((u128::from(last) << 64 | u128::from(first)).to_le_bytes())
}

/// Whether no byte of a block needs a closer look, given for each the one before it.
///
/// There is no branch in it, so that the compiler can take all bytes at once.
#[inline(always)]
#[expect(clippy::inline_always, reason = "the bytes of short paths would pass through memory")]
fn is_plain_block(before: &[u8; BLOCK], block: &[u8; BLOCK]) -> bool {
    let mut any_odd = false;
    for at in 0..BLOCK {
        let ends_segment = block[at] == b'/';
        any_odd |= is_odd(block[at]) | (ends_segment & !may_end_segment(before[at]));
    }
    !any_odd
}

/// Whether a byte may not be just itself: it is encoded or begins a code, ends the path, is another slash, or is one of
/// few that are taken for such.
#[expect(clippy::needless_bitwise_bool, reason = "without branches all bytes are compared at once")]
fn is_odd(byte: u8) -> bool {
    // One comparison for four: `;`, `?`, the last control byte, and `{`, which hardly any client sends as it is.
    let is_one_of_four = byte & 0b1011_1011 == b';';
    (byte < 0x20) | is_one_of_four | (byte == b'#') | (byte == b'%') | (byte == b'\\')
}

/// Whether nothing needs to change, byte by byte.
///
/// A segment of three dots or more is normal too, and is not seen as such here: `rewrite` leaves it as it is.
fn is_normal(path: &[u8]) -> bool {
    let Some((b'/', rest)) = path.split_first() else { return false };
    for (at, &byte) in rest.iter().enumerate() {
        match KINDS[usize::from(byte)] {
            // The byte before the slash: `path` has one more at the beginning than `rest`.
            Kind::Slash if !may_end_segment(path[at]) => return false,
            Kind::Plain | Kind::Slash => {}
            Kind::Percent => match rest.get(at + 1..at + 3) {
                Some(&[high, low]) if stays_encoded(high, low) => {}
                _ => return false,
            },
            Kind::Never => return false,
        }
    }
    rest.last().is_none_or(|&byte| may_end_segment(byte))
}

/// Whether a segment may end with this byte: it is neither empty nor ends in a dot.
#[expect(clippy::needless_bitwise_bool, reason = "without branches all bytes are compared at once")]
fn may_end_segment(last: u8) -> bool {
    (last != b'/') & (last != b'.')
}

/// Whether these two digits after a `%` are what the normal form has there.
fn stays_encoded(high: u8, low: u8) -> bool {
    !high.is_ascii_lowercase()
        && !low.is_ascii_lowercase()
        && decoded(high, low).is_some_and(must_be_encoded)
}

/// What would be read as something else, or could not be shown, were it decoded.
fn must_be_encoded(byte: u8) -> bool {
    matches!(byte, b'%' | b'?' | b'#' | b';') || byte.is_ascii_control()
}

fn decoded(high: u8, low: u8) -> Option<u8> {
    let high = char::from(high).to_digit(16)?;
    let low = char::from(low).to_digit(16)?;
    u8::try_from(high * 16 + low).ok()
}

fn rewrite(path: &[u8]) -> Vec<u8> {
    let mut rest = without_origin(path);
    let mut normal = Normal { text: Vec::with_capacity(rest.len() + 1), start: 0 };
    normal.begin();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'?' | b'#' => break,
            b'/' | b'\\' => normal.end_segment(),
            b';' => rest = after_parameters(rest),
            b'%' => {
                let digits = rest.first_chunk::<2>();
                match digits.and_then(|&[high, low]| decoded(high, low)) {
                    Some(b'/' | b'\\') => normal.end_segment(),
                    Some(byte) => normal.push(byte),
                    None => {
                        normal.push(b'%');
                        continue;
                    }
                }
                rest = &rest[2..];
            }
            _ => normal.push(byte),
        }
    }
    normal.finish()
}

/// The path of an absolute URI, and anything else as it is.
fn without_origin(path: &[u8]) -> &[u8] {
    let scheme_len = path
        .iter()
        .position(|byte| !(byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')))
        .unwrap_or(path.len());
    let begins_with_letter = path.first().is_some_and(u8::is_ascii_alphabetic);
    match path[scheme_len..].strip_prefix(b"://") {
        Some(rest) if begins_with_letter => {
            let end = rest.iter().position(|byte| matches!(byte, b'/' | b'\\' | b'?' | b'#'));
            &rest[end.unwrap_or(rest.len())..]
        }
        _ => path,
    }
}

/// What follows the parameters of a segment.
///
/// An encoded slash does not end them: back ends that know parameters cut them off before they
/// decode, so that `/login;%2Fx` is `/login` there.
fn after_parameters(rest: &[u8]) -> &[u8] {
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'\\' | b'?' | b'#'));
    &rest[end.unwrap_or(rest.len())..]
}

/// A normal path while it is being made: whole segments, and the beginning of one more.
struct Normal {
    text: Vec<u8>,
    /// Where the last segment begins, after its slash.
    start: usize,
}

impl Normal {
    fn begin(&mut self) {
        self.text.push(b'/');
        self.start = self.text.len();
    }

    fn push(&mut self, byte: u8) {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        if must_be_encoded(byte) {
            let [high, low] = [byte >> 4, byte & 0xF].map(|digit| DIGITS[usize::from(digit)]);
            self.text.extend_from_slice(&[b'%', high, low]);
        } else {
            self.text.push(byte);
        }
    }

    fn end_segment(&mut self) {
        self.settle();
        if self.text.len() > self.start {
            self.begin();
        }
    }

    /// Makes the last segment normal: an empty one is none.
    fn settle(&mut self) {
        let segment = &self.text[self.start..];
        match segment {
            b"." => self.text.truncate(self.start),
            b".." => {
                // The slash before this segment goes, and then the segment before that.
                self.text.truncate(self.start - 1);
                let parent = self.text.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
                self.text.truncate(parent);
                self.begin();
            }
            _ => {
                let dots = segment.iter().rev().take_while(|&&byte| byte == b'.').count();
                if dots < segment.len() {
                    self.text.truncate(self.text.len() - dots);
                }
            }
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.settle();
        if self.text.len() == self.start && self.start > 1 {
            self.text.pop();
        }
        self.text
    }
}

#[cfg(test)]
#[path = "normal_tests.rs"]
mod tests;
