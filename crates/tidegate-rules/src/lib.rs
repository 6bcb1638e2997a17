//! Rule text to checked types. No files, no network: whoever calls it has read the text.
//!
//! It holds limits as people write them, and the [`identity`] of who is counted:
//!
//! ```
//! use tidegate_core::{Limit, Rate, Span, TokenBucket};
//! use tidegate_rules::parse_limit;
//!
//! let limit = parse_limit("20/s burst 50")?;
//! let rate = Rate::new(20, Span::SECOND)?;
//! assert_eq!(limit, Limit::from(TokenBucket::new(rate, 50)?));
//!
//! let error = parse_limit("20/fortnight").unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "unknown unit `fortnight` at column 4: use us, ms, s, min, h, day, week, month or year",
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The map
//!
//! | file | what it holds |
//! | --- | --- |
//! | [`text`] | limits from text, as people write them |
//! | [`spec`] | [`LimitSpec`]: the parts of a limit, in whatever form they were written, to a [`Limit`] |
//! | [`identity`] | attributes to keys, by a keyed hash |
//! | [`document`] | files that are not rules, read with the same care |
//! | [`error`] | what is wrong with a text, and where |
//! | `canonical` | a [`LimitSpec`] back to text |
//! | `grammar` | how the parts of a text follow each other |
//! | `token`, `number`, `unit`, `spelling`, `zones` | what the parts are |
//!
//! [`Limit`]: tidegate_core::Limit
#![forbid(unsafe_code)]

pub mod attribute;
mod canonical;
pub mod compile;
mod descriptor;
pub mod diagnostic;
pub mod diff;
pub mod document;
pub mod error;
pub mod explain;
pub mod forms;
pub mod glob;
mod grammar;
pub mod identity;
mod index;
mod lint;
mod number;
pub mod path;
mod read;
pub mod resolve;
pub mod rule;
mod schema;
pub mod source;
pub mod spec;
mod spelling;
pub mod text;
mod token;
mod tree;
mod unit;
mod zones;

pub use attribute::{Attribute, Reads};
pub use canonical::describe;
pub use diagnostic::{Diagnostic, Report, Severity};
pub use error::{LimitProblem, ParseLimitError};
pub use forms::{Checked, ParseOptions};
pub use rule::RuleSet;
pub use schema::schema;
pub use source::{Place, Source};
pub use spec::{Algorithm, Alignment, Amount, Field, LimitSpec, SpecError};
pub use text::{parse_limit, parse_period};
