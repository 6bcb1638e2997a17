//! gRPC over HTTP/2: a message each way, and trailers that say how the call ended.

mod message;

pub(crate) use self::message::Service;
use super::http2::frame::{self, Flags, Kind};
use super::http2::header::{self, Headers};
use super::http2::{Connection, Content, Part};
use super::template::Template;
use super::{ANSWER_BYTES_MAX, Broken, Wire};
use crate::bench::keys::Key;
use crate::bench::tally::Verdict;

/// The headers of all requests but the first: `:method POST`, `:scheme http`, and the four that the first
/// one named.
const LATER_HEADERS: &[u8] = {
    let [last, third, second, first] = header::KEPT;
    &[header::METHOD_POST, header::SCHEME_HTTP, first, second, third, last]
};

/// Calls of one method.
#[derive(Clone, Debug)]
pub(crate) struct Grpc {
    service: Service,
    /// The headers of a connection's first request, which name everything, so that the others can refer
    /// to those.
    first_headers: Vec<u8>,
    /// The length of a message and the message.
    body: Template,
    body_bytes: u32,
    connection: Connection<Answer>,
}

/// An answer as far as it came.
#[derive(Clone, Debug, Default)]
struct Answer {
    has_headers: bool,
    verdict: Option<Verdict>,
    /// The beginning of a message that came in several pieces.
    body: Vec<u8>,
}

impl Grpc {
    pub(crate) fn new(authority: &str, service: Service) -> Self {
        let message = service.message();
        let mut body = vec![0];
        // Messages are some dozens of bytes.
        body.extend_from_slice(&(message.len() as u32).to_be_bytes());
        body.extend_from_slice(&message);
        let body_bytes = body.len() as u32;
        Self {
            first_headers: first_headers(service.path(), authority),
            body_bytes,
            body: Template::around_key(&body),
            service,
            connection: Connection::new(body_bytes),
        }
    }

    fn on_part(&mut self, part: &Part<'_>) -> Result<Option<Verdict>, Broken> {
        match part.content {
            Content::Headers(block) => self.on_headers(part, block),
            Content::Data(content) => self.on_data(part, content),
            Content::Lost(lost) => Ok(Some(Verdict::Failed(lost.to_string()))),
        }
    }

    fn on_data(&mut self, part: &Part<'_>, content: &[u8]) -> Result<Option<Verdict>, Broken> {
        let answer = self.connection.stream(part.number)?;
        if answer.body.is_empty() && answer.verdict.is_none() {
            // Nearly always all of the message comes in one frame, and nothing need be kept.
            answer.verdict = whole_message(content).map(|message| self.service.verdict(message));
        }
        if answer.verdict.is_none() {
            answer.body.extend_from_slice(content);
            if answer.body.len() > ANSWER_BYTES_MAX {
                return Err(Broken::TooLong);
            }
            answer.verdict =
                whole_message(&answer.body).map(|message| self.service.verdict(message));
        }
        let unsaid = || Verdict::Failed("a call ended without a status".to_owned());
        Ok(part.is_last.then(unsaid))
    }

    fn on_headers(&mut self, part: &Part<'_>, block: &[u8]) -> Result<Option<Verdict>, Broken> {
        let headers = Headers::parse(block)?;
        let answer = self.connection.stream(part.number)?;
        if !std::mem::replace(&mut answer.has_headers, true) {
            match headers.status {
                Some(200) => {}
                Some(status) => {
                    let text = format!("the server answered with HTTP status {status}");
                    answer.verdict = Some(Verdict::Failed(text));
                }
                None => return Err(Broken::Malformed("an answer without a status")),
            }
        }
        if !part.is_last {
            return Ok(None);
        }
        let given = answer.verdict.take();
        Ok(Some(match (headers.grpc_status, given) {
            (_, Some(failed @ Verdict::Failed(_))) => failed,
            (Some(0), Some(verdict)) => verdict,
            (Some(0), None) => Verdict::Failed("a call was answered without a message".to_owned()),
            (Some(status), _) => Verdict::Failed(format!("a call ended with gRPC status {status}")),
            (None, _) => Verdict::Failed("a call ended without a status".to_owned()),
        }))
    }
}

impl Wire for Grpc {
    fn connected(&mut self, out: &mut Vec<u8>) {
        self.connection.connected(out);
    }

    fn room(&self) -> usize {
        self.connection.room()
    }

    #[inline]
    fn ask(&mut self, key: &Key, out: &mut Vec<u8>) {
        let is_first = self.connection.is_fresh();
        let headers = if is_first { &self.first_headers } else { LATER_HEADERS };
        let stream = self.connection.begin();
        frame::head(headers.len(), Kind::Headers, Flags::END_HEADERS, stream, out);
        out.extend_from_slice(headers);
        frame::head(self.body_bytes as usize, Kind::Data, Flags::END_STREAM, stream, out);
        self.body.write(key, out);
    }

    fn read(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        answers: &mut Vec<(u64, Verdict)>,
    ) -> Result<usize, Broken> {
        let mut rest = input;
        while let Some(part) = self.connection.next(&mut rest, out)? {
            if let Some(verdict) = self.on_part(&part)? {
                self.connection.finish(part.number, verdict, answers)?;
            }
        }
        Ok(input.len() - rest.len())
    }
}

/// Headers that name everything and have the server keep what the fixed table lacks.
fn first_headers(path: &str, authority: &str) -> Vec<u8> {
    let mut out = vec![header::METHOD_POST, header::SCHEME_HTTP];
    header::named(header::PATH_KEPT, path, &mut out);
    header::named(header::AUTHORITY_KEPT, authority, &mut out);
    header::named(header::CONTENT_TYPE_KEPT, "application/grpc", &mut out);
    header::named(header::NEW_KEPT, "te", &mut out);
    header::text("trailers", "trailers".len(), &mut out);
    out
}

/// The message in a body, which has its length in front; `None` where it is not all there yet.
fn whole_message(body: &[u8]) -> Option<&[u8]> {
    let ([_compressed, a, b, c, d], rest) = body.split_first_chunk::<5>()?;
    rest.get(..u32::from_be_bytes([*a, *b, *c, *d]) as usize)
}

#[cfg(test)]
mod tests;
