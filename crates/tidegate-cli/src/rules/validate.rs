//! `tidegate rules validate`: what is wrong with rules, and whether they can be used.

use serde_json::{Value, json};
use tidegate_rules::Checked;

use super::tally::Tally;
use crate::args::ValidateArgs;
use crate::failure::{Failure, Unread, Unusable};
use crate::output::{self, counted};
use crate::{Answer, input};

/// Checks the rules and says what was found.
pub(crate) fn run(args: &ValidateArgs) -> Result<Answer, Failure> {
    let (found, tally) = match input::checked(&args.from.paths, args.from.reading) {
        Ok(Checked { rules, warnings, .. }) => {
            let found = Unusable { unread: Unread::default(), report: warnings };
            (found, Some(Tally::of(&rules)))
        }
        Err(unusable) => (unusable, None),
    };
    let warnings_are_fine = !args.strict || found.report.warnings() == 0;
    let answer = match &tally {
        _ if found.unread.count() > 0 => Answer::Unknown,
        Some(_) if warnings_are_fine => Answer::Yes,
        _ => Answer::No,
    };
    if args.json {
        output::json(&as_json(answer, &found, tally))?;
        return Ok(answer);
    }
    output::complain(&found.to_string());
    match (answer, tally) {
        (Answer::Yes, Some(tally)) => output::data(&format!("{tally}: {}\n", verdict(&found)))?,
        _ => output::complain(&format!("{}\n", verdict(&found))),
    }
    Ok(answer)
}

/// How many errors and warnings there are, in words.
fn verdict(found: &Unusable) -> String {
    let warnings = counted(found.report.warnings(), "warning");
    match (found.errors(), found.report.warnings()) {
        (0, 0) => "ok".to_owned(),
        (0, _) => warnings,
        (errors, 0) => counted(errors, "error"),
        (errors, _) => format!("{}, {warnings}", counted(errors, "error")),
    }
}

fn as_json(answer: Answer, found: &Unusable, tally: Option<Tally>) -> Value {
    let tally = tally.map(|Tally { domains, rules, limits }| {
        json!({ "domains": domains, "rules": rules, "limits": limits })
    });
    json!({
        "valid": answer == Answer::Yes,
        "errors": found.errors(),
        "warnings": found.report.warnings(),
        "counts": tally,
        "diagnostics": found.diagnostics().collect::<Vec<_>>(),
    })
}
