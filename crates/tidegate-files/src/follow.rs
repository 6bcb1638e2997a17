//! A limiter that follows its rule files: read, parse, check, compare, exchange in one step. Whatever
//! is wrong, the old rules stay.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use tidegate::rules::Backing;
use tidegate::{Clock, RuleLimiter, RulesError};
use tidegate_rules::diff::{self, diff};
use tidegate_rules::{ParseOptions, Report, RuleSet, Source};

use crate::error::{ReadError, WatchError};
use crate::watch::{Change, WatchOptions, Watcher};

/// What came of a look at the files.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Reload {
    /// The rules in the files are in force.
    Done {
        /// What is different from before; nothing, where only the text is.
        changes: Vec<diff::Change>,
        /// What is probably not meant.
        warnings: Report,
    },
    /// The files have a mistake, or need more than there is. The old rules stay.
    Refused(RulesError),
    /// The files cannot be read. The old rules stay.
    Unreadable(ReadError),
}

/// Keeps the rules of `limiter` as they are in the files, until the watcher is dropped. `known` is
/// what the limiter's rules were parsed from, so that a change since then is not missed.
///
/// `on_reload` is told of every look that found something new, on the watching thread. No call waits
/// for a reload.
///
/// ```
/// use std::sync::Arc;
/// use tidegate::{RuleLimiter, RuleSet};
/// use tidegate_files::{Reload, WatchOptions, follow, read};
/// # let folder = std::env::temp_dir().join(format!("tidegate-follow-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let file = folder.join("rules.yaml");
/// # std::fs::write(&file, "{ domain: api, rules: [ { name: all, limit: 10/s } ] }")?;
///
/// let paths = vec![file];
/// let sources = read(&paths)?;
/// let rules = RuleSet::parse(&sources, &Default::default())?.rules;
/// let limiter = Arc::new(RuleLimiter::builder(rules).build()?);
/// let watcher = follow(&limiter, paths, sources, Default::default(), Default::default(), |reload| {
///     eprintln!("{reload}");
/// })?;
/// # watcher.stop();
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Those of [`Watcher::start`].
pub fn follow<C: Clock + 'static, S: Backing + 'static>(
    limiter: &Arc<RuleLimiter<C, S>>,
    paths: Vec<PathBuf>,
    known: Vec<Source>,
    parsing: ParseOptions,
    watching: WatchOptions,
    mut on_reload: impl FnMut(Reload) + Send + 'static,
) -> Result<Watcher, WatchError> {
    let limiter = Arc::clone(limiter);
    Watcher::start(paths, known, watching, move |change| {
        on_reload(match change {
            Change::Sources(sources) => reload(&limiter, &sources, &parsing),
            Change::Failed(error) => Reload::Unreadable(error),
        });
    })
}

fn reload<C: Clock, S: Backing>(
    limiter: &RuleLimiter<C, S>,
    sources: &[Source],
    options: &ParseOptions,
) -> Reload {
    let checked = match RuleSet::parse(sources, options) {
        Ok(checked) => checked,
        Err(report) => return Reload::Refused(report.into()),
    };
    let changes = diff(limiter.rules().set(), &checked.rules);
    match limiter.reload(checked.rules) {
        Ok(()) => Reload::Done { changes, warnings: checked.warnings },
        Err(error) => Reload::Refused(error),
    }
}

impl fmt::Display for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done { changes, warnings } => {
                write!(f, "rules reloaded: {} changed", changes.len())?;
                for change in changes {
                    write!(f, "\n  {change}")?;
                }
                if !warnings.is_empty() {
                    write!(f, "\n{warnings}")?;
                }
                Ok(())
            }
            Self::Refused(error) => {
                write!(f, "the old rules stay, the new ones are refused:\n{error}")
            }
            Self::Unreadable(error) => write!(f, "the old rules stay: {error}"),
        }
    }
}
