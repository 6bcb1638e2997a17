//! Which headers tell clients where they stand, and how they are written. How values are made is in `values`.

use std::fmt;
use std::str::FromStr;

use http::HeaderMap;
use http::header::{self, CACHE_CONTROL, HeaderName, HeaderValue};
use tidegate::rules::OnlyLeft;

use crate::decide::Decided;
use crate::lasting::Known;
use crate::mould;
use crate::standing::{Binding, Standing, Unit, secs_ceil};
use crate::text::{put_integer, put_name, put_number};
use crate::values::Values;

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

/// How many headers a call that passes has at most.
pub(crate) const HEADERS_MAX: usize = 5;

/// Those of every set and of a refusal, with a place for the type and the length that are added later.
const REFUSAL_HEADERS_MAX: usize = 10;

impl HeaderSet {
    /// Puts the headers of this set into `headers`, in the place of any that are there.
    pub fn write(self, standing: &Standing<'_>, headers: &mut HeaderMap) {
        if !standing.is_allowed() {
            headers.reserve(REFUSAL_HEADERS_MAX);
        }
        Texts::of(self, standing).put_into(headers);
        if standing.is_allowed() {
            return;
        }
        if let Some(secs) = standing.retry_after_secs() {
            let value = Values::with(|values| values.number(secs));
            if self.has_x() {
                headers.insert(&X_RETRY_AFTER, value.clone());
            }
            headers.insert(&RETRY_AFTER, value);
        }
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }

    /// Adds the headers of this set to a response that may have some already, of a layer or a server
    /// further in. The policies of both are listed, and of the numbers those of the limit that has less
    /// left stay.
    pub fn add(self, standing: &Standing<'_>, headers: &mut HeaderMap) {
        if self == Self::None {
            return;
        }
        if !is_told(headers) {
            return self.write(standing, headers);
        }
        Texts::of(self, standing).add_to_theirs(headers);
    }

    /// Appends the headers of this set as lines of HTTP/1: for servers that make their answers themselves.
    #[inline]
    pub fn write_lines(self, standing: &Standing<'_>, out: &mut Vec<u8>) {
        if self.has_ietf() && standing.has_policies() {
            put_line(out, b"ratelimit-policy: ", |out| put_policies(out, standing));
            put_line(out, b"ratelimit: ", |out| put_standing(out, standing));
        }
        if let Some(binding) = standing.binding().filter(|_| self.has_x()) {
            put_line(out, b"x-ratelimit-limit: ", |out| put_number(out, binding.limit));
            put_line(out, b"x-ratelimit-remaining: ", |out| put_number(out, binding.remaining));
            let reset_secs = secs_ceil(binding.reset_after);
            put_line(out, b"x-ratelimit-reset: ", |out| put_number(out, reset_secs));
        }
        if let Some(secs) = standing.retry_after_secs() {
            if self.has_x() {
                put_line(out, b"x-ratelimit-retry-after: ", |out| put_number(out, secs));
            }
            put_line(out, b"retry-after: ", |out| put_number(out, secs));
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
pub(crate) fn put_policies(out: &mut Vec<u8>, standing: &Standing<'_>) {
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
        let (remaining, until_secs) = (named.0.remaining(), standing.until_secs(named.0));
        put_left(out, Left { remaining, until_secs });
    }
}

/// `;r=9;t=6`.
#[inline]
fn put_left(out: &mut Vec<u8>, left: Left) {
    out.extend_from_slice(b";r=");
    put_integer(out, left.remaining);
    if let Some(secs) = left.until_secs {
        out.extend_from_slice(b";t=");
        put_integer(out, secs);
    }
}

fn put_separator(out: &mut Vec<u8>, index: usize) {
    if index > 0 {
        out.extend_from_slice(b", ");
    }
}

/// Appends a line of HTTP/1, whose value `write` appends. The name is with its colon, and of a length that the
/// compiler knows.
#[inline]
fn put_line<const LENGTH: usize>(
    out: &mut Vec<u8>,
    name: &[u8; LENGTH],
    write: impl FnOnce(&mut Vec<u8>),
) {
    out.extend_from_slice(name);
    write(out);
    out.extend_from_slice(b"\r\n");
}

/// Whether a layer or a server further in has told something. Few responses have more than a handful of headers, and
/// comparing those takes less than hashing two names.
fn is_told(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| *name == RATELIMIT || *name == X_REMAINING)
}

/// What a response tells of where its client stands: less than the decision, which need not be kept for it. What most
/// responses tell is written when they are there, so that little is moved about until then.
#[derive(Debug, Default)]
pub(crate) enum Told {
    #[default]
    Nothing,
    Numbers(Numbers),
    Only(Only),
    Texts(Box<Texts>),
}

/// The limit, what it has left, and the seconds until it has everything back.
pub(crate) type Numbers = [u64; 3];

/// What is told of a call that passes under one limit alone, which is therefore the binding one.
#[derive(Debug)]
pub(crate) struct Only {
    policy: Known,
    left: Left,
    /// The numbers are told where it is there.
    limit: Option<u64>,
}

/// What a policy has left, and after how many seconds it has everything back, where that is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    pub(crate) remaining: u64,
    pub(crate) until_secs: Option<u64>,
}

impl Left {
    /// The same beside the limit.
    #[inline]
    fn numbers(self, limit: u64) -> Numbers {
        [limit, self.remaining, self.until_secs.unwrap_or(0)]
    }
}

impl Told {
    /// Of a decision. What the set does not tell is not asked for.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "it is written where it stays, and not copied there")]
    pub(crate) fn of_decided(set: HeaderSet, decided: &impl Decided) -> Self {
        match set {
            HeaderSet::All | HeaderSet::Ietf => match decided.only_left() {
                Some(OnlyLeft { mark, limit, remaining, reset_secs })
                    if let Some(text) = Values::with(|values| values.marked(mark)) =>
                {
                    let left = Left { remaining, until_secs: Some(reset_secs) };
                    let limit = set.has_x().then_some(limit);
                    Self::Only(Only { policy: Known::Lasting(text), left, limit })
                }
                only => Self::of_policy(set, decided, only),
            },
            HeaderSet::XRateLimit => decided.binding_numbers().map_or(Self::Nothing, Self::Numbers),
            HeaderSet::None => Self::Nothing,
        }
    }

    /// The same where the policy is not known by its mark yet.
    #[inline(never)]
    fn of_policy(set: HeaderSet, decided: &impl Decided, only: Option<OnlyLeft>) -> Self {
        let Some(policy) = decided.only_policy().filter(|policy| !policy.is_violated()) else {
            return Self::of(set, &decided.standing());
        };
        let left = Left { remaining: policy.remaining(), until_secs: policy.until_secs() };
        let limit = set.has_x().then_some(policy.quota());
        let text = Values::with(|values| {
            let text = values.policy(&policy)?;
            if let Some(OnlyLeft { mark, .. }) = only {
                values.mark(mark, &text);
            }
            Some(text)
        });
        match text {
            Some(policy) => Self::Only(Only { policy, left, limit }),
            None => limit.map_or(Self::Nothing, |limit| Self::Numbers(left.numbers(limit))),
        }
    }

    #[inline(never)]
    fn of(set: HeaderSet, standing: &Standing<'_>) -> Self {
        match Texts::of(set, standing) {
            Texts { policies: None, standing: None, numbers } => {
                numbers.map_or(Self::Nothing, Self::Numbers)
            }
            texts => Self::Texts(Box::new(texts)),
        }
    }

    /// Adds them to those of a layer or a server further in, as [`HeaderSet::add`] says.
    #[inline]
    pub(crate) fn add_to(&mut self, headers: &mut HeaderMap) {
        match self {
            Self::Nothing => {}
            Self::Numbers(numbers) => add_numbers(*numbers, headers),
            Self::Only(only) => only.add_to(headers),
            Self::Texts(texts) => texts.add_to(headers),
        }
    }
}

#[inline(never)]
fn add_numbers(numbers: Numbers, headers: &mut HeaderMap) {
    Texts { numbers: Some(numbers), ..Texts::default() }.add_to(headers);
}

impl Only {
    #[inline(never)]
    fn add_to(&self, headers: &mut HeaderMap) {
        let Self { policy, left, limit } = self;
        let is_cast = limit.is_some_and(|limit| {
            mould::cast(headers, |places| {
                Values::with(|values| values.put_only(policy, *left, limit, places));
            })
        });
        if !is_cast {
            self.add_anew(headers);
        }
    }

    /// The same to a response that is not like one before.
    #[inline(never)]
    fn add_anew(&self, headers: &mut HeaderMap) {
        let Self { policy, left, limit } = self;
        let standing = Some(Values::with(|values| values.left(policy, *left)));
        let numbers = limit.map(|limit| left.numbers(limit));
        let own = headers.len();
        Texts { policies: Some(policy.value().clone()), standing, numbers }.add_to(headers);
        if limit.is_some() {
            mould::learn(own, headers);
        }
    }
}

/// The same as it is written.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    policies: Option<HeaderValue>,
    standing: Option<HeaderValue>,
    numbers: Option<Numbers>,
}

impl Texts {
    pub(crate) fn of(set: HeaderSet, standing: &Standing<'_>) -> Self {
        let has_policies = set.has_ietf() && standing.has_policies();
        let binding = standing.binding().filter(|_| set.has_x());
        let numbers = binding.map(Binding::numbers);
        if !has_policies {
            return Self { numbers, ..Self::default() };
        }
        let (policies, standing) = Values::with(|values| match standing.only_policy() {
            Some(policy) => values.only_policy(policy, standing.until_secs(policy)),
            None => (
                values.text(|out| put_policies(out, standing)),
                values.text(|out| put_standing(out, standing)),
            ),
        });
        Self { policies, standing, numbers }
    }

    /// How much room is made in a map: at once, while there is little to move; with a place for the length that servers
    /// add later.
    #[inline]
    fn room(has_both: bool) -> usize {
        if has_both { HEADERS_MAX + 1 } else { HEADERS_MAX - 1 }
    }

    /// Puts them into a map, in the place of any that are there.
    #[inline]
    pub(crate) fn put_into(&mut self, headers: &mut HeaderMap) {
        if self.policies.is_some() || self.numbers.is_some() {
            headers.reserve(Self::room(self.policies.is_some() && self.numbers.is_some()));
        }
        if let Some(value) = self.policies.take() {
            headers.insert(&RATELIMIT_POLICY, value);
        }
        if let Some(value) = self.standing.take() {
            headers.insert(&RATELIMIT, value);
        }
        if let Some(numbers) = self.numbers.take() {
            put_numbers(numbers, headers);
        }
    }

    #[inline]
    pub(crate) fn add_to(&mut self, headers: &mut HeaderMap) {
        if is_told(headers) { self.add_to_theirs(headers) } else { self.put_into(headers) }
    }

    #[cold]
    fn add_to_theirs(&mut self, headers: &mut HeaderMap) {
        for (name, value) in
            [(&RATELIMIT_POLICY, self.policies.take()), (&RATELIMIT, self.standing.take())]
        {
            if let Some(value) = value {
                headers.append(name, value);
            }
        }
        let Some(numbers @ [_, remaining, _]) = self.numbers.take() else { return };
        let number = |value: &HeaderValue| -> Option<u64> { value.to_str().ok()?.parse().ok() };
        let theirs = headers.get(&X_REMAINING).and_then(number);
        let is_less = theirs.is_none_or(|theirs| remaining < theirs);
        // A refusal from further in keeps its numbers: they are why it was refused.
        if is_less && !headers.contains_key(&RETRY_AFTER) {
            put_numbers(numbers, headers);
        }
    }
}

/// The numbers of the binding limit, in the place of any that are there.
fn put_numbers([limit, remaining, reset]: Numbers, headers: &mut HeaderMap) {
    // Made before they are put there: a value that gives way may be of a program that does anything when it is dropped.
    let [limit, remaining, reset] = Values::with(|values| {
        [values.known_number(limit), values.number(remaining), values.number(reset)]
    });
    headers.insert(&X_LIMIT, limit);
    headers.insert(&X_REMAINING, remaining);
    headers.insert(&X_RESET, reset);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate::rules::Reason;

    use super::*;
    use crate::standing::Policy;

    /// A decision of somebody else's, under one policy.
    struct Own {
        policy: Policy<'static>,
        retry_after: Option<Duration>,
        tells_policy: bool,
    }

    impl Decided for Own {
        fn is_allowed(&self) -> bool {
            self.retry_after.is_none()
        }

        fn delay(&self) -> Duration {
            Duration::ZERO
        }

        fn standing(&self) -> Standing<'_> {
            let standing = match self.retry_after {
                None => Standing::allowed(),
                wait => Standing::denied(Reason::OverLimit, wait),
            };
            let reset_after = self.retry_after.unwrap_or(Duration::from_secs(6));
            standing.with(self.policy).bound_by(10, self.policy.remaining(), reset_after)
        }

        fn only_policy(&self) -> Option<Policy<'_>> {
            self.tells_policy.then_some(self.policy)
        }

        fn turned_away(&self, retry_after: Duration) -> Standing<'_> {
            Standing::denied(Reason::OverLimit, Some(retry_after))
        }

        fn holds_places(&self) -> bool {
            false
        }

        fn counts_responses(&self) -> bool {
            false
        }
    }

    /// What a response has, and what it has with the headers of a layer further in.
    fn told_and_added(own: &Own, set: HeaderSet) -> [HeaderMap; 2] {
        let mut further_in = HeaderMap::new();
        let inner = Standing::allowed().with(Policy::new("inner", 20, 19));
        let inner = inner.bound_by(20, 19, Duration::from_secs(1));
        HeaderSet::All.write(&inner, &mut further_in);
        [HeaderMap::new(), further_in].map(|mut headers| {
            Told::of_decided(set, own).add_to(&mut headers);
            headers
        })
    }

    fn told(own: &Own, set: HeaderSet) -> HeaderMap {
        let [told, _] = told_and_added(own, set);
        told
    }

    #[test]
    fn who_tells_its_only_policy_tells_what_its_standing_does() {
        let policy = Policy::new("own", 10, 9).per(Duration::from_mins(1));
        let passes = (policy.resets_after(Duration::from_secs(6)), None);
        let wait = Some(Duration::from_secs(30));
        // Against what `only_policy` asks for; the standing counts all the same.
        let is_denied = (policy.violated(None), wait);
        for (policy, retry_after) in [passes, is_denied] {
            for set in [HeaderSet::All, HeaderSet::Ietf, HeaderSet::XRateLimit, HeaderSet::None] {
                let [short, long] = [true, false].map(|tells_policy| {
                    told_and_added(&Own { policy, retry_after, tells_policy }, set)
                });
                assert_eq!(short, long, "{set}");
            }
        }
        let own = Own { policy: passes.0, retry_after: None, tells_policy: true };
        assert_eq!(told(&own, HeaderSet::All)["ratelimit"], "\"own\";r=9;t=6");
        assert_eq!(told(&own, HeaderSet::All)["x-ratelimit-remaining"], "9");
        let [_, added] = told_and_added(&own, HeaderSet::All);
        let standings: Vec<_> = added.get_all("ratelimit").iter().collect();
        assert_eq!(standings, ["\"inner\";r=19", "\"own\";r=9;t=6"]);
        assert_eq!(added["x-ratelimit-remaining"], "9", "of the limit that has less left");
    }

    /// Bytes of a program that makes headers itself when they are dropped.
    struct Telling;

    impl AsRef<[u8]> for Telling {
        fn as_ref(&self) -> &[u8] {
            b"12"
        }
    }

    impl Drop for Telling {
        fn drop(&mut self) {
            let own = Standing::allowed().bound_by(1_000, 999, Duration::from_secs(1));
            HeaderSet::XRateLimit.write(&own, &mut HeaderMap::new());
        }
    }

    #[test]
    fn a_value_that_gives_way_may_do_anything_when_it_is_dropped() {
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_maybe_shared(bytes::Bytes::from_owner(Telling)).unwrap();
        headers.insert("x-ratelimit-remaining", value);
        let own = Standing::allowed().bound_by(10, 9, Duration::from_secs(6));
        HeaderSet::All.write(&own, &mut headers);
        assert_eq!(headers["x-ratelimit-remaining"], "9");
    }
}
