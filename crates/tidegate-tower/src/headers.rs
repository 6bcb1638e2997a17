//! Which headers tell clients where they stand, and how they are written: all values into one buffer,
//! and each header a part of it.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CACHE_CONTROL, HeaderName, HeaderValue, RETRY_AFTER};
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

const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const X_RETRY_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-retry-after");

/// The most headers that one standing writes.
const HEADERS_MAX: usize = 8;
/// Room for the values of two policies with ordinary names and numbers.
const VALUES_BYTES: usize = 192;

impl HeaderSet {
    /// Puts the headers of this set into `headers`, in the place of any that are there.
    pub fn write(self, standing: &Standing<'_>, headers: &mut HeaderMap) {
        let mut values = Values::new();
        if self.has_ietf() && standing.has_policies() {
            values.add(RATELIMIT_POLICY, |out| put_policies(out, standing));
            values.add(RATELIMIT, |out| put_standing(out, standing));
        }
        if self.has_x() {
            if let Some(binding) = standing.binding() {
                values.add(X_LIMIT, |out| put_number(out, binding.limit));
                values.add(X_REMAINING, |out| put_number(out, binding.remaining));
                values.add(X_RESET, |out| put_number(out, secs_ceil(binding.reset_after)));
            }
            if let Some(secs) = standing.retry_after_secs() {
                values.add(X_RETRY_AFTER, |out| put_number(out, secs));
            }
        }
        if let Some(secs) = standing.retry_after_secs() {
            values.add(RETRY_AFTER, |out| put_number(out, secs));
        }
        values.put_into(headers);
        if !standing.is_allowed() {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
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

/// Values end to end in one buffer, so that a response takes one allocation for all of them and not
/// one for each.
struct Values {
    bytes: Vec<u8>,
    headers: SmallVec<[(HeaderName, Range<usize>); HEADERS_MAX]>,
}

impl Values {
    fn new() -> Self {
        Self { bytes: Vec::with_capacity(VALUES_BYTES), headers: SmallVec::new() }
    }

    fn add(&mut self, name: HeaderName, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        self.headers.push((name, start..self.bytes.len()));
    }

    fn put_into(self, headers: &mut HeaderMap) {
        let bytes = Bytes::from(self.bytes);
        headers.reserve(self.headers.len());
        for (name, range) in self.headers {
            // What is written here is printable ASCII, so there is always a value.
            if let Ok(value) = HeaderValue::from_maybe_shared(bytes.slice(range)) {
                headers.insert(name, value);
            }
        }
    }
}
