//! An answer that nobody waits for any more: whoever asked has gone, or has been answered by others, because the
//! deadline has passed. What was charged stays charged. A place under a concurrency limit is given back, because
//! nobody knows of it who could.

use std::fmt;
use std::sync::Weak;
use std::sync::atomic::Ordering;

use redis::Value;
use tidegate_core::{Key, Limit, Operation, Timestamp};
use tidegate_store::{Charge, Request};

use super::Core;
use super::call::Call;
use super::ticket::{Reply, Ticket};
use crate::protocol;

/// What has to be known of a request to give its places back.
pub(super) struct Orphan {
    core: Weak<Core>,
    now: Timestamp,
    asking: bool,
    charges: Vec<(Limit, Key, Operation)>,
}

impl Orphan {
    /// For a request that may be given places; `None` for any other.
    pub(super) fn of(core: Weak<Core>, request: &Request<'_>, asking: bool) -> Option<Box<Self>> {
        let may_hold = |charge: &Charge<'_>| {
            matches!(charge.limit, Limit::Concurrency(_))
                && matches!(charge.operation, Operation::Take { cost: 1.. })
        };
        if !request.charges.iter().any(may_hold) {
            return None;
        }
        let own = |charge: &Charge<'_>| (charge.limit.clone(), charge.key, charge.operation);
        let charges = request.charges.iter().map(own).collect();
        Some(Box::new(Self { core, now: request.now, asking, charges }))
    }

    /// Sends back the places that a reply gave, by the same connection. It is sent once, and nobody waits for
    /// it: what is lost on the way expires.
    pub(super) fn give_back(&self, reply: &Reply) {
        let Some(core) = self.core.upgrade() else { return };
        let Value::BulkString(bytes) = &*reply.value else { return };
        let charges: Vec<Charge<'_>> = self
            .charges
            .iter()
            .map(|(limit, key, operation)| Charge { limit, key: *key, operation: *operation })
            .collect();
        let mut decisions = Vec::with_capacity(charges.len());
        let read = protocol::read_reply(bytes, &charges, reply.round, &mut decisions);
        let Some(protocol::Reply::Decided { .. }) = read else { return };
        let releases: Vec<Charge<'_>> = charges
            .iter()
            .zip(&decisions)
            .filter(|(charge, _)| !matches!(charge.operation, Operation::Renew { .. }))
            .filter_map(|(charge, decision)| {
                Some(Charge { operation: Operation::Release { lease: decision.lease? }, ..*charge })
            })
            .collect();
        if releases.is_empty() {
            return;
        }
        let request = Request { now: self.now, charges: &releases };
        let call = Call::decision(&core.config, &request, core.around(self.now));
        let now = core.elapsed();
        let added = core.queue.lock().add(now, call.asking(self.asking), Ticket::of_nobody());
        // ORDERING: numbers for people.
        match added {
            Ok(()) => {
                core.places_returned.fetch_add(releases.len() as u64, Ordering::Relaxed);
                core.wake.notify_one();
            }
            Err(_full) => {
                core.give_backs_failed.fetch_add(releases.len() as u64, Ordering::Relaxed);
            }
        }
    }
}

impl fmt::Debug for Orphan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Orphan").field("charges", &self.charges.len()).finish_non_exhaustive()
    }
}
