//! The bodies of calls: JSON to something that can be decided, or an error that names the field.
//!
//! Values are kept as they were written, so a number of many digits that stands for a user stays that
//! user, and no error repeats what a client sent.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use smallvec::SmallVec;
use tidegate::{Attribute, Timestamp};
use tidegate_rules::attribute::ATTRIBUTES_MAX;

use crate::engine::Does;

/// The most fields of an object that are looked at: more than any object here may have.
const FIELDS_MAX: usize = ATTRIBUTES_MAX + 1;

/// A call to be decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckBody<'b> {
    /// Whose call it is.
    pub who: Who<'b>,
    /// How much it takes.
    pub cost: u64,
    /// What it does.
    pub does: Does,
}

/// A call to be given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefundBody<'b> {
    /// Whose call it was.
    pub who: Who<'b>,
    /// How much it took.
    pub cost: u64,
    /// When it took it.
    pub taken_at: Timestamp,
}

/// Leases to be given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseBody<'b> {
    /// Whose call it was.
    pub who: Who<'b>,
    /// The leases, as the answer to the call has them.
    pub lease_id: Cow<'b, str>,
}

/// Which rules a call falls under.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Who<'b> {
    /// `None` where the body names none.
    pub domain: Option<Cow<'b, str>>,
    attributes: Vec<(Cow<'b, str>, Cow<'b, str>)>,
}

impl Who<'_> {
    /// What describes the call, in the order of the body.
    pub fn attributes(&self) -> SmallVec<[Attribute<'_>; 8]> {
        self.attributes.iter().map(|(name, value)| (&**name, &**value).into()).collect()
    }
}

/// What is wrong with a body, and where. Nothing was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyError {
    /// A JSON pointer (RFC 6901); empty for the body as a whole.
    pub pointer: String,
    /// What is wrong there.
    pub fault: BodyFault,
}

/// What can be wrong at a place of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyFault {
    /// It is not UTF-8.
    Encoding,
    /// It is not JSON from here on.
    Syntax {
        /// From 1.
        line: usize,
        /// From 1, in bytes.
        column: usize,
    },
    /// It is no object.
    NotAnObject,
    /// It is no list.
    NotAList,
    /// It is no text.
    NotText,
    /// It is none of text, number and truth value.
    NotAValue,
    /// It is no whole number from 0 on.
    NotACount,
    /// It is neither true nor false.
    NotABoolean,
    /// No field is called so here.
    Unknown,
    /// It is there more than once.
    Repeated,
    /// It is not there, and has to be.
    Missing,
    /// A call either looks or charges.
    PeekAndDebit,
    /// There are more attributes than rules look at.
    TooManyAttributes,
    /// There are more calls than are taken at once.
    TooManyCalls {
        /// So many are taken.
        max: usize,
    },
}

/// A call from the body of a check.
pub fn check(body: &[u8]) -> Result<CheckBody<'_>, BodyError> {
    check_at(text(body)?, "")
}

/// Calls from the body of a batch, which is a list of what [`check`] takes.
pub fn batch(body: &[u8], calls_max: usize) -> Result<Vec<CheckBody<'_>>, BodyError> {
    let calls = parsed(List { max: calls_max + 1 }, text(body)?, "", BodyFault::NotAList)?;
    if calls.len() > calls_max {
        return Err(BodyError::new("", BodyFault::TooManyCalls { max: calls_max }));
    }
    let calls = calls.into_iter().enumerate();
    calls.map(|(index, call)| check_at(call.get(), &format!("/{index}"))).collect()
}

/// What is to be refunded.
pub fn refund(body: &[u8]) -> Result<RefundBody<'_>, BodyError> {
    let (mut who, mut cost, mut taken_at) = (Who::default(), 1, None);
    for (name, value) in fields(text(body)?, "")? {
        let at = pointer("", &name);
        match &*name {
            "cost" => cost = count(value, at)?,
            "taken_at_us" => taken_at = Some(count(value, at)?),
            _ => who.read(&name, value, at)?,
        }
    }
    let taken_at = taken_at.ok_or_else(|| BodyError::new("/taken_at_us", BodyFault::Missing))?;
    Ok(RefundBody { who, cost, taken_at: Timestamp::from_micros(taken_at) })
}

/// Which lease is to be released or renewed.
pub fn of_lease(body: &[u8]) -> Result<LeaseBody<'_>, BodyError> {
    let (mut who, mut lease_id) = (Who::default(), None);
    for (name, value) in fields(text(body)?, "")? {
        let at = pointer("", &name);
        match &*name {
            "lease_id" => lease_id = Some(string(value, at)?),
            _ => who.read(&name, value, at)?,
        }
    }
    let lease_id = lease_id.ok_or_else(|| BodyError::new("/lease_id", BodyFault::Missing))?;
    Ok(LeaseBody { who, lease_id })
}

fn check_at<'b>(body: &'b str, at: &str) -> Result<CheckBody<'b>, BodyError> {
    let mut who = Who::default();
    let (mut cost, mut peek, mut debit) = (1, false, false);
    for (name, value) in fields(body, at)? {
        let at = pointer(at, &name);
        match &*name {
            "cost" => cost = count(value, at)?,
            "peek" => peek = boolean(value, at)?,
            "debit" => debit = boolean(value, at)?,
            _ => who.read(&name, value, at)?,
        }
    }
    let does = match (peek, debit) {
        (false, false) => Does::Take,
        (true, false) => Does::Peek,
        (false, true) => Does::Debit,
        (true, true) => {
            return Err(BodyError::new(&pointer(at, "debit"), BodyFault::PeekAndDebit));
        }
    };
    Ok(CheckBody { who, cost, does })
}

impl<'b> Who<'b> {
    /// Reads a field that every call has, or refuses it.
    fn read(&mut self, name: &str, value: &'b RawValue, at: String) -> Result<(), BodyError> {
        match name {
            "domain" => self.domain = Some(string(value, at)?),
            "attributes" => {
                let attributes = fields(value.get(), &at)?;
                if attributes.len() > ATTRIBUTES_MAX {
                    return Err(BodyError { pointer: at, fault: BodyFault::TooManyAttributes });
                }
                self.attributes.reserve(attributes.len());
                for (name, value) in attributes {
                    let value = attribute(value, || pointer(&at, &name))?;
                    self.attributes.push((name, value));
                }
            }
            _ => return Err(BodyError { pointer: at, fault: BodyFault::Unknown }),
        }
        Ok(())
    }
}

/// A text without its escapes; a number or a truth value as it is written.
fn attribute(value: &RawValue, at: impl Fn() -> String) -> Result<Cow<'_, str>, BodyError> {
    let text = value.get();
    match text.as_bytes().first() {
        Some(b'"') => string(value, at()),
        Some(b'{' | b'[' | b'n') | None => Err(BodyError::new(&at(), BodyFault::NotAValue)),
        Some(_) => Ok(Cow::Borrowed(text)),
    }
}

fn string(value: &RawValue, at: String) -> Result<Cow<'_, str>, BodyError> {
    let text: Result<Text<'_>, _> = serde_json::from_str(value.get());
    text.map(|text| text.0).map_err(|_| BodyError { pointer: at, fault: BodyFault::NotText })
}

fn count(value: &RawValue, at: String) -> Result<u64, BodyError> {
    value.get().parse().map_err(|_| BodyError { pointer: at, fault: BodyFault::NotACount })
}

fn boolean(value: &RawValue, at: String) -> Result<bool, BodyError> {
    value.get().parse().map_err(|_| BodyError { pointer: at, fault: BodyFault::NotABoolean })
}

/// The fields of an object, each there once.
fn fields<'b>(text: &'b str, at: &str) -> Result<Vec<Field<'b>>, BodyError> {
    let fields = parsed(Object, text, at, BodyFault::NotAnObject)?;
    for (index, (name, _)) in fields.iter().enumerate() {
        if fields[..index].iter().any(|(before, _)| before == name) {
            return Err(BodyError::new(&pointer(at, name), BodyFault::Repeated));
        }
    }
    Ok(fields)
}

fn text(body: &[u8]) -> Result<&str, BodyError> {
    std::str::from_utf8(body).map_err(|_| BodyError::new("", BodyFault::Encoding))
}

/// What the seed makes of the text; `otherwise` where the text is JSON of another kind.
fn parsed<'b, S: DeserializeSeed<'b>>(
    seed: S,
    text: &'b str,
    at: &str,
    otherwise: BodyFault,
) -> Result<S::Value, BodyError> {
    let mut json = serde_json::Deserializer::from_str(text);
    let parsed = seed.deserialize(&mut json).and_then(|value| json.end().map(|()| value));
    parsed.map_err(|error| {
        let fault = match error.classify() {
            serde_json::error::Category::Data => otherwise,
            _ => BodyFault::Syntax { line: error.line(), column: error.column() },
        };
        BodyError::new(at, fault)
    })
}

/// The pointer to a field below another place.
fn pointer(at: &str, name: &str) -> String {
    format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// A field of an object, its value not looked at.
type Field<'b> = (Cow<'b, str>, &'b RawValue);

/// Text that borrows where it has no escapes.
#[derive(Deserialize)]
struct Text<'b>(#[serde(borrow)] Cow<'b, str>);

/// The first [`FIELDS_MAX`] fields of an object.
struct Object;

impl<'b> DeserializeSeed<'b> for Object {
    type Value = Vec<Field<'b>>;

    fn deserialize<D: Deserializer<'b>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'b> Visitor<'b> for Object {
    type Value = Vec<Field<'b>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'b>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while fields.len() < FIELDS_MAX {
            let Some(Text(name)) = map.next_key()? else { return Ok(fields) };
            fields.push((name, map.next_value()?));
        }
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(fields)
    }
}

/// The first `max` items of a list.
struct List {
    max: usize,
}

impl<'b> DeserializeSeed<'b> for List {
    type Value = Vec<&'b RawValue>;

    fn deserialize<D: Deserializer<'b>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'b> Visitor<'b> for List {
    type Value = Vec<&'b RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'b>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while items.len() < self.max {
            let Some(item) = list.next_element()? else { return Ok(items) };
            items.push(item);
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(items)
    }
}

impl BodyError {
    fn new(pointer: &str, fault: BodyFault) -> Self {
        Self { pointer: pointer.to_owned(), fault }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fault.fmt(f)
    }
}

impl std::error::Error for BodyError {}

impl fmt::Display for BodyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Encoding => "the body is not UTF-8",
            Self::Syntax { line, column } => {
                return write!(f, "this is not JSON, at line {line}, column {column}");
            }
            Self::NotAnObject => "this has to be an object",
            Self::NotAList => "this has to be a list",
            Self::NotText => "this has to be a text",
            Self::NotAValue => "this has to be a text, a number, true or false",
            Self::NotACount => "this has to be a whole number, 0 or more",
            Self::NotABoolean => "this has to be true or false",
            Self::Unknown => "there is no such field",
            Self::Repeated => "this is there more than once",
            Self::Missing => "this is missing",
            Self::PeekAndDebit => "a call is either `peek` or `debit`",
            Self::TooManyAttributes => {
                return write!(f, "there are too many; at most {ATTRIBUTES_MAX} are looked at");
            }
            Self::TooManyCalls { max } => {
                return write!(f, "there are too many calls; at most {max} are taken at once");
            }
        })
    }
}

#[cfg(test)]
mod tests;
