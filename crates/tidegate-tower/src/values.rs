//! The values of headers, in memory that is used again: what changes with every response goes into one buffer that
//! many of them share, and what stays the same is written once for each thread, some of it once for all of them. Which headers there are is not
//! known here.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Mutex;

use bytes::{Bytes, BytesMut};
use http::header::HeaderValue;
use tidegate::Limit;

use crate::headers::{Left, put_policies};
use crate::mould::{NOTHING, Places};
use crate::standing::{Policy, Standing, Unit, Window};
use crate::text::{INTEGER_MAX, put_name};

/// What is taken from the heap at once. It stays there as long as one of the responses does, so it is not
/// more than some forty of them need.
const ROOM_BYTES: usize = 4 << 10;
/// How many policies and how many limits a thread remembers the text of.
const KNOWN: usize = 16;
/// The same of those that are told apart by a number, which takes less room and less time to find.
const MARKED: usize = 64;
/// How many of those texts all threads together keep for good, and how long one is at most: 64 KiB in all. Few rule sets
/// have so many limits.
const LASTING_MAX: usize = 256;
const LASTING_BYTES_MAX: usize = 256;

/// As many as [`INTEGER_MAX`] has.
const DIGITS_MAX: usize = 15;
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

/// What a policy is, as it is written.
#[derive(Clone, Debug)]
pub(crate) enum PolicyText {
    /// For as long as the program runs.
    Lasting(&'static Written),
    Shared(Written),
}

#[derive(Clone, Debug)]
pub(crate) struct Written {
    value: HeaderValue,
    /// How much of it is the name, with which it begins.
    name_bytes: usize,
}

impl PolicyText {
    #[inline]
    pub(crate) fn value(&self) -> &HeaderValue {
        &self.text().value
    }

    #[inline]
    pub(crate) fn name(&self) -> &[u8] {
        let Written { value, name_bytes } = self.text();
        value.as_bytes().get(..*name_bytes).unwrap_or_default()
    }

    #[inline]
    fn text(&self) -> &Written {
        match self {
            Self::Lasting(text) => text,
            Self::Shared(text) => text,
        }
    }
}

/// The texts of policies that last, by the marks of their limits.
struct Marks([Option<Marked>; MARKED]);

#[derive(Clone, Copy)]
struct Marked {
    mark: u64,
    limit: u64,
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
    /// The limit whose window that is, where it was seen.
    limit: Option<Limit>,
    text: PolicyText,
}

impl KnownPolicy {
    #[cold]
    fn new(policy: &Policy<'_>, is_first: bool) -> Option<Self> {
        let mut text = Vec::new();
        put_policies(&mut text, &Standing::allowed().with(*policy));
        let mut written = Vec::new();
        put_name(&mut written, (policy, 0));
        let text = policy_text(String::from_utf8(text).ok()?, written.len(), is_first)?;
        let name = policy.name.into();
        let (quota, unit, window_secs) = (policy.quota, policy.unit, policy.window_secs());
        Some(Self { name, quota, unit, window_secs, limit: None, text })
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
        let room = with_room(room, scratch.len());
        room.extend_from_slice(scratch);
        HeaderValue::from_maybe_shared(room.split().freeze()).ok()
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
            100..=INTEGER_MAX => {
                let room = with_room(&mut self.room, DIGITS_MAX);
                put_digits(room, number);
                HeaderValue::from_maybe_shared(room.split().freeze()).unwrap_or(NOTHING)
            }
            _ => HeaderValue::from(number),
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
        let Some(text) = self.policy(policy) else { return (None, None) };
        let left = Left { remaining: policy.remaining(), until_secs };
        let standing = self.left(text.name(), left);
        (Some(text.value().clone()), Some(standing))
    }

    /// What a policy is. It is the same for all who meet its rule.
    #[inline]
    pub(crate) fn policy(&mut self, policy: &Policy<'_>) -> Option<PolicyText> {
        let Policy { name, quota, .. } = *policy;
        let ends = name.as_bytes().first().zip(name.as_bytes().last());
        let ends = ends.map_or(0, |(first, last)| usize::from(*first) ^ usize::from(*last) << 1);
        let place = &mut self.policies[(quota as usize ^ name.len() ^ ends) % KNOWN];
        if !place.as_mut().is_some_and(|known| known.is(policy)) {
            *place = KnownPolicy::new(policy, place.is_none());
        }
        place.as_ref().map(|known| known.text.clone())
    }

    /// What the policy is whose limit has this mark and this quota, where that is known and lasts.
    #[inline]
    pub(crate) fn marked(&self, mark: u64, limit: u64) -> Option<&'static Written> {
        let known = self.marked.0[mark as usize % MARKED]?;
        (known.mark == mark && known.limit == limit).then_some(known.text)
    }

    /// Has the policy found by that, where its text lasts.
    pub(crate) fn mark(&mut self, mark: u64, limit: u64, text: &PolicyText) {
        if let PolicyText::Lasting(text) = *text {
            self.marked.0[mark as usize % MARKED] = Some(Marked { mark, limit, text });
        }
    }

    /// The standing of the policy that has this name, as it is written in a value already, so that it and some numbers
    /// always are one too.
    pub(crate) fn left(&mut self, name: &[u8], left: Left) -> HeaderValue {
        let (whole, _) = self.put_left(name, left);
        HeaderValue::from_maybe_shared(whole).unwrap_or(NOTHING)
    }

    /// The same, and where in it the number is that is left.
    #[inline]
    fn put_left(
        &mut self,
        name: &[u8],
        Left { remaining, until_secs }: Left,
    ) -> (Bytes, Range<usize>) {
        let room = with_room(&mut self.room, name.len() + LEFT_BYTES_MAX);
        room.extend_from_slice(name);
        room.extend_from_slice(b";r=");
        let start = room.len();
        put_digits(room, remaining);
        let place = start..room.len();
        if let Some(secs) = until_secs {
            room.extend_from_slice(b";t=");
            put_digits(room, secs);
        }
        (room.split().freeze(), place)
    }

    /// All values of a call that passes under one limit alone, in the order in which `Texts` puts them into a map.
    #[inline]
    pub(crate) fn put_only(
        &mut self,
        text: &PolicyText,
        left: Left,
        limit: u64,
        places: &mut Places<'_>,
    ) {
        places.put(text.value().clone());
        let (whole, place) = self.put_left(text.name(), left);
        // A part of the same text, unless that has a smaller number.
        let part = match left.remaining {
            100..=INTEGER_MAX => HeaderValue::from_maybe_shared(whole.slice(place)).ok(),
            _ => None,
        };
        places.put(HeaderValue::from_maybe_shared(whole).unwrap_or(NOTHING));
        places.put(self.known_number(limit));
        places.put(part.unwrap_or_else(|| self.number(left.remaining)));
        places.put(self.number(left.until_secs.unwrap_or(0)));
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

/// The same of a policy, of which so many bytes are its name.
fn policy_text(text: String, name_bytes: usize, is_first: bool) -> Option<PolicyText> {
    static LASTING: Mutex<Vec<&'static Written>> = Mutex::new(Vec::new());
    let lasting = if is_first { lasting(&text) } else { None };
    let Some(text) = lasting else {
        let value = HeaderValue::from_maybe_shared(Bytes::from(text)).ok()?;
        return Some(PolicyText::Shared(Written { value, name_bytes }));
    };
    let value = HeaderValue::from_maybe_shared(Bytes::from_static(text.as_bytes())).ok()?;
    let written = Written { value, name_bytes };
    let Ok(mut all) = LASTING.try_lock() else { return Some(PolicyText::Shared(written)) };
    // No more than there are texts that last, since the text says where the name ends.
    let known = all.iter().find(|known| known.value == written.value).copied();
    Some(PolicyText::Lasting(known.unwrap_or_else(|| {
        let lasting = &*Box::leak(Box::new(written));
        all.push(lasting);
        lasting
    })))
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

/// The same room, with place for so much.
#[inline]
fn with_room(room: &mut BytesMut, bytes: usize) -> &mut BytesMut {
    if room.capacity() < bytes {
        // Where no response has a part of it any more, it is the same room again.
        room.reserve(ROOM_BYTES.max(bytes));
    }
    room
}

/// Appends an integer of a structured field: what is larger is written as the largest.
#[inline]
fn put_digits(room: &mut BytesMut, number: u64) {
    room.extend_from_slice(itoa::Buffer::new().format(number.min(INTEGER_MAX)).as_bytes());
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
