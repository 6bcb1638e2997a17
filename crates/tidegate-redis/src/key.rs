//! The name under which a key's state is kept.
//!
//! ```text
//! prefix | '{' | three digits of base 32 | '}' | the 16 bytes of the key
//! ```
//!
//! What stands in braces is the *tag*: in a cluster, keys with one tag are in one slot, and only
//! those can be decided by one script. It is made of bits 64 to 76 of the key, so that whoever makes keys
//! can give all the limits of one subject the same tag. The memory table looks at none of these bits.
//!
//! Bytes and not hexadecimal digits: with the prefix of one byte a name has 22 bytes, the most
//! that share the smallest piece of memory that such a key can take.

use tidegate_core::Key;

const TAG_SHIFT: u32 = 64;
const TAG_BITS: u32 = 13;
const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

/// How many tags there are.
pub(crate) const TAGS: usize = 1 << TAG_BITS;

/// The number of a key's tag.
pub(crate) const fn tag_of(key: Key) -> usize {
    (key.as_hash() >> TAG_SHIFT) as usize & (TAGS - 1)
}

/// The name of `key`, appended to `out`.
pub(crate) fn write_name(prefix: &str, key: Key, out: &mut Vec<u8>) {
    let [high, middle, low] = tag(key);
    out.extend(prefix.as_bytes());
    out.extend([b'{', high, middle, low, b'}']);
    out.extend(key.as_hash().to_be_bytes());
}

/// The tag of `key`, which is what says in which slot of a cluster it is.
pub(crate) fn tag(key: Key) -> [u8; 3] {
    let tag = tag_of(key);
    [DIGITS[tag >> 10], DIGITS[tag >> 5 & 31], DIGITS[tag & 31]]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(hash: u128) -> Vec<u8> {
        let mut name = Vec::new();
        write_name("t", Key::from_hash(hash), &mut name);
        name
    }

    #[test]
    fn a_name_is_the_prefix_the_tag_and_the_key() {
        let name = name(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
        assert_eq!(&name[..6], b"t{3ff}");
        assert_eq!(name[6..], 0x0123_4567_89ab_cdef_0011_2233_4455_6677_u128.to_be_bytes());
        assert_eq!(name.len(), 22);
    }

    #[test]
    fn keys_that_agree_in_13_bits_share_a_tag_and_are_different_keys() {
        let mask = ((1_u128 << 13) - 1) << 64;
        let (one, other) = (u128::MAX, mask);
        assert_eq!(name(one)[..6], name(other)[..6]);
        assert_ne!(name(one), name(other));
        assert_ne!(name(one)[..6], name(one ^ 1 << 64)[..6]);
    }
}
