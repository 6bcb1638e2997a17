//! The parts of a limit, in whatever form they were written, and the limit that they make.

use std::fmt;

use tidegate_core::calendar::{Calendar, CalendarUnit, Zone};
use tidegate_core::fixed_window::Windows;
use tidegate_core::{
    Concurrency, FixedWindow, LeakyBucket, Limit, LimitError, Rate, SlidingLog, SlidingSlots,
    SlidingWindow, Span, SteppedBucket, TokenBucket,
};

use crate::error::LimitProblem;

/// The parts of a limit, before it is known whether they fit together.
///
/// Text is one form that they come in (see [`text`](crate::text)); its [`Display`](fmt::Display) is
/// that form again, in one spelling. What is left out has a default.
///
/// ```
/// use tidegate_rules::{Algorithm, LimitSpec, parse_limit};
///
/// let mut spec: LimitSpec = "500/hour".parse()?;
/// spec.algorithm = Some(Algorithm::SlidingSlots);
/// spec.slots = Some(60);
/// assert_eq!(spec.to_string(), "500/hour sliding-slots slots 60");
/// assert_eq!(spec.build()?, parse_limit(&spec.to_string())?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitSpec {
    /// How many, and per period or at once.
    pub amount: Amount,
    /// How a rate is kept; a token bucket unless said.
    pub algorithm: Option<Algorithm>,
    /// How much a bucket holds; the count of the rate unless said.
    pub burst: Option<u64>,
    /// Whether a token bucket is refilled by the whole count at the end of each period.
    pub stepped: bool,
    /// Where fixed windows begin.
    pub alignment: Alignment,
    /// How many slots the window of sliding slots has; [`SLOTS_DEFAULT`] unless said.
    pub slots: Option<u32>,
    /// The most in each slot; the count of the rate unless said.
    pub per_slot: Option<u64>,
    /// When a place of a limit of so many at once is free again though nobody released it;
    /// [`EXPIRES_AFTER_DEFAULT`] unless said.
    pub expires_after: Option<Span>,
}

/// The slots of `sliding-slots` where nothing else is said: minutes of an hour, seconds of a minute.
pub const SLOTS_DEFAULT: u32 = 60;
/// The expiry of `5 at once` where nothing else is said: what proxies commonly give a request.
pub const EXPIRES_AFTER_DEFAULT: Span = Span::MINUTE;

/// The units of the calendar, and the periods that stand for them.
const CALENDAR: [(CalendarUnit, Span); 4] = [
    (CalendarUnit::Day, Span::DAY),
    (CalendarUnit::Week, Span::from_secs(7 * 86_400)),
    (CalendarUnit::Month, Span::from_secs(30 * 86_400)),
    (CalendarUnit::Year, Span::from_secs(365 * 86_400)),
];

/// How many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// So many per period.
    Rate(Rate),
    /// So many at once.
    AtOnce(u64),
}

/// How a rate is kept. A limit of so many at once has only one way and needs no word for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// See [`tidegate_core::token_bucket`] and, where it is stepped,
    /// [`tidegate_core::stepped_bucket`].
    TokenBucket,
    /// See [`tidegate_core::leaky_bucket`].
    LeakyBucket,
    /// See [`tidegate_core::fixed_window`].
    FixedWindow,
    /// See [`tidegate_core::sliding_window`].
    SlidingWindow,
    /// See [`tidegate_core::sliding_slots`].
    SlidingSlots,
    /// See [`tidegate_core::sliding_log`].
    SlidingLog,
}

/// Where fixed windows begin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Alignment {
    /// At whole multiples of the period since the origin of time.
    #[default]
    Clock,
    /// At the first request after the last window.
    FirstRequest,
    /// With the days, weeks, months or years of the calendar in this time zone. The period says
    /// which of them, and has to be one of them: a month, say, and not two.
    Calendar(Zone),
}

/// A part of a limit, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Field {
    /// The number before the slash, or the number at once.
    Count,
    /// What stands behind the slash.
    Period,
    /// Count and period together.
    Rate,
    /// [`LimitSpec::algorithm`]
    Algorithm,
    /// [`LimitSpec::burst`]
    Burst,
    /// [`LimitSpec::stepped`]
    Stepped,
    /// [`LimitSpec::alignment`]
    Alignment,
    /// [`LimitSpec::slots`]
    Slots,
    /// [`LimitSpec::per_slot`]
    PerSlot,
    /// [`LimitSpec::expires_after`]
    ExpiresAfter,
}

/// Why parts do not make a limit, and which of them. Nothing was made or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// The part that is wrong.
    pub field: Field,
    /// What is wrong with it.
    pub problem: LimitProblem,
}

impl From<Amount> for LimitSpec {
    fn from(amount: Amount) -> Self {
        Self {
            amount,
            algorithm: None,
            burst: None,
            stepped: false,
            alignment: Alignment::Clock,
            slots: None,
            per_slot: None,
            expires_after: None,
        }
    }
}

impl LimitSpec {
    /// The limit that the parts make.
    pub fn build(&self) -> Result<Limit, SpecError> {
        self.check_fields()?;
        let limit = match self.amount {
            Amount::Rate(rate) => {
                let burst = self.burst.unwrap_or(rate.count());
                match self.algorithm.unwrap_or(Algorithm::TokenBucket) {
                    Algorithm::TokenBucket if self.stepped => {
                        SteppedBucket::new(rate, burst).map(Limit::from)
                    }
                    Algorithm::TokenBucket => TokenBucket::new(rate, burst).map(Limit::from),
                    Algorithm::LeakyBucket => LeakyBucket::new(rate, burst).map(Limit::from),
                    Algorithm::FixedWindow => {
                        FixedWindow::new(rate.count(), self.windows(rate.period())?)
                            .map(Limit::from)
                    }
                    Algorithm::SlidingWindow => SlidingWindow::new(rate).map(Limit::from),
                    Algorithm::SlidingSlots => {
                        let slots = self.slots.unwrap_or(SLOTS_DEFAULT);
                        SlidingSlots::new(rate, slots, self.per_slot).map(Limit::from)
                    }
                    Algorithm::SlidingLog => SlidingLog::new(rate).map(Limit::from),
                }
            }
            Amount::AtOnce(limit) => {
                let expires_after = self.expires_after.unwrap_or(EXPIRES_AFTER_DEFAULT);
                Concurrency::new(limit, expires_after).map(Limit::from)
            }
        };
        limit.map_err(|error| SpecError {
            field: self.field_of(error),
            problem: LimitProblem::Limit(error),
        })
    }

    /// The windows of `period` with this alignment.
    fn windows(&self, period: Span) -> Result<Windows, SpecError> {
        Ok(match &self.alignment {
            Alignment::Clock => Windows::Clock(period),
            Alignment::FirstRequest => Windows::FirstRequest(period),
            Alignment::Calendar(zone) => {
                let unit = CALENDAR.into_iter().find(|&(_, span)| span == period);
                let (unit, _) = unit.ok_or(SpecError {
                    field: Field::Period,
                    problem: LimitProblem::NotOfCalendar,
                })?;
                Windows::Calendar(Calendar::new(unit, zone.clone()))
            }
        })
    }

    /// Refuses what the algorithm does not have, rather than ignoring it.
    fn check_fields(&self) -> Result<(), SpecError> {
        let said = [
            (Field::Algorithm, self.algorithm.is_some()),
            (Field::Burst, self.burst.is_some()),
            (Field::Stepped, self.stepped),
            (Field::Alignment, self.alignment != Alignment::Clock),
            (Field::Slots, self.slots.is_some()),
            (Field::PerSlot, self.per_slot.is_some()),
            (Field::ExpiresAfter, self.expires_after.is_some()),
        ];
        let algorithm = match self.amount {
            Amount::Rate(_) => Some(self.algorithm.unwrap_or(Algorithm::TokenBucket)),
            Amount::AtOnce(_) => None,
        };
        match said.into_iter().find(|&(field, is_said)| is_said && !field.is_of(algorithm)) {
            None => Ok(()),
            Some((field, _)) => {
                let algorithm = algorithm.map_or("concurrency", Algorithm::name);
                Err(SpecError { field, problem: LimitProblem::NotFor { field, algorithm } })
            }
        }
    }

    /// The part that the core's error is about.
    fn field_of(&self, error: LimitError) -> Field {
        match Field::of(error) {
            Field::Burst if self.burst.is_none() => Field::Count,
            Field::Slots if self.slots.is_none() => Field::Period,
            field => field,
        }
    }
}

impl Algorithm {
    /// All of them, in the order of the design.
    pub const ALL: [Self; 6] = [
        Self::TokenBucket,
        Self::LeakyBucket,
        Self::FixedWindow,
        Self::SlidingWindow,
        Self::SlidingSlots,
        Self::SlidingLog,
    ];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TokenBucket => "token-bucket",
            Self::LeakyBucket => "leaky-bucket",
            Self::FixedWindow => "fixed-window",
            Self::SlidingWindow => "sliding-window",
            Self::SlidingSlots => "sliding-slots",
            Self::SlidingLog => "sliding-log",
        }
    }

    /// The algorithm of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }
}

/// [`Algorithm::ALL`], for messages.
pub(crate) const ALGORITHMS_ACCEPTED: &str =
    "token-bucket, leaky-bucket, fixed-window, sliding-window, sliding-slots or sliding-log";

impl Field {
    /// The part of a rate limit that the core's error is about.
    pub(crate) const fn of(error: LimitError) -> Self {
        match error {
            LimitError::CountZero | LimitError::CountTooLarge { .. } => Self::Count,
            LimitError::PeriodZero | LimitError::PeriodTooLong { .. } => Self::Period,
            LimitError::BurstZero
            | LimitError::BurstTooLarge { .. }
            | LimitError::BurstTooDeep { .. } => Self::Burst,
            LimitError::SlotsOutOfRange { .. } | LimitError::SlotsUneven => Self::Slots,
            LimitError::PerSlotZero | LimitError::PerSlotTooLarge { .. } => Self::PerSlot,
            LimitError::ExpiryZero | LimitError::ExpiryTooLong { .. } => Self::ExpiresAfter,
            _ => Self::Rate,
        }
    }

    /// Whether `algorithm` has it; `None` is a limit of so many at once.
    fn is_of(self, algorithm: Option<Algorithm>) -> bool {
        use Algorithm::{FixedWindow, LeakyBucket, SlidingSlots, TokenBucket};
        match self {
            Self::Count => true,
            Self::Period | Self::Rate | Self::Algorithm => algorithm.is_some(),
            Self::Burst => matches!(algorithm, Some(TokenBucket | LeakyBucket)),
            Self::Stepped => algorithm == Some(TokenBucket),
            Self::Alignment => algorithm == Some(FixedWindow),
            Self::Slots | Self::PerSlot => algorithm == Some(SlidingSlots),
            Self::ExpiresAfter => algorithm.is_none(),
        }
    }

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Period => "period",
            Self::Rate => "rate",
            Self::Algorithm => "algorithm",
            Self::Burst => "burst",
            Self::Stepped => "stepped refill",
            Self::Alignment => "alignment",
            Self::Slots => "number of slots",
            Self::PerSlot => "limit per slot",
            Self::ExpiresAfter => "expiry",
        }
    }

    /// What has it, for messages.
    pub(crate) const fn users(self) -> &'static str {
        match self {
            Self::Count | Self::Period | Self::Rate | Self::Algorithm => {
                "a rate, such as `10/minute`"
            }
            Self::Burst => "token-bucket or leaky-bucket",
            Self::Stepped => "token-bucket",
            Self::Alignment => "fixed-window",
            Self::Slots | Self::PerSlot => "sliding-slots",
            Self::ExpiresAfter => "a number at once, such as `5 at once for 30s`",
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.write(f, &format!("`{}`", self.field))
    }
}

// As with `ParseLimitError`, the cause is part of the sentence.
impl std::error::Error for SpecError {}
