//! Secrets of the operator: read from files or variables, compared by others, shown by nobody.

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The longest secret.
pub const SECRET_BYTES_MAX: usize = 4096;

/// A password or token.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<[u8]>);

impl Secret {
    /// A secret as it is, without white space around it: files end in a line break.
    pub fn new(text: &[u8]) -> Result<Self, SecretFault> {
        let text = text.trim_ascii();
        match text.len() {
            0 => Err(SecretFault::Empty),
            1..=SECRET_BYTES_MAX => Ok(Self(text.into())),
            _ => Err(SecretFault::TooLong),
        }
    }

    /// The secret in a file.
    pub fn read(path: &Path) -> Result<Self, SecretError> {
        let fail = |fault| SecretError { path: path.to_path_buf(), fault };
        let mut bytes = Vec::new();
        // A byte more than may be, and the line break that is no part of it.
        let bytes_max = SECRET_BYTES_MAX as u64 + 2;
        let file = std::fs::File::open(path);
        let read = file.and_then(|file| file.take(bytes_max).read_to_end(&mut bytes));
        read.map_err(|error| fail(SecretFault::Unreadable(error.kind())))?;
        Self::new(&bytes).map_err(fail)
    }

    /// The bytes, to compare in constant time.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    /// Says nothing about it, not even how long it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Why the file of a secret cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretError {
    path: PathBuf,
    fault: SecretFault,
}

/// What is wrong with a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SecretFault {
    /// There is nothing in it.
    Empty,
    /// It is longer than [`SECRET_BYTES_MAX`].
    TooLong,
    /// The file cannot be read.
    Unreadable(std::io::ErrorKind),
}

impl fmt::Display for SecretFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("it is empty: write the secret into it"),
            Self::TooLong => write!(f, "it is longer than {SECRET_BYTES_MAX} bytes"),
            Self::Unreadable(kind) => write!(f, "{kind}"),
        }
    }
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.fault)
    }
}

impl std::error::Error for SecretError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_break_at_the_end_is_no_part_of_it() {
        assert_eq!(Secret::new(b"open sesame\n").unwrap().as_bytes(), b"open sesame");
        assert_eq!(Secret::new(b" \n"), Err(SecretFault::Empty));
        assert_eq!(Secret::new(&[b'x'; SECRET_BYTES_MAX + 1]), Err(SecretFault::TooLong));
    }

    #[test]
    fn it_does_not_show() {
        assert!(!format!("{:?}", Secret::new(b"sesame").unwrap()).contains("sesame"));
    }
}
