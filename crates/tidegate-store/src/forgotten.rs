//! When keys were full whose states are gone, so that a call whose clock reading is a little older does not
//! start its key anew before that and count the refill in between twice.
//!
//! It is kept per stripe and per shard, not per key: a late call of any of their keys starts no earlier. It
//! knows nothing of entries and records, and its times are microseconds of whatever origin.

use tidegate_core::SKEW_MAX;

use crate::sync::{AtomicU64, Ordering};

/// Moments at which keys were full.
///
/// While no clock is set back, the furthest one is all that a late call needs, and no call can hide it,
/// however late. Once the clock was set back, the furthest lies ahead and says nothing. Then the latest of
/// each of the last few seconds counts: it gives way to none but a moment some seconds away, which only
/// another step of the clock explains, or a call that is later than any promise is made for.
#[derive(Debug, Default)]
pub(crate) struct Forgotten {
    /// Never goes down.
    furthest: AtomicU64,
    /// The latest of a second, in the place of that second's number.
    recent: [AtomicU64; Self::RECENT],
}

impl Forgotten {
    /// A call is up to one second late and notes a moment up to one second before, and these lie in three
    /// seconds of the clock. A power of two, so that the place of a second is no division.
    const RECENT: usize = 4;
    const SECOND: u64 = SKEW_MAX.as_micros();

    /// Remembers that a key was full at `at`, before its state goes at `now`.
    pub(crate) fn note(&self, at: u64, now: u64) {
        // ORDERING: all of these are published by what removes the state, which whoever misses it has seen.
        // A number that only grows and has been seen to be larger is so still.
        if self.furthest.load(Ordering::Relaxed) < at {
            self.furthest.fetch_max(at, Ordering::Relaxed);
        }
        // Nobody who is less than SKEW_MAX late comes before it.
        if at.saturating_add(Self::SECOND) < now {
            return;
        }
        let _ =
            self.recent[place_of(at)].fetch_update(Ordering::Relaxed, Ordering::Relaxed, |known| {
                Some(if second_of(known) == second_of(at) { known.max(at) } else { at })
            });
    }

    /// The instant at which a key without a state starts anew: `now`, or a little later where its state may
    /// have been removed by a thread whose clock reading was later. A difference above [`SKEW_MAX`] is a
    /// clock that was set back, and says nothing. A smaller one may be that as well, so this is no time to
    /// judge other states by.
    pub(crate) fn starts_at(&self, now: u64) -> u64 {
        let latest = now.saturating_add(Self::SECOND);
        // ORDERING: written before the state was removed, which the caller has seen.
        let furthest = self.furthest.load(Ordering::Relaxed);
        let furthest = if furthest <= latest { furthest } else { now };
        let recent = self.recent.iter().map(|moment| moment.load(Ordering::Relaxed));
        // One that lies too far ahead may hide another of the same second that does not.
        let explained = recent.filter(|&moment| second_of(moment) <= second_of(latest));
        explained.fold(now.max(furthest), |starts_at, moment| starts_at.max(moment.min(latest)))
    }
}

fn second_of(at: u64) -> u64 {
    at / Forgotten::SECOND
}

fn place_of(at: u64) -> usize {
    second_of(at) as usize % Forgotten::RECENT
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    const SECOND: u64 = Forgotten::SECOND;
    const HOUR: u64 = 3_600 * SECOND;

    #[test]
    fn a_late_call_starts_at_the_latest_moment_and_a_call_in_time_at_its_own() {
        let forgotten = Forgotten::default();
        forgotten.note(HOUR, HOUR + 5);
        forgotten.note(HOUR - 7, HOUR);
        for (now, starts_at) in [(HOUR + 1, HOUR + 1), (HOUR - 1, HOUR), (HOUR - SECOND, HOUR)] {
            assert_eq!(forgotten.starts_at(now), starts_at);
        }
        let too_late = HOUR - 3 * SECOND;
        assert_eq!(forgotten.starts_at(too_late), too_late);
    }

    #[test]
    fn no_late_call_hides_a_moment_however_late_while_no_clock_is_set_back() {
        let forgotten = Forgotten::default();
        forgotten.note(HOUR, HOUR);
        for late in (1..10 * SECOND).step_by(99_991) {
            forgotten.note(HOUR - late, HOUR - late);
            assert_eq!(forgotten.starts_at(HOUR - SECOND / 2), HOUR);
        }
    }

    /// Whatever was noted before, in whichever second, of a clock that was ahead: what is noted now, in any
    /// order and up to a second late, is there for those who are up to a second late.
    #[test]
    fn moments_of_a_clock_that_was_ahead_hide_none() {
        for ahead in (0..6 * SECOND).step_by(70_001).chain([HOUR]) {
            let forgotten = Forgotten::default();
            for before in [0, SECOND / 3, SECOND, 2 * SECOND] {
                forgotten.note(2 * HOUR + ahead - before, 2 * HOUR + ahead);
            }
            for late in [0, 1, SECOND / 2, SECOND] {
                let now = 2 * HOUR + late;
                forgotten.note(now, now);
                forgotten.note(now - late, now - late);
                forgotten.note((now - late).saturating_sub(SECOND), now - late);
                let starts_at = forgotten.starts_at(now - SECOND);
                assert_eq!(starts_at, now, "{ahead} {late}");
            }
        }
    }
}
