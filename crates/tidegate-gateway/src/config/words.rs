//! Settings that are a word, or a word and what it is about, from text.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;
use std::time::Duration;

use http::HeaderValue;
use tidegate_identity::host::HOST_BYTES_MAX;
use tidegate_rules::attribute::is_attribute_name;
use tidegate_rules::rule::Statuses;
use tidegate_server::config::value::Time;

use crate::access_log::AccessLogFormat;
use crate::route::HostHeader;
use crate::upstream::Balance;

/// How upstreams share requests: `round-robin`, `least-loaded`, or `hash:ATTRIBUTE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BalanceWord(pub Balance);

/// What upstreams are told as `Host`: `preserve`, `upstream`, or a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostWord(pub HostHeader);

/// What lines of the access log look like: `combined` or `json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFormatWord(pub AccessLogFormat);

/// A host of a route, in small letters: a name, `*.` before one for all below it, an address, or `*` for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteHost(pub String);

/// Statuses of responses that count as failures of a server. Those below 500 are up to the client, and anybody could
/// have every server left out by asking for what is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailWord(pub Statuses);

/// A time in which something has to happen, so it is longer than nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait(Duration);

impl Wait {
    /// How long.
    pub const fn duration(self) -> Duration {
        self.0
    }
}

/// The text is none of the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordError(&'static str);

impl FromStr for BalanceWord {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        let balance = match text.split_once(':') {
            None if text == "round-robin" => Balance::RoundRobin,
            None if text == "least-loaded" => Balance::LeastLoaded,
            Some(("hash", attribute)) if is_attribute_name(attribute) => {
                Balance::Hash(attribute.to_owned())
            }
            _ => return Err(WordError("write `round-robin`, `least-loaded` or `hash:ATTRIBUTE`")),
        };
        Ok(Self(balance))
    }
}

impl FromStr for HostWord {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        let error = WordError("write `preserve`, `upstream`, or the host that upstreams are told");
        Ok(Self(match text {
            "preserve" => HostHeader::Preserve,
            "upstream" => HostHeader::Upstream,
            host => {
                let authority: http::uri::Authority = host.parse().map_err(|_| error)?;
                let value = HeaderValue::from_str(authority.as_str()).map_err(|_| error)?;
                HostHeader::Fixed(value)
            }
        }))
    }
}

impl FromStr for LogFormatWord {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        match text {
            "combined" => Ok(Self(AccessLogFormat::Combined)),
            "json" => Ok(Self(AccessLogFormat::Json)),
            _ => Err(WordError("write `combined` or `json`")),
        }
    }
}

impl FromStr for RouteHost {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        let host = text.to_ascii_lowercase();
        let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Some(Ok(address)) = address.map(str::parse::<Ipv6Addr>) {
            return Ok(Self(format!("[{address}]")));
        }
        let is_of_a_label = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_label = |label: &str| !label.is_empty() && label.bytes().all(is_of_a_label);
        let name = host.strip_prefix("*.").unwrap_or(&host);
        if host == "*" || (name.len() <= HOST_BYTES_MAX && name.split('.').all(is_label)) {
            return Ok(Self(host));
        }
        Err(WordError(
            "write a name alone, such as `shop.example`, or `*.shop.example` for all below it; letters beyond ASCII as `xn--…`",
        ))
    }
}

impl FromStr for FailWord {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        let statuses = text.parse().ok().filter(|statuses: &Statuses| statuses.from >= 500);
        let write = "write a status from 500 to 599 such as `503`, a range such as `502-504`, or `5xx`: others are the client's doing";
        statuses.map(Self).ok_or(WordError(write))
    }
}

impl FromStr for Wait {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        let time = text.parse().ok().map(Time::duration).filter(|time| !time.is_zero());
        let write = "write a time longer than nothing, such as `10s`, `250ms` or `1m30s`";
        time.map(Self).ok_or(WordError(write))
    }
}

impl fmt::Display for WordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for WordError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_others_are_told() {
        let balance = |text: &str| text.parse::<BalanceWord>().map(|word| word.0);
        assert_eq!(balance("hash:user"), Ok(Balance::Hash("user".into())));
        assert_eq!(balance("least-loaded"), Ok(Balance::LeastLoaded));
        assert!(balance("hash:").is_err() && balance("random").is_err());
        let host = |text: &str| text.parse::<HostWord>().map(|word| word.0);
        assert_eq!(host("upstream"), Ok(HostHeader::Upstream));
        assert_eq!(host("a.example:80"), Ok(HostHeader::Fixed("a.example:80".parse().unwrap())));
        assert!(host("a b").is_err());
        assert!("xml".parse::<LogFormatWord>().is_err());
    }
}
