//! Answers that upstreams send to the gateway: the client gets the bytes that came, in one reading. The claim stands
//! beside what it looks at, in the gateway.

/// # Panics
///
/// Where the claim does not hold.
pub fn check(data: &[u8]) {
    tidegate_gateway::claims::check_answers(data);
}
