//! Rules from the files and folders that are named on the command line, and from standard input.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use tidegate_files::FILE_BYTES_MAX;
use tidegate_rules::rule::Domain;
use tidegate_rules::{Checked, ParseOptions, Report, RuleSet, Source};

use crate::args::Reading;
use crate::failure::Failure;
use crate::output::printable;

/// What stands for standard input among paths, and what messages call it.
const STANDARD_INPUT: &str = "-";
const STANDARD_INPUT_NAME: &str = "<stdin>";

/// The rules in `paths`.
pub(crate) fn rules(paths: &[PathBuf], reading: Reading) -> Result<RuleSet, Failure> {
    Ok(parsed(&sources(paths)?, reading)?.rules)
}

/// The rules in `sources`, or what is wrong with them.
pub(crate) fn parsed(sources: &[Source], reading: Reading) -> Result<Checked, Report> {
    let options = ParseOptions { merge_domains: reading.merge_domains };
    RuleSet::parse(sources, &options)
}

/// The domain of this name.
pub(crate) fn domain<'s>(set: &'s RuleSet, name: &str) -> Result<&'s Domain, Failure> {
    set.domain(name).ok_or_else(|| {
        let message = format!("there is no domain `{}`: {}", printable(name), domains_of(set));
        Failure::Asked(message)
    })
}

/// Which domains there are, in words.
pub(crate) fn domains_of(set: &RuleSet) -> String {
    let names: Vec<String> =
        set.domains().iter().map(|domain| format!("`{}`", printable(&domain.name))).collect();
    match &names[..] {
        [] => "the rules have none".to_owned(),
        [name] => format!("the rules have only {name}"),
        names => format!("the rules have {}", names.join(", ")),
    }
}

/// The texts in `paths`: standard input first where it is one of them, then the files.
pub(crate) fn sources(paths: &[PathBuf]) -> Result<Vec<Source>, Failure> {
    let files: Vec<PathBuf> = paths.iter().filter(|path| !is_standard(path)).cloned().collect();
    let mut sources = Vec::new();
    if files.len() < paths.len() {
        sources.push(standard_input()?);
    }
    if !files.is_empty() {
        sources.extend(tidegate_files::read(&files)?);
    }
    Ok(sources)
}

/// Whether a path stands for standard input.
pub(crate) fn is_standard(path: &Path) -> bool {
    path == Path::new(STANDARD_INPUT)
}

fn standard_input() -> Result<Source, Failure> {
    let mut bytes = Vec::new();
    // One byte more than may be, so that the parser sees that it is too much and says so.
    let read = std::io::stdin().lock().take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| Failure::Stream { name: "standard input", error })?;
    Ok(Source::new(STANDARD_INPUT_NAME, bytes))
}
