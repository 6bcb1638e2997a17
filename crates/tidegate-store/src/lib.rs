//! Where the state of rate limits lives: the seam that every store stands behind, the in-memory
//! [`Table`], and the suite that holds every store to the same answers.
//!
//! There is no clock here and no arithmetic on limits: a request brings its `now`, and
//! [`tidegate_core`] decides.
//!
//! | file | what it holds |
//! | --- | --- |
//! | [`seam`] | [`Store`], the resolved request, its answers |
//! | [`table`] | [`Table`]: the fast path of one limit |
//! | `quick` | a few limits at once, all or nothing, where nothing is out of the ordinary |
//! | `several` | any number of limits at once, and states that outgrow their entry |
//! | `places` | which line an entry stands in; insertion, moving, dropping |
//! | `entry`, `word`, `lines` | 128 bits, swapping them, the block they lie in |
//! | `wide` | states that do not fit an entry |
//! | `forgotten` | when late calls of keys that are gone start anew |
//! | [`snapshot`] | the table as a file, and back |
//! | [`conformance`] | one check per promise, for every store |

pub mod conformance;
mod entry;
mod forgotten;
mod lines;
mod places;
mod quick;
pub mod seam;
mod several;
pub mod snapshot;
mod sync;
pub mod table;
mod wide;
mod word;

pub use seam::{Answers, Charge, Request, Settled, Source, Store, StoreError};
pub use table::{Fetched, Stats, Table, TableConfig, TableError};
