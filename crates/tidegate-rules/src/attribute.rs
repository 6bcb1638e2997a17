//! What describes a request: names and values.

/// One name and value that describe a request, as `user=42`.
///
/// A value is bytes, since headers and other people's protocols do not promise text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// What it says about the request.
    pub name: &'a str,
    /// What it is in this one.
    pub value: &'a [u8],
}

impl<'a> From<(&'a str, &'a str)> for Attribute<'a> {
    fn from((name, value): (&'a str, &'a str)) -> Self {
        Self { name, value: value.as_bytes() }
    }
}

impl<'a> From<(&'a str, &'a [u8])> for Attribute<'a> {
    fn from((name, value): (&'a str, &'a [u8])) -> Self {
        Self { name, value }
    }
}
