//! HTTP/2 framed by hand, whatever its streams are about. A load generator asks the same of every stream,
//! so of HTTP/2 it needs frames, windows and a glance at the headers of answers, and it costs a fraction
//! of what a general client would.
//!
//! | file | what it holds |
//! | --- | --- |
//! | [`frame`] | frames: their heads, those that we send |
//! | [`header`] | how headers are written, and those of an answer that matter |
//! | [`error`] | why a server ends a stream or a connection, in words |

pub(crate) mod error;
pub(crate) mod frame;
pub(crate) mod header;

use std::collections::VecDeque;

use self::error::{Code, Lost};
use self::frame::{Flags, Frame, Kind};
use super::Broken;
use crate::bench::tally::Verdict;

/// What HTTP/2 lets either side send before it hears of a window.
const WINDOW_FIRST: i64 = 65_535;
/// Streams that a server takes at once where it does not say.
const STREAMS_UNSAID: usize = 1_000;
/// The last number that a stream of ours can have.
const STREAM_LAST: u64 = (1 << 31) - 1;
/// Once so many bytes came, the server is told that it may send as many again.
const CREDIT_BYTES: u32 = 1 << 24;

/// One connection, on which every request has a body of the same length, or none. `S` is what is kept of
/// an answer while it comes.
#[derive(Clone, Debug)]
pub(crate) struct Connection<S> {
    body_bytes: u32,
    /// Whether the server has said what it takes.
    greeted: bool,
    asked: u64,
    /// Answers that are still to come, from the oldest on; `None` has come.
    streams: VecDeque<Option<S>>,
    /// The number of the first of them.
    first: u64,
    under_way: usize,
    streams_max: usize,
    /// Bytes that the server still takes on this connection.
    window: i64,
    /// The same for each stream when it begins.
    stream_window: i64,
    /// Bytes that came since the server was last told that it may go on.
    uncredited: u32,
    /// The server takes no more requests, and has taken only those before this one.
    taken_before: Option<u64>,
}

/// What came of an answer.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    /// Of the request.
    pub(crate) number: u64,
    pub(crate) content: Content<'a>,
    pub(crate) is_last: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Content<'a> {
    /// Headers or trailers, as HPACK writes them.
    Headers(&'a [u8]),
    Data(&'a [u8]),
    /// There is no answer.
    Lost(Lost),
}

impl<S: Default> Connection<S> {
    pub(crate) fn new(body_bytes: u32) -> Self {
        Self {
            body_bytes,
            greeted: false,
            asked: 0,
            streams: VecDeque::new(),
            first: 0,
            under_way: 0,
            streams_max: STREAMS_UNSAID,
            window: WINDOW_FIRST,
            stream_window: WINDOW_FIRST,
            uncredited: 0,
            taken_before: None,
        }
    }

    /// Forgets the connection before, and begins a new one.
    pub(crate) fn connected(&mut self, out: &mut Vec<u8>) {
        *self = Self::new(self.body_bytes);
        frame::preface(out);
    }

    /// How many requests the server takes beyond those under way.
    pub(crate) fn room(&self) -> usize {
        if !self.greeted || self.is_spent() {
            return 0;
        }
        let by_streams = self.streams_max.saturating_sub(self.under_way);
        match self.window.checked_div(self.body_bytes.into()) {
            Some(by_window) => by_streams.min(usize::try_from(by_window).unwrap_or(0)),
            None => by_streams,
        }
    }

    /// Whether no request of this connection was asked yet: later ones may refer to its headers.
    #[inline]
    pub(crate) fn is_fresh(&self) -> bool {
        self.asked == 0
    }

    /// Begins the next request, and gives the number of its stream.
    #[inline]
    pub(crate) fn begin(&mut self) -> u32 {
        let stream = (self.asked * 2 + 1) as u32;
        self.asked += 1;
        self.under_way += 1;
        self.window -= i64::from(self.body_bytes);
        self.streams.push_back(Some(S::default()));
        stream
    }

    /// What comes next of an answer, taken from the front of `input`; `None` where nothing is there as a
    /// whole. What HTTP/2 wants said in return is appended to `out`.
    pub(crate) fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Part<'a>>, Broken> {
        loop {
            if let Some(number) = self.untaken() {
                let content = Content::Lost(Lost::Untaken);
                return Ok(Some(Part { number, content, is_last: true }));
            }
            let Some(frame) = Frame::parse(input)? else { break };
            if !self.greeted && frame.kind != Kind::Settings {
                return Err(Broken::Malformed("HTTP/2 begins with settings"));
            }
            *input = &input[frame.bytes..];
            if let Some(part) = self.on_frame(&frame, out)? {
                return Ok(Some(part));
            }
        }
        if self.is_spent() && self.under_way == 0 { Err(Broken::GoingAway) } else { Ok(None) }
    }

    /// What is kept of an answer that is still to come.
    pub(crate) fn stream(&mut self, number: u64) -> Result<&mut S, Broken> {
        let place = number.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        let stream = place.and_then(|place| self.streams.get_mut(place));
        stream.and_then(Option::as_mut).ok_or(Broken::Unasked)
    }

    /// An answer has come.
    pub(crate) fn finish(
        &mut self,
        number: u64,
        verdict: Verdict,
        answers: &mut Vec<(u64, Verdict)>,
    ) -> Result<(), Broken> {
        self.stream(number)?;
        self.streams[(number - self.first) as usize] = None;
        self.under_way -= 1;
        answers.push((number, verdict));
        while let Some(None) = self.streams.front() {
            self.streams.pop_front();
            self.first += 1;
        }
        Ok(())
    }

    /// Whether there can be no further request.
    fn is_spent(&self) -> bool {
        self.taken_before.is_some() || self.asked * 2 >= STREAM_LAST
    }

    /// A request that the server will not answer, since it took none so late.
    fn untaken(&self) -> Option<u64> {
        let before = self.taken_before?.max(self.first);
        (before..self.asked).find(|number| self.is_open(*number))
    }

    fn is_open(&self, number: u64) -> bool {
        let place = number.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        place.and_then(|place| self.streams.get(place)).is_some_and(Option::is_some)
    }

    fn on_frame<'a>(
        &mut self,
        frame: &Frame<'a>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Part<'a>>, Broken> {
        match frame.kind {
            Kind::Data => {
                self.credit(frame.payload.len(), out);
                part(frame, Content::Data(frame.unpadded()?)).map(Some)
            }
            Kind::Headers if frame.flags.has(Flags::END_HEADERS) => {
                part(frame, Content::Headers(frame.unpadded()?)).map(Some)
            }
            Kind::Headers | Kind::Continuation => {
                Err(Broken::Malformed("headers in several frames"))
            }
            Kind::Reset => {
                let number = frame.request().ok_or(Broken::Unasked)?;
                // A server that has answered may say that it reads no more of the request.
                let is_answered = number < self.asked && !self.is_open(number);
                let content = Content::Lost(Lost::Reset(Code(frame.number()?)));
                Ok((!is_answered).then_some(Part { number, content, is_last: true }))
            }
            Kind::Settings => self.on_settings(frame, out).map(|()| None),
            Kind::Ping => {
                if !frame.flags.has(Flags::ACK) {
                    frame::pong(frame.payload, out);
                }
                Ok(None)
            }
            Kind::GoAway => self.on_going_away(frame).map(|()| None),
            Kind::WindowUpdate => {
                if frame.stream == 0 {
                    self.window += i64::from(frame.number()? & 0x7fff_ffff);
                }
                Ok(None)
            }
            Kind::Push => Err(Broken::Malformed("a push that was declined")),
            Kind::Other => Ok(None),
        }
    }

    fn on_settings(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), Broken> {
        if frame.flags.has(Flags::ACK) {
            return Ok(());
        }
        for (name, value) in frame.settings()? {
            match name {
                frame::HEADER_TABLE_SIZE if value < header::TABLE_BYTES => {
                    return Err(Broken::Malformed("a server without room for four headers"));
                }
                frame::STREAMS_MAX => self.streams_max = value as usize,
                frame::STREAM_WINDOW => self.stream_window = i64::from(value),
                _ => {}
            }
        }
        if self.stream_window < self.body_bytes.into() {
            return Err(Broken::Malformed("a server without room for one request"));
        }
        self.greeted = true;
        frame::settings_taken(out);
        Ok(())
    }

    /// Where it goes without a reproach, what it has taken is still answered.
    fn on_going_away(&mut self, frame: &Frame<'_>) -> Result<(), Broken> {
        let (stream_last, code) = frame.going_away()?;
        if code != Code::NONE {
            return Err(Broken::SentAway(code));
        }
        self.taken_before = Some(u64::from(stream_last).div_ceil(2));
        Ok(())
    }

    /// Tells the server now and then that it may go on sending.
    fn credit(&mut self, bytes: usize, out: &mut Vec<u8>) {
        self.uncredited += bytes as u32;
        if self.uncredited >= CREDIT_BYTES {
            frame::window(std::mem::take(&mut self.uncredited), out);
        }
    }
}

fn part<'a>(frame: &Frame<'_>, content: Content<'a>) -> Result<Part<'a>, Broken> {
    let number = frame.request().ok_or(Broken::Unasked)?;
    Ok(Part { number, content, is_last: frame.flags.has(Flags::END_STREAM) })
}

#[cfg(test)]
pub(crate) mod tests;
