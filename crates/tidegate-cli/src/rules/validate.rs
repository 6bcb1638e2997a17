//! `tidegate rules validate`: what is wrong with rules, and whether they can be used.

use serde_json::{Value, json};
use tidegate_rules::{Diagnostic, Report};

use super::tally::Tally;
use crate::args::ValidateArgs;
use crate::failure::Failure;
use crate::output::{self, counted};
use crate::{Answer, input};

/// Checks the rules and says what was found.
pub(crate) fn run(args: &ValidateArgs) -> Result<Answer, Failure> {
    let sources = input::sources(&args.from.paths)?;
    let (report, tally) = match input::parsed(&sources, args.from.reading) {
        Ok(checked) => (checked.warnings, Some(Tally::of(&checked.rules))),
        Err(report) => (report, None),
    };
    let warnings_are_fine = !args.strict || report.warnings() == 0;
    let answer = if tally.is_some() && warnings_are_fine { Answer::Yes } else { Answer::No };
    if args.json {
        output::json(&as_json(answer, &report, tally))?;
        return Ok(answer);
    }
    if !report.is_empty() {
        output::complain(&format!("{report}\n"));
    }
    match (answer, tally) {
        (Answer::Yes, Some(tally)) => output::data(&format!("{tally}: {}\n", verdict(&report)))?,
        (Answer::Yes | Answer::No, _) => output::complain(&format!("{}\n", verdict(&report))),
    }
    Ok(answer)
}

/// How many errors and warnings there are, in words.
fn verdict(report: &Report) -> String {
    let warnings = counted(report.warnings(), "warning");
    match (report.errors(), report.warnings()) {
        (0, 0) => "ok".to_owned(),
        (0, _) => warnings,
        (errors, 0) => counted(errors, "error"),
        (errors, _) => format!("{}, {warnings}", counted(errors, "error")),
    }
}

fn as_json(answer: Answer, report: &Report, tally: Option<Tally>) -> Value {
    let diagnostics: Vec<Value> = report.iter().map(diagnostic).collect();
    let tally = tally.map(|Tally { domains, rules, limits }| {
        json!({ "domains": domains, "rules": rules, "limits": limits })
    });
    json!({
        "valid": answer == Answer::Yes,
        "errors": report.errors(),
        "warnings": report.warnings(),
        "counts": tally,
        "diagnostics": diagnostics,
    })
}

/// A place that is a whole file has no line, and one that is nowhere has no file.
fn diagnostic((file, diagnostic): (&str, &Diagnostic)) -> Value {
    let Diagnostic { severity, place, message, help, .. } = diagnostic;
    let in_line = |number: u32| (place.line > 0).then_some(number);
    json!({
        "severity": severity.to_string(),
        "file": (!file.is_empty()).then_some(file),
        "line": in_line(place.line),
        "column": in_line(place.column),
        "length": in_line(place.length),
        "message": message,
        "help": help,
    })
}
