//! Limits that survive a restart: the state is written every few seconds and at the end, never on a
//! thread that decides. What a crash loses is what was taken since the last time. A state belongs to one
//! daemon at a time: two would overwrite each other's limits and bans.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidegate::{Restored, SnapshotError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::StartError;
use crate::engine::Engine;

/// How often the state is written.
const SAVE_EVERY: Duration = Duration::from_secs(10);

/// The state of one engine, written to one file until this is dropped.
#[derive(Debug)]
pub(super) struct StateFile {
    stop: CancellationToken,
    saving: AbortOnDropHandle<()>,
}

/// That no other daemon uses the state, for as long as this lives. The system forgets it with the
/// process, however that ends.
#[derive(Debug)]
pub(super) struct Claim {
    path: PathBuf,
    /// `None` where the file system knows no locks.
    _lock: Option<File>,
}

impl Claim {
    /// Claims the state at this path, or says who is in the way.
    pub(super) fn of(path: &Path) -> Result<Self, StartError> {
        check_place(path)?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let lock_path = beside(path, ".lock");
        let lock = options.open(&lock_path);
        let lock = lock.map_err(|error| StartError::State { path: lock_path, error })?;
        let lock = match lock.try_lock() {
            Ok(()) => Some(lock),
            Err(TryLockError::WouldBlock) => {
                return Err(StartError::StateInUse { path: path.to_path_buf() });
            }
            Err(TryLockError::Error(error)) => {
                let file = path.display();
                tracing::warn!(%file, %error, "nothing keeps another daemon from this state");
                None
            }
        };
        let claim = Self { path: path.to_path_buf(), _lock: lock };
        claim.remove_drafts();
        Ok(claim)
    }

    /// Removes what daemons left behind that were killed while they wrote: nothing reads it, and it is
    /// as large as the state.
    fn remove_drafts(&self) {
        let (Some(folder), Some(name)) = (folder_of(&self.path), self.path.file_name()) else {
            return;
        };
        let Ok(files) = fs::read_dir(folder) else { return };
        for file in files.flatten() {
            if is_draft_of(name.as_encoded_bytes(), file.file_name().as_encoded_bytes()) {
                // One that stays does no harm.
                let _ = fs::remove_file(file.path());
            }
        }
    }
}

/// Whether a file is an unfinished one of the state or of the controls beside it.
fn is_draft_of(state: &[u8], file: &[u8]) -> bool {
    let rest = file.strip_prefix(state).and_then(|rest| rest.strip_suffix(b".draft"));
    rest.is_some_and(|rest| {
        let rest = rest.strip_prefix(b".controls.json").unwrap_or(rest);
        rest.strip_prefix(b".").is_some_and(|unique| {
            !unique.is_empty()
                && unique.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-')
        })
    })
}

impl StateFile {
    /// Writes the state again and again from now on.
    pub(super) fn keep(claim: Claim, engine: Arc<Engine>) -> Self {
        let stop = CancellationToken::new();
        let saving = tokio::spawn(keep(Arc::new(claim), engine, stop.clone()));
        Self { stop, saving: AbortOnDropHandle::new(saving) }
    }

    /// Writes it one last time.
    pub(super) async fn close(self) {
        self.stop.cancel();
        if self.saving.await.is_err() {
            tracing::error!("the state was not written: the task that does it has panicked");
        }
    }
}

async fn keep(claim: Arc<Claim>, engine: Arc<Engine>, stop: CancellationToken) {
    let mut is_failing = false;
    loop {
        let is_last = stop.run_until_cancelled(tokio::time::sleep(SAVE_EVERY)).await.is_none();
        let saved = {
            // The claim goes with the write, which may outlive everything else.
            let (claim, engine) = (Arc::clone(&claim), Arc::clone(&engine));
            tokio::task::spawn_blocking(move || engine.limiter().save(&claim.path)).await
        };
        match saved {
            Ok(Ok(())) if is_failing => {
                is_failing = false;
                tracing::info!("the state can be written again");
            }
            Ok(Ok(())) => tracing::debug!("the state was written"),
            Ok(Err(error)) => {
                // Every ten seconds the same line would hide the others.
                if !is_failing || is_last {
                    tracing::error!(file = %claim.path.display(), "{}", with_cause(&error));
                }
                is_failing = true;
            }
            Err(_) => tracing::error!("the state was not written: writing it has panicked"),
        }
        if is_last {
            return;
        }
    }
}

/// Says what was found. A file that is refused is put aside before another is written in its place.
pub(super) fn tell(path: &Path, restored: &Restored) {
    let file = path.display();
    match restored {
        Restored::Keys(keys) => tracing::info!(%file, keys, "the state was read"),
        Restored::Nothing => tracing::info!(%file, "there is no state yet"),
        Restored::Refused(error) => {
            let aside = beside(path, ".refused");
            let kept = match fs::rename(path, &aside) {
                Ok(()) => format!("it is kept as {}", aside.display()),
                Err(error) => format!("it could not be put aside: {error}"),
            };
            let why = with_cause(error);
            tracing::error!(%file, "the state is not used, and every limit is full: {why}; {kept}");
        }
    }
}

/// Whether a file can be at this path: its folder is there, and it is none itself. What else may be in
/// the way shows when the file is written, and is logged.
fn check_place(path: &Path) -> Result<(), StartError> {
    let fail = |path: &Path, error| Err(StartError::State { path: path.to_path_buf(), error });
    let Some(folder) = folder_of(path) else {
        return fail(path, io::ErrorKind::InvalidFilename.into());
    };
    match fs::metadata(folder) {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => return fail(folder, io::ErrorKind::NotADirectory.into()),
        Err(error) => return fail(folder, error),
    }
    if path.is_dir() { fail(path, io::ErrorKind::IsADirectory.into()) } else { Ok(()) }
}

/// The folder that a file is in; `None` for what can be no file.
fn folder_of(path: &Path) -> Option<&Path> {
    path.file_name()?;
    let folder = path.parent()?;
    Some(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })
}

/// A file beside another, with more behind its name.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut beside = OsString::from(path);
    beside.push(suffix);
    beside.into()
}

fn with_cause(error: &SnapshotError) -> String {
    match error {
        SnapshotError::Io(cause) => format!("{error}: {cause}"),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_write_leaves_behind_is_a_draft() {
        for file in ["state.17-00ff.draft", "state.controls.json.17-00ff.draft"] {
            assert!(is_draft_of(b"state", file.as_bytes()), "{file}");
        }
        for file in [
            "state",
            "state.lock",
            "state.refused",
            "state.controls.json",
            "state.draft",
            "state..draft",
            "state.mine.draft",
            "state2.17-00ff.draft",
            "other.17-00ff.draft",
        ] {
            assert!(!is_draft_of(b"state", file.as_bytes()), "{file}");
        }
    }
}
