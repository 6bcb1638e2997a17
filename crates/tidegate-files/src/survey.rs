//! Which files there are to read, and which names in which folders tell of a change to them. A survey
//! looks at names and kinds only and opens no file.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::error::{Problems, Reason};
use crate::names::{is_out_of_sight, is_rule_file};

/// How many rule files there may be.
pub const FILES_MAX: usize = 4_096;

/// How many entries of folders are looked at, rule files or not.
pub const ENTRIES_MAX: usize = 10_000;

/// How many folders deep rule files may lie in a folder that was given.
pub const DEPTH_MAX: usize = 8;

/// How many links in a row are followed, which is what Linux does.
const LINKS_MAX: usize = 40;

/// What the given paths lead to. Two surveys are equal if they lead to the same files through the same
/// links.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Survey {
    /// The files, spelled from the given paths on, in the order in which they are read.
    pub(crate) files: Vec<PathBuf>,
    pub(crate) problems: Problems,
    /// The folders whose events matter, by their real paths.
    pub(crate) folders: BTreeMap<PathBuf, Interest>,
    /// Real paths of the files and folders already met.
    met: BTreeSet<PathBuf>,
    entries: usize,
}

/// Which names in a folder matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interest {
    /// Whatever is not out of sight: the folder holds rules.
    all: bool,
    /// These, even if they are out of sight: a file that was given, or a link on the way to one.
    names: BTreeSet<OsString>,
}

impl Interest {
    pub(crate) fn covers(&self, name: &OsStr) -> bool {
        (self.all && !is_out_of_sight(name)) || self.names.contains(name)
    }
}

impl Survey {
    pub(crate) fn of(paths: &[PathBuf]) -> Self {
        let mut survey = Self::default();
        for path in paths {
            survey.given(path);
        }
        survey
    }

    /// A path that somebody wrote: a file, or a folder.
    fn given(&mut self, path: &Path) {
        self.trace(path);
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) => return self.problems.add(path, Reason::of(&error, path)),
        };
        if !metadata.is_dir() {
            return self.file(path, &metadata, fs::canonicalize(path));
        }
        if path.file_name().is_some_and(is_rule_file) {
            return self.problems.add(path, Reason::FolderNamedAsFile);
        }
        let (files, problems) = (self.files.len(), self.problems.clone());
        let new = self.folder(path, 0);
        if new && self.files.len() == files && self.problems == problems {
            self.problems.add(path, Reason::NoRuleFiles);
        }
    }

    /// The rule files in a folder and in those inside it; `false` if it was met before.
    fn folder(&mut self, folder: &Path, depth: usize) -> bool {
        let listed = fs::canonicalize(folder).and_then(|real| Ok((fs::read_dir(folder)?, real)));
        let (entries, real) = match listed {
            Ok(listed) => listed,
            Err(error) => {
                self.problems.add(folder, Reason::of(&error, folder));
                return true;
            }
        };
        // A link may lead back to a folder above.
        if !self.met.insert(real.clone()) {
            return false;
        }
        if depth > DEPTH_MAX {
            self.problems.add(folder, Reason::TooDeep);
            return true;
        }
        self.folders.entry(real.clone()).or_default().all = true;
        match self.names_in(entries) {
            Ok(Some(names)) => names.iter().for_each(|name| self.entry(folder, &real, name, depth)),
            Ok(None) => self.problems.add(folder, Reason::TooManyEntries),
            Err(error) => self.problems.add(folder, Reason::of(&error, folder)),
        }
        true
    }

    /// The names that are in sight, in order; `None` if they are too many.
    fn names_in(&mut self, entries: fs::ReadDir) -> io::Result<Option<Vec<OsString>>> {
        let mut names = Vec::new();
        for entry in entries {
            if self.entries == ENTRIES_MAX {
                return Ok(None);
            }
            self.entries += 1;
            let name = entry?.file_name();
            if !is_out_of_sight(&name) {
                names.push(name);
            }
        }
        names.sort();
        Ok(Some(names))
    }

    /// One entry of a folder.
    fn entry(&mut self, folder: &Path, real_folder: &Path, name: &OsStr, depth: usize) {
        let path = folder.join(name);
        let mut real = Ok(real_folder.join(name));
        if fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_symlink()) {
            self.trace(&path);
            real = fs::canonicalize(&path);
        }
        let metadata = fs::metadata(&path);
        let is_folder = metadata.as_ref().is_ok_and(Metadata::is_dir);
        match (is_rule_file(name), metadata) {
            (true, Ok(_)) if is_folder => self.problems.add(&path, Reason::FolderNamedAsFile),
            (true, Ok(metadata)) => self.file(&path, &metadata, real),
            (true, Err(error)) => self.problems.add(&path, Reason::of(&error, &path)),
            (false, _) if is_folder => {
                self.folder(&path, depth + 1);
            }
            (false, _) => {}
        }
    }

    /// A file, or what stands in its place.
    fn file(&mut self, path: &Path, metadata: &Metadata, real: io::Result<PathBuf>) {
        if let Some(found) = kind_of(metadata) {
            return self.problems.add(path, Reason::NotAFile { found });
        }
        // Where the real path is not to be had, opening the file will tell why.
        let real = real.unwrap_or_else(|_| path.to_path_buf());
        if !self.met.insert(real) {
            return;
        }
        if self.files.len() == FILES_MAX {
            return self.problems.add(path, Reason::TooManyFiles);
        }
        self.files.push(path.to_path_buf());
    }

    /// Walks a path as the system does, link by link, and notes each name that can be pointed elsewhere:
    /// the links, and the last name. Where the path breaks off, the name that would have to appear.
    fn trace(&mut self, path: &Path) {
        let Ok(path) = std::path::absolute(path) else { return };
        let mut at = PathBuf::new();
        let mut ahead = parts_reversed(&path);
        let mut links = 0;
        while let Some(part) = ahead.pop() {
            if part == ".." {
                at.pop();
                continue;
            }
            let next = at.join(&part);
            let target = match fs::symlink_metadata(&next) {
                Ok(metadata) if metadata.is_symlink() => fs::read_link(&next),
                Ok(_) => {
                    if ahead.is_empty() {
                        self.note(&at, &part);
                    }
                    at = next;
                    continue;
                }
                Err(error) => Err(error),
            };
            self.note(&at, &part);
            links += 1;
            match target {
                // A target from the root on replaces what `at` holds when it is joined to it.
                Ok(target) if links <= LINKS_MAX => ahead.extend(parts_reversed(&target)),
                _ => return,
            }
        }
    }

    fn note(&mut self, folder: &Path, name: &OsStr) {
        // The root lies in no folder.
        if !folder.as_os_str().is_empty() {
            let interest = self.folders.entry(folder.to_path_buf()).or_default();
            interest.names.insert(name.to_os_string());
        }
    }
}

/// The parts of a path, the last one first.
fn parts_reversed(path: &Path) -> Vec<OsString> {
    let parts = path.components().filter(|part| *part != Component::CurDir);
    parts.rev().map(|part| part.as_os_str().to_os_string()).collect()
}

/// What it is, if it is not a file.
pub(crate) fn kind_of(metadata: &Metadata) -> Option<&'static str> {
    if metadata.is_file() {
        return None;
    }
    if metadata.is_dir() {
        return Some("a folder");
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt as _;
        let kind = metadata.file_type();
        if kind.is_fifo() {
            return Some("a pipe");
        }
        if kind.is_socket() {
            return Some("a socket");
        }
        if kind.is_char_device() || kind.is_block_device() {
            return Some("a device");
        }
    }
    Some("something else")
}
