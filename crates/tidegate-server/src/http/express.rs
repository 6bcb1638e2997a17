//! The requests that come most, answered without a general server in between: `GET /limit/{key}` over HTTP/1.1
//! with nothing out of the ordinary in its head. Requests that arrive together are answered in one write.
//!
//! Whatever is not of that kind, is not understood or is not complete goes to the general server, with all
//! the bytes from there on, and so does the rest of its connection. So nothing is decided here about what HTTP is:
//! only what cannot be read in two ways is answered. The answers are the general server's to the byte.

use std::io;
use std::mem::MaybeUninit;
use std::pin::pin;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http_body_util::BodyExt as _;
use tidegate::Timestamp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use super::route::LIMIT_PREFIX;
use super::status::Passed;
use super::{Answered, Connection, HeldBack, limit};
use crate::engine::{Protocol, at_once};
use crate::web::Opened;
use crate::web::date::put_date;

/// Room for the bytes that are read at a time: little at first, which is what a connection keeps while it waits, and
/// more where more comes.
const READ_BYTES: usize = 2 << 10;
const READ_BYTES_MAX: usize = 16 << 10;
/// The most bytes and the most headers of a request that is answered here.
const HEAD_BYTES_MAX: usize = 2 << 10;
const HEADERS_MAX: usize = 16;
/// The most room for answers that a connection keeps while it waits.
const KEPT_BYTES: usize = 1 << 10;
/// Answers are sent when there are so many bytes of them, though more requests are waiting.
const WRITE_BYTES: usize = 32 << 10;

/// Answers requests until one comes that is not for this place, or until `drain` is cancelled; the stream is
/// then given back, with what was read of it. `None` where the connection has ended.
pub(super) async fn serve(
    connection: &Connection,
    mut stream: Opened,
    idle_max: Duration,
    drain: &CancellationToken,
) -> Option<Opened> {
    let mut lane = Lane { input: BytesMut::new(), output: Vec::new() };
    let mut drained = pin!(drain.cancelled());
    let mut idle = pin!(tokio::time::sleep(idle_max));
    // Whether nothing has come since that time was set. It is set anew when it is over, and not for every
    // request.
    let mut is_quiet = true;
    let mut room = READ_BYTES;
    loop {
        if lane.input.is_empty() && room < lane.input.capacity() {
            lane.input = BytesMut::new();
        }
        lane.input.reserve(room);
        // What has arrived goes before the end: a request that is there is answered.
        let is_over = loop {
            tokio::select! {
                biased;
                read = stream.read_buf(&mut lane.input) => break read.ok()? == 0,
                () = drained.as_mut() => break true,
                () = idle.as_mut() => {
                    if is_quiet {
                        return None;
                    }
                    idle.set(tokio::time::sleep(idle_max));
                    is_quiet = true;
                }
            }
        };
        is_quiet = false;
        let is_full = lane.input.len() == lane.input.capacity();
        room = if is_full { (2 * room).min(READ_BYTES_MAX) } else { READ_BYTES };
        if is_over && lane.input.is_empty() && !drain.is_cancelled() {
            return None;
        }
        lane.answer_all(connection, &mut stream).await.ok()?;
        // What was cut off because there was no more room is read on, and nothing else: who sends a part of a
        // request has a time for the rest, and the general server sees to it.
        let is_cut = is_full && Plain::is_cut(&lane.input);
        if is_over || drain.is_cancelled() || !(lane.input.is_empty() || is_cut) {
            stream.give_back(lane.input);
            return Some(stream);
        }
    }
}

/// What has come and is not answered, and what is answered and not sent.
struct Lane {
    input: BytesMut,
    output: Vec<u8>,
}

impl Lane {
    /// Answers all requests that are for this place, up to the first one that is not.
    #[inline]
    async fn answer_all(&mut self, connection: &Connection, stream: &mut Opened) -> io::Result<()> {
        let engine = &connection.engine;
        let mut now = engine.limiter().now();
        while let Some(Plain { target, length }) = Plain::of(&self.input) {
            let (mut start, target) = (self.output.len(), path_and_query(target));
            let made = limit::answer_at_once(connection, target, now, |passed| {
                write_allowed(&mut self.output, passed, now)
            });
            let HeldBack { answer, delay } = if let Some(made) = made {
                made
            } else {
                // The decision may have to be waited for, and this is no reason for others to wait.
                send(&mut self.output, stream).await?;
                (start, now) = (0, engine.limiter().now());
                let write = |passed: &Passed<'_>| write_allowed(&mut self.output, passed, now);
                // On the heap, because it would be a large part of every connection.
                Box::pin(limit::answer(connection, target, write)).await
            };
            let made_at = engine.limiter().now();
            engine.metrics().took(Protocol::Http, made_at.since(now).into());
            if let Told::Answer(answer) = answer {
                write(&mut self.output, *answer, now);
            }
            self.input.advance(length);
            now = made_at;
            if !delay.is_zero() {
                let held_back = self.output.split_off(start);
                send(&mut self.output, stream).await?;
                tokio::time::sleep(delay).await;
                self.output = held_back;
                now = engine.limiter().now();
            }
            if self.output.len() >= WRITE_BYTES {
                send(&mut self.output, stream).await?;
                now = engine.limiter().now();
            }
        }
        send(&mut self.output, stream).await
    }
}

#[inline]
fn path_and_query(target: &str) -> (&str, &str) {
    match target.bytes().position(|byte| byte == b'?') {
        Some(mark) => (&target[..mark], &target[mark + 1..]),
        None => (target, ""),
    }
}

async fn send(output: &mut Vec<u8>, stream: &mut Opened) -> io::Result<()> {
    stream.write_all(output).await?;
    output.clear();
    output.shrink_to(KEPT_BYTES);
    Ok(())
}

/// What became of a request.
enum Told {
    Written,
    Answer(Box<Answered>),
}

impl From<Answered> for Told {
    fn from(answer: Answered) -> Self {
        Self::Answer(Box::new(answer))
    }
}

/// Appends the answer to a call that passes, as the general server would send it.
#[inline]
fn write_allowed(out: &mut Vec<u8>, passed: &Passed<'_>, now: Timestamp) -> Told {
    out.extend_from_slice(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n");
    passed.write_lines(out);
    write_end(out, limit::ALLOWED, now);
    Told::Written
}

/// Appends any other answer, as the general server would send it.
#[cold]
fn write(out: &mut Vec<u8>, answer: Answered, now: Timestamp) {
    let (head, mut body) = answer.into_parts();
    let body = match at_once(body.frame()) {
        Some(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
        _ => Bytes::new(),
    };
    let reason = head.status.canonical_reason().unwrap_or_default();
    for part in ["HTTP/1.1 ", head.status.as_str(), " ", reason, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    for (name, value) in &head.headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
    write_end(out, &body, now);
}

fn write_end(out: &mut Vec<u8>, body: &[u8], now: Timestamp) {
    out.extend_from_slice(b"content-length: ");
    out.extend_from_slice(itoa::Buffer::new().format(body.len()).as_bytes());
    out.extend_from_slice(b"\r\ndate: ");
    put_date(out, now);
    out.extend_from_slice(b"\r\n\r\n");
    out.extend_from_slice(body);
}

/// A request that is answered here.
struct Plain<'i> {
    target: &'i str,
    /// Of the whole request.
    length: usize,
}

/// What every request begins with that is answered here.
const BEGINNING: &[u8] = b"GET /limit/";

impl<'i> Plain<'i> {
    /// Whether the bytes are the beginning of such a request, and not all of it.
    fn is_cut(bytes: &[u8]) -> bool {
        let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut []);
        let known = bytes.len().min(BEGINNING.len());
        bytes.len() < HEAD_BYTES_MAX
            && bytes[..known] == BEGINNING[..known]
            && request.parse_with_uninit_headers(bytes, &mut headers)
                == Ok(httparse::Status::Partial)
    }

    /// The first request of the bytes, where it is of this kind and complete.
    #[inline]
    fn of(bytes: &'i [u8]) -> Option<Self> {
        if !bytes.starts_with(BEGINNING) {
            return None;
        }
        let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut []);
        let parsed = request.parse_with_uninit_headers(bytes, &mut headers).ok()?;
        let httparse::Status::Complete(length) = parsed else { return None };
        let target = request.path?;
        let is_plain = length <= HEAD_BYTES_MAX
            && request.version == Some(1)
            && target.starts_with(LIMIT_PREFIX)
            && target.bytes().all(is_plain_byte)
            && request.headers.iter().all(is_plain_header);
        is_plain.then_some(Self { target, length })
    }
}

/// Whether a byte of a target means one thing to everybody.
#[inline]
const fn is_plain_byte(byte: u8) -> bool {
    const PLAIN: [bool; 256] = {
        let (mut plain, mut byte) = ([false; 256], 0);
        while byte < 128 {
            plain[byte] = (byte as u8).is_ascii_alphanumeric();
            byte += 1;
        }
        let others = b"-._~%/?&=+:@,";
        let mut place = 0;
        while place < others.len() {
            plain[others[place] as usize] = true;
            place += 1;
        }
        plain
    };
    PLAIN[byte as usize]
}

/// Whether a header says nothing about a body or about the connection but what holds anyway.
#[inline]
fn is_plain_header(header: &httparse::Header<'_>) -> bool {
    let is = |name: &str| header.name.eq_ignore_ascii_case(name);
    match header.name.len() {
        2 => !is("te"),
        6 => !is("expect"),
        7 => !is("upgrade") && !is("trailer"),
        10 => !is("connection") || header.value.eq_ignore_ascii_case(b"keep-alive"),
        14 => !is("content-length") && !is("http2-settings"),
        16 => !is("proxy-connection"),
        17 => !is("transfer-encoding"),
        _ => true,
    }
}
