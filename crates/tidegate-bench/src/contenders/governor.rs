//! governor: GCRA over a `DashMap` with its default hasher, and its default clock (quanta).

use std::error::Error;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::{DefaultKeyedRateLimiter, RateLimiter};

use super::{Contender, Quota};

/// governor with keys of type `K`.
pub(crate) struct Governor<K: Hash + Eq + Clone>(DefaultKeyedRateLimiter<K>);

impl<K: Hash + Eq + Clone> Governor<K> {
    fn build(quota: Quota) -> Result<Self, Box<dyn Error>> {
        let burst = NonZeroU32::new(quota.burst).ok_or("a burst of 0")?;
        let token = Duration::from_secs(u64::from(quota.token_secs));
        let quota = governor::Quota::with_period(token).ok_or("a period of 0")?.allow_burst(burst);
        Ok(Self(RateLimiter::dashmap(quota)))
    }
}

/// One contender per key type: they differ in name and key only.
macro_rules! contender {
    ($key:ty, $name:literal) => {
        impl Contender for Governor<$key> {
            type Key = $key;
            const NAME: &'static str = $name;

            fn new(quota: Quota, _keys: u32) -> Result<Self, Box<dyn Error>> {
                Self::build(quota)
            }

            #[inline]
            fn check(&self, key: &$key) -> bool {
                self.0.check_key(key).is_ok()
            }
        }
    };
}

contender!(String, "governor, String");
contender!([u8; 16], "governor, [u8; 16]");
