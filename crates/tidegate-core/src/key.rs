//! Who is counted.

/// The identity of one counter: a keyed hash of the domain, the rule, the limit's algorithm and
/// period, and the values of the attributes that are counted separately. The limit's numbers are
/// not part of it, so that a changed number meets the state that is already there.
///
/// All 128 bits are expected to be as good as random, since stores cut them up to place the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(u128);

impl Key {
    /// The key with this hash.
    pub const fn from_hash(hash: u128) -> Self {
        Self(hash)
    }

    /// The hash.
    pub const fn as_hash(self) -> u128 {
        self.0
    }
}
