//! throttlecrab: GCRA over one `HashMap`, `&mut self`. Its users put a mutex around it, and so do
//! two threads here; one thread alone pays for no lock.
//!
//! The store is its `PeriodicStore`, told how many keys to expect: the `AdaptiveStore` walks all
//! keys every 100,000 calls, which costs it another ten entries per call at a million keys.

use std::error::Error;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use throttlecrab::{PeriodicStore, RateLimiter};

use super::{Contender, Quota};

/// throttlecrab behind a mutex.
pub(crate) struct Throttlecrab {
    limiter: Mutex<RateLimiter<PeriodicStore>>,
    quota: Quota,
}

impl Contender for Throttlecrab {
    type Key = String;
    const NAME: &'static str = "throttlecrab, &str";

    fn new(quota: Quota, keys: u32) -> Result<Self, Box<dyn Error>> {
        let store = PeriodicStore::builder().capacity(keys as usize).build();
        Ok(Self { limiter: Mutex::new(RateLimiter::new(store)), quota })
    }

    #[inline]
    fn check(&self, key: &String) -> bool {
        take(&mut self.limiter.lock().unwrap_or_else(PoisonError::into_inner), key, self.quota)
    }

    fn run_alone(&mut self, keys: &[String]) -> usize {
        let limiter = self.limiter.get_mut().unwrap_or_else(PoisonError::into_inner);
        keys.iter().filter(|key| take(limiter, key, self.quota)).count()
    }
}

#[inline]
#[expect(clippy::disallowed_methods, reason = "its users hand it the system's time")]
fn take(limiter: &mut RateLimiter<PeriodicStore>, key: &str, quota: Quota) -> bool {
    let (burst, period) = (i64::from(quota.burst), i64::from(quota.token_secs));
    limiter
        .rate_limit(key, burst, 1, period, 1, SystemTime::now())
        .is_ok_and(|(allowed, _)| allowed)
}
