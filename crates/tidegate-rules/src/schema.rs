//! The JSON Schema of rule files, in all their spellings, so that editors complete and check them.
//!
//! It is written by hand for the sake of its descriptions, which editors show. It is not what
//! decides whether rules are right: it accepts all that [`RuleSet::parse`](crate::RuleSet::parse)
//! accepts when written in the usual way, and finds most mistakes, but not those that need
//! arithmetic or another part of the file.

/// The schema, as JSON in the dialect of 2020-12.
///
/// ```
/// assert!(tidegate_rules::schema().contains("https://json-schema.org/draft/2020-12/schema"));
/// ```
pub fn schema() -> &'static str {
    include_str!("schema.json")
}

#[cfg(test)]
pub(crate) mod tests;
