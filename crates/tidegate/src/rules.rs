//! A limiter by rules: attributes in, one decision over all limits of all rules that match.

mod builder;
mod carry;
mod decision;
pub mod descriptors;
mod given;
mod leases;
mod limiter;
pub mod per_unit;

pub use builder::{RuleLimiterBuilder, RulesError};
pub use decision::{LimitDecision, Reason, RuleDecision};
pub use descriptors::{DescriptorCall, DescriptorStatus, DescriptorsDecision, Hits};
pub use leases::Held;
pub use limiter::{Call, CheckError, Checker, RuleLimiter};
pub use per_unit::{PerUnit, Unit};
