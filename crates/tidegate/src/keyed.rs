//! What can be counted by: a name, some bytes, an address, a list of attributes.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use tidegate_rules::identity::{KeyHasher, Subject};

/// Something that a [`Limiter`](crate::Limiter) can count by.
///
/// Different values of one type never share a counter by how they are spelled: lists of attributes
/// are hashed with their lengths, so no separator inside a value can imitate another list. Values of
/// different types may be counted together (`"42"` and `b"42"` are) or not; use one type per limiter.
pub trait Keyed {
    /// The keyed hash of this value.
    fn subject(&self, hasher: &KeyHasher) -> Subject;
}

impl Keyed for str {
    #[inline]
    fn subject(&self, hasher: &KeyHasher) -> Subject {
        hasher.bytes_in_memory(self.as_bytes())
    }
}

/// Counted as what they hold.
macro_rules! keyed_as_inner {
    ($($owner:ty),+) => {$(
        impl Keyed for $owner {
            #[inline]
            fn subject(&self, hasher: &KeyHasher) -> Subject {
                (**self).subject(hasher)
            }
        }
    )+};
}

keyed_as_inner!(String, Box<str>, Arc<str>, Cow<'_, str>, Vec<u8>);

impl Keyed for [u8] {
    #[inline]
    fn subject(&self, hasher: &KeyHasher) -> Subject {
        hasher.bytes_in_memory(self)
    }
}

impl<const N: usize> Keyed for [u8; N] {
    #[inline]
    fn subject(&self, hasher: &KeyHasher) -> Subject {
        hasher.bytes_in_memory(self)
    }
}

impl Keyed for u64 {
    #[inline]
    fn subject(&self, hasher: &KeyHasher) -> Subject {
        hasher.bytes_in_memory(&self.to_le_bytes())
    }
}

impl Keyed for IpAddr {
    /// The address as it is, an IPv4 address inside an IPv6 one as the former. To count a whole
    /// prefix as one, count by the prefix.
    #[inline]
    fn subject(&self, hasher: &KeyHasher) -> Subject {
        match self.to_canonical() {
            Self::V4(address) => hasher.bytes_in_memory(&address.octets()),
            Self::V6(address) => hasher.bytes_in_memory(&address.octets()),
        }
    }
}

impl Keyed for Ipv4Addr {
    #[inline]
    fn subject(&self, hasher: &KeyHasher) -> Subject {
        IpAddr::from(*self).subject(hasher)
    }
}

impl Keyed for Ipv6Addr {
    /// As [`IpAddr`] is counted.
    #[inline]
    fn subject(&self, hasher: &KeyHasher) -> Subject {
        IpAddr::from(*self).subject(hasher)
    }
}

impl<N: AsRef<str>, V: AsRef<[u8]>> Keyed for Vec<(N, V)> {
    #[inline]
    fn subject(&self, hasher: &KeyHasher) -> Subject {
        self.as_slice().subject(hasher)
    }
}

impl<N: AsRef<str>, V: AsRef<[u8]>> Keyed for [(N, V)] {
    #[inline]
    fn subject(&self, hasher: &KeyHasher) -> Subject {
        let attributes = self.iter();
        hasher.attributes(attributes.map(|(name, value)| (name.as_ref(), value.as_ref())))
    }
}

impl<N: AsRef<str>, V: AsRef<[u8]>, const L: usize> Keyed for [(N, V); L] {
    #[inline]
    fn subject(&self, hasher: &KeyHasher) -> Subject {
        self.as_slice().subject(hasher)
    }
}

impl<K: Keyed + ?Sized> Keyed for &K {
    #[inline]
    fn subject(&self, hasher: &KeyHasher) -> Subject {
        (**self).subject(hasher)
    }
}
