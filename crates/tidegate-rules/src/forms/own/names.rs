//! Names that rules give: of rules, of attributes, and those that clients see. What each may look
//! like is decided here, and for attributes in `attribute`, since requests name them too.

use crate::attribute::{ATTRIBUTE_CHARS_MAX, is_attribute_name, is_of_a_name};
use crate::diagnostic::Problems;
use crate::read;
use crate::tree::Node;

use super::one_or_several;

/// The most attributes that one rule counts by.
pub(crate) const PER_MAX: usize = 8;
/// The longest name of a rule, and the longest that clients see.
pub(crate) const NAME_CHARS_MAX: usize = 128;

/// The name of a rule.
pub(super) fn rule(node: &Node, problems: &mut Problems) -> Option<String> {
    let name = read::text(node, "name", problems)?;
    let message = if name.is_empty() {
        "the name of a rule is empty"
    } else if name.chars().count() > NAME_CHARS_MAX {
        "the name of a rule is too long"
    } else if !is_printable(&name) {
        "the name of a rule has characters that cannot be printed"
    } else {
        return Some(name);
    };
    let help = format!("use 1 to {NAME_CHARS_MAX} printable characters");
    problems.error(node.place, message).help = Some(help);
    None
}

/// Whether nothing in `name` would be invisible or disturb a terminal or a log.
fn is_printable(name: &str) -> bool {
    // These are printable, and escaped only for the sake of Rust's own syntax.
    let rest: String = name.chars().filter(|c| !matches!(c, '\'' | '"' | '\\')).collect();
    rest.escape_debug().eq(rest.chars())
}

/// A name that clients see. It becomes a string of an HTTP structured field, and such strings are
/// ASCII; the two characters that would need escapes there are left out, since many clients do not
/// know escapes.
pub(super) fn shown(node: &Node, problems: &mut Problems) -> Option<String> {
    let name = read::text(node, "shown_as", problems)?;
    let fits = |c: char| matches!(c, ' '..='~') && c != '"' && c != '\\';
    if (1..=NAME_CHARS_MAX).contains(&name.chars().count()) && name.chars().all(fits) {
        return Some(name);
    }
    let help =
        format!("use 1 to {NAME_CHARS_MAX} printable ASCII characters without `\"` and `\\`");
    problems.error(node.place, "`shown_as` cannot be sent to clients").help = Some(help);
    None
}

/// The name of an attribute that stands as a value.
pub(super) fn attribute(node: &Node, what: &str, problems: &mut Problems) -> Option<String> {
    let name = read::text(node, what, problems)?;
    is_attribute(&name, node.place, problems).then_some(name)
}

/// Whether `name` can be that of an attribute; an error at `place` where it cannot.
pub(super) fn is_attribute(name: &str, place: crate::Place, problems: &mut Problems) -> bool {
    if is_attribute_name(name) {
        return true;
    }
    let message = if name.is_empty() {
        "the name of an attribute is empty".to_owned()
    } else if name.chars().all(is_of_a_name) {
        "the name of an attribute is too long".to_owned()
    } else {
        format!("`{}` is not the name of an attribute", name.escape_debug())
    };
    let help = format!("use 1 to {ATTRIBUTE_CHARS_MAX} letters, digits, `_`, `-`, `.` and `:`");
    problems.error(place, message).help = Some(help);
    false
}

/// The attributes that a rule counts by: one, or a list. `None` where any of them is unusable, so
/// that nobody compares with what is left.
pub(super) fn per(node: &Node, problems: &mut Problems) -> Option<Vec<String>> {
    let nodes = one_or_several(node);
    if let Some(extra) = nodes.get(PER_MAX) {
        let help = format!("count by at most {PER_MAX}");
        problems.error(extra.place, "too many attributes in `per`").help = Some(help);
        return None;
    }
    let mut names: Vec<String> = Vec::with_capacity(nodes.len());
    let mut all = true;
    for node in nodes {
        match attribute(node, "per", problems) {
            Some(name) if names.contains(&name) => {
                let message = format!("`{name}` is twice in `per`");
                problems.error(node.place, message).help = Some("name it once".into());
                all = false;
            }
            Some(name) => names.push(name),
            None => all = false,
        }
    }
    all.then_some(names)
}
