//! Keyed hashes as text, for what must not be carried as it is: API keys, since they are secrets, and
//! long values, since they have no bound.
//!
//! The hash is `SipHash-2-4` with 128 bits, as for keys in `tidegate-rules`, and for the same reason: with
//! a secret, nobody else can find two values with one hash or check a guess, and it takes a fraction
//! of the time of SHA-256. It has more rounds than the one for keys because its text leaves this
//! process: in answers to "who is limited?", for example. It is not for secrets that people can
//! remember; those belong in no rate limiter.

use siphasher::sip128::SipHasher24;
use tidegate_rules::identity::SECRET_BYTES;

/// How long the text of a hash is.
pub(crate) const HEX_BYTES: usize = 32;

#[derive(Clone, Copy)]
pub(crate) struct Fingerprint {
    api_keys: SipHasher24,
    long_values: SipHasher24,
}

impl Fingerprint {
    pub(crate) fn new(secret: &[u8; SECRET_BYTES]) -> Self {
        // Two independent functions, so that a long value never looks like an API key's hash.
        let derived = |purpose: &[u8]| {
            let hash = SipHasher24::new_with_key(secret).hash(purpose).as_u128();
            SipHasher24::new_with_key(&hash.to_le_bytes())
        };
        Self { api_keys: derived(b"api keys"), long_values: derived(b"long values") }
    }

    /// Puts the hash of an API key in the place of the API key, which begins at `start`.
    pub(crate) fn conceal(&self, values: &mut Vec<u8>, start: usize) {
        let hash = self.api_keys.hash(&values[start..]).as_u128();
        values.truncate(start);
        push_hex(hash, values);
    }

    /// Shortens the value that begins at `start` to `bytes_max`: its end becomes the hash of the whole, so
    /// that two values stay two, and a rule that looks at how a value begins still can.
    pub(crate) fn shorten(&self, values: &mut Vec<u8>, start: usize, bytes_max: usize) {
        if values.len() - start <= bytes_max {
            return;
        }
        let hash = self.long_values.hash(&values[start..]).as_u128();
        values.truncate(start + bytes_max - HEX_BYTES - 1);
        values.push(b'~');
        push_hex(hash, values);
    }
}

impl std::fmt::Debug for Fingerprint {
    /// Says nothing: the state of the hashers is the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fingerprint").finish_non_exhaustive()
    }
}

fn push_hex(hash: u128, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in hash.to_be_bytes() {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINGERPRINT: fn() -> Fingerprint = || Fingerprint::new(b"0123456789abcdef");

    #[test]
    fn an_api_key_leaves_no_trace() {
        let mut values = b"before|secret-key".to_vec();
        FINGERPRINT().conceal(&mut values, 7);
        assert_eq!(values.len(), 7 + HEX_BYTES);
        assert!(values.starts_with(b"before|"));
        assert!(!values.windows(6).any(|window| window == b"secret"));
    }

    #[test]
    fn a_long_value_keeps_its_beginning_and_stays_apart_from_others() {
        let short = |last: u8| {
            let mut values = vec![b'x'; 300];
            values.push(last);
            FINGERPRINT().shorten(&mut values, 0, 256);
            values
        };
        assert_eq!(short(b'a').len(), 256);
        assert!(short(b'a').starts_with(&[b'x'; 223]));
        assert_ne!(short(b'a'), short(b'b'));
    }

    #[test]
    fn a_value_of_the_bound_is_left_alone() {
        let mut values = vec![b'x'; 256];
        FINGERPRINT().shorten(&mut values, 0, 256);
        assert_eq!(values, [b'x'; 256]);
    }

    #[test]
    fn another_secret_gives_another_hash() {
        let hash = |secret: &[u8; 16]| {
            let mut values = b"key".to_vec();
            Fingerprint::new(secret).conceal(&mut values, 0);
            values
        };
        assert_ne!(hash(b"0123456789abcdef"), hash(b"0123456789abcdeg"));
    }
}
