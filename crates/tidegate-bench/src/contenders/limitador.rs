//! limitador: fixed windows, counters in a moka cache, keys given as a context of named values that
//! CEL expressions read. Making the context is left out of its timings, as making a key is for the
//! others.

use std::collections::HashMap;
use std::error::Error;
use std::ops::Range;

use limitador::RateLimiter;
use limitador::limit::{Context, Expression, Limit, Namespace};

use super::{Contender, Key, Quota};
use crate::workloads::{Lane, key_string};

/// limitador with its in-memory storage.
pub(crate) struct Limitador {
    limiter: RateLimiter,
    namespace: Namespace,
}

impl Contender for Limitador {
    type Key = UserContext;
    const NAME: &'static str = "limitador, Context";
    const CALLS_DIVISOR: usize = 40;

    fn new(quota: Quota, keys: u32) -> Result<Self, Box<dyn Error>> {
        // The cache evicts at its size, so it gets room above the number of keys.
        let limiter = RateLimiter::new(u64::from(keys) * 2);
        let namespace = Namespace::from("bench");
        // A window in which the whole burst comes back.
        let window_secs = u64::from(quota.token_secs) * u64::from(quota.burst);
        let user = Expression::parse("user")?;
        limiter.add_limit(Limit::new("bench", u64::from(quota.burst), window_secs, [], [user]));
        Ok(Self { limiter, namespace })
    }

    fn check(&self, key: &UserContext) -> bool {
        self.limiter
            .check_rate_limited_and_update(&self.namespace, &key.0, 1)
            .is_ok_and(|result| !result.limited)
    }
}

/// The values of one request. Kilobytes each, so they are made per round and not held.
pub(crate) struct UserContext(Context<'static>);

impl Key for UserContext {
    fn of(id: u32) -> Self {
        Self(HashMap::from([("user".to_owned(), key_string(id))]).into())
    }

    fn with<R>(lane: &Lane, part: Range<usize>, use_keys: impl FnOnce(&[Self]) -> R) -> R {
        let keys: Vec<Self> = lane.ids[part].iter().map(|&id| Self::of(id)).collect();
        use_keys(&keys)
    }
}
