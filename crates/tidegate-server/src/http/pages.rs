//! What is there besides decisions: health, readiness, metrics, and the document that describes it all.

use std::sync::Arc;

use ::http::header::{CONTENT_TYPE, HeaderValue};
use ::http::{Response, StatusCode};
use bytes::Bytes;
use http_body_util::Full;

use super::Answered;
use crate::engine::Engine;
use crate::metrics::{self, Metrics};

/// Describes what this module and its neighbours answer; a test holds it to that.
const OPEN_API: &str = include_str!("openapi.json");

/// Whether the process is alive: it answers.
pub(super) fn health() -> Answered {
    text(StatusCode::OK, "ok\n")
}

/// Whether it is to be sent traffic.
pub(super) fn ready(is_ready: bool) -> Answered {
    if is_ready {
        text(StatusCode::OK, "ready\n")
    } else {
        text(StatusCode::SERVICE_UNAVAILABLE, "draining\n")
    }
}

/// The same in the words of envoyproxy/ratelimit.
pub(super) fn healthcheck(is_ready: bool) -> Answered {
    if is_ready { text(StatusCode::OK, "OK") } else { text(StatusCode::INTERNAL_SERVER_ERROR, "") }
}

pub(super) async fn metrics(engine: &Arc<Engine>) -> Answered {
    page(StatusCode::OK, metrics::CONTENT_TYPE, Bytes::from(Metrics::scrape(engine).await))
}

pub(super) fn open_api() -> Answered {
    page(StatusCode::OK, "application/json", Bytes::from_static(OPEN_API.as_bytes()))
}

fn text(status: StatusCode, text: &'static str) -> Answered {
    page(status, "text/plain; charset=utf-8", Bytes::from_static(text.as_bytes()))
}

fn page(status: StatusCode, content_type: &'static str, body: Bytes) -> Answered {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}
