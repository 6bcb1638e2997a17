//! The arithmetic of the system clock: how a reading of the counters becomes a line from ticks to
//! time, and that line the next one. Pure functions of readings; no counter is read here.
//!
//! Time runs along a [`Line`]: a point, and a pace in time per tick. When the line is no longer
//! fresh, someone takes a [`Reading`] and [`Anchor::next`] gives the line that follows. It starts
//! where the old one ended, and is a little steeper or flatter so that the difference to the wall
//! clock goes away. Only a wall clock that was set forward makes it start elsewhere.

/// How long a line is fresh: the error of its pace grows with it, the cost of reading the system's
/// clocks shrinks with it. At 100 ms the first is below a microsecond and the second below one
/// part in 100,000.
pub(super) const FRESH_NS: u64 = 100_000_000;

/// How long a line is fresh while the counter's pace is being measured.
pub(super) const WARMING_NS: u64 = 10_000_000;

/// A wall clock this far ahead was set; one that is less far ahead only drifted.
pub(super) const STEP_NS: i128 = 1_000_000;

/// The largest change of pace: 0.1 %.
pub(super) const SLEW_MAX_PPB: i128 = 1_000_000;

/// How far the counter and the monotonic clock may disagree about the time between two readings: one
/// part in so many, and so many nanoseconds.
const DISAGREE_RATIO: u64 = 1_000;
const DISAGREE_NS: u64 = 5_000;

/// A pair of readings that may be off by more says nothing about the counter's pace.
const DOUBT_MAX_NS: u64 = 5_000;

/// How often the counter may disagree before it is refused for good. More than once, because a
/// virtual machine that is moved or a laptop that is woken is not a broken counter.
pub(super) const STRIKES_MAX: u64 = 3;

/// The pace of the monotonic clock, whose ticks are nanoseconds.
const MONO_PACE: u64 = (FIXED_ONE / 1_000) as u64;
const FIXED_ONE: u128 = 1 << 64;

/// What all counters showed at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) tsc: u64,
    pub(super) mono_ns: u64,
    pub(super) wall_ns: u64,
    /// How far apart the three may have been read.
    pub(super) doubt_ns: u64,
}

/// The counter that a line's ticks are ticks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Mono,
    Tsc,
}

/// Time as a function of ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) source: Source,
    /// Where the line starts, in ticks.
    pub(super) ticks: u64,
    /// Where it starts, in microseconds since the Unix epoch and a fraction in units of 2^-64.
    pub(super) micros: u64,
    pub(super) fraction: u64,
    /// Microseconds per tick, in units of 2^-64.
    pub(super) pace: u64,
    /// From this age on a new line is due. Nobody may use the line at twice this age.
    pub(super) fresh_ticks: u64,
}

/// What is thought of the time stamp counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// There is none that keeps one pace, or it disagreed too often.
    Refused,
    /// It is being measured, and has been measured once if there is a pace.
    Warming { pace: Option<u64>, strikes: u64 },
    /// It was measured twice with the same result, and agreed ever since.
    Trusted { pace: u64, strikes: u64 },
}

/// A line, and what is needed to find the one that follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Anchor {
    pub(super) line: Line,
    pub(super) reading: Reading,
    pub(super) trust: Trust,
}

impl Line {
    /// The time at an age in ticks, rounded down to a microsecond.
    #[inline]
    pub(super) const fn at(&self, age_ticks: u64) -> u64 {
        // Two 64-bit numbers and their product always fit in 128 bits. The sum of microseconds
        // wraps only for an age of 500,000 years.
        let ahead = age_ticks as u128 * self.pace as u128 + self.fraction as u128;
        self.micros.wrapping_add((ahead >> 64) as u64)
    }

    /// The age at which nobody may use the line any more.
    pub(super) const fn stale_ticks(&self) -> u64 {
        self.fresh_ticks.saturating_mul(2)
    }

    /// The time at an age in ticks, exactly.
    const fn fixed_at(&self, age_ticks: u64) -> u128 {
        let start = ((self.micros as u128) << 64) | self.fraction as u128;
        start.saturating_add(age_ticks as u128 * self.pace as u128)
    }
}

impl Anchor {
    /// The first line: on the wall clock, at the pace of the monotonic clock, while the counter (if
    /// there is one to be trusted) is measured.
    pub(super) fn start(reading: Reading, has_tsc: bool) -> Self {
        let trust =
            if has_tsc { Trust::Warming { pace: None, strikes: 0 } } else { Trust::Refused };
        Self::new(fixed_from_ns(reading.wall_ns), reading, trust)
    }

    /// The line that follows this one, from a reading taken later.
    pub(super) fn next(&self, reading: Reading) -> Self {
        let trust = self.judge(&reading);
        let broke = self.line.source == Source::Tsc && !matches!(trust, Trust::Trusted { .. });
        let age_ticks = reading.ticks(self.line.source).saturating_sub(self.line.ticks);
        let time = if broke || age_ticks > self.line.stale_ticks() {
            self.resume(&reading)
        } else {
            self.carry_on(age_ticks, &reading)
        };
        Self::new(time, reading, trust)
    }

    /// A line from `time` on, towards the wall clock.
    fn new(time: u128, reading: Reading, trust: Trust) -> Self {
        let (source, pace, fresh_ns) = match trust {
            Trust::Refused => (Source::Mono, MONO_PACE, FRESH_NS),
            Trust::Warming { .. } => (Source::Mono, MONO_PACE, WARMING_NS),
            Trust::Trusted { pace, .. } => (Source::Tsc, pace, FRESH_NS),
        };
        let line = Line {
            source,
            ticks: reading.ticks(source),
            micros: (time >> 64) as u64,
            fraction: time as u64,
            pace: slewed(pace, reading.ahead_ns(time)),
            // A pace is never zero, see `Reading::pace_since`.
            fresh_ticks: (fixed_from_ns(fresh_ns) / u128::from(pace)) as u64,
        };
        Self { line, reading, trust }
    }

    /// Where the next line starts when the old one was in use until now: at its end, or on a wall
    /// clock that was set forward.
    fn carry_on(&self, age_ticks: u64, reading: &Reading) -> u128 {
        let time = self.line.fixed_at(age_ticks);
        if reading.ahead_ns(time) > STEP_NS { fixed_from_ns(reading.wall_ns) } else { time }
    }

    /// Where the next line starts when the old one says nothing: nobody was told its time for long,
    /// or its ticks were wrong. That is the wall clock, unless it was set back; then it is what the
    /// monotonic clock says, as slow as a line may be.
    fn resume(&self, reading: &Reading) -> u128 {
        let elapsed = fixed_from_ns(reading.mono_ns.saturating_sub(self.reading.mono_ns));
        let slowest = elapsed - elapsed / 1_000_000_000 * SLEW_MAX_PPB.unsigned_abs();
        self.line.fixed_at(0).saturating_add(slowest).max(fixed_from_ns(reading.wall_ns))
    }

    /// What to think of the counter after one more reading.
    fn judge(&self, reading: &Reading) -> Trust {
        let doubtful = self.reading.doubt_ns.saturating_add(reading.doubt_ns) > DOUBT_MAX_NS;
        let measured = reading.pace_since(&self.reading);
        let (expected, strikes) = match self.trust {
            Trust::Refused => return Trust::Refused,
            Trust::Warming { pace, strikes } => (pace, strikes),
            Trust::Trusted { pace, strikes } => (Some(pace), strikes),
        };
        match (expected, measured) {
            // Even a poor reading shows a counter that went back or stood still.
            (_, None) => strike(strikes),
            (_, Some(_)) if doubtful => self.judge_doubtful(reading),
            (None, pace) => Trust::Warming { pace, strikes },
            (Some(expected), Some(pace)) if reading.agrees(&self.reading, expected) => {
                Trust::Trusted { pace, strikes }
            }
            (Some(_), Some(_)) => strike(strikes),
        }
    }

    /// A pair of readings that were interrupted measures no pace, but it still shows a jump.
    fn judge_doubtful(&self, reading: &Reading) -> Trust {
        match self.trust {
            Trust::Trusted { pace, strikes } if !reading.agrees(&self.reading, pace) => {
                strike(strikes)
            }
            trust => trust,
        }
    }
}

/// The counter disagreed: it is measured anew, or refused for good.
const fn strike(strikes: u64) -> Trust {
    let strikes = strikes + 1;
    if strikes >= STRIKES_MAX { Trust::Refused } else { Trust::Warming { pace: None, strikes } }
}

impl Reading {
    pub(super) const fn ticks(&self, source: Source) -> u64 {
        match source {
            Source::Mono => self.mono_ns,
            Source::Tsc => self.tsc,
        }
    }

    /// How far the wall clock is ahead of `time`, in nanoseconds, negative where it is behind, as
    /// far as the reading can vouch for it.
    fn ahead_ns(&self, time: u128) -> i128 {
        let ahead = i128::from(self.wall_ns) - ns_from_fixed(time);
        let doubt = i128::from(self.doubt_ns);
        if ahead > 0 { (ahead - doubt).max(0) } else { (ahead + doubt).min(0) }
    }

    /// The counter's pace between two readings. None if it went back, stood still, or was slower than
    /// a tick per microsecond or faster than any counter is, so that a pace is always a divisor.
    fn pace_since(&self, earlier: &Self) -> Option<u64> {
        let ticks = self.tsc.checked_sub(earlier.tsc)?;
        let elapsed = fixed_from_ns(self.mono_ns.checked_sub(earlier.mono_ns)?);
        let pace = u64::try_from(elapsed.checked_div(ticks.into())?).ok()?;
        (pace > MONO_PACE / 1_000).then_some(pace)
    }

    /// Whether ticks of this pace tell the same elapsed time as the monotonic clock.
    fn agrees(&self, earlier: &Self, pace: u64) -> bool {
        let ticks = u128::from(self.tsc.saturating_sub(earlier.tsc));
        let told_ns = ns_from_fixed(ticks * u128::from(pace));
        let elapsed_ns = self.mono_ns.saturating_sub(earlier.mono_ns);
        let doubt_ns = self.doubt_ns.saturating_add(earlier.doubt_ns);
        let slack_ns = (elapsed_ns / DISAGREE_RATIO).saturating_add(DISAGREE_NS);
        let apart_ns = (told_ns - i128::from(elapsed_ns)).unsigned_abs();
        apart_ns <= u128::from(slack_ns.saturating_add(doubt_ns))
    }
}

/// The pace that closes half of the gap to the wall clock while the line is fresh, and all of it
/// before it is stale: a larger share would overshoot when the next reading comes late.
fn slewed(pace: u64, ahead_ns: i128) -> u64 {
    let ppb = ahead_ns * 1_000_000_000 / (2 * i128::from(FRESH_NS));
    let change = i128::from(pace) * ppb.clamp(-SLEW_MAX_PPB, SLEW_MAX_PPB) / 1_000_000_000;
    u64::try_from(i128::from(pace) + change).unwrap_or(pace)
}

/// Nanoseconds as microseconds in units of 2^-64.
fn fixed_from_ns(ns: u64) -> u128 {
    (u128::from(ns) << 64) / 1_000
}

/// The reverse, rounded down: microseconds fill at most 64 bits, so that the product fits.
fn ns_from_fixed(fixed: u128) -> i128 {
    (((fixed >> 32) * 1_000) >> 32).cast_signed()
}

#[cfg(test)]
mod tests;
