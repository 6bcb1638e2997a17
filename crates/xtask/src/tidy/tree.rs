//! The files that tidy looks at, read once: what git tracks or would track, as text.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use super::tokens::{Token, tokens};
use crate::workspace::{Package, Workspace};

/// Every text file of the project, and its crates.
#[derive(Default)]
pub(super) struct Tree<'a> {
    pub(super) files: Vec<File>,
    pub(super) packages: &'a [Package],
}

/// One text file.
pub(super) struct File {
    /// From the root of the project, with `/` between the parts.
    pub(super) path: String,
    pub(super) text: String,
    /// The tokens of a Rust file; none for any other, or for one that does not parse, which the
    /// compiler reports better than we could.
    pub(super) tokens: Vec<Token>,
}

impl<'a> Tree<'a> {
    pub(super) fn read(workspace: &'a Workspace) -> anyhow::Result<Self> {
        let files = listed(&workspace.root)?;
        let read = |path: &str| std::fs::read(workspace.root.join(path)).ok();
        // Bytes that are not text, and files deleted but not yet from git's list, are passed over.
        let files = files.lines().filter_map(|path| {
            String::from_utf8(read(path)?).ok().map(|text| File::new(path, text))
        });
        Ok(Self { files: files.collect(), packages: &workspace.packages })
    }

    pub(super) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.is("rs"))
    }

    pub(super) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }
}

#[cfg(test)]
impl Tree<'_> {
    /// A tree of these paths and texts.
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| File::new(path, (*text).into())).collect();
        Self { files, packages: &[] }
    }
}

impl File {
    fn new(path: &str, text: String) -> Self {
        let tokens = if has_extension(path, "rs") { tokens(&text) } else { Vec::new() };
        Self { path: path.into(), text, tokens }
    }

    pub(super) fn is(&self, extension: &str) -> bool {
        has_extension(&self.path, extension)
    }

    /// The lines with their numbers, from 1.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }
}

fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == extension)
}

fn listed(root: &Path) -> anyhow::Result<String> {
    let output = Command::new("git")
        .args(["-c", "core.quotePath=off", "ls-files", "--cached", "--others"])
        .args(["--exclude-standard", "--deduplicate"])
        .current_dir(root)
        .output()
        .context("tidy asks git which files are ours, and git could not be started")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git could not list the files: {complaint}");
    Ok(String::from_utf8(output.stdout)?)
}
