//! What this node has leased enough for is decided on the spot, without a future, and as it is decided by one.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::ruled::{attributes, rules};
use crate::served::Server;
use crate::told::told;
use tidegate::redis::{Shared, SharedConfig, TimeSource};
use tidegate::{Call, Consistency, ManualClock, Place, Reads, RuleDecision, RuleLimiter, Source};
use tokio::runtime::{Builder, Runtime};

type Limiter = RuleLimiter<ManualClock, Place>;

const RULES: &str = "
domain: api
rules:
  - { name: one, match: { kind: one }, per: [user], limit: 1000/hour }
  - { name: pair, match: { kind: pair }, per: [user], limits: [ 1000/hour, 500/minute sliding-window ] }
  - { name: tried, match: { kind: tried }, mode: shadow, per: [user], limit: 1000/hour }
  - { name: hot, match: { kind: mixed }, per: [user], limit: 1000/hour }
  - { name: cold, match: { kind: mixed }, per: [user], consistency: strict, limit: 1000/hour }
  - { name: refused, match: { kind: refused }, per: [tenant], missing: deny, limit: 9/hour }
";

/// A limiter whose leases are looked after on this thread alone: nothing happens behind a test that does not
/// wait.
struct Node {
    runtime: Runtime,
    limiter: Limiter,
    _server: Server,
}

impl Node {
    fn new(consistency: Consistency) -> Self {
        let server = Server::start();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let config = SharedConfig::new([server.config().time(TimeSource::Request)]);
        let shared = Arc::new(runtime.block_on(Shared::connect(config)).unwrap());
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(1_790_000_000));
        let builder = RuleLimiter::builder(rules(RULES)).clock(clock).secret([7; 16]);
        let limiter = builder.consistency(consistency).build_shared(shared).unwrap();
        Self { runtime, limiter, _server: server }
    }

    fn check(&self, kind: &str) -> RuleDecision {
        let attributes = of(kind);
        self.runtime.block_on(self.limiter.check(&Call::new("api", &attributes))).unwrap()
    }

    /// The same without letting anything else happen; `None` where that is not possible.
    fn polled(&self, kind: &str) -> Option<RuleDecision> {
        let attributes = of(kind);
        let call = Call::new("api", &attributes);
        let _inside = self.runtime.enter();
        let checking = pin!(self.limiter.check(&call));
        match checking.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(decided) => Some(decided.unwrap()),
            Poll::Pending => None,
        }
    }

    fn at_once<T>(&self, kind: &str, then: impl FnOnce(&mut RuleDecision) -> T) -> Option<T> {
        let attributes = of(kind);
        let call = Call::new("api", &attributes);
        self.limiter.check_at_once(&call, self.limiter.now(), |decided| then(decided.unwrap()))
    }

    /// Asks until there is a lease, and gives what it is answered at once then.
    fn heated<T>(&self, kind: &str, mut then: impl FnMut(&mut RuleDecision) -> T) -> T {
        for _ in 0..1_500 {
            if let Some(decided) = self.at_once(kind, &mut then) {
                return decided;
            }
            assert!(self.check(kind).is_allowed());
            self.wait();
        }
        panic!("nothing is leased");
    }

    /// Lets what goes on behind the limiter go on.
    fn wait(&self) {
        self.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(2)).await });
    }

    fn leases(&self) -> tidegate::redis::lease::LeaseStats {
        let Place::Shared(shared) = self.limiter.place() else { unreachable!() };
        shared.stats().groups[0].leases
    }

    fn left(&self, kind: &str) -> Vec<u64> {
        let attributes = of(kind);
        let peeked = self.runtime.block_on(self.limiter.peek(&Call::new("api", &attributes)));
        peeked.unwrap().limits().map(|limit| limit.remaining()).collect()
    }
}

fn of(kind: &str) -> Vec<tidegate::Attribute<'_>> {
    attributes(&[("kind", kind), ("user", "ann")])
}

/// All that a decision says, with so much more left under each limit.
fn told_with(decision: &RuleDecision, more: u64) -> String {
    let mut text = told(Ok(decision));
    let left = |left: u64, more: u64| format!("left {} reset", left + more);
    let binding = |left: u64, more: u64| format!("left Some({}) reset", left + more);
    if let Some(remaining) = decision.remaining() {
        text = text.replace(&binding(remaining, 0), &binding(remaining, more));
    }
    for limit in decision.limits() {
        text = text.replace(&left(limit.remaining(), 0), &left(limit.remaining(), more));
    }
    let sources: Vec<_> = decision.limits().map(|limit| limit.source()).collect();
    let (key, times) = (decision.key(), (decision.at(), decision.told_at()));
    format!(
        "{text} {:?} {} {key:?} {sources:?} {times:?}",
        decision.source(),
        decision.is_degraded()
    )
}

#[test]
fn what_is_leased_is_answered_at_once_as_it_is_when_awaited() {
    let node = Node::new(Consistency::Leased);
    for kind in ["one", "pair", "tried"] {
        let mut compared = 0;
        while compared < 3 {
            let first = node.heated(kind, |decision| told_with(decision, 0));
            // Enough for one may not be enough for another.
            let Some(second) = node.polled(kind) else { continue };
            assert!(second.is_allowed() && second.took() && !second.is_degraded());
            assert!(second.limits().all(|limit| limit.source() == Source::Lease));
            assert_eq!(first, told_with(&second, 1), "{kind}");
            compared += 1;
        }
    }
}

#[test]
fn what_is_spent_at_once_is_spent() {
    let node = Node::new(Consistency::Leased);
    for (kind, limit) in [("one", 1_000), ("pair", 500)] {
        let (mut at_once, mut awaited) = (0, 0);
        for _ in 0..3 * limit {
            if node.at_once(kind, |decision| assert!(decision.is_allowed())).is_some() {
                at_once += 1;
            } else if node.check(kind).is_allowed() {
                awaited += 1;
            }
        }
        assert!(at_once > 0 && at_once + awaited <= limit, "{kind}: {at_once} and {awaited}");
    }
}

#[test]
fn what_was_spent_at_once_is_given_back() {
    // A lease that was not looked after in time, on a machine that stood still, is charged in full.
    let node = (0..5).map(|_| given_back()).find(|node| node.leases().expired == 0);
    assert!(node.is_some(), "leases expire each time");
}

/// A node that has given back what it spent at once, and either all of it is left again, or a lease expired.
fn given_back() -> Node {
    let node = Node::new(Consistency::Leased);
    // Whether a lease has paid or not, what is left is what was not taken.
    let mut taken = 0;
    for _ in 0..2 {
        loop {
            let refunded = node.at_once("one", |decision| {
                assert!(decision.took());
                node.runtime.block_on(node.limiter.refund_in(decision));
                assert!(!decision.took());
            });
            if refunded.is_some() {
                break;
            }
            taken += 1;
            assert!(node.check("one").is_allowed());
        }
    }
    let expected = vec![1_000 - taken];
    let is_left = (0..1_500).any(|_| {
        node.wait();
        node.left("one") == expected || node.leases().expired > 0
    });
    assert!(is_left, "{:?} of {expected:?}", node.left("one"));
    node
}

#[test]
fn what_has_to_be_asked_for_is_not_decided_at_once_and_takes_nothing() {
    let node = Node::new(Consistency::Strict);
    for _ in 0..20 {
        assert!(node.at_once("one", |_| ()).is_none());
    }
    assert_eq!(node.left("one"), [1_000]);
    let node = Node::new(Consistency::Leased);
    assert!(node.at_once("one", |_| ()).is_none(), "it is cold");
    assert_eq!(node.left("one"), [1_000]);
    for taken in 1..=50 {
        assert!(node.at_once("mixed", |_| ()).is_none(), "one of the two is strict");
        assert!(node.check("mixed").is_allowed());
        assert_eq!(node.left("mixed")[1], 1_000 - taken);
    }
    assert!(node.at_once("refused", |_| ()).is_none());
    assert!(!node.check("refused").is_allowed());
}

#[test]
fn what_no_rule_counts_passes_at_once() {
    let node = Node::new(Consistency::Leased);
    let first = node.at_once("nobody's", |decision| told_with(decision, 0)).unwrap();
    let second = node.check("nobody's");
    assert!(second.is_allowed() && !second.took() && second.source() == Source::Memory);
    assert_eq!(first, told_with(&second, 0));
}

#[test]
fn what_a_store_is_asked_in_any_case_reads_everything_at_once() {
    let reads = |consistency| {
        let node = Node::new(consistency);
        node.limiter.reads(&node.limiter.begin())
    };
    // One rule is strict by its own word; none is leased by it.
    assert_eq!(reads(Consistency::Strict), Reads::ALL);
    assert_eq!(reads(Consistency::Leased), Reads::OTHERS);
}

#[test]
fn a_decision_that_was_begun_and_not_made_allows_nothing() {
    let node = Node::new(Consistency::Leased);
    assert!(!node.limiter.begin().is_allowed());
}
