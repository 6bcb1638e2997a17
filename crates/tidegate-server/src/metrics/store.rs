//! What the store that nodes share has met, as text. A group is known by its number, counted from 1 in the
//! order of `--store`; its address is no label. Without such a store the families are there, and empty.

use tidegate::redis::{BreakerState, GroupStats};

use super::families as f;
use super::text::{Family, Text};
use super::{Metrics, render};
use crate::engine::Engine;

/// Why calls were not answered, by the words of the label.
const REASONS: [&str; 6] = ["timeout", "busy", "breaker", "unreachable", "broken", "refused"];

/// All families about the store.
pub(super) fn store(text: &mut Text, metrics: &Metrics, engine: &Engine) {
    let stats = engine.shared().map(|shared| shared.stats()).unwrap_or_default();
    let groups: Vec<(String, GroupStats)> = (1..)
        .zip(stats.groups)
        .map(|(number, group): (u32, _)| (number.to_string(), group))
        .collect();
    let mut each = |family: &Family, value: &dyn Fn(&GroupStats) -> u64| {
        text.family(family);
        for (number, group) in &groups {
            text.sample(family, &[("group", number)], value(group));
        }
    };
    each(&f::STORE_UP, &|group| u64::from(group.is_well));
    each(&f::STORE_NODES, &|group| u64::from(group.nodes));
    each(&f::STORE_CALLS, &|group| group.store.calls);
    each(&f::STORE_SCRIPT_CALLS, &|group| group.store.script_calls);
    each(&f::STORE_COALESCED, &|group| group.store.coalesced);
    each(&f::STORE_IN_FLIGHT, &|group| group.store.in_flight);
    each(&f::STORE_BREAKER, &|group| match group.store.breaker {
        BreakerState::Closed => 0,
        BreakerState::HalfOpen => 1,
        BreakerState::Open => 2,
    });
    each(&f::STORE_BREAKER_OPENINGS, &|group| group.store.breaker_openings);
    each(&f::STORE_FALLBACKS, &|group| group.fallbacks);
    each(&f::STORE_CONNECTIONS, &|group| group.store.connections);
    each(&f::STORE_SCRIPT_LOADS, &|group| group.store.script_loads);
    each(&f::STORE_FOREIGN_STATES, &|group| group.store.foreign_states);
    each(&f::STORE_LEASES, &|group| group.leases.held);
    each(&f::STORE_LEASED_AT_HAND, &|group| group.leases.at_hand);
    each(&f::STORE_LEASED, &|group| group.leases.granted);
    each(&f::STORE_LEASED_SPENT, &|group| group.leases.spent);
    each(&f::STORE_LEASE_REQUESTS, &|group| group.leases.requests);
    each(&f::STORE_LEASE_RENEWALS, &|group| group.leases.renewals);
    each(&f::STORE_LEASE_REFUSALS, &|group| group.leases.refused);
    each(&f::STORE_LEASE_UNANSWERED, &|group| group.leases.unanswered);
    each(&f::STORE_LEASES_EXPIRED, &|group| group.leases.expired);
    each(&f::STORE_REDIRECTS, &|group| group.store.redirects);
    each(&f::STORE_PLACES_RETURNED, &|group| group.store.places_returned);
    each(&f::STORE_GIVE_BACKS_KEPT, &|group| group.give_backs_kept);
    text.family(&f::STORE_FAILED);
    for (number, group) in &groups {
        let store = &group.store;
        let counts = [
            store.timeouts,
            store.busy,
            store.short_circuits,
            store.unreachable,
            store.broken,
            store.refused,
        ];
        for (reason, count) in REASONS.into_iter().zip(counts) {
            text.sample(&f::STORE_FAILED, &[("group", number), ("reason", reason)], count);
        }
    }
    text.family(&f::STORE_LATENCY);
    text.family(&f::STORE_GIVE_BACKS_FAILED);
    text.family(&f::CACHED_DENIALS);
    text.family(&f::DENIALS_KEPT);
    let Some(shared) = engine.shared() else { return };
    render::histogram(text, &f::STORE_LATENCY, &[], &metrics.store_latency);
    text.sample(&f::STORE_GIVE_BACKS_FAILED, &[], stats.give_backs_failed);
    text.sample(&f::CACHED_DENIALS, &[], stats.cached_denials);
    text.sample(&f::DENIALS_KEPT, &[], shared.denials_kept(engine.limiter().now()) as u64);
}
