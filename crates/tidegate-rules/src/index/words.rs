//! Short texts as whole words, to be hashed and compared without a loop.

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
    #[inline]
    pub(super) fn new(number: u32, text: &[u8]) -> Option<Self> {
        if text.len() > Self::LEN_MAX {
            return None;
        }
        let eights = (text.first_chunk::<8>(), text.last_chunk::<8>());
        let fours = (text.first_chunk::<4>(), text.last_chunk::<4>());
        let (first, last) = if let (Some(first), Some(last)) = eights {
            (u64::from_le_bytes(*first), u64::from_le_bytes(*last))
        } else if let (Some(first), Some(last)) = fours {
            (u32::from_le_bytes(*first).into(), u32::from_le_bytes(*last).into())
        } else if let [first, ..] = text {
            let middle = text[text.len() / 2];
            (u64::from(*first) | u64::from(middle) << 8, u64::from(text[text.len() - 1]))
        } else {
            (0, 0)
        };
        let rest = NonZero::<u64>::MIN | u64::from(number) << 32 | (text.len() as u64) << 1;
        Some(Self { first, last, rest })
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

/// All words at once, since one that differs is as rare as all.
impl PartialEq for Words {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        let rest = self.rest.get() ^ other.rest.get();
        (self.first ^ other.first) | (self.last ^ other.last) | rest == 0
    }
}
