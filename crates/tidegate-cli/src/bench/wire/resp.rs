//! The protocol of Redis, version 2, framed by hand. Any command with a key can be sent; a reply of
//! several values is read as `CL.THROTTLE` or `TG.CHECK` answer it.

use std::fmt::Write as _;

use memchr::memchr;

use super::template::{Template, filled};
use super::{ANSWER_BYTES_MAX, Broken, Wire};
use crate::bench::keys::Key;
use crate::bench::tally::Verdict;
use crate::output::printable;

/// One command, again and again.
#[derive(Clone, Debug)]
pub(crate) struct Resp {
    command: Template,
    /// The first of several integers that denies.
    denies: i64,
    answered: u64,
}

impl Resp {
    /// A command in words, such as `CL.THROTTLE {key} 9 10 60`.
    pub(crate) fn new(command: &str) -> Self {
        let words: Vec<&str> = command.split_whitespace().collect();
        // As redis-cell answers `CL.THROTTLE`; throttlecrab's `THROTTLE` answers the other way round.
        let denies =
            i64::from(!words.first().is_some_and(|name| name.eq_ignore_ascii_case("throttle")));
        let mut text = format!("*{}\r\n", words.len());
        for word in words {
            // Writing to a string cannot fail.
            let _ = write!(text, "${}\r\n{word}\r\n", filled(word).len());
        }
        Self { command: Template::new(&text), denies, answered: 0 }
    }
}

impl Wire for Resp {
    fn connected(&mut self, _out: &mut Vec<u8>) {
        self.answered = 0;
    }

    fn room(&self) -> usize {
        usize::MAX
    }

    #[inline]
    fn ask(&mut self, key: &Key, out: &mut Vec<u8>) {
        self.command.write(key, out);
    }

    fn read(
        &mut self,
        input: &[u8],
        _out: &mut Vec<u8>,
        answers: &mut Vec<(u64, Verdict)>,
    ) -> Result<usize, Broken> {
        let mut read = 0;
        while let Some((verdict, bytes)) = reply(&input[read..], self.denies)? {
            answers.push((self.answered, verdict));
            self.answered += 1;
            read += bytes;
        }
        if input.len() - read > ANSWER_BYTES_MAX {
            return Err(Broken::TooLong);
        }
        Ok(read)
    }
}

/// How deep arrays may stand in arrays.
const DEPTH_MAX: u32 = 8;

/// One reply and its length; `None` where it is not all there yet.
fn reply(input: &[u8], denies: i64) -> Result<Option<(Verdict, usize)>, Broken> {
    let mut reader = Reader { input, at: 0 };
    let Some(first) = reader.item()? else { return Ok(None) };
    let verdict = match first {
        Item::Error(text) => failed(text),
        Item::Array(0) | Item::Integer(_) | Item::Text(_) => Verdict::Allowed,
        Item::Array(items) => {
            let Some(verdict) = verdict_of_array(&mut reader, items, denies)? else {
                return Ok(None);
            };
            verdict
        }
    };
    Ok(Some((verdict, reader.at)))
}

/// Of an array with so many items, of which there is one at least.
fn verdict_of_array(
    reader: &mut Reader<'_>,
    items: usize,
    denies: i64,
) -> Result<Option<Verdict>, Broken> {
    let Some(head) = reader.item()? else { return Ok(None) };
    let (mut rest, mut nested) = (items - 1, 0);
    let verdict = match head {
        // Integers alone, of which the first says it.
        Item::Integer(first) if first == denies => Verdict::Denied,
        // `TG.CHECK`, names and values in turn: 1 allows, 0 denies.
        Item::Text(b"allowed") if rest > 0 => {
            let Some(value) = reader.item()? else { return Ok(None) };
            rest -= 1;
            match value {
                Item::Integer(0) => Verdict::Denied,
                Item::Integer(_) => Verdict::Allowed,
                _ => return Err(Broken::Malformed("`allowed` without an integer")),
            }
        }
        Item::Integer(_) | Item::Text(_) => Verdict::Allowed,
        Item::Error(text) => failed(text),
        Item::Array(items) => {
            nested = items;
            Verdict::Allowed
        }
    };
    let is_whole = reader.skip(nested, 2)? && reader.skip(rest, 1)?;
    Ok(is_whole.then_some(verdict))
}

fn failed(text: &[u8]) -> Verdict {
    Verdict::Failed(format!("the server answered: {}", printable(&String::from_utf8_lossy(text))))
}

/// The beginning of a reply: all of it, or for an array how many follow.
enum Item<'a> {
    Integer(i64),
    /// Text; empty where there is nothing at all.
    Text(&'a [u8]),
    Error(&'a [u8]),
    Array(usize),
}

struct Reader<'a> {
    input: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// `None` where it is not all there yet.
    fn item(&mut self) -> Result<Option<Item<'a>>, Broken> {
        let Some(end) = memchr(b'\n', &self.input[self.at..]) else { return Ok(None) };
        let line = self.input[self.at..self.at + end].strip_suffix(b"\r");
        let Some((kind, rest)) = line.and_then(<[u8]>::split_first) else {
            return Err(Broken::Malformed("a reply that is no line"));
        };
        let after = self.at + end + 1;
        let item = match kind {
            b':' => Item::Integer(integer(rest)?),
            b'+' => Item::Text(rest),
            b'-' => Item::Error(rest),
            b'*' => Item::Array(length(rest)?.unwrap_or(0)),
            b'$' => {
                if let Some(bytes) = length(rest)? {
                    let end = after + bytes + 2;
                    match self.input.get(end - 2..end) {
                        None => return Ok(None),
                        Some(b"\r\n") => self.at = end,
                        Some(_) => return Err(Broken::Malformed("text longer than it says")),
                    }
                    return Ok(Some(Item::Text(&self.input[after..end - 2])));
                }
                Item::Text(b"")
            }
            _ => return Err(Broken::Malformed("no reply of Redis")),
        };
        self.at = after;
        Ok(Some(item))
    }

    /// Whether so many items were all there.
    fn skip(&mut self, count: usize, depth: u32) -> Result<bool, Broken> {
        if depth > DEPTH_MAX {
            return Err(Broken::Malformed("arrays in arrays in arrays"));
        }
        for _ in 0..count {
            match self.item()? {
                None => return Ok(false),
                Some(Item::Array(nested)) if !self.skip(nested, depth + 1)? => return Ok(false),
                Some(_) => {}
            }
        }
        Ok(true)
    }
}

#[inline]
fn integer(digits: &[u8]) -> Result<i64, Broken> {
    let text = std::str::from_utf8(digits).ok();
    text.and_then(|text| text.parse().ok()).ok_or(Broken::Malformed("a number that is none"))
}

/// `None` for -1, which says that there is nothing.
fn length(digits: &[u8]) -> Result<Option<usize>, Broken> {
    match integer(digits)? {
        -1 => Ok(None),
        number => match usize::try_from(number) {
            Ok(number) if number <= ANSWER_BYTES_MAX => Ok(Some(number)),
            Ok(_) => Err(Broken::TooLong),
            Err(_) => Err(Broken::Malformed("a length below zero")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &[u8]) -> (Result<usize, Broken>, Vec<(u64, Verdict)>) {
        let mut answers = Vec::new();
        let read = Resp::new("PING").read(input, &mut Vec::new(), &mut answers);
        (read, answers)
    }

    #[test]
    fn a_command_is_an_array_of_its_words() {
        let mut out = Vec::new();
        Resp::new("CL.THROTTLE {key} 9 10 60").ask(b"key:000000000007", &mut out);
        let expected = b"*5\r\n$11\r\nCL.THROTTLE\r\n$16\r\nkey:000000000007\r\n$1\r\n9\r\n\
                         $2\r\n10\r\n$2\r\n60\r\n";
        assert_eq!(out, expected);
    }

    #[test]
    fn replies_are_read_wherever_the_bytes_are_cut() {
        let input = b"*5\r\n:0\r\n:10\r\n:9\r\n:-1\r\n:6\r\n*5\r\n:1\r\n:10\r\n:0\r\n:6\r\n:60\r\n\
                      :1\r\n+OK\r\n$-1\r\n$2\r\nab\r\n-ERR no\r\n*2\r\n*1\r\n:1\r\n$1\r\nx\r\n\
                      *4\r\n$7\r\nallowed\r\n:0\r\n$4\r\nrule\r\n$-1\r\n";
        let expected = [
            Verdict::Allowed,
            Verdict::Denied,
            Verdict::Allowed,
            Verdict::Allowed,
            Verdict::Allowed,
            Verdict::Allowed,
            Verdict::Failed("the server answered: ERR no".into()),
            Verdict::Allowed,
            Verdict::Denied,
        ];
        for cut in 0..input.len() {
            let mut resp = Resp::new("PING");
            let mut answers = Vec::new();
            let first = resp.read(&input[..cut], &mut Vec::new(), &mut answers).unwrap();
            let second = resp.read(&input[first..], &mut Vec::new(), &mut answers).unwrap();
            assert_eq!(first + second, input.len(), "cut at {cut}");
            let (numbers, verdicts): (Vec<u64>, Vec<Verdict>) = answers.into_iter().unzip();
            assert_eq!(verdicts, expected, "cut at {cut}");
            assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
        }
    }

    #[test]
    fn one_allows_where_throttlecrab_is_asked() {
        let mut answers = Vec::new();
        let mut resp = Resp::new("THROTTLE {key} 9 10 60");
        let input = b"*2\r\n:1\r\n:10\r\n*2\r\n:0\r\n:10\r\n";
        resp.read(input, &mut Vec::new(), &mut answers).unwrap();
        assert_eq!(answers, [(0, Verdict::Allowed), (1, Verdict::Denied)]);
    }

    #[test]
    fn what_is_not_understood_breaks_the_connection() {
        for (input, what) in [
            (&b"HTTP/1.1 400 Bad Request\r\n"[..], "no reply of Redis"),
            (b":1\n", "a reply that is no line"),
            (b"\r\n", "a reply that is no line"),
            (b":one\r\n", "a number that is none"),
            (b"$-2\r\n", "a length below zero"),
            (b"$1\r\nabc\r\n", "text longer than it says"),
        ] {
            assert_eq!(read(input).0, Err(Broken::Malformed(what)), "{input:?}");
        }
        assert_eq!(read(b"$99999999\r\n").0, Err(Broken::TooLong));
        let deep = "*1\r\n".repeat(100);
        assert!(matches!(read(deep.as_bytes()).0, Err(Broken::Malformed(_))));
    }
}
