//! The bytes of the rule files. What is not a file is never waited for, and nothing is read without a
//! bound.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use tidegate_rules::Source;

use crate::error::{Problems, ReadError, Reason};
use crate::survey::{Survey, kind_of};

/// How long one file may be: room for some 200,000 rules.
pub const FILE_BYTES_MAX: u64 = 32 << 20;

/// How long all files may be together.
pub const TOTAL_BYTES_MAX: u64 = 64 << 20;

/// Reads rule files, and the rule files in folders: in the order of the paths, in a folder by name. The
/// crate's front page says which files count.
///
/// # Errors
///
/// [`ReadError`] lists everything that stands in the way. A path that is missing or may not be read,
/// a folder without rule files, and something that is neither file nor folder are errors; so is
/// whatever goes beyond the bounds of this crate.
pub fn read(paths: &[PathBuf]) -> Result<Vec<Source>, ReadError> {
    load(&Survey::of(paths))
}

/// Reads what can be read of them, and says what cannot: for whoever looks for mistakes. Rules of which
/// a part is missing are not to be put in force.
pub fn read_each(paths: &[PathBuf]) -> (Vec<Source>, Option<ReadError>) {
    let (sources, problems) = gather(&Survey::of(paths));
    (sources, problems.into_result().err())
}

/// Reads what a survey has found.
pub(crate) fn load(survey: &Survey) -> Result<Vec<Source>, ReadError> {
    let (sources, problems) = gather(survey);
    problems.into_result().map(|()| sources)
}

fn gather(survey: &Survey) -> (Vec<Source>, Problems) {
    let mut problems = survey.problems.clone();
    let mut sources = Vec::with_capacity(survey.files.len());
    let mut room_bytes = TOTAL_BYTES_MAX;
    for path in &survey.files {
        match bytes_of(path, room_bytes) {
            Ok(bytes) => {
                room_bytes -= bytes.len() as u64;
                sources.push(Source::new(path.to_string_lossy(), bytes));
            }
            Err(reason) => {
                let full = reason == Reason::TotalTooLarge;
                problems.add(path, reason);
                // Every file after this one would say the same again.
                if full {
                    break;
                }
            }
        }
    }
    (sources, problems)
}

fn bytes_of(path: &Path, room_bytes: u64) -> Result<Vec<u8>, Reason> {
    let of_system = |error: io::Error| Reason::of(&error, path);
    let file = open(path).map_err(of_system)?;
    // The survey saw a file here, but it may have been exchanged since. What is open stays what it is.
    let metadata = file.metadata().map_err(of_system)?;
    if let Some(found) = kind_of(&metadata) {
        return Err(Reason::NotAFile { found });
    }
    within(metadata.len(), room_bytes)?;
    // A file can grow while it is read, and some of the system's own say that they are empty: so one byte
    // more than may be is asked for.
    let mut bytes = Vec::new();
    let bytes_max = FILE_BYTES_MAX.min(room_bytes);
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(of_system)?;
    within(bytes.len() as u64, room_bytes)?;
    Ok(bytes)
}

fn within(length_bytes: u64, room_bytes: u64) -> Result<(), Reason> {
    if length_bytes > FILE_BYTES_MAX {
        return Err(Reason::FileTooLarge);
    }
    if length_bytes > room_bytes {
        return Err(Reason::TotalTooLarge);
    }
    Ok(())
}

/// Opens without waiting: to open a pipe that nobody writes to would otherwise take for ever.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    options.open(path)
}
