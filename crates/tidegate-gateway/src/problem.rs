//! What the gateway answers by itself where it cannot forward: a problem of RFC 9457. A refusal by the
//! limiter is none of these; it is written in `tidegate-tower`.

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use tidegate_tower::refusal::PROBLEM_JSON;

use crate::body::ResponseBody;

/// Why a request is not forwarded, or why what came of it is not handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// It can be read in two ways, or in none.
    Malformed(&'static str),
    /// Who sends it says nothing of who they are, or something that is not so.
    Unauthenticated,
    /// Where it comes from may not.
    Forbidden,
    /// No route takes it.
    NoRoute,
    /// A method that is for other kinds of proxies.
    Method,
    /// A method that does something to files, which are only read.
    FileMethod,
    /// The client took too long over its body.
    BodySlow,
    /// The body is longer than the route takes.
    BodyTooLarge,
    /// All upstreams have as much to do as they can.
    Busy,
    /// No upstream could be reached, or what it answered is no answer.
    BadGateway(&'static str),
    /// The upstream took too long.
    GatewayTimeout,
}

impl Problem {
    pub(crate) const fn status(self) -> StatusCode {
        match self {
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NoRoute => StatusCode::NOT_FOUND,
            Self::Method | Self::FileMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::BodySlow => StatusCode::REQUEST_TIMEOUT,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::BadGateway(_) => StatusCode::BAD_GATEWAY,
            Self::GatewayTimeout => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    const fn detail(self) -> &'static str {
        match self {
            Self::Malformed(detail) | Self::BadGateway(detail) => detail,
            Self::Unauthenticated => "the request lacks a valid API key or token",
            Self::Forbidden => "requests from this address are not taken",
            Self::NoRoute => "nothing is served at this host and path",
            Self::Method => "this method is not forwarded",
            Self::FileMethod => "files are only read here",
            Self::BodySlow => "the body of the request took too long",
            Self::BodyTooLarge => "the body of the request is too long",
            Self::Busy => "the service has as much to do as it can",
            Self::GatewayTimeout => "the service took too long to answer",
        }
    }

    /// Whether what the client sends next cannot be told from the rest of this request, or is not waited for.
    const fn closes(self) -> bool {
        matches!(self, Self::Malformed(_) | Self::BodySlow | Self::BodyTooLarge)
    }

    /// The whole answer. All of its text is fixed, so nothing in it needs escapes.
    pub(crate) fn response(self) -> Response<ResponseBody> {
        let (status, detail) = (self.status(), self.detail());
        let title = status.canonical_reason().unwrap_or("Error");
        let code = status.as_u16();
        let body = format!(
            r#"{{"type":"about:blank","title":"{title}","status":{code},"detail":"{detail}"}}"#
        );
        let mut response = Response::new(ResponseBody::full(Bytes::from(body)));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, PROBLEM_JSON);
        if self.closes() {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        match self {
            Self::Unauthenticated => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Self::Method => {
                let allowed = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
                headers.insert(ALLOW, HeaderValue::from_static(allowed));
            }
            Self::FileMethod => {
                headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            }
            Self::Busy => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}
