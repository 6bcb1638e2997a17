//! Who is counted, as a hash: attributes to a [`Key`].
//!
//! A key is made of two halves that are hashed apart, since many requests share the second: the
//! *subject*, which is who asks, and the *salt*, which is under which limit. Both are `SipHash` with a
//! secret, 128 bits wide, so nobody without the secret can make two that collide, or tell from a key
//! whose it is.

mod sip;

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher13};
use tidegate_core::Key;

use self::sip::{InnerSip, Sip};

/// How long a secret is.
pub const SECRET_BYTES: usize = 16;

/// The bits of a key that come from its subject alone, so that all limits of one subject share them. A
/// store that is spread over many places keeps keys that agree in them in one place, where they can
/// be decided in one step. The others tell limits apart, those of one rule by 83 of them.
pub const TAG_BITS: u128 = ((1 << 13) - 1) << 64;

/// The bits of a key that all limits of one rule and one subject share. A store that keeps such limits
/// together knows them by these and by [`TAG_BITS`]. The memory table, whose lines are fewer, looks at
/// none of them, and the 83 others still tell limits apart.
pub const FAMILY_BITS: u128 = (1 << 32) - 1;

/// Hashes subjects and salts with one secret.
#[derive(Clone, Copy)]
pub struct KeyHasher {
    plain: Sip,
    inner: InnerSip,
    lists: SipHasher13,
    salts: SipHasher13,
}

/// Who asks: a keyed hash of one name, or of a list of attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Subject(u128);

/// Under which limit: a keyed hash of the domain, the rule, the algorithm and the period. Its
/// [`TAG_BITS`] are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Salt(u128);

impl KeyHasher {
    /// A hasher with this secret.
    pub fn new(secret: &[u8; SECRET_BYTES]) -> Self {
        // Independent functions from one secret: the first makes the secrets of the others.
        let plain = Sip::new(secret);
        let derived = |purpose: &[u8]| plain.hash(purpose).to_le_bytes();
        Self {
            plain,
            inner: InnerSip::new(&derived(b"names in memory")),
            lists: SipHasher13::new_with_key(&derived(b"attribute lists")),
            salts: SipHasher13::new_with_key(&derived(b"salts")),
        }
    }

    /// One name or number, as bytes, for keys that stay in the memory of this process, or in a file that only
    /// its owner can read. It is a quicker function than that of [`bytes`](Self::bytes), and gives another subject.
    #[inline]
    pub fn bytes_in_memory(&self, bytes: &[u8]) -> Subject {
        Subject(self.inner.hash(bytes))
    }

    /// One name or number, as bytes.
    #[inline]
    pub fn bytes(&self, bytes: &[u8]) -> Subject {
        Subject(self.plain.hash(bytes))
    }

    /// A list of attributes, in order. Names and values go in with their lengths, so two lists give
    /// the same subject only if they are the same list, whatever bytes they hold.
    #[inline]
    pub fn attributes<'a>(
        &self,
        attributes: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> Subject {
        Subject(hash_list(self.lists, attributes))
    }

    /// A list of values whose names are known from elsewhere, in order; `None` for one that is
    /// missing. Two lists of one length give the same subject only if they are the same list.
    #[inline]
    pub fn values<'a>(
        &self,
        mut values: impl ExactSizeIterator<Item = Option<&'a [u8]>>,
    ) -> Subject {
        if values.len() == 1
            && let Some(value) = values.next().flatten()
        {
            // The most common list by far, and as fast as a name.
            return self.bytes(value);
        }
        self.several(values)
    }

    fn several<'a>(&self, values: impl Iterator<Item = Option<&'a [u8]>>) -> Subject {
        let mut hasher = self.lists;
        for value in values {
            // No value is so long as what stands for one that is missing.
            hasher.write(&value.map_or(u64::MAX, |value| value.len() as u64).to_le_bytes());
            hasher.write(value.unwrap_or_default());
        }
        Subject(hasher.finish128().as_u128())
    }

    /// What sets one limit's keys apart from another's.
    pub fn salt<'a>(&self, parts: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Salt {
        Salt(hash_list(self.salts, parts) & !TAG_BITS)
    }

    /// The same among the limits of one rule, which `family` stands for: their keys agree in
    /// [`FAMILY_BITS`] where the subject is one.
    pub fn salt_within<'a>(
        &self,
        family: Salt,
        parts: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> Salt {
        let Salt(salt) = self.salt(parts);
        Salt(salt & !FAMILY_BITS | family.0 & FAMILY_BITS)
    }

    /// A secret that follows from this one, another for each purpose.
    pub fn derived_secret(&self, purpose: &str) -> [u8; SECRET_BYTES] {
        hash_list(self.salts, [("derived secret", purpose.as_bytes())]).to_le_bytes()
    }
}

impl std::fmt::Debug for KeyHasher {
    /// Says nothing: the state of the hashers is the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyHasher").finish_non_exhaustive()
    }
}

impl Subject {
    /// A subject that nobody has, to fill a place with.
    pub const NOBODY: Self = Self(0);

    /// The key of this subject under the limit of this salt. Both are as good as random, so two
    /// pairs give one key as seldom as two random numbers are equal: of 128 bits, or of 83 where both are
    /// limits of one rule.
    #[inline]
    pub const fn key(self, salt: Salt) -> Key {
        Key::from_hash(self.0 ^ salt.0)
    }

    /// The hash.
    pub const fn as_u128(self) -> u128 {
        self.0
    }
}

impl Salt {
    /// The hash.
    pub const fn as_u128(self) -> u128 {
        self.0
    }
}

#[inline]
fn hash_list<'a>(
    mut hasher: SipHasher13,
    list: impl IntoIterator<Item = (&'a str, &'a [u8])>,
) -> u128 {
    for (name, value) in list {
        hasher.write(&(name.len() as u64).to_le_bytes());
        hasher.write(name.as_bytes());
        hasher.write(&(value.len() as u64).to_le_bytes());
        hasher.write(value);
    }
    hasher.finish128().as_u128()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECRET: [u8; SECRET_BYTES] = *b"0123456789abcdef";

    type List = Vec<(String, Vec<u8>)>;

    fn subject(list: &List) -> Subject {
        let list = list.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
        KeyHasher::new(&SECRET).attributes(list)
    }

    #[test]
    fn a_separator_inside_a_value_does_not_imitate_another_list() {
        let one = vec![("user".to_owned(), b"x_path_y".to_vec())];
        let two = vec![("user".to_owned(), b"x".to_vec()), ("path".to_owned(), b"y".to_vec())];
        assert_ne!(subject(&one), subject(&two));
    }

    #[test]
    fn an_empty_value_is_not_a_missing_attribute() {
        let empty = vec![("user".to_owned(), Vec::new())];
        assert_ne!(subject(&empty), subject(&Vec::new()));
        let swapped = vec![(String::new(), b"user".to_vec())];
        assert_ne!(subject(&empty), subject(&swapped));
    }

    #[test]
    fn another_secret_gives_other_keys() {
        let (one, two) = (KeyHasher::new(&SECRET), KeyHasher::new(&[7; SECRET_BYTES]));
        assert_ne!(one.bytes(b"ann"), two.bytes(b"ann"));
    }

    #[test]
    fn a_key_depends_on_subject_and_salt() {
        let hasher = KeyHasher::new(&SECRET);
        let (minute, hour) = (hasher.salt([("a", &b"1"[..])]), hasher.salt([("a", &b"2"[..])]));
        let ann = hasher.bytes(b"ann");
        assert_ne!(ann.key(minute), ann.key(hour));
        assert_ne!(ann.key(minute), hasher.bytes(b"bob").key(minute));
    }

    #[test]
    fn all_limits_of_one_subject_share_a_tag() {
        let hasher = KeyHasher::new(&SECRET);
        let tag = |key: Key| key.as_hash() & TAG_BITS;
        let salts = (0..100_u8).map(|number| hasher.salt([("limit", &[number][..])]));
        let (ann, bob) = (hasher.bytes(b"ann"), hasher.bytes(b"bob"));
        for salt in salts {
            assert_eq!(tag(ann.key(salt)), ann.as_u128() & TAG_BITS);
            assert_ne!(tag(ann.key(salt)), tag(bob.key(salt)), "two subjects of this test differ");
        }
        assert_eq!(TAG_BITS.count_ones(), 13);
        assert_eq!(TAG_BITS.trailing_zeros(), 64);
    }

    #[test]
    fn all_limits_of_one_family_and_one_subject_agree_in_its_bits_and_are_different_keys() {
        let hasher = KeyHasher::new(&SECRET);
        let family = |key: Key| key.as_hash() & (TAG_BITS | FAMILY_BITS);
        let (rule, other) =
            (hasher.salt([("rule", &b"a"[..])]), hasher.salt([("rule", &b"b"[..])]));
        let salt = |rule, number: u8| hasher.salt_within(rule, [("limit", &[number][..])]);
        let (ann, bob) = (hasher.bytes(b"ann"), hasher.bytes(b"bob"));
        for number in 1..100 {
            let (key, first) = (ann.key(salt(rule, number)), ann.key(salt(rule, 0)));
            assert_ne!(key, first);
            assert_eq!(family(key), family(first));
            assert_ne!(family(key), family(bob.key(salt(rule, number))));
            assert_ne!(family(key), family(ann.key(salt(other, number))));
        }
    }

    #[test]
    fn a_derived_secret_has_all_of_its_bits() {
        let hasher = KeyHasher::new(&SECRET);
        let secrets = ["a", "b", "c", "d"].map(|one| hasher.derived_secret(one));
        let ones = secrets.map(u128::from_le_bytes).into_iter().fold(0, |all, one| all | one);
        assert_ne!(ones & TAG_BITS, 0);
        assert_ne!(secrets[0], secrets[1]);
    }

    #[test]
    fn the_secret_does_not_show_in_debug_output() {
        assert_eq!(format!("{:?}", KeyHasher::new(&SECRET)), "KeyHasher { .. }");
    }

    proptest! {
        /// Lists over a small alphabet, separators included, so that near misses are common.
        #[test]
        fn two_lists_share_a_subject_only_if_they_are_the_same_list(
            one: Vec<(String, Vec<u8>)>,
            near in prop::collection::vec(("[ab_=,]{0,3}", prop::collection::vec(0_u8..3, 0..3)), 0..3),
            other in prop::collection::vec(("[ab_=,]{0,3}", prop::collection::vec(0_u8..3, 0..3)), 0..3),
        ) {
            prop_assert_eq!(subject(&near) == subject(&other), near == other);
            prop_assert_eq!(subject(&one) == subject(&near), one == near);
        }
    }
}
