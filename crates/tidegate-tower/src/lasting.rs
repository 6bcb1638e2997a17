//! Texts of headers that are kept for as long as the program runs: then no response has to count itself among those that
//! share their memory, which costs as much as all else about a value.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use bytes::Bytes;
use http::header::HeaderValue;

/// How many texts are kept, and how long one is at most: with what finds them again, 90 KiB in all. Few rule sets have so
/// many limits.
const TEXTS_MAX: usize = 256;
const TEXT_BYTES_MAX: usize = 256;

/// A text, and how much of it is a name, with which it begins.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) value: HeaderValue,
    pub(crate) name_bytes: usize,
}

impl Written {
    fn new(text: impl Into<Bytes>, name_bytes: usize) -> Option<Self> {
        let value = HeaderValue::from_maybe_shared(text.into()).ok()?;
        Some(Self { value, name_bytes })
    }
}

/// A text that many responses have.
#[derive(Clone, Debug)]
pub(crate) enum Known {
    /// It lasts as long as the program runs.
    Lasting(&'static Written),
    /// It is too long for that, or there are enough.
    Shared(Written),
    /// Somebody else was just looking, for whom nobody waits: what became of it is known the next time.
    Unsettled(Written),
}

impl Known {
    /// `None` for a text that is no value of a header.
    pub(crate) fn new(text: String, name_bytes: usize) -> Option<Self> {
        static TEXTS: LazyLock<Mutex<Texts>> = LazyLock::new(Mutex::default);
        let Ok(mut texts) = TEXTS.try_lock() else {
            return Written::new(text, name_bytes).map(Self::Unsettled);
        };
        match texts.keep(&text, name_bytes) {
            Some(lasting) => Some(Self::Lasting(lasting)),
            None => Written::new(text, name_bytes).map(Self::Shared),
        }
    }

    #[inline]
    pub(crate) fn value(&self) -> &HeaderValue {
        &self.written().value
    }

    /// The name that it begins with.
    #[inline]
    pub(crate) fn name(&self) -> &[u8] {
        let Written { value, name_bytes } = self.written();
        value.as_bytes().get(..*name_bytes).unwrap_or_default()
    }

    #[inline]
    fn written(&self) -> &Written {
        match self {
            Self::Lasting(written) => written,
            Self::Shared(written) | Self::Unsettled(written) => written,
        }
    }

    /// Whether it would not be another one the next time.
    pub(crate) fn is_settled(&self) -> bool {
        !matches!(self, Self::Unsettled(_))
    }
}

#[derive(Default)]
struct Texts(HashMap<&'static str, &'static Written>);

impl Texts {
    /// The text, for good. `None` for a long one, and once there are enough.
    fn keep(&mut self, text: &str, name_bytes: usize) -> Option<&'static Written> {
        // A text says where the name in it ends.
        if let Some(known) = self.0.get(text) {
            return Some(known);
        }
        if self.0.len() == TEXTS_MAX || text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let text = &*Box::leak(Box::<str>::from(text));
        let written = Written::new(Bytes::from_static(text.as_bytes()), name_bytes)?;
        Some(self.0.entry(text).or_insert(Box::leak(Box::new(written))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_last_up_to_a_number_and_a_length() {
        let mut texts = Texts::default();
        assert!(texts.keep(&"x".repeat(TEXT_BYTES_MAX + 1), 0).is_none());
        let all: Vec<_> = (0..3 * TEXTS_MAX).map(|number| format!("text {number}")).collect();
        for _ in 0..2 {
            let kept: Vec<_> = all.iter().map_while(|text| texts.keep(text, 4)).collect();
            assert_eq!(kept.len(), TEXTS_MAX, "the first ones, and the same the second time");
            assert!(kept.iter().zip(&all).all(|(kept, text)| kept.value == text.as_str()));
        }
        assert!(texts.keep(&all[TEXTS_MAX], 4).is_none());
    }

    #[test]
    fn a_text_is_the_same_whether_it_lasts_or_not() {
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        for text in ["\"a\";q=10", &long] {
            let known = Known::new(text.to_owned(), 3).unwrap();
            assert_eq!(known.value(), text);
            assert_eq!(known.name(), &text.as_bytes()[..3]);
        }
        assert!(Known::new("a\n".to_owned(), 0).is_none(), "no value of a header");
    }
}
