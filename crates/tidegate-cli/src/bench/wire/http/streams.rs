//! The same requests over HTTP/2, each in a stream of its own: as many are under way on a connection as
//! there are streams, and answers may overtake each other.

use super::verdict;
use crate::bench::keys::Key;
use crate::bench::tally::Verdict;
use crate::bench::wire::http2::frame::{self, Flags, Kind};
use crate::bench::wire::http2::header::{self, Headers};
use crate::bench::wire::http2::{Connection, Content, Part};
use crate::bench::wire::template::{Template, filled};
use crate::bench::wire::{ANSWER_BYTES_MAX, Broken, Wire};

/// Requests for `PATH`, with a body or without.
#[derive(Clone, Debug)]
pub(crate) struct HttpStreams {
    /// The headers of a connection's first request, and of all others, which refer to those for all that
    /// never changes.
    first_headers: Template,
    headers: Template,
    body: Option<Template>,
    connection: Connection<Answer>,
}

/// An answer as far as it came.
#[derive(Clone, Debug, Default)]
struct Answer {
    status: Option<u16>,
    bytes: usize,
    /// What came of the body, where a denial may stand there.
    body: Vec<u8>,
}

impl HttpStreams {
    /// `None` where the headers or the body do not fit one frame.
    pub(crate) fn new(authority: &str, path: &str, body: Option<&str>) -> Option<Self> {
        let mut common = match body {
            None => vec![header::METHOD_GET, header::SCHEME_HTTP, header::PATH],
            Some(_) => vec![header::METHOD_POST, header::SCHEME_HTTP, header::PATH],
        };
        header::text(path, filled(path).len(), &mut common);
        let mut first = common.clone();
        header::named(header::AUTHORITY_KEPT, authority, &mut first);
        let body_bytes = body.map_or(0, |body| filled(body).len());
        let kept = if body.is_some() {
            header::named(header::CONTENT_TYPE_KEPT, "application/json", &mut first);
            header::named(header::CONTENT_LENGTH_KEPT, &body_bytes.to_string(), &mut first);
            &header::KEPT[..3]
        } else {
            &header::KEPT[..1]
        };
        common.extend(kept.iter().rev());
        let (first_headers, headers) = (Template::new(first), Template::new(common));
        let longest = first_headers.bytes().max(body_bytes);
        (longest <= frame::PAYLOAD_BYTES_MAX).then(|| Self {
            first_headers,
            headers,
            body: body.map(Template::new),
            connection: Connection::new(body_bytes as u32),
        })
    }

    fn on_part(&mut self, part: &Part<'_>) -> Result<Option<Verdict>, Broken> {
        let reads_body = self.body.is_some();
        let answer = self.connection.stream(part.number)?;
        match (part.content, answer.status) {
            (Content::Lost(lost), _) => return Ok(Some(Verdict::Failed(lost.to_string()))),
            (Content::Headers(block), None) => match Headers::status(block)? {
                Some(100..=199) => return Err(Broken::Malformed("an answer before the answer")),
                Some(status) => answer.status = Some(status as u16),
                None => return Err(Broken::Malformed("an answer without a status")),
            },
            (Content::Data(_), None) => {
                return Err(Broken::Malformed("an answer without a status"));
            }
            (Content::Data(content), Some(_)) => {
                answer.bytes += content.len();
                if answer.bytes > ANSWER_BYTES_MAX {
                    return Err(Broken::TooLong);
                }
                if reads_body {
                    answer.body.extend_from_slice(content);
                }
            }
            // Trailers change nothing.
            (Content::Headers(_), Some(_)) => {}
        }
        let status = answer.status.filter(|_| part.is_last);
        Ok(status.map(|status| verdict(status, reads_body, &answer.body)))
    }
}

impl Wire for HttpStreams {
    fn connected(&mut self, out: &mut Vec<u8>) {
        self.connection.connected(out);
    }

    fn room(&self) -> usize {
        self.connection.room()
    }

    #[inline]
    fn ask(&mut self, key: &Key, out: &mut Vec<u8>) {
        let is_first = self.connection.is_fresh();
        let headers = if is_first { &self.first_headers } else { &self.headers };
        let stream = self.connection.begin();
        let flags = match self.body {
            Some(_) => Flags::END_HEADERS,
            None => Flags::END_HEADERS.and(Flags::END_STREAM),
        };
        frame::head(headers.bytes(), Kind::Headers, flags, stream, out);
        headers.write(key, out);
        if let Some(body) = &self.body {
            frame::head(body.bytes(), Kind::Data, Flags::END_STREAM, stream, out);
            body.write(key, out);
        }
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

#[cfg(test)]
mod tests;
