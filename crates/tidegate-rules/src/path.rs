//! Paths of requests: the one normal form of all spellings, and templates that are compared with it.
//!
//! It knows nothing of routes, of the file system or of Unicode: two paths that differ in their
//! composition of accents are two paths.

mod normal;
mod template;

pub(crate) use normal::is_plain;
pub use normal::normalise;
pub(crate) use template::Segment;
pub use template::{PathTemplate, PathTemplateError};
