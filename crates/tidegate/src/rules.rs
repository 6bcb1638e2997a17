//! A limiter by rules: attributes in, one decision over all limits of all rules that match.

mod builder;
mod carry;
mod decision;
mod limiter;

pub use builder::{RuleLimiterBuilder, RulesError};
pub use decision::{LimitDecision, Reason, RuleDecision};
pub use limiter::{Call, CheckError, Checker, RuleLimiter};
