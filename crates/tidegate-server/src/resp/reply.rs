//! Replies as bytes, in either version of the protocol. What is replied is said elsewhere.

use std::fmt::{self, Write as _};

/// The most bytes of an error's text; what it repeats of a command is cut long before.
const ERROR_BYTES_MAX: usize = 512;

/// Which version a connection speaks. Version 3 has maps, sets, truth values and a null of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Version {
    #[default]
    Two,
    Three,
}

/// Writes replies to the end of a buffer.
pub(super) struct Reply<'o> {
    out: &'o mut Vec<u8>,
    version: Version,
}

impl<'o> Reply<'o> {
    pub(super) fn new(out: &'o mut Vec<u8>, version: Version) -> Self {
        Self { out, version }
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    /// A short text without line ends, as `OK`.
    pub(super) fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// An error: a word in capitals for programs, and a text for people. What the text repeats of a
    /// command may hold anything, so line ends become spaces and the length is bounded.
    pub(super) fn error(&mut self, text: fmt::Arguments<'_>) {
        let start = self.out.len();
        self.out.push(b'-');
        let mut text_of = Bounded { out: self.out, left: ERROR_BYTES_MAX };
        // Writing to memory fails only where the bound is reached, and then the text is cut.
        let _ = text_of.write_fmt(text);
        for byte in &mut self.out[start..] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.end_line();
    }

    pub(super) fn integer(&mut self, number: impl itoa::Integer) {
        self.line(b':', itoa::Buffer::new().format(number).as_bytes());
    }

    pub(super) fn truth(&mut self, is_true: bool) {
        match self.version {
            Version::Two => self.integer(u8::from(is_true)),
            Version::Three => self.line(b'#', if is_true { b"t" } else { b"f" }),
        }
    }

    /// A number that may be missing.
    pub(super) fn integer_or_null(&mut self, number: Option<u64>) {
        match number {
            Some(number) => self.integer(number),
            None => self.null(),
        }
    }

    pub(super) fn bulk(&mut self, bytes: &[u8]) {
        self.head(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.end_line();
    }

    /// A text that may be missing.
    pub(super) fn bulk_or_null(&mut self, text: Option<&[u8]>) {
        match text {
            Some(text) => self.bulk(text),
            None => self.null(),
        }
    }

    /// A longer text for people.
    pub(super) fn text(&mut self, text: &str) {
        match self.version {
            Version::Two => self.bulk(text.as_bytes()),
            Version::Three => {
                self.head(b'=', text.len() + 4);
                self.out.extend_from_slice(b"txt:");
                self.out.extend_from_slice(text.as_bytes());
                self.end_line();
            }
        }
    }

    pub(super) fn null(&mut self) {
        self.out.extend_from_slice(match self.version {
            Version::Two => b"$-1\r\n",
            Version::Three => b"_\r\n",
        });
    }

    /// So many replies follow.
    pub(super) fn array(&mut self, len: usize) {
        self.head(b'*', len);
    }

    /// So many pairs of replies follow.
    pub(super) fn map(&mut self, len: usize) {
        match self.version {
            Version::Two => self.head(b'*', len * 2),
            Version::Three => self.head(b'%', len),
        }
    }

    /// So many replies follow, in no order.
    pub(super) fn set(&mut self, len: usize) {
        match self.version {
            Version::Two => self.head(b'*', len),
            Version::Three => self.head(b'~', len),
        }
    }

    /// The five numbers of a throttle, which are nearly everything that is ever replied.
    #[inline]
    pub(super) fn five(&mut self, numbers: [i64; 5]) {
        /// The head, and five times the longest number, with a sign, a mark and a line end.
        const BYTES_MAX: usize = 4 + 5 * (20 + 3);
        let mut bytes = [0; BYTES_MAX];
        bytes[..4].copy_from_slice(b"*5\r\n");
        let mut len = 4;
        for number in numbers {
            let mut digits = itoa::Buffer::new();
            let digits = digits.format(number).as_bytes();
            bytes[len] = b':';
            bytes[len + 1..][..digits.len()].copy_from_slice(digits);
            len += 1 + digits.len();
            bytes[len..][..2].copy_from_slice(b"\r\n");
            len += 2;
        }
        self.out.extend_from_slice(&bytes[..len]);
    }

    fn head(&mut self, mark: u8, len: usize) {
        self.line(mark, itoa::Buffer::new().format(len).as_bytes());
    }

    fn line(&mut self, mark: u8, text: &[u8]) {
        self.out.push(mark);
        self.out.extend_from_slice(text);
        self.end_line();
    }

    fn end_line(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

/// Text to a buffer, up to a bound.
struct Bounded<'o> {
    out: &'o mut Vec<u8>,
    left: usize,
}

impl fmt::Write for Bounded<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let kept = text.len().min(self.left);
        self.out.extend_from_slice(&text.as_bytes()[..kept]);
        self.left -= kept;
        if kept < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

/// Bytes of a command, repeated in an error: at most so many, and what is no text as it can be shown.
pub(super) struct Shown<'b> {
    pub(super) bytes: &'b [u8],
    pub(super) bytes_max: usize,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = &self.bytes[..self.bytes.len().min(self.bytes_max)];
        for chunk in bytes.utf8_chunks() {
            f.write_str(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                f.write_char(char::REPLACEMENT_CHARACTER)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_whatever_it_repeats() {
        let mut out = Vec::new();
        let shown = Shown { bytes: b"a\r\n+OK\r\n\xff", bytes_max: 7 };
        Reply::new(&mut out, Version::Two).error(format_args!("ERR no '{shown}'"));
        assert_eq!(out, b"-ERR no 'a  +OK '\r\n");
        out.clear();
        let long = "x".repeat(10_000);
        Reply::new(&mut out, Version::Two).error(format_args!("ERR {long}"));
        assert_eq!(out.len(), 1 + ERROR_BYTES_MAX + 2);
    }

    #[test]
    fn the_longest_five_numbers_fit() {
        let mut out = Vec::new();
        Reply::new(&mut out, Version::Two).five([i64::MIN; 5]);
        assert_eq!(out.len(), 4 + 5 * 23);
        assert!(out.starts_with(b"*5\r\n:-9223372036854775808\r\n:"));
    }
}
