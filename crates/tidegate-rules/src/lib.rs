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
//! | [`error`] | what is wrong with a text, and where |
//! | `canonical` | a [`LimitSpec`] back to text |
//! | `grammar` | how the parts of a text follow each other |
//! | `token`, `number`, `unit`, `spelling`, `zones` | what the parts are |
//!
//! [`Limit`]: tidegate_core::Limit
#![forbid(unsafe_code)]

mod canonical;
pub mod error;
mod grammar;
pub mod identity;
mod number;
pub mod spec;
mod spelling;
pub mod text;
mod token;
mod unit;
mod zones;

pub use canonical::describe;
pub use error::{LimitProblem, ParseLimitError};
pub use spec::{Algorithm, Alignment, Amount, Field, LimitSpec, SpecError};
pub use text::{parse_limit, parse_period};
