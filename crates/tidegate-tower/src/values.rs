//! The values of headers, in memory that is used again: what changes with every response goes into one buffer that
//! many of them share, and what stays the same is written once for each thread. Which headers there are is not
//! known here.

use std::cell::RefCell;

use bytes::{Bytes, BytesMut};
use http::header::HeaderValue;

use crate::headers::{put_left, put_policies};
use crate::standing::{Policy, Standing, Unit};
use crate::text::put_name;

/// What is taken from the heap at once. It stays there as long as one of the responses does, so it is not
/// more than some forty of them need.
const ROOM_BYTES: usize = 4 << 10;
/// How many policies and how many limits a thread remembers the text of.
const KNOWN: usize = 16;

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
    value: HeaderValue,
    /// What its standing begins with: its name.
    name_written: Box<[u8]>,
}

impl KnownPolicy {
    #[cold]
    fn new(policy: &Policy<'_>) -> Option<Self> {
        // Not a part of the room, which it would keep from being used again.
        let mut text = Vec::new();
        put_policies(&mut text, &Standing::allowed().with(*policy));
        let value = HeaderValue::from_maybe_shared(Bytes::from(text)).ok()?;
        let mut written = Vec::new();
        put_name(&mut written, (policy, 0));
        let Policy { name, quota, unit, window_secs, .. } = *policy;
        let (name, name_written) = (name.into(), written.into());
        Some(Self { name, quota, unit, window_secs, value, name_written })
    }

    fn is(&self, policy: &Policy<'_>) -> bool {
        self.quota == policy.quota
            && self.window_secs == policy.window_secs
            && self.unit == policy.unit
            && *self.name == *policy.name
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
            _ => known.insert((number, HeaderValue::from(number))).1.clone(),
        }
    }

    /// What the only policy is, and its standing. There is one nearly always, and it is the same for all who meet its
    /// rule.
    #[inline]
    pub(crate) fn only_policy(
        &mut self,
        policy: &Policy<'_>,
        until_secs: Option<u64>,
    ) -> (Option<HeaderValue>, Option<HeaderValue>) {
        let Policy { name, quota, window_secs, .. } = *policy;
        let ends = name.as_bytes().first().zip(name.as_bytes().last());
        let ends = ends.map_or(0, |(first, last)| usize::from(*first) ^ usize::from(*last) << 1);
        let place = ((quota ^ window_secs) as usize ^ name.len() ^ ends) % KNOWN;
        let Self { scratch, room, policies, .. } = self;
        let known = match &policies[place] {
            Some(known) if known.is(policy) => known,
            _ => match KnownPolicy::new(policy) {
                Some(known) => policies[place].insert(known),
                None => return (None, None),
            },
        };
        scratch.clear();
        scratch.extend_from_slice(&known.name_written);
        put_left(scratch, policy, until_secs);
        (Some(known.value.clone()), value(room, scratch))
    }
}

/// A value that takes its memory from a room.
#[inline]
fn value(room: &mut BytesMut, text: &[u8]) -> Option<HeaderValue> {
    if room.capacity() < text.len() {
        // Where no response has a part of it any more, it is the same room again.
        room.reserve(ROOM_BYTES.max(text.len()));
    }
    room.extend_from_slice(text);
    HeaderValue::from_maybe_shared(room.split().freeze()).ok()
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
