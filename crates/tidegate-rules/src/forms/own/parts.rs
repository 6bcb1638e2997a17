//! A limit that is written as a mapping of its parts: each goes to its place in a [`LimitSpec`],
//! which decides whether they fit together.

use std::fmt;

use tidegate_core::Span;
use tidegate_core::calendar::Zone;

use super::limits::ready;
use super::names;
use super::places::{Written, within};
use crate::diagnostic::{Problems, quoted};
use crate::error::{LimitProblem, ParseLimitError};
use crate::read::{self, Fields};
use crate::rule::RuleLimit;
use crate::source::Place;
use crate::spec::{Algorithm, Alignment, Amount, Field, LimitSpec, SpecError};
use crate::text::parse_period;
use crate::tree::{Node, Value};
use crate::zones;

/// What a limit can have that is nothing by itself.
pub(super) const NAMES: [&str; 8] =
    ["algorithm", "burst", "refill", "align", "zone", "slots", "per_slot", "expires_after"];

/// The limit that the mapping `node` says.
pub(super) fn limit(node: &Node, problems: &mut Problems) -> Option<RuleLimit> {
    let errors_before = problems.errors();
    let mut parts = Parts { fields: Fields::of(node, "limit", problems)?, said: Vec::new() };
    let amount = parts.amount(problems);
    let algorithms = Algorithm::ALL.map(|algorithm| (algorithm.name(), algorithm));
    let algorithm = parts.word(Field::Algorithm, "algorithm", &algorithms, problems);
    let burst = parts.number(Field::Burst, "burst", problems);
    let refills = [("continuous", false), ("stepped", true)];
    let stepped = parts.word(Field::Stepped, "refill", &refills, problems).unwrap_or_default();
    let alignment = parts.alignment(problems);
    let slots = parts.slots(problems);
    let per_slot = parts.number(Field::PerSlot, "per_slot", problems);
    let expires_after = parts.expires_after(problems);
    let shown_as = parts.fields.take("shown_as").and_then(|node| names::shown(node, problems));
    let Parts { fields, said } = parts;
    fields.finish(problems);
    // With a part left out, the others would be checked as something that nobody wrote.
    let amount = amount.filter(|_| problems.errors() == errors_before)?;
    let spec =
        LimitSpec { amount, algorithm, burst, stepped, alignment, slots, per_slot, expires_after };
    match refused_default(&spec, &said).map_or_else(|| spec.build(), Err) {
        Ok(limit) => Some(ready(limit, shown_as)),
        Err(error) => {
            report(&error, &said, node.place, problems);
            None
        }
    }
}

/// A part that was written: what it says, its name, and where its value is.
type Said = (Field, &'static str, Place);

/// A mapping on its way to a limit.
struct Parts<'n> {
    fields: Fields<'n>,
    said: Vec<Said>,
}

impl<'n> Parts<'n> {
    fn take(&mut self, field: Field, name: &'static str) -> Option<&'n Node> {
        let node = self.fields.take(name)?;
        self.said.push((field, name, node.place));
        Some(node)
    }

    fn word<T: Copy>(
        &mut self,
        field: Field,
        name: &'static str,
        words: &[(&'static str, T)],
        problems: &mut Problems,
    ) -> Option<T> {
        self.take(field, name).and_then(|node| read::word(node, name, words, problems))
    }

    fn number(&mut self, field: Field, name: &'static str, problems: &mut Problems) -> Option<u64> {
        self.take(field, name).and_then(|node| read::number(node, name, problems))
    }

    /// How many: per period or at once, and one of the two.
    fn amount(&mut self, problems: &mut Problems) -> Option<Amount> {
        match (self.take(Field::Rate, "rate"), self.take(Field::Count, "at_once")) {
            (Some(node), None) => rate(node, problems),
            (None, Some(node)) => read::number(node, "at_once", problems).map(Amount::AtOnce),
            (Some(_), Some(node)) => {
                let error = problems.error(node.place, "`at_once` stands beside `rate`");
                error.help = Some("write them as two limits, in the list of `limits`".into());
                None
            }
            (None, None) => {
                let error = problems.error(self.fields.place(), "`rate` is missing");
                error.help = Some("write `rate: 10/minute`, or `at_once: 5`".into());
                None
            }
        }
    }

    fn slots(&mut self, problems: &mut Problems) -> Option<u32> {
        let node = self.take(Field::Slots, "slots")?;
        let slots = read::number(node, "slots", problems)?;
        // What does not fit is far beyond the most that there can be, and refused as such.
        Some(u32::try_from(slots).unwrap_or(u32::MAX))
    }

    fn expires_after(&mut self, problems: &mut Problems) -> Option<Span> {
        let node = self.take(Field::ExpiresAfter, "expires_after")?;
        parsed(node, "expires_after", parse_period, problems)
    }

    /// Where fixed windows begin. A time zone alone says that they follow the calendar.
    fn alignment(&mut self, problems: &mut Problems) -> Alignment {
        let calendar = || Alignment::Calendar(Zone::utc());
        let words = [
            ("clock", Align::Clock),
            ("calendar", Align::Calendar),
            ("first-request", Align::FirstRequest),
        ];
        let align = self.take(Field::Alignment, "align");
        let align = align.and_then(|node| read::word(node, "align", &words, problems));
        let Some(node) = self.take(Field::Alignment, "zone") else {
            return match align {
                Some(Align::Clock) | None => Alignment::Clock,
                Some(Align::Calendar) => calendar(),
                Some(Align::FirstRequest) => Alignment::FirstRequest,
            };
        };
        if matches!(align, Some(Align::Clock | Align::FirstRequest)) {
            let error = problems.error(node.place, "`zone` needs `align: calendar`");
            error.help = Some("write `align: calendar`, or leave `align` or `zone` out".into());
        }
        zone(node, problems).map_or_else(calendar, Alignment::Calendar)
    }
}

/// Where fixed windows begin, in one word.
#[derive(Clone, Copy)]
enum Align {
    Clock,
    Calendar,
    FirstRequest,
}

/// The text of `node` as what `parse` makes of it.
fn parsed<T>(
    node: &Node,
    what: &'static str,
    parse: impl FnOnce(&str) -> Result<T, ParseLimitError>,
    problems: &mut Problems,
) -> Option<T> {
    let Value::Scalar(scalar) = &node.value else {
        read::text(node, what, problems);
        return None;
    };
    match parse(&scalar.text) {
        Ok(value) => Some(value),
        Err(error) => {
            report_text(&Written::of(node.place, scalar), &error, problems);
            None
        }
    }
}

/// A count and a period, and nothing else, since the rest has its own fields here.
fn rate(node: &Node, problems: &mut Problems) -> Option<Amount> {
    let spec = parsed(node, "rate", str::parse::<LimitSpec>, problems)?;
    if matches!(spec.amount, Amount::AtOnce(_)) {
        let error = problems.error(node.place, "`rate` has no period");
        error.help = Some("write `at_once` in place of `rate` for so many at once".into());
        return None;
    }
    if spec != LimitSpec::from(spec.amount) {
        let message = "`rate` says more than a count and a period";
        let help = "write the rest as fields beside it, such as `burst: 50`";
        problems.error(node.place, message).help = Some(help.into());
        return None;
    }
    Some(spec.amount)
}

fn zone(node: &Node, problems: &mut Problems) -> Option<Zone> {
    let name = read::text(node, "zone", problems)?;
    if name.eq_ignore_ascii_case("utc") {
        return Some(Zone::utc());
    }
    let zone = zones::find(&name);
    if zone.is_none() {
        report_problem(node.place, &LimitProblem::UnknownZone, &quoted(&name), problems);
    }
    zone
}

/// An error about a part that is written out though it says the default, where the algorithm does
/// not have that part. `align: clock` on a bucket is a mistake about the algorithm.
fn refused_default(spec: &LimitSpec, said: &[Said]) -> Option<SpecError> {
    let is_said = |field| said.iter().any(|&(known, ..)| known == field);
    let mut probe = spec.clone();
    probe.stepped |= is_said(Field::Stepped);
    if is_said(Field::Alignment) && probe.alignment == Alignment::Clock {
        probe.alignment = Alignment::FirstRequest;
    }
    probe.build().err().filter(|error| matches!(error.problem, LimitProblem::NotFor { .. }))
}

/// Points at the part that is wrong.
fn report(error: &SpecError, said: &[Said], whole: Place, problems: &mut Problems) {
    let is_amount = matches!(error.field, Field::Count | Field::Period | Field::Rate);
    let is_meant = |field: Field| {
        field == error.field || is_amount && matches!(field, Field::Count | Field::Rate)
    };
    let found = said.iter().find(|&&(field, ..)| is_meant(field));
    let (name, place) =
        found.map_or((error.field.name(), whole), |&(_, name, place)| (name, place));
    report_problem(place, &error.problem, &format!("`{name}`"), problems);
}

/// What `error` says, at its place within `written`.
pub(super) fn report_text(written: &Written<'_>, error: &ParseLimitError, problems: &mut Problems) {
    let part = match error.part() {
        "" => "the end".to_owned(),
        part => format!("`{part}`"),
    };
    report_problem(within(written, error), error.problem(), &part, problems);
}

/// What is wrong with `part`, and apart from that what to do. The column is left out, which counts
/// from the beginning of the limit and would be taken for that of the file.
fn report_problem(place: Place, problem: &LimitProblem, part: &str, problems: &mut Problems) {
    let sentence = Sentence(problem).to_string();
    let separator = if matches!(problem, LimitProblem::Limit(_)) { "; " } else { ": " };
    let (message, help) = match sentence.split_once(separator) {
        Some((message, help)) => (message, Some(help)),
        None => (sentence.as_str(), None),
    };
    problems.error(place, message.replace(PART, part)).help =
        help.map(|help| help.replace(PART, part));
}

/// What stands for the part until the sentence is cut, since the part may look like a place to cut.
const PART: &str = "\0";

/// A sentence with [`PART`] in it.
struct Sentence<'a>(&'a LimitProblem);

impl fmt::Display for Sentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f, PART)
    }
}
