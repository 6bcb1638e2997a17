//! Rule files and folders on disk: [`read`] once, watched by a [`Watcher`], or [followed](follow()) by
//! a limiter, whose rules are then always those of the files that were last without a mistake.
//!
//! ```
//! use tidegate_files::{Change, WatchOptions, Watcher, read};
//! # let folder = std::env::temp_dir().join(format!("tidegate-files-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # std::fs::write(folder.join("api.yaml"), "domain: api\n")?;
//!
//! let paths = vec![folder.clone()];
//! let sources = read(&paths)?;
//! assert_eq!(sources[0].bytes, b"domain: api\n");
//!
//! // What is known already goes in, so that a change between the two calls is not lost.
//! let watcher = Watcher::start(paths, sources, WatchOptions::default(), |change| match change {
//!     Change::Sources(sources) => println!("{} rule files to parse", sources.len()),
//!     Change::Failed(error) => eprintln!("the old rules stay: {error}"),
//! })?;
//! watcher.stop();
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Which files count
//!
//! A path that is a file is read, whatever its name. In a folder those count that
//! [`is_rule_file`] says yes to, in the order of their names. Folders inside are read too, as
//! envoyproxy/ratelimit reads its own, except hidden ones: to leave a folder out in silence would leave
//! requests without a limit, while to read one too many is told at once as a domain named twice.
//! Links are followed, to folders as well. A file that is reached twice is read once.
//!
//! A folder without any rule file is an error, and not an empty list of rules: while a folder is being
//! filled or its mount is gone, the old rules are the better ones.
//!
//! # The map
//!
//! | file | what it holds |
//! | --- | --- |
//! | `read` | [`read`]: the bytes of the files, within bounds |
//! | `survey` | which files there are, and which folders tell of a change to them |
//! | `names` | which names count |
//! | `watch` | [`Watcher`]: when to look again, and what is news |
//! | `bell` | how the watching thread is woken, and how it waits for quiet |
//! | `ear` | the system's own events |
//! | `follow` | [`follow`](follow()): parse, compare, put in force, or keep the old rules |
//! | `error` | what can be wrong, and what to do about it |
#![forbid(unsafe_code)]

mod bell;
mod ear;
mod error;
mod follow;
mod names;
mod read;
mod survey;
mod watch;

pub use error::{ReadError, ReadProblem, Reason, WatchError};
pub use follow::{Reload, follow};
pub use names::is_rule_file;
pub use read::{FILE_BYTES_MAX, TOTAL_BYTES_MAX, read, read_each};
pub use survey::{DEPTH_MAX, ENTRIES_MAX, FILES_MAX};
pub use tidegate_rules::Source;
pub use watch::{COMPARE_EVERY_MIN, Change, WatchOptions, Watcher};
