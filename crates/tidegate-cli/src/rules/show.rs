//! `tidegate rules show`: rules as they were understood, whatever spelling they are written in.

mod json;
mod levels;
mod limits;
mod text;
mod words;

use crate::args::ShowArgs;
use crate::failure::Failure;
use crate::{Answer, input, output};

/// Prints the rules.
pub(crate) fn run(args: &ShowArgs) -> Result<Answer, Failure> {
    let set = input::rules(&args.from.paths, args.from.reading)?;
    let domains = match &args.domain {
        Some(name) => vec![input::domain(&set, name)?],
        None => set.domains().iter().collect(),
    };
    if args.json {
        output::json(&json::documents(&domains))?;
    } else {
        output::data(&text::listing(&domains))?;
    }
    Ok(Answer::Yes)
}
