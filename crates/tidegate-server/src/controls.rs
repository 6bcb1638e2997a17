//! What the operator switches and lists while the daemon runs: bans, the allow-list, and the switches
//! that let everything through or put all rules in shadow.
//!
//! What wins, from the top: the switch that lets everything through; the allow-list; bans; the rules,
//! in shadow or not. The allow-list wins over bans because a ban is often wide and made in haste (a
//! whole range), and an exception from it narrow and meant (the one address that monitors the
//! service); and nobody can then ban themselves out. Any entry that is about a call is enough: a
//! longer prefix wins over nothing.

mod file;
mod list;
mod target;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tidegate::{Attribute, Timestamp};

use self::list::List;

pub use self::file::{FILE_BYTES_MAX, LoadError, read_time, time_text};
pub use self::list::Entry;
pub use self::target::{ADDRESS_ATTRIBUTES, Target, TargetError, VALUE_BYTES_MAX};

/// The most entries of both lists together.
pub const ENTRIES_MAX: usize = 10_000;
/// The longest name of a domain, and the longest note, of an entry.
pub const TEXT_BYTES_MAX: usize = 256;

/// The switches and lists in force.
#[derive(Debug, Default)]
pub struct Controls {
    state: ArcSwap<State>,
    /// Until when something is listed or switched, in microseconds: 0 while nothing is.
    set_until: AtomicU64,
    /// Held while one change is made and written.
    changing: Mutex<()>,
    file: Option<PathBuf>,
    /// Whether rules are in shadow whatever the switch says.
    is_always_shadow: bool,
}

/// All that can be set, as it is at one moment.
#[derive(Clone, Debug, Default)]
struct State {
    bypass: bool,
    shadow: bool,
    bans: Arc<List>,
    allowed: Arc<List>,
}

/// What the controls say about a call, before or beside the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// Everything passes.
    Bypassed,
    /// This one passes, whatever it has taken.
    AllowListed,
    /// This one does not pass.
    Banned {
        /// Until when; `None` is until the ban is lifted.
        until: Option<Timestamp>,
    },
    /// The rules decide, and nobody is denied.
    Shadow,
}

/// One of the two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Which {
    /// Those who do not pass.
    Bans,
    /// Those who pass whatever they have taken.
    Allowed,
}

/// How many entries are in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bans.
    pub bans: usize,
    /// Entries of the allow-list.
    pub allowed: usize,
}

/// What became of a change: it is in force in any case.
#[derive(Debug)]
#[must_use = "whoever made the change should hear whether it outlives a restart"]
pub enum Kept {
    /// It is in the file, and survives a restart.
    InFile,
    /// There is no file to keep it in.
    InMemory,
    /// The file could not be written, so a restart forgets it.
    Failed(io::Error),
}

impl Controls {
    /// The controls that were kept in a file, which need not exist yet, and in which changes are kept
    /// from now on.
    pub fn load(path: impl Into<PathBuf>) -> Result<Self, LoadError> {
        let path = path.into();
        let state = file::load(&path)?.unwrap_or_default();
        let controls = Self { file: Some(path), ..Self::default() };
        controls.put(state);
        Ok(controls)
    }

    /// Where the controls of a daemon are kept that keeps its state in `state`: beside it.
    pub fn path_beside(state: &Path) -> PathBuf {
        let mut name = state.file_name().unwrap_or_default().to_owned();
        name.push(".controls.json");
        state.with_file_name(name)
    }

    /// The same, with every rule in shadow for as long as the process lives, whatever the switch says.
    /// It is a setting and no switch: it is not kept with the others.
    #[must_use]
    pub fn with_shadow(mut self, is_shadow: bool) -> Self {
        self.is_always_shadow = is_shadow;
        self.put(State::clone(&self.state.load()));
        self
    }

    /// What holds for a call with these attributes. `None` leaves it to the rules, and is what it
    /// costs next to nothing to find out while nothing is listed or switched.
    #[inline]
    pub fn rule_on(
        &self,
        domain: &str,
        attributes: &[Attribute<'_>],
        now: Timestamp,
    ) -> Option<Ruling> {
        // ORDERING: with the release in `put`: who sees that something is set sees what.
        if now.as_micros() >= self.set_until.load(Ordering::Acquire) {
            return None;
        }
        self.rule_on_set(domain, attributes, now)
    }

    /// Whether nothing is listed or switched, so that nobody need be asked the time.
    #[inline]
    pub fn is_idle(&self) -> bool {
        // ORDERING: as in `rule_on`, which looks again.
        self.set_until.load(Ordering::Acquire) == 0
    }

    fn rule_on_set(
        &self,
        domain: &str,
        attributes: &[Attribute<'_>],
        now: Timestamp,
    ) -> Option<Ruling> {
        let state = self.state.load();
        if state.bypass {
            return Some(Ruling::Bypassed);
        }
        if state.allowed.find(domain, attributes, now).is_some() {
            return Some(Ruling::AllowListed);
        }
        if let Some(ban) = state.bans.find(domain, attributes, now) {
            return Some(Ruling::Banned { until: ban.until });
        }
        (state.shadow || self.is_always_shadow).then_some(Ruling::Shadow)
    }

    /// Puts an entry on a list, in the place of one about the same target in the same domain.
    pub fn add(&self, which: Which, entry: Entry, now: Timestamp) -> Result<Kept, ChangeError> {
        let texts = [entry.domain.as_deref(), entry.note.as_deref()];
        if texts.into_iter().flatten().any(|text| text.len() > TEXT_BYTES_MAX) {
            return Err(ChangeError::TooLong);
        }
        if !entry.is_live(now) {
            return Err(ChangeError::Over);
        }
        self.change(now, |state| {
            let domain = entry.domain.clone();
            let _ = state.without(which, &entry.target, domain.as_deref());
            if state.bans.entries().len() + state.allowed.entries().len() >= ENTRIES_MAX {
                return Err(ChangeError::Full);
            }
            let mut entries = state.list(which).entries().to_vec();
            entries.push(entry);
            *state.list(which) = Arc::new(List::new(entries));
            Ok(())
        })
    }

    /// Takes an entry off a list.
    pub fn lift(
        &self,
        which: Which,
        target: &Target,
        domain: Option<&str>,
        now: Timestamp,
    ) -> Result<Kept, ChangeError> {
        self.change(now, |state| state.without(which, target, domain))
    }

    /// Lets everything through, or no longer.
    pub fn set_bypass(&self, on: bool, now: Timestamp) -> Kept {
        self.switch(now, |state| state.bypass = on)
    }

    /// Puts all rules in shadow, or no longer.
    pub fn set_shadow(&self, on: bool, now: Timestamp) -> Kept {
        self.switch(now, |state| state.shadow = on)
    }

    /// Whether everything is let through.
    pub fn is_bypassed(&self) -> bool {
        self.state.load().bypass
    }

    /// Whether all rules are in shadow.
    pub fn is_in_shadow(&self) -> bool {
        self.is_always_shadow || self.state.load().shadow
    }

    /// Whether they are because the daemon was started so, which no switch changes.
    pub fn is_always_shadow(&self) -> bool {
        self.is_always_shadow
    }

    /// The entries of a list that are in force, in the order in which they were made.
    pub fn entries(&self, which: Which, now: Timestamp) -> Vec<Entry> {
        let state = self.state.load();
        let list = match which {
            Which::Bans => &state.bans,
            Which::Allowed => &state.allowed,
        };
        list.entries().iter().filter(|entry| entry.is_live(now)).cloned().collect()
    }

    /// How many entries are in force.
    pub fn counts(&self, now: Timestamp) -> Counts {
        let state = self.state.load();
        let live = |list: &List| list.entries().iter().filter(|entry| entry.is_live(now)).count();
        Counts { bans: live(&state.bans), allowed: live(&state.allowed) }
    }

    /// Writes everything to the file, where there is one. Changes do so by themselves.
    pub fn save(&self) -> Kept {
        let _changing = self.changing.lock();
        self.keep(&self.state.load())
    }

    fn switch(&self, now: Timestamp, set: impl FnOnce(&mut State)) -> Kept {
        let changed: Result<Kept, std::convert::Infallible> = self.change(now, |state| {
            set(state);
            Ok(())
        });
        let Ok(kept) = changed;
        kept
    }

    /// One change after the other: in force first, because a full disk is no reason to let an attack
    /// go on, and then in the file.
    fn change<E>(
        &self,
        now: Timestamp,
        change: impl FnOnce(&mut State) -> Result<(), E>,
    ) -> Result<Kept, E> {
        let _changing = self.changing.lock();
        let mut state = State::clone(&self.state.load());
        state.forget_what_is_over(now);
        change(&mut state)?;
        self.put(state.clone());
        Ok(self.keep(&state))
    }

    fn keep(&self, state: &State) -> Kept {
        match self.file.as_deref().map(|path| file::save(path, state)) {
            None => Kept::InMemory,
            Some(Ok(())) => Kept::InFile,
            Some(Err(error)) => Kept::Failed(error),
        }
    }

    fn put(&self, state: State) {
        let set_until = state.set_until(self.is_always_shadow);
        self.state.store(Arc::new(state));
        // ORDERING: after the state, so that nobody looks for what is not there yet.
        self.set_until.store(set_until, Ordering::Release);
    }
}

impl State {
    fn list(&mut self, which: Which) -> &mut Arc<List> {
        match which {
            Which::Bans => &mut self.bans,
            Which::Allowed => &mut self.allowed,
        }
    }

    fn without(
        &mut self,
        which: Which,
        target: &Target,
        domain: Option<&str>,
    ) -> Result<(), ChangeError> {
        let list = self.list(which);
        let mut entries = list.entries().to_vec();
        let before = entries.len();
        entries.retain(|entry| !entry.is_of(target, domain));
        if entries.len() == before {
            return Err(ChangeError::NotListed);
        }
        *list = Arc::new(List::new(entries));
        Ok(())
    }

    fn forget_what_is_over(&mut self, now: Timestamp) {
        for list in [&mut self.bans, &mut self.allowed] {
            if list.entries().iter().any(|entry| !entry.is_live(now)) {
                let live = list.entries().iter().filter(|entry| entry.is_live(now));
                *list = Arc::new(List::new(live.cloned().collect()));
            }
        }
    }

    fn set_until(&self, is_always_shadow: bool) -> u64 {
        if self.bypass || self.shadow || is_always_shadow {
            return u64::MAX;
        }
        let entries = self.bans.entries().iter().chain(self.allowed.entries());
        let ends = entries.map(|entry| entry.until.map_or(u64::MAX, Timestamp::as_micros));
        ends.max().unwrap_or(0)
    }
}

/// Why a change could not be made. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeError {
    /// There are as many entries as there may be.
    Full,
    /// No entry is about this target in this domain.
    NotListed,
    /// It would be over before it began.
    Over,
    /// The domain or the note is longer than [`TEXT_BYTES_MAX`].
    TooLong,
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => write!(f, "there are {ENTRIES_MAX} entries, and no more than that fit"),
            Self::NotListed => f.write_str("there is no such entry; the domain is part of it"),
            Self::Over => f.write_str("it would be over before it began"),
            Self::TooLong => {
                write!(f, "the domain and the note have at most {TEXT_BYTES_MAX} bytes each")
            }
        }
    }
}

impl std::error::Error for ChangeError {}
