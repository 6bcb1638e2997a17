//! Requests over several model stores that are slow, refuse to answer, or lose their answers.

use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Waker};

use proptest::prelude::*;
use tidegate_core::{Concurrency, Decision, Rate, Span, TokenBucket, Verdict};
use tidegate_store::conformance::{Model, START};
use tidegate_store::{Answers, Store};

use super::*;

const FAR: Duration = Duration::from_mins(1);

/// A delay until the place's gate opens.
const HELD: u32 = u32::MAX;

/// What happens to the next calls of a place.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mood {
    Well,
    /// It is not reached: nothing changes.
    Unreachable,
    /// It decides, and the answer is lost.
    Mute,
}

#[derive(Default)]
struct PlaceModel {
    store: Model,
    /// The moods of calls to come; well when there is none.
    moods: Mutex<Vec<Mood>>,
    /// How often each call gives way before it decides, and after.
    delays: Mutex<Vec<(u32, u32)>>,
    /// Opens for one call whose delay is [`HELD`].
    gate: tokio::sync::Notify,
    /// What it was asked, call by call.
    asked: Mutex<Vec<Vec<Operation>>>,
    /// By when what is not given back was to be decided.
    ends: Mutex<Vec<Instant>>,
}

#[derive(Clone, Default)]
struct Models {
    places: Arc<[PlaceModel; 3]>,
    give_backs: Arc<GiveBacks>,
    /// The first place needs no waiting.
    first_at_hand: bool,
}

impl Places for Models {
    type Place = usize;
    type Tag = ();

    async fn decide(
        &self,
        place: usize,
        part: &Part<()>,
        end: Instant,
        settled: &mut Vec<Settled>,
    ) -> Result<(), StoreError> {
        let place = &self.places[place];
        let operations = part.charges.iter().map(|charge| charge.operation).collect();
        place.asked.lock().unwrap().push(operations);
        if part.charges.iter().all(|charge| charge.taken_by.is_none()) {
            place.ends.lock().unwrap().push(end);
        }
        let (before, after) = place.delays.lock().unwrap().pop().unwrap_or_default();
        let mood = place.moods.lock().unwrap().pop().unwrap_or(Mood::Well);
        if before == HELD {
            place.gate.notified().await;
        } else {
            give_way(before).await;
        }
        if mood == Mood::Unreachable {
            return Err(StoreError::Unreachable);
        }
        let (charges, mut answers) = (part.charges(), Answers::new());
        place.store.decide(&[Request { now: part.now, charges: &charges }], &mut answers).await;
        give_way(after).await;
        if mood == Mood::Mute {
            return Err(StoreError::NoAnswer);
        }
        let decisions = answers.iter().next().expect("an answer")?;
        let settle = |&decision| Settled { decision, at: part.now, source: Source::Store };
        settled.extend(decisions.iter().map(settle));
        Ok(())
    }

    fn is_at_hand(&self, place: usize) -> bool {
        self.first_at_hand && place == 0
    }

    fn give_backs(&self) -> &Arc<GiveBacks> {
        &self.give_backs
    }
}

async fn give_way(times: u32) {
    for _ in 0..times {
        tokio::task::yield_now().await;
    }
}

impl Models {
    /// Decides; the place of a charge is its key's lowest digit.
    async fn ask(&self, charges: &[Charge<'_>]) -> Result<Vec<Settled>, StoreError> {
        self.ask_at(START, charges).await
    }

    async fn ask_at(
        &self,
        now: Timestamp,
        charges: &[Charge<'_>],
    ) -> Result<Vec<Settled>, StoreError> {
        let request = Request { now, charges };
        let split = Split::new(self, &request, |index| (place_of(charges[index].key), ()));
        let mut settled = Vec::new();
        split.settle(Instant::now() + FAR, &mut settled).await?;
        Ok(settled)
    }

    async fn remaining(&self, limit: &Limit, key: Key) -> u64 {
        let operation = Operation::Peek { cost: 0 };
        let charges = [Charge { limit, key, operation }];
        let mut answers = Answers::new();
        let store = &self.places[place_of(key)].store;
        store.decide(&[Request { now: START, charges: &charges }], &mut answers).await;
        answers.iter().next().unwrap().unwrap()[0].remaining
    }

    /// Waits until nothing goes on by itself any more.
    async fn quiet(&self) {
        let quiet = async {
            // ORDERING: a test that waits for a number.
            while self.give_backs.detached.load(Ordering::Relaxed) > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(FAR, quiet).await.expect("what goes on by itself ends");
    }

    fn mood(&self, place: usize, mood: Mood) {
        self.places[place].moods.lock().unwrap().push(mood);
    }

    fn asked(&self, place: usize) -> Vec<Vec<Operation>> {
        std::mem::take(&mut self.places[place].asked.lock().unwrap())
    }
}

fn place_of(key: Key) -> usize {
    (key.as_hash() % 3) as usize
}

fn key(number: u128) -> Key {
    Key::from_hash(number)
}

fn bucket(burst: u64) -> Limit {
    TokenBucket::new(Rate::new(1, Span::HOUR).unwrap(), burst).unwrap().into()
}

fn take(limit: &Limit, number: u128, cost: u64) -> Charge<'_> {
    Charge { limit, key: key(number), operation: Operation::Take { cost } }
}

fn run<F: Future>(future: F) -> F::Output {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().build().expect("a runtime").block_on(future)
}

#[test]
fn a_request_that_fits_everywhere_is_charged_everywhere() {
    run(async {
        let (models, limit) = (Models::default(), bucket(5));
        let charges =
            [take(&limit, 0, 1), take(&limit, 1, 2), take(&limit, 3, 3), take(&limit, 2, 4)];
        let settled = models.ask(&charges).await.unwrap();
        let remaining: Vec<_> = settled.iter().map(|one| one.decision.remaining).collect();
        assert_eq!(remaining, [4, 3, 2, 1], "in the order of the request");
        assert_eq!(models.asked(0).len(), 1, "what is in one place is asked at once");
    });
}

#[test]
fn what_was_taken_is_given_back_where_one_place_refuses() {
    run(async {
        let (models, limit, narrow) = (Models::default(), bucket(5), bucket(1));
        models.ask(&[take(&narrow, 1, 1)]).await.unwrap();
        let settled = models.ask(&[take(&limit, 0, 2), take(&narrow, 1, 1)]).await.unwrap();
        assert!(settled[0].decision.is_allowed());
        assert_eq!(settled[0].decision.remaining, 5, "as if nothing had been taken");
        assert_eq!(settled[0].decision.reset_after, Span::ZERO);
        assert_eq!(settled[1].decision.retry_after(), Some(Span::HOUR));
        assert_eq!(models.remaining(&limit, key(0)).await, 5);
        assert_eq!(models.give_backs.failed(), 0);
    });
}

#[test]
fn two_that_refuse_each_other_do_not_both_go_away_with_nothing() {
    run(async {
        let (models, limit) = (Models::default(), bucket(1));
        // Each is first in one of the places.
        models.places[0].delays.lock().unwrap().extend([(3, 0), (0, 0)]);
        models.places[1].delays.lock().unwrap().extend([(0, 0), (3, 0)]);
        let charges = [take(&limit, 0, 1), take(&limit, 1, 1)];
        let (one, other) = tokio::join!(models.ask(&charges), models.ask(&charges));
        let admitted = [one.unwrap(), other.unwrap()]
            .iter()
            .filter(|settled| settled.iter().all(|one| one.decision.is_allowed()))
            .count();
        assert_eq!(admitted, 1);
        for number in [0, 1] {
            assert_eq!(models.remaining(&limit, key(number)).await, 0);
        }
    });
}

#[test]
fn all_that_a_request_asks_for_has_one_end_however_often_it_asks() {
    run(async {
        let (models, limit) = (Models::default(), bucket(1));
        models.places[0].delays.lock().unwrap().extend([(3, 0), (0, 0)]);
        models.places[1].delays.lock().unwrap().extend([(0, 0), (3, 0)]);
        let charges = [take(&limit, 0, 1), take(&limit, 1, 1)];
        let (request, end) = (Request { now: START, charges: &charges }, Instant::now() + FAR);
        let ask = || async {
            let split = Split::new(&models, &request, |index| (place_of(charges[index].key), ()));
            split.settle(end, &mut Vec::new()).await.unwrap();
        };
        tokio::join!(ask(), ask());
        let of_place = |place: &PlaceModel| place.ends.lock().unwrap().clone();
        let ends: Vec<Instant> = models.places.iter().flat_map(of_place).collect();
        assert!(ends.len() > 4, "they were looked at and tried again: {}", ends.len());
        assert!(ends.iter().all(|one| *one == end));
    });
}

#[test]
fn what_is_tried_again_charges_nothing_else_twice() {
    run(async {
        let (models, limit, wide) = (Models::default(), bucket(1), bucket(9));
        models.places[0].delays.lock().unwrap().extend([(3, 0), (0, 0)]);
        models.places[1].delays.lock().unwrap().extend([(0, 0), (3, 0)]);
        let debit = Charge { operation: Operation::Debit { cost: 2 }, ..take(&wide, 3, 1) };
        let charges = [take(&limit, 0, 1), take(&limit, 1, 1), debit];
        let (one, other) = tokio::join!(models.ask(&charges), models.ask(&charges));
        assert_eq!((one.unwrap().len(), other.unwrap().len()), (3, 3));
        assert_eq!(models.remaining(&wide, key(3)).await, 5, "once for each");
    });
}

#[test]
fn a_lease_is_released_where_another_place_refuses() {
    run(async {
        let models = Models::default();
        let (places, narrow) = (Limit::from(Concurrency::new(3, Span::HOUR).unwrap()), bucket(1));
        models.ask(&[take(&narrow, 1, 1)]).await.unwrap();
        let settled = models.ask(&[take(&places, 0, 2), take(&narrow, 1, 1)]).await.unwrap();
        assert_eq!((settled[0].decision.lease, settled[0].decision.remaining), (None, 3));
        assert_eq!(models.remaining(&places, key(0)).await, 3);
        let asked = models.asked(0);
        assert!(matches!(asked[1][..], [Operation::Release { .. }]), "{asked:?}");
    });
}

#[test]
fn other_operations_go_through_whatever_becomes_of_the_takes() {
    run(async {
        let (models, limit, narrow) = (Models::default(), bucket(5), bucket(1));
        models.ask(&[take(&narrow, 1, 1)]).await.unwrap();
        let operation = Operation::Debit { cost: 2 };
        let debit = Charge { limit: &limit, key: key(0), operation };
        let settled = models.ask(&[debit, take(&limit, 3, 1), take(&narrow, 1, 1)]).await.unwrap();
        assert_eq!(settled[0].decision.remaining, 3);
        assert_eq!(models.remaining(&limit, key(0)).await, 3);
        assert_eq!(models.remaining(&limit, key(3)).await, 5);
    });
}

#[test]
fn a_cost_that_never_fits_takes_nothing_anywhere() {
    run(async {
        let (models, limit) = (Models::default(), bucket(5));
        let settled = models.ask(&[take(&limit, 0, 1), take(&limit, 1, 6)]).await.unwrap();
        assert!(settled[0].decision.is_allowed());
        assert_eq!(settled[1].decision.verdict, Verdict::NeverFits);
        assert_eq!(models.asked(0), [[Operation::Peek { cost: 1 }]]);
    });
}

#[test]
fn a_refusal_that_is_at_hand_has_the_others_only_look() {
    run(async {
        let (limit, narrow) = (bucket(5), bucket(1));
        let models = Models { first_at_hand: true, ..Models::default() };
        models.ask(&[take(&narrow, 0, 1)]).await.unwrap();
        let settled = models.ask(&[take(&limit, 1, 2), take(&narrow, 0, 1)]).await.unwrap();
        assert!(settled[0].decision.is_allowed() && !settled[1].decision.is_allowed());
        assert_eq!(models.asked(1), [[Operation::Peek { cost: 2 }]]);
        // And where it is not the one at hand that refuses, it gets back what it gave.
        let settled = models.ask(&[take(&limit, 3, 2), take(&limit, 1, 5)]).await.unwrap();
        assert!(settled.iter().all(|one| one.decision.is_allowed()));
        let settled = models.ask(&[take(&limit, 3, 2), take(&limit, 1, 5)]).await.unwrap();
        assert!(settled[0].decision.is_allowed() && !settled[1].decision.is_allowed());
        assert_eq!(models.remaining(&limit, key(3)).await, 3);
    });
}

#[test]
fn a_place_that_cannot_decide_is_an_error_and_the_others_get_back_what_was_taken() {
    for (mood, error) in
        [(Mood::Unreachable, StoreError::Unreachable), (Mood::Mute, StoreError::NoAnswer)]
    {
        run(async {
            let (models, limit) = (Models::default(), bucket(5));
            models.mood(1, mood);
            let answer = models.ask(&[take(&limit, 0, 2), take(&limit, 1, 1)]).await;
            assert_eq!(answer, Err(error));
            assert_eq!(models.remaining(&limit, key(0)).await, 5);
            assert_eq!(models.give_backs.failed(), 0);
        });
    }
}

#[test]
fn an_error_says_so_where_something_was_changed_for_good() {
    run(async {
        let (models, limit) = (Models::default(), bucket(5));
        models.mood(1, Mood::Unreachable);
        let operation = Operation::Debit { cost: 2 };
        let debit = Charge { limit: &limit, key: key(0), operation };
        let answer = models.ask(&[debit, take(&limit, 1, 1)]).await;
        assert_eq!(answer, Err(StoreError::NoAnswer), "the debit went through");
        // The same where something could not be given back.
        models.mood(0, Mood::Unreachable);
        models.mood(0, Mood::Well);
        models.mood(1, Mood::Unreachable);
        let answer = models.ask(&[take(&limit, 3, 2), take(&limit, 1, 1)]).await;
        assert_eq!(answer, Err(StoreError::NoAnswer));
        assert_eq!(models.give_backs.failed(), 1);
        assert_eq!(models.remaining(&limit, key(3)).await, 3, "lost, and counted");
    });
}

#[test]
fn what_is_not_back_by_the_deadline_comes_back_by_itself() {
    run(async {
        let (models, limit, narrow) = (Models::default(), bucket(5), bucket(1));
        models.ask(&[take(&narrow, 1, 1)]).await.unwrap();
        models.places[0].delays.lock().unwrap().extend([(HELD, 1), (0, 0)]);
        let charges = [take(&limit, 0, 2), take(&narrow, 1, 1)];
        let request = Request { now: START, charges: &charges };
        let split = Split::new(&models, &request, |index| (place_of(charges[index].key), ()));
        let mut settled = Vec::new();
        split.settle(Instant::now(), &mut settled).await.unwrap();
        assert_eq!(settled[0].decision.remaining, 5, "as far as can be told");
        assert_eq!(models.remaining(&limit, key(0)).await, 3, "not yet");
        models.places[0].gate.notify_one();
        models.quiet().await;
        assert_eq!(models.remaining(&limit, key(0)).await, 5);
        assert_eq!(models.give_backs.failed(), 0);
    });
}

#[test]
fn whoever_leaves_in_mid_call_leaves_nothing_taken() {
    // Before the first poll, while both are in flight, with one answered, and while giving back.
    for (polls, refused) in [(0, false), (1, false), (3, false), (5, false), (6, true), (9, true)] {
        run(async {
            let (models, limit, narrow) = (Models::default(), bucket(5), bucket(1));
            if refused {
                models.ask(&[take(&narrow, 1, 1)]).await.unwrap();
            }
            models.places[0].delays.lock().unwrap().extend([(2, 2), (1, 1)]);
            models.places[1].delays.lock().unwrap().push((5, 0));
            {
                let charges = [take(&limit, 0, 2), take(&narrow, 1, 1)];
                let mut asking = pin!(models.ask(&charges));
                for _ in 0..polls {
                    let context = &mut Context::from_waker(Waker::noop());
                    assert!(asking.as_mut().poll(context).is_pending(), "{polls}");
                }
            }
            models.quiet().await;
            assert_eq!(models.remaining(&limit, key(0)).await, 5, "{polls}");
            assert_eq!(models.remaining(&narrow, key(1)).await, u64::from(!refused), "{polls}");
            assert_eq!(models.give_backs.failed(), 0);
        });
    }
}

#[test]
fn without_a_runtime_what_cannot_be_given_back_is_counted() {
    let (models, limit) = (Models::default(), bucket(5));
    models.places[1].delays.lock().unwrap().push((HELD, 0));
    let charges = [take(&limit, 0, 2), take(&limit, 1, 1)];
    let mut asking = Box::pin(models.ask(&charges));
    run(async {
        assert!(asking.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    });
    drop(asking);
    assert_eq!(models.give_backs.failed(), 2, "one was taken, and one may yet be");
}

/// One request of the property: which keys, at what cost, and whether the caller leaves.
#[derive(Clone, Debug)]
struct Call {
    charges: Vec<(u128, u64)>,
    leaves_after: Option<u32>,
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let charge = (0_u128..6, 0_u64..4);
    let charges = prop::collection::vec(charge, 1..5).prop_map(|mut charges| {
        charges.sort_unstable();
        charges.dedup_by_key(|(key, _)| *key);
        charges
    });
    let leaves_after = prop::option::weighted(0.3, 0_u32..12);
    let call = (charges, leaves_after);
    let call = call.prop_map(|(charges, leaves_after)| Call { charges, leaves_after });
    prop::collection::vec(call, 1..40)
}

fn moods() -> impl Strategy<Value = Vec<Mood>> {
    let mood =
        prop_oneof![6 => Just(Mood::Well), 1 => Just(Mood::Unreachable), 1 => Just(Mood::Mute)];
    prop::collection::vec(mood, 0..40)
}

const BURST: u64 = 9;

/// Runs the calls, all at once, and gives what was admitted per key.
async fn race(models: &Models, calls: Vec<Call>) -> [u64; 6] {
    let running: Vec<_> = calls
        .into_iter()
        .map(|call| {
            let models = models.clone();
            tokio::spawn(async move {
                let limit = bucket(BURST);
                let charges: Vec<_> =
                    call.charges.iter().map(|&(key, cost)| take(&limit, key, cost)).collect();
                let mut asking = pin!(models.ask(&charges));
                let mut polls = 0;
                let answer = std::future::poll_fn(|context| {
                    if call.leaves_after == Some(polls) {
                        return std::task::Poll::Ready(None);
                    }
                    polls += 1;
                    asking.as_mut().poll(context).map(Some)
                });
                let answer = answer.await.and_then(Result::ok);
                let admitted = answer
                    .is_some_and(|settled| settled.iter().all(|one| one.decision.is_allowed()));
                if admitted { call.charges } else { Vec::new() }
            })
        })
        .collect();
    let mut admitted = [0; 6];
    for call in running {
        for (key, cost) in call.await.expect("no call panics") {
            admitted[key as usize] += cost;
        }
    }
    models.quiet().await;
    admitted
}

proptest! {
    #[test]
    fn never_over_and_nothing_is_lost_that_is_not_counted(
        calls in calls(),
        delays in prop::collection::vec((0_u32..6, 0_u32..6), 0..120),
        moods in prop::array::uniform3(moods()),
    ) {
        let healthy = moods.iter().flatten().all(|mood| *mood == Mood::Well);
        let models = Models::default();
        for (place, moods) in models.places.iter().zip(moods) {
            *place.moods.lock().unwrap() = moods;
            *place.delays.lock().unwrap() = delays.clone();
        }
        run(async {
            let admitted = race(&models, calls).await;
            let limit = bucket(BURST);
            for (number, admitted) in admitted.into_iter().enumerate() {
                let spent = BURST - models.remaining(&limit, key(number as u128)).await;
                prop_assert!(admitted <= spent, "over: {admitted} of {spent}");
                if healthy {
                    prop_assert_eq!(admitted, spent, "something was lost");
                }
            }
            prop_assert!(!healthy || models.give_backs.failed() == 0);
            Ok(())
        })?;
    }

    #[test]
    fn nothing_is_lost_while_all_places_are_well(
        calls in calls(),
        delays in prop::collection::vec((0_u32..6, 0_u32..6), 0..120),
    ) {
        let models = Models::default();
        for place in models.places.iter() {
            *place.delays.lock().unwrap() = delays.clone();
        }
        run(async {
            let admitted = race(&models, calls).await;
            for (number, admitted) in admitted.into_iter().enumerate() {
                let remaining = models.remaining(&bucket(BURST), key(number as u128)).await;
                prop_assert_eq!(admitted, BURST - remaining);
            }
            Ok(())
        })?;
    }
}

/// Models behind a split, as one store.
mod conforming {
    use super::*;

    impl Store for Models {
        async fn decide(&self, batch: &[Request<'_>], answers: &mut Answers) {
            answers.clear();
            for request in batch {
                let answer = match request.check() {
                    Ok(()) => self.ask_at(request.now, request.charges).await,
                    Err(error) => Err(error),
                };
                answers.push_with(|decisions| {
                    let settled = answer?;
                    decisions
                        .extend::<Vec<Decision>>(settled.iter().map(|one| one.decision).collect());
                    Ok(())
                });
            }
        }

        async fn forget(&self, keys: &[Key]) -> Result<(), StoreError> {
            for key in keys {
                self.places[place_of(*key)].store.forget(&[*key]).await?;
            }
            Ok(())
        }
    }

    tidegate_store::conformance_tests!(Models::default(), run);
}
