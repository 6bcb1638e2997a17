//! Points in time and lengths of time, in whole microseconds (a *tick*). Not a clock: nothing here
//! knows what time it is.

use core::time::Duration;

/// How far `now` may lie behind a state before that counts as a clock that was set back.
///
/// Threads and nodes read their clocks in one order and reach the state in another, so a `now` that
/// is a little older than the state is ordinary: windows, slots and logs answer it as of the state's
/// own time, and buckets as of its own, earlier one. Only a larger difference makes an algorithm pull
/// the state back to `now`.
pub const SKEW_MAX: Span = Span::SECOND;

/// A point in time, in microseconds since an origin that the caller chooses.
///
/// The origin is the Unix epoch wherever windows are aligned to the wall clock or the calendar. In
/// tests it is whatever reads best, often zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// The last point in time, some 146,000 years after the origin. It is a quarter of what 64 bits
    /// hold, so that the sum of a time and two spans cannot overflow.
    pub const MAX: Self = Self(1 << 62);

    /// The point in time that is so many microseconds after the origin, or [`Timestamp::MAX`] where
    /// that is later.
    pub const fn from_micros(micros: u64) -> Self {
        if micros > Self::MAX.0 { Self::MAX } else { Self(micros) }
    }

    /// The point in time that is so many whole seconds after the origin, or [`Timestamp::MAX`].
    pub const fn from_secs(secs: u64) -> Self {
        Self::from_micros(secs.saturating_mul(1_000_000))
    }

    /// Microseconds since the origin.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`, or nothing where `earlier` is the later one.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// The point in time `span` later, at most [`Timestamp::MAX`].
    #[must_use]
    pub const fn plus(self, span: Span) -> Self {
        Self::from_micros(self.0.saturating_add(span.0))
    }

    /// The point in time `span` earlier, or the origin.
    #[must_use]
    pub const fn minus(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

/// A length of time in microseconds, at most [`Span::MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// One tick, the smallest length there is.
    pub const TICK: Self = Self(1);
    /// One second.
    pub const SECOND: Self = Self(1_000_000);
    /// One minute.
    pub const MINUTE: Self = Self(60 * Self::SECOND.0);
    /// One hour.
    pub const HOUR: Self = Self(60 * Self::MINUTE.0);
    /// Twenty-four hours.
    pub const DAY: Self = Self(24 * Self::HOUR.0);
    /// The longest span, some 146,000 years.
    pub const MAX: Self = Self(Timestamp::MAX.0);

    /// So many microseconds, at most [`Span::MAX`].
    pub const fn from_micros(micros: u64) -> Self {
        if micros > Self::MAX.0 { Self::MAX } else { Self(micros) }
    }

    /// So many milliseconds, at most [`Span::MAX`].
    pub const fn from_millis(millis: u64) -> Self {
        Self::from_micros(millis.saturating_mul(1_000))
    }

    /// So many seconds, at most [`Span::MAX`].
    pub const fn from_secs(secs: u64) -> Self {
        Self::from_micros(secs.saturating_mul(1_000_000))
    }

    /// A time that a bucket takes: at most the longest debt and the deepest burst, rounded up. It is
    /// not cut at [`Span::MAX`], which would take longer than the rest of a decision's last step.
    #[inline]
    pub(crate) const fn of_bucket(micros: u64) -> Self {
        Self(micros)
    }

    /// The span in microseconds.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The span in milliseconds, rounded up, so that waiting so long is long enough.
    pub const fn as_millis_ceil(self) -> u64 {
        self.0.div_ceil(1_000)
    }

    /// The span in seconds, rounded up, so that waiting so long is long enough.
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// Whether there is no time in it.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The sum, at most [`Span::MAX`].
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self::from_micros(self.0.saturating_add(other.0))
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Self {
        Self::from_micros(span.0)
    }
}

impl From<Duration> for Span {
    /// Rounds up to a whole microsecond, and down to [`Span::MAX`].
    fn from(duration: Duration) -> Self {
        let below_a_second = u64::from(duration.subsec_nanos().div_ceil(1_000));
        let micros = duration.as_secs().saturating_mul(1_000_000).saturating_add(below_a_second);
        Self::from_micros(micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Timestamp::from_micros(u64::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::from_secs(u64::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::MAX.plus(Span::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::ZERO.minus(Span::SECOND), Timestamp::ZERO);
        assert_eq!(Timestamp::ZERO.since(Timestamp::MAX), Span::ZERO);
        assert_eq!(Span::from_secs(u64::MAX), Span::MAX);
        assert_eq!(Span::MAX.plus(Span::MAX), Span::MAX);
    }

    #[test]
    fn coarser_units_round_up() {
        assert_eq!(Span::from_micros(1).as_millis_ceil(), 1);
        assert_eq!(Span::from_micros(1).as_secs_ceil(), 1);
        assert_eq!(Span::SECOND.as_secs_ceil(), 1);
        assert_eq!(Span::from(Duration::from_nanos(1)), Span::TICK);
        assert_eq!(Span::from(Duration::MAX), Span::MAX);
        assert_eq!(Duration::from(Span::SECOND), Duration::from_secs(1));
    }
}
