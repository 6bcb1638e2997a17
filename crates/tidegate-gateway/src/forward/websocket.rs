//! `WebSocket`s over HTTP/2 (RFC 8441) in the words of HTTP/1.1, which are those that rules and upstreams know:
//! `CONNECT` with a protocol becomes `GET` with an upgrade, and its 101 becomes 200.

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::response::Parts;
use http::{Method, Request, StatusCode, Version};
use hyper::ext::Protocol;

const WEBSOCKET: &str = "websocket";

/// Rewrites a request where it asks for a WebSocket over HTTP/2. Other protocols, and plain `CONNECT`, stay as they
/// are.
pub(crate) fn rewrite<B>(request: &mut Request<B>) {
    let protocol = request.extensions().get::<Protocol>().map(Protocol::as_str);
    let is_asked = request.version() == Version::HTTP_2
        && request.method() == Method::CONNECT
        && protocol.is_some_and(|protocol| protocol.eq_ignore_ascii_case(WEBSOCKET));
    // HTTP/2 has no key; servers of HTTP/1.1 want one, and one that is never the same.
    let mut key = [0; 16];
    if !is_asked || rand::fill(&mut key).is_err() {
        return;
    }
    let Ok(key) = HeaderValue::from_str(&BASE64_STANDARD.encode(key)) else { return };
    *request.method_mut() = Method::GET;
    let headers = request.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(WEBSOCKET));
    headers.insert(SEC_WEBSOCKET_KEY, key);
}

/// Rewrites the head by which an upstream has changed its protocol.
pub(crate) fn rewrite_switched(parts: &mut Parts) {
    parts.status = StatusCode::OK;
    parts.headers.remove(SEC_WEBSOCKET_ACCEPT);
}
