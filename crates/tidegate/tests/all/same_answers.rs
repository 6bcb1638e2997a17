//! The same calls at the same instants get the same answers from memory, from memory behind the calls
//! that may wait, and from a store that nodes share.
#![allow(unused_must_use, reason = "answers are compared where they are asked for")]

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::ruled::{attributes, rules};
use crate::served::{Server, block_on};
use crate::told::{told, told_of_all};
use tidegate::rules::{DescriptorCall, DescriptorsDecision, Hits, PerUnit, Unit};
use tidegate::{
    Call, Charge, CheckError, Limit, ManualClock, Place, RuleDecision, RuleLimiter, Source,
};

const SECRET: [u8; 16] = *b"shared by a flee";

type InMemory = RuleLimiter<ManualClock>;
type InPlace = RuleLimiter<ManualClock, Place>;

/// One limiter in three places.
struct Three {
    memory: InMemory,
    place: InPlace,
    shared: InPlace,
    clock: ManualClock,
    _server: Server,
}

/// Attributes that describe a call.
type Who = Vec<(&'static str, &'static str)>;

/// One decision of each.
type Decided = [RuleDecision; 3];

/// What never waits is done at the first poll.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("memory waits for nobody"),
    }
}

fn same([memory, place, shared]: [String; 3]) {
    assert_eq!(memory, place, "memory, and memory behind calls that may wait");
    assert_eq!(memory, shared, "memory and the store");
}

impl Three {
    fn new(text: &str) -> Self {
        let server = Server::start();
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(1_790_000_000));
        let builder = || RuleLimiter::builder(rules(text)).clock(clock.clone()).secret(SECRET);
        let (memory, place) = (builder().build().unwrap(), builder().build().unwrap().into());
        let shared = builder().build_shared(server.shared()).unwrap();
        Self { memory, place, shared, clock, _server: server }
    }

    fn both(&self) -> [&InPlace; 2] {
        [&self.place, &self.shared]
    }

    fn reload(&self, text: &str) {
        self.memory.reload(rules(text)).unwrap();
        for limiter in self.both() {
            limiter.reload(rules(text)).unwrap();
        }
    }

    fn check(&self, pairs: &[(&str, &str)]) -> Decided {
        self.check_cost(pairs, 1)
    }

    fn check_cost(&self, pairs: &[(&str, &str)], cost: u64) -> Decided {
        let attributes = attributes(pairs);
        let call = Call::new("api", &attributes).with_cost(cost);
        Self::asked([
            self.memory.check(&call),
            at_once(self.place.check(&call)),
            block_on(self.shared.check(&call)),
        ])
    }

    fn peek(&self, pairs: &[(&str, &str)]) -> Decided {
        let attributes = attributes(pairs);
        let call = Call::new("api", &attributes);
        Self::asked([
            self.memory.peek(&call),
            at_once(self.place.peek(&call)),
            block_on(self.shared.peek(&call)),
        ])
    }

    fn debit(&self, pairs: &[(&str, &str)], cost: u64) -> Decided {
        let attributes = attributes(pairs);
        let call = Call::new("api", &attributes).with_cost(cost);
        Self::asked([
            self.memory.debit(&call),
            at_once(self.place.debit(&call)),
            block_on(self.shared.debit(&call)),
        ])
    }

    /// As one who was told of a decision over a wire gives back.
    fn refund_at(&self, pairs: &[(&str, &str)], cost: u64, taken: &Decided) -> Decided {
        let attributes = attributes(pairs);
        let call = Call::new("api", &attributes).with_cost(cost);
        Self::asked([
            self.memory.refund_at(&call, taken[0].at()),
            at_once(self.place.refund_at(&call, taken[1].at())),
            block_on(self.shared.refund_at(&call, taken[2].at())),
        ])
    }

    fn release(&self, pairs: &[(&str, &str)], taken: &Decided) -> Decided {
        let attributes = attributes(pairs);
        let call = Call::new("api", &attributes);
        let held = |decision: &RuleDecision| decision.held().collect::<Vec<_>>();
        Self::asked([
            self.memory.release_held(&call, &held(&taken[0])),
            at_once(self.place.release_held(&call, &held(&taken[1]))),
            block_on(self.shared.release_held(&call, &held(&taken[2]))),
        ])
    }

    /// As one who was told of a decision over a wire renews.
    fn renew_held(&self, pairs: &[(&str, &str)], taken: &Decided) -> Decided {
        let attributes = attributes(pairs);
        let call = Call::new("api", &attributes);
        let held = |decision: &RuleDecision| decision.held().collect::<Vec<_>>();
        Self::asked([
            self.memory.renew_held(&call, &held(&taken[0])),
            at_once(self.place.renew_held(&call, &held(&taken[1]))),
            block_on(self.shared.renew_held(&call, &held(&taken[2]))),
        ])
    }

    /// Says whether all that was held was held still.
    fn renew(&self, taken: &Decided) -> bool {
        let [memory, place, shared] = taken.each_ref().map(|decision| decision.holding().unwrap());
        let are_held = [
            self.memory.renew(&memory),
            at_once(self.place.renew(&place)),
            block_on(self.shared.renew(&shared)),
        ];
        assert!(are_held.iter().all(|is_held| *is_held == are_held[0]), "{are_held:?}");
        are_held[0]
    }

    fn refund(&self, [memory, place, shared]: Decided) {
        self.memory.refund(memory);
        at_once(self.place.refund(place));
        block_on(self.shared.refund(shared));
    }

    fn complete(&self, [memory, place, shared]: Decided, status: u16) {
        self.memory.complete(memory, status);
        at_once(self.place.complete(place, status));
        block_on(self.shared.complete(shared, status));
    }

    fn reset(&self, pairs: &[(&str, &str)]) {
        let attributes = attributes(pairs);
        let call = Call::new("api", &attributes);
        self.memory.reset(&call).unwrap();
        at_once(self.place.reset(&call)).unwrap();
        block_on(self.shared.reset(&call)).unwrap();
    }

    fn descriptors(&self, calls: &[DescriptorCall<'_>]) -> [DescriptorsDecision; 3] {
        let decided = [
            self.memory.check_descriptors("api", calls),
            at_once(self.place.check_descriptors("api", calls)),
            block_on(self.shared.check_descriptors("api", calls)),
        ];
        same([0, 1, 2].map(|index| told_of_all(&decided[index])));
        decided.map(Result::unwrap)
    }

    fn asked(decided: [Result<RuleDecision, CheckError>; 3]) -> Decided {
        same([0, 1, 2].map(|index| told(decided[index].as_ref().map_err(|error| *error))));
        decided.map(Result::unwrap)
    }

    fn wait(&self, time: Duration) {
        self.clock.advance(time);
    }
}

const SECOND: Duration = Duration::from_secs(1);

const EVERY_ALGORITHM: &str = "
domain: api
rules:
  - { name: bucket, match: { kind: bucket }, per: [user], limit: 5/minute burst 3 }
  - { name: stepped, match: { kind: stepped }, per: [user], limit: 3/minute stepped }
  - { name: leaky, match: { kind: leaky }, per: [user], limit: { rate: 60/minute, burst: 3, algorithm: leaky-bucket } }
  - { name: fixed, match: { kind: fixed }, per: [user], limit: { rate: 3/minute, algorithm: fixed-window } }
  - { name: sliding, match: { kind: sliding }, per: [user], limit: { rate: 3/minute, algorithm: sliding-window } }
  - { name: slots, match: { kind: slots }, per: [user], limit: { rate: 3/minute, algorithm: sliding-slots } }
  - { name: log, match: { kind: log }, per: [user], limit: { rate: 3/minute, algorithm: sliding-log } }
  - { name: at once, match: { kind: places }, per: [user], limit: 2 at once }
";

#[test]
fn every_algorithm_answers_alike() {
    let three = Three::new(EVERY_ALGORITHM);
    let kinds = ["bucket", "stepped", "leaky", "fixed", "sliding", "slots", "log", "places"];
    for kind in kinds {
        let who = [("kind", kind), ("user", "ann")];
        let taken: Vec<_> = (0..5).map(|_| three.check(&who)).collect();
        assert!(taken[0][0].is_allowed() && !taken[4][0].is_allowed(), "{kind}");
        three.wait(7 * SECOND);
        three.peek(&who);
        for one in taken {
            three.refund(one);
            three.peek(&who);
        }
        three.debit(&who, 2);
        three.wait(20 * SECOND);
        let again = three.check_cost(&who, 2);
        three.wait(SECOND);
        three.refund_at(&who, 2, &again);
        three.reset(&who);
        assert!(three.check(&who)[0].is_allowed(), "{kind}");
        three.check_cost(&who, 1_000_000);
    }
}

const SEVERAL: &str = "
domain: api
rules:
  - { name: fast, per: [user], limits: [ 3/s, 10/minute burst 5 ] }
  - { name: by address, per: [ip], limit: { rate: 6/minute, algorithm: sliding-window } }
  - { name: all, limit: { rate: 40/hour, algorithm: fixed-window } }
  - { name: tried, mode: shadow, per: [user], limit: 2/minute }
  - { name: soft, match: { soft: 'on' }, per: [user], soft: 50%, limit: 4/minute }
  - { name: new numbers, match: { soft: 'on' }, per: [ip], limit: 9/minute, candidate: 2/minute }
  - { name: strict login, match: { path: /login }, per: [ip], charge_refused: true, limit: 2/minute }
  - { name: only failures, match: { path: /login }, per: [user], count: on-response, statuses: [401, 403], limit: 2/minute }
  - { name: who, match: { agent: robot }, per: [user], missing: deny, limit: 9/minute }
";

#[test]
fn several_limits_are_charged_alike_all_or_nothing() {
    let three = Three::new(SEVERAL);
    let (ann, bob) =
        ([("user", "ann"), ("ip", "192.0.2.1")], [("user", "bob"), ("ip", "192.0.2.1")]);
    for round in 0..12 {
        three.check(if round % 3 == 0 { &bob } else { &ann });
        three.check_cost(&ann, 2);
        three.peek(&bob);
        three.wait(Duration::from_millis(400));
    }
    let taken = three.check(&bob);
    three.wait(SECOND);
    three.refund(taken);
    three.peek(&bob);
    assert!(!three.check(&[("agent", "robot"), ("ip", "192.0.2.2")])[0].is_allowed());
    three.check(&[("user", "nobody's address")]);
}

#[test]
fn shadow_soft_and_candidates_are_told_alike() {
    let three = Three::new(SEVERAL);
    let who = [("soft", "on"), ("user", "ann"), ("ip", "192.0.2.3")];
    let mut told = (false, false);
    for _ in 0..8 {
        let [memory, ..] = three.check(&who);
        told = (told.0 || memory.is_soft(), told.1 || memory.is_shadow_denied());
        three.wait(3 * SECOND);
    }
    assert_eq!(told, (true, true));
}

#[test]
fn refused_calls_and_responses_are_charged_alike() {
    let three = Three::new(SEVERAL);
    let who = [("path", "/login"), ("user", "ann"), ("ip", "192.0.2.4")];
    let statuses = [200, 401, 200, 403, 500, 401, 200];
    for status in statuses.into_iter().cycle().take(20) {
        let decided = three.check(&who);
        three.wait(5 * SECOND);
        three.complete(decided, status);
        three.peek(&who);
    }
}

#[test]
fn places_are_held_and_released_alike() {
    let three = Three::new(
        "
domain: api
rules:
  - { name: by user, per: [user], limit: 2 at once }
  - { name: all, limits: [ 3 at once, 100/minute ] }
",
    );
    let (ann, bob) = ([("user", "ann")], [("user", "bob")]);
    let first = three.check(&ann);
    let second = three.check(&ann);
    assert!(!three.check(&ann)[0].is_allowed());
    let third = three.check(&bob);
    assert!(!three.check(&bob)[0].is_allowed());
    three.release(&ann, &first);
    assert!(three.check(&bob)[0].is_allowed());
    three.complete(second, 200);
    three.refund(third);
    three.peek(&ann);
    three.wait(2 * 60 * 60 * SECOND);
    three.peek(&bob);
}

#[test]
fn places_are_renewed_alike() {
    const RULES: &str = "
domain: api
rules:
  - { name: by user, per: [user], limit: 2 at once for 30s }
  - { name: all, limits: [ 3 at once for 60s, 100/minute ] }
";
    let three = Three::new(RULES);
    let ann = [("user", "ann")];
    let first = three.check(&ann);
    let second = three.check(&ann);
    assert_eq!(first[0].holding().unwrap().renew_every(), Duration::from_millis(7_500));
    for round in 0..6 {
        three.wait(20 * SECOND);
        if round == 3 {
            // What was taken under the old rules is renewed under those that took their place.
            three.reload(&RULES.replace("2 at once for 30s", "1 at once for 40s"));
        }
        assert!(three.renew(&first));
        let held = three.renew_held(&ann, &first)[0].held().count();
        assert_eq!(held, 2, "by user and by all");
        assert!(!three.peek(&ann)[0].is_allowed() || round < 3);
    }
    assert!(!three.renew(&second), "nobody renewed it in time");
    assert_eq!(three.renew_held(&ann, &second)[0].held().count(), 0);
    three.release(&ann, &first);
    assert!(!three.renew(&first), "what was given back stays so");
    assert!(three.check(&ann)[0].is_allowed());
}

const TIERS: &str = "
domain: api
rules:
  - name: by plan
    per: [user]
    limit: 10/minute sliding-window
    tiers: { by: plan, limits: { free: 5/minute sliding-window, pro: 30/minute sliding-window, staff: unlimited } }
    overrides: { user=carla: 2/minute sliding-window }
";

#[test]
fn what_a_tier_spent_is_spent_in_another_alike() {
    let three = Three::new(TIERS);
    let on = |plan: &'static str| [("user", "ann"), ("plan", plan)];
    for plan in ["free", "free", "pro", "free", "free", "none", "pro", "pro", "staff", "free"] {
        three.check(&on(plan));
        three.wait(Duration::from_millis(700));
    }
    assert!((0..8).any(|_| !three.check(&on("free"))[0].is_allowed()));
    three.check(&[("user", "carla")]);
    three.check(&[("user", "carla"), ("plan", "pro")]);
    assert!(!three.check(&[("user", "carla")])[0].is_allowed());
}

/// Buckets are left out: what was spent is carried over in memory, and is the same share of the new
/// numbers in a store.
#[test]
fn a_reload_finds_what_was_spent_alike() {
    for algorithm in ["fixed-window", "sliding-window", "sliding-slots", "sliding-log"] {
        let rule = |count: u64| {
            let limit = format!("{count}/minute {algorithm}");
            format!("{{ domain: api, rules: [ {{ name: all, per: [user], limit: {limit} }} ] }}")
        };
        let three = Three::new(&rule(10));
        let (ann, bob) = ([("user", "ann")], [("user", "bob")]);
        let kept = three.check_cost(&ann, 3);
        three.check_cost(&ann, 4);
        three.check_cost(&bob, 9);
        three.reload(&rule(20));
        assert_eq!(three.peek(&ann)[0].remaining(), Some(13), "{algorithm}");
        three.wait(2 * SECOND);
        three.refund(kept);
        assert_eq!(three.peek(&ann)[0].remaining(), Some(16), "{algorithm}");
        three.reload(&rule(5));
        assert!(!three.check(&bob)[0].is_allowed(), "{algorithm}");
        three.check(&ann);
        three.wait(30 * SECOND);
        three.reload(&rule(100));
        three.reset(&bob);
        assert_eq!(three.peek(&bob)[0].remaining(), Some(100), "{algorithm}");
        three.check(&ann);
        three.wait(600 * SECOND);
        three.check(&ann);
    }
}

const DESCRIPTORS: &str = "
domain: api
descriptors:
  - { key: plain, rate_limit: { name: plain, unit: minute, requests_per_unit: 3 } }
  - { key: plain, value: fast, rate_limit: { unit: minute, requests_per_unit: 9 } }
  - { key: quota, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 2 } }
  - { key: tried, shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 2 } }
  - { key: never, rate_limit: { unit: minute, requests_per_unit: 0 } }
  - { key: other, rate_limit: { unit: hour, requests_per_unit: 4, replaces: [ { name: plain } ] } }
";

#[test]
fn descriptors_are_decided_alike() {
    let three = Three::new(DESCRIPTORS);
    let entry = |name: &'static str, value: &'static str| [(name, value).into()];
    let (plain, fast) = (entry("plain", "a"), entry("plain", "fast"));
    let (quota, tried, other) = (entry("quota", "q"), entry("tried", "t"), entry("other", "o"));
    let given = PerUnit { count: 2, unit: Unit::Minute };
    for round in 0..12_u64 {
        three.descriptors(&[DescriptorCall::new(&plain)]);
        three.descriptors(&[DescriptorCall::new(&plain), DescriptorCall::new(&tried)]);
        let mut decided = three.descriptors(&[
            DescriptorCall::new(&fast).with_hits(Hits::Take(round % 3)),
            DescriptorCall::new(&plain),
            DescriptorCall::new(&quota),
            DescriptorCall::new(&fast).with_limit(given),
        ]);
        three.wait(4 * SECOND);
        if round % 2 == 0 {
            let [memory, place, shared] = &mut decided;
            three.memory.refund_descriptors(memory);
            at_once(three.place.refund_descriptors(place));
            block_on(three.shared.refund_descriptors(shared));
        }
        three.descriptors(&[
            DescriptorCall::new(&plain).with_hits(Hits::GiveBack(1)),
            DescriptorCall::new(&other),
            DescriptorCall::new(&plain),
        ]);
    }
    three.descriptors(&[DescriptorCall::new(&entry("never", "n"))]);
}

#[test]
fn given_limits_are_decided_alike() {
    let three = Three::new("{ domain: api, rules: [] }");
    let limit: Limit = tidegate_rules::parse_limit("3/minute").unwrap();
    let key = three.memory.hasher().bytes(b"ann").key(three.memory.given_salt("test"));
    let take =
        Charge { limit: &limit, key, operation: tidegate::core::Operation::Take { cost: 1 } };
    for _ in 0..5 {
        let memory = three.memory.decide_given(&take);
        let place = at_once(three.place.decide_given(&take)).unwrap();
        let shared = block_on(three.shared.decide_given(&take)).unwrap();
        assert_eq!((memory, memory), (place.decision, shared.decision));
        assert_eq!((place.source, shared.source), (Source::Memory, Source::Store));
    }
    three.memory.forget_given(key);
    at_once(three.place.forget_given(key, &limit)).unwrap();
    block_on(three.shared.forget_given(key, &limit)).unwrap();
    let many = [take; 40];
    let (mut memory, mut place, mut shared) = (Vec::new(), Vec::new(), Vec::new());
    let now = three.memory.now();
    three.memory.decide_given_many_at(now, many, |one| memory.push(one));
    at_once(three.place.decide_given_many_at(now, many, |one| place.push(one.unwrap().decision)));
    block_on(three.shared.decide_given_many_at(now, many, |one| {
        shared.push(one.unwrap().decision);
    }));
    assert_eq!(memory, place);
    assert_eq!(memory, shared);
    assert_eq!(memory.iter().filter(|one| one.is_allowed()).count(), 3);
}

#[test]
fn a_checker_answers_alike() {
    let three = Three::new(SEVERAL);
    let attributes = attributes(&[("user", "ann"), ("ip", "192.0.2.9")]);
    let call = Call::new("api", &attributes);
    let (mut memory, mut place, mut shared) =
        (three.memory.checker(), three.place.checker(), three.shared.checker());
    let mut denied = 0;
    for round in 0..9 {
        let told = [
            told(memory.check(&call)),
            told(at_once(place.check(&call))),
            told(block_on(shared.check(&call))),
        ];
        denied += usize::from(told[0].starts_with("allowed false"));
        same(told);
        if round % 3 == 0 {
            memory.refund();
            at_once(place.refund());
            block_on(shared.refund());
        }
        three.wait(SECOND / 2);
    }
    assert!(denied > 0);
}

/// Rules of every kind, with other numbers for each version where nothing has to be carried over.
fn all_rules(version: u64) -> String {
    let without_head = |text: &'static str| &text["\ndomain: api\nrules:\n".len()..];
    let (several, tiers) = (without_head(SEVERAL), without_head(TIERS));
    let all = format!("{EVERY_ALGORITHM}{several}{tiers}");
    let changed = [
        (3, "/minute, algorithm: fixed-window"),
        (6, "/minute, algorithm: sliding-window"),
        (3, "/minute, algorithm: sliding-slots"),
        (3, "/minute, algorithm: sliding-log"),
        (5, "/minute sliding-window"),
        (30, "/minute sliding-window"),
    ];
    changed.into_iter().fold(all, |all, (count, rest)| {
        let written = format!(" {count}{rest}");
        assert!(all.contains(&written), "{written}");
        all.replace(&written, &format!(" {}{rest}", count * (version % 3 + 1)))
    })
}

/// Random calls, over rules of every kind, which are reloaded meanwhile.
#[test]
fn random_calls_are_answered_alike() {
    for seed in 1..=6_u64 {
        let three = Three::new(&all_rules(0));
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut taken: Vec<(Who, u64, Decided)> = Vec::new();
        for _ in 0..400 {
            let who = random.who();
            let cost = random.below(4);
            match random.below(12) {
                0 => three.wait(Duration::from_micros(random.below(20_000_000))),
                1 => drop(three.peek(&who)),
                2 => drop(three.debit(&who, cost)),
                3 if !taken.is_empty() => {
                    let (_, _, one) = taken.swap_remove(random.index(taken.len()));
                    three.refund(one);
                }
                4 if !taken.is_empty() => {
                    let (who, cost, one) = taken.swap_remove(random.index(taken.len()));
                    if one[0].held().next().is_some() {
                        three.release(&who, &one);
                    } else {
                        three.refund_at(&who, cost, &one);
                    }
                }
                5 if !taken.is_empty() => {
                    let (_, _, one) = taken.swap_remove(random.index(taken.len()));
                    three.complete(one, if random.below(2) == 0 { 200 } else { 401 });
                }
                6 if random.below(8) == 0 => three.reset(&who),
                7 if random.below(8) == 0 => three.reload(&all_rules(random.below(12))),
                _ => taken.push((who.clone(), cost, three.check_cost(&who, cost))),
            }
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap()
    }

    fn who(&mut self) -> Who {
        let kinds =
            ["bucket", "stepped", "leaky", "fixed", "sliding", "slots", "log", "places", "none"];
        let mut who = vec![("kind", kinds[self.index(kinds.len())])];
        for (name, values) in [
            ("user", &["ann", "bob"][..]),
            ("ip", &["192.0.2.1", "192.0.2.2"]),
            ("path", &["/login", "/"]),
            ("soft", &["on", "off"]),
            ("plan", &["free", "pro", "none"]),
        ] {
            if self.below(4) > 0 {
                who.push((name, values[self.index(values.len())]));
            }
        }
        who
    }
}
