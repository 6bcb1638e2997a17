//! What a request carries: the fields of its JSON, and the parameters of its query. Whatever is
//! wrong with one is told with its name.

use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::{Request, StatusCode};
use serde_json::{Map, Value};
use tidegate::Attribute;

use super::reply::Problem;

/// The longest body.
pub const BODY_BYTES_MAX: usize = 64 << 10;
/// How long a client may take to send it.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The fields of an object that have not been looked at yet.
#[derive(Debug, Default)]
pub(super) struct Fields(Map<String, Value>);

/// Reads the JSON of a request that changes something. Who has nothing to say may send no body, but
/// has to name its type: a form that a page of another site sends cannot. `may_be_bare` is for methods
/// that no form can have.
pub(super) async fn read(request: Request<Incoming>, may_be_bare: bool) -> Result<Fields, Problem> {
    let kind = request.headers().get(CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or_default());
    let is_json = kind.is_some_and(|kind| {
        let kind = kind.split_once(';').map_or(kind, |(kind, _)| kind);
        kind.trim().eq_ignore_ascii_case("application/json")
    });
    let is_bare = may_be_bare && kind.is_none();
    if !is_json && !is_bare {
        let detail = "send JSON: `Content-Type: application/json`";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
    }
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect();
    let body = match tokio::time::timeout(BODY_TIMEOUT, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => {
            let detail = format!("the body was cut off, or has more than {BODY_BYTES_MAX} bytes");
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail));
        }
        Err(_) => {
            let detail = format!("the body took longer than {} s", BODY_TIMEOUT.as_secs());
            return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, detail));
        }
    };
    if body.trim_ascii().is_empty() {
        return Ok(Fields::default());
    }
    match serde_json::from_slice(&body) {
        Ok(Value::Object(fields)) => Ok(Fields(fields)),
        Ok(_) => Err(Problem::new(StatusCode::BAD_REQUEST, "the body must be an object")),
        Err(error) => {
            let (line, column) = (error.line(), error.column());
            let detail = format!("the body is no JSON: line {line}, column {column}");
            Err(Problem::new(StatusCode::BAD_REQUEST, detail))
        }
    }
}

impl Fields {
    pub(super) fn text(&mut self, name: &str) -> Result<String, Problem> {
        self.text_if_any(name)?.ok_or_else(|| Problem::field(name, "it is missing"))
    }

    pub(super) fn text_if_any(&mut self, name: &str) -> Result<Option<String>, Problem> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Problem::field(name, "it must be text")),
        }
    }

    pub(super) fn whole_number(&mut self, name: &str, default: u64) -> Result<u64, Problem> {
        let detail = "it must be a whole number, 0 or more";
        match self.0.remove(name) {
            None => Ok(default),
            Some(value) => value.as_u64().ok_or_else(|| Problem::field(name, detail)),
        }
    }

    pub(super) fn switch(&mut self, name: &str) -> Result<bool, Problem> {
        match self.0.remove(name) {
            Some(Value::Bool(on)) => Ok(on),
            Some(_) => Err(Problem::field(name, "it must be true or false")),
            None => Err(Problem::field(name, "it is missing: true or false")),
        }
    }

    /// Names and values, in the order in which they were sent.
    pub(super) fn attributes(&mut self) -> Result<Attributes, Problem> {
        const NAME: &str = "attributes";
        let object = match self.0.remove(NAME) {
            None => return Ok(Attributes::default()),
            Some(Value::Object(object)) => object,
            Some(_) => return Err(Problem::field(NAME, "it must be an object of texts")),
        };
        let attributes = object.into_iter().map(|(name, value)| match value {
            Value::String(value) => Ok((name, value)),
            _ => Err(Problem::field(format!("{NAME}.{name}"), "it must be text")),
        });
        attributes.collect::<Result<_, _>>().map(Attributes)
    }

    /// There is nothing else: a field that nobody reads was meant for something.
    pub(super) fn end(mut self) -> Result<(), Problem> {
        let unknown = self.0.keys().next().cloned();
        self.0.clear();
        unknown.map_or(Ok(()), |name| Err(Problem::field(name, "there is no such field")))
    }
}

/// Attributes with their text.
#[derive(Debug, Default)]
pub(super) struct Attributes(Vec<(String, String)>);

impl Attributes {
    pub(super) fn borrowed(&self) -> Vec<Attribute<'_>> {
        self.0.iter().map(|(name, value)| Attribute::from((&**name, &**value))).collect()
    }
}

/// The parameters of a query that have not been looked at yet.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn of(text: &str) -> Result<Self, Problem> {
        let parts = text.split('&').filter(|part| !part.is_empty()).map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let decoded = decoded(name).zip(decoded(value));
            decoded.ok_or_else(|| Problem::new(StatusCode::BAD_REQUEST, "the query is not encoded"))
        });
        parts.collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.swap_remove(at).1)
    }

    pub(super) fn end(self) -> Result<(), Problem> {
        match self.0.into_iter().next() {
            Some((name, _)) => {
                Err(Problem::field(name, "there is no such parameter, or it is there twice"))
            }
            None => Ok(()),
        }
    }
}

/// Text as a form encodes it.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let (digits, after) = rest.split_at_checked(2)?;
                rest = after;
                let value = |digit: u8| char::from(digit).to_digit(16);
                u8::try_from(value(digits[0])? << 4 | value(digits[1])?).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_form_encodes_is_decoded_and_what_it_would_not_is_refused() {
        assert_eq!(decoded("user%3D42+x").as_deref(), Some("user=42 x"));
        for text in ["%", "%4", "%zz", "%ff", "%+1"] {
            assert_eq!(decoded(text), None, "{text}");
        }
    }

    #[test]
    fn a_parameter_that_nobody_reads_is_told() {
        let mut query = Query::of("by=denied&cuont=3").expect("a query");
        assert_eq!(query.take("by").as_deref(), Some("denied"));
        assert!(query.end().is_err());
    }
}
