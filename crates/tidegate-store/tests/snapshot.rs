//! Limits survive a restart: what a snapshot keeps, and what it refuses.
#![allow(clippy::unwrap_used, reason = "a test whose numbers are wrong is to fail")]

mod support;

use std::fs;
use std::hash::Hasher;
use std::path::PathBuf;

use proptest::prelude::*;
use siphasher::sip::SipHasher24;
use support::{
    SMALLEST, START, bucket, key, later, left, log, one, one_of_each, peek, sliding, take, takes,
    window,
};
use tidegate_core::{Limit, Operation, Span, Timestamp};
use tidegate_store::snapshot::{Label, SnapshotError, label_of};
use tidegate_store::{Table, TableConfig};

const LABEL: Label = *b"made with the tests' own secret.";
const LINES_AT: usize = 8 + 4 + 32 + 8;
const CHECKSUM_BYTES: usize = 8;

fn written(table: &Table, now: Timestamp) -> Vec<u8> {
    let mut bytes = Vec::new();
    table.write_snapshot(&mut bytes, &LABEL, now).unwrap();
    bytes
}

/// The limits under test: each algorithm, and numbers too large for an entry.
fn limits() -> Vec<Limit> {
    let mut limits = one_of_each(20).to_vec();
    limits.extend([
        bucket(1, Span::SECOND, 1 << 40),
        sliding(1 << 40, Span::SECOND),
        sliding(10_000, Span::from_micros(700_001)),
        window(1 << 44, Span::from_secs(9)),
        log(1_000, Span::MINUTE),
    ]);
    limits
}

/// A table in which each limit's key has spent something, and some have spent much.
fn used_table() -> Table {
    let table = support::table(SMALLEST);
    for (number, limit) in (0..).zip(limits()) {
        for step in 0..7 {
            let cost = if step == 3 {
                one(&table, &limit, key(number), START, peek(0)).limit / 3
            } else {
                1
            };
            assert!(takes(&table, &limit, key(number), later(START, step * 1_001), cost));
        }
    }
    table
}

/// Both tables answer alike from now on.
fn answer_alike(one_table: &Table, other: &Table, from: Timestamp) {
    let waits = [0, 1, 999, 1_000_000, 60_000_000, 1_800_000_000, 3_600_000_000];
    let mut now = from;
    for wait in waits {
        now = later(now, wait);
        for (number, limit) in (0..).zip(limits()) {
            for operation in [peek(1), take(3), Operation::Refund { cost: 1, taken_at: from }] {
                let answer = |table| one(table, &limit, key(number), now, operation);
                assert_eq!(answer(one_table), answer(other), "{} after {wait}", limit.name());
            }
        }
    }
}

#[test]
fn a_restored_table_answers_as_one_that_went_on() {
    let now = later(START, 10_000);
    let table = used_table();
    let bytes = written(&table, now);
    let restored = support::table(SMALLEST);
    let keys = restored.read_snapshot(&bytes, &LABEL, now).unwrap();
    assert_eq!(keys, limits().len() as u64);
    assert_eq!(restored.stats(now).keys, table.stats(now).keys);
    answer_alike(&table, &restored, now);
}

#[test]
fn a_table_made_later_or_earlier_answers_the_same() {
    const YEAR: u64 = 365 * 86_400 * 1_000_000;
    let now = later(START, 10_000);
    let bytes = written(&used_table(), now);
    for made_at in [START.minus(Span::from_secs(5 * 365 * 86_400)), later(START, YEAR / 2)] {
        let restored = Table::new(SMALLEST, made_at).unwrap();
        let keys = restored.read_snapshot(&bytes, &LABEL, now).unwrap();
        assert_eq!(keys, limits().len() as u64);
        answer_alike(&used_table(), &restored, now);
    }
}

#[test]
fn keys_that_are_full_again_are_neither_written_nor_taken_over() {
    let table = support::table(SMALLEST);
    let (quick, slow) = (bucket(1, Span::SECOND, 5), bucket(1, Span::HOUR, 5));
    let (quick_log, slow_log) = (log(1, Span::SECOND), log(1, Span::HOUR));
    for (number, limit) in (0..).zip([&quick, &slow, &quick_log, &slow_log]) {
        assert!(takes(&table, limit, key(number), START, 1));
    }
    let soon = later(START, 2_000_000);
    let (early, late) = (written(&table, START), written(&table, soon));
    assert!(early.len() > late.len());
    for bytes in [early, late] {
        let restored = support::table(SMALLEST);
        assert_eq!(restored.read_snapshot(&bytes, &LABEL, soon).unwrap(), 2);
        assert_eq!(restored.stats(soon).keys, 2);
        assert!(!takes(&restored, &slow_log, key(3), soon, 1));
    }
}

#[test]
fn an_empty_table_makes_a_snapshot_of_an_empty_table() {
    let bytes = written(&support::table(SMALLEST), START);
    let restored = support::table(SMALLEST);
    assert_eq!(restored.read_snapshot(&bytes, &LABEL, START).unwrap(), 0);
    assert_eq!(label_of(&bytes).unwrap(), LABEL);
}

#[test]
fn reading_a_snapshot_twice_gives_each_key_one_entry() {
    let bytes = written(&used_table(), START);
    let restored = support::table(SMALLEST);
    for _ in 0..2 {
        restored.read_snapshot(&bytes, &LABEL, START).unwrap();
        assert_eq!(restored.stats(START).keys, limits().len() as u64);
    }
    restored.forget(key(0));
    assert_eq!(left(&restored, &limits()[0], key(0), START), 20);
}

/// Whether the snapshot is refused and the table stays empty.
fn refused(bytes: &[u8]) -> SnapshotError {
    let table = support::table(SMALLEST);
    let error = table.read_snapshot(bytes, &LABEL, START).unwrap_err();
    assert_eq!(table.stats(START).keys, 0);
    error
}

fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.truncate(bytes.len() - CHECKSUM_BYTES);
    let mut hasher = SipHasher24::new();
    hasher.write(&bytes);
    bytes.extend(hasher.finish().to_le_bytes());
    bytes
}

#[test]
fn a_file_cut_short_at_any_length_is_refused() {
    let bytes = written(&used_table(), START);
    let table = support::table(SMALLEST);
    for length in 0..bytes.len() {
        let error = table.read_snapshot(&bytes[..length], &LABEL, START).unwrap_err();
        let is_right = match error {
            SnapshotError::Foreign => length < 8,
            SnapshotError::Damaged { .. } => length >= 8,
            _ => false,
        };
        assert!(is_right, "{length} bytes");
    }
    assert_eq!(table.stats(START).keys, 0);
    for length in [LINES_AT, LINES_AT + 8, LINES_AT + 9, bytes.len() - 40, bytes.len() - 9] {
        let error = refused(&resealed(bytes[..length].to_vec()));
        assert!(matches!(error, SnapshotError::Damaged { .. }), "{length}: {error:?}");
    }
}

#[test]
fn a_file_with_any_byte_changed_is_refused() {
    let mut bytes = written(&used_table(), START);
    let table = support::table(SMALLEST);
    for position in 0..bytes.len() {
        bytes[position] ^= 0x10;
        let error = table.read_snapshot(&bytes, &LABEL, START).unwrap_err();
        let is_right = match error {
            SnapshotError::Foreign => position < 8,
            SnapshotError::OtherVersion { expected: 1, .. } => (8..12).contains(&position),
            SnapshotError::Damaged { .. } => position >= 12,
            _ => false,
        };
        assert!(is_right, "byte {position}");
        bytes[position] ^= 0x10;
    }
    assert_eq!(table.stats(START).keys, 0);
    assert!(table.read_snapshot(&bytes, &LABEL, START).is_ok());
}

#[test]
fn foreign_files_are_refused_as_such() {
    for bytes in
        [&b""[..], b"TIDEGAT", b"{\"domain\": \"api\"}", &[0; 4096], b"\x7fELF\x02\x01\x01\0"]
    {
        assert!(matches!(refused(bytes), SnapshotError::Foreign));
        assert!(matches!(label_of(bytes), Err(SnapshotError::Foreign)));
    }
}

#[test]
fn a_file_of_another_version_label_or_size_is_refused_and_says_so() {
    let bytes = written(&used_table(), START);
    let mut newer = bytes.clone();
    newer[8] = 2;
    assert!(matches!(
        refused(&resealed(newer)),
        SnapshotError::OtherVersion { found: 2, expected: 1 }
    ));
    let mut other = bytes.clone();
    other[12] ^= 1;
    assert!(matches!(refused(&resealed(other)), SnapshotError::OtherLabel));
    let larger = TableConfig { entry_bytes: 2 * SMALLEST.entry_bytes, ..SMALLEST };
    let larger = support::table(larger);
    let error = larger.read_snapshot(&bytes, &LABEL, START).unwrap_err();
    let lines = SMALLEST.entry_bytes as u64 / 64;
    assert!(matches!(
        error,
        SnapshotError::OtherSize { found, expected } if found == lines && expected == 2 * lines
    ));
    assert!(error.to_string().contains("memory setting"));
    assert_eq!(larger.stats(START).keys, 0);
}

#[test]
fn entries_that_no_table_writes_are_refused_behind_a_right_checksum() {
    let bytes = written(&support::table(SMALLEST), START);
    let first_line = LINES_AT + 8;
    let with_line = |line: &[u8]| {
        let mut bytes = bytes.clone();
        bytes.splice(first_line..=first_line, line.iter().copied());
        refused(&resealed(bytes))
    };
    let mut locked = [0xFF; 17];
    locked[0] = 1;
    let mut nobodys = [0; 17];
    (nobodys[0], nobodys[5]) = (1, 0xFF);
    for line in [&[16_u8][..], &locked, &nobodys] {
        assert!(matches!(with_line(line), SnapshotError::Damaged { .. }), "{line:?}");
    }
}

/// Reads what may be anything, and uses the table afterwards: nothing panics, and where it was
/// refused, the table is empty.
fn reads_without_panic(bytes: &[u8]) {
    let table = support::table(SMALLEST);
    if table.read_snapshot(bytes, &LABEL, START).is_err() {
        assert_eq!(table.stats(START).keys, 0);
        return;
    }
    for now in [Timestamp::ZERO, START, later(START, 5_000_000), Timestamp::MAX] {
        for (number, limit) in (0..).zip(limits()) {
            for operation in [peek(1), take(1), Operation::Debit { cost: u64::MAX }] {
                let _ = one(&table, &limit, key(number), now, operation);
            }
        }
    }
    written(&table, START);
}

fn changes() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn arbitrary_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        reads_without_panic(&bytes);
        let headed = [&b"TIDEGATE\x01\0\0\0"[..], &LABEL, &bytes, &[0; 8]].concat();
        reads_without_panic(&headed);
        reads_without_panic(&resealed(headed));
    }

    #[test]
    fn changed_bytes_behind_a_right_checksum_are_read_without_a_panic(changes in changes()) {
        // Nearly all of the file is lines; what is behind them is changed as often as they are.
        let bytes = written(&used_table(), START);
        let tail = bytes.len() - 2_000;
        for start in [0, tail] {
            let mut bytes = bytes.clone();
            for (index, byte) in &changes {
                let position = start + index.index(bytes.len() - start);
                bytes[position] = *byte;
            }
            reads_without_panic(&resealed(bytes));
        }
    }

    #[test]
    fn a_file_with_several_bytes_changed_is_refused(changes in changes()) {
        let bytes = written(&used_table(), START);
        let mut changed = bytes.clone();
        for (index, byte) in &changes {
            let position = index.index(bytes.len());
            changed[position] = *byte;
        }
        if changed != bytes {
            refused(&changed);
        }
    }
}

/// A folder of its own that is removed again.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("tidegate-snapshot-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn saving_replaces_the_file_and_leaves_no_draft() {
    let folder = Folder::new("replaces");
    let path = folder.0.join("state");
    support::table(SMALLEST).save(&path, &LABEL, START).unwrap();
    let table = used_table();
    table.save(&path, &LABEL, START).unwrap();
    assert_eq!(folder.names(), ["state"]);
    assert_eq!(fs::read(&path).unwrap(), written(&table, START));
    let restored = support::table(SMALLEST);
    assert_eq!(restored.load(&path, &LABEL, START).unwrap(), limits().len() as u64);
}

#[test]
fn a_save_that_fails_leaves_the_old_file_and_no_draft() {
    let folder = Folder::new("fails");
    let table = used_table();
    let failed = |path: PathBuf| {
        let error = table.save(&path, &LABEL, START).unwrap_err();
        assert!(matches!(error, SnapshotError::Io(_)), "{error:?}");
        assert!(std::error::Error::source(&error).is_some());
    };
    failed(folder.0.join("missing").join("state"));
    fs::create_dir(folder.0.join("state")).unwrap();
    fs::write(folder.0.join("state").join("inside"), "kept").unwrap();
    failed(folder.0.join("state"));
    assert_eq!(fs::read_to_string(folder.0.join("state").join("inside")).unwrap(), "kept");
    assert_eq!(folder.names(), ["state"]);
    let error = table.load(&folder.0.join("other"), &LABEL, START).unwrap_err();
    assert!(matches!(error, SnapshotError::Io(_)));
}

#[cfg(unix)]
#[test]
fn the_file_is_its_owners_only_and_no_draft_is_left() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("mode");
    let path = folder.0.join("state");
    for _ in 0..2 {
        used_table().save(&path, &LABEL, START).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(folder.names(), ["state"]);
    }
}
