//! Header maps for responses that look alike. A map hashes each name that is put into it, and all of ours outgrow the room
//! that a response begins with; a copy of a map hashes nothing, and has the size that it needs. So a thread keeps the names
//! of some responses that all of our headers were put into, and a response with the same names of its own gets a copy,
//! with its values. No value is kept, and what the map holds is the same either way.
//!
//! A thread has one mould for each number of headers that responses have of their own, so at most [`MOULDS_MAX`] of them with
//! [`NAME_BYTES_MAX`] bytes a name. Fewer than all of ours mostly have room in the map that a response has, and cost less
//! there. A copy has no room to spare: whoever adds a header further out moves it once.

use std::cell::RefCell;
use std::mem;

use http::HeaderMap;
use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue, ValuesMut};

use crate::headers::HEADERS_MAX;

/// How many kinds of responses a thread remembers, by how many headers they have of their own. Those with as many or
/// more are not remembered.
const MOULDS_MAX: usize = 8;
/// How long a name is at most that is kept.
const NAME_BYTES_MAX: usize = 64;
/// How many of another kind in a row leave a mould as it is: where two kinds of responses alternate, making a mould for each
/// of them would cost more than it spares.
const MISSES_MAX: u8 = 4;

/// What stands where a value will.
pub(crate) const NOTHING: HeaderValue = HeaderValue::from_static("");

thread_local! {
    static MOULDS: RefCell<[Mould; MOULDS_MAX]> = RefCell::default();
}

#[derive(Debug, Default)]
struct Mould {
    /// The names that a response has of its own, in their order, each once.
    own: Box<[HeaderName]>,
    /// The same and ours, with empty values; `None` until there is a response to learn from.
    map: Option<HeaderMap>,
    misses: u8,
}

/// Where the values of ours belong, in the order of their names.
pub(crate) struct Places<'m>(ValuesMut<'m, HeaderValue>);

impl Places<'_> {
    /// Puts a value into the next place.
    #[inline]
    pub(crate) fn put(&mut self, value: HeaderValue) {
        if let Some(place) = self.0.next() {
            // There is nothing in it, so nothing to be dropped, which would take longer than this.
            mem::forget(mem::replace(place, value));
        }
    }
}

/// Gives a response its map with all of ours in it, whose values `put` puts into their places, where one with the same names
/// is known that had none of ours before. Says whether it did.
#[inline]
pub(crate) fn cast(headers: &mut HeaderMap, put: impl FnOnce(&mut Places<'_>)) -> bool {
    let copy = MOULDS.with_borrow_mut(|moulds| moulds.get_mut(headers.len())?.copy_for(headers));
    let Some(mut map) = copy else { return false };
    let mut places = Places(map.values_mut());
    for value in headers.values_mut() {
        places.put(mem::replace(value, NOTHING));
    }
    put(&mut places);
    debug_assert!(places.0.next().is_none(), "each of ours has its value");
    *headers = map;
    true
}

/// Remembers the names of a response that had so many headers of its own, and now has all of ours as well. Not those of one
/// without its length: it gets that later where axum's router is further out, and would have to be moved for it.
#[inline(never)]
pub(crate) fn learn(own: usize, headers: &HeaderMap) {
    let is_whole = headers.len() == own + HEADERS_MAX && headers.keys_len() == headers.len();
    let is_short = |name: &HeaderName| name.as_str().len() <= NAME_BYTES_MAX;
    if own >= MOULDS_MAX
        || !is_whole
        || !headers.keys().take(own).any(|name| *name == CONTENT_LENGTH)
        || !headers.keys().all(is_short)
    {
        return;
    }
    MOULDS.with_borrow_mut(|moulds| moulds[own].learn(own, headers));
}

impl Mould {
    /// A copy for a response with these headers.
    #[inline]
    fn copy_for(&mut self, headers: &HeaderMap) -> Option<HeaderMap> {
        let map = self.map.as_ref()?;
        if headers.keys_len() != headers.len() || !headers.keys().eq(self.own.iter()) {
            return None;
        }
        self.misses = 0;
        Some(map.clone())
    }

    fn learn(&mut self, own: usize, headers: &HeaderMap) {
        if self.map.is_some() && self.misses < MISSES_MAX {
            self.misses += 1;
            return;
        }
        let mut map = HeaderMap::with_capacity(headers.len());
        map.extend(headers.keys().map(|name| (name.clone(), NOTHING)));
        let own = headers.keys().take(own).cloned().collect();
        *self = Self { own, map: Some(map), misses: 0 };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OURS: [&str; HEADERS_MAX] = ["ours", "x-ours", "x-ours-too", "a", "b"];
    const THEIRS: [&str; 9] = [
        "content-type",
        "content-length",
        "date",
        "vary",
        "set-cookie",
        "x-theirs",
        "ours",
        "etag",
        "x-a-name-of-more-than-sixty-four-bytes-that-nobody-would-give-to-a-header",
    ];

    fn values(names: &[&str], number: usize) -> Vec<HeaderValue> {
        let text = |name: &&str| format!("{name} {number}");
        names.iter().map(|name| HeaderValue::from_maybe_shared(text(name)).unwrap()).collect()
    }

    /// Puts ours into a map, by a mould where there is one. Says whether there was.
    fn put(headers: &mut HeaderMap, number: usize) -> bool {
        let own = headers.len();
        let ours = values(&OURS, number);
        let is_cast =
            cast(headers, |places| ours.iter().for_each(|value| places.put(value.clone())));
        if is_cast {
            return true;
        }
        OURS.into_iter().zip(ours).for_each(|(name, value)| drop(headers.insert(name, value)));
        learn(own, headers);
        false
    }

    fn response(names: &[usize], number: usize) -> HeaderMap {
        let names: Vec<_> = names.iter().map(|name| THEIRS[*name]).collect();
        let mut headers = HeaderMap::new();
        for (name, value) in names.iter().zip(values(&names, number)) {
            headers.append(HeaderName::from_static(name), value);
        }
        headers
    }

    /// Each test has a thread of its own, and proptest runs its cases on one.
    fn forget_all() {
        MOULDS.take();
    }

    proptest! {
        /// Whatever responses came before.
        #[test]
        fn a_map_from_a_mould_is_the_map_that_it_would_have_been(
            kinds in proptest::collection::vec(proptest::collection::vec(0..THEIRS.len(), 0..5), 1..4),
            order in proptest::collection::vec(0..4usize, 1..40),
        ) {
            forget_all();
            for (number, kind) in order.into_iter().enumerate() {
                let kind = &kinds[kind % kinds.len()];
                let mut headers = response(kind, number);
                put(&mut headers, number);
                let mut expected = response(kind, number);
                for (name, value) in OURS.into_iter().zip(values(&OURS, number)) {
                    expected.insert(name, value);
                }
                let lines = |map: &HeaderMap| -> Vec<_> {
                    map.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
                };
                prop_assert_eq!(lines(&headers), lines(&expected));
                // It finds what is in it, and takes what comes later.
                prop_assert_eq!(&headers, &expected);
                headers.insert("later", HeaderValue::from_static("1"));
                prop_assert_eq!(headers.get("later").map(HeaderValue::len), Some(1));
                for (name, value) in &expected {
                    prop_assert!(headers.get_all(name).iter().any(|found| found == value));
                }
            }
        }
    }

    #[test]
    fn the_second_response_of_a_kind_comes_from_a_mould() {
        let cast = [[0, 1], [0, 1], [0, 1]].map(|kind| put(&mut response(&kind, 1), 1));
        assert_eq!(cast, [false, true, true]);
    }

    #[test]
    fn a_response_that_may_get_its_length_later_leaves_no_mould() {
        let cast = [[0, 2], [0, 2]].map(|kind| put(&mut response(&kind, 1), 1));
        assert_eq!(cast, [false, false]);
    }

    #[test]
    fn a_mould_is_given_up_when_only_others_come_that_could_have_one() {
        let is_cast = |kind: [usize; 2]| put(&mut response(&kind, 1), 1);
        assert!(!is_cast([0, 1]));
        // In turns, the one that is known stays, and so it does beside those that leave none.
        assert_eq!([[1, 2], [0, 1], [1, 2], [0, 1]].map(is_cast), [false, true, false, true]);
        assert!((0..100).all(|_| !is_cast([4, 4]) && !is_cast([0, 2])));
        assert!(is_cast([0, 1]));
        let misses = (0..100).take_while(|_| !is_cast([1, 2])).count();
        assert_eq!(misses, usize::from(MISSES_MAX) + 1);
        assert!(!is_cast([0, 1]));
    }

    #[test]
    fn no_value_stays_in_a_mould() {
        put(&mut response(&[1, 4], 1), 1);
        assert!(put(&mut response(&[1, 4], 2), 2));
        let moulds = MOULDS.take();
        let maps: Vec<_> = moulds.iter().filter_map(|mould| mould.map.as_ref()).collect();
        assert_eq!(maps.len(), 1);
        assert!(maps.into_iter().flat_map(HeaderMap::values).all(HeaderValue::is_empty));
    }
}
