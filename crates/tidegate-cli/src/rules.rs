//! `tidegate rules`: checking, showing and comparing rules.

pub(crate) mod diff;
pub(crate) mod schema;
pub(crate) mod show;
pub(crate) mod tally;
pub(crate) mod validate;
