//! The primitives that threads meet at. Under `--cfg shuttle` they are shuttle's, so that the tests
//! in `tests/shuttle.rs` run the real code of this crate under schedules of their choice.

#[cfg(shuttle)]
pub(crate) use shuttle::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering, fence},
    thread::yield_now,
};
#[cfg(not(shuttle))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering, fence},
    thread::yield_now,
};

/// A mutex without poisoning: what it guards is never left half done, since nothing in between can
/// panic.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(Inner<T>);

#[cfg(not(shuttle))]
type Inner<T> = parking_lot::Mutex<T>;
#[cfg(shuttle)]
type Inner<T> = shuttle::sync::Mutex<T>;

#[cfg(not(shuttle))]
pub(crate) type MutexGuard<'a, T> = parking_lot::MutexGuard<'a, T>;
#[cfg(shuttle)]
pub(crate) type MutexGuard<'a, T> = shuttle::sync::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Inner::new(value))
    }

    #[cfg(not(shuttle))]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock()
    }

    #[cfg(shuttle)]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("nothing panics while it holds the lock")
    }
}

/// Waits for another thread to finish a few instructions: spins a bounded number of times, then
/// gives the processor away each time, in case that thread is not running at all.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    spins: u32,
}

impl Backoff {
    /// Long enough for the longest critical section, short enough not to waste a time slice.
    const SPINS_MAX: u32 = 64;

    pub(crate) fn wait(&mut self) {
        if cfg!(not(shuttle)) && self.spins < Self::SPINS_MAX {
            self.spins += 1;
            std::hint::spin_loop();
        } else {
            yield_now();
        }
    }
}
