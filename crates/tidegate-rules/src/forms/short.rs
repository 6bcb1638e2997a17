//! The short form: one attribute whose values are counted separately, and how many per period.
//!
//! ```yaml
//! domain: messaging
//! key: email
//! rate_limit: { unit: day, requests: 5 }
//! ```
//!
//! It can say nothing else: whoever needs more writes `rules`.

use tidegate_core::fixed_window::Windows;
use tidegate_core::{FixedWindow, Limit};

use super::{Draft, Spelling, UNITS};
use crate::canonical::describe;
use crate::diagnostic::Problems;
use crate::read::{Fields, number, text, word};
use crate::rule::{Quota, Rule, RuleLimit};
use crate::tree::Node;

/// Adds the rule of a document in this form.
pub(crate) fn read(document: &Node, draft: &mut Draft, problems: &mut Problems) {
    let Some(mut fields) = Fields::of(document, "a document", problems) else {
        return;
    };
    // Editors look here for the schema of a JSON file.
    fields.take("$schema");
    let domain = fields.require("domain", problems);
    let key = fields.require("key", problems);
    let limit = fields.require("rate_limit", problems);
    fields.finish(problems);

    let limit = limit.and_then(|node| read_limit(node, problems));
    let key = key.and_then(|node| Some((text(node, "key", problems)?, node.place)));
    let domain = domain.and_then(|node| {
        draft.domain(&text(node, "domain", problems)?, node.place, Spelling::Short, problems)
    });
    let (Some(domain), Some((key, place)), Some(limit)) = (domain, key, limit) else {
        return;
    };
    if key.is_empty() {
        problems.error(place, "`key` is empty").help =
            Some("write the attribute whose values are counted, such as `user`".to_owned());
        return;
    }
    let text = describe(&limit);
    let mut rule = Rule::new(key.clone(), place);
    rule.per = vec![key];
    rule.quota = Quota::Limits(vec![RuleLimit { limit, text, shown_as: None }]);
    domain.rules.push(rule);
}

/// `{ unit: day, requests: 5 }`: a fixed window that begins with the clock's.
fn read_limit(node: &Node, problems: &mut Problems) -> Option<Limit> {
    let mut fields = Fields::of(node, "rate_limit", problems)?;
    let unit = fields.require("unit", problems);
    let requests = fields.require("requests", problems);
    fields.finish(problems);

    let period = unit.and_then(|node| word(node, "unit", &UNITS, problems));
    let requests = requests?;
    let count = number(requests, "requests", problems);
    match FixedWindow::new(count?, Windows::Clock(period?)) {
        Ok(window) => Some(window.into()),
        Err(error) => {
            problems.error(requests.place, error.to_string()).help =
                Some(if count == Some(0) { "use 1 or more" } else { "use less" }.to_owned());
            None
        }
    }
}
