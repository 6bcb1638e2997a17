//! Which key a request is about: drawn from so many, all alike or the first ones more often.

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use rand_distr::{Distribution as _, Zipf};

/// How long every key is, so that the bytes around it never change.
pub(crate) const KEY_BYTES: usize = 16;
/// What a key looks like, for those who prepare requests.
pub(crate) const KEY_SHAPE: &str = "key:000000000000";

/// The text of a key.
pub(crate) type Key = [u8; KEY_BYTES];

/// Draws keys, the same ones in every run.
#[derive(Debug)]
pub(crate) struct Keys {
    random: SmallRng,
    count: u32,
    /// None where all keys come alike.
    zipf: Option<Zipf<f64>>,
}

impl Keys {
    /// `count` keys; with `zipf` the one of rank `r` comes in proportion to `r^-zipf`. `None` where
    /// that is no number above zero, or there is not one key.
    pub(crate) fn new(count: u32, zipf: Option<f64>, seed: u64) -> Option<Self> {
        let zipf = match zipf {
            Some(exponent) if !exponent.is_finite() || exponent <= 0.0 => return None,
            Some(exponent) => Some(Zipf::new(f64::from(count), exponent).ok()?),
            None => None,
        };
        (count > 0).then(|| Self { random: SmallRng::seed_from_u64(seed), count, zipf })
    }

    pub(crate) fn draw(&mut self) -> Key {
        let number = match &self.zipf {
            None => self.random.random_range(0..self.count),
            #[expect(clippy::cast_sign_loss, reason = "ranks begin at 1")]
            Some(zipf) => zipf.sample(&mut self.random) as u32 - 1,
        };
        text(number)
    }
}

/// As `redis-benchmark` writes its keys, so that both can be asked for the same.
fn text(mut number: u32) -> Key {
    let mut key = *b"key:000000000000";
    for digit in key.iter_mut().rev() {
        if number == 0 {
            break;
        }
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    key
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_key_is_as_long_as_promised_and_holds_its_number() {
        assert_eq!(&text(0), KEY_SHAPE.as_bytes());
        assert_eq!(&text(1_234_567), b"key:000001234567");
        assert_eq!(&text(u32::MAX), b"key:004294967295");
    }

    #[test]
    fn uniform_keys_are_all_drawn_and_no_others() {
        let mut keys = Keys::new(10, None, 7).unwrap();
        let mut seen: Vec<Key> = (0..1_000).map(|_| keys.draw()).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, (0..10).map(text).collect::<Vec<_>>());
    }

    #[test]
    fn by_zipf_the_first_key_comes_as_often_as_the_formula_says() {
        let (count, exponent, draws) = (1_000_u32, 1.1_f64, 100_000_u32);
        let mut keys = Keys::new(count, Some(exponent), 7).unwrap();
        let mut seen: HashMap<Key, u32> = HashMap::new();
        for _ in 0..draws {
            *seen.entry(keys.draw()).or_default() += 1;
        }
        let total: f64 = (1..=count).map(|rank| f64::from(rank).powf(-exponent)).sum();
        let expected = f64::from(draws) / total;
        let found = f64::from(seen[&text(0)]);
        assert!((found - expected).abs() < 5.0 * expected.sqrt(), "{found} for {expected}");
    }

    #[test]
    fn an_exponent_that_means_nothing_is_refused() {
        for exponent in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Keys::new(10, Some(exponent), 7).is_none(), "{exponent}");
        }
        assert!(Keys::new(0, None, 7).is_none());
    }
}
