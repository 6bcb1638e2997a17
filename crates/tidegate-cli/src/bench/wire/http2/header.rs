//! Headers of HTTP/2 (HPACK, RFC 7541): how those of our requests are written, and of an answer the two
//! that say whether it went well. The table of headers for answers was declined, so an answer refers
//! to the fixed table alone and names everything else in full.

use super::super::Broken;

/// What the server's table must hold for [`KEPT`]: four headers, with what HPACK adds to each.
pub(crate) const TABLE_BYTES: u32 = 512;

/// Headers of the fixed table, whole.
pub(crate) const METHOD_GET: u8 = 0x82;
pub(crate) const METHOD_POST: u8 = 0x83;
pub(crate) const SCHEME_HTTP: u8 = 0x86;
/// Names of the fixed table, whose header is to be kept in the other one.
pub(crate) const PATH_KEPT: u8 = 0x44;
pub(crate) const AUTHORITY_KEPT: u8 = 0x41;
pub(crate) const CONTENT_TYPE_KEPT: u8 = 0x5f;
pub(crate) const CONTENT_LENGTH_KEPT: u8 = 0x5c;
/// A header to be kept whose name is in no table.
pub(crate) const NEW_KEPT: u8 = 0x40;
/// A path that is not to be kept.
pub(crate) const PATH: u8 = 0x04;
/// The headers that were kept, from the last one back.
pub(crate) const KEPT: [u8; 4] = [0xbe, 0xbf, 0xc0, 0xc1];

/// A header whose name is in the fixed table.
pub(crate) fn named(name: u8, value: &str, out: &mut Vec<u8>) {
    out.push(name);
    text(value, value.len(), out);
}

/// Text as it is, without Huffman's code, and how long it will be once keys stand in it.
pub(crate) fn text(value: &str, length: usize, out: &mut Vec<u8>) {
    if length < 127 {
        out.push(length as u8);
    } else {
        out.push(127);
        let mut rest = length - 127;
        while rest >= 128 {
            out.push((rest % 128) as u8 | 0x80);
            rest /= 128;
        }
        out.push(rest as u8);
    }
    out.extend_from_slice(value.as_bytes());
}

/// What matters of the headers or trailers of an answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Headers {
    pub(crate) status: Option<u32>,
    pub(crate) grpc_status: Option<u32>,
}

/// `:status` in the fixed table, from 8 on.
const STATUSES: [u32; 7] = [200, 204, 206, 304, 400, 404, 500];
const STATUS_FIRST: usize = 8;
const FIXED_LAST: usize = 61;

/// `grpc-status`, plain and in Huffman's code.
const GRPC_STATUS: &[u8] = b"grpc-status";
const GRPC_STATUS_CODED: &[u8] = &[0x9a, 0xca, 0xc8, 0xb2, 0x12, 0x34, 0xda, 0x8f];

impl Headers {
    pub(crate) fn parse(block: &[u8]) -> Result<Self, Broken> {
        Self::parse_until(block, |_| false)
    }

    /// The status of an answer, which stands before everything else, and nothing after it.
    pub(crate) fn status(block: &[u8]) -> Result<Option<u32>, Broken> {
        Self::parse_until(block, |headers| headers.status.is_some()).map(|headers| headers.status)
    }

    #[inline]
    fn parse_until(block: &[u8], is_enough: impl Fn(&Self) -> bool) -> Result<Self, Broken> {
        let mut headers = Self::default();
        let mut reader = Reader { block };
        while let Some(&first) = reader.block.first() {
            if is_enough(&headers) {
                break;
            }
            match first {
                // A header of the fixed table, name and value.
                0x80.. => {
                    let index = reader.index(7)?;
                    if let Some(&status) =
                        index.checked_sub(STATUS_FIRST).and_then(|n| STATUSES.get(n))
                    {
                        headers.status = Some(status);
                    }
                }
                // A new size of the table, which there is none of.
                0x20..=0x3f => _ = reader.number(5)?,
                // A header in full, to be kept or not.
                0x40..=0x7f => headers.literal(&mut reader, 6)?,
                0x00..=0x1f => headers.literal(&mut reader, 4)?,
            }
        }
        Ok(headers)
    }

    fn literal(&mut self, reader: &mut Reader<'_>, prefix_bits: u32) -> Result<(), Broken> {
        let index = reader.index(prefix_bits)?;
        let is_status = (STATUS_FIRST..STATUS_FIRST + STATUSES.len()).contains(&index);
        let mut is_grpc_status = false;
        if index == 0 {
            let (coded, name) = reader.text()?;
            is_grpc_status = name == if coded { GRPC_STATUS_CODED } else { GRPC_STATUS };
        }
        let (coded, value) = reader.text()?;
        if is_status {
            self.status = Some(digits(coded, value)?);
        } else if is_grpc_status {
            self.grpc_status = Some(digits(coded, value)?);
        }
        Ok(())
    }
}

struct Reader<'a> {
    block: &'a [u8],
}

const CUT: Broken = Broken::Malformed("headers that end too early");

impl<'a> Reader<'a> {
    /// A number in the last bits of a byte, and in as many more as it takes.
    fn number(&mut self, prefix_bits: u32) -> Result<usize, Broken> {
        /// Bytes after the first: enough for any length that is not refused.
        const MORE_MAX: u32 = 3;
        let (first, mut rest) = self.block.split_first().ok_or(CUT)?;
        let full = (1_usize << prefix_bits) - 1;
        let mut number = usize::from(*first) & full;
        if number == full {
            for place in 0.. {
                let (byte, after) = rest.split_first().ok_or(CUT)?;
                rest = after;
                number += usize::from(byte & 0x7f) << (7 * place);
                if byte & 0x80 == 0 {
                    break;
                }
                if place + 1 == MORE_MAX {
                    return Err(Broken::Malformed("headers with too large a number"));
                }
            }
        }
        self.block = rest;
        Ok(number)
    }

    /// A place in the fixed table, or 0.
    fn index(&mut self, prefix_bits: u32) -> Result<usize, Broken> {
        match self.number(prefix_bits)? {
            index @ 0..=FIXED_LAST => Ok(index),
            _ => Err(Broken::Malformed("headers from a table that was declined")),
        }
    }

    /// Text, and whether it is in Huffman's code.
    fn text(&mut self) -> Result<(bool, &'a [u8]), Broken> {
        let coded = self.block.first().ok_or(CUT)? & 0x80 != 0;
        let length = self.number(7)?;
        let (text, rest) = self.block.split_at_checked(length).ok_or(CUT)?;
        self.block = rest;
        Ok((coded, text))
    }
}

/// A number of a few digits.
fn digits(coded: bool, text: &[u8]) -> Result<u32, Broken> {
    const NOT_A_NUMBER: Broken = Broken::Malformed("a status that is no number");
    if !coded {
        let text = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        return text.ok_or(NOT_A_NUMBER);
    }
    // In Huffman's code 0, 1 and 2 are the five bits of that number, and 3 to 9 the six bits of 25
    // to 31. What is left at the end are ones.
    let (mut bits, mut left) = (0_u64, text.len() * 8);
    if text.len() > 4 {
        return Err(NOT_A_NUMBER);
    }
    for byte in text {
        bits = bits << 8 | u64::from(*byte);
    }
    let mut number = 0;
    loop {
        let padding = (1 << left) - 1;
        if left < 8 && bits & padding == padding {
            return Ok(number);
        }
        let (length, offset) =
            if left >= 5 && bits >> (left - 5) & 0x1f <= 2 { (5, 0) } else { (6, 22) };
        left = left.checked_sub(length).ok_or(NOT_A_NUMBER)?;
        let digit = (bits >> left & ((1 << length) - 1)).checked_sub(offset);
        let digit = digit.filter(|digit| *digit <= 9).ok_or(NOT_A_NUMBER)?;
        number = number * 10 + digit as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(block: &[u8]) -> Headers {
        Headers::parse(block).unwrap()
    }

    #[test]
    fn statuses_are_read_in_every_spelling() {
        let status = |block: &[u8]| {
            assert_eq!(Headers::status(block).unwrap(), parsed(block).status);
            parsed(block).status
        };
        assert_eq!(status(&[0x88]), Some(200));
        assert_eq!(status(&[0x3f, 0xe1, 0x1f, 0x8d]), Some(404));
        assert_eq!(status(b"\x08\x03429"), Some(429));
        // 429 in Huffman's code: 011010 00010 011111, then ones.
        assert_eq!(status(&[0x48, 0x83, 0b0110_1000, 0b0100_1111, 0b1111_1111]), Some(429));
    }

    #[test]
    fn what_follows_a_status_is_not_looked_at_where_only_that_matters() {
        assert_eq!(Headers::status(&[0x88, 0xbe]).unwrap(), Some(200));
        assert!(Headers::parse(&[0x88, 0xbe]).is_err());
        assert_eq!(Headers::status(b"\x00\x01a\x01b").unwrap(), None);
    }

    #[test]
    fn the_status_of_a_call_is_read_in_every_spelling() {
        let plain = b"\x00\x0bgrpc-status\x0214";
        assert_eq!(parsed(plain).grpc_status, Some(14));
        let mut coded = vec![0x40, 0x88];
        coded.extend_from_slice(GRPC_STATUS_CODED);
        for (value, expected) in [(&[0x81, 0x07][..], 0), (&[0x82, 0x0b, 0x5f], 14)] {
            let block = [&coded, value].concat();
            assert_eq!(parsed(&block).grpc_status, Some(expected));
        }
        let other = b"\x00\x0cgrpc-message\x040000";
        assert_eq!(parsed(other), Headers::default());
    }

    #[test]
    fn headers_that_cannot_be_are_refused() {
        for block in
            [&[0xff_u8, 0x80][..], &[0xbe], &[0x00, 0x05, b'a'], &[0x08, 0x01, b'x'], &[0x08]]
        {
            assert!(Headers::parse(block).is_err(), "{block:?}");
        }
        assert!(Headers::parse(&[0x08, 0x81, 0xff]).is_err());
        assert!(Headers::parse(&[0x08, 0x81, 0x00]).is_err());
    }

    #[test]
    fn long_text_says_its_length_in_several_bytes() {
        let mut out = Vec::new();
        text(&"a".repeat(300), 300, &mut out);
        assert_eq!(out[..3], [127, 0xad, 0x01]);
        let mut reader = Reader { block: &out };
        assert_eq!(reader.text().unwrap().1.len(), 300);
    }
}
