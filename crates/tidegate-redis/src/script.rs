//! The script's text: one chain of branches, cut into a file for each kind of algorithm.

/// The whole of it. Its head says how numbers are kept exact.
pub(crate) const SOURCE: &str = concat!(
    include_str!("script/head.lua"),
    include_str!("script/quick.lua"),
    include_str!("script/state.lua"),
    include_str!("script/plain.lua"),
    include_str!("script/lease_before.lua"),
    include_str!("script/bucket.lua"),
    include_str!("script/windows.lua"),
    include_str!("script/slots.lua"),
    include_str!("script/log.lua"),
    include_str!("script/leases.lua"),
    include_str!("script/lease_after.lua"),
    include_str!("script/tail.lua"),
);
