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

/// The most attributes of a request that rules look at.
pub const ATTRIBUTES_MAX: usize = 32;

/// The longest name of an attribute.
pub const ATTRIBUTE_CHARS_MAX: usize = 64;

/// Whether rules can name an attribute so: 1 to [`ATTRIBUTE_CHARS_MAX`] letters, digits, `_`, `-`, `.` and `:`.
pub fn is_attribute_name(name: &str) -> bool {
    (1..=ATTRIBUTE_CHARS_MAX).contains(&name.len()) && name.chars().all(is_of_a_name)
}

/// Whether this character may stand in the name of an attribute.
pub(crate) fn is_of_a_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':')
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
