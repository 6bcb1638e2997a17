//! The only seam to time: what a [`Clock`] is, the one that programs run on, and the one for tests.
//!
//! [`SystemClock`] is the default. [`ManualClock`] stands still until it is moved, so that a test
//! of a limit takes no time and gives the same answer on every machine. Nothing else in the library
//! reads a clock, and the system's clocks are read in one file below this one.

mod anchor;
mod engine;
mod latch;
mod manual;
mod os;
#[cfg(target_arch = "x86_64")]
mod tsc;

use std::sync::Arc;

use tidegate_core::Timestamp;

use self::engine::Engine;
pub use self::manual::ManualClock;
use self::os::OsCounters;

/// Something that knows what time it is.
///
/// A clock should not run back, but nothing breaks if one does: the arithmetic gives no extra quota
/// to a time that lies behind its state, and locks nobody out.
pub trait Clock: Send + Sync {
    /// The time now. Where limits are aligned to the wall clock or the calendar, it counts from the
    /// Unix epoch.
    fn now(&self) -> Timestamp;

    /// The time now, for a decision. The default is [`now`](Self::now).
    ///
    /// It may lie a little ahead of what somebody is told a moment later, so a clock need not have its readers
    /// wait for each other. Decisions do not mind: between reading the time and its turn at the
    /// state any call may be overtaken, so limits allow for calls that come late anyway.
    #[inline]
    fn now_unordered(&self) -> Timestamp {
        self.now()
    }
}

impl<C: Clock + ?Sized> Clock for &C {
    fn now(&self) -> Timestamp {
        (**self).now()
    }

    fn now_unordered(&self) -> Timestamp {
        (**self).now_unordered()
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }

    fn now_unordered(&self) -> Timestamp {
        (**self).now_unordered()
    }
}

/// The system's wall clock, in microseconds since the Unix epoch, made fast and kept from running
/// back.
///
/// - **Never back.** A reading is never less than one that happened before it, in this thread or in
///   any other, whatever the wall clock does. This is said of [`now`](Clock::now): what
///   [`now_unordered`](Clock::now_unordered) has told, later readings of both kinds may be behind, by less than 64
///   microseconds; where the processors' counters agree, by the little that they are read out of order.
/// - **True.** While the wall clock is not being set, the two differ by a few microseconds.
/// - **Set forward** (also by waking from suspend): followed within a fifth of a second.
/// - **Set back**: time goes on at the pace of the monotonic clock, 0.1 % slower until the two
///   agree again. Standing still would lock everybody out, and going back would open windows anew.
///
/// On an x86-64 processor whose time stamp counter keeps one pace, a reading costs little more than
/// that one instruction, and the counter is measured against the system's clocks ten times a
/// second by whoever reads the time then: there is no thread behind it and no lock in front. Where
/// there is no such counter, or it was caught disagreeing with the system's clock, the system's
/// clock is read each time, with the same promises.
///
/// All values of this type are the same clock, so times from several limiters of a process compare.
/// It costs nothing to make or to copy, and it keeps its promises in both processes after a `fork`.
///
/// ```
/// use tidegate::clock::{Clock, SystemClock};
///
/// let earlier = SystemClock.now();
/// let later = SystemClock.now();
/// assert!(earlier <= later);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

/// One engine for the process, and not one for each clock: its high-water mark is what makes time
/// comparable between threads and limiters, and its cache lines stay warm.
static ENGINE: Engine<OsCounters> = Engine::new(OsCounters::new());

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(ENGINE.now_micros())
    }

    #[inline]
    fn now_unordered(&self) -> Timestamp {
        Timestamp::from_micros(ENGINE.now_micros_unordered())
    }
}
