//! What conditions mean, said plainly: one value after the other, one test after the other.
//!
//! The compiled form must agree with this, which a property test checks. It is what explains why
//! a rule does not match, where nobody waits for it.

use std::borrow::Cow;

use super::value::{self, to_lowercase};
use crate::glob::Glob;
use crate::path::normalise;
use crate::rule::{Condition, Rule, Test};

impl Condition {
    /// Whether it holds for this value of its attribute, or for there being none.
    ///
    /// A path and a host must be in their normal form. The case of a path counts; that of a host
    /// does not.
    pub fn holds(&self, value: Option<&[u8]>) -> bool {
        let folds = self.attribute == "host";
        self.one_holds(value, folds) != self.negated
    }

    /// The same as a condition of a rule, which may ignore the case of paths.
    pub(crate) fn holds_in(&self, rule: &Rule, value: Option<&[u8]>) -> bool {
        if rule.ignore_case && self.attribute == "path" {
            let value = value.map(to_lowercase);
            self.one_holds(value.as_deref(), true) != self.negated
        } else {
            self.holds(value)
        }
    }

    fn one_holds(&self, value: Option<&[u8]>, folds: bool) -> bool {
        value.is_some_and(|value| {
            self.any_of.iter().any(|test| test.holds(&self.attribute, value, folds))
        })
    }
}

impl Test {
    /// Whether a value passes, which is in lower case already if case is to be folded.
    fn holds(&self, attribute: &str, value: &[u8], folds: bool) -> bool {
        match self {
            Self::Exact(text) => *folded(&exact(attribute, text), folds) == *value,
            Self::Prefix(text) => value.starts_with(&folded(text.as_bytes(), folds)),
            Self::Glob(glob) if folds => {
                Glob::new(&glob.as_str().to_ascii_lowercase()).matches(value)
            }
            Self::Glob(glob) => glob.matches(value),
            Self::Cidr(network) => value::network_of(value)
                .is_some_and(|value| value::network(*network).contains(&value)),
            Self::Path(template) if folds => template.to_lowercase().matches(value),
            Self::Path(template) => template.matches(value),
            Self::Present => true,
        }
    }
}

/// The text that values of the attribute are compared with: in normal form as they are, since it
/// would never match otherwise.
pub(super) fn exact<'t>(attribute: &str, text: &'t str) -> Cow<'t, [u8]> {
    match attribute {
        "path" => normalise(text.as_bytes()),
        "host" => value::normal_host(text.as_bytes()),
        _ => Cow::Borrowed(text.as_bytes()),
    }
}

pub(super) fn folded(text: &[u8], folds: bool) -> Cow<'_, [u8]> {
    if folds { to_lowercase(text) } else { Cow::Borrowed(text) }
}
