//! The controls as a file of JSON: what the operator listed and switched, so that a restart forgets
//! none of it.
//!
//! It holds attribute values and addresses as the operator wrote them, as a rule file with overrides
//! does: a list that shows only hashes cannot be read by whoever has to lift an entry from it, ranges
//! cannot be looked up by hashes, and hashes would mean nothing any more once the secret is another.
//! Only its owner may read it.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tidegate::Timestamp;

use super::list::List;
use super::{ENTRIES_MAX, Entry, State};

/// The longest file that is read: as many entries as there may be, each with the longest value.
pub const FILE_BYTES_MAX: u64 = 32 << 20;

/// The form of the file. Another number is another form, which is not guessed at.
const FORM: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    form: u32,
    bypass: bool,
    shadow: bool,
    bans: Vec<WrittenEntry>,
    allow: Vec<WrittenEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenEntry {
    target: String,
    #[serde(default)]
    domain: Option<String>,
    #[serde(default)]
    until: Option<String>,
    since: String,
    #[serde(default)]
    note: Option<String>,
}

/// Writes the controls to a file of their own, and then puts that in the place of `path`.
pub(super) fn save(path: &Path, state: &State) -> io::Result<()> {
    let entries = |list: &List| list.entries().iter().map(written).collect();
    let written = Written {
        form: FORM,
        bypass: state.bypass,
        shadow: state.shadow,
        bans: entries(&state.bans),
        allow: entries(&state.allowed),
    };
    let text = serde_json::to_vec_pretty(&written).map_err(io::Error::other)?;
    let draft = draft_of(path);
    let done = write_draft(&draft, &text).and_then(|()| replace(&draft, path));
    if done.is_err() {
        // The old file is still in its place; a draft that cannot be removed does no harm.
        let _ = fs::remove_file(&draft);
    }
    done
}

/// Reads the controls back; `None` where there is no such file.
pub(super) fn load(path: &Path) -> Result<Option<State>, LoadError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(LoadError::Io(error)),
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(LoadError::Io)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(LoadError::TooLarge);
    }
    let written: Written = serde_json::from_slice(&bytes)
        .map_err(|error| LoadError::Syntax { line: error.line(), column: error.column() })?;
    if written.form != FORM {
        return Err(LoadError::Form(written.form));
    }
    if written.bans.len() + written.allow.len() > ENTRIES_MAX {
        return Err(LoadError::TooMany);
    }
    let list = |name: &'static str, entries: Vec<WrittenEntry>| {
        let read = (0..)
            .zip(entries)
            .map(|(index, entry)| read(entry).ok_or(LoadError::Entry { list: name, index }));
        Ok::<_, LoadError>(List::new(read.collect::<Result<_, _>>()?))
    };
    Ok(Some(State {
        bypass: written.bypass,
        shadow: written.shadow,
        bans: list("bans", written.bans)?.into(),
        allowed: list("allow", written.allow)?.into(),
    }))
}

fn written(entry: &Entry) -> WrittenEntry {
    WrittenEntry {
        target: entry.target.to_string(),
        domain: entry.domain.clone(),
        until: entry.until.map(time_text),
        since: time_text(entry.since),
        note: entry.note.clone(),
    }
}

fn read(written: WrittenEntry) -> Option<Entry> {
    let WrittenEntry { target, domain, until, since, note } = written;
    let until = until.map(|text| read_time(&text).ok_or(())).transpose().ok()?;
    Some(Entry { target: target.parse().ok()?, domain, until, since: read_time(&since)?, note })
}

/// A time as people and programs write it, in UTC.
pub fn time_text(time: Timestamp) -> String {
    let micros = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    // What lies beyond the year 9999 has no such text, and is as good as the last moment that has.
    jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX).to_string()
}

/// The time that such a text says, at the earliest 1970.
pub fn read_time(text: &str) -> Option<Timestamp> {
    let micros = text.parse::<jiff::Timestamp>().ok()?.as_microsecond();
    u64::try_from(micros).ok().map(Timestamp::from_micros)
}

/// A name beside `path` that no other save has.
fn draft_of(path: &Path) -> PathBuf {
    let unique = RandomState::new().build_hasher().finish();
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}-{unique:016x}.draft", std::process::id()));
    path.with_file_name(name)
}

fn write_draft(draft: &Path, text: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(draft)?;
    file.write_all(text)?;
    file.write_all(b"\n")?;
    file.sync_all()
}

fn replace(draft: &Path, path: &Path) -> io::Result<()> {
    fs::rename(draft, path)?;
    // The rename itself must reach the disk as well, where the system lets a folder be opened.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Ok(folder) = File::open(folder.unwrap_or(Path::new("."))) {
        folder.sync_all()?;
    }
    Ok(())
}

/// Why a file of controls could not be taken over. Nothing was changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// The system could not read it.
    Io(io::Error),
    /// It is longer than [`FILE_BYTES_MAX`].
    TooLarge,
    /// It is not the JSON that it should be.
    Syntax {
        /// The line of the first mistake.
        line: usize,
        /// The column of the first mistake.
        column: usize,
    },
    /// It has a form that this build does not know.
    Form(u32),
    /// It has more entries than [`ENTRIES_MAX`].
    TooMany,
    /// An entry is about nobody, or its times are none.
    Entry {
        /// In which list.
        list: &'static str,
        /// Which one, counted from 0.
        index: usize,
    },
}

impl fmt::Display for LoadError {
    /// Without what the entries hold: it may end up in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::TooLarge => write!(f, "the file is longer than {FILE_BYTES_MAX} bytes"),
            Self::Syntax { line, column } => {
                write!(f, "the file is no list of controls: line {line}, column {column}")
            }
            Self::Form(form) => write!(f, "the file has form {form}, and this build knows {FORM}"),
            Self::TooMany => write!(f, "the file has more than {ENTRIES_MAX} entries"),
            Self::Entry { list, index } => write!(f, "{list}[{index}] cannot be understood"),
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}
