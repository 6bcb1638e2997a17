//! Whole numbers, and the suggestions for those that are not whole.

use tidegate_core::{Rate, Span};

use crate::canonical::Period;
use crate::error::LimitProblem;

/// A number as it is written: whole, or a fraction in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    Whole(u64),
    Fraction(Fraction),
}

/// A number that is not written as a whole one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fraction {
    numerator: u64,
    denominator: u64,
}

impl Number {
    /// What `text` says: digits with `_`, `.` or `,` between them.
    pub(crate) fn read(text: &str) -> Result<Self, LimitProblem> {
        if !text.contains(['.', ',']) {
            return Ok(Self::Whole(digits(text)?));
        }
        if is_grouped_by_commas(text) {
            return Err(LimitProblem::CommaInNumber { suggestion: text.replace(',', "_") });
        }
        let Some((whole, rest)) = text.split_once(['.', ',']) else {
            return Err(LimitProblem::MalformedNumber);
        };
        if rest.contains(['.', ',']) {
            return Err(LimitProblem::MalformedNumber);
        }
        Ok(Self::Fraction(
            fraction(whole, rest).ok_or(LimitProblem::Fraction { suggestion: None })?,
        ))
    }
}

impl Fraction {
    /// So many, `factor` times, per `period`, in whole numbers: `0.5` per second is `1 per 2s`.
    pub(crate) fn as_rate(self, factor: u64, period: Span) -> Option<String> {
        let (count, periods) = lowest_terms(self.numerator.checked_mul(factor)?, self.denominator);
        let micros = period.as_micros().checked_mul(periods)?;
        let rate = Rate::new(count, Span::from_micros(micros)).ok()?;
        Some(format!("{} per {}", rate.count(), Period(rate.period())))
    }

    /// So much of a `unit`, in whole numbers of a smaller one: `0.5` of a second is `500ms`.
    pub(crate) fn as_period(self, unit: Span) -> Option<String> {
        let micros = self.numerator.checked_mul(unit.as_micros())?;
        let is_whole = micros > 0 && micros % self.denominator == 0;
        is_whole.then(|| Period(Span::from_micros(micros / self.denominator)).with_number())
    }
}

/// The number of the digits in `text`.
fn digits(text: &str) -> Result<u64, LimitProblem> {
    let digits = text.bytes().filter(u8::is_ascii_digit);
    digits
        .map(|digit| u64::from(digit - b'0'))
        .try_fold(0_u64, |number, digit| number.checked_mul(10)?.checked_add(digit))
        .ok_or(LimitProblem::NumberTooLarge { max: Rate::COUNT_MAX })
}

/// Whether `text` looks like `1,000` or `12,000,000`, and not like `0,5`.
fn is_grouped_by_commas(text: &str) -> bool {
    let mut groups = text.split(',');
    let first = groups.next().unwrap_or_default();
    let is_digits = |group: &str| group.bytes().all(|byte| byte.is_ascii_digit());
    (1..=3).contains(&first.len())
        && !first.starts_with('0')
        && is_digits(first)
        && groups.all(|group| group.len() == 3 && is_digits(group))
}

/// `whole.rest`, if it is not too long to be written as a fraction.
fn fraction(whole: &str, rest: &str) -> Option<Fraction> {
    let places = rest.bytes().filter(u8::is_ascii_digit).count();
    let power = 10_u64.checked_pow(u32::try_from(places).ok()?)?;
    let numerator = digits(whole).ok()?.checked_mul(power)?.checked_add(digits(rest).ok()?)?;
    let (numerator, denominator) = lowest_terms(numerator, power);
    Some(Fraction { numerator, denominator })
}

/// `a / b`, where `b` is above 0.
fn lowest_terms(a: u64, b: u64) -> (u64, u64) {
    let (mut divisor, mut rest) = (a, b);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    (a / divisor, b / divisor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str, factor: u64, period: Span) -> Option<String> {
        match Number::read(text) {
            Ok(Number::Fraction(fraction)) => fraction.as_rate(factor, period),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn fractions_are_suggested_in_whole_numbers() {
        assert_eq!(rate("0.5", 1, Span::SECOND).unwrap(), "1 per 2s");
        assert_eq!(rate("2.5", 1, Span::MINUTE).unwrap(), "5 per 2min");
        assert_eq!(rate("1.5", 1_000, Span::SECOND).unwrap(), "1500 per second");
        assert_eq!(rate("0,25", 1, Span::HOUR).unwrap(), "1 per 4h");
    }

    #[test]
    fn fractions_that_make_no_rate_are_suggested_nothing() {
        assert_eq!(rate("0.0", 1, Span::SECOND), None);
        assert_eq!(rate("0.000000000001", 1, Span::DAY), None);
        assert!(Number::read("0.00000000000000000000000000000000001").is_err());
    }

    #[test]
    fn the_largest_number_is_read_and_one_more_is_refused() {
        assert_eq!(Number::read("18446744073709551615"), Ok(Number::Whole(u64::MAX)));
        assert!(matches!(
            Number::read("18446744073709551616"),
            Err(LimitProblem::NumberTooLarge { .. })
        ));
    }

    #[test]
    fn commas_between_groups_of_three_are_told_from_decimal_commas() {
        for text in ["1,000", "12,000", "123,000,000"] {
            assert!(is_grouped_by_commas(text), "{text}");
        }
        for text in ["0,500", "1,00", "1234,000", "1,0000", "1,000.5", "1_0,000"] {
            assert!(!is_grouped_by_commas(text), "{text}");
        }
    }
}
