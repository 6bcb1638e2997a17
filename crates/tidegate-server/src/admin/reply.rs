//! What is sent back: JSON, text, or what is wrong with a request.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE,
};
use hyper::{Method, Response, StatusCode};
use serde_json::{Value, json};

/// One header beside the usual ones. It is seldom there, so it is kept small.
type Header = Option<Box<(HeaderName, HeaderValue)>>;

/// An answer.
#[derive(Debug)]
pub(super) struct Reply {
    status: StatusCode,
    kind: &'static str,
    body: Vec<u8>,
    header: Header,
}

impl Reply {
    pub(super) fn json(value: &Value) -> Self {
        Self::typed(StatusCode::OK, "application/json", format!("{value}\n"))
    }

    pub(super) fn text(status: StatusCode, text: &str) -> Self {
        Self::typed(status, "text/plain; charset=utf-8", text)
    }

    pub(super) fn typed(status: StatusCode, kind: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status, kind, body: body.into(), header: None }
    }

    /// The answer to a request for the head alone has none of the body.
    pub(super) fn into_response(self, is_head: bool) -> Response<Full<Bytes>> {
        let body = if is_head { Bytes::new() } else { Bytes::from(self.body) };
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.kind));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.extend(self.header.map(|header| *header));
        response
    }
}

/// What is wrong with a request, as a problem of RFC 9457.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    detail: String,
    /// The field or parameter that is at fault.
    field: Option<String>,
    header: Header,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), field: None, header: None }
    }

    pub(super) fn field(field: impl Into<String>, detail: impl Into<String>) -> Self {
        let field = Some(field.into());
        Self { field, ..Self::new(StatusCode::BAD_REQUEST, detail) }
    }

    pub(super) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "there is nothing at this path")
    }

    pub(super) fn method(methods: &[Method]) -> Self {
        let allowed = methods.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
        let header = HeaderValue::try_from(&*allowed).ok().map(|value| Box::new((ALLOW, value)));
        let detail = format!("this path takes {allowed}");
        Self { header, ..Self::new(StatusCode::METHOD_NOT_ALLOWED, detail) }
    }

    /// A mistake of ours. What it is stands in the log.
    pub(super) fn panicked() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "something went wrong here")
    }

    pub(super) fn unauthorized(detail: &str) -> Self {
        let header = Some(Box::new((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))));
        Self { header, ..Self::new(StatusCode::UNAUTHORIZED, detail) }
    }
}

impl From<Problem> for Reply {
    fn from(problem: Problem) -> Self {
        let mut value = json!({
            "type": "about:blank",
            "title": problem.status.canonical_reason(),
            "status": problem.status.as_u16(),
            "detail": problem.detail,
        });
        if let Some(field) = problem.field {
            value["field"] = json!(field);
        }
        let body = format!("{value}\n");
        let reply = Self::typed(problem.status, "application/problem+json", body);
        Self { header: problem.header, ..reply }
    }
}
