//! The values of headers, in memory that is used again: what changes with every response goes into one buffer that
//! many of them share, and what stays the same is written once for each thread, some of it once for all of them. Which headers there are is not
//! known here.

use std::cell::RefCell;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use http::header::HeaderValue;
use tidegate::rules::LimitMark;

use crate::headers::{Left, put_policies};
use crate::lasting::{Known, Written};
use crate::mould::Places;
use crate::standing::{Policy, Standing, Unit};
use crate::text::{INTEGER_MAX, put_name};

/// What is taken from the heap at once. It stays there as long as one of the responses does, so it is not
/// more than some forty of them need.
const ROOM_BYTES: usize = 4 << 10;
/// How many policies and how many limits a thread remembers the text of.
const KNOWN: usize = 16;
/// The same of those that are told apart by a number, which takes less room and less time to find.
const MARKED: usize = 64;
/// As many as the largest number has.
const DIGITS_MAX: usize = 20;
/// The most bytes of a standing beside its name: `;r=` and `;t=`, and a number behind each.
const LEFT_BYTES_MAX: usize = 2 * (3 + DIGITS_MAX);

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
    marked: Marks,
    numbers: [Option<(u64, HeaderValue)>; KNOWN],
}

/// The texts of policies that last, by the marks of their limits.
struct Marks([Option<Marked>; MARKED]);

#[derive(Clone, Copy)]
struct Marked {
    mark: LimitMark,
    text: &'static Written,
}

impl Default for Marks {
    fn default() -> Self {
        Self([None; MARKED])
    }
}

/// What a policy is, and how that is written.
struct KnownPolicy {
    name: Box<str>,
    quota: u64,
    unit: Unit,
    window_secs: u64,
    text: Known,
}

impl KnownPolicy {
    #[cold]
    fn new(policy: &Policy<'_>) -> Option<Self> {
        let mut text = Vec::new();
        put_policies(&mut text, &Standing::allowed().with(*policy));
        let mut written = Vec::new();
        put_name(&mut written, (policy, 0));
        let text = Known::new(String::from_utf8(text).ok()?, written.len())?;
        let Policy { name, quota, unit, window_secs, .. } = *policy;
        Some(Self { name: name.into(), quota, unit, window_secs, text })
    }

    fn is(&self, policy: &Policy<'_>) -> bool {
        self.quota == policy.quota
            && self.unit == policy.unit
            && self.window_secs == policy.window_secs
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
        let room = with_room(room, scratch.len());
        room.extend_from_slice(scratch);
        HeaderValue::from_maybe_shared(room.split().freeze()).ok()
    }

    /// A number that is another for most responses.
    #[inline]
    pub(crate) fn number(&mut self, number: u64) -> HeaderValue {
        if number < 100 {
            let (start, digits) = (2 * number as usize, 1 + usize::from(number >= 10));
            return HeaderValue::from_static(&SMALL[start + 2 - digits..start + 2]);
        }
        let room = with_room(&mut self.room, DIGITS_MAX);
        put_digits(room, number);
        plain_value(room.split().freeze())
    }

    /// A number that is the same for most responses.
    #[inline]
    pub(crate) fn known_number(&mut self, number: u64) -> HeaderValue {
        let known = &mut self.numbers[number as usize % KNOWN];
        match known {
            Some((is, value)) if *is == number => value.clone(),
            _ => known_number(number, known),
        }
    }

    /// What the only policy is, and its standing.
    pub(crate) fn only_policy(
        &mut self,
        policy: &Policy<'_>,
        until_secs: Option<u64>,
    ) -> (Option<HeaderValue>, Option<HeaderValue>) {
        let Some(text) = self.policy(policy) else { return (None, None) };
        let left = Left { remaining: policy.remaining(), until_secs };
        let standing = self.left(&text, left);
        (Some(text.value().clone()), Some(standing))
    }

    /// What a policy is. It is the same for all who meet its rule.
    pub(crate) fn policy(&mut self, policy: &Policy<'_>) -> Option<Known> {
        let Policy { name, quota, .. } = *policy;
        let ends = name.as_bytes().first().zip(name.as_bytes().last());
        let ends = ends.map_or(0, |(first, last)| usize::from(*first) ^ usize::from(*last) << 1);
        let place = &mut self.policies[(quota as usize ^ name.len() ^ ends) % KNOWN];
        if let Some(known) = place.as_ref().filter(|known| known.is(policy)) {
            return Some(known.text.clone());
        }
        let known = KnownPolicy::new(policy)?;
        let text = known.text.clone();
        *place = text.is_settled().then_some(known);
        Some(text)
    }

    /// What the policy is whose limit has this mark, where that is known and lasts.
    #[inline]
    pub(crate) fn marked(&self, mark: LimitMark) -> Option<&'static Written> {
        let known = self.marked.0[mark.number() as usize % MARKED]?;
        (known.mark == mark).then_some(known.text)
    }

    /// Has the policy found by that, where its text lasts.
    pub(crate) fn mark(&mut self, mark: LimitMark, text: &Known) {
        if let Known::Lasting(text) = *text {
            self.marked.0[mark.number() as usize % MARKED] = Some(Marked { mark, text });
        }
    }

    /// The standing of the policy with this text, which begins with its name.
    pub(crate) fn left(&mut self, text: &Known, left: Left) -> HeaderValue {
        let (whole, _) = self.put_left(text, left);
        plain_value(whole)
    }

    /// The same, and where in it the number is that is left.
    #[inline]
    fn put_left(
        &mut self,
        text: &Known,
        Left { remaining, until_secs }: Left,
    ) -> (Bytes, Range<usize>) {
        let name = text.name();
        let room = with_room(&mut self.room, name.len() + LEFT_BYTES_MAX);
        room.extend_from_slice(name);
        room.extend_from_slice(b";r=");
        let start = room.len();
        put_digits(room, remaining.min(INTEGER_MAX));
        let place = start..room.len();
        if let Some(secs) = until_secs {
            room.extend_from_slice(b";t=");
            put_digits(room, secs.min(INTEGER_MAX));
        }
        (room.split().freeze(), place)
    }

    /// All values of a call that passes under one limit alone, in the order in which `Texts` puts them into a map.
    #[inline]
    pub(crate) fn put_only(
        &mut self,
        text: &Known,
        left: Left,
        limit: u64,
        places: &mut Places<'_>,
    ) {
        places.put(text.value().clone());
        let (whole, place) = self.put_left(text, left);
        // A part of the same text, unless that has a smaller number.
        let part = match left.remaining {
            100..=INTEGER_MAX => Some(plain_value(whole.slice(place))),
            _ => None,
        };
        places.put(plain_value(whole));
        places.put(self.known_number(limit));
        places.put(part.unwrap_or_else(|| self.number(left.remaining)));
        places.put(self.number(left.until_secs.unwrap_or(0)));
    }
}

#[cold]
fn known_number(number: u64, place: &mut Option<(u64, HeaderValue)>) -> HeaderValue {
    let Some(known) = Known::new(number.to_string(), 0) else { return HeaderValue::from(number) };
    let value = known.value().clone();
    if known.is_settled() {
        *place = Some((number, value.clone()));
    }
    value
}

/// The same room, with place for so much.
#[inline]
fn with_room(room: &mut BytesMut, bytes: usize) -> &mut BytesMut {
    if room.capacity() < bytes {
        // Where no response has a part of it any more, it is the same room again.
        room.reserve(ROOM_BYTES.max(bytes));
    }
    room
}

/// A value of what is one for sure, so that no byte of it is looked at again for every response: the beginning of a
/// [`Known`] value, or none, and what this file appends to it.
#[inline]
#[expect(unsafe_code, reason = "240 of the 3,400 instructions of the layer with its headers")]
fn plain_value(bytes: Bytes) -> HeaderValue {
    // SAFETY: every byte is of a value that was checked when it was made, of `;r=` or `;t=`, or a digit. All of them may
    // stand in a value, and whether one may depends on no other. Builds for debugging look again.
    unsafe { HeaderValue::from_maybe_shared_unchecked(bytes) }
}

#[inline]
fn put_digits(room: &mut BytesMut, number: u64) {
    room.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn numbers_are_written_in_full() {
        let ends = [INTEGER_MAX, INTEGER_MAX + 1, u64::MAX];
        for number in (0..1_000).chain(ends) {
            assert_eq!(Values::with(|values| values.number(number)), number.to_string());
        }
        // Few: other tests of the process want their texts to last, too.
        for number in [0, 7, 16, 23, 100, 1_000].into_iter().chain(ends) {
            for _ in 0..2 {
                let written = Values::with(|values| values.known_number(number));
                assert_eq!(written, number.to_string());
            }
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
