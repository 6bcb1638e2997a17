//! Which headers tell clients where they stand, and how they are written: all values into one buffer,
//! and each header a part of it.

use std::cell::RefCell;
use std::fmt;
use std::str::FromStr;

use bytes::BytesMut;
use http::HeaderMap;
use http::header::{self, CACHE_CONTROL, HeaderName, HeaderValue};
use smallvec::SmallVec;

use crate::standing::{Standing, Unit, secs_ceil};
use crate::text::{put_integer, put_name, put_number};

/// Which of the headers about limits a response has.
///
/// | header | value | set |
/// | --- | --- | --- |
/// | `RateLimit-Policy` | `"login";q=10;w=60`: quota and window of each policy | `Ietf` |
/// | `RateLimit` | `"login";r=9;t=6`: what each has left, and the seconds until it has everything back; of one that refuses, the seconds to wait | `Ietf` |
/// | `X-RateLimit-Limit`, `-Remaining`, `-Reset` | the binding limit; seconds from now | `XRateLimit` |
/// | `X-RateLimit-Retry-After` | on a refusal: seconds to wait | `XRateLimit` |
/// | `Retry-After` | on a refusal: seconds to wait, at least 1 | every set |
/// | `Cache-Control: no-store` | on a refusal | every set |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HeaderSet {
    /// Those of the IETF and the older ones.
    #[default]
    All,
    /// Those of the IETF draft, as structured fields.
    Ietf,
    /// The `X-RateLimit-` headers.
    XRateLimit,
    /// Neither.
    None,
}

static RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
static X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
static X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
static X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
static X_RETRY_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-retry-after");
static RETRY_AFTER: HeaderName = header::RETRY_AFTER;

/// The most headers that one standing writes.
const HEADERS_MAX: usize = 8;
/// What is taken from the heap at once. It stays there as long as one of the responses does, so it is not
/// more than some twenty of them need.
const ROOM_BYTES: usize = 4 << 10;

impl HeaderSet {
    /// Puts the headers of this set into `headers`, in the place of any that are there.
    pub fn write(self, standing: &Standing<'_>, headers: &mut HeaderMap) {
        let mut values = Values::new();
        self.add_to(&mut values, standing);
        values.put_into(headers);
        if !standing.is_allowed() {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
    }

    /// Adds the headers of this set to a response that may have some already, of a layer or a server
    /// further in. The policies of both are listed, and of the numbers those of the limit that has less
    /// left stay.
    pub fn add(self, standing: &Standing<'_>, headers: &mut HeaderMap) {
        if self == Self::None {
            return;
        }
        // Few responses have more than a handful, and comparing those takes less than hashing two names.
        if !headers.keys().any(|name| *name == RATELIMIT || *name == X_REMAINING) {
            return self.write(standing, headers);
        }
        let mut ours = HeaderMap::new();
        self.write(standing, &mut ours);
        for name in [&RATELIMIT_POLICY, &RATELIMIT] {
            if let Some(value) = ours.remove(name) {
                headers.append(name, value);
            }
        }
        let left = |headers: &HeaderMap| -> Option<u64> {
            headers.get(&X_REMAINING)?.to_str().ok()?.parse().ok()
        };
        let is_less = left(&ours).is_some_and(|ours| left(headers).is_none_or(|is| ours < is));
        // A refusal from further in keeps its numbers: they are why it was refused.
        if is_less && !headers.contains_key(&RETRY_AFTER) {
            for name in [&X_LIMIT, &X_REMAINING, &X_RESET] {
                if let Some(value) = ours.remove(name) {
                    headers.insert(name, value);
                }
            }
        }
    }

    /// Appends the headers of this set for a call that passes, as lines of HTTP/1: for servers that make
    /// their answers themselves.
    #[inline]
    pub fn write_lines(self, standing: &Standing<'_>, out: &mut Vec<u8>) {
        self.add_to(&mut Lines(out), standing);
    }

    #[inline]
    fn add_to(self, sink: &mut impl Sink, standing: &Standing<'_>) {
        if self.has_ietf() && standing.has_policies() {
            sink.add(&RATELIMIT_POLICY, |out| put_policies(out, standing));
            sink.add(&RATELIMIT, |out| put_standing(out, standing));
        }
        if self.has_x() {
            if let Some(binding) = standing.binding() {
                sink.add(&X_LIMIT, |out| put_number(out, binding.limit));
                sink.add(&X_REMAINING, |out| put_number(out, binding.remaining));
                sink.add(&X_RESET, |out| put_number(out, secs_ceil(binding.reset_after)));
            }
            if let Some(secs) = standing.retry_after_secs() {
                sink.add(&X_RETRY_AFTER, |out| put_number(out, secs));
            }
        }
        if let Some(secs) = standing.retry_after_secs() {
            sink.add(&RETRY_AFTER, |out| put_number(out, secs));
        }
    }

    /// The word for it in settings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Ietf => "ietf",
            Self::XRateLimit => "x-ratelimit",
            Self::None => "none",
        }
    }

    const fn has_ietf(self) -> bool {
        matches!(self, Self::All | Self::Ietf)
    }

    const fn has_x(self) -> bool {
        matches!(self, Self::All | Self::XRateLimit)
    }
}

impl FromStr for HeaderSet {
    type Err = HeaderSetError;

    fn from_str(text: &str) -> Result<Self, HeaderSetError> {
        [Self::All, Self::Ietf, Self::XRateLimit, Self::None]
            .into_iter()
            .find(|set| set.as_str() == text)
            .ok_or(HeaderSetError)
    }
}

impl fmt::Display for HeaderSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text names no set of headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderSetError;

impl fmt::Display for HeaderSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("write `all`, `ietf`, `x-ratelimit` or `none`")
    }
}

impl std::error::Error for HeaderSetError {}

/// `"login";q=10;w=60, "downloads";q=3;qu="concurrent-requests"`.
fn put_policies(out: &mut Vec<u8>, standing: &Standing<'_>) {
    for (index, named) in standing.policies().enumerate() {
        put_separator(out, index);
        put_name(out, named);
        let (policy, _) = named;
        out.extend_from_slice(b";q=");
        put_integer(out, policy.quota());
        match policy.unit() {
            Unit::Requests => {}
            Unit::ConcurrentRequests => out.extend_from_slice(b";qu=\"concurrent-requests\""),
        }
        if policy.window_secs() > 0 {
            out.extend_from_slice(b";w=");
            put_integer(out, policy.window_secs());
        }
    }
}

/// `"login";r=9;t=6, "downloads";r=1`.
fn put_standing(out: &mut Vec<u8>, standing: &Standing<'_>) {
    for (index, named) in standing.policies().enumerate() {
        put_separator(out, index);
        put_name(out, named);
        let (policy, _) = named;
        out.extend_from_slice(b";r=");
        put_integer(out, policy.remaining());
        if let Some(secs) = standing.until_secs(policy) {
            out.extend_from_slice(b";t=");
            put_integer(out, secs);
        }
    }
}

fn put_separator(out: &mut Vec<u8>, index: usize) {
    if index > 0 {
        out.extend_from_slice(b", ");
    }
}

/// What headers are put into, one after the other.
trait Sink {
    /// Adds a header, whose value `write` appends.
    fn add(&mut self, name: &'static HeaderName, write: impl FnOnce(&mut Vec<u8>));
}

/// Lines of HTTP/1.
struct Lines<'o>(&'o mut Vec<u8>);

impl Sink for Lines<'_> {
    #[inline]
    fn add(&mut self, name: &'static HeaderName, write: impl FnOnce(&mut Vec<u8>)) {
        self.0.extend_from_slice(name.as_str().as_bytes());
        self.0.extend_from_slice(b": ");
        write(self.0);
        self.0.extend_from_slice(b"\r\n");
    }
}

thread_local! {
    /// Where values are written, in memory that the next response uses again; and room for the values of
    /// many responses, so that hardly any of them takes memory of its own.
    static ROOM: RefCell<(Vec<u8>, BytesMut)> = RefCell::default();
}

/// Values end to end in one buffer.
struct Values {
    bytes: Vec<u8>,
    room: BytesMut,
    /// Names, and where their values end.
    headers: SmallVec<[(&'static HeaderName, usize); HEADERS_MAX]>,
}

impl Sink for Values {
    fn add(&mut self, name: &'static HeaderName, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.headers.push((name, self.bytes.len()));
    }
}

impl Values {
    fn new() -> Self {
        let (bytes, room) = ROOM.take();
        Self { bytes, room, headers: SmallVec::new() }
    }

    fn put_into(self, headers: &mut HeaderMap) {
        let Self { mut bytes, mut room, headers: names } = self;
        if room.capacity() < bytes.len() {
            // Where no response has a part of it any more, it is the same room again.
            room.reserve(ROOM_BYTES.max(bytes.len()));
        }
        room.extend_from_slice(&bytes);
        let mut values = room.split().freeze();
        bytes.clear();
        ROOM.set((bytes, room));
        // At once, while there is little to move; with a place for the length that servers add later.
        headers.reserve(names.len() + 1);
        let mut start = 0;
        for (name, end) in names {
            let value = values.split_to(end - start);
            start = end;
            // What is written here is printable ASCII, so there is always a value.
            if let Ok(value) = HeaderValue::from_maybe_shared(value) {
                headers.insert(name, value);
            }
        }
    }
}
