//! The system's own events: an [`Ear`] rings the [`Bell`] when something happens to a name that matters.
//! It says neither what happened nor to which file; whoever hears the bell looks for himself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use notify::event::{AccessKind, AccessMode, Event, EventKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};

use crate::bell::Bell;
use crate::survey::Interest;

/// How many folders are listened to. Changes in others are found by comparison.
const FOLDERS_MAX: usize = 1_024;

pub(crate) struct Ear {
    /// `None` where the system gives no events, or none are wanted.
    watcher: Option<RecommendedWatcher>,
    listened_to: BTreeSet<PathBuf>,
    hearing: Arc<Hearing>,
}

/// What the ear shares: with the thread that brings the events, and with those who ask how it is doing.
#[derive(Debug, Default)]
pub(crate) struct Hearing(Mutex<Heard>);

#[derive(Debug, Default)]
struct Heard {
    folders: BTreeMap<PathBuf, Interest>,
    trouble: Option<String>,
}

impl Ear {
    pub(crate) fn new(wanted: bool, bell: &Arc<Bell>) -> Self {
        let hearing = Arc::<Hearing>::default();
        let mut ear = Self { watcher: None, listened_to: BTreeSet::new(), hearing };
        if wanted {
            let (bell, hearing) = (Arc::clone(bell), Arc::clone(&ear.hearing));
            let on_event = move |event: notify::Result<Event>| {
                // An error may stand for events that were lost.
                if event.map_or(true, |event| hearing.matters(&event)) {
                    bell.event();
                }
            };
            match notify::recommended_watcher(on_event) {
                Ok(watcher) => ear.watcher = Some(watcher),
                Err(error) => ear.hearing.heard().trouble = Some(error.to_string()),
            }
        }
        ear
    }

    pub(crate) fn hearing(&self) -> Arc<Hearing> {
        Arc::clone(&self.hearing)
    }

    /// Listens to these folders from now on, and to no others.
    pub(crate) fn attend(&mut self, folders: &BTreeMap<PathBuf, Interest>) {
        let Some(watcher) = &mut self.watcher else { return };
        // The lock is let go before the watcher is called: its thread may be waiting for it.
        self.hearing.heard().folders.clone_from(folders);
        for gone in self.listened_to.iter().filter(|path| !folders.contains_key(*path)) {
            // It fails where the folder itself is gone, and then there is nothing to end.
            let _ = watcher.unwatch(gone);
        }
        self.listened_to = folders.keys().take(FOLDERS_MAX).cloned().collect();
        let mut trouble = (folders.len() > FOLDERS_MAX)
            .then(|| format!("more than {FOLDERS_MAX} folders to listen to"));
        for folder in &self.listened_to {
            // Those listened to already as well: a folder that was deleted and made again has the same name and
            // is another folder, which the watcher does not know of.
            if let Err(error) = watcher.watch(folder, RecursiveMode::NonRecursive) {
                trouble.get_or_insert_with(|| error.to_string());
            }
        }
        self.hearing.heard().trouble = trouble;
    }
}

impl Hearing {
    pub(crate) fn trouble(&self) -> Option<String> {
        self.heard().trouble.clone()
    }

    fn matters(&self, event: &Event) -> bool {
        // To open and read files is what this crate itself does, and would never come to an end.
        let written = EventKind::Access(AccessKind::Close(AccessMode::Write));
        if matches!(event.kind, EventKind::Access(_)) && event.kind != written {
            return false;
        }
        let heard = self.heard();
        // Without a path, the system says that it has lost count.
        event.paths.is_empty() || event.paths.iter().any(|path| heard.matters(path))
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Heard {
    /// A folder that is listened to, or a name in one that matters there.
    fn matters(&self, path: &Path) -> bool {
        let in_folder = || {
            let interest = self.folders.get(path.parent()?)?;
            Some(interest.covers(path.file_name()?))
        };
        self.folders.contains_key(path) || in_folder().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::Survey;
    use notify::event::{CreateKind, ModifyKind};

    fn hearing_of(path: &Path) -> Hearing {
        let folders = Survey::of(&[path.to_path_buf()]).folders;
        Hearing(Mutex::new(Heard { folders, trouble: None }))
    }

    fn event(kind: EventKind, path: &Path) -> Event {
        Event::new(kind).add_path(path.to_path_buf())
    }

    #[test]
    fn other_files_beside_a_given_one_are_not_heard() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").canonicalize().unwrap();
        let hearing = hearing_of(&source.join("ear.rs"));
        let created = EventKind::Create(CreateKind::File);
        assert!(hearing.matters(&event(created, &source.join("ear.rs"))));
        assert!(!hearing.matters(&event(created, &source.join("bell.rs"))));
        assert!(hearing.matters(&event(created, &source)));
    }

    #[test]
    fn reading_is_not_heard_and_the_end_of_writing_is() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").canonicalize().unwrap();
        let hearing = hearing_of(&source);
        let path = source.join("new.yaml");
        let access = |kind| event(EventKind::Access(kind), &path);
        assert!(!hearing.matters(&access(AccessKind::Open(AccessMode::Any))));
        assert!(!hearing.matters(&access(AccessKind::Close(AccessMode::Read))));
        assert!(hearing.matters(&access(AccessKind::Close(AccessMode::Write))));
        assert!(hearing.matters(&event(EventKind::Modify(ModifyKind::Any), &path)));
        let swap = event(EventKind::Modify(ModifyKind::Any), &source.join(".new.yaml.swp"));
        assert!(!hearing.matters(&swap));
        assert!(hearing.matters(&Event::new(EventKind::Other)), "events were lost");
    }
}
