//! How rule files are taken apart, for other files that people write: a text to a tree whose every part
//! knows its place, fields asked for by name, and every mistake told with its line and what to do.
//!
//! ```
//! use tidegate_rules::Source;
//! use tidegate_rules::document::{Fields, Problems, documents, number};
//!
//! let source = Source::new("settings.yaml", "wdith: 3");
//! let mut problems = Problems::new(std::slice::from_ref(&source));
//! for document in documents(&source, 0, &mut problems) {
//!     let mut fields = Fields::of(&document, "the file", &mut problems).expect("a mapping");
//!     let width = fields.take("width");
//!     assert!(width.and_then(|node| number(node, "width", &mut problems)).is_none());
//!     fields.finish(&mut problems);
//! }
//! let report = problems.into_report(std::slice::from_ref(&source)).to_string();
//! assert!(report.contains("settings.yaml:1:1") && report.contains("did you mean `width`?"));
//! ```

pub use crate::diagnostic::{Problems, quoted};
pub use crate::read::{Fields, boolean, list, list_of, number, text, word};
pub use crate::spelling::closest;
pub use crate::tree::{Key, Node, Scalar, Value, documents_or_none as documents};
