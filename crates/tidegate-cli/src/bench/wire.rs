//! The protocols, as bytes: how a request is written and how answers are read.

pub(crate) mod grpc;
pub(crate) mod http;
mod http2;
pub(crate) mod resp;
mod template;

use std::fmt;

use self::http2::error::Code;
use super::keys::Key;
use super::tally::Verdict;

/// A protocol on one connection, without the connection.
pub(crate) trait Wire {
    /// A new connection begins. What has to be sent before anything else is appended to `out`.
    fn connected(&mut self, out: &mut Vec<u8>);

    /// How many requests the server takes beyond those under way.
    fn room(&self) -> usize;

    /// Appends a request. The requests of a connection are numbered from 0.
    fn ask(&mut self, key: &Key, out: &mut Vec<u8>);

    /// Reads whole answers from the front of `input`, and says how many bytes they took. What the
    /// protocol wants said in return is appended to `out`.
    fn read(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        answers: &mut Vec<(u64, Verdict)>,
    ) -> Result<usize, Broken>;
}

/// The most bytes of headers or of a body that a request over HTTP/2 has.
pub(crate) const FRAME_BYTES_MAX: usize = http2::frame::PAYLOAD_BYTES_MAX;

/// The most bytes of one answer.
pub(crate) const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Why a connection is of no more use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The bytes are not what the protocol has there.
    Malformed(&'static str),
    /// More bytes than an answer may have.
    TooLong,
    /// An answer to what nobody asked.
    Unasked,
    /// The server says that it takes no more requests here.
    GoingAway,
    /// The server says that it takes no more requests here, and that we are to blame.
    SentAway(Code),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(what) => write!(f, "the server does not speak this protocol: {what}"),
            Self::TooLong => write!(f, "an answer has more than {ANSWER_BYTES_MAX} bytes"),
            Self::Unasked => f.write_str("the server answered what nobody asked"),
            Self::SentAway(code) => write!(f, "the server ended a connection: {code}"),
            Self::GoingAway => f.write_str("the server took no more requests on a connection"),
        }
    }
}
