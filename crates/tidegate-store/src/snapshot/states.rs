//! The states of the wide structure as bytes. Reading is total: any bytes give a state or `None`.

use tidegate_core::concurrency::Leases;
use tidegate_core::fixed_window::Window;
use tidegate_core::sliding_log::Log;
use tidegate_core::sliding_slots::Slots;
use tidegate_core::sliding_window::Counters;
use tidegate_core::stepped_bucket::Steps;
use tidegate_core::token_bucket::Bucket;
use tidegate_core::{Key, State, Timestamp};

const BUCKET: u8 = 0;
const STEPS: u8 = 1;
const WINDOW: u8 = 2;
const COUNTERS: u8 = 3;
const SLOTS: u8 = 4;
const LOG: u8 = 5;
const LEASES: u8 = 6;

pub(super) fn encode_record(key: Key, full_at: Timestamp, state: &State, out: &mut Vec<u8>) {
    out.extend(key.as_hash().to_le_bytes());
    out.extend(full_at.as_micros().to_le_bytes());
    let kind = out.len();
    out.extend([0; 5]);
    let start = out.len();
    out[kind] = encode(state, out);
    let length = u32::try_from(out.len() - start).expect("a state of less than 4 GiB");
    out[kind + 1..start].copy_from_slice(&length.to_le_bytes());
}

/// Appends a state and says what kind it is of.
fn encode(state: &State, out: &mut Vec<u8>) -> u8 {
    let mut numbers = |numbers: &[u64]| {
        out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    };
    match state {
        State::Bucket(bucket) => {
            let fraction = u64::from(bucket.full_at_fraction);
            numbers(&[bucket.full_at_micros, fraction, u64::from(bucket.in_debt)]);
            BUCKET
        }
        State::Steps(steps) => {
            numbers(&[steps.full_at.as_micros(), steps.part, u64::from(steps.in_debt)]);
            STEPS
        }
        State::Window(window) => {
            numbers(&[window.ends_at.as_micros(), window.count]);
            WINDOW
        }
        State::Counters(counters) => {
            numbers(&[counters.ends_at.as_micros(), counters.previous, counters.current]);
            COUNTERS
        }
        State::Slots(slots) => {
            slots.encode(out);
            SLOTS
        }
        State::Log(log) => {
            log.encode(out);
            LOG
        }
        State::Leases(leases) => {
            leases.encode(out);
            LEASES
        }
    }
}

pub(super) fn decode(kind: u8, bytes: &[u8]) -> Option<State> {
    Some(match kind {
        BUCKET => {
            let [full_at_micros, fraction, in_debt] = numbers(bytes)?;
            let full_at_fraction = u32::try_from(fraction).ok()?;
            State::Bucket(Bucket { full_at_micros, full_at_fraction, in_debt: in_debt != 0 })
        }
        STEPS => {
            let [full_at, part, in_debt] = numbers(bytes)?;
            let full_at = Timestamp::from_micros(full_at);
            State::Steps(Steps { full_at, part, in_debt: in_debt != 0 })
        }
        WINDOW => {
            let [ends_at, count] = numbers(bytes)?;
            State::Window(Window { ends_at: Timestamp::from_micros(ends_at), count })
        }
        COUNTERS => {
            let [ends_at, previous, current] = numbers(bytes)?;
            let ends_at = Timestamp::from_micros(ends_at);
            State::Counters(Counters { ends_at, previous, current })
        }
        SLOTS => State::Slots(Slots::decode(bytes)?),
        LOG => State::Log(Log::decode(bytes)?),
        LEASES => State::Leases(Leases::decode(bytes)?),
        _ => return None,
    })
}

fn numbers<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let (chunks, rest) = bytes.as_chunks::<8>();
    if chunks.len() != N || !rest.is_empty() {
        return None;
    }
    Some(std::array::from_fn(|index| u64::from_le_bytes(chunks[index])))
}
