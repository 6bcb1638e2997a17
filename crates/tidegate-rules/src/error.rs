//! What is wrong with the text of a limit, where, and what would be right.

use std::fmt::{self, Write as _};
use std::ops::Range;

use tidegate_core::LimitError;

use crate::spec::{ALGORITHMS_ACCEPTED, Field};

/// How much of the text a message repeats.
const PART_CHARS_MAX: usize = 40;

/// Why a text is not a limit. Nothing was made or changed.
///
/// It displays as one sentence that names the part, its place, and what is accepted there:
///
/// ```
/// let error = tidegate_rules::parse_limit("0.5/s").unwrap_err();
/// assert_eq!(error.to_string(), "fraction `0.5` at column 1: use whole numbers, here `1 per 2s`");
/// assert_eq!((error.column(), error.part()), (1, "0.5"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseLimitError {
    column: usize,
    part: String,
    problem: LimitProblem,
}

/// What can be wrong with the parts of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitProblem {
    /// There is no text.
    Empty,
    /// Something else stands where a number is expected.
    NumberMissing {
        /// What the number would say.
        field: Field,
    },
    /// A number below zero.
    NegativeNumber,
    /// A number with a decimal point.
    Fraction {
        /// The same in whole numbers, where there is such a thing.
        suggestion: Option<String>,
    },
    /// A number with commas between groups of three digits, which is one in some countries and a
    /// thousand in others.
    CommaInNumber {
        /// The number as it is accepted.
        suggestion: String,
    },
    /// A number with several points or commas.
    MalformedNumber,
    /// A number beyond what any limit can have.
    NumberTooLarge {
        /// The largest number.
        max: u64,
    },
    /// Something else stands between the count and the period than `/` or `per`.
    SeparatorMissing,
    /// Something else stands where a unit of time is expected.
    UnitMissing,
    /// A word that is no unit of time.
    UnknownUnit {
        /// A unit that is spelled nearly so.
        suggestion: Option<&'static str>,
    },
    /// `M`, which might be minutes, months or a million.
    AmbiguousUnit,
    /// Behind the rate is something that does not belong to a limit.
    UnexpectedText {
        /// A word that is accepted there and spelled nearly so.
        suggestion: Option<&'static str>,
    },
    /// A limit says who is counted, which is for its rule to say.
    CountedBy {
        /// Who is counted, as it is written.
        names: String,
    },
    /// Behind a period is something that does not belong to one.
    TextAfterPeriod,
    /// Something else stands where a time zone is expected, or a name that nobody knows.
    UnknownZone,
    /// The calendar is to be followed, but the period is none of its units.
    NotOfCalendar,
    /// The same thing is said twice.
    Repeated {
        /// What is said twice.
        field: Field,
    },
    /// Something is said that this algorithm does not have.
    NotFor {
        /// What is said.
        field: Field,
        /// The algorithm that does not have it.
        algorithm: &'static str,
    },
    /// The numbers make no limit.
    Limit(LimitError),
}

impl ParseLimitError {
    /// `problem` in a `range` of `text`.
    pub(crate) fn new(text: &str, range: &Range<usize>, problem: LimitProblem) -> Self {
        Self { column: range.start + 1, part: escaped(&text[range.clone()]), problem }
    }

    /// Where the part begins, in bytes from 1. It is behind the last byte where something is missing
    /// at the end.
    pub const fn column(&self) -> usize {
        self.column
    }

    /// The part of the text that is wrong, empty at its end. At most 40 characters of it, and what
    /// cannot be printed is escaped.
    pub fn part(&self) -> &str {
        &self.part
    }

    /// What is wrong with it.
    pub const fn problem(&self) -> &LimitProblem {
        &self.problem
    }
}

/// The beginning of `part`, printable.
fn escaped(part: &str) -> String {
    let mut escaped = String::new();
    for (count, c) in part.chars().enumerate() {
        if count == PART_CHARS_MAX {
            escaped.push('…');
            break;
        }
        match c {
            '\'' | '"' => escaped.push(c),
            _ => escaped.extend(c.escape_debug()),
        }
    }
    escaped
}

impl fmt::Display for ParseLimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut place = String::new();
        if self.part.is_empty() {
            write!(place, "the end at column {}", self.column)?;
        } else {
            write!(place, "`{}` at column {}", self.part, self.column)?;
        }
        self.problem.write(f, &place)
    }
}

// The cause of `LimitProblem::Limit` is part of the sentence, so `source` does not say it again.
impl std::error::Error for ParseLimitError {}

const RATE_EXAMPLE: &str = "write a count per period, such as `10/minute`";
const UNITS_ACCEPTED: &str = "use us, ms, s, min, h, day, week, month or year";

impl LimitProblem {
    /// One sentence about what is at `place`.
    pub(crate) fn write(&self, f: &mut fmt::Formatter<'_>, place: &str) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "the limit is empty: {RATE_EXAMPLE}"),
            Self::NumberMissing { .. }
            | Self::NegativeNumber
            | Self::Fraction { .. }
            | Self::CommaInNumber { .. }
            | Self::MalformedNumber
            | Self::NumberTooLarge { .. } => self.write_number(f, place),
            Self::SeparatorMissing => {
                write!(f, "expected `/` or `per`, found {place}: {RATE_EXAMPLE}, or `5 at once`")
            }
            Self::UnitMissing => {
                write!(f, "expected a unit of time, found {place}: {UNITS_ACCEPTED}")
            }
            Self::UnknownUnit { suggestion } => {
                write!(f, "unknown unit {place}{}: {UNITS_ACCEPTED}", Meant(*suggestion))
            }
            Self::AmbiguousUnit => {
                write!(f, "ambiguous unit {place}: use min for minutes or month for months")
            }
            Self::UnexpectedText { suggestion } => write!(
                f,
                "unexpected {place}{}: behind the count and period use burst, stepped, slots, \
                 per-slot, from-first-request, in, for, or one of {ALGORITHMS_ACCEPTED}",
                Meant(*suggestion)
            ),
            Self::CountedBy { names } => write!(
                f,
                "{place} says who is counted: write `per: [{}]` in the rule, and here only a count \
                 per period, such as `10/minute`",
                escaped(names)
            ),
            Self::TextAfterPeriod => write!(
                f,
                "unexpected {place}: a period is a unit, or numbers each with their unit, such as \
                 `1m30s`"
            ),
            Self::UnknownZone => {
                write!(
                    f,
                    "expected a time zone, found {place}: use UTC, or a known name such as \
                     `Europe/Berlin`"
                )
            }
            Self::NotOfCalendar => write!(
                f,
                "{place} is not a period of the calendar: use day, week, month or year with a time \
                 zone"
            ),
            Self::Repeated { field } => {
                write!(f, "{place} says the {field} again: say it once")
            }
            Self::NotFor { field, algorithm } => {
                let users = field.users();
                write!(f, "{place} does not apply to {algorithm}: use it with {users}")
            }
            Self::Limit(error) => write!(f, "{place}: {error}"),
        }
    }

    /// The sentences about numbers.
    fn write_number(&self, f: &mut fmt::Formatter<'_>, place: &str) -> fmt::Result {
        match self {
            Self::NumberMissing { field: Field::Count } => {
                write!(f, "expected a count, found {place}: {RATE_EXAMPLE}")
            }
            Self::NumberMissing { field } => {
                write!(f, "expected the {field}, found {place}: write a whole number of 1 or more")
            }
            Self::NegativeNumber => write!(f, "negative number {place}: use 1 or more"),
            Self::Fraction { suggestion: Some(suggestion) } => {
                write!(f, "fraction {place}: use whole numbers, here `{suggestion}`")
            }
            Self::Fraction { suggestion: None } => {
                write!(f, "fraction {place}: use whole numbers")
            }
            Self::CommaInNumber { suggestion } => {
                write!(f, "comma in the number {place}: write `{suggestion}`")
            }
            Self::NumberTooLarge { max } => {
                write!(f, "number {place} is too large: use at most {max}")
            }
            _ => write!(f, "malformed number {place}: use digits, such as `1000` or `1_000`"),
        }
    }
}

/// "did you mean", or nothing.
struct Meant(Option<&'static str>);

impl fmt::Display for Meant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(word) => write!(f, " (did you mean `{word}`?)"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_short_and_printable() {
        assert_eq!(escaped("a\n\u{202e}\0\"'"), "a\\n\\u{202e}\\0\"'");
        assert_eq!(escaped(&"é".repeat(40)), "é".repeat(40));
        assert_eq!(escaped(&"é".repeat(41)), format!("{}…", "é".repeat(40)));
    }
}
