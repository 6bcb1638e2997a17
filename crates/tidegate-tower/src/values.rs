//! The values of headers, in memory that is used again: what changes with every response goes into one buffer that
//! many of them share, and what stays the same is written once for each thread, some of it once for all of them. Which headers there are is not
//! known here.

use std::cell::RefCell;
use std::sync::Mutex;

use bytes::{Bytes, BytesMut};
use http::header::HeaderValue;
use tidegate::Limit;

use crate::headers::{Left, put_left, put_policies};
use crate::mould::NOTHING;
use crate::standing::{Policy, Standing, Unit, Window};
use crate::text::{INTEGER_MAX, Line, put_name};

/// What is taken from the heap at once. It stays there as long as one of the responses does, so it is not
/// more than some forty of them need.
const ROOM_BYTES: usize = 4 << 10;
/// How many policies and how many limits a thread remembers the text of.
const KNOWN: usize = 16;
/// How many of those texts all threads together keep for good, and how long one is at most: 64 KiB in all. Few rule sets
/// have so many limits.
const LASTING_MAX: usize = 256;
const LASTING_BYTES_MAX: usize = 256;

/// The numbers below 100, which most times to wait are.
const SMALL: &str = "00010203040506070809101112131415161718192021222324252627282930313233343536373839\
    40414243444546474849505152535455565758596061626364656667686970717273747576777879\
    8081828384858687888990919293949596979899";

thread_local! {
    static ROOM: RefCell<Values> = RefCell::default();
}

/// Where values are made; a thread has one.
#[derive(Default)]
pub(crate) struct Values {
    /// Where a value is written.
    scratch: Vec<u8>,
    /// Room for the values of many responses, so that hardly any of them takes memory of its own.
    room: BytesMut,
    /// What was told last of policies and limits, by a part of what they are.
    policies: [Option<KnownPolicy>; KNOWN],
    numbers: [Option<(u64, HeaderValue)>; KNOWN],
}

/// What a policy is, and how that is written.
struct KnownPolicy {
    name: Box<str>,
    quota: u64,
    unit: Unit,
    window_secs: u64,
    /// The limit whose window that is, where it was seen.
    limit: Option<Limit>,
    value: HeaderValue,
    /// How much of it is the name.
    name_bytes: usize,
}

impl KnownPolicy {
    #[cold]
    fn new(policy: &Policy<'_>, is_first: bool) -> Option<Self> {
        let mut text = Vec::new();
        put_policies(&mut text, &Standing::allowed().with(*policy));
        let value = known(String::from_utf8(text).ok()?, is_first)?;
        let mut written = Vec::new();
        put_name(&mut written, (policy, 0));
        let (name, name_bytes) = (policy.name.into(), written.len());
        let (quota, unit, window_secs) = (policy.quota, policy.unit, policy.window_secs());
        Some(Self { name, quota, unit, window_secs, limit: None, value, name_bytes })
    }

    #[inline]
    fn is(&mut self, policy: &Policy<'_>) -> bool {
        self.quota == policy.quota
            && self.unit == policy.unit
            && *self.name == *policy.name
            && match policy.window {
                Window::Of(limit) if self.limit.as_ref() == Some(limit.in_force()) => true,
                Window::Of(_) | Window::Secs(_) => self.has_window(policy),
            }
    }

    #[inline(never)]
    fn has_window(&mut self, policy: &Policy<'_>) -> bool {
        let has_window = self.window_secs == policy.window_secs();
        if let Window::Of(limit) = policy.window
            && has_window
        {
            self.limit = Some(limit.in_force().clone());
        }
        has_window
    }
}

impl Values {
    /// Makes some values in the place that this thread has for it.
    pub(crate) fn with<T>(make: impl FnOnce(&mut Self) -> T) -> T {
        ROOM.with_borrow_mut(make)
    }

    /// What `write` appends. It has to be ASCII that can be printed; else there is no value.
    #[inline]
    pub(crate) fn text(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Option<HeaderValue> {
        let Self { scratch, room, .. } = self;
        scratch.clear();
        write(scratch);
        value(room, scratch)
    }

    /// A number that is another for most responses.
    #[inline]
    pub(crate) fn number(&mut self, number: u64) -> HeaderValue {
        match number {
            0..100 => {
                let (start, digits) = (2 * number as usize, 1 + usize::from(number >= 10));
                let text = &SMALL[start + 2 - digits..start + 2];
                HeaderValue::from_static(text)
            }
            _ => value(&mut self.room, itoa::Buffer::new().format(number).as_bytes())
                .unwrap_or_else(|| HeaderValue::from(number)),
        }
    }

    /// A number that is the same for most responses.
    #[inline]
    pub(crate) fn known_number(&mut self, number: u64) -> HeaderValue {
        let known = &mut self.numbers[number as usize % KNOWN];
        match known {
            Some((is, value)) if *is == number => value.clone(),
            _ => {
                let value = known_number(number, known.is_none());
                known.insert((number, value)).1.clone()
            }
        }
    }

    /// What the only policy is, and its standing.
    pub(crate) fn only_policy(
        &mut self,
        policy: &Policy<'_>,
        until_secs: Option<u64>,
    ) -> (Option<HeaderValue>, Option<HeaderValue>) {
        let Some((text, name_bytes)) = self.policy(policy) else { return (None, None) };
        let left = Left { remaining: policy.remaining(), until_secs };
        let (standing, _) = self.left(&text.as_bytes()[..name_bytes], left, false);
        (Some(text), Some(standing))
    }

    /// What a policy is, and how many bytes of that are its name, with which it begins. It is the same for all who meet
    /// its rule.
    #[inline]
    pub(crate) fn policy(&mut self, policy: &Policy<'_>) -> Option<(HeaderValue, usize)> {
        let Policy { name, quota, .. } = *policy;
        let ends = name.as_bytes().first().zip(name.as_bytes().last());
        let ends = ends.map_or(0, |(first, last)| usize::from(*first) ^ usize::from(*last) << 1);
        let place = &mut self.policies[(quota as usize ^ name.len() ^ ends) % KNOWN];
        if !place.as_mut().is_some_and(|known| known.is(policy)) {
            *place = KnownPolicy::new(policy, place.is_none());
        }
        place.as_ref().map(|known| (known.value.clone(), known.name_bytes))
    }

    /// The standing of the policy that has this name, as it is written in a value already, so that it and some numbers
    /// always are one too; and what it has left, where that is told apart.
    #[inline]
    pub(crate) fn left(
        &mut self,
        name: &[u8],
        left: Left,
        is_apart: bool,
    ) -> (HeaderValue, Option<HeaderValue>) {
        let Left { remaining, until_secs } = left;
        let Some(mut line) = Line::starting_with(name) else {
            let standing = self.text(|out| {
                out.extend_from_slice(name);
                put_left(out, left);
            });
            return (standing.unwrap_or(NOTHING), is_apart.then(|| self.number(remaining)));
        };
        line.put(b";r=");
        let place = line.put_integer(remaining);
        if let Some(secs) = until_secs {
            line.put(b";t=");
            line.put_integer(secs);
        }
        let whole = shared(&mut self.room, line.as_bytes());
        // A part of the same text, unless that has a smaller number.
        let part = match remaining {
            _ if !is_apart => None,
            ..=INTEGER_MAX => HeaderValue::from_maybe_shared(whole.slice(place)).ok(),
            _ => Some(self.number(remaining)),
        };
        (HeaderValue::from_maybe_shared(whole).unwrap_or(NOTHING), part)
    }
}

#[cold]
fn known_number(number: u64, is_first: bool) -> HeaderValue {
    known(number.to_string(), is_first).unwrap_or_else(|| HeaderValue::from(number))
}

/// A value that many responses have. Not a part of the room, which it would keep from being used again.
///
/// The first that a place of this thread has may [last](lasting); where one displaces another, there are more than places,
/// and looking for those that last would take longer than it spares.
fn known(text: String, is_first: bool) -> Option<HeaderValue> {
    let lasting = if is_first { lasting(&text) } else { None };
    let bytes =
        lasting.map_or_else(|| Bytes::from(text), |text| Bytes::from_static(text.as_bytes()));
    HeaderValue::from_maybe_shared(bytes).ok()
}

/// The same text for as long as the program runs: then no response has to count itself among those that share its memory,
/// which costs as much as all else about a value. `None` once there are [enough](LASTING_MAX), for a long text, and
/// where another thread is just looking: nobody waits for it.
fn lasting(text: &str) -> Option<&'static str> {
    static LASTING: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let mut lasting = LASTING.try_lock().ok()?;
    if let Some(known) = lasting.iter().find(|known| **known == text) {
        return Some(known);
    }
    if lasting.len() == LASTING_MAX || text.len() > LASTING_BYTES_MAX {
        return None;
    }
    let text = &*Box::leak(Box::<str>::from(text));
    lasting.push(text);
    Some(text)
}

/// A value that takes its memory from a room.
#[inline]
fn value(room: &mut BytesMut, text: &[u8]) -> Option<HeaderValue> {
    HeaderValue::from_maybe_shared(shared(room, text)).ok()
}

#[inline]
fn shared(room: &mut BytesMut, text: &[u8]) -> Bytes {
    if room.capacity() < text.len() {
        // Where no response has a part of it any more, it is the same room again.
        room.reserve(ROOM_BYTES.max(text.len()));
    }
    room.extend_from_slice(text);
    room.split().freeze()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn numbers_are_written_in_full() {
        for number in (0..1_000).chain([u64::MAX]) {
            let text = number.to_string();
            assert_eq!(Values::with(|values| values.number(number)), text);
            assert_eq!(Values::with(|values| values.known_number(number)), text);
            assert_eq!(Values::with(|values| values.known_number(number)), text, "again");
        }
    }

    #[test]
    fn texts_last_up_to_a_number_and_a_length() {
        let long = "x".repeat(LASTING_BYTES_MAX + 1);
        assert_eq!(lasting(&long), None);
        assert_eq!(known(long.clone(), true).unwrap(), *long);
        // Other tests of this process may have some of them, or be just looking.
        let texts: Vec<_> = (0..3 * LASTING_MAX).map(|number| format!("text {number}")).collect();
        let kept = texts.iter().filter(|text| lasting(text).is_some()).count();
        assert!(kept <= LASTING_MAX, "{kept}");
        for text in texts {
            assert_eq!(known(text.clone(), true).unwrap(), *text);
            assert_eq!(known(text.clone(), false).unwrap(), *text);
        }
    }

    #[test]
    fn policies_that_share_a_place_are_told_apart() {
        let written = |name: &str, quota: u64, window_secs: u64| {
            let window = Duration::from_secs(window_secs);
            let policy = Policy::new(name, quota, 7).per(window);
            let (value, left) = Values::with(|values| values.only_policy(&policy, Some(8)));
            assert_eq!(value.unwrap(), format!("\"{name}\";q={quota};w={window_secs}"));
            assert_eq!(left.unwrap(), format!("\"{name}\";r=7;t=8"));
        };
        for _ in 0..2 {
            for quota in [1, 17, 33] {
                for window_secs in [1, 17, 33] {
                    written("a", quota, window_secs);
                    written("b", quota, window_secs);
                }
            }
        }
    }
}
