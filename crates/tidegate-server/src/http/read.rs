//! The bytes of a body, within bounds of size and time.

use std::time::Duration;

use ::http::HeaderMap;
use ::http::header::CONTENT_TYPE;
use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::problem::Problem;

/// How much of a body that is too large is read and thrown away, so that a client which sends first and
/// reads afterwards gets to see the answer.
const DISCARDED_BYTES_MAX: usize = 4 << 20;

/// Reads a whole body.
pub(super) async fn read(
    body: Incoming,
    bytes_max: usize,
    timeout: Duration,
) -> Result<Bytes, Problem> {
    let collected = tokio::time::timeout(timeout, collect(body, bytes_max)).await;
    collected.map_err(|_| Problem::too_slow())?
}

async fn collect(mut body: Incoming, bytes_max: usize) -> Result<Bytes, Problem> {
    let too_large = || Problem::too_large("the body has too many bytes", bytes_max);
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > bytes_max.saturating_add(DISCARDED_BYTES_MAX) {
        return Err(too_large());
    }
    // Most bodies arrive in one piece, which is then handed on as it is.
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    let mut size = 0_usize;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Problem::bad(None, "the body ends before its end"))?;
        let Ok(data) = frame.into_data() else { continue };
        size = size.saturating_add(data.len());
        if size > bytes_max.saturating_add(DISCARDED_BYTES_MAX) {
            break;
        }
        if size > bytes_max {
            continue;
        }
        if first.is_empty() && whole.is_empty() {
            first = data;
        } else {
            whole.extend_from_slice(&std::mem::take(&mut first));
            whole.extend_from_slice(&data);
        }
    }
    if size > bytes_max {
        return Err(too_large());
    }
    Ok(if whole.is_empty() { first } else { whole.freeze() })
}

/// Whether a body may be JSON by what its client says, if it says anything.
pub(super) fn may_be_json(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_TYPE).iter().all(|value| {
        let text = value.as_bytes();
        let end = text.iter().position(|byte| *byte == b';').unwrap_or(text.len());
        let media_type = text[..end].trim_ascii().to_ascii_lowercase();
        let is_of_json = media_type.starts_with(b"application/") && media_type.ends_with(b"+json");
        media_type == b"application/json" || is_of_json
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_type_that_is_named_and_is_another_is_refused() {
        let named = |text: &'static str| {
            let value = ::http::HeaderValue::from_static(text);
            may_be_json(&HeaderMap::from_iter([(CONTENT_TYPE, value)]))
        };
        assert!(may_be_json(&HeaderMap::new()));
        assert!(named("application/json"));
        assert!(named("Application/JSON ; charset=utf-8"));
        assert!(named("application/vnd.api+json"));
        assert!(!named("application/x-www-form-urlencoded"));
        assert!(!named("text/plain"));
        assert!(!named(""));
    }
}
