//! Limiters of this process as those who decide: in memory at once, and over a shared store in time.

use std::sync::Arc;
use std::time::Duration;

use tidegate::rules::{Foreseen, OnlyLeft, Reason};
use tidegate::{Call, Clock, Reads, RuleDecision, RuleLimiter};

use crate::decide::{Asked, Decide, Decided, Deciding, Undecided};
use crate::keeper::Keeper;
use crate::standing::{Policy, Standing};

impl Decided for RuleDecision {
    fn is_allowed(&self) -> bool {
        RuleDecision::is_allowed(self)
    }

    fn delay(&self) -> Duration {
        RuleDecision::delay(self)
    }

    #[inline]
    fn passes_at_once(&self) -> bool {
        RuleDecision::passes_at_once(self)
    }

    fn standing(&self) -> Standing<'_> {
        Standing::of(self)
    }

    #[inline]
    fn standing_without_policies(&self) -> Standing<'_> {
        Standing::without_policies(self)
    }

    #[inline]
    fn binding_numbers(&self) -> Option<[u64; 3]> {
        RuleDecision::binding_numbers(self)
    }

    #[inline]
    fn only_policy(&self) -> Option<Policy<'_>> {
        Policy::only(self)
    }

    #[inline]
    fn only_left(&self) -> Option<OnlyLeft> {
        RuleDecision::only_left(self)
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

    #[inline]
    fn is_awaited(&self) -> bool {
        RuleDecision::is_awaited(self)
    }
}

impl<C: Clock + 'static> Decide for RuleLimiter<C> {
    type Decided = RuleDecision;

    fn has_domain(&self, domain: &str) -> bool {
        self.rules().domain_id(domain).is_some()
    }

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

    fn foresee(&self, begun: &RuleDecision, call: &Call<'_>) -> Option<Foreseen> {
        RuleLimiter::foresee(self, begun, call)
    }

    #[inline]
    fn decide_foreseen(&self, begun: &mut Option<RuleDecision>, foreseen: &Foreseen) -> bool {
        begun.as_mut().is_some_and(|decision| self.check_foreseen(decision, foreseen, 1))
    }

    fn decide(self: Arc<Self>, asked: Asked) -> Deciding<RuleDecision> {
        let list = asked.attributes.list();
        let decided = self.check(&asked.call(&list)).map_err(Undecided::from);
        Box::pin(std::future::ready(decided))
    }

    fn responded(self: &Arc<Self>, decided: &mut RuleDecision, status: u16) {
        self.count_response(decided, status);
    }

    fn keeper(self: &Arc<Self>, decided: &RuleDecision) -> Option<Keeper> {
        let (limiter, holding) = (Arc::clone(self), decided.holding()?);
        Some(Keeper::at_once_every(holding.renew_every(), move || _ = limiter.renew(&holding)))
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
        Arc, Asked, Call, Clock, Decide, Deciding, Foreseen, Keeper, Reads, RuleDecision,
        RuleLimiter, Undecided,
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

        fn has_domain(&self, domain: &str) -> bool {
            self.rules().domain_id(domain).is_some()
        }

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

        fn foresee(&self, begun: &RuleDecision, call: &Call<'_>) -> Option<Foreseen> {
            RuleLimiter::foresee(self, begun, call)
        }

        #[inline]
        fn decide_foreseen(&self, begun: &mut Option<RuleDecision>, foreseen: &Foreseen) -> bool {
            begun.as_mut().is_some_and(|decision| self.check_foreseen(decision, foreseen, 1))
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

        fn keeper(self: &Arc<Self>, decided: &RuleDecision) -> Option<Keeper> {
            let (limiter, holding) = (Arc::clone(self), decided.holding()?);
            let every = holding.renew_every();
            Some(match self.place() {
                Place::Memory(_) => {
                    Keeper::at_once_every(every, move || _ = at_once(limiter.renew(&holding)))
                }
                Place::Shared(_) => {
                    let holding = Arc::new(holding);
                    Keeper::every(every, move || {
                        let (limiter, holding) = (Arc::clone(&limiter), Arc::clone(&holding));
                        async move { _ = limiter.renew(&holding).await }
                    })
                }
            })
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

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};
    use proptest::prelude::*;
    use tidegate::{ManualClock, RuleSet};
    use tidegate_rules::{ParseOptions, Source};

    use super::*;
    use crate::headers::{HeaderSet, Texts, Told};
    use crate::values::Values;

    /// Every algorithm alone, several limits together, and those that clients are not told of.
    const RULES: &str = r#"
domain: d
rules:
  - { name: bucket, match: { kind: bucket }, limit: 20/minute }
  - { name: leaky, match: { kind: leaky }, limit: { rate: 10/s, burst: 9, algorithm: leaky-bucket } }
  - { name: fixed, match: { kind: fixed }, limit: { rate: 300/hour, algorithm: fixed-window } }
  - { name: log, match: { kind: log }, limit: { rate: 20/s, algorithm: sliding-log } }
  - { name: places, match: { kind: places }, limit: 5 at once }
  - { name: "odd \"name\"", match: { kind: odd }, limit: 1000000000000/day }
  - { name: soft, match: { kind: soft }, limit: 10/minute, soft: 50% }
  - { name: shadow, match: { kind: shadow }, limit: 3/minute, mode: shadow }
  - { name: two, match: { kind: two }, limits: [ 5/minute, 100/hour ] }
  - { name: classes, match: { kind: classes }, limit: 20/minute, priority: { by: class, reserve: { critical: 20% } } }
  - { name: tried, match: { kind: tried }, limit: 20/minute, candidate: 5/minute }
  - { name: elastic, match: { kind: elastic }, limit: 10/minute, elastic: { up_to: 150%, while_pressure_below: 0.5 } }
  - { name: failed, match: { kind: failed }, limit: 10/minute, count: on-response, statuses: [401] }
  - { name: tiers, match: { kind: tiers }, limit: 10/minute, tiers: { by: kind, limits: { tiers: 50/minute } } }
"#;
    const KINDS: [&str; 15] = [
        "bucket", "leaky", "fixed", "log", "places", "odd", "soft", "shadow", "two", "classes",
        "tried", "elastic", "failed", "tiers", "none",
    ];

    fn parsed(rules: &str) -> RuleSet {
        let parsed = RuleSet::parse(&[Source::new("rules.yaml", rules)], &ParseOptions::default());
        parsed.unwrap_or_else(|report| panic!("{report}")).rules
    }

    fn told(limiter: &RuleLimiter, set: HeaderSet) -> HeaderMap {
        let decision = limiter.check(&Call::new("d", &[("who", "a").into()])).unwrap();
        assert!(decision.only_left().is_some());
        let mut headers = HeaderMap::new();
        headers.insert("content-length", HeaderValue::from_static("5"));
        Told::of_decided(set, &decision).add_to(&mut headers);
        headers
    }

    /// The first call of a limit looks for its text, the later ones find it by the mark of the limit: of each rule, and after
    /// each reload.
    #[test]
    fn a_policy_is_found_by_its_mark_once_it_was_told() {
        // More than a thread has places for policies, and few beside all texts that last, which tests of a process share.
        const RULES_OF_ONE_KIND: usize = 20;
        const LAST_TURN: usize = 9;
        let rules = |limit: &str| {
            let rule = |number| {
                let matched = format!("match: {{ kind: \"{number}\" }}");
                format!("{{ name: rule {number}, {matched}, per: [who], limit: {limit} }}")
            };
            let rules: Vec<_> = (0..RULES_OF_ONE_KIND).map(rule).collect();
            parsed(&format!("{{ domain: d, rules: [ {} ] }}", rules.join(", ")))
        };
        let limiter = RuleLimiter::builder(rules("1/minute burst 100")).build().unwrap();
        for limit in ["1/minute burst 100", "1/hour burst 100", "1/minute burst 100"] {
            limiter.reload(rules(limit)).unwrap();
            for turn in 0..=LAST_TURN {
                for kind in 0..RULES_OF_ONE_KIND {
                    let kind = kind.to_string();
                    let attributes = [("kind", kind.as_str()).into(), ("who", "a").into()];
                    let decision = limiter.check(&Call::new("d", &attributes)).unwrap();
                    let mark = decision.only_left().unwrap().mark;
                    let is_marked = Values::with(|values| values.marked(mark).is_some());
                    // Where another test is just looking for a text, it takes one more call.
                    if turn == 0 || turn == LAST_TURN {
                        assert_eq!(is_marked, turn > 0, "{limit}, rule {kind}");
                    }
                    Told::of_decided(HeaderSet::All, &decision).add_to(&mut HeaderMap::new());
                }
            }
        }
    }

    #[test]
    fn after_a_reload_the_policy_is_that_of_the_new_rules() {
        let rules = |name: &str, limit: &str| {
            let rule = format!("{{ name: {name}, per: [who], limit: {limit} }}");
            parsed(&format!("{{ domain: d, rules: [ {rule} ] }}"))
        };
        let limiter = RuleLimiter::builder(rules("a", "10/minute")).build().unwrap();
        for (name, limit, expected) in [
            ("a", "10/minute", "\"a\";q=10;w=60"),
            ("a", "10/hour", "\"a\";q=10;w=3600"),
            ("b", "10/hour", "\"b\";q=10;w=3600"),
            ("b", "20/hour", "\"b\";q=20;w=3600"),
            ("a", "10/minute", "\"a\";q=10;w=60"),
        ] {
            limiter.reload(rules(name, limit)).unwrap();
            for set in [HeaderSet::All, HeaderSet::Ietf, HeaderSet::All] {
                assert_eq!(told(&limiter, set)["ratelimit-policy"], expected);
            }
        }
    }

    proptest! {
        #[test]
        fn what_one_limit_tells_is_what_its_standing_tells(
            calls in proptest::collection::vec((0..KINDS.len(), 0u64..4, 0u64..3_000), 1..200),
            is_long: bool,
            is_by_attribute: bool,
        ) {
            let clock = ManualClock::new();
            clock.advance(Duration::from_secs(1_700_000_000));
            let rules = if is_by_attribute {
                RULES.replace("match:", "per: [who], match:")
            } else {
                RULES.to_owned()
            };
            let limiter = RuleLimiter::builder(parsed(&rules)).clock(clock.clone()).build();
            let limiter = limiter.unwrap();
            for (kind, cost, millis) in calls {
                clock.advance(Duration::from_millis(millis));
                let attributes = [("kind", KINDS[kind]).into(), ("who", "a").into()];
                let decision = limiter.check(&Call::new("d", &attributes).with_cost(cost)).unwrap();
                let is_one = decision.is_allowed() && decision.only_policy().is_some();
                prop_assert!(is_one || kind >= 6 || !decision.is_allowed(), "{}", KINDS[kind]);
                if let Some(left) = decision.only_left() {
                    prop_assert!(is_one && is_by_attribute, "{}", KINDS[kind]);
                    let numbers = [left.limit, left.remaining, left.reset_secs];
                    prop_assert_eq!(Some(numbers), decision.binding_numbers());
                }
                let is_awaited = decision.holds_places() || decision.counts_responses();
                prop_assert_eq!(decision.is_awaited(), is_awaited, "{}", KINDS[kind]);
                let at_once = decision.is_allowed() && decision.delay().is_zero();
                prop_assert_eq!(decision.passes_at_once(), at_once, "{}", KINDS[kind]);
                for set in [HeaderSet::All, HeaderSet::Ietf, HeaderSet::XRateLimit, HeaderSet::None] {
                    let mut straight = HeaderMap::new();
                    straight.insert("content-type", HeaderValue::from_static("text/plain"));
                    if is_long {
                        // From the second on, those with a length come from a mould.
                        straight.insert("content-length", HeaderValue::from_static("5"));
                    }
                    let mut general = straight.clone();
                    Told::of_decided(set, &decision).add_to(&mut straight);
                    Texts::of(set, &decision.standing()).add_to(&mut general);
                    prop_assert!(straight.iter().eq(&general), "{:?}, not {:?}", straight, general);
                }
            }
        }
    }
}
