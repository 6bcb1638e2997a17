//! Where a value is found in a request: a header, a cookie, a query parameter, a bearer token.

use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE, HeaderName, PROXY_AUTHORIZATION};

use crate::error::{Fault, IdentityError};
use crate::request::RequestParts;

/// Where a value is found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// The header of this name.
    Header(HeaderName),
    /// The cookie of this name, without the quotes around its value.
    Cookie(String),
    /// The query parameter of this name, decoded.
    Query(String),
    /// `Authorization: Bearer …`.
    Bearer,
}

/// An attribute that is taken from a request as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extract {
    /// What the attribute is called.
    pub name: String,
    /// Where its value is found.
    pub source: Source,
}

impl Extract {
    /// An attribute called `header.x-tenant`, `cookie.session` or `query.page` after its source.
    pub fn new(source: Source) -> Self {
        let name = match &source {
            Source::Header(name) => format!("header.{name}"),
            Source::Cookie(name) => format!("cookie.{name}"),
            Source::Query(name) => format!("query.{name}"),
            Source::Bearer => "bearer".to_owned(),
        };
        Self { name, source }
    }

    /// An attribute with a name of its own.
    pub fn named(name: impl Into<String>, source: Source) -> Self {
        Self { name: name.into(), source }
    }
}

impl Source {
    /// Which header it is, where it is one.
    pub(crate) fn name_of_header(&self) -> Option<&HeaderName> {
        match self {
            Self::Header(name) => Some(name),
            Self::Cookie(_) | Self::Query(_) | Self::Bearer => None,
        }
    }

    /// The header of this name, in any case.
    pub fn header(name: &str) -> Result<Self, IdentityError> {
        let parsed = HeaderName::from_bytes(name.as_bytes());
        let fault = |_| IdentityError::new("header", Fault::HeaderName(name.to_owned()));
        parsed.map(Self::Header).map_err(fault)
    }

    pub(crate) fn check(&self) -> Result<(), Fault> {
        match self {
            Self::Cookie(name) | Self::Query(name) if name.is_empty() => Err(Fault::Empty),
            Self::Header(_) | Self::Cookie(_) | Self::Query(_) | Self::Bearer => Ok(()),
        }
    }

    /// Whether it is made to hold a credential. A cookie may be one as well; whoever names it knows.
    pub(crate) fn is_credential(&self) -> bool {
        match self {
            Self::Bearer => true,
            Self::Header(name) => [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE].contains(name),
            Self::Cookie(_) | Self::Query(_) => false,
        }
    }

    /// Appends what is found, joined with `, ` where it is found more than once, and says how often.
    pub(crate) fn read(&self, request: &RequestParts<'_>, out: &mut Vec<u8>) -> Found {
        let mut joined = Joined { out, count: 0 };
        let mut malformed = false;
        match self {
            Self::Header(name) => {
                for value in request.headers.get_all(name) {
                    joined.push(value.as_bytes().trim_ascii().iter().copied());
                }
            }
            Self::Cookie(name) => {
                for value in cookies(request.headers, name) {
                    joined.push(value.iter().copied());
                }
            }
            Self::Query(name) => {
                for value in parameters(request.query, name) {
                    joined.push(decoded(value));
                }
            }
            Self::Bearer => {
                for value in request.headers.get_all(AUTHORIZATION) {
                    match bearer(value.as_bytes()) {
                        Bearer::Token(token) => joined.push(token.iter().copied()),
                        Bearer::Malformed => {
                            malformed = true;
                            joined.push(core::iter::empty());
                        }
                        Bearer::OtherScheme => {}
                    }
                }
            }
        }
        Found { count: joined.count, malformed }
    }
}

/// What a look at a source gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// How many values there are, malformed ones too.
    pub(crate) count: usize,
    /// Whether one of them is not as it has to be, so that another server might read it in another way.
    pub(crate) malformed: bool,
}

/// Values as one, in the way that RFC 9110 joins the lines of a header.
struct Joined<'o> {
    out: &'o mut Vec<u8>,
    count: usize,
}

impl Joined<'_> {
    fn push(&mut self, value: impl Iterator<Item = u8>) {
        if self.count > 0 {
            self.out.extend_from_slice(b", ");
        }
        self.out.extend(value);
        self.count += 1;
    }
}

fn cookies<'h>(headers: &'h HeaderMap, name: &str) -> impl Iterator<Item = &'h [u8]> {
    let lines = headers.get_all(COOKIE).into_iter();
    let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    pairs.filter_map(move |pair| {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        let (found, value) = (pair[..equals].trim_ascii(), pair[equals + 1..].trim_ascii());
        // Servers read `"a"` and `a` as one value, so it must be one here.
        let quoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
        (found == name.as_bytes()).then_some(quoted.unwrap_or(value))
    })
}

/// The values of a query parameter, not decoded. A parameter without `=` has an empty value.
fn parameters<'q>(query: &'q [u8], name: &str) -> impl Iterator<Item = &'q [u8]> {
    let pairs = query.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty());
    pairs.filter_map(move |pair| {
        let equals = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
        let value = pair.get(equals + 1..).unwrap_or_default();
        decoded(&pair[..equals]).eq(name.bytes()).then_some(value)
    })
}

/// A part of a query with `%41` and `+` undone. A percent sign that begins no code stands for itself.
fn decoded(text: &[u8]) -> impl Iterator<Item = u8> {
    let mut rest = text;
    core::iter::from_fn(move || {
        let (byte, after) = match rest {
            [b'%', high, low, after @ ..] => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, after),
                _ => (b'%', &rest[1..]),
            },
            [b'+', after @ ..] => (b' ', after),
            [byte, after @ ..] => (*byte, after),
            [] => return None,
        };
        rest = after;
        Some(byte)
    })
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// What a line of `Authorization` holds.
enum Bearer<'h> {
    Token(&'h [u8]),
    /// It begins as a bearer token and goes on as none. It must not pass for no token: a server behind may be less
    /// strict and find one, and then its user would not be counted.
    Malformed,
    OtherScheme,
}

/// Takes `Bearer token` apart. The scheme may be in any case, and spaces and tabs stand between the two.
fn bearer(value: &[u8]) -> Bearer<'_> {
    let value = value.trim_ascii();
    let Some((scheme, rest)) = value.split_at_checked(6) else { return Bearer::OtherScheme };
    if !scheme.eq_ignore_ascii_case(b"bearer") {
        return Bearer::OtherScheme;
    }
    let token = rest.trim_ascii_start();
    let apart = token.len() < rest.len();
    if !apart || token.iter().any(u8::is_ascii_whitespace) {
        return Bearer::Malformed;
    }
    Bearer::Token(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn read(source: &Source, query: &str, lines: &[(&'static str, &str)]) -> (usize, String) {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        let target = format!("/?{query}");
        let request = RequestParts::new(None, b"GET", target.as_bytes(), &headers);
        let mut out = Vec::new();
        let found = source.read(&request, &mut out);
        assert!(!found.malformed);
        (found.count, String::from_utf8_lossy(&out).into_owned())
    }

    #[test]
    fn a_header_that_occurs_twice_is_joined() {
        let source = Source::header("X-Tenant").unwrap();
        let lines = [("x-tenant", "a"), ("other", "x"), ("x-tenant", " b ")];
        assert_eq!(read(&source, "", &lines), (2, "a, b".into()));
        assert_eq!(read(&source, "", &[("x-tenant", "")]), (1, String::new()));
        assert_eq!(read(&source, "", &[]), (0, String::new()));
    }

    #[test]
    fn cookies_are_found_in_one_line_or_several() {
        let source = Source::Cookie("id".into());
        assert_eq!(read(&source, "", &[("cookie", "a=1; id=x=y; b=2")]), (1, "x=y".into()));
        assert_eq!(
            read(&source, "", &[("cookie", "a=1"), ("cookie", " id = \"x\" ")]),
            (1, "x".into())
        );
        assert_eq!(read(&source, "", &[("cookie", "xid=1;ID=2;id;=id")]), (0, String::new()));
        assert_eq!(read(&source, "", &[("cookie", "id=1;id=2")]), (2, "1, 2".into()));
    }

    #[test]
    fn all_spellings_of_a_query_parameter_are_one() {
        let source = Source::Query("key".into());
        for query in
            ["key=a+b", "key=a%20b", "%6bey=a%20%62", "x=1&key=%61 b".replace(' ', "+").as_str()]
        {
            assert_eq!(read(&source, query, &[]), (1, "a b".into()), "{query}");
        }
        assert_eq!(read(&source, "key=100%&b", &[]), (1, "100%".into()));
        assert_eq!(read(&source, "key=%zz%4", &[]), (1, "%zz%4".into()));
        assert_eq!(read(&source, "key&key=", &[]), (2, ", ".into()));
        assert_eq!(read(&source, "keys=1&Key=2", &[]), (0, String::new()));
    }

    #[test]
    fn a_bearer_token_needs_its_scheme() {
        let bearer = |value| read(&Source::Bearer, "", &[("authorization", value)]);
        assert_eq!(bearer("Bearer abc"), (1, "abc".into()));
        assert_eq!(bearer("bEARER   abc "), (1, "abc".into()));
        for value in ["Basic abc", "", "abc", "Bear er", "Basic Bearer abc"] {
            assert_eq!(bearer(value), (0, String::new()), "{value}");
        }
    }

    #[test]
    fn spaces_and_tabs_stand_between_a_scheme_and_its_token() {
        for value in ["Bearer\tabc", "bearer \t abc", "\tBEARER\t\tabc\t"] {
            let found = read(&Source::Bearer, "", &[("authorization", value)]);
            assert_eq!(found, (1, "abc".into()), "{value:?}");
        }
    }

    #[test]
    fn what_begins_as_a_bearer_token_and_is_none_is_malformed() {
        for value in
            ["Bearer", "Bearer ", "bearer\t", "Bearerabc", "Bearer=abc", "BEARER:", "Bearer a b"]
        {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
            let request = RequestParts::new(None, b"GET", b"/", &headers);
            let found = Source::Bearer.read(&request, &mut Vec::new());
            assert_eq!(found, Found { count: 1, malformed: true }, "{value:?}");
        }
    }

    #[test]
    fn attributes_are_called_after_their_source() {
        assert_eq!(Extract::new(Source::header("X-Tenant").unwrap()).name, "header.x-tenant");
        assert_eq!(Extract::new(Source::Cookie("Id".into())).name, "cookie.Id");
        assert_eq!(Source::header("no header").unwrap_err().part(), "header");
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(value: Vec<u8>) {
            let encoded: Vec<u8> =
                value.iter().flat_map(|byte| format!("%{byte:02x}").into_bytes()).collect();
            prop_assert_eq!(decoded(&encoded).collect::<Vec<_>>(), value);
        }
    }
}
