//! Limits from text, as people write them.
//!
//! ```text
//! limit   = amount clause*
//! amount  = count [counted] ("/" | "per") period  |  count [counted] ("at once" | "concurrent")
//! counted = "requests" | "calls" | "hits"
//! period  = unit  |  (number unit)+
//! count   = number ["k" | "M"]
//! clause  = "burst" count  |  algorithm  |  "stepped"  |  "from-first-request"
//!         | "in" zone  |  "slots" count  |  "per-slot" count  |  "for" period
//! ```
//!
//! | text | what it is |
//! | --- | --- |
//! | `10/s`, `10 / sec`, `10 per second` | ten per second: a token bucket that holds ten |
//! | `10 requests per second`, `10 calls/s`, `1 hit per second` | what is counted may be said |
//! | `100 per minute`, `300 per 3h`, `10/100ms`, `5 per 1m30s` | the period may have a number, or several |
//! | `1_000/min`, `10k/s`, `2M/hour` | `_` between digits; `k` and `M` right behind them |
//! | `20/s burst 50` | a bucket that holds fifty |
//! | `20/s burst 50 stepped` | refilled by twenty at once at the end of each second |
//! | `1/s leaky-bucket burst 5` | a queue of five places |
//! | `10/minute fixed-window` | windows begin with the minutes of the clock |
//! | `5/minute fixed-window from-first-request` | a window begins with the first request |
//! | `5/day fixed-window in UTC` | windows are the days of the calendar; also week, month and year |
//! | `10/minute sliding-window`, `3 per 10s sliding-log` | |
//! | `500/hour sliding-slots slots 60 per-slot 10` | both numbers may be left out: 60 slots, each only bounded by the rate |
//! | `5 at once`, `5 concurrent`, `5 at once for 30s` | places expire after a minute, or as said |
//!
//! A bucket starts full and is refilled while it is used, so the first minute of `10/minute` can see up
//! to 20; say `10/minute sliding-log` where that is too many.
//!
//! **Units** are `us` (`µs`), `ms`, `s`, `m` (`min`), `h` (`hr`), `d`, `w`, `month`, `y` (`yr`) and
//! their words in full, singular or plural. A month is 30 days and a year 365, since a rate needs a
//! period of one length. Only with a time zone do windows follow the calendar, and there those periods
//! stand for its months and years.
//!
//! **Case** does not matter, except that `M` is a million behind a count and refused as a unit, where
//! it might be minutes or months. Clauses come in any order, each once, and may be written with `_`
//! for `-`. White space is free between all parts, but not before `k` and `M`.
//!
//! **Time zones** have the names of the time zone database, a copy of which is built in.
//!
//! **Refused**, with what to write instead: fractions (`0.5/s` is `1 per 2s`), and commas in numbers
//! (`1,000` is one in some countries and a thousand in others, and two entries of a YAML list).

use std::str::FromStr;

use tidegate_core::{Limit, Span};

use crate::error::ParseLimitError;
use crate::grammar::Parser;
use crate::spec::LimitSpec;

/// The limit that `text` says; see [the module](self) for how to say it.
///
/// ```
/// use tidegate_core::Limit;
/// use tidegate_rules::parse_limit;
///
/// assert!(matches!(parse_limit("300 per 3h")?, Limit::TokenBucket(_)));
/// assert!(matches!(parse_limit("10/minute fixed-window")?, Limit::FixedWindow(_)));
/// assert!(matches!(parse_limit("5 at once")?, Limit::Concurrency(_)));
/// assert!(parse_limit("5/day fixed-window in Europe/Berlin").is_ok());
/// # Ok::<(), tidegate_rules::ParseLimitError>(())
/// ```
pub fn parse_limit(text: &str) -> Result<Limit, ParseLimitError> {
    let mut parser = Parser::new(text);
    let spec = parser.limit()?;
    spec.build().map_err(|error| parser.error_in(error.field, error.problem))
}

/// The length of time that `text` says: `30s`, `1m30s`, `hour`.
///
/// ```
/// use tidegate_core::Span;
///
/// assert_eq!(tidegate_rules::parse_period("1m30s")?, Span::from_secs(90));
/// # Ok::<(), tidegate_rules::ParseLimitError>(())
/// ```
pub fn parse_period(text: &str) -> Result<Span, ParseLimitError> {
    Parser::new(text).whole_period()
}

impl FromStr for LimitSpec {
    type Err = ParseLimitError;

    /// Reads the parts, and leaves it to [`LimitSpec::build`] whether they fit together. It knows
    /// no time zone but UTC.
    fn from_str(text: &str) -> Result<Self, ParseLimitError> {
        Parser::new(text).limit()
    }
}
