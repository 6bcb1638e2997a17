//! Why a server ends a stream or a connection, in words.

use std::fmt;

/// The number that HTTP/2 gives a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u32);

impl Code {
    pub(crate) const NONE: Self = Self(0);
}

/// RFC 9113, section 7, by their numbers.
const NAMES: [&str; 14] = [
    "no error",
    "protocol error",
    "internal error",
    "flow control error",
    "settings timeout",
    "stream closed",
    "frame size error",
    "refused stream",
    "cancel",
    "compression error",
    "connect error",
    "enhance your calm",
    "inadequate security",
    "HTTP/1.1 required",
];

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(number) = self;
        match usize::try_from(*number).ok().and_then(|number| NAMES.get(number)) {
            Some(name) => f.write_str(name),
            None => write!(f, "error {number}"),
        }
    }
}

/// Why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    Reset(Code),
    /// The server went away before it took the request.
    Untaken,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reset(code) => write!(f, "the server cut a request off: {code}"),
            Self::Untaken => f.write_str("the server went away before it took a request"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_names_and_unknown_ones_their_number() {
        for (number, name) in [
            (0, "no error"),
            (11, "enhance your calm"),
            (13, "HTTP/1.1 required"),
            (14, "error 14"),
        ] {
            assert_eq!(Code(number).to_string(), name);
        }
    }
}
