//! Maps of headers that grow to their last size at once, with all their names. A map that grows while one name after
//! the other is put into it takes memory twice and hashes every name; the responses of a service mostly have the same
//! names, so a thread remembers some maps of names and fills a copy.

use std::cell::RefCell;

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

/// How many maps a thread remembers: one for each number of headers, counted from none again after so many.
const KNOWN: usize = 8;
/// Responses with more headers than this are not remembered: a copy of so many names is no gain.
const HEADERS_MAX: usize = 12;
/// One of so many maps that are not known takes the place of another. A service whose responses always have other names
/// hardly learns in vain.
const LEARNED_OF: u32 = 8;

thread_local! {
    static MAPS: RefCell<Known> = RefCell::default();
}

#[derive(Default)]
struct Known {
    /// Maps with names and without values.
    maps: [HeaderMap; KNOWN],
    /// How many were not known.
    unknown: u32,
}

/// Puts values into a map that has too little room for them, in the place of any with these names. The names have to
/// be the same in all calls.
#[inline]
pub(crate) fn put<const N: usize>(
    headers: &mut HeaderMap,
    names: &[&'static HeaderName; N],
    values: [HeaderValue; N],
) {
    let known = MAPS.with_borrow_mut(|known| known.with_names(headers, names).cloned());
    let Some(mut filled) = known else {
        headers.reserve(N + 1);
        for (name, value) in names.iter().zip(values) {
            headers.insert(*name, value);
        }
        return;
    };
    let mut places = filled.values_mut();
    for (value, place) in headers.values_mut().zip(&mut places) {
        std::mem::swap(value, place);
    }
    for (value, place) in values.into_iter().zip(places) {
        *place = value;
    }
    *headers = filled;
}

impl Known {
    /// The map that has the names of `headers` and then these, each once.
    #[inline]
    fn with_names<const N: usize>(
        &mut self,
        headers: &HeaderMap,
        names: &[&'static HeaderName; N],
    ) -> Option<&HeaderMap> {
        // A name that has several values is in a map once.
        if headers.keys_len() != headers.len() || headers.len() > HEADERS_MAX {
            return None;
        }
        let known = &mut self.maps[headers.len() % KNOWN];
        let is_known = known.len() == headers.len() + N
            && known.keys().zip(headers.keys()).all(|(known, name)| known == name);
        if !is_known {
            self.unknown = self.unknown.wrapping_add(1);
            if self.unknown % LEARNED_OF != 1 {
                return None;
            }
            let learned = learned(headers, names);
            if learned.len() != headers.len() + N {
                return None;
            }
            *known = learned;
        }
        Some(known)
    }
}

#[cold]
fn learned<const N: usize>(headers: &HeaderMap, names: &[&'static HeaderName; N]) -> HeaderMap {
    // With a place for one that is added later.
    let mut learned = HeaderMap::with_capacity(headers.len() + N + 1);
    for name in headers.keys().chain(names.iter().copied()) {
        learned.insert(name, HeaderValue::from_static(""));
    }
    learned
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    static A: HeaderName = HeaderName::from_static("a-name");
    static B: HeaderName = HeaderName::from_static("another");

    /// Names of which some are ours, some are standard, and some are neither.
    fn headers() -> impl Strategy<Value = Vec<(HeaderName, HeaderValue)>> {
        let name = prop_oneof![
            Just(http::header::CONTENT_TYPE),
            Just(http::header::CONTENT_LENGTH),
            Just(http::header::SET_COOKIE),
            Just(HeaderName::from_static("x-of-the-app")),
            Just(A.clone()),
        ];
        let value = "[ -~]{0,9}".prop_map(|text| HeaderValue::from_str(&text).unwrap());
        proptest::collection::vec((name, value), 0..16)
    }

    proptest! {
        #[test]
        fn a_map_that_is_known_is_filled_as_if_name_by_name(
            responses in proptest::collection::vec(headers(), 1..40),
        ) {
            for (number, response) in responses.into_iter().enumerate() {
                let mut one = HeaderMap::new();
                for (name, value) in response {
                    one.append(name, value);
                }
                // Often the same names again, so that they are known.
                for round in 0..3 {
                    let (mut filled, mut expected) = (one.clone(), one.clone());
                    let values = [HeaderValue::from(number), HeaderValue::from(round)];
                    expected.insert(&A, values[0].clone());
                    expected.insert(&B, values[1].clone());
                    put(&mut filled, &[&A, &B], values);
                    prop_assert_eq!(&filled, &expected);
                    prop_assert!(filled.iter().eq(expected.iter()), "in the same order");
                    // It is a map like any other.
                    filled.append("x-later", HeaderValue::from_static("1"));
                    expected.append("x-later", HeaderValue::from_static("1"));
                    prop_assert_eq!(filled.remove(&A), expected.remove(&A));
                    prop_assert_eq!(filled, expected);
                }
            }
        }
    }

    #[test]
    fn what_comes_often_is_known_and_has_its_names_once() {
        let mut one = HeaderMap::new();
        one.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        let mut known = Known::default();
        assert!(known.with_names(&one, &[&A, &B]).is_some(), "the first is learned");
        assert!(known.with_names(&one, &[&A, &B]).is_some());
        one.insert(&A, HeaderValue::from_static("there already"));
        assert!((0..LEARNED_OF * 2).all(|_| known.with_names(&one, &[&A, &B]).is_none()));
    }
}
