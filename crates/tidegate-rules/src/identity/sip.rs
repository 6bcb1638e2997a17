//! `SipHash-1-3` of 128 bits over bytes that are all there, as most names are. The same function as
//! that of the `siphasher` crate, which takes bytes as they come and pays for that: with nothing to
//! keep between two calls, a name of a few words is hashed in registers.

/// The function with one key.
#[derive(Clone, Copy)]
pub(super) struct Sip {
    lanes: [u64; 4],
}

impl Sip {
    pub(super) const fn new(key: &[u8; 16]) -> Self {
        let key = u128::from_le_bytes(*key);
        let (low, high) = (key as u64, (key >> 64) as u64);
        Self {
            lanes: [
                low ^ 0x736f_6d65_7073_6575,
                high ^ 0x646f_7261_6e64_6f6d ^ 0xee,
                low ^ 0x6c79_6765_6e65_7261,
                high ^ 0x7465_6462_7974_6573,
            ],
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a key of known length needs no loop")]
    pub(super) fn hash(self, bytes: &[u8]) -> u128 {
        let mut lanes = self.lanes;
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            absorb(&mut lanes, u64::from_le_bytes(*word));
        }
        absorb(&mut lanes, (bytes.len() as u64) << 56 | tail(bytes, rest));
        let low = squeeze(&mut lanes, 2, 0xee);
        let high = squeeze(&mut lanes, 1, 0xdd);
        u128::from(high) << 64 | u128::from(low)
    }
}

/// The bytes after the last whole word, as a number.
#[inline]
fn tail(bytes: &[u8], rest: &[u8]) -> u64 {
    let bits = 8 * rest.len() as u32;
    if let Some(last) = bytes.last_chunk::<8>() {
        // The end of the last eight bytes. In two steps, since there may be no bit to keep.
        return u64::from_le_bytes(*last) >> 1 >> (63 - bits);
    }
    match (rest.first_chunk::<4>(), rest.last_chunk::<4>()) {
        // Bytes in the middle are in both, and the same in both.
        (Some(first), Some(last)) => {
            let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
            u64::from(first) | u64::from(last) << (bits - 32)
        }
        _ => rest.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)),
    }
}

#[inline]
fn absorb(lanes: &mut [u64; 4], word: u64) {
    lanes[3] ^= word;
    round(lanes);
    lanes[0] ^= word;
}

#[inline]
fn squeeze(lanes: &mut [u64; 4], lane: usize, mark: u64) -> u64 {
    lanes[lane] ^= mark;
    for _ in 0..3 {
        round(lanes);
    }
    lanes[0] ^ lanes[1] ^ lanes[2] ^ lanes[3]
}

#[inline]
fn round([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *c = c.wrapping_add(*d);
    *b = b.rotate_left(13) ^ *a;
    *d = d.rotate_left(16) ^ *c;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*b);
    *a = a.wrapping_add(*d);
    *b = b.rotate_left(17) ^ *c;
    *d = d.rotate_left(21) ^ *a;
    *c = c.rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use siphasher::sip128::SipHasher13;

    #[test]
    fn every_length_hashes_as_the_crate_does() {
        let key = *b"0123456789abcdef";
        let bytes: Vec<u8> = (0..200).map(|number: u8| number.wrapping_mul(151)).collect();
        for length in 0..bytes.len() {
            let expected = SipHasher13::new_with_key(&key).hash(&bytes[..length]).as_u128();
            assert_eq!(Sip::new(&key).hash(&bytes[..length]), expected, "{length} bytes");
        }
    }
}
