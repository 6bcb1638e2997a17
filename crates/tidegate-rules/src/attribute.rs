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

/// Which attributes rules look at, so that who makes attributes of a request makes no others: those that most requests
/// have by name, and all others together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reads(u16);

impl Reads {
    /// None at all.
    pub const NOTHING: Self = Self(0);
    /// All of them, also those that no rule names.
    pub const ALL: Self = Self::OF_CLIENT.and(Self::OF_REQUEST);
    /// `ip`.
    pub const IP: Self = Self(1);
    /// `address`.
    pub const ADDRESS: Self = Self(1 << 1);
    /// `country`.
    pub const COUNTRY: Self = Self(1 << 2);
    /// `asn`.
    pub const ASN: Self = Self(1 << 3);
    /// `method`.
    pub const METHOD: Self = Self(1 << 4);
    /// `host`.
    pub const HOST: Self = Self(1 << 5);
    /// `path`.
    pub const PATH: Self = Self(1 << 6);
    /// `api_key`.
    pub const API_KEY: Self = Self(1 << 7);
    /// Any with another name.
    pub const OTHERS: Self = Self(1 << 8);

    /// Those that come of the address of a client.
    pub const OF_CLIENT: Self = Self::IP.and(Self::ADDRESS).and(Self::COUNTRY).and(Self::ASN);
    /// Those that come of something else in a request.
    pub const OF_REQUEST: Self =
        Self::METHOD.and(Self::HOST).and(Self::PATH).and(Self::API_KEY).and(Self::OTHERS);

    /// The attributes that have a place of their own.
    const NAMED: [(&'static str, Self); 8] = [
        ("ip", Self::IP),
        ("address", Self::ADDRESS),
        ("country", Self::COUNTRY),
        ("asn", Self::ASN),
        ("method", Self::METHOD),
        ("host", Self::HOST),
        ("path", Self::PATH),
        ("api_key", Self::API_KEY),
    ];

    /// The attribute of this name, and with it all others that have no place of their own either.
    pub fn named(name: &str) -> Self {
        let named = Self::NAMED.iter().find(|(known, _)| *known == name);
        named.map_or(Self::OTHERS, |(_, reads)| *reads)
    }

    /// These and those.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Whether one of these is among them.
    #[inline]
    pub const fn any_of(self, these: Self) -> bool {
        self.0 & these.0 != 0
    }
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
