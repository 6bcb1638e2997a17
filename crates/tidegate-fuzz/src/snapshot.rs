//! State files: any bytes are one, or are refused and change nothing; and what was taken over can be
//! decided on.
//!
//! The first byte of the input says what the rest is. Even: the file itself. Odd: what the file is to
//! hold, for which the target writes the right beginning and checksum, so that an input gets
//! past them: the number of lines that are not empty (one byte); for each its number (two bytes, the low
//! one first), its mask and its entries; and the rest of the file up to the checksum.

use std::collections::BTreeMap;
use std::hash::Hasher as _;
use std::sync::LazyLock;

use siphasher::sip::SipHasher24;
use tidegate_core::{Key, Limit, Operation, Span, Timestamp};
use tidegate_rules::parse_limit;
use tidegate_store::snapshot::{Label, label_of};
use tidegate_store::{Charge, Table, TableConfig};

const LABEL: Label = *b"made with the fuzzer's own label";
/// Where the clock starts.
pub const START: Timestamp = Timestamp::from_secs(20_000 * 86_400);
const LINES: usize = TableConfig::ENTRY_BYTES_MIN / 64;
/// In the seeds as here: the first key is counted under the first limit, and so on.
const LIMITS: [&str; 9] = [
    "20/hour",
    "20/hour stepped",
    "20/hour leaky-bucket",
    "20/hour fixed-window",
    "20/hour fixed-window from-first-request",
    "20/hour sliding-window",
    "20/hour sliding-slots slots 60",
    "20/hour sliding-log",
    "20 at once for 1h",
];

static PARSED: LazyLock<Vec<Limit>> =
    LazyLock::new(|| LIMITS.iter().map(|text| parse_limit(text).expect("a limit")).collect());

/// The file of a table without keys.
static EMPTY: LazyLock<Vec<u8>> = LazyLock::new(|| written(&table()));

/// How much of a file comes before its lines. Behind them an empty one has the number of its records
/// and the checksum.
fn head_bytes() -> usize {
    EMPTY.len() - LINES - 8 - 8
}

/// # Panics
///
/// Where the claim does not hold.
pub fn check(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let built;
    let file = if first % 2 == 0 {
        rest
    } else {
        built = build(rest);
        &built
    };
    let table = table();
    // Of a good beginning, whatever follows.
    if let Err(error) = label_of(file) {
        assert!(!error.to_string().is_empty());
    }
    match table.read_snapshot(file, &LABEL, START) {
        Ok(_) => {
            read_back(&table);
            decide(&table);
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(written(&table) == *EMPTY, "refused, and yet taken over");
            assert_eq!(table.stats(START).keys, 0);
        }
    }
}

fn table() -> Table {
    let (entry_bytes, wide_bytes) = (TableConfig::ENTRY_BYTES_MIN, TableConfig::WIDE_BYTES_MIN);
    Table::new(TableConfig { entry_bytes, wide_bytes }, START).expect("the smallest table")
}

fn written(table: &Table) -> Vec<u8> {
    let mut bytes = Vec::new();
    table.write_snapshot(&mut bytes, &LABEL, START).expect("writing to memory");
    bytes
}

/// What was taken over is written, and is a good file again.
fn read_back(table: &Table) {
    let bytes = written(table);
    let other = self::table();
    let read = other.read_snapshot(&bytes, &LABEL, START);
    assert!(read.is_ok(), "what was written is refused: {read:?}");
}

/// Each of the keys can be decided on under each of the limits, now and later. What comes of it is
/// nobody's business, since the file may say anything.
fn decide(table: &Table) {
    for wait in [0, 1_000_000, 3_600_000_000] {
        let now = START.plus(Span::from_micros(wait));
        for number in 0..LIMITS.len() {
            for limit in PARSED.iter() {
                for operation in [
                    Operation::Peek { cost: 1 },
                    Operation::Take { cost: 3 },
                    Operation::Debit { cost: 50 },
                    Operation::Refund { cost: 2, taken_at: START },
                ] {
                    let key = key(number);
                    let decision = table.decide_one(now, &Charge { limit, key, operation });
                    assert!(decision.remaining <= decision.limit, "{decision:?}");
                }
            }
        }
    }
}

fn key(number: usize) -> Key {
    // Any odd number of many bits spreads the small ones over all lines.
    Key::from_hash((number as u128 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835))
}

/// The file that holds what the input says.
fn build(mut input: &[u8]) -> Vec<u8> {
    let mut lines = BTreeMap::new();
    let count = take(&mut input, 1).first().copied().unwrap_or_default();
    for _ in 0..count {
        let [low, high, mask] = *take(&mut input, 3) else { break };
        let entries = take(&mut input, 16 * mask.count_ones() as usize);
        let number = usize::from(u16::from_le_bytes([low, high])) % LINES;
        lines.insert(number, (mask, entries));
    }
    // All that comes before the lines is as the table itself writes it.
    let (mut file, mut next) = (EMPTY[..head_bytes()].to_vec(), 0);
    for (number, (mask, entries)) in lines {
        file.resize(file.len() + number - next, 0);
        file.push(mask);
        file.extend(entries);
        next = number + 1;
    }
    file.resize(file.len() + LINES - next, 0);
    file.extend(input);
    let mut hasher = SipHasher24::new();
    hasher.write(&file);
    file.extend(hasher.finish().to_le_bytes());
    file
}

/// Takes so many bytes off, or as many as there are.
fn take<'d>(input: &mut &'d [u8], count: usize) -> &'d [u8] {
    let (taken, rest) = input.split_at(count.min(input.len()));
    *input = rest;
    taken
}

/// An input whose file holds each of the keys, counted under its own limit.
///
/// # Panics
///
/// Where an empty table refuses a request.
pub fn seed() -> Vec<u8> {
    let table = table();
    for (number, limit) in PARSED.iter().enumerate() {
        let operation = Operation::Take { cost: 3 };
        let charge = Charge { limit, key: key(number), operation };
        assert!(table.decide_one(START, &charge).is_allowed(), "an empty table");
    }
    let file = written(&table);
    let mut rest = &file[head_bytes()..file.len() - 8];
    let (mut count, mut sparse) = (0_u8, Vec::new());
    for number in 0..LINES {
        let mask = take(&mut rest, 1)[0];
        let entries = take(&mut rest, 16 * mask.count_ones() as usize);
        if mask != 0 {
            count += 1;
            // There are fewer lines than two bytes can number.
            sparse.extend((number as u16).to_le_bytes());
            sparse.push(mask);
            sparse.extend(entries);
        }
    }
    [&[1, count][..], &sparse, rest].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_is_a_file_with_all_of_its_keys() {
        let table = table();
        let file = build(&seed()[1..]);
        let keys = table.read_snapshot(&file, &LABEL, START).unwrap();
        assert_eq!(keys, LIMITS.len() as u64);
    }
}
