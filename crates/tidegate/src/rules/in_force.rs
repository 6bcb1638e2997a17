//! The rules in force, and how decisions keep the ones that made them.
//!
//! A decision may outlive its rules, on any thread, so it holds a reference that is counted. To count it for each call would
//! be two locked operations, some 15 nanoseconds. So each thread has references of its own: a
//! decision takes one along, and where it is dropped it is left for the next. Nothing but the thread's own memory is
//! written for that.

use std::cell::Cell;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, Guard};
use tidegate_rules::compile::CompiledRules;

/// Rules that can be exchanged.
#[derive(Debug)]
pub(super) struct InForce {
    /// Which rules these are, among all of this process. Its lowest bits stay the same for a limiter. [`EXCHANGING`] while
    /// they are exchanged.
    mark: AtomicU64,
    rules: ArcSwap<CompiledRules>,
    /// Those before, which are freed by the next exchange, unless a thread has not decided since: threads refer to them
    /// until their next decision, and the last of them would have to free them in the middle of a call.
    before: Mutex<Option<Arc<CompiledRules>>>,
}

/// The mark of no rules. No thread keeps any for it, so they are asked for.
const EXCHANGING: u64 = 0;
/// What rules have for a mark that are not to be left for another decision. No limiter ever has it.
const NOT_KEPT: u64 = u64::MAX;

impl InForce {
    pub(super) fn new(rules: CompiledRules) -> Self {
        let number = next_number();
        let mark = number << PLACES_BITS | number & PLACES_MASK;
        Self {
            mark: AtomicU64::new(mark),
            rules: ArcSwap::from_pointee(rules),
            before: Mutex::default(),
        }
    }

    /// The rules, to look at for a moment.
    pub(super) fn load(&self) -> Guard<Arc<CompiledRules>> {
        self.rules.load()
    }

    /// The rules, for a decision to keep.
    #[inline]
    pub(super) fn keep(&self) -> Kept {
        // ORDERING: SeqCst, as in `Exchange::put`.
        let mark = self.mark.load(Ordering::SeqCst);
        match KEPT.try_with(|places| place(places, mark).take(mark)) {
            Ok(Some(rules)) => Kept { rules: Some(rules), mark },
            _ => self.keep_anew(mark),
        }
    }

    /// Whether these are the rules in force.
    #[inline]
    pub(super) fn is(&self, kept: &Kept) -> bool {
        // ORDERING: SeqCst, as in `Exchange::put`.
        self.mark.load(Ordering::SeqCst) == kept.mark
    }

    #[cold]
    #[inline(never)]
    fn keep_anew(&self, mark: u64) -> Kept {
        if mark == EXCHANGING {
            return Kept { rules: Some(self.rules.load_full()), mark: NOT_KEPT };
        }
        let known = KEPT.try_with(|places| place(places, mark).again(mark)).ok().flatten();
        if known.is_some() {
            return Kept { rules: known, mark };
        }
        let rules = self.rules.load_full();
        // ORDERING: SeqCst, as in `Exchange::put`: who has found later rules finds that the mark is gone.
        if self.mark.load(Ordering::SeqCst) != mark {
            return Kept { rules: Some(rules), mark: NOT_KEPT };
        }
        let _ = KEPT.try_with(|places| place(places, mark).fill(mark, Arc::clone(&rules)));
        Kept { rules: Some(rules), mark }
    }

    /// Begins an exchange. There is one at a time, or one of two would not know what the other replaced.
    pub(super) fn exchange(&self) -> Exchange<'_> {
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        *before = None;
        Exchange { in_force: self, old: self.rules.load_full(), before }
    }
}

/// An exchange that is under way.
pub(super) struct Exchange<'f> {
    in_force: &'f InForce,
    old: Arc<CompiledRules>,
    before: MutexGuard<'f, Option<Arc<CompiledRules>>>,
}

impl Exchange<'_> {
    /// The rules that are still in force.
    pub(super) fn old(&self) -> &CompiledRules {
        &self.old
    }

    /// Puts others in force.
    pub(super) fn put(mut self, rules: CompiledRules) {
        let InForce { mark, rules: current, .. } = self.in_force;
        let place = mark.load(Ordering::Relaxed) & PLACES_MASK;
        // ORDERING: SeqCst, so that whoever begins a call after somebody has been given the new rules, which `current` does
        // in that order too, finds that the old mark is gone: no thread goes on with what it has kept.
        mark.store(EXCHANGING, Ordering::SeqCst);
        current.store(Arc::new(rules));
        // ORDERING: SeqCst, as above: whoever finds the new mark finds the new rules.
        mark.store(next_number() << PLACES_BITS | place, Ordering::SeqCst);
        *self.before = Some(self.old);
    }
}

/// Numbers that begin with 1 and never come again.
fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // ORDERING: Relaxed, because nothing but the number itself is told.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The rules that a decision was made by.
pub(super) struct Kept {
    /// There until it is dropped.
    rules: Option<Arc<CompiledRules>>,
    mark: u64,
}

impl Kept {
    /// Which rules these are, among all of this process, where that can be told.
    #[inline]
    pub(super) fn mark(&self) -> Option<u64> {
        (self.mark != NOT_KEPT).then_some(self.mark)
    }
}

impl Deref for Kept {
    type Target = CompiledRules;

    #[inline]
    fn deref(&self) -> &CompiledRules {
        match &self.rules {
            Some(rules) => rules,
            None => unreachable!("a decision has rules until it is dropped"),
        }
    }
}

impl Clone for Kept {
    fn clone(&self) -> Self {
        Self { rules: self.rules.clone(), mark: self.mark }
    }
}

impl Drop for Kept {
    #[inline]
    fn drop(&mut self) {
        // A thread that ends has no place any more. What is not left there is dropped as any reference is.
        let _ =
            KEPT.try_with(|places| place(places, self.mark).exchange(self.mark, &mut self.rules));
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Limiters that a thread uses in turn have places of their own, mostly.
const PLACES_BITS: u32 = 2;
const PLACES: usize = 1 << PLACES_BITS;
const PLACES_MASK: u64 = PLACES as u64 - 1;

thread_local! {
    static KEPT: [Place; PLACES] = const { [const { Place::new() }; PLACES] };
}

#[inline]
fn place(places: &[Place; PLACES], mark: u64) -> &Place {
    &places[(mark & PLACES_MASK) as usize]
}

/// References of one thread to the rules of one mark. They stay until the thread decides by other rules or ends.
struct Place {
    mark: Cell<u64>,
    /// For the next decision; none while there is one.
    spare: Cell<Option<Arc<CompiledRules>>>,
    /// For further ones that are there at the same time.
    base: Cell<Option<Arc<CompiledRules>>>,
}

impl Place {
    const fn new() -> Self {
        // That of nobody: what has no mark to be left by is not left here.
        Self { mark: Cell::new(EXCHANGING), spare: Cell::new(None), base: Cell::new(None) }
    }

    #[inline]
    fn take(&self, mark: u64) -> Option<Arc<CompiledRules>> {
        if self.mark.get() == mark { self.spare.take() } else { None }
    }

    /// Leaves a reference for the next decision, and hands back the one that is there already.
    #[inline]
    fn exchange(&self, mark: u64, rules: &mut Option<Arc<CompiledRules>>) {
        if self.mark.get() == mark {
            *rules = self.spare.replace(rules.take());
        }
    }

    fn again(&self, mark: u64) -> Option<Arc<CompiledRules>> {
        if self.mark.get() != mark {
            return None;
        }
        let base = self.base.take();
        self.base.set(base.clone());
        base
    }

    fn fill(&self, mark: u64, rules: Arc<CompiledRules>) {
        self.mark.set(mark);
        self.spare.set(None);
        self.base.set(Some(rules));
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use tidegate_rules::identity::KeyHasher;
    use tidegate_rules::rule::RuleSet;
    use tidegate_rules::{ParseOptions, Source};

    use super::*;

    fn rules(name: &str) -> CompiledRules {
        let text = format!("{{ domain: api, rules: [ {{ name: {name}, limit: 1/s }} ] }}");
        let parsed = RuleSet::parse(&[Source::new("rules", text)], &ParseOptions::default());
        CompiledRules::new(parsed.unwrap().rules, &KeyHasher::new(&[7; 16]))
    }

    fn name(rules: &CompiledRules) -> String {
        rules.set().domains()[0].rules[0].name.clone()
    }

    fn count(in_force: &InForce) -> usize {
        // Without the one that is looked at.
        Arc::strong_count(&in_force.rules.load_full()) - 1
    }

    #[test]
    fn a_decision_keeps_its_rules_and_the_next_one_has_the_new_ones() {
        let in_force = InForce::new(rules("old"));
        let kept = in_force.keep();
        assert!(in_force.is(&kept));
        in_force.exchange().put(rules("new"));
        assert!(!in_force.is(&kept));
        assert_eq!(name(&kept), "old");
        drop(kept);
        assert_eq!(name(&in_force.keep()), "new");
    }

    #[test]
    fn references_that_are_left_are_used_again() {
        let in_force = InForce::new(rules("only"));
        drop(in_force.keep());
        // That of the limiter, and two of this thread.
        assert_eq!(count(&in_force), 3);
        for _ in 0..3 {
            let one = in_force.keep();
            assert_eq!(count(&in_force), 3);
            let (two, three) = (in_force.keep(), one.clone());
            assert_eq!(count(&in_force), 5);
            let place = |kept: &Kept| kept.rules.as_ref().map(Arc::as_ptr);
            assert!(place(&one) == place(&two) && place(&one) == place(&three));
        }
        assert_eq!(count(&in_force), 3);
    }

    #[test]
    fn rules_that_were_asked_for_during_an_exchange_are_left_nowhere() {
        let in_force = InForce::new(rules("only"));
        let mark = in_force.mark.swap(EXCHANGING, Ordering::SeqCst);
        let (asked, left) = thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let kept = in_force.keep();
                let asked = (name(&kept), in_force.is(&kept));
                drop(kept);
                (asked, count(&in_force))
            });
            thread.join().unwrap()
        });
        assert_eq!(asked, ("only".to_owned(), false));
        assert_eq!(left, 1, "that of the limiter");
        in_force.mark.store(mark, Ordering::SeqCst);
        assert!(in_force.is(&in_force.keep()));
    }

    #[test]
    fn rules_that_were_exchanged_while_they_were_asked_for_are_not_taken_for_those_before() {
        let in_force = InForce::new(rules("old"));
        let kept = in_force.keep();
        let mark = kept.mark;
        in_force.exchange().put(rules("new"));
        // Another thread, which has found the mark before that.
        let late = thread::scope(|scope| scope.spawn(|| in_force.keep_anew(mark)).join().unwrap());
        assert_eq!((name(&kept), name(&late)), ("old".to_owned(), "new".to_owned()));
        assert_ne!(late.mark(), kept.mark());
    }

    #[test]
    fn threads_that_end_keep_nothing() {
        let in_force = InForce::new(rules("only"));
        let kept = thread::scope(|scope| scope.spawn(|| in_force.keep()).join().unwrap());
        assert_eq!(count(&in_force), 2);
        // Another thread than the one that it was made by may drop it.
        thread::scope(|scope| scope.spawn(move || drop(kept)).join().unwrap());
        assert_eq!(count(&in_force), 1);
    }

    #[test]
    fn old_rules_are_freed_by_the_next_exchange_once_threads_have_moved_on() {
        let in_force = InForce::new(rules("first"));
        drop(in_force.keep());
        let first = Arc::downgrade(&in_force.rules.load_full());
        in_force.exchange().put(rules("second"));
        drop(in_force.keep());
        assert!(first.upgrade().is_some(), "no call frees them");
        drop(in_force.exchange());
        assert!(first.upgrade().is_none());
        assert_eq!(name(&in_force.keep()), "second", "nothing was put in force");
    }

    #[test]
    fn limiters_that_a_thread_uses_in_turn_are_not_taken_for_each_other() {
        let all: Vec<_> =
            (0..10).map(|number| InForce::new(rules(&format!("r{number}")))).collect();
        for _ in 0..3 {
            let kept: Vec<_> = all.iter().map(InForce::keep).collect();
            for (number, kept) in kept.iter().enumerate() {
                assert_eq!(name(kept), format!("r{number}"));
            }
        }
    }

    #[test]
    fn threads_find_new_rules_as_soon_as_they_are_told_of_them() {
        let in_force = InForce::new(rules("r0"));
        let latest = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    loop {
                        let told = latest.load(Ordering::Acquire);
                        let kept = in_force.keep();
                        let found: u64 = name(&kept)[1..].parse().unwrap();
                        assert!(found >= told, "{found} after {told}");
                        if told == 50 {
                            break;
                        }
                    }
                });
            }
            for number in 1..=50 {
                in_force.exchange().put(rules(&format!("r{number}")));
                latest.store(number, Ordering::Release);
            }
        });
    }
}
