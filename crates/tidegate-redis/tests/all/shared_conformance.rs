//! The suite of all stores, over shared limits in two groups of servers.

use crate::support::nodes::{STRICT, open};
use crate::support::{Kind, Server, block_on};
use tidegate_core::Key;
use tidegate_redis::{Shared, SharedConfig, TimeSource};
use tidegate_store::{Answers, Request, Store, StoreError};

/// Shared limits and their servers, as the suite takes them.
struct Served {
    shared: Shared,
    _servers: Vec<Server>,
}

impl Served {
    fn start(keep_denials: bool) -> Self {
        let servers = vec![Server::start(Kind::Redis), Server::start(Kind::Redis)];
        let configs = servers.iter().map(|server| server.config().time(TimeSource::Request));
        let shared = open(SharedConfig::new(configs).keep_denials(keep_denials));
        Self { shared, _servers: servers }
    }
}

impl Store for Served {
    async fn decide(&self, batch: &[Request<'_>], answers: &mut Answers) {
        answers.clear();
        for request in batch {
            let (terms, mut settled) = (vec![STRICT; request.charges.len()], Vec::new());
            let decided = self.shared.decide(request, &terms, &mut settled).await;
            answers.push_with(|decisions| {
                decisions.extend(settled.iter().map(|one| one.decision));
                decided
            });
        }
    }

    async fn forget(&self, keys: &[Key]) -> Result<(), StoreError> {
        let keys: Vec<_> = keys.iter().map(|key| (*key, STRICT)).collect();
        self.shared.forget(&keys).await
    }
}

mod denials_not_kept {
    use super::{Served, block_on};

    tidegate_store::conformance_tests!(Served::start(false), block_on);
}

/// A denial that is kept tells what was left when the store was asked, so the checks that compare every
/// number are not for it. All others are: it refuses nothing that the store would not.
mod denials_kept {
    use super::{Served, block_on};

    tidegate_store::conformance_tests!(@each Served::start(true), block_on;
        never_over,
        callers_at_once_share_one_budget,
        never_needlessly_refused,
        all_or_nothing,
        a_request_in_parts_is_never_charged,
        waits_are_exact,
        a_cost_above_the_limit_never_fits,
        looking_spends_nothing,
        a_refund_never_raises_above_full,
        a_debit_is_charged_whatever_is_left,
        a_changed_number_meets_the_state_that_is_there,
        a_clock_set_back_gives_nothing_away_and_locks_nobody_out,
        never_over_while_the_clock_is_set_back_again_and_again,
        leases_are_given_back_by_release_and_by_expiry,
        a_forgotten_key_has_all_of_its_quota,
        keys_do_not_touch_each_other,
        a_request_that_cannot_be_decided_is_an_error_and_charges_nothing,
    );
}
