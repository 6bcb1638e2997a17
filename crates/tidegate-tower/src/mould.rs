//! Header maps for responses that look alike. A map hashes each name that is put into it, and one that outgrows its
//! room hashes nothing but moves everything; a copy of a map does neither. So a thread keeps the names of the last
//! responses that all headers of ours were put into, and a response with the same names of its own gets a copy, with its
//! values. No value is kept, and what the map holds is the same either way.

use std::{array, mem};

use http::HeaderMap;
use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue};

/// How many kinds of responses a thread remembers, by how many headers they have of their own. Those with more are
/// not remembered.
const MOULDS: usize = 8;
/// How long a name is at most that is kept.
const NAME_BYTES_MAX: usize = 64;
/// What stands where a value will.
pub(crate) const NOTHING: HeaderValue = HeaderValue::from_static("");
/// After how many others in a row a mould is given up for the next one: where two kinds of responses alternate, making a
/// mould for each of them would cost more than it spares.
const MISSES_MAX: u8 = 4;

/// The names of some responses, each with those of ours at the end, which are `OURS` in number.
#[derive(Debug)]
pub(crate) struct Moulds<const OURS: usize>([Mould; MOULDS]);

#[derive(Debug, Default)]
struct Mould {
    /// The names that a response has of its own, in their order, each once.
    own: Box<[HeaderName]>,
    /// The same and ours, with empty values; `None` until there is a response to learn from.
    map: Option<HeaderMap>,
    misses: u8,
}

impl<const OURS: usize> Default for Moulds<OURS> {
    fn default() -> Self {
        Self(array::from_fn(|_| Mould::default()))
    }
}

impl<const OURS: usize> Moulds<OURS> {
    /// Gives a response its map with `ours` in it, where one with the same names is known that had none of ours
    /// before. What is left of the map that it had is handed back, so that nothing is dropped here, and of `ours`
    /// nothing is left.
    #[inline]
    pub(crate) fn cast(
        &mut self,
        headers: &mut HeaderMap,
        ours: &mut [HeaderValue; OURS],
    ) -> Option<HeaderMap> {
        let mut map = self.0.get_mut(headers.len())?.copy_for(headers)?;
        let mut places = map.values_mut();
        for value in headers.values_mut().chain(ours) {
            if let Some(place) = places.next() {
                mem::swap(place, value);
            }
        }
        Some(mem::replace(headers, map))
    }

    /// Remembers the names of a response that had so many headers of its own, and now has all of ours as well. Not those
    /// of one without its length: it may get that later, and a copy has no room to spare.
    #[inline(never)]
    pub(crate) fn learn(&mut self, own: usize, headers: &HeaderMap) {
        let Some(mould) = self.0.get_mut(own) else { return };
        let is_whole = headers.len() == own + OURS && headers.keys_len() == headers.len();
        let is_free = mould.map.is_none() || mould.misses > MISSES_MAX;
        let is_short = |name: &HeaderName| name.as_str().len() <= NAME_BYTES_MAX;
        let is_done = headers.contains_key(CONTENT_LENGTH);
        if !(is_whole && is_done && is_free && headers.keys().all(is_short)) {
            return;
        }
        let mut map = HeaderMap::with_capacity(headers.len());
        map.extend(headers.keys().map(|name| (name.clone(), NOTHING)));
        let own = headers.keys().take(own).cloned().collect();
        *mould = Mould { own, map: Some(map), misses: 0 };
    }
}

impl Mould {
    /// A copy for a response with these headers.
    #[inline]
    fn copy_for(&mut self, headers: &HeaderMap) -> Option<HeaderMap> {
        let is_like = headers.keys_len() == headers.len() && headers.keys().eq(self.own.iter());
        match &self.map {
            Some(map) if is_like => {
                self.misses = 0;
                Some(map.clone())
            }
            _ => {
                self.misses = self.misses.saturating_add(1);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OURS: [&str; 2] = ["ours", "x-ours"];
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
    fn put(moulds: &mut Moulds<2>, headers: &mut HeaderMap, number: usize) -> bool {
        let own = headers.len();
        let mut ours: [HeaderValue; 2] = values(&OURS, number).try_into().unwrap();
        if let Some(emptied) = moulds.cast(headers, &mut ours) {
            assert!(emptied.values().chain(&ours).all(HeaderValue::is_empty), "all have moved");
            return true;
        }
        OURS.into_iter().zip(ours).for_each(|(name, value)| drop(headers.insert(name, value)));
        moulds.learn(own, headers);
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

    proptest! {
        /// Whatever responses came before.
        #[test]
        fn a_map_from_a_mould_is_the_map_that_it_would_have_been(
            kinds in proptest::collection::vec(proptest::collection::vec(0..THEIRS.len(), 0..5), 1..4),
            order in proptest::collection::vec(0..4usize, 1..40),
        ) {
            let mut moulds = Moulds::<2>::default();
            for (number, kind) in order.into_iter().enumerate() {
                let kind = &kinds[kind % kinds.len()];
                let mut headers = response(kind, number);
                put(&mut moulds, &mut headers, number);
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
        let mut moulds = Moulds::<2>::default();
        let cast =
            [[0, 1], [0, 1], [0, 1]].map(|kind| put(&mut moulds, &mut response(&kind, 1), 1));
        assert_eq!(cast, [false, true, true]);
    }

    #[test]
    fn a_response_that_may_get_its_length_later_leaves_no_mould() {
        let mut moulds = Moulds::<2>::default();
        let cast = [[0, 2], [0, 2]].map(|kind| put(&mut moulds, &mut response(&kind, 1), 1));
        assert_eq!(cast, [false, false]);
    }

    #[test]
    fn a_mould_is_given_up_when_only_others_come() {
        let mut moulds = Moulds::<2>::default();
        let mut is_cast = |kind: [usize; 2]| put(&mut moulds, &mut response(&kind, 1), 1);
        assert!(!is_cast([0, 1]));
        // In turns, the one that is known stays.
        assert_eq!([[1, 2], [0, 1], [1, 2], [0, 1]].map(&mut is_cast), [false, true, false, true]);
        let misses = (0..100).take_while(|_| !is_cast([1, 2])).count();
        assert_eq!(misses, usize::from(MISSES_MAX) + 1);
        assert!(!is_cast([0, 1]));
    }

    #[test]
    fn no_value_stays_in_a_mould() {
        let mut moulds = Moulds::<2>::default();
        put(&mut moulds, &mut response(&[1, 4], 1), 1);
        let maps: Vec<_> = moulds.0.iter().filter_map(|mould| mould.map.as_ref()).collect();
        assert_eq!(maps.len(), 1);
        assert!(maps.into_iter().flat_map(HeaderMap::values).all(HeaderValue::is_empty));
    }
}
