//! A folder on the real file system for one test, and a watcher whose calls can be waited for.
#![allow(dead_code, reason = "each test file uses its own part of it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::Duration;

use tidegate_files::{Change, ReadError, Reason, Source, WatchOptions, Watcher, read};

/// How long to wait for what must come. Only a test that fails waits this long.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// More calls than any test makes.
const CALLS_MAX: usize = 100;

const NEVER: Duration = Duration::from_secs(1_000_000);

/// The two ways to find a change, each alone.
pub(crate) fn both_ways() -> [WatchOptions; 2] {
    let settle = Duration::from_millis(20);
    let settle_max = Duration::from_millis(200);
    let by_events = WatchOptions { settle, settle_max, compare_every: NEVER, events: true };
    let by_comparison = WatchOptions { compare_every: settle, events: false, ..by_events.clone() };
    [by_events, by_comparison]
}

/// A folder that is removed again.
pub(crate) struct Scene(PathBuf);

impl Scene {
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("tidegate-files-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder for the test");
        Self(folder)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn folder(&self, name: &str) {
        fs::create_dir_all(self.path(name)).expect("a folder");
    }

    /// Writes in place: the file is empty for a moment.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a written file");
    }

    /// Writes beside it and renames, so that nobody ever sees half of it.
    pub(crate) fn swap_in(&self, name: &str, text: &str) {
        self.write(".new", text);
        self.rename(".new", name);
    }

    pub(crate) fn rename(&self, from: &str, to: &str) {
        fs::rename(self.path(from), self.path(to)).expect("a renamed file");
    }

    pub(crate) fn remove(&self, name: &str) {
        let path = self.path(name);
        let is_folder = fs::symlink_metadata(&path).expect("something to remove").is_dir();
        let removed = if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        removed.expect("a removed file");
    }

    /// A link that says exactly `target`.
    #[cfg(unix)]
    pub(crate) fn link(&self, target: &str, name: &str) {
        std::os::unix::fs::symlink(target, self.path(name)).expect("a link");
    }

    pub(crate) fn read(&self, names: &[&str]) -> Result<Vec<Source>, ReadError> {
        read(&names.iter().map(|name| self.path(name)).collect::<Vec<_>>())
    }

    /// Watches, knowing what is there now.
    pub(crate) fn watch(&self, names: &[&str], options: &WatchOptions) -> Watched {
        let known = self.read(names).expect("readable rules");
        self.watch_knowing(names, known, options)
    }

    pub(crate) fn watch_knowing(
        &self,
        names: &[&str],
        known: Vec<Source>,
        options: &WatchOptions,
    ) -> Watched {
        let paths = names.iter().map(|name| self.path(name)).collect();
        let (sender, calls) = sync_channel(CALLS_MAX);
        let on_change = move |change| sender.try_send(change).expect("room for a call");
        let watcher = Watcher::start(paths, known, options.clone(), on_change).expect("a watcher");
        assert_eq!(watcher.trouble(), None);
        Watched { root: self.0.clone(), watcher, calls }
    }

    /// What messages and sources call a file, without the folder of the test.
    pub(crate) fn plain(&self, path: impl AsRef<Path>) -> String {
        plain(&self.0, path.as_ref())
    }

    pub(crate) fn texts(&self, sources: &[Source]) -> Vec<(String, String)> {
        texts(&self.0, sources)
    }

    pub(crate) fn reasons(&self, error: &ReadError) -> Vec<(String, Reason)> {
        reasons(&self.0, error)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) struct Watched {
    root: PathBuf,
    pub(crate) watcher: Watcher,
    calls: Receiver<Change>,
}

impl Watched {
    pub(crate) fn next(&self) -> Change {
        self.calls.recv_timeout(PATIENCE).expect("a call")
    }

    /// The next call tells exactly these files.
    #[track_caller]
    pub(crate) fn tells(&self, expected: &[(&str, &str)]) {
        let change = self.next();
        assert!(self.is(&change, expected), "{change:?} is not {expected:?}");
    }

    /// The next call tells exactly this failure.
    #[track_caller]
    pub(crate) fn fails(&self, path: &str, reason: Reason) {
        match self.next() {
            Change::Failed(error) => {
                assert_eq!(reasons(&self.root, &error), [(path.to_owned(), reason)]);
            }
            other @ Change::Sources(_) => panic!("{other:?} is no failure"),
        }
    }

    /// These files are told after at most so many other calls.
    #[track_caller]
    pub(crate) fn tells_after(&self, extra_max: usize, expected: &[(&str, &str)]) {
        let mut others = Vec::new();
        loop {
            let change = self.next();
            if self.is(&change, expected) {
                return;
            }
            others.push(change);
            assert!(others.len() <= extra_max, "{others:?} instead of {expected:?}");
        }
    }

    /// This failure is told after at most so many other calls.
    #[track_caller]
    pub(crate) fn fails_after(&self, extra_max: usize, path: &str, reason: &Reason) {
        let mut others = Vec::new();
        loop {
            let change = self.next();
            if let Change::Failed(error) = &change
                && reasons(&self.root, error) == [(path.to_owned(), reason.clone())]
            {
                return;
            }
            others.push(change);
            assert!(others.len() <= extra_max, "{others:?} instead of {reason:?}");
        }
    }

    /// Nothing else was told: the answer to a poke is the next call, and then the last one.
    #[track_caller]
    pub(crate) fn ends_with(self, expected: &[(&str, &str)]) {
        self.watcher.poke();
        self.tells(expected);
        self.watcher.stop();
        assert_eq!(self.calls.try_recv(), Err(TryRecvError::Disconnected));
    }

    fn is(&self, change: &Change, expected: &[(&str, &str)]) -> bool {
        let Change::Sources(sources) = change else { return false };
        let texts = texts(&self.root, sources);
        texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).eq(expected.iter().copied())
    }
}

fn plain(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned()
}

fn texts(root: &Path, sources: &[Source]) -> Vec<(String, String)> {
    let text = |source: &Source| String::from_utf8_lossy(&source.bytes).into_owned();
    sources.iter().map(|source| (plain(root, Path::new(&source.name)), text(source))).collect()
}

fn reasons(root: &Path, error: &ReadError) -> Vec<(String, Reason)> {
    let problems = error.problems().iter();
    problems.map(|problem| (plain(root, &problem.path), problem.reason.clone())).collect()
}
