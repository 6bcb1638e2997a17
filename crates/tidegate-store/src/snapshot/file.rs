//! Snapshots on disk. A file is replaced in one step: whoever reads it, even after a power cut, finds
//! the old one or the new one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tidegate_core::Timestamp;

use super::{Label, SnapshotError};
use crate::table::Table;

impl Table {
    /// Writes a snapshot to a file of its own and then puts that in the place of `path`. The file is
    /// readable by its owner only: with the label it may hold what keys were made with.
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
        // A draft that a crash left behind may have been made with other rights, or be a link.
        let _ = fs::remove_file(draft);
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
        self.read_snapshot(&fs::read(path)?, label, now)
    }
}

fn draft_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.draft", std::process::id()));
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
