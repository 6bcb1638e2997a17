//! Snapshots on disk. A file is replaced in one step: whoever reads it, even after a power cut, finds
//! the old one or the new one.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use tidegate_core::Timestamp;

use super::{Label, SnapshotError};
use crate::table::{Table, TableConfig};

impl Table {
    /// Writes a snapshot to a file of its own and then puts that in the place of `path`. The file is
    /// readable by its owner only: with the label it may hold what keys were made with. A crash in the
    /// middle leaves a file that ends in `.draft` behind, which nothing reads.
    pub fn save(&self, path: &Path, label: &Label, now: Timestamp) -> Result<(), SnapshotError> {
        let draft = draft_of(path);
        let written = self.write_draft(&draft, label, now).and_then(|()| replace(&draft, path));
        if written.is_err() {
            // The old file is still in its place; a draft that cannot be removed does no harm.
            let _ = fs::remove_file(&draft);
        }
        Ok(written?)
    }

    fn write_draft(&self, draft: &Path, label: &Label, now: Timestamp) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut out = BufWriter::with_capacity(1 << 16, options.open(draft)?);
        self.write_snapshot(&mut out, label, now)?;
        out.flush()?;
        out.get_ref().sync_all()
    }

    /// Takes over a snapshot file; see [`Table::read_snapshot`].
    pub fn load(&self, path: &Path, label: &Label, now: Timestamp) -> Result<u64, SnapshotError> {
        self.read_snapshot(&read_file(path, self.config())?, label, now)
    }
}

/// The bytes of a snapshot file, if it is not longer than one of a table of this size can be.
pub fn read_file(path: &Path, config: TableConfig) -> Result<Vec<u8>, SnapshotError> {
    // An entry takes no more in a file than in the table, a byte a line aside, and a record at most
    // twice as much.
    let max = config.entry_bytes as u64 / 64 * 65 + config.wide_bytes as u64 * 2 + 4096;
    let mut bytes = Vec::new();
    File::open(path)?.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(SnapshotError::TooLarge { max });
    }
    Ok(bytes)
}

/// A name beside `path` that no other save has, in this process or in another that sees the folder.
fn draft_of(path: &Path) -> PathBuf {
    let unique = RandomState::new().build_hasher().finish();
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}-{unique:016x}.draft", std::process::id()));
    path.with_file_name(name)
}

fn replace(draft: &Path, path: &Path) -> io::Result<()> {
    fs::rename(draft, path)?;
    // The rename itself must reach the disk as well. A folder that cannot be opened for that, as on
    // some systems, leaves it to the kernel.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Ok(folder) = File::open(folder.unwrap_or(Path::new("."))) {
        folder.sync_all()?;
    }
    Ok(())
}
