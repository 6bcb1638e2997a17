//! Limiters of this process as those who decide: in memory at once, and over a shared store in time.

use std::sync::Arc;
use std::time::Duration;

use tidegate::rules::Reason;
use tidegate::{Call, Clock, Reads, RuleDecision, RuleLimiter};

use crate::decide::{Asked, Decide, Decided, Deciding, Undecided};
use crate::standing::Standing;

impl Decided for RuleDecision {
    fn is_allowed(&self) -> bool {
        RuleDecision::is_allowed(self)
    }

    fn delay(&self) -> Duration {
        RuleDecision::delay(self)
    }

    fn standing(&self) -> Standing<'_> {
        Standing::of(self)
    }

    #[inline]
    fn standing_without_policies(&self) -> Standing<'_> {
        Standing::without_policies(self)
    }

    fn turned_away(&self, retry_after: Duration) -> Standing<'_> {
        Standing::turned_away(self, Reason::OverLimit, Some(retry_after))
    }

    fn holds_places(&self) -> bool {
        RuleDecision::holds_places(self)
    }

    fn counts_responses(&self) -> bool {
        RuleDecision::counts_responses(self)
    }
}

impl<C: Clock + 'static> Decide for RuleLimiter<C> {
    type Decided = RuleDecision;

    #[inline]
    fn decide_now(&self, call: &Call<'_>) -> Option<Result<RuleDecision, Undecided>> {
        Some(self.check(call).map_err(Undecided::from))
    }

    #[inline]
    fn begin(&self) -> Option<RuleDecision> {
        Some(RuleLimiter::begin(self))
    }

    #[inline]
    fn reads(&self, begun: Option<&RuleDecision>) -> Reads {
        begun.map_or(Reads::ALL, |begun| RuleLimiter::reads(self, begun))
    }

    #[inline]
    fn decide_begun(
        &self,
        begun: &mut Option<RuleDecision>,
        call: &Call<'_>,
    ) -> Option<Result<(), Undecided>> {
        let decision = begun.get_or_insert_with(|| RuleLimiter::begin(self));
        Some(self.check_begun(decision, call).map_err(Undecided::from))
    }

    fn decide(self: Arc<Self>, asked: Asked) -> Deciding<RuleDecision> {
        let list = asked.attributes.list();
        let decided = self.check(&asked.call(&list)).map_err(Undecided::from);
        Box::pin(std::future::ready(decided))
    }

    fn responded(self: &Arc<Self>, decided: &mut RuleDecision, status: u16) {
        self.count_response(decided, status);
    }

    fn ended(self: &Arc<Self>, decided: RuleDecision) {
        self.abandon(decided);
    }

    fn withdrawn(self: &Arc<Self>, decided: RuleDecision) {
        self.refund(decided);
    }
}

#[cfg(feature = "redis")]
mod shared {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use tidegate::Place;
    use tokio::runtime::Handle;

    use super::{
        Arc, Asked, Call, Clock, Decide, Deciding, Reads, RuleDecision, RuleLimiter, Undecided,
    };

    /// What a future gives that never waits, because memory decides.
    fn at_once<F: Future>(future: F) -> Option<F::Output> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    /// Does what nobody waits for. Outside of a runtime nothing can be told to the store, and what was
    /// taken comes back by itself in time, places when their leases expire.
    fn later(giving_back: impl Future<Output = ()> + Send + 'static) {
        if let Ok(runtime) = Handle::try_current() {
            drop(runtime.spawn(giving_back));
        }
    }

    impl<C: Clock + 'static> Decide for RuleLimiter<C, Place> {
        type Decided = RuleDecision;

        #[inline]
        fn decide_now(&self, call: &Call<'_>) -> Option<Result<RuleDecision, Undecided>> {
            Some(self.check_now(call)?.map_err(Undecided::from))
        }

        #[inline]
        fn begin(&self) -> Option<RuleDecision> {
            Some(RuleLimiter::begin(self))
        }

        #[inline]
        fn reads(&self, begun: Option<&RuleDecision>) -> Reads {
            begun.map_or(Reads::ALL, |begun| RuleLimiter::reads(self, begun))
        }

        #[inline]
        fn decide_begun(
            &self,
            begun: &mut Option<RuleDecision>,
            call: &Call<'_>,
        ) -> Option<Result<(), Undecided>> {
            let decision = begun.get_or_insert_with(|| RuleLimiter::begin(self));
            Some(self.check_begun_now(decision, call)?.map_err(Undecided::from))
        }

        fn decide(self: Arc<Self>, asked: Asked) -> Deciding<RuleDecision> {
            Box::pin(async move {
                let list = asked.attributes.list();
                self.check(&asked.call(&list)).await.map_err(Undecided::from)
            })
        }

        fn responded(self: &Arc<Self>, decided: &mut RuleDecision, status: u16) {
            match self.place() {
                Place::Memory(_) => _ = at_once(self.count_response(decided, status)),
                Place::Shared(_) => {
                    let mut counted = decided.split_off_counted();
                    let limiter = Arc::clone(self);
                    later(async move { limiter.count_response(&mut counted, status).await });
                }
            }
        }

        fn ended(self: &Arc<Self>, decided: RuleDecision) {
            match self.place() {
                Place::Memory(_) => _ = at_once(self.abandon(decided)),
                Place::Shared(_) => {
                    if !decided.holds_places() {
                        return;
                    }
                    let limiter = Arc::clone(self);
                    later(async move { limiter.abandon(decided).await });
                }
            }
        }

        fn withdrawn(self: &Arc<Self>, decided: RuleDecision) {
            match self.place() {
                Place::Memory(_) => _ = at_once(self.refund(decided)),
                Place::Shared(_) => {
                    let limiter = Arc::clone(self);
                    later(async move { limiter.refund(decided).await });
                }
            }
        }
    }
}
