//! Other limits than the rule's own: for the values of an attribute, and for single keys.

use std::collections::HashSet;

use jiff::civil::Date;
use jiff::tz::Offset;
use tidegate_core::Timestamp;

use super::limits::Scope;
use super::names;
use crate::diagnostic::{Problems, quoted};
use crate::read::{self, Fields};
use crate::rule::{Override, Quota, Tiers};
use crate::source::Place;
use crate::spelling;
use crate::tree::{Key, Node, Value};

/// The most overrides of one rule.
pub(crate) const OVERRIDES_MAX: usize = 100_000;
/// What stands between the attributes of a key.
const SEPARATOR: &str = ", ";

/// `{by: plan, limits: {pro: 100/minute}}`
pub(super) fn tiers(node: &Node, scope: Scope<'_>, problems: &mut Problems) -> Option<Tiers> {
    let mut fields = Fields::of(node, "tiers", problems)?;
    let by = fields.require("by", problems);
    let by = by.and_then(|node| names::attribute(node, "by", problems));
    let limits = fields.require("limits", problems);
    fields.finish(problems);
    let entries = entries(limits?, "limits", problems)?;
    let quotas: Vec<(String, Quota)> = entries
        .iter()
        .filter_map(|(key, node)| Some((key.text.clone(), scope.quota(node, problems)?)))
        .collect();
    Some(Tiers { by: by?, quotas })
}

/// The entries of a mapping whose keys are values; at least one.
pub(super) fn entries<'n>(
    node: &'n Node,
    what: &str,
    problems: &mut Problems,
) -> Option<&'n [(Key, Node)]> {
    match &node.value {
        Value::Map(entries) if entries.is_empty() => {
            problems.error(node.place, format!("`{what}` is empty")).help =
                Some("write at least one entry, or leave it out".into());
            None
        }
        Value::Map(entries) => Some(entries),
        Value::Null | Value::Scalar(_) | Value::List(_) => {
            // Says that it is no mapping.
            Fields::of(node, what, problems);
            None
        }
    }
}

/// Overrides by the text of their keys, or as a list. `per` is `None` where it has a mistake, and
/// keys cannot be compared with it.
pub(super) fn read(
    node: &Node,
    per: Option<&[String]>,
    scope: Scope<'_>,
    problems: &mut Problems,
) -> Vec<Override> {
    if per.is_some_and(<[String]>::is_empty) {
        let error = problems.error(node.place, "`overrides` needs `per`");
        error.help =
            Some("name the attributes that the rule counts by, as in `per: [user]`".into());
        return Vec::new();
    }
    let mut reader = Reader { per, scope, seen: HashSet::new(), overrides: Vec::new() };
    match &node.value {
        Value::List(nodes) if fit(nodes.len(), node.place, problems) => {
            for node in nodes {
                reader.listed(node, problems);
            }
        }
        Value::Map(entries) if fit(entries.len(), node.place, problems) => {
            for (key, node) in entries {
                reader.keyed(key, node, problems);
            }
        }
        Value::List(_) | Value::Map(_) => {}
        Value::Null | Value::Scalar(_) => {
            let error = problems.error(node.place, "`overrides` must be a mapping or a list");
            error.help =
                Some("write a limit for each key, such as `\"user=42\": 1000/minute`".into());
        }
    }
    reader.overrides
}

/// Whether so many overrides are within bounds.
fn fit(count: usize, place: Place, problems: &mut Problems) -> bool {
    if count > OVERRIDES_MAX {
        let help = format!("a rule has at most {OVERRIDES_MAX}; `tiers` has no such bound");
        problems.error(place, "too many overrides").help = Some(help);
    }
    count <= OVERRIDES_MAX
}

/// The overrides of one rule, as they are read.
struct Reader<'r> {
    per: Option<&'r [String]>,
    scope: Scope<'r>,
    seen: HashSet<Vec<String>>,
    overrides: Vec<Override>,
}

impl Reader<'_> {
    /// `"user=42": 1000/minute`
    fn keyed(&mut self, key: &Key, node: &Node, problems: &mut Problems) {
        let pairs = pairs_of(key, problems);
        let values = pairs.and_then(|pairs| self.values(&pairs, key.place, problems));
        let quota = if is_long_form(node) {
            Fields::of(node, "an override", problems).and_then(|fields| self.rest(fields, problems))
        } else {
            self.scope.quota(node, problems).map(|quota| (quota, None))
        };
        self.add(values, key.place, quota, problems);
    }

    /// `{for: {user: "42"}, limit: 1000/minute}`
    fn listed(&mut self, node: &Node, problems: &mut Problems) {
        let Some(mut fields) = Fields::of(node, "an override", problems) else { return };
        let whom = fields.require("for", problems);
        let place = whom.map_or(node.place, |node| node.place);
        let entries = whom.and_then(|node| entries(node, "for", problems));
        let values = entries.and_then(|entries| {
            let pair = |(key, node): &(Key, Node)| {
                Some((key.text.clone(), key.place, read::text(node, &key.text, problems)?))
            };
            let pairs: Option<Vec<Pair>> = entries.iter().map(pair).collect();
            self.values(&pairs?, place, problems)
        });
        let quota = self.rest(fields, problems);
        self.add(values, place, quota, problems);
    }

    /// What the override allows, and until when.
    fn rest(
        &self,
        mut fields: Fields<'_>,
        problems: &mut Problems,
    ) -> Option<(Quota, Option<Timestamp>)> {
        let quota = self.scope.quota_of(&mut fields, problems);
        let expires = fields.take("expires").and_then(|node| expires(node, problems));
        fields.finish(problems);
        Some((quota?, expires))
    }

    fn add(
        &mut self,
        values: Option<Vec<String>>,
        place: Place,
        quota: Option<(Quota, Option<Timestamp>)>,
        problems: &mut Problems,
    ) {
        let Some(values) = values else { return };
        if !self.seen.insert(values.clone()) {
            let error = problems.error(place, "there is another override for this key");
            error.help = Some("keep one of them".into());
            return;
        }
        if let Some((quota, expires)) = quota {
            self.overrides.push(Override { values, quota, expires });
        }
    }

    /// The values in the order of `per`, if `pairs` names each of its attributes once.
    fn values(&self, pairs: &[Pair], place: Place, problems: &mut Problems) -> Option<Vec<String>> {
        let per = self.per?;
        let mut all = true;
        for (index, (name, place, _)) in pairs.iter().enumerate() {
            if !per.contains(name) {
                all = false;
                let error =
                    problems.error(*place, format!("the rule does not count by {}", quoted(name)));
                error.help = Some(match spelling::closest(name, per.iter().map(String::as_str)) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => format!("its `per` is {}", per.join(SEPARATOR)),
                });
            } else if pairs[..index].iter().any(|(other, ..)| other == name) {
                all = false;
                let error = problems.error(*place, format!("`{name}` is twice in this key"));
                error.help = Some("name it once".into());
            }
        }
        let value = |name: &String| pairs.iter().find(|pair| pair.0 == *name).map(|pair| &pair.2);
        let missing: Vec<&str> =
            per.iter().filter(|name| value(name).is_none()).map(String::as_str).collect();
        if all && !missing.is_empty() {
            let message = format!("`{}` is missing in this key", missing.join("`, `"));
            let example: Vec<String> = per.iter().map(|name| format!("{name}=…")).collect();
            let help = format!("write `\"{}\"`", example.join(SEPARATOR));
            problems.error(place, message).help = Some(help);
        }
        per.iter().map(|name| value(name).cloned()).collect::<Option<_>>().filter(|_| all)
    }
}

/// The name of an attribute, where it is, and its value.
type Pair = (String, Place, String);

/// The attributes in the text of a key. A value with the separator in it can be written only in
/// the other form, so that no text can be read in two ways.
fn pairs_of(key: &Key, problems: &mut Problems) -> Option<Vec<Pair>> {
    let mut pairs = Vec::new();
    for part in key.text.split(SEPARATOR) {
        let Some((name, value)) = part.split_once('=') else {
            let error = problems
                .error(key.place, format!("expected `attribute=value`, found {}", quoted(part)));
            error.help = Some(
                "write a key such as `\"user=42\"`; a value with a comma and a space in it goes \
                 into a list: `- for: { user: \"a, b\" }`"
                    .into(),
            );
            return None;
        };
        pairs.push((name.to_owned(), key.place, value.to_owned()));
    }
    Some(pairs)
}

/// Whether it is a mapping with a limit in it, and not a mapping that is a limit.
fn is_long_form(node: &Node) -> bool {
    let is_of_override = |key: &Key| ["limit", "limits", "expires"].contains(&key.text.as_str());
    matches!(&node.value, Value::Map(entries) if entries.iter().any(|(key, _)| is_of_override(key)))
}

/// A point in time, or a date, which means its first moment in UTC.
fn expires(node: &Node, problems: &mut Problems) -> Option<Timestamp> {
    let text = read::text(node, "expires", problems)?;
    let moment = match midnight(&text) {
        Some(moment) => Some(moment),
        None => text.parse::<jiff::Timestamp>().ok(),
    };
    let Some(moment) = moment else {
        let message = format!("{} is not a time", quoted(&text));
        let help = "write a date such as `2030-12-31`, which is its midnight in UTC, or a time such \
                    as `2030-12-31T18:00:00Z`";
        problems.error(node.place, message).help = Some(help.into());
        return None;
    };
    let micros = u64::try_from(moment.as_microsecond()).ok();
    if micros.is_none() {
        let error = problems.error(node.place, format!("{} is before 1970", quoted(&text)));
        error.help = Some("leave out what has expired".into());
    }
    micros.map(Timestamp::from_micros)
}

/// The beginning of the day that `text` is the date of.
fn midnight(text: &str) -> Option<jiff::Timestamp> {
    // The parser of dates would take a time without an offset for its date, and leave the rest out.
    const DATE_BYTES: usize = "2030-12-31".len();
    let date: Date = text.parse().ok().filter(|_| text.len() == DATE_BYTES)?;
    Offset::UTC.to_timestamp(date.to_datetime(jiff::civil::Time::midnight())).ok()
}
