//! Where a key's state is kept: under the name of its *family*, as one *member* of it.
//!
//! ```text
//! name      prefix | '{' | two digits of base 91 | '}' | bits 0 to 31 of the key, 4 bytes
//! member    bits 96 to 127 and 32 to 63 of the key, 8 bytes
//! ```
//!
//! What stands in braces is the *tag*: in a cluster, keys with one tag are in one slot, and only
//! those can be decided by one script. It is made of bits 64 to 76 of the key, so that whoever makes keys
//! can give all the limits of one subject the same tag. The memory table looks at none of these bits.
//!
//! Whoever makes keys can also give the limits that are asked together, those of one rule and one
//! subject, the same bits 0 to 31. They are a family then: one string, which is read and written once
//! for all of them. Two families that meet under one name by chance are as one that has more members.
//! Two keys are the same one where 109 bits agree: with a billion keys there are two such with a
//! probability of 1 in 10^15, and nobody who does not have the secret can look for them.
//!
//! Bytes and not hexadecimal digits: with the prefix of one byte a name has 9 bytes, and a token
//! bucket alone in its family has 24. They fit into the smallest pieces of memory that such a key can
//! take, and one byte more would not where the server's memory comes from libc.

use tidegate_core::Key;

const TAG_SHIFT: u32 = 64;
const TAG_BITS: u32 = 13;
const FAMILY_BITS: u32 = 32;
/// All that is printed but the space, the quotation mark, and the braces: a closing one would end the tag.
const DIGITS: &[u8; 91] =
    b"!#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz|~";

/// How long the number of a member is.
pub(crate) const MEMBER_BYTES: usize = 8;

/// How many tags there are.
pub(crate) const TAGS: usize = 1 << TAG_BITS;
const _: () = assert!(TAGS <= DIGITS.len() * DIGITS.len(), "two digits say which tag");

/// The number of a key's tag.
pub(crate) const fn tag_of(key: Key) -> usize {
    (key.as_hash() >> TAG_SHIFT) as usize & (TAGS - 1)
}

/// What says under which name a key's state is kept: keys that agree in it are one family.
pub(crate) const fn family(key: Key) -> u64 {
    ((tag_of(key) as u64) << FAMILY_BITS) | (key.as_hash() as u64 % (1 << FAMILY_BITS))
}

/// The name of the family of `key`, appended to `out`.
pub(crate) fn write_name(prefix: &str, key: Key, out: &mut Vec<u8>) {
    let [high, low] = tag(key);
    out.extend(prefix.as_bytes());
    out.extend([b'{', high, low, b'}']);
    out.extend((key.as_hash() as u32).to_be_bytes());
}

/// Which member of its family `key` is, by bits that the name does not have.
pub(crate) const fn member(key: Key) -> [u8; MEMBER_BYTES] {
    let (high, low) = ((key.as_hash() >> 96) as u64, key.as_hash() as u64 >> FAMILY_BITS);
    ((high << 32) | low).to_be_bytes()
}

/// The tag of `key`, which is what says in which slot of a cluster it is.
pub(crate) fn tag(key: Key) -> [u8; 2] {
    let tag = tag_of(key);
    [DIGITS[tag / DIGITS.len()], DIGITS[tag % DIGITS.len()]]
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
    fn a_name_is_the_prefix_the_tag_and_the_low_bits() {
        let key = 0x0123_4567_89ab_cdef_0011_2233_4455_6677;
        assert_eq!(name(key)[..], *b"t{I4}\x44\x55\x66\x77");
    }

    #[test]
    fn every_bit_of_a_key_but_19_is_in_its_name_or_in_its_member() {
        let place = |hash: u128| (name(hash), member(Key::from_hash(hash)));
        let (zero, ones) = (place(0), place(u128::MAX));
        for bit in 0..128 {
            let in_name = bit < 32 || (64..77).contains(&bit);
            let in_member = (32..64).contains(&bit) || bit >= 96;
            let (name, member) = place(1 << bit);
            assert_eq!((name != zero.0, member != zero.1), (in_name, in_member), "bit {bit}");
            let (name, member) = place(u128::MAX ^ 1 << bit);
            assert_eq!((name != ones.0, member != ones.1), (in_name, in_member), "bit {bit}");
        }
    }

    #[test]
    fn every_tag_is_another_and_none_ends_early() {
        let tags: std::collections::HashSet<_> =
            (0..TAGS as u128).map(|number| tag(Key::from_hash(number << TAG_SHIFT))).collect();
        assert_eq!(tags.len(), TAGS);
        assert!(!tags.iter().flatten().any(|digit| b"{}".contains(digit)));
    }

    #[test]
    fn keys_of_one_family_have_one_name() {
        for bit in 0..128 {
            let same_name = name(0) == name(1 << bit);
            let same = family(Key::from_hash(0)) == family(Key::from_hash(1 << bit));
            assert_eq!(same, same_name, "bit {bit}");
        }
    }
}
