//! A limiter by rules: attributes in, one decision over all limits of all rules that match.

#[cfg(feature = "redis")]
mod asked;
#[cfg(feature = "redis")]
mod at_hand;
#[cfg(feature = "redis")]
mod awaited;
mod backing;
mod builder;
mod calls;
mod carry;
mod decide;
mod decision;
pub mod descriptors;
mod ending;
mod foreseen;
mod given;
mod holding;
mod in_force;
#[cfg(feature = "redis")]
mod in_order;
mod leases;
mod limiter;
mod of_limit;
pub mod per_unit;
#[cfg(feature = "redis")]
mod place;
mod sharing;

pub use backing::Backing;
pub use builder::{RuleLimiterBuilder, RulesError};
pub use decision::{Reason, RuleDecision};
pub use descriptors::{DescriptorCall, DescriptorStatus, DescriptorsDecision, Hits};
pub use foreseen::Foreseen;
pub use holding::{Holding, renew_every};
pub use leases::Held;
pub use limiter::{Call, CheckError, Checker, RuleLimiter};
pub use of_limit::{LimitDecision, OnlyLeft};
pub use per_unit::{PerUnit, Unit};
#[cfg(feature = "redis")]
pub use place::Place;
pub use sharing::{GroupRanges, GroupRangesError, StrictInstead};
pub use tidegate_rules::compile::LimitMark;
