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
        let mut lanes = absorb_all(self.lanes, bytes);
        finish(&mut lanes, 2, 0xee);
        let low = lanes[0] ^ lanes[1] ^ lanes[2] ^ lanes[3];
        finish(&mut lanes, 1, 0xdd);
        let high = lanes[0] ^ lanes[1] ^ lanes[2] ^ lanes[3];
        u128::from(high) << 64 | u128::from(low)
    }
}

/// `SipHash-1-3` of 64 bits, with its last step left out: the two halves of its finished state are kept
/// side by side where the function would give their exclusive or.
///
/// It has three rounds of eight less than [`Sip`]. What is left out hides the state from those who see
/// many hashes, so this is for hashes that nobody sees.
#[derive(Clone, Copy)]
pub(super) struct InnerSip {
    lanes: [u64; 4],
}

impl InnerSip {
    pub(super) const fn new(key: &[u8; 16]) -> Self {
        let mut lanes = Sip::new(key).lanes;
        lanes[1] ^= 0xee;
        Self { lanes }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    pub(super) fn hash(self, bytes: &[u8]) -> u128 {
        let mut lanes = absorb_all(self.lanes, bytes);
        finish(&mut lanes, 2, 0xff);
        u128::from(lanes[2] ^ lanes[3]) << 64 | u128::from(lanes[0] ^ lanes[1])
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "as above")]
fn absorb_all(mut lanes: [u64; 4], bytes: &[u8]) -> [u64; 4] {
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        absorb(&mut lanes, u64::from_le_bytes(*word));
    }
    absorb(&mut lanes, (bytes.len() as u64) << 56 | tail(bytes, rest));
    lanes
}

/// The bytes after the last whole word, as a number.
#[inline(always)]
#[expect(clippy::inline_always, reason = "as above")]
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
fn finish(lanes: &mut [u64; 4], lane: usize, mark: u64) {
    lanes[lane] ^= mark;
    for _ in 0..3 {
        round(lanes);
    }
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
    use siphasher::{sip, sip128::SipHasher13};

    #[test]
    fn every_length_hashes_as_the_crate_does() {
        let key = *b"0123456789abcdef";
        let bytes: Vec<u8> = (0..200).map(|number: u8| number.wrapping_mul(151)).collect();
        for length in 0..bytes.len() {
            let expected = SipHasher13::new_with_key(&key).hash(&bytes[..length]).as_u128();
            assert_eq!(Sip::new(&key).hash(&bytes[..length]), expected, "{length} bytes");
        }
    }

    #[test]
    fn the_halves_of_every_inner_hash_make_that_of_the_crate() {
        let key = *b"0123456789abcdef";
        let bytes: Vec<u8> = (0..200).map(|number: u8| number.wrapping_mul(151)).collect();
        for length in 0..bytes.len() {
            let expected = sip::SipHasher13::new_with_key(&key).hash(&bytes[..length]);
            let hash = InnerSip::new(&key).hash(&bytes[..length]);
            assert_eq!((hash >> 64) as u64 ^ hash as u64, expected, "{length} bytes");
        }
    }

    /// As for random numbers: a name that differs in one bit differs in half of the hash, in each half of it.
    #[test]
    fn every_bit_of_a_name_changes_half_of_the_bits_of_its_inner_hash() {
        let sip = InnerSip::new(b"0123456789abcdef");
        for length in [1, 4, 8, 13, 16, 36] {
            for bit in 0..8 * length {
                let (mut low, mut high) = (0, 0);
                for start in 0..64_u8 {
                    let mut name: Vec<u8> = (start..).take(length).collect();
                    let before = sip.hash(&name);
                    name[bit / 8] ^= 1 << (bit % 8);
                    let changed = before ^ sip.hash(&name);
                    low += (changed as u64).count_ones();
                    high += ((changed >> 64) as u64).count_ones();
                }
                // 64 times 32 of 64 bits, and six standard deviations of 32.
                for changed in [low, high] {
                    assert!((1_856..=2_240).contains(&changed), "{length}, bit {bit}: {changed}");
                }
            }
        }
    }
}
