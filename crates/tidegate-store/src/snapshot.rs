//! The table as bytes, and back: limits survive a restart.
//!
//! ```text
//! magic      8   "TIDEGATE"
//! version    4   1
//! label     32   the caller's: what its keys were made with
//! origin     8   of the times in entries, in microseconds
//! lines      8   then for each: 1 byte of which words are live, 16 bytes for each of them
//! records    8   then for each: key 16, full at 8, kind 1, length 4, and as many bytes
//! checksum   8   SipHash-2-4 of all before
//! ```
//!
//! Numbers are little-endian. Nothing is taken over before all of it has been read and its checksum
//! compared, so a file that was cut short, damaged or made by something else changes nothing.
//! Entries know their line but not their key, so a file fits only a table of as many lines.

mod file;
mod states;

use std::fmt;
use std::hash::Hasher;
use std::io::{self, Write};

use siphasher::sip::SipHasher24;
use tidegate_core::{Key, State, Timestamp};

use crate::entry::{Entry, Fingerprint, Payload};
use crate::lines::Line;
use crate::places::Places;
use crate::sync::Backoff;
use crate::table::Table;

pub use file::read_file;

/// What a caller needs to know of a snapshot to be able to use it: the secret of its keys, say, or
/// something to recognise that secret by.
pub type Label = [u8; 32];

const MAGIC: &[u8; 8] = b"TIDEGATE";
const VERSION: u32 = 1;

impl Table {
    /// Writes all live keys. Other threads go on meanwhile: every key is written as it was at some
    /// moment of the call.
    pub fn write_snapshot(
        &self,
        out: &mut impl Write,
        label: &Label,
        now: Timestamp,
    ) -> io::Result<()> {
        let mut out = Checked { inner: out, hasher: SipHasher24::new() };
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        out.write_all(label)?;
        out.write_all(&self.origin.to_le_bytes())?;
        out.write_all(&(self.places.lines().len() as u64).to_le_bytes())?;
        let reading = self.places.begin_reading();
        for line in reading.lines() {
            self.write_line(&mut out, line, now)?;
        }
        self.write_records(&mut out, now)?;
        drop(reading);
        let checksum = out.hasher.finish();
        out.inner.write_all(&checksum.to_le_bytes())
    }

    fn write_line(&self, out: &mut impl Write, line: &Line, now: Timestamp) -> io::Result<()> {
        let now = self.since_origin(now);
        let (mut mask, mut bytes, mut length) = (0_u8, [0; 1 + 16 * Line::WORDS], 1);
        for (index, word) in line.0.iter().enumerate() {
            let entry = settled(word);
            if entry != Entry::FREE && entry.full_at() >= now {
                mask |= 1 << index;
                bytes[length..length + 16].copy_from_slice(&entry.0.to_le_bytes());
                length += 16;
            }
        }
        bytes[0] = mask;
        out.write_all(&bytes[..length])
    }

    fn write_records(&self, out: &mut impl Write, now: Timestamp) -> io::Result<()> {
        // Encoded shard by shard, so that no shard is locked while the disk is written to.
        let (mut count, mut encoded) = (0_u64, Vec::new());
        for shard in self.wide.shards() {
            for record in shard.records().filter(|record| record.full_at >= now) {
                states::encode_record(record.key(), record.full_at, &record.state, &mut encoded);
                count += 1;
            }
        }
        out.write_all(&count.to_le_bytes())?;
        out.write_all(&encoded)
    }

    /// Takes over the keys of a snapshot that are still live, and says how many. The table should be
    /// empty. Where the snapshot is refused, the table is as it was.
    pub fn read_snapshot(
        &self,
        bytes: &[u8],
        label: &Label,
        now: Timestamp,
    ) -> Result<u64, SnapshotError> {
        let mut rest = Reader::new(bytes)?;
        if rest.array::<32>()? != *label {
            return Err(SnapshotError::OtherLabel);
        }
        let origin = rest.u64()?;
        let lines = rest.u64()?;
        if lines != self.places.lines().len() as u64 {
            let (found, expected) = (lines, self.places.lines().len() as u64);
            return Err(SnapshotError::OtherSize { found, expected });
        }
        let entries = rest.entries(lines)?;
        let records = rest.records()?;
        if !rest.bytes.is_empty() {
            return Err(SnapshotError::Damaged { what: "bytes after the last record" });
        }
        Ok(self.take_entries(&entries, origin, now) + self.take_records(records, now))
    }

    fn take_entries(&self, entries: &[(usize, Entry)], origin: u64, now: Timestamp) -> u64 {
        let now = self.since_origin(now);
        let (seconds, later) = (self.origin.abs_diff(origin) / 1_000_000, self.origin > origin);
        let mut taken = 0;
        for &(line, entry) in entries {
            let Some(entry) = entry.with_origin(seconds, later) else { continue };
            if entry.full_at() < now {
                continue;
            }
            // The entries of spilled states follow from their records.
            if !entry.is_spilled() {
                taken += u64::from(self.places.restore(Places::probe_at(line, entry), now, entry));
            }
        }
        taken
    }

    fn take_records(&self, records: Vec<(Key, Timestamp, State)>, now: Timestamp) -> u64 {
        let mut taken = 0;
        for (key, full_at, state) in records {
            if full_at < now {
                continue;
            }
            let is_new = match state {
                State::Slots(_) | State::Log(_) | State::Leases(_) => true,
                State::Bucket(_) | State::Steps(_) | State::Window(_) | State::Counters(_) => {
                    let payload = Payload::spilled(self.since_origin(full_at));
                    let entry = Entry::new(Fingerprint::of(key), payload);
                    self.places.restore(self.places.probe(key), self.since_origin(now), entry)
                }
            };
            self.wide.lock_one(key).put(key, full_at, state, now);
            taken += u64::from(is_new);
        }
        taken
    }
}

/// The entry of a word once nobody holds it.
fn settled(word: &crate::word::Word) -> Entry {
    let mut backoff = Backoff::default();
    loop {
        let entry = Entry(word.load());
        if !entry.is_locked() {
            return entry;
        }
        backoff.wait();
    }
}

/// The label of a snapshot, for a caller that has to know it before it can make its keys.
pub fn label_of(bytes: &[u8]) -> Result<Label, SnapshotError> {
    Reader::new(bytes)?.array()
}

/// Writes and sums up.
struct Checked<W> {
    inner: W,
    hasher: SipHasher24,
}

impl<W: Write> Write for Checked<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hasher.write(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// What is left to read of a snapshot whose checksum is right.
struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self, SnapshotError> {
        let mut reader = Self { bytes };
        if reader.array::<8>().ok() != Some(*MAGIC) {
            return Err(SnapshotError::Foreign);
        }
        let version = u32::from_le_bytes(reader.array()?);
        if version != VERSION {
            return Err(SnapshotError::OtherVersion { found: version, expected: VERSION });
        }
        let cut_short = SnapshotError::Damaged { what: "it ends too soon" };
        let (covered, checksum) = bytes.split_last_chunk::<8>().ok_or(cut_short)?;
        let mut hasher = SipHasher24::new();
        hasher.write(covered);
        if hasher.finish() != u64::from_le_bytes(*checksum) {
            return Err(SnapshotError::Damaged { what: "the checksum is wrong" });
        }
        reader.bytes =
            covered.get(12..).ok_or(SnapshotError::Damaged { what: "it ends too soon" })?;
        Ok(reader)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], SnapshotError> {
        let ended = SnapshotError::Damaged { what: "it ends too soon" };
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(ended)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn u64(&mut self) -> Result<u64, SnapshotError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn entries(&mut self, lines: u64) -> Result<Vec<(usize, Entry)>, SnapshotError> {
        let mut entries = Vec::new();
        for line in 0..lines as usize {
            let [mask] = self.array()?;
            if mask >> Line::WORDS != 0 {
                return Err(SnapshotError::Damaged { what: "a line of more than four entries" });
            }
            for _ in 0..mask.count_ones() {
                let entry = Entry(u128::from_le_bytes(self.array()?));
                if entry.is_locked() || entry.is_nobodys() {
                    return Err(SnapshotError::Damaged { what: "an entry that cannot be" });
                }
                entries.push((line, entry));
            }
        }
        Ok(entries)
    }

    fn records(&mut self) -> Result<Vec<(Key, Timestamp, State)>, SnapshotError> {
        let count = self.u64()?;
        let mut records = Vec::new();
        for _ in 0..count {
            records.push(self.record()?);
        }
        Ok(records)
    }

    fn record(&mut self) -> Result<(Key, Timestamp, State), SnapshotError> {
        let key = Key::from_hash(u128::from_le_bytes(self.array()?));
        let full_at = Timestamp::from_micros(self.u64()?);
        let [kind] = self.array()?;
        let length = u32::from_le_bytes(self.array()?);
        let state = states::decode(kind, self.take(length as usize)?);
        let state = state.ok_or(SnapshotError::Damaged { what: "a state that cannot be" })?;
        Ok((key, full_at, state))
    }
}

/// Why a snapshot was refused. The table is as it was.
#[derive(Debug)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The file could not be read or written.
    Io(io::Error),
    /// It does not begin as a snapshot does.
    Foreign,
    /// It was written by a version that this one does not understand.
    OtherVersion {
        /// The version it has.
        found: u32,
        /// The version that is understood.
        expected: u32,
    },
    /// Its keys were made with another secret.
    OtherLabel,
    /// It is of a table of another size.
    OtherSize {
        /// The lines it has.
        found: u64,
        /// The lines that the table has.
        expected: u64,
    },
    /// It is longer than one of a table of this size can be.
    TooLarge {
        /// The longest, in bytes.
        max: u64,
    },
    /// It was cut short, or changed.
    Damaged {
        /// Where that showed.
        what: &'static str,
    },
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(_) => f.write_str("the state file could not be read or written"),
            Self::Foreign => f.write_str("the file is not a state file of Tidegate"),
            Self::OtherVersion { found, expected } => write!(
                f,
                "the state file has version {found}, and this program understands {expected}"
            ),
            Self::OtherLabel => f.write_str("the state file was written with another secret"),
            Self::OtherSize { found, expected } => write!(
                f,
                "the state file is of a table of {} bytes, and this one has {}: the memory setting \
                 has changed",
                found.saturating_mul(size_of::<Line>() as u64),
                expected.saturating_mul(size_of::<Line>() as u64),
            ),
            Self::TooLarge { max } => write!(
                f,
                "the state file is longer than {max} bytes: it is not one, or of a larger table"
            ),
            Self::Damaged { what } => write!(f, "the state file is damaged: {what}"),
        }
    }
}

impl std::error::Error for SnapshotError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for SnapshotError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
