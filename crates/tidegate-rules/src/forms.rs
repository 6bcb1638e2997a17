//! Rule text of any spelling to a checked rule set: which spelling a document has, which domain it is
//! about, and what must hold across documents. What the spellings themselves say is in their own files.

use std::collections::BTreeMap;

use tidegate_core::Span;

use crate::diagnostic::{Problems, Report, quoted};
use crate::lint;
use crate::read::lacks_space;
use crate::rule::{Descriptor, Domain, RuleSet};
use crate::source::{Place, Source};
use crate::spelling::closest;
use crate::tree::{self, Key, Node, Value};

mod charges;
mod envoy;
mod own;
mod short;

/// The most rules that are in force together.
pub const RULES_MAX: usize = 1_000_000;

/// The periods that the short form and Envoy's know; months have 30 days there and years 365.
const UNITS: [(&str, Span); 7] = [
    ("second", Span::SECOND),
    ("minute", Span::MINUTE),
    ("hour", Span::HOUR),
    ("day", Span::DAY),
    ("week", Span::from_secs(7 * 86_400)),
    ("month", Span::from_secs(30 * 86_400)),
    ("year", Span::from_secs(365 * 86_400)),
];

/// What may differ from one reader of rules to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParseOptions {
    /// Whether documents in Envoy's spelling may add to each other's domains. Where not, which is the
    /// default there too, the second document of a domain is an error.
    pub merge_domains: bool,
}

/// Rules without an error in them.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The rules.
    pub rules: RuleSet,
    /// What is probably not meant.
    pub warnings: Report,
}

impl RuleSet {
    /// The rules of all `sources` together, or all that is wrong with them.
    ///
    /// ```
    /// use tidegate_rules::{ParseOptions, RuleSet, Source};
    ///
    /// let text = "{ domain: messaging, key: email, rate_limit: { unit: day, requests: 5 } }";
    /// let sources = [Source::new("rules.yaml", text)];
    /// let checked = RuleSet::parse(&sources, &ParseOptions::default())?;
    /// assert_eq!(checked.rules.domains()[0].rules[0].name, "email");
    /// assert!(checked.warnings.is_empty());
    ///
    /// let sources = [Source::new("rules.yaml", text.replace("unit", "unti"))];
    /// let report = RuleSet::parse(&sources, &ParseOptions::default()).unwrap_err();
    /// assert!(report.to_string().contains("did you mean `unit`?"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn parse(sources: &[Source], options: &ParseOptions) -> Result<Checked, Report> {
        let mut problems = Problems::new(sources);
        let mut draft = Draft::new(options.clone());
        for (index, source) in (0..).zip(sources) {
            for document in tree::documents(source, index, &mut problems) {
                read(&document, &mut draft, &mut problems);
            }
        }
        check_names(&draft.domains, &mut problems);
        check_count(&draft.domains, RULES_MAX, &mut problems);
        charges::check(&draft.domains, &mut problems);
        // Rules with errors in them are not what somebody wrote, and warnings about them would be false.
        if problems.has_errors() {
            return Err(problems.into_report(sources));
        }
        let rules = RuleSet { domains: draft.domains };
        lint::lint(&rules, &draft.places, &mut problems);
        Ok(Checked { rules, warnings: problems.into_report(sources) })
    }
}

/// How a document says its rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// `key` and `rate_limit`.
    Short,
    /// `descriptors`, as in the files of envoyproxy/ratelimit.
    Envoy,
    /// `rules`, Tidegate's own.
    Own,
}

/// The rules that were read so far.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    options: ParseOptions,
    domains: Vec<Domain>,
    /// Where each of them was first named.
    places: Vec<Place>,
    /// Where each domain is in `domains`, and where a document of Envoy's named it first.
    named: BTreeMap<String, (usize, Option<Place>)>,
    /// What takes the rules of a document whose domain may not have more.
    refused: Domain,
}

impl Draft {
    pub(crate) fn new(options: ParseOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// The domain that a document at `place` adds to. `None`, with an error, where that is no name.
    pub(crate) fn domain(
        &mut self,
        name: &str,
        place: Place,
        spelling: Spelling,
        problems: &mut Problems,
    ) -> Option<&mut Domain> {
        if name.is_empty() {
            problems.error(place, "`domain` is empty").help =
                Some("write the name that requests give, such as `api`".to_owned());
            return None;
        }
        if !self.named.contains_key(name) {
            self.named.insert(name.to_owned(), (self.domains.len(), None));
            self.places.push(place);
            self.domains.push(Domain { name: name.to_owned(), ..Domain::default() });
        }
        let (index, envoy) = self.named.get_mut(name)?;
        if spelling == Spelling::Envoy {
            match envoy {
                Some(first) if !self.options.merge_domains => {
                    let message = format!("the domain {} is already there", quoted(name));
                    let first = problems.locate(*first);
                    problems.error(place, message).help = Some(format!(
                        "put its descriptors in one document (the first is at {first}), or let \
                         domains be merged (`--merge-domains`, or `merge_domains` in the options)"
                    ));
                    // Its rules are read all the same, for the other mistakes in them.
                    self.refused = Domain { name: name.to_owned(), ..Domain::default() };
                    return Some(&mut self.refused);
                }
                Some(_) => {}
                None => *envoy = Some(place),
            }
        }
        self.domains.get_mut(*index)
    }
}

/// Reads a document, or each of a list of documents.
fn read(document: &Node, draft: &mut Draft, problems: &mut Problems) {
    match &document.value {
        Value::List(items) => {
            for item in items {
                read_one(item, draft, problems);
            }
        }
        Value::Null | Value::Scalar(_) | Value::Map(_) => read_one(document, draft, problems),
    }
}

fn read_one(document: &Node, draft: &mut Draft, problems: &mut Problems) {
    let Value::Map(entries) = &document.value else {
        let help = if lacks_space(&document.value) { SPACE_HELP } else { EXPECTED_HELP };
        problems.error(document.place, "a document must be a mapping").help = Some(help.to_owned());
        return;
    };
    match spelling(entries, document.place, problems) {
        Some(Spelling::Short) => short::read(document, draft, problems),
        Some(Spelling::Envoy) => envoy::read(document, draft, problems),
        Some(Spelling::Own) => own::read(document, draft, problems),
        None => {}
    }
}

/// The field that each spelling has and no other.
const SPELLINGS: [(&str, Spelling); 3] =
    [("rules", Spelling::Own), ("descriptors", Spelling::Envoy), ("key", Spelling::Short)];
/// The fields that say nothing about the spelling.
const COMMON: [&str; 2] = ["domain", "$schema"];
const SPACE_HELP: &str = "put a space behind the colon";
const EXPECTED_HELP: &str = "write `domain` and one of `rules` (a list of rules), `descriptors` (as in \
    Envoy's files) or `key` (with `rate_limit`)";

/// The spelling of a document with these fields.
fn spelling(entries: &[(Key, Node)], place: Place, problems: &mut Problems) -> Option<Spelling> {
    let find = |name: &str| entries.iter().find(|(key, _)| key.text == name);
    let mut found = SPELLINGS
        .iter()
        .filter_map(|&(name, spelling)| find(name).map(|(key, _)| (name, spelling, key.place)));
    if let Some((name, spelling, _)) = found.next() {
        let Some((other, _, place)) = found.next() else {
            return Some(spelling);
        };
        problems.error(place, format!("`{name}` and `{other}` cannot be in one document")).help =
            Some("write two documents with a line `---` between them".to_owned());
        return None;
    }
    match entries {
        [(key, _)] if key.text == "domain" => Some(Spelling::Envoy),
        // Its reader says what is missing.
        _ if find("rate_limit").is_some() => Some(Spelling::Short),
        _ => {
            report_no_spelling(entries, place, problems);
            None
        }
    }
}

/// Reports every field that is none of any spelling, or what is missing where none is meant for it.
fn report_no_spelling(entries: &[(Key, Node)], place: Place, problems: &mut Problems) {
    let known = || SPELLINGS.iter().map(|&(name, _)| name).chain(COMMON);
    let unknown = entries.iter().filter(|(key, _)| known().all(|name| name != key.text));
    let meant: Vec<(&Key, Option<&str>)> =
        unknown.map(|(key, _)| (key, closest(&key.text, known()))).collect();
    let is_spelling =
        |&(_, meant): &(&Key, Option<&str>)| SPELLINGS.iter().any(|&(name, _)| meant == Some(name));
    let says_spelling = meant.iter().any(is_spelling);
    for (key, name) in meant {
        let help = match name {
            Some(name) => format!("did you mean `{name}`?"),
            None if says_spelling => EXPECTED_HELP.to_owned(),
            // It may be what the spelling is missing in, which is told once.
            None => continue,
        };
        problems.error(key.place, format!("unknown field {}", quoted(&key.text))).help = Some(help);
    }
    if !says_spelling {
        problems.error(place, "expected `rules`, `descriptors` or `key`").help =
            Some(EXPECTED_HELP.to_owned());
    }
}

/// Reports a set with more rules than `rules_max`, counting every descriptor as one.
fn check_count(domains: &[Domain], rules_max: usize, problems: &mut Problems) {
    fn levels(descriptors: &[Descriptor]) -> usize {
        descriptors.iter().map(|level| 1 + levels(&level.children)).sum()
    }
    let of = |domain: &Domain| domain.rules.len() + levels(&domain.descriptors);
    let count: usize = domains.iter().map(of).sum();
    if count > rules_max {
        // It is about no source more than about the others.
        let place = Place { source: u32::MAX, ..Place::default() };
        let help = format!(
            "a set has at most {rules_max}; use `tiers` or `overrides` for numbers that differ by key"
        );
        problems.error(place, format!("{count} rules are too many")).help = Some(help);
    }
}

/// Reports rules that have the name of another one in their domain.
fn check_names(domains: &[Domain], problems: &mut Problems) {
    for domain in domains {
        let mut first: BTreeMap<&str, Place> = BTreeMap::new();
        for rule in &domain.rules {
            if let Some(&place) = first.get(rule.name.as_str()) {
                let (name, domain) = (quoted(&rule.name), quoted(&domain.name));
                let first = problems.locate(place);
                problems
                    .error(rule.place, format!("the domain {domain} has two rules named {name}"))
                    .help = Some(format!("give one another name; the first is at {first}"));
            } else {
                first.insert(&rule.name, rule.place);
            }
        }
    }
}

#[cfg(test)]
mod tests;
