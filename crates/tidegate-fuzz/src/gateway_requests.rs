//! Requests that reach the gateway over one connection: what it lets through ends where others have it end. The claim
//! stands beside what it looks at, in the gateway.

/// # Panics
///
/// Where the claim does not hold.
pub fn check(data: &[u8]) {
    tidegate_gateway::claims::check_requests(data);
}
