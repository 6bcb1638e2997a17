//! The URL of a store, taken apart: which servers, how they are reached, and who we are there.
//!
//! ```text
//! redis           ://[user[:password]@]host[:port][/database][?options]
//! redis+unix      :///path[?db=number&user=name&pass=password]
//! redis-sentinel  ://[user[:password]@]host[:port],host[:port]…/service[/database][?options]
//! redis-cluster   ://[user[:password]@]host[:port],host[:port]…[?options]
//! ```
//!
//! `rediss`, `rediss-sentinel` and `rediss-cluster` are the same with TLS, and `valkey` can stand for
//! `redis`. What is not a letter, a digit or one of `-._~` in a name or a password is written as `%`
//! and two hexadecimal digits. Nothing is read from files here, and nobody is asked.

use std::fmt;
use std::path::PathBuf;

use super::{Access, Address, Deployment, Password};

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26_379;

/// The most addresses in one URL.
const ADDRESSES_MAX: usize = 64;

/// What is wrong with a URL. What it says is not repeated: it can hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UrlError {
    /// It does not begin with the name of a kind of deployment and `://`.
    Scheme,
    /// An address is missing, is not one, or there are more than 64.
    Host,
    /// A port is not a number from 1 to 65535.
    Port,
    /// The database is not a number, or there is one where there can be none, as in a cluster.
    Database,
    /// The Sentinels are not told the name of the service.
    Service,
    /// The path of a socket is missing or not absolute.
    Path,
    /// A `%` is not followed by two hexadecimal digits, or what they spell is not text.
    Escape,
    /// There is an option that is not known, or one without a value.
    Option,
    /// There is an option for TLS, and the URL is not one with TLS.
    NoTls,
    /// There is an option for Sentinels, and the URL has none.
    NoSentinels,
    /// A client's certificate without its key, or a key without its certificate.
    HalfCertificate,
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheme => {
                "it begins with redis://, redis-sentinel://, redis-cluster:// or, with TLS, \
                 rediss://, rediss-sentinel://, rediss-cluster://; or redis+unix://"
            }
            Self::Host => "an address is missing or is not one",
            Self::Port => "a port is a number from 1 to 65535",
            Self::Database => {
                "the database is a number; a cluster has none, and a socket's is ?db=number"
            }
            Self::Service => "behind the Sentinels' addresses comes / and the name of the service",
            Self::Path => "the path of a socket begins with /",
            Self::Escape => "% is followed by two hexadecimal digits, which spell text",
            Self::Option => "an option is not known, or has no value",
            Self::NoTls => "options for certificates need a URL with TLS, as rediss://",
            Self::NoSentinels => "options for Sentinels need a URL of Sentinels",
            Self::HalfCertificate => "a client's certificate and its key come together",
        })
    }
}

impl std::error::Error for UrlError {}

/// Takes a URL apart.
pub(super) fn parse(url: &str) -> Result<(Deployment, Access), UrlError> {
    let (scheme, rest) = url.split_once("://").ok_or(UrlError::Scheme)?;
    let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
    let scheme = scheme.replacen("valkey", "redis", 1);
    if scheme == "redis+unix" || scheme == "unix" {
        return unix(rest, options);
    }
    let tls = scheme.starts_with("rediss");
    let kind = scheme.replacen("rediss", "redis", 1);
    let (credentials, places) = match rest.rsplit_once('@') {
        Some((credentials, places)) => (Some(credentials), places),
        None => (None, rest),
    };
    let (hosts, path) = places.split_once('/').unwrap_or((places, ""));
    let mut access = Access { tls: tls.then(Default::default), ..Access::default() };
    if let Some(credentials) = credentials {
        let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
        access.user = Some(decode(user)?).filter(|user| !user.is_empty());
        access.password = Some(decode(password)?).filter(|it| !it.is_empty()).map(Password::Text);
    }
    let deployment = match kind.as_str() {
        "redis" => {
            access.database = database(path)?;
            let [address] = <[Address; 1]>::try_from(addresses(hosts, PORT)?)
                .map_err(|_several| UrlError::Host)?;
            Deployment::Single(address)
        }
        "redis-sentinel" => {
            let (service, path) = path.split_once('/').unwrap_or((path, ""));
            access.database = database(path)?;
            let service = Some(decode(service)?).filter(|service| !service.is_empty());
            Deployment::Sentinel {
                sentinels: addresses(hosts, SENTINEL_PORT)?,
                service: service.ok_or(UrlError::Service)?,
            }
        }
        "redis-cluster" if path.is_empty() || path == "0" => {
            Deployment::Cluster { seeds: addresses(hosts, PORT)? }
        }
        "redis-cluster" => return Err(UrlError::Database),
        _ => return Err(UrlError::Scheme),
    };
    read_options(options, &deployment, &mut access)?;
    Ok((deployment, access))
}

fn unix(path: &str, options: &str) -> Result<(Deployment, Access), UrlError> {
    let path = decode(path)?;
    if !path.starts_with('/') {
        return Err(UrlError::Path);
    }
    let deployment = Deployment::Single(Address::Unix(PathBuf::from(path)));
    let mut access = Access::default();
    read_options(options, &deployment, &mut access)?;
    Ok((deployment, access))
}

fn read_options(
    options: &str,
    deployment: &Deployment,
    access: &mut Access,
) -> Result<(), UrlError> {
    let socket = matches!(deployment, Deployment::Single(Address::Unix(_)));
    let sentinels = matches!(deployment, Deployment::Sentinel { .. });
    for option in options.split('&').filter(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=').ok_or(UrlError::Option)?;
        let value = Some(decode(value)?).filter(|value| !value.is_empty());
        let value = value.ok_or(UrlError::Option)?;
        match name {
            "db" if socket => access.database = database(&value)?,
            "user" if socket => access.user = Some(value),
            "pass" if socket => access.password = Some(Password::Text(value)),
            "password-file" => access.password = Some(Password::File(value.into())),
            "ca" | "cert" | "key" => {
                let tls = access.tls.as_mut().ok_or(UrlError::NoTls)?;
                let file = Some(PathBuf::from(value));
                match name {
                    "ca" => tls.ca = file,
                    "cert" => tls.certificate = file,
                    _ => tls.key = file,
                }
            }
            "sentinel-user" | "sentinel-password" | "sentinel-password-file" => {
                if !sentinels {
                    return Err(UrlError::NoSentinels);
                }
                match name {
                    "sentinel-user" => access.sentinel_user = Some(value),
                    "sentinel-password" => access.sentinel_password = Some(Password::Text(value)),
                    _ => access.sentinel_password = Some(Password::File(value.into())),
                }
            }
            _ => return Err(UrlError::Option),
        }
    }
    let half =
        access.tls.as_ref().is_some_and(|tls| tls.certificate.is_some() != tls.key.is_some());
    if half { Err(UrlError::HalfCertificate) } else { Ok(()) }
}

fn addresses(list: &str, port: u16) -> Result<Vec<Address>, UrlError> {
    let addresses: Vec<_> =
        list.split(',').map(|one| address(one, port)).collect::<Result<_, _>>()?;
    if addresses.len() > ADDRESSES_MAX { Err(UrlError::Host) } else { Ok(addresses) }
}

/// One address, as a URL or a cluster's server spells it: `host`, `host:port`, `[::1]:port`.
pub(crate) fn address(text: &str, port: u16) -> Result<Address, UrlError> {
    let (host, rest) = if let Some(bracketed) = text.strip_prefix('[') {
        bracketed.split_once(']').ok_or(UrlError::Host)?
    } else {
        text.split_at(text.rfind(':').unwrap_or(text.len()))
    };
    let name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let number = |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.' | b'%');
    // Without brackets the last of a host's colons would be taken for that of the port.
    let known =
        if text.starts_with('[') { host.bytes().all(number) } else { host.bytes().all(name) };
    if host.is_empty() || !known {
        return Err(UrlError::Host);
    }
    let port = match rest.strip_prefix(':') {
        Some(digits) => digits.parse().ok().filter(|port| *port != 0).ok_or(UrlError::Port)?,
        None if rest.is_empty() => port,
        None => return Err(UrlError::Host),
    };
    Ok(Address::Tcp { host: host.to_owned(), port })
}

fn database(text: &str) -> Result<u32, UrlError> {
    if text.is_empty() { Ok(0) } else { text.parse().map_err(|_| UrlError::Database) }
}

/// Text with its escapes resolved.
fn decode(text: &str) -> Result<String, UrlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first == b'%' {
            let (digits, tail) = rest.split_at_checked(2).ok_or(UrlError::Escape)?;
            let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(UrlError::Escape);
            bytes.push((digit(digits[0])? * 16 + digit(digits[1])?) as u8);
            rest = tail;
        } else {
            bytes.push(first);
        }
    }
    String::from_utf8(bytes).map_err(|_| UrlError::Escape)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.to_owned(), port }
    }

    fn text(password: &str) -> Password {
        Password::Text(password.to_owned())
    }

    #[test]
    fn a_url_names_one_server() {
        let (deployment, access) = parse("redis://me:p%40ss@store.example:7000/3").unwrap();
        assert_eq!(deployment, Deployment::Single(tcp("store.example", 7000)));
        assert_eq!((access.user.as_deref(), access.password), (Some("me"), Some(text("p@ss"))));
        assert_eq!((access.database, access.tls), (3, None));

        let (deployment, access) = parse("valkeys://:secret@[::1]").unwrap();
        assert_eq!(deployment, Deployment::Single(tcp("::1", 6379)));
        assert_eq!((access.user, access.password), (None, Some(text("secret"))));
        assert!(access.tls.is_some());

        let (deployment, access) = parse("redis+unix:///run/r%20s?db=2&user=me&pass=x").unwrap();
        assert_eq!(deployment, Deployment::Single(Address::Unix("/run/r s".into())));
        assert_eq!((access.database, access.password), (2, Some(text("x"))));
    }

    #[test]
    fn a_url_names_sentinels_and_their_service() {
        let url = "rediss-sentinel://:a@one:1,two/limits/4?sentinel-password=b&ca=/ca.pem";
        let (deployment, access) = parse(url).unwrap();
        let sentinels = vec![tcp("one", 1), tcp("two", 26_379)];
        assert_eq!(deployment, Deployment::Sentinel { sentinels, service: "limits".to_owned() });
        assert_eq!((access.password, access.sentinel_password), (Some(text("a")), Some(text("b"))));
        assert_eq!(access.database, 4);
        assert_eq!(access.tls.unwrap().ca, Some("/ca.pem".into()));
    }

    #[test]
    fn a_url_names_the_servers_of_a_cluster() {
        let (deployment, access) = parse("redis-cluster://a,b:7001?password-file=/p").unwrap();
        assert_eq!(deployment, Deployment::Cluster { seeds: vec![tcp("a", 6379), tcp("b", 7001)] });
        assert_eq!(access.password, Some(Password::File("/p".into())));
    }

    #[test]
    fn a_url_that_is_none_says_what_is_wrong() {
        for (url, wrong) in [
            ("", UrlError::Scheme),
            ("redis", UrlError::Scheme),
            ("http://127.0.0.1", UrlError::Scheme),
            ("redis-ring://a", UrlError::Scheme),
            ("redis://", UrlError::Host),
            ("redis://[::1", UrlError::Host),
            ("redis://::1", UrlError::Host),
            ("redis://a,b", UrlError::Host),
            ("redis://a b", UrlError::Host),
            ("redis-cluster://a,,b", UrlError::Host),
            ("redis://host:port", UrlError::Port),
            ("redis://host:0", UrlError::Port),
            ("redis://host:65536", UrlError::Port),
            ("redis://host/first", UrlError::Database),
            ("redis://host/-1", UrlError::Database),
            ("redis-cluster://host/1", UrlError::Database),
            ("redis-sentinel://host", UrlError::Service),
            ("redis+unix://sock", UrlError::Path),
            ("redis://u:%zz@host", UrlError::Escape),
            ("redis://u:%f@host", UrlError::Escape),
            ("redis://u:%ff@host", UrlError::Escape),
            ("redis://host?colour=blue", UrlError::Option),
            ("redis://host?password-file=", UrlError::Option),
            ("redis://host?db=1", UrlError::Option),
            ("redis://host?ca=/ca.pem", UrlError::NoTls),
            ("redis://host?sentinel-user=me", UrlError::NoSentinels),
            ("rediss://host?cert=/c.pem", UrlError::HalfCertificate),
        ] {
            assert_eq!(parse(url).unwrap_err(), wrong, "{url}");
        }
        let many = vec!["a"; 65].join(",");
        assert_eq!(parse(&format!("redis-cluster://{many}")).unwrap_err(), UrlError::Host);
    }

    proptest! {
        #[test]
        fn no_text_panics(scheme in 0..4_usize, text in ".{0,60}") {
            let scheme = ["", "redis://", "rediss-sentinel://", "redis+unix://"][scheme];
            let _ = parse(&format!("{scheme}{text}"));
        }

        #[test]
        fn what_is_escaped_is_what_was_meant(password in "\\PC{1,20}") {
            let digit = |number: u8| char::from_digit(number.into(), 16).unwrap();
            let bytes = password.bytes();
            let escaped: String =
                bytes.flat_map(|byte| ['%', digit(byte >> 4), digit(byte & 15)]).collect();
            let (_, access) = parse(&format!("redis://:{escaped}@host")).unwrap();
            assert_eq!(access.password, Some(text(&password)));
        }
    }
}
