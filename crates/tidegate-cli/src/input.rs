//! Rules from the files and folders that are named on the command line, from pipes, and from
//! standard input.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use tidegate_files::{FILE_BYTES_MAX, ReadProblem, Reason, TOTAL_BYTES_MAX};
use tidegate_rules::rule::Domain;
use tidegate_rules::{Checked, ParseOptions, Report, RuleSet, Source};

use crate::args::Reading;
use crate::failure::{Failure, Unread, Unusable};
use crate::output::printable;

/// What stands for standard input among paths, and what messages call it.
const STANDARD_INPUT: &str = "-";
const STANDARD_INPUT_NAME: &str = "<stdin>";

/// The rules in `paths`, or all that is wrong with them.
pub(crate) fn rules(paths: &[PathBuf], reading: Reading) -> Result<RuleSet, Failure> {
    checked(paths, reading)
        .map(|checked| checked.rules)
        .map_err(|unusable| Failure::Rules(vec![unusable]))
}

/// The rules in `paths` with the warnings about them, or all that is wrong with them.
pub(crate) fn checked(paths: &[PathBuf], reading: Reading) -> Result<Checked, Unusable> {
    let (sources, unread) = sources(paths);
    let options = ParseOptions { merge_domains: reading.merge_domains };
    let parsed = if sources.is_empty() && unread.count() > 0 {
        Err(Report::default())
    } else {
        RuleSet::parse(&sources, &options)
    };
    match parsed {
        Ok(checked) if unread.count() == 0 => Ok(checked),
        // Warnings about a part of the rules might be false: what they miss may be in the rest.
        Ok(_) => Err(Unusable { unread, report: Report::default() }),
        Err(report) => Err(Unusable { unread, report }),
    }
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

/// The texts in `paths`, and those that cannot be read: first standard input and pipes, then the files.
fn sources(paths: &[PathBuf]) -> (Vec<Source>, Unread) {
    let (mut sources, mut unread) = (Vec::new(), Unread::default());
    let mut room_bytes = TOTAL_BYTES_MAX;
    let (streams, files): (Vec<_>, Vec<_>) = paths.iter().partition(|path| is_stream(path));
    for path in streams {
        match stream(path, room_bytes) {
            Ok(source) => {
                room_bytes -= source.bytes.len() as u64;
                sources.push(source);
            }
            Err(problem) => unread.problems.push(problem),
        }
    }
    let files: Vec<PathBuf> = files.into_iter().cloned().collect();
    let (read, error) = tidegate_files::read_each(&files);
    sources.extend(read);
    if let Some(error) = error {
        unread.problems.extend_from_slice(error.problems());
        unread.more = error.more();
    }
    (sources, unread)
}

/// Whether a path stands for standard input.
pub(crate) fn is_standard(path: &Path) -> bool {
    path == Path::new(STANDARD_INPUT)
}

/// Whether it is something that is read once, from one end to the other, as a shell's `<(…)` is. In
/// folders such things are refused, but who names one means it.
fn is_stream(path: &Path) -> bool {
    #[cfg(unix)]
    let is_pipe = std::fs::metadata(path).is_ok_and(|metadata| {
        use std::os::unix::fs::FileTypeExt as _;
        let kind = metadata.file_type();
        kind.is_fifo() || kind.is_char_device()
    });
    #[cfg(not(unix))]
    let is_pipe = false;
    is_standard(path) || is_pipe
}

/// Reads until the end of a stream, or until it is too long: some never end.
fn stream(path: &Path, room_bytes: u64) -> Result<Source, ReadProblem> {
    let name = if is_standard(path) { Path::new(STANDARD_INPUT_NAME) } else { path };
    let problem = |reason| ReadProblem { path: name.to_path_buf(), reason };
    let bytes_max = FILE_BYTES_MAX.min(room_bytes);
    let mut bytes = Vec::new();
    let read = if is_standard(path) {
        io::stdin().lock().take(bytes_max + 1).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(bytes_max + 1).read_to_end(&mut bytes))
    };
    read.map_err(|error| problem(reason(&error)))?;
    match bytes.len() as u64 {
        length if length <= bytes_max => Ok(Source::new(name.to_string_lossy(), bytes)),
        length if length > FILE_BYTES_MAX => Err(problem(Reason::FileTooLarge)),
        _ => Err(problem(Reason::TotalTooLarge)),
    }
}

fn reason(error: &io::Error) -> Reason {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Reason::Denied,
        kind => Reason::System { kind, text: error.to_string() },
    }
}
