//! `tidegate rules diff`: what changes from one set of rules to another, and what that does to what
//! has been counted.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};
use tidegate_rules::diff::{Change, ChangeKind, diff};

use crate::args::DiffArgs;
use crate::failure::Failure;
use crate::output::{self, counted};
use crate::{Answer, input};

/// What stands behind a change that may be a slip.
const LARGE_MARK: &str = "  <-- 10 times or more, or from or to none at all: look twice";

/// Compares the two and says what changes.
pub(crate) fn run(args: &DiffArgs) -> Result<Answer, Failure> {
    if [&args.old, &args.new].iter().all(|path| input::is_standard(path)) {
        let message = "only one of the two can be standard input: name a file for the other";
        return Err(Failure::Asked(message.to_owned()));
    }
    let rules = |path: &Path| input::checked(&[path.to_path_buf()], args.reading);
    let changes = match (rules(&args.old), rules(&args.new)) {
        (Ok(old), Ok(new)) => diff(&old.rules, &new.rules),
        (old, new) => {
            return Err(Failure::Rules(old.err().into_iter().chain(new.err()).collect()));
        }
    };
    if args.json {
        let changes: Vec<Value> = changes.iter().map(as_json).collect();
        output::json(&json!({ "changes": changes }))?;
    } else {
        output::data(&listing(&changes))?;
        output::complain(&summary(&changes));
    }
    Ok(if changes.is_empty() { Answer::Yes } else { Answer::No })
}

/// A line for each change.
fn listing(changes: &[Change]) -> String {
    let mut listing = String::new();
    for change in changes {
        let sign = match change.kind {
            ChangeKind::Added => '+',
            ChangeKind::Removed => '-',
            ChangeKind::Changed { .. } => '~',
        };
        let mark = if change.large { LARGE_MARK } else { "" };
        // Writing to a text cannot fail.
        let _ = writeln!(listing, "{sign} {change}{mark}");
    }
    listing
}

fn summary(changes: &[Change]) -> String {
    let large = changes.iter().filter(|change| change.large).count();
    match (changes.len(), large) {
        (0, _) => "no changes\n".to_owned(),
        (count, 0) => format!("{}\n", counted(count, "change")),
        (count, large) => format!("{}, {large} large\n", counted(count, "change")),
    }
}

fn as_json(change: &Change) -> Value {
    let (kind, parts) = match &change.kind {
        ChangeKind::Added => ("added", &[][..]),
        ChangeKind::Removed => ("removed", &[][..]),
        ChangeKind::Changed { parts } => ("changed", &parts[..]),
    };
    let part = |part: &tidegate_rules::diff::Part| json!({ "field": part.field, "before": part.before, "after": part.after });
    json!({
        "domain": change.domain,
        "rule": change.rule,
        "kind": kind,
        "limit": change.limit,
        "parts": parts.iter().map(part).collect::<Vec<_>>(),
        "keeps_state": change.keeps_state,
        "consequence": change.consequence,
        "large": change.large,
        "text": change.to_string(),
    })
}
