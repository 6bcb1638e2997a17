//! A request for a lease as the script's argument, and the script's answer to it.
//!
//! ```text
//! argument   as that of a charge without a cost | node 8 | epoch 4 | sequence 4 | spent 6 | need 6
//!            | waiting 6 | want 6 | ttl in ms 4 | kept for ms 6
//! answer     as that to a charge | known 1 | granted 6
//! ```
//!
//! The operation is 6 to open, 7 to renew and 8 to close.

use tidegate_core::{Limit, Operation, Span, Timestamp};
use tidegate_store::Charge;

use super::answer::{Reader, Reply};
use super::charge::write_only;
use super::write;
use crate::lease::book::Call;
use crate::lease::{HOLDERS_MAX, Intent, OCCUPIED_WAIT_MAX, TOTAL_MAX, TTL, Told};

/// More than any state has to be kept, and no more than six bytes hold.
const KEPT_MS_MAX: u64 = (1 << 48) - 1;

/// Counts and sequences have so many bytes.
const COUNT_MAX: u64 = (1 << 48) - 1;

/// The argument for one request, appended to `out`.
pub(crate) fn write_ask(call: &Call, now: Timestamp, out: &mut Vec<u8>) {
    let (limit, ask) = (&call.limit, &call.ask);
    let operation = match ask.intent {
        Intent::Open => 7,
        Intent::Renew => 8,
        Intent::Close => 9,
    };
    write_only(limit, call.key, operation, now, out, |out| {
        write(out, 8, ask.holder.node);
        write(out, 4, ask.holder.epoch.into());
        write(out, 4, ask.sequence.into());
        for count in [ask.spent, ask.need, ask.waiting, ask.want] {
            write(out, 6, count.min(COUNT_MAX));
        }
        write(out, 4, TTL.as_millis_ceil());
        write(out, 6, kept_for(limit).as_millis_ceil().min(KEPT_MS_MAX));
    });
}

/// Reads the answer to a request; `None` for bytes that are none.
pub(crate) fn read_told(bytes: &[u8], call: &Call) -> Option<(Reply, Option<Told>)> {
    let charge =
        Charge { limit: &call.limit, key: call.key, operation: Operation::Peek { cost: 0 } };
    let mut reader = Reader(bytes);
    let reply = reader.head()?;
    let Reply::Decided { now, .. } = reply else {
        return reader.is_empty().then_some((reply, None));
    };
    let decision = reader.decision(&charge, now)?;
    let known = reader.number(1)? != 0;
    let granted = reader.number(6)?;
    reader.is_empty().then_some((reply, Some(Told { known, granted, decision })))
}

/// For how long a state says something after the last charge, whatever was charged before.
fn kept_for(limit: &Limit) -> Span {
    let twice = Span::from_micros(limit.period().as_micros().saturating_mul(2));
    limit.fill_time().map_or(twice, |fill| Span::from_micros(fill.as_micros() + twice.as_micros()))
}

const _: () =
    assert!(HOLDERS_MAX == 128 && TOTAL_MAX == 17_592_186_044_416, "the script's numbers");
const _: () = assert!(TTL.as_micros() == 600_000, "the script's number");
const _: () = assert!(OCCUPIED_WAIT_MAX.as_micros() == 20_000, "the script's number");
