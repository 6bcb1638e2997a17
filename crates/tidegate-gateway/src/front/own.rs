//! Answers of the gateway's own, as bytes of HTTP/1, appended to what is to be sent. What they say is in `limit` and
//! `problem`.

use http::header::HeaderValue;
use http::{Response, StatusCode};
use tidegate::Timestamp;
use tidegate_tower::{Standing, grpc};

use crate::access_log::Entry;
use crate::body::ResponseBody;
use crate::forward::head;
use crate::limit::Limits;

/// Where an answer is made, and for what.
pub(super) struct Own<'w> {
    /// What is to be sent.
    pub(super) out: &'w mut Vec<u8>,
    /// Whether it was asked for without its body, which would be taken for the next answer.
    pub(super) is_head: bool,
    pub(super) now: Timestamp,
    pub(super) entry: Option<Box<Entry>>,
}

impl Own<'_> {
    /// The answer to a request that the limiter denies, in the words of gRPC where there is a content type of it.
    pub(super) fn deny(
        self,
        limits: &Limits,
        standing: &Standing<'_>,
        grpc_type: Option<&HeaderValue>,
    ) {
        if let Some(grpc_type) = grpc_type {
            let response = grpc::refusal(standing, limits.headers, grpc_type.clone());
            return self.respond(response.map(ResponseBody::full));
        }
        let Self { out, is_head, now, entry } = self;
        let mut sent = 0;
        out.extend_from_slice(b"HTTP/1.1 429 Too Many Requests\r\n");
        limits.put_refusal(standing, out, |out, length| {
            end_head(out, length, now);
            sent = if is_head { 0 } else { length };
            !is_head
        });
        log(entry, StatusCode::TOO_MANY_REQUESTS, sent);
    }

    /// Any other answer.
    pub(super) fn respond(self, response: Response<ResponseBody>) {
        let Self { out, is_head, now, entry } = self;
        let (parts, body) = response.into_parts();
        let body = body.whole();
        let reason = parts.status.canonical_reason().unwrap_or_default();
        head::put_status(out, parts.status, reason.as_bytes());
        head::put_headers(out, &parts.headers);
        // Without a body to leave out, the general server tells no length either.
        if is_head && body.is_empty() {
            end_head_without_length(out, now);
        } else {
            end_head(out, body.len(), now);
        }
        let sent = if is_head { &[][..] } else { &body[..] };
        out.extend_from_slice(sent);
        log(entry, parts.status, sent.len());
    }
}

/// Appends what is left to tell before a body of so many bytes.
#[inline]
fn end_head(out: &mut Vec<u8>, length: usize, now: Timestamp) {
    out.extend_from_slice(b"content-length: ");
    out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    out.extend_from_slice(b"\r\n");
    end_head_without_length(out, now);
}

#[inline]
fn end_head_without_length(out: &mut Vec<u8>, now: Timestamp) {
    head::put_date_line(out, now);
    out.extend_from_slice(b"\r\n");
}

#[inline]
fn log(entry: Option<Box<Entry>>, status: StatusCode, sent: usize) {
    if let Some(mut entry) = entry {
        entry.answered(status);
        entry.sent(sent as u64);
    }
}
