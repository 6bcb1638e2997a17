//! What goes wrong: with settings, and with calls.

use std::fmt;

use tonic::Code;

/// Why a call has no answer. That is no denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientError {
    /// The call itself is wrong: the daemon says so, or it is larger than a message may be. Nothing was taken.
    Call,
    /// The daemon cannot be reached. Nothing was taken.
    Unavailable,
    /// The daemon is there and cannot decide, because its store is away and the rule says `deny` for that
    /// case. Something may have been taken.
    Undecided,
    /// No answer came in time, or the connection broke. Something may have been taken.
    NoAnswer,
    /// There are more calls than the daemon answers in time, and this one was not sent before its deadline. Nothing
    /// was taken. The daemon is there, so [`WhileAway`](crate::WhileAway) does not decide in its place.
    Busy,
}

impl ClientError {
    /// Whether the call may have been charged although there is no answer to it.
    pub const fn may_have_changed_state(self) -> bool {
        match self {
            Self::NoAnswer | Self::Undecided => true,
            Self::Call | Self::Unavailable | Self::Busy => false,
        }
    }

    pub(crate) const fn of_code(code: Code) -> Self {
        match code {
            Code::InvalidArgument | Code::Unimplemented => Self::Call,
            Code::Unavailable => Self::Unavailable,
            Code::ResourceExhausted => Self::Busy,
            // Among them what this side says of an answer that it cannot read: the call was decided.
            _ => Self::NoAnswer,
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Call => "the call is none that the daemon understands",
            Self::Unavailable => "the daemon cannot be reached",
            Self::Undecided => "the daemon cannot decide",
            Self::NoAnswer => "no answer came in time",
            Self::Busy => "too many calls wait for the daemon already",
        })
    }
}

impl std::error::Error for ClientError {}

/// Why a client cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// The address is none: it has to be like `http://127.0.0.1:8081`.
    Address,
    /// The address is of another kind: the daemon serves gRPC over HTTP/2 without TLS, and the client has none.
    Scheme,
    /// A number is 0 that has to be more.
    Zero(&'static str),
    /// Calls would linger for more than half of the time until their deadline.
    Linger,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => f.write_str("the address has to be like http://127.0.0.1:8081"),
            Self::Scheme => f.write_str(
                "the address has to begin with http://, since the daemon serves no TLS; where TLS is needed, \
                 give the address of a proxy that adds it, like http://127.0.0.1:8081",
            ),
            Self::Zero(what) => write!(f, "`{what}` has to be more than 0"),
            Self::Linger => f.write_str("`linger` may be at most half of `deadline`"),
        }
    }
}

impl std::error::Error for ConfigError {}
