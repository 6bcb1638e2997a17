//! Frames of HTTP/2 (RFC 9113, section 6): taken apart, and the few that we send.

use super::super::{ANSWER_BYTES_MAX, Broken};
use super::error::Code;

const HEAD_BYTES: usize = 9;
/// The longest frame that either side may send, as long as nobody allowed it more.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 16_384;

/// Settings by their numbers.
pub(crate) const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
pub(crate) const STREAMS_MAX: u16 = 3;
pub(crate) const STREAM_WINDOW: u16 = 4;

/// What a server may send on a stream, and never hears that it may go on: more than the longest answer.
const STREAM_BYTES: u32 = 2 * ANSWER_BYTES_MAX as u32;
/// All that can be said of a connection's window in one go.
const WINDOW_MORE: u32 = (1 << 31) - 1 - 65_535;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Data,
    Headers,
    Reset,
    Settings,
    Push,
    Ping,
    GoAway,
    WindowUpdate,
    Continuation,
    /// To be ignored, as the standard says.
    Other,
}

impl Kind {
    const NUMBERS: [(u8, Self); 9] = [
        (0, Self::Data),
        (1, Self::Headers),
        (3, Self::Reset),
        (4, Self::Settings),
        (5, Self::Push),
        (6, Self::Ping),
        (7, Self::GoAway),
        (8, Self::WindowUpdate),
        (9, Self::Continuation),
    ];

    fn numbered(number: u8) -> Self {
        let known = Self::NUMBERS.iter().find(|(known, _)| *known == number);
        known.map_or(Self::Other, |(_, kind)| *kind)
    }

    fn number(self) -> u8 {
        let known = Self::NUMBERS.iter().find(|(_, kind)| *kind == self);
        known.map_or(u8::MAX, |(number, _)| *number)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const ACK: Self = Self(1);
    pub(crate) const END_STREAM: Self = Self(1);
    pub(crate) const END_HEADERS: Self = Self(4);
    const PADDED: Self = Self(8);
    const PRIORITY: Self = Self(32);

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }
}

/// A frame that came.
#[derive(Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) kind: Kind,
    pub(crate) flags: Flags,
    pub(crate) stream: u32,
    pub(crate) payload: &'a [u8],
    /// How many bytes it took, its head included.
    pub(crate) bytes: usize,
}

impl<'a> Frame<'a> {
    /// `None` where it is not all there yet.
    pub(crate) fn parse(input: &'a [u8]) -> Result<Option<Self>, Broken> {
        let Some((head, rest)) = input.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let &[high, middle, low, kind, flags, ref stream @ ..] = head;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        if length > PAYLOAD_BYTES_MAX {
            return Err(Broken::Malformed("no frame of HTTP/2, or one that is too long"));
        }
        Ok(rest.get(..length).map(|payload| Self {
            kind: Kind::numbered(kind),
            flags: Flags(flags),
            // The highest bit is reserved.
            stream: u32::from_be_bytes(*stream) & (u32::MAX >> 1),
            payload,
            bytes: HEAD_BYTES + length,
        }))
    }

    /// The number of the request whose stream this is: streams of ours are 1, 3, 5…
    pub(crate) fn request(&self) -> Option<u64> {
        (self.stream % 2 == 1).then(|| u64::from(self.stream / 2))
    }

    /// The payload without padding and priority.
    pub(crate) fn unpadded(&self) -> Result<&'a [u8], Broken> {
        const CUT: Broken = Broken::Malformed("a frame shorter than it says");
        let mut payload = self.payload;
        if self.flags.has(Flags::PADDED) {
            let (padding, rest) = payload.split_first().ok_or(CUT)?;
            let content = rest.len().checked_sub(usize::from(*padding)).ok_or(CUT)?;
            payload = &rest[..content];
        }
        if self.kind == Kind::Headers && self.flags.has(Flags::PRIORITY) {
            payload = payload.get(5..).ok_or(CUT)?;
        }
        Ok(payload)
    }

    /// The number that the payload begins with.
    pub(crate) fn number(&self) -> Result<u32, Broken> {
        let number = self.payload.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
        number.ok_or(Broken::Malformed("a frame shorter than it says"))
    }

    /// The last stream of ours that a server that goes away has taken, and why it goes.
    pub(crate) fn going_away(&self) -> Result<(u32, Code), Broken> {
        let Some((code, _)) = self.payload.get(4..).and_then(<[u8]>::split_first_chunk) else {
            return Err(Broken::Malformed("a frame shorter than it says"));
        };
        Ok((self.number()? & (u32::MAX >> 1), Code(u32::from_be_bytes(*code))))
    }

    pub(crate) fn settings(&self) -> Result<impl Iterator<Item = (u16, u32)>, Broken> {
        let (settings, rest) = self.payload.as_chunks::<6>();
        if !rest.is_empty() {
            return Err(Broken::Malformed("settings of an odd length"));
        }
        Ok(settings.iter().map(|[n, m, a, b, c, d]| {
            (u16::from_be_bytes([*n, *m]), u32::from_be_bytes([*a, *b, *c, *d]))
        }))
    }
}

#[inline]
pub(crate) fn head(length: usize, kind: Kind, flags: Flags, stream: u32, out: &mut Vec<u8>) {
    let [_, a, b, c] = (length as u32).to_be_bytes();
    out.extend_from_slice(&[a, b, c, kind.number(), flags.0]);
    out.extend_from_slice(&stream.to_be_bytes());
}

/// How a client begins. It declines pushes, and a table of headers for answers, so that each answer
/// can be read by itself. No answer needs to be told that it may go on: one that fills its window is
/// too long.
pub(crate) fn preface(out: &mut Vec<u8>) {
    out.extend_from_slice(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    let settings = [(HEADER_TABLE_SIZE, 0), (ENABLE_PUSH, 0), (STREAM_WINDOW, STREAM_BYTES)];
    head(settings.len() * 6, Kind::Settings, Flags::NONE, 0, out);
    for (name, value) in settings {
        out.extend_from_slice(&name.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
    window(WINDOW_MORE, out);
}

pub(crate) fn settings_taken(out: &mut Vec<u8>) {
    head(0, Kind::Settings, Flags::ACK, 0, out);
}

pub(crate) fn pong(payload: &[u8], out: &mut Vec<u8>) {
    head(payload.len(), Kind::Ping, Flags::ACK, 0, out);
    out.extend_from_slice(payload);
}

pub(crate) fn window(more: u32, out: &mut Vec<u8>) {
    head(4, Kind::WindowUpdate, Flags::NONE, 0, out);
    out.extend_from_slice(&more.to_be_bytes());
}
