//! When the certificates expire that a gateway shows. Their names come from its settings. A daemon without a gateway has
//! none, and the family is empty.

use std::collections::BTreeMap;
use std::fmt;

use super::families as f;
use super::text::Text;

/// The most names that are told, those that expire first.
const CERTIFICATE_SERIES_MAX: usize = 500;

/// How to find out when each expires.
pub(super) struct Expiries(pub(super) Box<dyn Fn() -> Vec<(String, i64)> + Send + Sync>);

impl fmt::Debug for Expiries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expiries").finish_non_exhaustive()
    }
}

pub(super) fn certificates(text: &mut Text, expiries: Option<&Expiries>) {
    let mut soonest = BTreeMap::new();
    for (name, at_s) in expiries.map(|expiries| expiries.0()).unwrap_or_default() {
        let known = soonest.entry(name).or_insert(at_s);
        *known = at_s.min(*known);
    }
    let mut soonest: Vec<_> = soonest.into_iter().collect();
    soonest.sort_by_key(|(_, at_s)| *at_s);
    text.family(&f::CERTIFICATE_EXPIRY);
    for (name, at_s) in soonest.iter().take(CERTIFICATE_SERIES_MAX) {
        text.sample(&f::CERTIFICATE_EXPIRY, &[("certificate", name)], at_s);
    }
}
