//! gRPC over HTTP/2, framed by hand. A load generator asks the same of every stream, so of HTTP/2 it
//! needs frames, windows and a glance at the headers of answers, and it costs a fraction of what a
//! general client would.
//!
//! | file | what it holds |
//! | --- | --- |
//! | [`frame`] | frames: their heads, those that we send |
//! | [`header`] | the two headers of an answer that matter |
//! | [`message`] | requests and answers of the services |

mod frame;
mod header;
mod message;

use std::collections::VecDeque;

use self::frame::{Flags, Frame, Kind};
use self::header::Headers;
pub(crate) use self::message::Service;
use super::template::Template;
use super::{ANSWER_BYTES_MAX, Broken, Wire};
use crate::bench::keys::Key;
use crate::bench::tally::Verdict;

/// What HTTP/2 lets either side send before it hears of a window.
const WINDOW_FIRST: i64 = 65_535;
/// Streams that a server takes at once where it does not say.
const STREAMS_UNSAID: usize = 1_000;
/// The last number that a stream of ours can have.
const STREAM_LAST: u64 = (1 << 31) - 1;
/// Once so many bytes came, the server is told that it may send as many again.
const CREDIT_BYTES: u32 = 1 << 24;

/// Calls of one method.
#[derive(Clone, Debug)]
pub(crate) struct Grpc {
    service: Service,
    /// The headers of a connection's first request, which name everything, and of all others, which
    /// refer to those.
    first_headers: Vec<u8>,
    headers: &'static [u8],
    /// The length of a message and the message.
    body: Template,
    body_bytes: u32,
    connection: Connection,
}

/// What is known of a connection.
#[derive(Clone, Debug, Default)]
struct Connection {
    /// Whether the server has said what it takes.
    greeted: bool,
    asked: u64,
    /// Answers that are still to come, from the oldest on.
    streams: VecDeque<Stream>,
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
    going_away: bool,
}

/// An answer as far as it came.
#[derive(Clone, Debug, Default)]
struct Stream {
    is_done: bool,
    has_headers: bool,
    verdict: Option<Verdict>,
    /// The beginning of a message that came in several pieces.
    body: Vec<u8>,
}

impl Grpc {
    pub(crate) fn new(authority: &str, service: Service) -> Self {
        let message = service.message();
        let mut body = vec![0];
        // Messages are some dozens of bytes.
        body.extend_from_slice(&(message.len() as u32).to_be_bytes());
        body.extend_from_slice(&message);
        Self {
            first_headers: header::first(service.path(), authority),
            headers: header::LATER,
            body_bytes: body.len() as u32,
            body: Template::around_key(&body),
            service,
            connection: Connection::default(),
        }
    }

    fn on_frame(
        &mut self,
        frame: &Frame<'_>,
        out: &mut Vec<u8>,
        answers: &mut Vec<(u64, Verdict)>,
    ) -> Result<(), Broken> {
        match frame.kind {
            Kind::Data => {
                self.connection.credit(frame.payload.len(), out);
                self.on_data(frame, answers)
            }
            Kind::Headers => self.on_headers(frame, answers),
            Kind::Reset => {
                let number = frame.request().ok_or(Broken::Unasked)?;
                let verdict = Verdict::Failed("the server cut a call off".to_owned());
                self.connection.finish(number, verdict, answers)
            }
            Kind::Settings => self.connection.on_settings(frame, self.body_bytes, out),
            Kind::Ping => {
                if !frame.flags.has(Flags::ACK) {
                    frame::pong(frame.payload, out);
                }
                Ok(())
            }
            Kind::GoAway => {
                self.connection.going_away = true;
                Ok(())
            }
            Kind::WindowUpdate => {
                if frame.stream == 0 {
                    self.connection.window += i64::from(frame.number()? & 0x7fff_ffff);
                }
                Ok(())
            }
            Kind::Push => Err(Broken::Malformed("a push that was declined")),
            Kind::Continuation => Err(Broken::Malformed("headers in several frames")),
            Kind::Other => Ok(()),
        }
    }

    fn on_data(
        &mut self,
        frame: &Frame<'_>,
        answers: &mut Vec<(u64, Verdict)>,
    ) -> Result<(), Broken> {
        let number = frame.request().ok_or(Broken::Unasked)?;
        let content = frame.unpadded()?;
        let stream = self.connection.stream(number)?;
        if stream.body.is_empty() && stream.verdict.is_none() {
            // Nearly always all of the message comes in one frame, and nothing need be kept.
            stream.verdict = whole_message(content).map(|message| self.service.verdict(message));
        }
        if stream.verdict.is_none() {
            stream.body.extend_from_slice(content);
            if stream.body.len() > ANSWER_BYTES_MAX {
                return Err(Broken::TooLong);
            }
            stream.verdict =
                whole_message(&stream.body).map(|message| self.service.verdict(message));
        }
        if frame.flags.has(Flags::END_STREAM) {
            let verdict = Verdict::Failed("a call ended without a status".to_owned());
            return self.connection.finish(number, verdict, answers);
        }
        Ok(())
    }

    fn on_headers(
        &mut self,
        frame: &Frame<'_>,
        answers: &mut Vec<(u64, Verdict)>,
    ) -> Result<(), Broken> {
        if !frame.flags.has(Flags::END_HEADERS) {
            return Err(Broken::Malformed("headers in several frames"));
        }
        let number = frame.request().ok_or(Broken::Unasked)?;
        let headers = Headers::parse(frame.unpadded()?)?;
        let stream = self.connection.stream(number)?;
        if !std::mem::replace(&mut stream.has_headers, true) {
            match headers.status {
                Some(200) => {}
                Some(status) => {
                    let text = format!("the server answered with HTTP status {status}");
                    stream.verdict = Some(Verdict::Failed(text));
                }
                None => return Err(Broken::Malformed("an answer without a status")),
            }
        }
        if !frame.flags.has(Flags::END_STREAM) {
            return Ok(());
        }
        let given = stream.verdict.take();
        let verdict = match (headers.grpc_status, given) {
            (_, Some(failed @ Verdict::Failed(_))) => failed,
            (Some(0), Some(verdict)) => verdict,
            (Some(0), None) => Verdict::Failed("a call was answered without a message".to_owned()),
            (Some(status), _) => Verdict::Failed(format!("a call ended with gRPC status {status}")),
            (None, _) => Verdict::Failed("a call ended without a status".to_owned()),
        };
        self.connection.finish(number, verdict, answers)
    }
}

impl Wire for Grpc {
    fn connected(&mut self, out: &mut Vec<u8>) {
        self.connection = Connection {
            streams_max: STREAMS_UNSAID,
            window: WINDOW_FIRST,
            stream_window: WINDOW_FIRST,
            ..Connection::default()
        };
        frame::preface(out);
    }

    fn room(&self) -> usize {
        let connection = &self.connection;
        let numbers_left = connection.asked * 2 < STREAM_LAST;
        if !connection.greeted || connection.going_away || !numbers_left {
            return 0;
        }
        let by_window =
            usize::try_from(connection.window / i64::from(self.body_bytes)).unwrap_or(0);
        connection.streams_max.saturating_sub(connection.under_way).min(by_window)
    }

    #[inline]
    fn ask(&mut self, key: &Key, out: &mut Vec<u8>) {
        let connection = &mut self.connection;
        let stream = (connection.asked * 2 + 1) as u32;
        let headers = if connection.asked == 0 { &self.first_headers } else { self.headers };
        frame::head(headers.len(), Kind::Headers, Flags::END_HEADERS, stream, out);
        out.extend_from_slice(headers);
        frame::head(self.body_bytes as usize, Kind::Data, Flags::END_STREAM, stream, out);
        self.body.write(key, out);
        connection.asked += 1;
        connection.under_way += 1;
        connection.window -= i64::from(self.body_bytes);
        connection.streams.push_back(Stream::default());
    }

    fn read(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        answers: &mut Vec<(u64, Verdict)>,
    ) -> Result<usize, Broken> {
        let mut read = 0;
        while let Some(frame) = Frame::parse(&input[read..])? {
            if !self.connection.greeted && frame.kind != Kind::Settings {
                return Err(Broken::Malformed("HTTP/2 begins with settings"));
            }
            read += frame.bytes;
            self.on_frame(&frame, out, answers)?;
        }
        let spent = self.connection.going_away || self.connection.asked * 2 >= STREAM_LAST;
        if spent && self.connection.under_way == 0 {
            return Err(Broken::GoingAway);
        }
        Ok(read)
    }
}

impl Connection {
    fn stream(&mut self, number: u64) -> Result<&mut Stream, Broken> {
        let place = number.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        let stream = place.and_then(|place| self.streams.get_mut(place));
        stream.filter(|stream| !stream.is_done).ok_or(Broken::Unasked)
    }

    fn finish(
        &mut self,
        number: u64,
        verdict: Verdict,
        answers: &mut Vec<(u64, Verdict)>,
    ) -> Result<(), Broken> {
        self.stream(number)?.is_done = true;
        self.under_way -= 1;
        answers.push((number, verdict));
        while self.streams.front().is_some_and(|stream| stream.is_done) {
            self.streams.pop_front();
            self.first += 1;
        }
        Ok(())
    }

    fn on_settings(
        &mut self,
        frame: &Frame<'_>,
        body_bytes: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), Broken> {
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
        if self.stream_window < body_bytes.into() {
            return Err(Broken::Malformed("a server without room for one request"));
        }
        self.greeted = true;
        frame::settings_taken(out);
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

/// The message in a body, which has its length in front; `None` where it is not all there yet.
fn whole_message(body: &[u8]) -> Option<&[u8]> {
    let ([_compressed, a, b, c, d], rest) = body.split_first_chunk::<5>()?;
    rest.get(..u32::from_be_bytes([*a, *b, *c, *d]) as usize)
}

#[cfg(test)]
mod tests;
