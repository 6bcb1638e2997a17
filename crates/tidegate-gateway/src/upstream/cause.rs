//! Why a server did not answer, in words for the log. They are bounded, and say nothing that a client has said.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use http::StatusCode;
use tidegate_server::metrics::UpstreamFailure;

/// The longest text of an error, which may name whatever is in a certificate.
const TEXT_CHARS_MAX: usize = 300;
/// How far down the cause of a cause is told.
const SOURCES_MAX: usize = 8;

/// What went wrong with one request.
#[derive(Debug)]
pub(crate) enum Cause {
    /// There is no connection, or none on which the request was looked at.
    Connect(io::Error),
    /// The connection broke.
    Cut(io::Error),
    /// It ended in good order before a whole answer.
    Closed,
    /// What came is no response, or one that can be read in two ways.
    NoHttp,
    /// The general client says that there is no response.
    Broken(hyper::Error),
    /// Nothing came in this time.
    Late(Duration),
    /// It is an answer, and one that says that the server is not well.
    Status(StatusCode),
}

impl Cause {
    /// What it is counted as; an answer is counted by its status.
    pub(crate) fn failure(&self) -> Option<UpstreamFailure> {
        match self {
            Self::Connect(_) => Some(UpstreamFailure::Connect),
            Self::Cut(_) | Self::Closed | Self::NoHttp | Self::Broken(_) => {
                Some(UpstreamFailure::Broken)
            }
            Self::Late(_) => Some(UpstreamFailure::Timeout),
            Self::Status(_) => None,
        }
    }

    /// Whether the request may be sent once more after it: always where the server has not looked at it, and never where
    /// it may still be about to answer.
    pub(crate) fn may_send_again(&self, is_idempotent: bool) -> bool {
        match self {
            Self::Connect(_) => true,
            Self::Cut(_) | Self::Closed | Self::NoHttp | Self::Broken(_) | Self::Status(_) => {
                is_idempotent
            }
            Self::Late(_) => false,
        }
    }
}

impl From<hyper::Error> for Cause {
    fn from(error: hyper::Error) -> Self {
        if error.is_incomplete_message() { Self::Closed } else { Self::Broken(error) }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "no connection: {}", text(error)),
            Self::Cut(error) => write!(f, "the connection broke: {}", text(error)),
            Self::Closed => f.write_str("the connection was closed before a whole answer"),
            Self::NoHttp => f.write_str("the answer is no HTTP, or can be read in two ways"),
            Self::Broken(error) if error.is_parse() => {
                write!(f, "the answer is no HTTP: {}", text(error))
            }
            Self::Broken(error) => write!(f, "the connection broke: {}", text(error)),
            Self::Late(bound) => write!(f, "no answer within {bound:?}"),
            Self::Status(status) => write!(f, "its answer has status {}", status.as_u16()),
        }
    }
}

/// An error with its causes, in one line.
fn text(error: &(dyn Error + 'static)) -> String {
    let errors = std::iter::successors(Some(error), |&error| error.source());
    let mut text = String::new();
    for words in errors.take(SOURCES_MAX).map(words) {
        // Many say of themselves what their cause says as well.
        if text.ends_with(&words) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&words);
    }
    let is_plain = |letter: char| if letter.is_control() { ' ' } else { letter };
    text.chars().take(TEXT_CHARS_MAX).map(is_plain).collect()
}

fn words(error: &(dyn Error + 'static)) -> String {
    match error.downcast_ref::<h2::Error>().and_then(h2::Error::reason) {
        // What a server adds to its reason may be about a request.
        Some(reason) => reason.description().to_owned(),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_one_line_of_bounded_length() {
        let long = io::Error::other(format!("a\nb\u{1b}[31m{}", "x".repeat(100_000)));
        let told = Cause::Connect(long).to_string();
        assert!(told.starts_with("no connection: a b [31mxxx"), "{told}");
        assert!(told.len() < 2 * TEXT_CHARS_MAX, "{}", told.len());
    }

    #[test]
    fn what_an_error_is_caused_by_is_told_once() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(text(&io::Error::other(refused)), "connection refused");
        let h2 = h2::Error::from(h2::Reason::ENHANCE_YOUR_CALM);
        assert!(text(&h2).starts_with("detected excessive load"), "{}", text(&h2));
    }
}
