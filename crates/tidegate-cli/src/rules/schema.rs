//! `tidegate rules schema`: the JSON schema of rule files.

use crate::failure::Failure;
use crate::{Answer, output};

/// Prints it.
pub(crate) fn run() -> Result<Answer, Failure> {
    output::data(&format!("{}\n", tidegate_rules::schema().trim_end()))?;
    Ok(Answer::Yes)
}
