//! How the watching thread is woken, and how it waits for quiet. Three flags behind a lock: however many
//! events there are, nothing queues up.
//!
//! No clock is read. Time passes in rounds of a fixed length, and a round without an event is quiet.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How many rounds waiting for quiet takes at most, whatever the options say.
const ROUNDS_MAX: u128 = 1_000;

/// What woke the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ring {
    /// To end.
    Stop,
    /// To look now, and answer.
    Poke,
    /// Something may have changed.
    Event,
    /// Nothing, for as long as was said.
    Silence,
}

#[derive(Debug, Default)]
struct Flags {
    stop: bool,
    poke: bool,
    event: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Bell {
    flags: Mutex<Flags>,
    rung: Condvar,
}

impl Bell {
    pub(crate) fn event(&self) {
        self.flags().event = true;
        self.rung.notify_all();
    }

    pub(crate) fn poke(&self) {
        self.flags().poke = true;
        self.rung.notify_all();
    }

    pub(crate) fn stop(&self) {
        self.flags().stop = true;
        self.rung.notify_all();
    }

    /// Waits for anything to happen.
    pub(crate) fn wait(&self, timeout: Duration) -> Ring {
        self.until(timeout, |flags| flags.event)
    }

    /// Waits until a whole round of `quiet` has passed without an event, though no longer than
    /// `quiet_max`. Never gives [`Ring::Event`].
    pub(crate) fn settle(&self, quiet: Duration, quiet_max: Duration) -> Ring {
        rounds(rounds_in(quiet, quiet_max), || {
            // An event within the round does not end it, and is found when it is over.
            match self.until(quiet, |_| false) {
                Ring::Silence if std::mem::take(&mut self.flags().event) => Ring::Event,
                ring => ring,
            }
        })
    }

    /// Waits for a stop, a poke, or what `also` says. A flag that is answered is taken down; a poke takes the
    /// events down with it, since looking now covers them.
    fn until(&self, timeout: Duration, also: impl Fn(&Flags) -> bool) -> Ring {
        let asleep = |flags: &mut Flags| !flags.stop && !flags.poke && !also(flags);
        let (mut flags, _) = self
            .rung
            .wait_timeout_while(self.flags(), timeout, asleep)
            .unwrap_or_else(PoisonError::into_inner);
        if flags.stop {
            Ring::Stop
        } else if flags.poke {
            *flags = Flags::default();
            Ring::Poke
        } else if also(&flags) {
            flags.event = false;
            Ring::Event
        } else {
            Ring::Silence
        }
    }

    /// The flags are whole at any moment, so a thread that panicked has left nothing half-done.
    fn flags(&self) -> MutexGuard<'_, Flags> {
        self.flags.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rounds until one is quiet or was cut short, or until there were enough of them.
fn rounds(rounds_max: u128, mut round: impl FnMut() -> Ring) -> Ring {
    for _ in 0..rounds_max {
        match round() {
            Ring::Event => {}
            ring => return ring,
        }
    }
    Ring::Silence
}

fn rounds_in(quiet: Duration, quiet_max: Duration) -> u128 {
    let rounds = quiet_max.as_nanos().checked_div(quiet.as_nanos()).unwrap_or(1);
    rounds.clamp(1, ROUNDS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many rounds it took, and how it ended.
    fn played(rounds_max: u128, script: &[Ring]) -> (usize, Ring) {
        let mut taken = 0;
        let ring = rounds(rounds_max, || {
            taken += 1;
            script[taken - 1]
        });
        (taken, ring)
    }

    #[test]
    fn one_quiet_round_is_enough() {
        assert_eq!(played(10, &[Ring::Silence]), (1, Ring::Silence));
        let burst = [Ring::Event, Ring::Event, Ring::Silence];
        assert_eq!(played(10, &burst), (3, Ring::Silence));
    }

    #[test]
    fn events_without_end_are_not_waited_out() {
        assert_eq!(played(10, &[Ring::Event; 20]), (10, Ring::Silence));
    }

    #[test]
    fn a_poke_or_a_stop_cuts_the_waiting_short() {
        assert_eq!(played(10, &[Ring::Event, Ring::Poke]), (2, Ring::Poke));
        assert_eq!(played(10, &[Ring::Stop]), (1, Ring::Stop));
    }

    #[test]
    fn the_longest_wait_is_a_whole_number_of_rounds_and_at_least_one() {
        let ms = Duration::from_millis;
        assert_eq!(rounds_in(ms(100), ms(1000)), 10);
        assert_eq!(rounds_in(ms(300), ms(1000)), 3);
        assert_eq!(rounds_in(ms(100), ms(0)), 1);
        assert_eq!(rounds_in(ms(0), ms(1000)), 1);
        assert_eq!(rounds_in(Duration::from_nanos(1), Duration::MAX), ROUNDS_MAX);
    }

    #[test]
    fn what_was_rung_before_the_wait_is_not_lost_and_is_answered_once() {
        let bell = Bell::default();
        bell.event();
        bell.event();
        assert_eq!(bell.wait(Duration::MAX), Ring::Event);
        assert_eq!(bell.wait(Duration::ZERO), Ring::Silence);
        bell.event();
        bell.poke();
        assert_eq!(bell.wait(Duration::MAX), Ring::Poke);
        assert_eq!(bell.wait(Duration::ZERO), Ring::Silence);
        bell.poke();
        bell.stop();
        assert_eq!(bell.wait(Duration::MAX), Ring::Stop);
        assert_eq!(bell.settle(Duration::MAX, Duration::MAX), Ring::Stop);
    }
}
