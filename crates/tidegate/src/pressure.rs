//! How busy the protected service is, for elastic limits: what the service itself posts, and what
//! this host says of its processors.

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::{Span, Timestamp};
use tidegate_rules::rule::Pressure;

mod host;

pub use host::HostPressure;

/// The last word of each source, and how long it holds.
///
/// The busier of the sources counts. A source that has been silent for [`PressureSignal::VALID`] is
/// no source any more, and without any source the pressure is full: what is not known to be idle
/// gets no more than its limits say.
#[derive(Debug, Default)]
pub struct PressureSignal {
    posted: Source,
    host: Source,
}

impl PressureSignal {
    /// How long the word of a source holds.
    pub const VALID: Span = Span::from_secs(10);

    /// What the protected service says of itself.
    pub fn post(&self, pressure: Pressure, now: Timestamp) {
        self.posted.set(pressure, now);
    }

    /// What this host says; see [`HostPressure`].
    pub fn set_host(&self, pressure: Pressure, now: Timestamp) {
        self.host.set(pressure, now);
    }

    /// The busier of the sources that hold at `now`.
    pub fn at(&self, now: Timestamp) -> Pressure {
        let sources = [self.posted.at(now), self.host.at(now)];
        sources.into_iter().flatten().max().unwrap_or(Pressure::FULL)
    }
}

/// One source: millionths in the low bits, and above them the second after which it does not hold.
#[derive(Debug, Default)]
struct Source(AtomicU64);

impl Source {
    const MILLIONTHS_BITS: u32 = 20;

    fn set(&self, pressure: Pressure, now: Timestamp) {
        let until_s = now.plus(PressureSignal::VALID).as_micros() / Span::SECOND.as_micros();
        let word = (until_s << Self::MILLIONTHS_BITS) | u64::from(pressure.millionths());
        // ORDERING: the word stands for itself; nothing else is read on the strength of it.
        self.0.store(word, Ordering::Relaxed);
    }

    fn at(&self, now: Timestamp) -> Option<Pressure> {
        let word = self.0.load(Ordering::Relaxed);
        let until_s = word >> Self::MILLIONTHS_BITS;
        let now_s = now.as_micros() / Span::SECOND.as_micros();
        // A clock that was set back would make an old word hold for longer than it should.
        let valid_s = PressureSignal::VALID.as_micros() / Span::SECOND.as_micros();
        if now_s >= until_s || until_s - now_s > valid_s {
            return None;
        }
        let millionths = word & ((1 << Self::MILLIONTHS_BITS) - 1);
        Pressure::from_millionths(u32::try_from(millionths).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressure(millionths: u32) -> Pressure {
        Pressure::from_millionths(millionths).unwrap()
    }

    #[test]
    fn what_is_not_known_is_full_pressure() {
        assert_eq!(PressureSignal::default().at(Timestamp::from_secs(5)), Pressure::FULL);
    }

    #[test]
    fn the_busier_source_counts() {
        let signal = PressureSignal::default();
        let now = Timestamp::from_secs(100);
        signal.post(pressure(200_000), now);
        assert_eq!(signal.at(now), pressure(200_000));
        signal.set_host(pressure(900_000), now);
        assert_eq!(signal.at(now), pressure(900_000));
        signal.set_host(Pressure::NONE, now);
        assert_eq!(signal.at(now), pressure(200_000));
    }

    #[test]
    fn a_silent_source_is_forgotten() {
        let signal = PressureSignal::default();
        signal.post(Pressure::NONE, Timestamp::from_secs(100));
        assert_eq!(signal.at(Timestamp::from_secs(109)), Pressure::NONE);
        assert_eq!(signal.at(Timestamp::from_secs(110)), Pressure::FULL);
        assert_eq!(signal.at(Timestamp::from_secs(20)), Pressure::FULL, "the clock was set back");
    }

    #[test]
    fn full_pressure_fits_its_bits() {
        let signal = PressureSignal::default();
        signal.post(Pressure::FULL, Timestamp::from_secs(7));
        assert_eq!(signal.at(Timestamp::from_secs(7)), Pressure::FULL);
    }
}
