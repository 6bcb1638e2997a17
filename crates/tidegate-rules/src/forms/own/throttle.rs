//! How much a request takes, when it counts, and how strictly the limits are kept.

use super::names;
use super::one_or_several;
use super::overrides::entries;
use crate::diagnostic::{Problems, quoted};
use crate::read::{self, Fields};
use crate::rule::{Cost, Elastic, Percent, Pressure, Priority, Statuses};
use crate::tree::{Node, Value};

/// The most that one request can take.
pub(crate) const COST_MAX: u64 = tidegate_core::Rate::COUNT_MAX;
/// The most that `soft` adds, and that `elastic` allows.
pub(crate) const PERCENT_MAX: u32 = 1_000;

/// `5`, or `{attribute: bytes, default: 1}`
pub(super) fn cost(node: &Node, problems: &mut Problems) -> Option<Cost> {
    let Value::Map(_) = node.value else {
        return cost_number(node, "cost", 1, problems).map(Cost::Number);
    };
    let mut fields = Fields::of(node, "cost", problems)?;
    let name = fields.require("attribute", problems);
    let name = name.and_then(|node| names::attribute(node, "attribute", problems));
    let default = match fields.take("default") {
        Some(node) => cost_number(node, "default", 0, problems),
        None => Some(1),
    };
    fields.finish(problems);
    Some(Cost::Attribute { name: name?, default: default? })
}

/// A request of which nothing is known may be free, but a rule that charges nothing is a mistake.
fn cost_number(node: &Node, what: &str, min: u64, problems: &mut Problems) -> Option<u64> {
    let number = read::number(node, what, problems)?;
    if (min..=COST_MAX).contains(&number) {
        return Some(number);
    }
    let error = problems.error(node.place, format!("`{what}` is out of range"));
    error.help = Some(format!("use {min} to {COST_MAX}"));
    None
}

/// `10%`
pub(super) fn soft(node: &Node, problems: &mut Problems) -> Option<Percent> {
    percent(node, "soft", 1, PERCENT_MAX, problems)
}

/// `{up_to: 150%, while_pressure_below: 0.7}`
pub(super) fn elastic(node: &Node, problems: &mut Problems) -> Option<Elastic> {
    let mut fields = Fields::of(node, "elastic", problems)?;
    let up_to = fields.require("up_to", problems);
    let up_to = up_to.and_then(|node| percent(node, "up_to", 100, PERCENT_MAX, problems));
    let below = fields.require("while_pressure_below", problems);
    let below = below.and_then(|node| pressure(node, problems));
    fields.finish(problems);
    Some(Elastic { up_to: up_to?, while_pressure_below: below? })
}

/// `{by: class, reserve: {critical: 20%}}`
pub(super) fn priority(node: &Node, problems: &mut Problems) -> Option<Priority> {
    let mut fields = Fields::of(node, "priority", problems)?;
    let by = fields.require("by", problems);
    let by = by.and_then(|node| names::attribute(node, "by", problems));
    let reserve = fields.require("reserve", problems);
    fields.finish(problems);
    let node = reserve?;
    let entries = entries(node, "reserve", problems)?;
    let share = |(key, node): &(crate::tree::Key, Node)| {
        Some((key.text.clone(), percent(node, "reserve", 1, 99, problems)?))
    };
    let reserve: Vec<(String, Percent)> = entries.iter().filter_map(share).collect();
    let total: u64 = reserve.iter().map(|(_, share)| u64::from(share.0)).sum();
    if total >= 100 {
        let message = format!("{total}% are reserved, which leaves nothing for other requests");
        problems.error(node.place, message).help = Some("reserve less than 100% in all".into());
    }
    Some(Priority { by: by?, reserve })
}

/// A whole number with `%`, so that nobody wonders whether `0.1` or `10` is a tenth.
fn percent(
    node: &Node,
    what: &str,
    min: u32,
    max: u32,
    problems: &mut Problems,
) -> Option<Percent> {
    let text = read::text(node, what, problems)?;
    let digits = text.strip_suffix('%').filter(|digits| is_digits(digits));
    let Some(digits) = digits else {
        let error = problems.error(node.place, format!("{} is not a percentage", quoted(&text)));
        let whole = if is_digits(&text) && text.len() <= 4 { &text } else { "10" };
        error.help = Some(format!("write a whole number with `%`, such as `{whole}%`"));
        return None;
    };
    // Digits fail to be a number only where there are too many of them.
    let number = digits.parse().unwrap_or(u32::MAX);
    if (min..=max).contains(&number) {
        return Some(Percent(number));
    }
    let error = problems.error(node.place, format!("`{what}` is out of range"));
    error.help = Some(format!("use {min}% to {max}%"));
    None
}

/// A decimal number above 0 and at most 1.
fn pressure(node: &Node, problems: &mut Problems) -> Option<Pressure> {
    let text = read::text(node, "while_pressure_below", problems)?;
    let pressure = millionths(&text).and_then(Pressure::from_millionths);
    let pressure = pressure.filter(|pressure| *pressure > Pressure::NONE);
    if pressure.is_none() {
        let message = "`while_pressure_below` must be above 0 and at most 1";
        let help = "write a decimal number such as `0.7`, with at most 6 digits behind the point";
        problems.error(node.place, message).help = Some(help.into());
    }
    pressure
}

/// A decimal number in millionths, exactly; `None` where that cannot be or it is far too large.
fn millionths(text: &str) -> Option<u32> {
    const PLACES: usize = 6;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if !is_digits(whole) || !is_digits(fraction) || fraction.len() > PLACES {
        return None;
    }
    format!("{whole}{fraction:0<PLACES$}").parse().ok()
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// `[401, 5xx, 500-599]`, or one of them.
pub(super) fn statuses(node: &Node, problems: &mut Problems) -> Vec<Statuses> {
    let nodes = one_or_several(node);
    if nodes.is_empty() {
        let error = problems.error(node.place, "`statuses` is empty");
        error.help = Some("say which responses count, such as `[401, 403]`".into());
    }
    nodes.iter().filter_map(|node| status_range(node, problems)).collect()
}

fn status_range(node: &Node, problems: &mut Problems) -> Option<Statuses> {
    let text = read::text(node, "statuses", problems)?;
    match text.parse::<Statuses>() {
        Ok(range) => Some(range),
        Err(error) => {
            let message = format!("{} is not a status or a range of them", quoted(&text));
            problems.error(node.place, message).help = Some(error.to_string());
            None
        }
    }
}
