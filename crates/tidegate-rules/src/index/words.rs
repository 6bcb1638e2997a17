//! Short texts as two whole words, to be hashed and compared without a loop.

/// A text of at most 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Words {
    /// The first bytes, and the last; they overlap, so that together they are all of them.
    first: u64,
    last: u64,
    len: u32,
}

impl Words {
    /// The longest text.
    const LEN_MAX: usize = 16;

    /// The words of a text, unless it is too long.
    #[inline]
    pub(super) fn new(text: &[u8]) -> Option<Self> {
        if text.len() > Self::LEN_MAX {
            return None;
        }
        let (first, last) =
            if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
                (u64::from_le_bytes(*first), u64::from_le_bytes(*last))
            } else if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
                (u32::from_le_bytes(*first).into(), u32::from_le_bytes(*last).into())
            } else if let [first, ..] = text {
                let middle = text[text.len() / 2];
                (u64::from(*first) | u64::from(middle) << 8, u64::from(text[text.len() - 1]))
            } else {
                (0, 0)
            };
        // It is at most 16.
        Some(Self { first, last, len: text.len() as u32 })
    }

    /// A number that is as good as random in all bits, for the words and one more number. It need not be
    /// secret: requests cannot add to a table.
    #[inline]
    pub(super) fn hash(self, number: u32) -> u64 {
        let number = u64::from(number) << 32 | u64::from(self.len);
        let first = self.first ^ 0xD1B5_4A32_D192_ED03;
        let last = self.last ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let product = u128::from(first) * u128::from(last);
        // Both halves, of which either alone would be worse.
        (product >> 64) as u64 ^ product as u64
    }
}
