//! What is wrong with a setting, and which one.

use std::fmt;

use ipnet::IpNet;
use tidegate_rules::attribute::ATTRIBUTE_CHARS_MAX;

/// A setting that cannot be used. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityError {
    part: String,
    fault: Fault,
}

/// What is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A range of trusted proxies so wide that anyone's address lies in it.
    TrustTooWide {
        /// The range.
        network: IpNet,
        /// The shortest prefix that is accepted.
        prefix_min: u8,
    },
    /// A range of IPv6 that holds all of IPv4, each address in an IPv6 form.
    TrustHoldsIpv4(IpNet),
    /// Ranges of trusted proxies that together are more than half of this one.
    TrustTooWideTogether(IpNet),
    /// An IPv4-mapped address with a prefix that reaches beyond IPv4.
    MappedPrefix(IpNet),
    /// A number that is too small or too large.
    OutOfRange {
        /// The number.
        value: u64,
        /// The smallest that is accepted.
        min: u64,
        /// The largest that is accepted.
        max: u64,
    },
    /// A translator's network that is not 96 bits long.
    TranslatorPrefix(IpNet),
    /// A name that is empty, too long, or holds what is neither a letter, a digit nor one of `_-.:`.
    Name(String),
    /// Two things that would give one attribute.
    NameTwice(String),
    /// More than the bound.
    TooMany {
        /// How many there are.
        count: usize,
        /// How many there may be.
        max: usize,
    },
    /// More attributes than rules look at.
    TooManyAttributes {
        /// How many a request could have, those that need no setting included.
        count: usize,
        /// How many rules look at.
        max: usize,
    },
    /// A text that is no name of a header.
    HeaderName(String),
    /// A name of a cookie, a query parameter or a claim that is empty.
    Empty,
    /// A source that holds a credential, which must not become an attribute as it is.
    Credential,
    /// No key to verify tokens with.
    NoKeys,
    /// A key that tokens cannot be verified with, and why.
    Key(&'static str),
    /// Keys that tokens do not tell apart, more than are tried on one.
    TooManyTries {
        /// How many there are.
        count: usize,
        /// How many are tried.
        max: usize,
    },
    /// A text that is no set of JSON web keys.
    KeySet(String),
    /// A country that is not written with two letters.
    Country(String),
    /// A network that is listed twice, with different countries.
    NetworkTwice(IpNet),
    /// A database that cannot be read, and why.
    Database(String),
}

impl IdentityError {
    pub(crate) fn new(part: impl Into<String>, fault: Fault) -> Self {
        Self { part: part.into(), fault }
    }

    /// Which setting it is, as `proxies.networks[2]`.
    pub fn part(&self) -> &str {
        &self.part
    }

    /// What is wrong with it.
    pub fn fault(&self) -> &Fault {
        &self.fault
    }
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.part, self.fault)
    }
}

impl std::error::Error for IdentityError {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TrustTooWide { network, prefix_min } => write!(
                f,
                "{network} is too wide to trust: clients would lie in it and choose their own \
                 address; list the proxies' own networks, /{prefix_min} or longer"
            ),
            Self::TrustHoldsIpv4(network) => write!(
                f,
                "{network} holds all of IPv4 in an IPv6 form; list the proxies' own networks"
            ),
            Self::TrustTooWideTogether(space) => write!(
                f,
                "together these are more than half of {space}; list the proxies' own networks"
            ),
            Self::MappedPrefix(network) => write!(
                f,
                "{network} is an IPv4 address in its IPv6 form with a prefix shorter than /96, \
                 which means all of IPv4; write it as IPv4, as 10.0.0.0/8"
            ),
            Self::OutOfRange { value, min, max } => {
                write!(f, "{value} is out of range: use {min} to {max}")
            }
            Self::TranslatorPrefix(network) => write!(
                f,
                "{network} is no translator's network: use one of 96 bits, as 64:ff9b::/96, whose \
                 addresses end in the IPv4 address"
            ),
            Self::Name(name) => write!(
                f,
                "`{}` is no name for an attribute: use 1 to {} letters, digits, `_`, `-`, `.` \
                 and `:`",
                name.escape_debug(),
                ATTRIBUTE_CHARS_MAX
            ),
            Self::NameTwice(name) => {
                write!(f, "the attribute `{name}` has a source already; choose another name")
            }
            Self::TooMany { count, max } => write!(f, "{count} are too many: at most {max}"),
            Self::TooManyAttributes { count, max } => write!(
                f,
                "a request could have {count} attributes, and rules look at {max}: take fewer \
                 claims, headers, cookies and query parameters"
            ),
            Self::HeaderName(name) => {
                write!(f, "`{}` is no name of a header", name.escape_debug())
            }
            Self::Empty => f.write_str("the name is empty"),
            Self::Credential => f.write_str(
                "this holds a credential: look for it in `api_key`, which hashes it, or in `token`",
            ),
            Self::NoKeys => f.write_str("there is no key; give a secret, a PEM file or a key set"),
            Self::Key(why) => f.write_str(why),
            Self::TooManyTries { count, max } => write!(
                f,
                "{count} keys of one algorithm have no key id, or the same one, and only {max} are \
                 tried on a token: give each key an id of its own"
            ),
            Self::KeySet(why) => write!(f, "this is no set of JSON web keys: {why}"),
            Self::Country(code) => write!(
                f,
                "`{}` is no country: use the two letters of ISO 3166-1, as DE",
                code.escape_debug()
            ),
            Self::NetworkTwice(network) => {
                write!(f, "{network} is listed twice, with different countries; keep one")
            }
            Self::Database(why) => write!(f, "the database cannot be used: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_which_setting_what_is_wrong_and_what_to_do() {
        let network: IpNet = "::ffff:10.0.0.0/8".parse().unwrap();
        let error = IdentityError::new("proxies.networks[1]", Fault::MappedPrefix(network));
        assert_eq!(
            error.to_string(),
            "`proxies.networks[1]`: ::ffff:10.0.0.0/8 is an IPv4 address in its IPv6 form with a \
             prefix shorter than /96, which means all of IPv4; write it as IPv4, as 10.0.0.0/8"
        );
    }
}
