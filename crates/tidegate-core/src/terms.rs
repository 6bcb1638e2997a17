//! On what terms a limit is kept where several nodes share it.

/// How exactly nodes share a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Consistency {
    /// Each node counts for itself.
    Local,
    /// Every decision is made in the shared store.
    Strict,
    /// Nodes reserve quota in the shared store and spend it by themselves.
    Leased,
}

/// What happens while the shared store cannot answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnStoreFailure {
    /// Requests pass.
    Allow,
    /// Requests are answered with an error that says so.
    Deny,
    /// The node decides alone, with its own share of the limit.
    Local,
}

/// How one limit of a request is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// How exactly nodes share it.
    pub consistency: Consistency,
    /// What happens while the store cannot answer.
    pub on_failure: OnStoreFailure,
    /// The group of servers that keeps it, where it is not the key that says so.
    pub group: Option<u8>,
}
