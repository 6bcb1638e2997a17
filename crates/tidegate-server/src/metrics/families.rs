//! The names of all metrics. `docs/metrics.md` lists the same ones, which a test sees to.

use super::text::{Family, Kind};

/// The names of all metrics, in the order of the text.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|family| family.name)
}

macro_rules! families {
    ($($id:ident: $kind:ident $name:literal $help:literal;)*) => {
        $(pub(super) const $id: Family =
            Family { name: $name, kind: Kind::$kind, help: $help };)*
        const ALL: &[Family] = &[$($id),*];
    };
}

families! {
    BUILD_INFO: Gauge "tidegate_build_info"
        "Which build this is; always 1.";
    START_TIME: Gauge "tidegate_start_time_seconds"
        "When the daemon started, in seconds since 1970.";
    DECISIONS: Counter "tidegate_decisions_total"
        "Decisions by the rule that was binding, by verdict, and by where they were made.";
    SHADOW_DENIALS: Counter "tidegate_shadow_denials_total"
        "Calls that this rule would have denied, had it or its candidate not been in shadow.";
    SKIPPED: Counter "tidegate_rules_skipped_total"
        "Rules that matched and did not apply, because an attribute that they count by was missing.";
    UNKNOWN_DOMAIN: Counter "tidegate_unknown_domain_total"
        "Calls in domains that nobody wrote rules for; they pass.";
    ANSWERS: Counter "tidegate_answers_total"
        "Calls that were answered, by protocol, whoever decided: rules, controls, or the call's own limit.";
    UNDECIDED: Counter "tidegate_undecided_total"
        "Calls that could not be decided, which is neither allowed nor denied.";
    RULINGS: Counter "tidegate_rulings_total"
        "Calls for which the operator's controls made the difference.";
    LATENCY: Histogram "tidegate_request_duration_seconds"
        "How long requests took, from when they were read to when their answer was made.";
    KEYS: Gauge "tidegate_keys"
        "Keys that have spent something which has not come back yet.";
    KEYS_DROPPED: Counter "tidegate_keys_dropped_total"
        "Live keys that had to go because the memory for keys is full; each starts afresh.";
    TABLE_BYTES: Gauge "tidegate_table_bytes"
        "Memory that keys take.";
    STORE_UP: Gauge "tidegate_store_up"
        "Whether the store that nodes share answers.";
    STORE_NODES: Gauge "tidegate_store_nodes"
        "Nodes that shared this store when it last answered, with this one.";
    STORE_CALLS: Counter "tidegate_store_calls_total"
        "Calls that were let through to the store.";
    STORE_SCRIPT_CALLS: Counter "tidegate_store_script_calls_total"
        "Script calls that were sent for them: equal calls under way share one.";
    STORE_COALESCED: Counter "tidegate_store_coalesced_total"
        "Calls that a script call decided which was sent for another.";
    STORE_FAILED: Counter "tidegate_store_failed_calls_total"
        "Calls that the store did not decide, by the reason.";
    STORE_IN_FLIGHT: Gauge "tidegate_store_in_flight"
        "Calls that wait for the store now.";
    STORE_LATENCY: Histogram "tidegate_store_decision_duration_seconds"
        "How long decisions took that the store made or should have made.";
    STORE_BREAKER: Gauge "tidegate_store_breaker_state"
        "0 while calls are let through to the store, 1 while one is to see whether it answers, 2 while none is.";
    STORE_BREAKER_OPENINGS: Counter "tidegate_store_breaker_openings_total"
        "How often calls were no longer let through.";
    STORE_FALLBACKS: Counter "tidegate_store_fallback_decisions_total"
        "Requests that the store could not decide, and that were decided by the policy for that.";
    STORE_CONNECTIONS: Counter "tidegate_store_connections_total"
        "Connections to the store that there have been.";
    STORE_SCRIPT_LOADS: Counter "tidegate_store_script_loads_total"
        "Times that the store had lost the script.";
    STORE_FOREIGN_STATES: Counter "tidegate_store_foreign_states_total"
        "Keys in the store that held what another program wrote.";
    STORE_LEASES: Gauge "tidegate_store_leases"
        "Leases that this node has, also those that are being opened or given back.";
    STORE_LEASED_AT_HAND: Gauge "tidegate_store_leased_at_hand"
        "What these leases have left to be spent.";
    STORE_LEASED: Counter "tidegate_store_leased_total"
        "What the store has granted in leases.";
    STORE_LEASED_SPENT: Counter "tidegate_store_leased_spent_total"
        "What of it was spent by this node itself, as far as the store was told or the lease has ended.";
    STORE_LEASE_REQUESTS: Counter "tidegate_store_lease_requests_total"
        "Requests about leases that were sent to the store.";
    STORE_LEASE_RENEWALS: Counter "tidegate_store_lease_renewals_total"
        "Those of them that extended a lease.";
    STORE_LEASE_REFUSALS: Counter "tidegate_store_lease_refusals_total"
        "Those by which the store did not grant what was needed.";
    STORE_LEASE_UNANSWERED: Counter "tidegate_store_lease_unanswered_total"
        "Those without an answer in time.";
    STORE_LEASES_EXPIRED: Counter "tidegate_store_leases_expired_total"
        "Leases that the store no longer knew, or that could not be given back in time.";
    STORE_REDIRECTS: Counter "tidegate_store_redirects_total"
        "Calls that one server of a cluster sent on to another.";
    STORE_PLACES_RETURNED: Counter "tidegate_store_places_returned_total"
        "Places under concurrency limits that were given back because nobody waited for them any more.";
    STORE_GIVE_BACKS_KEPT: Gauge "tidegate_store_give_backs_kept"
        "What the store is to be given back when it answers again.";
    STORE_GIVE_BACKS_FAILED: Counter "tidegate_store_give_backs_failed_total"
        "Charges that were to be given back, and were not for certain.";
    CACHED_DENIALS: Counter "tidegate_cached_denials_total"
        "Requests that were refused without asking the store, because a denial still held.";
    DENIALS_KEPT: Gauge "tidegate_denials_kept"
        "Denials of the store that still hold.";
    RULES: Gauge "tidegate_rules"
        "Rules in force.";
    RULES_VERSION: Gauge "tidegate_rules_version"
        "How many sets of rules have been in force since the start, with this one.";
    RULES_FINGERPRINT: Gauge "tidegate_rules_fingerprint"
        "The same number on every node of this build that has the same rules.";
    RULES_LOADED: Gauge "tidegate_rules_loaded_timestamp_seconds"
        "When the rules came into force, in seconds since 1970.";
    RELOADS: Counter "tidegate_rules_reloads_total"
        "Sets of rules that were put in force after the first.";
    RELOAD_ERRORS: Counter "tidegate_rules_reload_errors_total"
        "Sets of rules that had mistakes and changed nothing.";
    BANS: Gauge "tidegate_bans"
        "Bans in force.";
    ALLOW_LIST: Gauge "tidegate_allow_list_entries"
        "Entries of the allow-list in force.";
    BYPASS: Gauge "tidegate_bypass"
        "Whether everything is let through.";
    SHADOW: Gauge "tidegate_shadow"
        "Whether all rules are in shadow.";
    UPSTREAM_RESPONSES: Counter "tidegate_upstream_responses_total"
        "Responses of a server behind the gateway, by the first digit of their status.";
    UPSTREAM_FAILURES: Counter "tidegate_upstream_failures_total"
        "Requests that a server behind the gateway did not answer.";
    UPSTREAM_RETRIES: Counter "tidegate_upstream_retries_total"
        "Requests that were sent to a server behind the gateway after another try had failed.";
    UPSTREAM_EJECTIONS: Counter "tidegate_upstream_ejections_total"
        "How often a server behind the gateway was left out because it failed.";
    UPSTREAM_IN_FLIGHT: Gauge "tidegate_upstream_in_flight"
        "Requests that a server behind the gateway has not answered to the end.";
    UPSTREAM_IN_FLIGHT_MAX: Gauge "tidegate_upstream_in_flight_max"
        "How many a server behind the gateway is given at once at most: what is set, or what its latency allows.";
    UPSTREAM_CONNECTIONS: Gauge "tidegate_upstream_connections_open"
        "Connections to a server behind the gateway that are open, idle ones too.";
    UPSTREAM_LATENCY: Histogram "tidegate_upstream_response_duration_seconds"
        "How long a server behind the gateway took to begin its response.";
    CERTIFICATE_EXPIRY: Gauge "tidegate_certificate_expiry_timestamp_seconds"
        "When a certificate that the gateway shows expires, in seconds since 1970.";
    CONNECTIONS_OPEN: Gauge "tidegate_connections_open"
        "Connections that are open.";
    CONNECTIONS: Counter "tidegate_connections_total"
        "Connections that were accepted.";
    PROTOCOL_ERRORS: Counter "tidegate_protocol_errors_total"
        "Connections on which something was said that is not the protocol.";
}
