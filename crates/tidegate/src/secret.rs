//! The secret that keys are hashed with, and how a state file says which one it was made with.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::Path;

use tidegate_core::Timestamp;
use tidegate_rules::identity::{KeyHasher, SECRET_BYTES};
use tidegate_store::snapshot::{Label, SnapshotError, label_of, read_file};
use tidegate_store::{Table, TableConfig};

/// What a limiter found where its state was to be.
#[derive(Debug)]
pub enum Restored {
    /// The state of so many keys.
    Keys(u64),
    /// No file: the limiter starts empty.
    Nothing,
    /// A file that was refused: the limiter starts empty.
    Refused(SnapshotError),
}

/// A secret, and whether whoever made the limiter knows it.
#[derive(Clone, Copy)]
pub(crate) struct Secret {
    bytes: [u8; SECRET_BYTES],
    is_given: bool,
}

/// The bytes of a state file, or why there are none.
pub(crate) enum Found {
    Bytes(Vec<u8>),
    Nothing,
    Refused(SnapshotError),
}

impl Secret {
    /// The one that was given, or 128 bits from the operating system's randomness.
    pub(crate) fn new(given: Option<[u8; SECRET_BYTES]>) -> Self {
        Self { bytes: given.unwrap_or_else(random), is_given: given.is_some() }
    }

    /// The same for a limiter that goes on with this file: the one in the file, unless one is given.
    pub(crate) fn for_file(given: Option<[u8; SECRET_BYTES]>, found: &Found) -> Self {
        let Found::Bytes(file) = found else { return Self::new(given) };
        let kept = label_of(file).ok().and_then(|label| secret_in(&label));
        let bytes = given.or(kept).unwrap_or_else(random);
        Self { bytes, is_given: given.is_some() }
    }

    pub(crate) fn hasher(&self) -> KeyHasher {
        KeyHasher::new(&self.bytes)
    }

    /// What tells a file of this secret from others: the secret's fingerprint, and, where nobody else
    /// keeps the secret, the secret itself.
    pub(crate) fn label(&self) -> Label {
        let mut label = [0; 32];
        let fingerprint = self.hasher().bytes(b"state file").as_u128();
        label[SECRET_BYTES..].copy_from_slice(&fingerprint.to_le_bytes());
        if !self.is_given {
            label[..SECRET_BYTES].copy_from_slice(&self.bytes);
        }
        label
    }
}

impl Found {
    pub(crate) fn at(path: &Path, config: TableConfig) -> Self {
        match read_file(path, config) {
            Ok(bytes) => Self::Bytes(bytes),
            Err(SnapshotError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                Self::Nothing
            }
            Err(error) => Self::Refused(error),
        }
    }

    /// Puts what was found into an empty table.
    pub(crate) fn restore(self, table: &Table, label: &Label, now: Timestamp) -> Restored {
        match self {
            Self::Nothing => Restored::Nothing,
            Self::Refused(error) => Restored::Refused(error),
            Self::Bytes(bytes) => match table.read_snapshot(&bytes, label, now) {
                Ok(keys) => Restored::Keys(keys),
                Err(error) => Restored::Refused(error),
            },
        }
    }
}

fn random() -> [u8; SECRET_BYTES] {
    let mut secret = [0; SECRET_BYTES];
    for half in secret.chunks_mut(8) {
        // Each state has keys of its own, so each gives other bits.
        half.copy_from_slice(&RandomState::new().build_hasher().finish().to_le_bytes());
    }
    secret
}

fn secret_in(label: &Label) -> Option<[u8; SECRET_BYTES]> {
    let secret: [u8; SECRET_BYTES] = label[..SECRET_BYTES].try_into().ok()?;
    (secret != [0; SECRET_BYTES]).then_some(secret)
}
