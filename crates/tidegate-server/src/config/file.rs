//! The settings file: every setting under the name of its flag, with `_` for `-`, and `identity` below
//! which stands who a request is from. Every mistake in it is told at once, each with its place.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tidegate_rules::document::{
    Fields, Node, Problems, Value, boolean, documents, list, quoted, text,
};
use tidegate_rules::{Place, Report, Source};

use super::store::{self, StoreLayer, StoreUrl};
use super::value::ValueError;
use super::{Layer, identity};

/// The longest settings file.
pub const FILE_BYTES_MAX: u64 = 4 << 20;

/// Reads the settings file at `path`. Paths in it are relative to the folder that it is in.
pub fn read(path: &Path) -> Result<Layer, FileError> {
    read_with(path, |_, _, _| ()).map(|(layer, ())| layer)
}

/// The same for a file that has more settings than those of the daemon. `more` takes them out of its
/// fields; it is not called where the file is empty.
pub fn read_with<T: Default>(path: &Path, more: impl More<T>) -> Result<(Layer, T), FileError> {
    let unreadable = |error| FileError::Unreadable { path: path.to_path_buf(), error };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(FileError::TooLong { path: path.to_path_buf() });
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    parse_with(&Source::new(path.to_string_lossy(), bytes), folder, more)
        .map_err(FileError::Mistakes)
}

/// The settings in a text, whose paths are relative to `folder`.
pub fn parse(source: &Source, folder: &Path) -> Result<Layer, Report> {
    parse_with(source, folder, |_, _, _| ()).map(|(layer, ())| layer)
}

/// What takes further settings out of the fields of a file whose paths are relative to a folder.
pub trait More<T>: FnOnce(&mut Fields<'_>, &Path, &mut Problems) -> T {}

impl<T, F: FnOnce(&mut Fields<'_>, &Path, &mut Problems) -> T> More<T> for F {}

/// The same for a text that has more settings than those of the daemon.
pub fn parse_with<T: Default>(
    source: &Source,
    folder: &Path,
    more: impl More<T>,
) -> Result<(Layer, T), Report> {
    let sources = std::slice::from_ref(source);
    let mut problems = Problems::new(sources);
    let (mut layer, mut further) = (Layer::default(), T::default());
    let mut more = Some(more);
    let documents = documents(source, 0, &mut problems);
    for (index, document) in documents.iter().enumerate() {
        if index > 0 {
            problems.error(document.place, "there is a second document").help =
                Some("write all settings into one, without `---` between them".to_owned());
        } else if let Some(mut fields) = Fields::of(document, "the settings file", &mut problems) {
            if let Some(more) = more.take() {
                further = more(&mut fields, folder, &mut problems);
            }
            layer = Reader { fields, folder, problems: &mut problems }.layer();
        }
    }
    if problems.has_errors() { Err(problems.into_report(sources)) } else { Ok((layer, further)) }
}

/// The fields of the file, as they are asked for.
struct Reader<'n, 'p> {
    fields: Fields<'n>,
    folder: &'p Path,
    problems: &'p mut Problems,
}

impl Reader<'_, '_> {
    fn layer(mut self) -> Layer {
        let layer = Layer {
            rules: self.paths("rules"),
            limit: self.parsed("limit"),
            store: self.store(),
            memory: self.parsed("memory"),
            state: self.path("state"),
            shadow: self.boolean("shadow"),
            http: self.parsed("http"),
            grpc: self.parsed("grpc"),
            resp: self.parsed("resp"),
            admin: self.parsed("admin"),
            headers: self.parsed("headers"),
            envoy_headers: self.parsed("envoy_headers"),
            log_format: self.parsed("log_format"),
            log_level: self.parsed("log_level"),
            admin_token_file: self.path("admin_token_file"),
            admin_token: None,
            resp_password_file: self.path("resp_password_file"),
            resp_password: None,
            max_delay: self.parsed("max_delay"),
            max_connections: self.parsed("max_connections"),
            drain_timeout: self.parsed("drain_timeout"),
            merge_domains: self.boolean("merge_domains"),
            names_in_top: self.boolean("names_in_top"),
            identity: self
                .fields
                .take("identity")
                .and_then(|node| identity::read(node, self.folder, self.problems)),
        };
        self.fields.finish(self.problems);
        layer
    }

    fn store(&mut self) -> StoreLayer {
        StoreLayer {
            store: self.urls("store"),
            consistency: self.parsed("consistency"),
            on_store_failure: self.parsed("on_store_failure"),
            store_required: self.boolean("store_required"),
            store_deadline: self.parsed("store_deadline"),
            store_nodes: self.parsed("store_nodes"),
            store_prefix: self.text("store_prefix"),
            store_foreign_state: self.parsed("store_foreign_state"),
            store_password_file: self.path("store_password_file"),
            store_password: None,
            store_ca: self.path("store_ca"),
            store_cert: self.path("store_cert"),
            store_key: self.path("store_key"),
            secret_file: self.path("secret_file"),
            secret: None,
            store_ranges: self
                .fields
                .take("store_ranges")
                .and_then(|node| store::ranges(node, self.problems)),
        }
    }

    /// URLs of stores. What is wrong with one is told without repeating it: it may hold a password.
    fn urls(&mut self, name: &'static str) -> Option<Vec<StoreUrl>> {
        let node = self.fields.take(name)?;
        let texts = texts(node, name, self.problems)?;
        let parsed: Result<_, _> = texts.iter().map(|text| text.parse()).collect();
        parsed
            .map_err(|error: ValueError| {
                // The line is not shown either.
                let file = Place { line: 0, ..node.place };
                let message = format!("what `{name}` names is no store");
                self.problems.error(file, message).help = Some(error.to_string());
            })
            .ok()
    }

    fn text(&mut self, name: &'static str) -> Option<String> {
        text(self.fields.take(name)?, name, self.problems)
    }

    fn parsed<T: FromStr<Err: fmt::Display>>(&mut self, name: &'static str) -> Option<T> {
        let node = self.fields.take(name)?;
        parsed(node, name, self.problems)
    }

    fn boolean(&mut self, name: &'static str) -> Option<bool> {
        boolean(self.fields.take(name)?, name, self.problems)
    }

    fn path(&mut self, name: &'static str) -> Option<PathBuf> {
        let path = text(self.fields.take(name)?, name, self.problems)?;
        Some(self.folder.join(path))
    }

    /// One text, or a list of them.
    fn texts(&mut self, name: &'static str) -> Option<Vec<String>> {
        let node = self.fields.take(name)?;
        texts(node, name, self.problems)
    }

    fn paths(&mut self, name: &'static str) -> Option<Vec<PathBuf>> {
        let paths = self.texts(name)?;
        Some(paths.into_iter().map(|path| self.folder.join(path)).collect())
    }
}

/// One text, or a list of them.
pub fn texts(node: &Node, what: &str, problems: &mut Problems) -> Option<Vec<String>> {
    match &node.value {
        Value::Scalar(_) => text(node, what, problems).map(|text| vec![text]),
        Value::Null | Value::List(_) | Value::Map(_) => {
            let items = list(node, what, problems)?;
            items.iter().map(|item| text(item, what, problems)).collect()
        }
    }
}

/// A text that is some value, or a mistake that says what to write.
pub fn parsed<T: FromStr<Err: fmt::Display>>(
    node: &Node,
    what: &str,
    problems: &mut Problems,
) -> Option<T> {
    let text = text(node, what, problems)?;
    match text.parse() {
        Ok(value) => Some(value),
        Err(error) => {
            let message = format!("`{what}` cannot be {}", quoted(&text));
            problems.error(node.place, message).help = Some(error.to_string());
            None
        }
    }
}

/// Why there are no settings.
#[derive(Debug)]
#[non_exhaustive]
pub enum FileError {
    /// The file cannot be read.
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is longer than [`FILE_BYTES_MAX`].
    TooLong {
        /// Which file.
        path: PathBuf,
    },
    /// There are mistakes in it.
    Mistakes(Report),
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, error } => write!(f, "--config: {}: {error}", path.display()),
            Self::TooLong { path } => {
                let mib = FILE_BYTES_MAX >> 20;
                write!(f, "--config: {} is longer than {mib} MiB", path.display())
            }
            Self::Mistakes(report) => report.fmt(f),
        }
    }
}

impl std::error::Error for FileError {}
