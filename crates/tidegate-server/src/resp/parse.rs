//! Commands out of bytes: arrays of bulk strings, and lines as people type them.
//!
//! The parser is incremental and copies nothing. It is handed everything from the first byte of a
//! command on, remembers how far it got, and is handed the same bytes and more the next time. It knows
//! no command, answers nothing and reads from nowhere.
//!
//! It is stricter than Redis, which passes over two bytes after each bulk string whatever they are:
//! here they are CR LF, so an array has one spelling.

use std::fmt;
use std::ops::Range;

/// What a command may be at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The most parts of a command, its name included.
    pub parts_max: usize,
    /// The most bytes of one part.
    pub bulk_bytes_max: usize,
    /// The most bytes of a command as it is sent.
    pub command_bytes_max: usize,
    /// The most bytes of a command that is typed as a line.
    pub inline_bytes_max: usize,
}

/// The most parts of a command. A check with as many attributes as rules look at has 67.
pub const PARTS_MAX: usize = 1 << 10;
/// The most bytes of one part.
pub const BULK_BYTES_MAX: usize = 64 << 10;
/// The most bytes of a command, and so the most that is kept of one that is half sent.
pub const COMMAND_BYTES_MAX: usize = 128 << 10;
/// The most bytes of a command that is typed as a line.
pub const INLINE_BYTES_MAX: usize = 64 << 10;
/// The most digits of a length. No number of more fits 64 bits.
const DIGITS_MAX: usize = 19;

impl Bounds {
    /// What somebody may send who has not yet said the password: enough to say it.
    pub const STRANGER: Self = Self {
        parts_max: 10,
        bulk_bytes_max: 16 << 10,
        command_bytes_max: 32 << 10,
        inline_bytes_max: 16 << 10,
    };
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            parts_max: PARTS_MAX,
            bulk_bytes_max: BULK_BYTES_MAX,
            command_bytes_max: COMMAND_BYTES_MAX,
            inline_bytes_max: INLINE_BYTES_MAX,
        }
    }
}

/// Takes commands off the front of bytes.
#[derive(Debug, Default)]
pub struct Parser {
    parts: Vec<Part>,
    /// How many parts are still to come; `None` before the first line is read.
    missing: Option<usize>,
    /// How far the command is read: the start of the next part, or where no end of line was found.
    at: usize,
}

/// Where a part of a command is.
#[derive(Clone, Copy, Debug)]
struct Part {
    start: u32,
    end: u32,
}

/// One command, in the bytes that it came in.
#[derive(Clone, Copy, Debug)]
pub struct Command<'b> {
    bytes: &'b [u8],
    parts: &'b [Part],
    len: usize,
}

/// A command that outlives the bytes that it came in.
#[derive(Clone, Debug)]
pub struct Kept {
    bytes: Box<[u8]>,
    parts: Box<[Part]>,
}

impl Kept {
    /// The command.
    pub fn command(&self) -> Command<'_> {
        Command { bytes: &self.bytes, parts: &self.parts, len: self.bytes.len() }
    }
}

impl Parser {
    /// A parser at the start of a command.
    pub fn new() -> Self {
        Self::default()
    }

    /// The command at the front of `bytes`; `None` where they end before it does. What is skipped
    /// (an empty line, an array of nothing) is a command without parts.
    ///
    /// After `None`, the next call is with the same bytes and what has come since. A line is unquoted
    /// in place, so the bytes of a command are not to be read again.
    ///
    /// # Errors
    ///
    /// Where it cannot be a command. Nothing that follows can be made sense of.
    pub fn next<'p>(
        &'p mut self,
        bytes: &'p mut [u8],
        bounds: &Bounds,
    ) -> Result<Option<Command<'p>>, ProtocolError> {
        let len = match bytes.first() {
            None => return Ok(None),
            Some(b'*') => self.array(bytes, bounds)?,
            Some(_) => self.line(bytes, bounds)?,
        };
        let Some(len) = len else { return Ok(None) };
        (self.missing, self.at) = (None, 0);
        Ok(Some(Command { bytes: &bytes[..len], parts: &self.parts, len }))
    }

    /// Whether a command has been begun and not ended, as far as the parser was told.
    pub fn is_amid(&self) -> bool {
        self.at > 0
    }

    /// Gives back what room an unusually long command took.
    pub fn shrink(&mut self) {
        const PARTS_KEPT: usize = 16;
        if self.parts.capacity() > PARTS_KEPT && !self.is_amid() {
            self.parts = Vec::new();
        }
    }

    /// The length of the array that begins the bytes, its parts noted; `None` where it is half there.
    fn array(&mut self, bytes: &[u8], bounds: &Bounds) -> Result<Option<usize>, ProtocolError> {
        let mut missing = if let Some(missing) = self.missing {
            missing
        } else {
            self.parts.clear();
            let Some((count, end)) = number(bytes, 1, ProtocolError::of_count)? else {
                return Ok(None);
            };
            let count = usize::try_from(count).unwrap_or(0);
            if count > bounds.parts_max {
                return Err(bounds.too_many_parts());
            }
            self.at = end;
            count
        };
        while missing > 0 {
            let Some(part) = bulk(bytes, self.at, bounds)? else {
                self.missing = Some(missing);
                return Ok(None);
            };
            self.parts.push(Part { start: part.start as u32, end: part.end as u32 });
            self.at = part.end + 2;
            missing -= 1;
        }
        Ok(Some(self.at))
    }

    /// The same for a line, which is taken apart into words.
    fn line(&mut self, bytes: &mut [u8], bounds: &Bounds) -> Result<Option<usize>, ProtocolError> {
        let end = bytes[self.at..].iter().position(|byte| *byte == b'\n').map(|end| end + self.at);
        if end.unwrap_or(bytes.len()) > bounds.inline_bytes_max {
            return Err(ProtocolError::InlineTooBig);
        }
        let Some(end) = end else {
            self.at = bytes.len();
            return Ok(None);
        };
        let text = bytes[..end].strip_suffix(b"\r").map_or(end, <[u8]>::len);
        self.parts.clear();
        words(&mut bytes[..text], &mut self.parts)?;
        if self.parts.len() > bounds.parts_max {
            return Err(ProtocolError::InlineTooBig);
        }
        Ok(Some(end + 1))
    }
}

impl Bounds {
    fn too_many_parts(&self) -> ProtocolError {
        if *self == Self::STRANGER { ProtocolError::StrangersCount } else { ProtocolError::Count }
    }

    fn too_long_bulk(&self) -> ProtocolError {
        if *self == Self::STRANGER { ProtocolError::StrangersBulk } else { ProtocolError::Bulk }
    }
}

/// Where the bulk string that begins at `at` has its bytes; `None` where not all of them are there.
#[inline]
fn bulk(bytes: &[u8], at: usize, bounds: &Bounds) -> Result<Option<Range<usize>>, ProtocolError> {
    match bytes.get(at) {
        None => return Ok(None),
        Some(b'$') => {}
        Some(&other) => return Err(ProtocolError::NotABulk { got: other }),
    }
    let Some((len, start)) = number(bytes, at + 1, ProtocolError::of_bulk)? else {
        return Ok(None);
    };
    let len = usize::try_from(len).map_err(|_| ProtocolError::Bulk)?;
    if len > bounds.bulk_bytes_max {
        return Err(bounds.too_long_bulk());
    }
    let end = start + len;
    if end + 2 > bounds.command_bytes_max {
        return Err(ProtocolError::CommandTooBig);
    }
    match bytes.get(end..) {
        Some([b'\r', b'\n', ..]) => Ok(Some(start..end)),
        None | Some([] | [b'\r']) => Ok(None),
        Some(_) => Err(ProtocolError::BulkNotEnded),
    }
}

/// The number in the line that begins at `at`, and where the next line begins; `None` where the line
/// is half there. A number has one spelling: no `+`, no zeros in front.
#[inline]
fn number(
    bytes: &[u8],
    at: usize,
    error: fn(Fault) -> ProtocolError,
) -> Result<Option<(i64, usize)>, ProtocolError> {
    let digits_at = at + usize::from(bytes.get(at) == Some(&b'-'));
    let mut value: i64 = 0;
    let mut end = digits_at;
    let after = loop {
        match bytes.get(end) {
            None => return Ok(None),
            Some(&digit) if digit.is_ascii_digit() => {
                if end - digits_at == DIGITS_MAX {
                    return Err(error(Fault::TooBig));
                }
                let digit = i64::from(digit - b'0');
                value = value
                    .checked_mul(10)
                    .and_then(|value| value.checked_add(digit))
                    .ok_or_else(|| error(Fault::Invalid))?;
                end += 1;
            }
            Some(&after) => break after,
        }
    };
    let digits = &bytes[digits_at..end];
    let is_negative = digits_at > at;
    let one_spelling = match digits {
        [b'0'] => !is_negative,
        [] | [b'0', ..] => false,
        [_, ..] => true,
    };
    if after != b'\r' || !one_spelling {
        return Err(error(Fault::Invalid));
    }
    match bytes.get(end + 1) {
        None => Ok(None),
        Some(b'\n') => Ok(Some((if is_negative { -value } else { value }, end + 2))),
        Some(_) => Err(error(Fault::Invalid)),
    }
}

/// Takes a line apart at its spaces. A word may be quoted, in whole or in part: within `"` the escapes
/// `\n`, `\r`, `\t`, `\b`, `\a` and `\xHH` are undone, within `'` only `\'`. What is undone is written
/// over the line itself, of which it is never more.
fn words(line: &mut [u8], parts: &mut Vec<Part>) -> Result<(), ProtocolError> {
    let mut read = 0;
    loop {
        while line.get(read).is_some_and(|byte| is_space(*byte)) {
            read += 1;
        }
        if read == line.len() {
            return Ok(());
        }
        let start = read;
        let mut write = read;
        while let Some(&byte) = line.get(read).filter(|byte| !is_space(**byte)) {
            if matches!(byte, b'"' | b'\'') {
                (read, write) = unquote(line, read, write)?;
            } else {
                line[write] = byte;
                (read, write) = (read + 1, write + 1);
            }
        }
        parts.push(Part { start: start as u32, end: write as u32 });
    }
}

/// Undoes the quotes that begin at `read`, and says where reading and writing go on.
fn unquote(
    line: &mut [u8],
    read: usize,
    mut write: usize,
) -> Result<(usize, usize), ProtocolError> {
    let quote = line[read];
    let mut read = read + 1;
    loop {
        let (byte, len) = match &line[read..] {
            [] => return Err(ProtocolError::Quotes),
            [end, rest @ ..] if *end == quote => {
                // What follows a closing quote begins another word, or the line is a mistake.
                let is_ended = rest.first().is_none_or(|next| is_space(*next));
                return if is_ended { Ok((read + 1, write)) } else { Err(ProtocolError::Quotes) };
            }
            [b'\\', b'\'', ..] if quote == b'\'' => (b'\'', 2),
            [b'\\', b'x', high, low, ..] if quote == b'"' => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, 4),
                _ => (b'x', 2),
            },
            [b'\\', escaped, ..] if quote == b'"' => (unescaped(*escaped), 2),
            [byte, ..] => (*byte, 1),
        };
        line[write] = byte;
        (read, write) = (read + len, write + 1);
    }
}

fn unescaped(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

fn is_space(byte: u8) -> bool {
    // What C calls a space: a vertical tab too.
    byte.is_ascii_whitespace() || byte == 0x0b
}

impl<'b> Command<'b> {
    /// How many parts it has, its name included; 0 is a command to skip.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// A part: 0 is the name. `None` beyond the last.
    #[inline]
    pub fn part(&self, index: usize) -> Option<&'b [u8]> {
        let part = self.parts.get(index)?;
        self.bytes.get(part.start as usize..part.end as usize)
    }

    /// The parts from `first` on.
    pub fn parts_from(&self, first: usize) -> impl ExactSizeIterator<Item = &'b [u8]> + use<'b> {
        let bytes = self.bytes;
        let parts = self.parts.get(first..).unwrap_or_default();
        parts.iter().map(move |part| &bytes[part.start as usize..part.end as usize])
    }

    /// The same without the bytes that it came in.
    pub fn kept(&self) -> Kept {
        Kept { bytes: self.bytes.into(), parts: self.parts.into() }
    }

    /// How many bytes it took, to go on after them.
    pub fn bytes(&self) -> usize {
        self.len
    }
}

/// Why bytes are no command. The connection ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The number of parts is not a number, or more than may be.
    Count,
    /// The number of parts has too many digits.
    CountTooBig,
    /// More parts than somebody may send who has not said the password.
    StrangersCount,
    /// A part that does not begin with `$`.
    NotABulk {
        /// What stands there.
        got: u8,
    },
    /// The length of a part is not a number, or more than may be.
    Bulk,
    /// The length of a part has too many digits.
    BulkTooBig,
    /// A longer part than somebody may send who has not said the password.
    StrangersBulk,
    /// A part that goes on after its length.
    BulkNotEnded,
    /// The parts together are more than may be.
    CommandTooBig,
    /// A line that is longer than may be, or has more words.
    InlineTooBig,
    /// Quotes that do not end, or not at the end of a word.
    Quotes,
}

/// What is wrong with a number.
#[derive(Clone, Copy)]
enum Fault {
    Invalid,
    TooBig,
}

impl ProtocolError {
    fn of_count(fault: Fault) -> Self {
        match fault {
            Fault::Invalid => Self::Count,
            Fault::TooBig => Self::CountTooBig,
        }
    }

    fn of_bulk(fault: Fault) -> Self {
        match fault {
            Fault::Invalid => Self::Bulk,
            Fault::TooBig => Self::BulkTooBig,
        }
    }
}

/// In the words of Redis, where Redis has words for it.
impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Count => "invalid multibulk length",
            Self::CountTooBig => "too big mbulk count string",
            Self::StrangersCount => "unauthenticated multibulk length",
            Self::NotABulk { got } => {
                let shown = if got.is_ascii_graphic() { char::from(*got) } else { ' ' };
                return write!(f, "expected '$', got '{shown}'");
            }
            Self::Bulk => "invalid bulk length",
            Self::BulkTooBig => "too big bulk count string",
            Self::StrangersBulk => "unauthenticated bulk length",
            Self::BulkNotEnded => "expected CRLF after bulk",
            Self::CommandTooBig => "too big request",
            Self::InlineTooBig => "too big inline request",
            Self::Quotes => "unbalanced quotes in request",
        })
    }
}

impl std::error::Error for ProtocolError {}
