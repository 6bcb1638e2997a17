//! [`Watcher`]: looks again whenever something may have changed, and tells what is news. What to do with
//! the news, and whether the rules are any good, is up to whoever is told.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tidegate_rules::Source;

use crate::bell::{Bell, Ring};
use crate::ear::{Ear, Hearing};
use crate::error::{ReadError, WatchError};
use crate::read::load;
use crate::survey::Survey;

/// The least time between two comparisons; a shorter one in the options counts as this.
pub const COMPARE_EVERY_MIN: Duration = Duration::from_millis(10);

/// How often a read is done over because links were swapped under it.
const ATTEMPTS_MAX: usize = 4;

/// What a [`Watcher`] tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// All rule files as they are now, the unchanged ones too.
    Sources(Vec<Source>),
    /// The files cannot be read now. What was told before is still the best there is.
    Failed(ReadError),
}

/// How a [`Watcher`] watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchOptions {
    /// How long nothing must happen before the files are read, so that half-written ones seldom are;
    /// 100 ms unless said.
    pub settle: Duration,
    /// How long to wait for that at most; 1 s unless said.
    pub settle_max: Duration,
    /// How often the files are read and compared though nothing was heard, since network file systems tell
    /// nothing of what other machines do; 5 s unless said.
    pub compare_every: Duration,
    /// Whether the system's own events are used; yes unless said. Without, changes are found by
    /// comparison alone.
    pub events: bool,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self {
            settle: Duration::from_millis(100),
            settle_max: Duration::from_secs(1),
            compare_every: Duration::from_secs(5),
            events: true,
        }
    }
}

/// Watches rule files and folders on a thread of its own, until it is dropped.
///
/// A burst of events is one look, after it has settled. Only what differs from what was told last is
/// told: other bytes, other names, another error, the end of an error (even where the files are then as they
/// were before it). A file that was caught half-written is told once as it was and once complete.
pub struct Watcher {
    bell: Arc<Bell>,
    hearing: Arc<Hearing>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Starts to watch. `known` is what the caller has read already: a difference to it is told
    /// right away, so that nothing is missed in between. Without it, pass an empty list and be told
    /// everything.
    ///
    /// `on_change` runs on the watching thread; while it runs, events add up to one look after it. If it
    /// panics, watching goes on: one file that a parser stumbles over must not be the last that is seen.
    ///
    /// # Errors
    ///
    /// [`WatchError::Read`] if the paths cannot be read now: at the start that is a mistake to tell, while
    /// later it is waited out. No thread runs then.
    pub fn start(
        paths: Vec<PathBuf>,
        known: Vec<Source>,
        options: WatchOptions,
        on_change: impl FnMut(Change) + Send + 'static,
    ) -> Result<Self, WatchError> {
        let bell = Arc::<Bell>::default();
        let ear = Ear::new(options.events, &bell);
        let hearing = ear.hearing();
        let mut watch =
            Watch { paths, options, bell: Arc::clone(&bell), ear, told: Ok(known), on_change };
        let found = watch.read();
        if let Err(error) = found {
            return Err(WatchError::Read(error));
        }
        if found != watch.told {
            bell.event();
        }
        let thread = thread::Builder::new().name("tidegate-files".into());
        let thread = thread.spawn(move || watch.run()).map_err(WatchError::Thread)?;
        Ok(Self { bell, hearing, thread: Some(thread) })
    }

    /// Reads now, without waiting for quiet, and tells what is there, news or not: who asks for a reload
    /// is never left without an answer. Several calls before the read are answered by one.
    pub fn poke(&self) {
        self.bell.poke();
    }

    /// Why the system's events cannot be had, for all folders or for some; `None` if all is well or none
    /// are wanted. Watching goes on by comparison.
    pub fn trouble(&self) -> Option<String> {
        self.hearing.trouble()
    }

    /// Stops, and waits until `on_change` has returned and will not be called again. Dropping does the
    /// same. Called from within `on_change`, it does not wait.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.bell.stop();
        let Some(thread) = self.thread.take() else { return };
        // A thread that waits for itself waits for ever.
        if thread.thread().id() != thread::current().id() {
            // If it has panicked, that was reported when it did.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").field("trouble", &self.trouble()).finish_non_exhaustive()
    }
}

/// What the watching thread holds.
struct Watch<F> {
    paths: Vec<PathBuf>,
    options: WatchOptions,
    bell: Arc<Bell>,
    ear: Ear,
    told: Result<Vec<Source>, ReadError>,
    on_change: F,
}

impl<F: FnMut(Change)> Watch<F> {
    fn run(mut self) {
        let compare_every = self.options.compare_every.max(COMPARE_EVERY_MIN);
        loop {
            let mut ring = self.bell.wait(compare_every);
            // A difference found by comparison may be half-written just as well.
            if ring == Ring::Event || (ring == Ring::Silence && self.read() != self.told) {
                ring = self.bell.settle(self.options.settle, self.options.settle_max);
                if ring == Ring::Silence {
                    ring = Ring::Event;
                }
            }
            match ring {
                Ring::Stop => return,
                Ring::Poke => self.tell(true),
                Ring::Event => self.tell(false),
                Ring::Silence => {}
            }
        }
    }

    fn tell(&mut self, asked: bool) {
        let found = self.read();
        if !asked && found == self.told {
            return;
        }
        self.told.clone_from(&found);
        let change = match found {
            Ok(sources) => Change::Sources(sources),
            Err(error) => Change::Failed(error),
        };
        // The panic has been reported when it began. Nothing of ours is touched by the call, and the
        // state of `on_change` is its owner's care, as it says above.
        let _ = catch_unwind(AssertUnwindSafe(|| (self.on_change)(change)));
    }

    /// Reads all files as they were at one moment, as far as links and names tell, and listens where they
    /// are now: an event after the read cannot be missed.
    fn read(&mut self) -> Result<Vec<Source>, ReadError> {
        let mut survey = Survey::of(&self.paths);
        for _ in 0..ATTEMPTS_MAX {
            self.ear.attend(&survey.folders);
            let found = load(&survey);
            let after = Survey::of(&self.paths);
            if after == survey {
                return found;
            }
            survey = after;
        }
        self.ear.attend(&survey.folders);
        load(&survey)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// What is told when the watching thread looks so often, knowing this.
    fn told(path: &str, known: Result<Vec<Source>, ReadError>, asked: &[bool]) -> Vec<Change> {
        let mut calls = Vec::new();
        let bell = Arc::<Bell>::default();
        let mut watch = Watch {
            paths: vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(path)],
            options: WatchOptions::default(),
            ear: Ear::new(false, &bell),
            bell,
            told: known,
            on_change: |change| calls.push(change),
        };
        for asked in asked {
            watch.tell(*asked);
        }
        calls
    }

    #[test]
    fn what_is_known_is_told_only_to_who_asks() {
        let first = told("Cargo.toml", Ok(Vec::new()), &[false, false, false]);
        let [Change::Sources(sources)] = &first[..] else { panic!("{first:?}") };
        assert_eq!(told("Cargo.toml", Ok(sources.clone()), &[false, false]), []);
        assert_eq!(told("Cargo.toml", Ok(sources.clone()), &[true, false, true]).len(), 2);
    }

    #[test]
    fn a_failure_is_told_once_and_its_end_too() {
        let first = told("missing.yaml", Ok(Vec::new()), &[false, false]);
        let [Change::Failed(error)] = &first[..] else { panic!("{first:?}") };
        assert_eq!(told("missing.yaml", Err(error.clone()), &[false]), []);
        let end = told("Cargo.toml", Err(error.clone()), &[false, false]);
        assert!(matches!(&end[..], [Change::Sources(_)]), "{end:?}");
    }
}
