//! The units of time and how they are spelled.

use tidegate_core::Span;

use crate::error::LimitProblem;
use crate::spelling;

/// A unit of time.
pub(crate) struct Unit {
    /// Its length.
    pub(crate) span: Span,
    /// The short form behind a number: `3h`.
    pub(crate) symbol: &'static str,
    /// The word, in the singular: `hour`.
    pub(crate) name: &'static str,
    /// Other short forms, which have no plural.
    symbols: &'static [&'static str],
    /// Other words, whose plural has an `s`.
    words: &'static [&'static str],
}

/// All units, from short to long. A month has 30 days and a year 365: the period of a bucket needs
/// a fixed length.
pub(crate) const UNITS: [Unit; 9] = [
    unit(Span::from_micros(1), "us", "microsecond", &["µs", "μs"], &["usec"]),
    unit(Span::from_millis(1), "ms", "millisecond", &[], &["msec"]),
    unit(Span::SECOND, "s", "second", &[], &["sec"]),
    unit(Span::MINUTE, "min", "minute", &["m"], &["min"]),
    unit(Span::HOUR, "h", "hour", &[], &["hr"]),
    unit(Span::DAY, "d", "day", &[], &[]),
    unit(Span::from_secs(7 * 86_400), "w", "week", &[], &["wk"]),
    unit(Span::from_secs(30 * 86_400), "month", "month", &[], &[]),
    unit(Span::from_secs(365 * 86_400), "y", "year", &[], &["yr"]),
];

const fn unit(
    span: Span,
    symbol: &'static str,
    name: &'static str,
    symbols: &'static [&'static str],
    words: &'static [&'static str],
) -> Unit {
    Unit { span, symbol, name, symbols, words }
}

/// The unit that `word` spells, in any case, singular or plural.
pub(crate) fn find(word: &str) -> Result<&'static Unit, LimitProblem> {
    // The one letter whose case people give a meaning: million, month or minute.
    if word == "M" {
        return Err(LimitProblem::AmbiguousUnit);
    }
    let lower = word.to_lowercase();
    UNITS.iter().find(|unit| unit.is_spelled(&lower)).ok_or_else(|| {
        let closest = |word| spelling::closest(word, UNITS.iter().flat_map(Unit::spellings));
        let suggestion = closest(&lower).or_else(|| closest(lower.strip_suffix('s')?));
        let suggestion = suggestion.or_else(|| begun_like(&lower));
        LimitProblem::UnknownUnit { suggestion }
    })
}

/// The unit whose name begins like `lower`, which is what is left of a word that was only heard.
fn begun_like(lower: &str) -> Option<&'static str> {
    const LETTERS: usize = 3;
    let begin = lower.get(..LETTERS)?;
    UNITS.iter().map(|unit| unit.name).find(|name| name.starts_with(begin))
}

impl Unit {
    fn is_spelled(&self, lower: &str) -> bool {
        let singular = lower.strip_suffix('s').unwrap_or(lower);
        let is_word = |&word: &&str| word == lower || word == singular;
        self.symbol == lower
            || self.symbols.contains(&lower)
            || is_word(&self.name)
            || self.words.iter().any(is_word)
    }

    fn spellings(&self) -> impl Iterator<Item = &'static str> {
        [self.name, self.symbol].into_iter().chain(self.words.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_names_its_unit() {
        for (seconds, spellings) in [
            (1, "s S sec secs Sec second seconds SECONDS"),
            (60, "m min mins Min minute minutes MINUTE"),
            (3_600, "h H hr hrs hour hours"),
            (86_400, "d D day days Day"),
            (7 * 86_400, "w wk week weeks"),
            (30 * 86_400, "month months"),
            (365 * 86_400, "y yr year years"),
        ] {
            for spelling in spellings.split(' ') {
                assert_eq!(find(spelling).unwrap().span, Span::from_secs(seconds), "{spelling}");
            }
        }
        for spelling in ["us", "µs", "μs", "US", "usec", "microseconds"] {
            assert_eq!(find(spelling).unwrap().span, Span::TICK, "{spelling}");
        }
        for spelling in ["ms", "msec", "millisecond", "milliseconds"] {
            assert_eq!(find(spelling).unwrap().span, Span::from_millis(1), "{spelling}");
        }
    }

    #[test]
    fn a_capital_m_and_invented_plurals_are_no_units() {
        assert!(matches!(find("M"), Err(LimitProblem::AmbiguousUnit)));
        for spelling in ["", "ss", "hs", "mss", "fortnight", "ns"] {
            assert!(matches!(find(spelling), Err(LimitProblem::UnknownUnit { .. })), "{spelling}");
        }
    }
}
