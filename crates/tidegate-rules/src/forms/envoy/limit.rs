//! What stands in `rate_limit`.

use tidegate_core::fixed_window::Windows;
use tidegate_core::{FixedWindow, LimitError, Span};

use super::{Home, finish};
use crate::canonical::describe;
use crate::diagnostic::{Problems, quoted};
use crate::forms::UNITS;
use crate::read::{Fields, boolean, list, number, text, word};
use crate::rule::{Quota, RuleLimit};
use crate::source::Place;
use crate::tree::{Node, Value};

/// The limit of a level.
pub(super) struct Limit {
    pub(super) quota: Quota,
    /// What others call it that replace it.
    pub(super) name: Option<String>,
    /// What clients see.
    pub(super) shown_as: Option<String>,
    pub(super) replaces: Vec<String>,
}

/// The largest number that the format has room for.
const NUMBER_MAX: u64 = u32::MAX as u64;

/// Reads the mapping of a limit.
pub(super) fn read(node: &Node, problems: &mut Problems) -> Option<Limit> {
    let mut fields = Fields::of(node, "rate_limit", problems)?;
    let parts = Parts {
        place: fields.place(),
        unit: fields.take("unit"),
        requests: fields.take("requests_per_unit"),
        multiplier: fields.take("unit_multiplier"),
    };
    let unlimited = fields.take("unlimited");
    let name = fields.take("name");
    let replaces = fields.take("replaces");

    let name = name.and_then(|node| Some((text(node, "name", problems)?, node.place)));
    let name = name.filter(|(name, _)| !name.is_empty());
    let shown_as = name.as_ref().and_then(|(name, place)| shown(name, *place, problems));
    let name = name.map(|(name, _)| name);
    let replaces =
        replaces.map_or_else(Vec::new, |node| read_replaces(node, name.as_deref(), problems));
    let unlimited = unlimited.and_then(|node| boolean(node, "unlimited", problems));
    let quota = if unlimited == Some(true) {
        parts.refuse(problems);
        Some(Quota::Unlimited)
    } else {
        parts.quota(problems)
    };
    // Behind the rest, since a field with a wrong name is not missing.
    finish(fields, node, Home::Limit, problems);
    Some(Limit { quota: quota?, name, shown_as, replaces })
}

/// The name, if a header can have it.
fn shown(name: &str, place: Place, problems: &mut Problems) -> Option<String> {
    let is_showable = |c: char| matches!(c, ' '..='~') && !matches!(c, '"' | '\\');
    if name.chars().all(is_showable) {
        return Some(name.to_owned());
    }
    problems.warning(place, "clients are not shown this name").help =
        Some("use printable ASCII without `\"` and `\\`".to_owned());
    None
}

fn read_replaces(node: &Node, own: Option<&str>, problems: &mut Problems) -> Vec<String> {
    let mut names = Vec::new();
    for item in list(node, "replaces", problems).unwrap_or_default() {
        if let Value::Scalar(name) = &item.value {
            let message = "an entry of `replaces` must be a mapping, not text";
            problems.error(item.place, message).help =
                Some(format!("write {}", quoted(&format!("name: {}", name.text))));
            continue;
        }
        let Some(mut fields) = Fields::of(item, "an entry of `replaces`", problems) else {
            continue;
        };
        let name = fields.require("name", problems);
        finish(fields, item, Home::Replaces, problems);
        let Some((name, place)) =
            name.and_then(|node| Some((text(node, "name", problems)?, node.place)))
        else {
            continue;
        };
        if name.is_empty() {
            problems.error(place, "`name` is empty").help =
                Some("write the name of the limit that is replaced".to_owned());
        } else if Some(name.as_str()) == own {
            let message = format!("the limit {} cannot replace itself", quoted(&name));
            problems.error(place, message).help =
                Some("write the name of another limit".to_owned());
        } else {
            names.push(name);
        }
    }
    names
}

/// What says how many per period.
struct Parts<'n> {
    place: Place,
    unit: Option<&'n Node>,
    requests: Option<&'n Node>,
    multiplier: Option<&'n Node>,
}

impl Parts<'_> {
    /// Reports what does not go together with `unlimited`.
    fn refuse(&self, problems: &mut Problems) {
        let is_unit = |node: &&Node| word(node, "unit", &UNITS, &mut Problems::default()).is_some();
        if let Some(unit) = self.unit.filter(is_unit) {
            problems.error(unit.place, "`unit` and `unlimited: true` cannot stand together").help =
                Some("remove one of them".to_owned());
        }
        let ignored = [
            ("unit", self.unit.filter(|node| !is_unit(node))),
            ("requests_per_unit", self.requests),
            ("unit_multiplier", self.multiplier),
        ];
        for (name, node) in ignored {
            if let Some(node) = node {
                let message = format!("`{name}` has no effect beside `unlimited: true`");
                problems.warning(node.place, message).help = Some("remove it".to_owned());
            }
        }
    }

    fn quota(&self, problems: &mut Problems) -> Option<Quota> {
        let unit = self.unit.and_then(|node| word(node, "unit", &UNITS, problems));
        if self.unit.is_none() {
            problems.error(self.place, "`unit` is missing").help =
                Some("write a period, such as `unit: minute`, or `unlimited: true`".to_owned());
        }
        let count = self.count(problems);
        let multiplier = self.multiplier(problems);
        let (unit, count, multiplier) = (unit?, count?, multiplier?);
        let period = Span::from_micros(unit.as_micros().saturating_mul(multiplier));
        match FixedWindow::new(count.max(1), Windows::Clock(period)) {
            Ok(_) if count == 0 => Some(Quota::Nothing),
            Ok(window) => {
                let limit = window.into();
                let text = describe(&limit);
                Some(Quota::Limits(vec![RuleLimit { limit, text, shown_as: None }]))
            }
            Err(error) => {
                let node = match error {
                    LimitError::PeriodTooLong { .. } => self.multiplier.or(self.unit),
                    _ => self.requests,
                };
                problems.error(node.map_or(self.place, |node| node.place), error.to_string());
                None
            }
        }
    }

    /// How many; none at all where nothing is said, as it is there.
    fn count(&self, problems: &mut Problems) -> Option<u64> {
        let Some(node) = self.requests else {
            let message = "`requests_per_unit` is missing, so that nothing passes";
            problems.warning(self.place, message).help =
                Some("write how many, or `requests_per_unit: 0` if this is meant".to_owned());
            return Some(0);
        };
        bounded(node, "requests_per_unit", 0, problems)
    }

    fn multiplier(&self, problems: &mut Problems) -> Option<u64> {
        self.multiplier.map_or(Some(1), |node| bounded(node, "unit_multiplier", 1, problems))
    }
}

fn bounded(node: &Node, what: &str, min: u64, problems: &mut Problems) -> Option<u64> {
    let number = number(node, what, problems)?;
    if (min..=NUMBER_MAX).contains(&number) {
        return Some(number);
    }
    problems.error(node.place, format!("`{what}` is out of range")).help =
        Some(format!("use {min} to {NUMBER_MAX}"));
    None
}
