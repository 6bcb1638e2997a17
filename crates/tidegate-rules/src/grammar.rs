//! How the parts of a limit's text follow each other. What they mean together is not decided here
//! but in [`spec`](crate::spec).

use std::ops::Range;

use tidegate_core::calendar::Zone;
use tidegate_core::{Rate, Span};

use crate::error::{LimitProblem, ParseLimitError};
use crate::number::{Fraction, Number};
use crate::spec::{Algorithm, Alignment, Amount, Field, LimitSpec};
use crate::token::{Kind, Token, Tokens};
use crate::unit::{self, Unit};
use crate::{spelling, zones};

/// What may stand behind the amount, besides the names of the algorithms.
const CLAUSES: [(&str, Field); 7] = [
    ("burst", Field::Burst),
    ("stepped", Field::Stepped),
    ("from-first-request", Field::Alignment),
    ("in", Field::Alignment),
    ("slots", Field::Slots),
    ("per-slot", Field::PerSlot),
    ("for", Field::ExpiresAfter),
];

/// What the count may be said to be a count of.
const COUNTED: [&str; 6] = ["request", "requests", "call", "calls", "hit", "hits"];

/// What people would write behind `per` in place of a period, to say who is counted.
const WHO: [&str; 12] = [
    "ip", "user", "client", "key", "host", "path", "country", "tenant", "account", "email",
    "customer", "device",
];

/// A text on its way to a limit.
pub(crate) struct Parser<'a> {
    text: &'a str,
    tokens: Tokens<'a>,
    /// Where each part is, for errors that show only when all are known.
    fields: Vec<(Field, Range<usize>)>,
}

type Parsed<T> = Result<T, ParseLimitError>;

impl<'a> Parser<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, tokens: Tokens::new(text), fields: Vec::new() }
    }

    /// The parts of the limit that the whole text says.
    pub(crate) fn limit(&mut self) -> Parsed<LimitSpec> {
        if self.tokens.peek().kind == Kind::End {
            return Err(self.error(&(0..0), LimitProblem::Empty));
        }
        let mut spec = LimitSpec::from(self.amount()?);
        loop {
            let token = self.tokens.peek();
            if token.kind == Kind::End {
                return Ok(spec);
            }
            self.clause(&token, &mut spec)?;
        }
    }

    /// The length of time that the whole text says.
    pub(crate) fn whole_period(&mut self) -> Parsed<Span> {
        let period = self.period()?;
        let token = self.tokens.peek();
        match token.kind {
            Kind::End => Ok(period),
            _ => Err(self.error(&token.range, LimitProblem::TextAfterPeriod)),
        }
    }

    /// An error about a part that was read.
    pub(crate) fn error_in(&self, field: Field, problem: LimitProblem) -> ParseLimitError {
        let range = self.fields.iter().find(|(known, _)| *known == field);
        self.error(range.map_or(&(0..self.text.len()), |(_, range)| range), problem)
    }

    fn error(&self, range: &Range<usize>, problem: LimitProblem) -> ParseLimitError {
        ParseLimitError::new(self.text, range, problem)
    }

    /// `10/minute`, `10 per 3h` or `10 at once`.
    fn amount(&mut self) -> Parsed<Amount> {
        let start = self.tokens.peek().range.start;
        let count = self.count(Field::Count)?;
        self.fields.push((Field::Count, start..self.tokens.at()));
        self.skip_counted();
        if self.at_once() {
            return Ok(Amount::AtOnce(count));
        }
        let separator = self.tokens.peek();
        self.separator()?;
        let period_start = self.tokens.peek().range.start;
        let who = self.tokens.peek();
        if WHO.contains(&self.tokens.text(&who).to_lowercase().as_str()) {
            return Err(self.counted_by(&separator));
        }
        let period = self.period()?;
        let end = self.tokens.at();
        self.fields.extend([(Field::Period, period_start..end), (Field::Rate, start..end)]);
        Rate::new(count, period)
            .map(Amount::Rate)
            .map_err(|error| self.error_in(Field::of(error), LimitProblem::Limit(error)))
    }

    /// Reads on behind the word in `10 requests per minute`, which says nothing.
    fn skip_counted(&mut self) {
        let mut ahead = self.tokens;
        if ahead.take_word().is_some_and(|word| COUNTED.contains(&word.as_str())) {
            self.tokens = ahead;
        }
    }

    /// An error about who is counted, which was said from `start` on and is not for a limit to say.
    fn counted_by(&mut self, start: &Token) -> ParseLimitError {
        let who = self.tokens.take_chunk();
        let is_mark = |c: char| matches!(c, '[' | ']' | ',' | ';' | '.');
        let names = self.tokens.text(&who).trim_matches(is_mark).to_owned();
        let range = start.range.start..who.range.end;
        self.error(&range, LimitProblem::CountedBy { names })
    }

    /// Reads on if the next words say that the count is one of so many at once.
    fn at_once(&mut self) -> bool {
        let mut ahead = self.tokens;
        let is_said = match ahead.take_word().as_deref() {
            Some("concurrent" | "at-once") => true,
            Some("at") => ahead.take_word().as_deref() == Some("once"),
            _ => false,
        };
        if is_said {
            self.tokens = ahead;
        }
        is_said
    }

    fn separator(&mut self) -> Parsed<()> {
        let token = self.tokens.peek();
        if self.tokens.take(Kind::Slash).is_some()
            || self.tokens.take_word().as_deref() == Some("per")
        {
            return Ok(());
        }
        Err(self.error(&token.range, LimitProblem::SeparatorMissing))
    }

    /// One of [`CLAUSES`] with its value, or the name of an algorithm.
    fn clause(&mut self, token: &Token, spec: &mut LimitSpec) -> Parsed<()> {
        let Some(word) = self.tokens.take_word() else {
            return Err(self.unexpected(token));
        };
        if word == "per" {
            return Err(self.per_again(token));
        }
        let algorithm = Algorithm::from_name(&word);
        let clause = CLAUSES.iter().find(|(name, _)| *name == word).map(|&(_, field)| field);
        let Some(field) = clause.or(algorithm.map(|_| Field::Algorithm)) else {
            return Err(self.unexpected(token));
        };
        if self.fields.iter().any(|(known, _)| *known == field) {
            return Err(self.error(&token.range, LimitProblem::Repeated { field }));
        }
        match field {
            Field::Burst => spec.burst = Some(self.count(field)?),
            Field::PerSlot => spec.per_slot = Some(self.count(field)?),
            Field::Slots => spec.slots = Some(self.slots()?),
            Field::Stepped => spec.stepped = true,
            Field::Alignment if word == "in" => spec.alignment = Alignment::Calendar(self.zone()?),
            Field::Alignment => spec.alignment = Alignment::FirstRequest,
            Field::ExpiresAfter => spec.expires_after = Some(self.period()?),
            Field::Count | Field::Period | Field::Rate | Field::Algorithm => {
                spec.algorithm = algorithm;
            }
        }
        self.fields.push((field, token.range.start..self.tokens.at()));
        Ok(())
    }

    /// `per` behind a rate: who is counted, or another period.
    fn per_again(&mut self, per: &Token) -> ParseLimitError {
        let next = self.tokens.peek();
        match next.kind {
            Kind::Word if unit::find(self.tokens.text(&next)).is_ok() => {
                let field = Field::Period;
                self.error(&per.range, LimitProblem::Repeated { field })
            }
            Kind::Word | Kind::Other => self.counted_by(per),
            Kind::Number | Kind::Slash | Kind::Minus | Kind::End => self.unexpected(per),
        }
    }

    fn unexpected(&self, token: &Token) -> ParseLimitError {
        let names = CLAUSES.iter().map(|&(name, _)| name);
        let names = names.chain(Algorithm::ALL.into_iter().map(Algorithm::name));
        let suggestion = spelling::closest(self.tokens.text(token), names);
        self.error(&token.range, LimitProblem::UnexpectedText { suggestion })
    }

    fn zone(&mut self) -> Parsed<Zone> {
        let token = self.tokens.take_chunk();
        let name = self.tokens.text(&token);
        if name.eq_ignore_ascii_case("utc") {
            return Ok(Zone::utc());
        }
        zones::find(name).ok_or_else(|| self.error(&token.range, LimitProblem::UnknownZone))
    }

    fn slots(&mut self) -> Parsed<u32> {
        let start = self.tokens.peek().range.start;
        let slots = self.count(Field::Slots)?;
        u32::try_from(slots).map_err(|_| {
            self.error(
                &(start..self.tokens.at()),
                LimitProblem::NumberTooLarge { max: u64::from(u32::MAX) },
            )
        })
    }

    /// A whole number, perhaps with `k` or `M` behind it.
    fn count(&mut self, field: Field) -> Parsed<u64> {
        let start = self.tokens.peek().range.start;
        let number = self.number(field)?;
        let factor = self.factor();
        let problem = match number {
            Number::Whole(number) => match number.checked_mul(factor) {
                Some(count) => return Ok(count),
                None => LimitProblem::NumberTooLarge { max: Rate::COUNT_MAX },
            },
            Number::Fraction(fraction) => {
                let suggestion =
                    self.whole_rate(fraction, factor).filter(|_| field == Field::Count);
                LimitProblem::Fraction { suggestion }
            }
        };
        Err(self.error(&(start..self.tokens.at()), problem))
    }

    fn factor(&mut self) -> u64 {
        let token = self.tokens.peek();
        let factor = match self.tokens.text(&token) {
            "k" | "K" => 1_000,
            "M" => 1_000_000,
            _ => 1,
        };
        if factor == 1 || !self.tokens.is_adjacent(&token) {
            return 1;
        }
        self.tokens.skip(&token);
        factor
    }

    /// A rate whose count is a fraction, in whole numbers, if a period follows.
    fn whole_rate(&self, fraction: Fraction, factor: u64) -> Option<String> {
        let mut ahead = Self { tokens: self.tokens, ..Self::new(self.text) };
        ahead.skip_counted();
        ahead.separator().ok()?;
        fraction.as_rate(factor, ahead.period().ok()?)
    }

    /// `minute`, `3h` or `1m30s`; at most [`Span::MAX`], which no limit accepts.
    fn period(&mut self) -> Parsed<Span> {
        if !matches!(self.tokens.peek().kind, Kind::Number | Kind::Minus) {
            return Ok(self.unit()?.span);
        }
        let mut period = Span::ZERO;
        while matches!(self.tokens.peek().kind, Kind::Number | Kind::Minus) {
            period = period.plus(self.part_of_period()?);
        }
        Ok(period)
    }

    /// A number and a unit.
    fn part_of_period(&mut self) -> Parsed<Span> {
        let start = self.tokens.peek().range.start;
        let number = self.number(Field::Period)?;
        let unit = self.unit()?.span;
        match number {
            Number::Whole(number) => Ok(Span::from_micros(unit.as_micros().saturating_mul(number))),
            Number::Fraction(fraction) => {
                let suggestion = fraction.as_period(unit);
                let range = start..self.tokens.at();
                Err(self.error(&range, LimitProblem::Fraction { suggestion }))
            }
        }
    }

    fn unit(&mut self) -> Parsed<&'static Unit> {
        let token = self.tokens.peek();
        if token.kind != Kind::Word {
            return Err(self.error(&token.range, LimitProblem::UnitMissing));
        }
        self.tokens.skip(&token);
        unit::find(self.tokens.text(&token)).map_err(|problem| self.error(&token.range, problem))
    }

    fn number(&mut self, field: Field) -> Parsed<Number> {
        let minus = self.tokens.take(Kind::Minus);
        let token = self.tokens.peek();
        self.tokens.skip(&token);
        if let Some(minus) = minus {
            let range = minus.range.start..token.range.end;
            return Err(self.error(&range, LimitProblem::NegativeNumber));
        }
        if token.kind != Kind::Number {
            return Err(self.error(&token.range, LimitProblem::NumberMissing { field }));
        }
        Number::read(self.tokens.text(&token)).map_err(|problem| self.error(&token.range, problem))
    }
}
