//! Short texts as whole words, to be hashed and compared without a loop or a call.

use std::num::NonZero;

/// A text of at most 16 bytes, and a number beside it.
#[derive(Clone, Copy, Debug, Eq)]
pub(super) struct Words {
    /// The first bytes, and the last; they overlap, so that together they are all of them.
    first: u64,
    last: u64,
    /// The number, the length of the text, and a bit that is set.
    rest: NonZero<u64>,
}

impl Words {
    /// The longest text.
    const LEN_MAX: usize = 16;

    /// The words of a text, unless it is too long.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the words would pass through memory")]
    pub(super) fn new(number: u32, text: &[u8]) -> Option<Self> {
        if text.len() > Self::LEN_MAX {
            return None;
        }
        let (first, last) = match text.len() {
            8.. => (u64::from_le_bytes(first_of(text)?), u64::from_le_bytes(last_of(text)?)),
            4.. => (
                u32::from_le_bytes(first_of(text)?).into(),
                u32::from_le_bytes(last_of(text)?).into(),
            ),
            2.. => (
                u16::from_le_bytes(first_of(text)?).into(),
                u16::from_le_bytes(last_of(text)?).into(),
            ),
            1 => (text[0].into(), 0),
            0 => (0, 0),
        };
        let rest = NonZero::<u64>::MIN | u64::from(number) << 32 | (text.len() as u64) << 1;
        Some(Self { first, last, rest })
    }

    /// The text.
    pub(super) fn text(self) -> Vec<u8> {
        let len = (self.rest.get() as u32 >> 1) as usize;
        let (first, last) = (self.first.to_le_bytes(), self.last.to_le_bytes());
        match len {
            8.. => [&first[..len - 8], &last].concat(),
            4.. => [&first[..len - 4], &last[..4]].concat(),
            2.. => [&first[..len - 2], &last[..2]].concat(),
            _ => first[..len].to_vec(),
        }
    }

    /// A hash that is as good as random in all bits. It need not be secret: requests cannot add to a
    /// table.
    #[inline]
    pub(super) fn hash(self) -> u64 {
        let first = self.first ^ 0xD1B5_4A32_D192_ED03;
        let last = self.last ^ self.rest.get().wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let product = u128::from(first) * u128::from(last);
        // Both halves, of which either alone would be worse.
        (product >> 64) as u64 ^ product as u64
    }
}

/// Whether two texts are the same.
#[inline(always)]
#[expect(clippy::inline_always, reason = "mostly it is shorter than a call")]
pub(crate) fn is_same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    if a.len() > Words::LEN_MAX {
        return *a == *b;
    }
    match a.len() {
        8.. => ends_are_same::<8>(a, b),
        4.. => ends_are_same::<4>(a, b),
        2.. => ends_are_same::<2>(a, b),
        _ => a.first() == b.first(),
    }
}

/// Whether the first bytes of two texts are the same, and the last.
#[inline(always)]
#[expect(clippy::inline_always, reason = "mostly it is shorter than a call")]
fn ends_are_same<const LEN: usize>(a: &[u8], b: &[u8]) -> bool {
    first_of::<LEN>(a) == first_of(b) && last_of::<LEN>(a) == last_of(b)
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "it is one load")]
fn first_of<const LEN: usize>(text: &[u8]) -> Option<[u8; LEN]> {
    text.first_chunk().copied()
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "it is one load")]
fn last_of<const LEN: usize>(text: &[u8]) -> Option<[u8; LEN]> {
    text.last_chunk().copied()
}

/// All words at once, since one that differs is as rare as all.
impl PartialEq for Words {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        let rest = self.rest.get() ^ other.rest.get();
        (self.first ^ other.first) | (self.last ^ other.last) | rest == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn texts_are_the_same_when_all_bytes_are(a in "[ab]{0,20}", at in 0..20_usize) {
            prop_assert!(is_same(a.as_bytes(), a.clone().as_bytes()));
            let mut other = a.clone().into_bytes();
            if let Some(byte) = other.get_mut(at) {
                *byte = b'c';
                prop_assert!(!is_same(a.as_bytes(), &other));
            }
            other.push(b'a');
            prop_assert!(!is_same(a.as_bytes(), &other));
        }

        #[test]
        fn words_give_their_text_back(text in "[a-z\0]{0,16}", number: u32) {
            let words = Words::new(number, text.as_bytes()).unwrap();
            prop_assert_eq!(words.text(), text.as_bytes());
        }
    }
}
