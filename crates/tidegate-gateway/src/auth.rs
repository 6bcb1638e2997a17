//! Who sends a request, before the limiter counts it: API keys from a file of hashes, verified tokens, and
//! lists of addresses. A request that fails here is still counted, so that guessing is limited too.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use aws_lc_rs::hmac;
use http::HeaderMap;
use http::header::HeaderName;
use ipnet::{IpNet, Ipv4Net};
use tidegate_identity::{Attributes, Token};

/// The attribute that says how a request was authenticated: `key`, `token`, `none` or `invalid`.
const AUTH: &str = "auth";
/// The attribute with the name of an API key.
const CLIENT: &str = "client";
/// The longest API key that is looked at.
const KEY_BYTES_MAX: usize = 1024;
/// The most keys of a file.
const KEYS_MAX: usize = 100_000;
/// The most networks of a list.
pub const NETWORKS_MAX: usize = 1_000;

/// What a route asks of a request before it is forwarded.
#[derive(Debug)]
pub(crate) struct Auth {
    pub(crate) is_required: bool,
    pub(crate) header: HeaderName,
    pub(crate) keys: Option<KeysFile>,
}

/// Who it was found to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sender {
    pub(crate) is_authenticated: bool,
    pub(crate) name: Option<String>,
}

impl Auth {
    /// Looks who it is, and adds that to the attributes.
    pub(crate) fn look(&self, headers: &HeaderMap, attributes: &mut Attributes) -> Sender {
        let mut sender = Sender { is_authenticated: false, name: None };
        let mut presented = headers.get_all(&self.header).iter();
        let key = self.keys.as_ref().and_then(|keys| Some((keys, presented.next()?)));
        let word = match (key, attributes.token()) {
            (Some(_), _) if presented.next().is_some() => "invalid",
            (Some((keys, key)), _) => match keys.keys.load().name(key.as_bytes()) {
                Some(name) => {
                    sender = Sender { is_authenticated: true, name: Some(name.to_owned()) };
                    attributes.push(CLIENT, name.as_bytes());
                    "key"
                }
                None => "invalid",
            },
            (None, Token::Valid) => {
                sender.is_authenticated = true;
                "token"
            }
            (None, Token::Absent) => "none",
            (None, Token::Invalid(_)) => "invalid",
        };
        attributes.push(AUTH, word.as_bytes());
        sender
    }
}

/// Which addresses a route takes requests from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressLists {
    /// These alone, where there are any.
    pub allow: Vec<Network>,
    /// None of these.
    pub deny: Vec<Network>,
}

impl AddressLists {
    /// Whether nothing is listed, so that nobody's address matters.
    pub(crate) fn is_open(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }

    /// Whether a request of this client is taken. One whose address is not known is, where nothing is listed.
    pub(crate) fn admit(&self, client: Option<IpAddr>) -> bool {
        let holds = |networks: &[Network]| {
            client.is_some_and(|client| {
                let client = client.to_canonical();
                networks.iter().any(|network| network.0.contains(&client))
            })
        };
        let is_known = client.is_some() || (self.allow.is_empty() && self.deny.is_empty());
        is_known && !holds(&self.deny) && (self.allow.is_empty() || holds(&self.allow))
    }
}

/// A network, or one address. An IPv4 address in its IPv6 form (`::ffff:192.0.2.7`) is that IPv4 address, as it is
/// where clients are looked at; other networks of IPv6 hold no address of IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpNet);

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let network: Option<IpNet> =
            text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
        let network = network.ok_or(NetworkError::NoNetwork)?;
        let IpNet::V6(v6) = network else { return Ok(Self(network)) };
        let Some(v4) = v6.addr().to_ipv4_mapped() else { return Ok(Self(network)) };
        // By the letter it would hold all of IPv4, and a small network of it was meant.
        let length = v6.prefix_len();
        let of_v4 = length.checked_sub(96).and_then(|length| Ipv4Net::new(v4, length).ok());
        of_v4.map(|v4| Self(v4.into())).ok_or(NetworkError::ShortPrefix(v4, length))
    }
}

/// A text that is no network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkError {
    /// It is none at all.
    NoNetwork,
    /// It is an IPv4 address in its IPv6 form, with a prefix that holds more than the whole of IPv4.
    ShortPrefix(Ipv4Addr, u8),
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNetwork => f.write_str(
                "write a network or an address, such as `10.0.0.0/8`, `192.0.2.7` or `2001:db8::/32`",
            ),
            Self::ShortPrefix(address, length) => {
                let length = (*length).min(32);
                write!(
                    f,
                    "an IPv4 address in its IPv6 form has a prefix from /96 on: write `{address}/{length}`"
                )
            }
        }
    }
}

impl std::error::Error for NetworkError {}

/// The API keys of a file, which can be read again.
#[derive(Debug)]
pub(crate) struct KeysFile {
    path: PathBuf,
    keys: ArcSwap<Keys>,
}

impl KeysFile {
    pub(crate) fn read(path: PathBuf) -> Result<Self, KeysError> {
        let keys = ArcSwap::from_pointee(Keys::read(&path)?);
        Ok(Self { path, keys })
    }

    /// Reads the file again. On an error the keys that were in force stay.
    pub(crate) fn reload(&self) -> Result<(), KeysError> {
        self.keys.store(Arc::new(Keys::read(&self.path)?));
        Ok(())
    }
}

/// API keys, of which only hashes are known.
pub(crate) struct Keys {
    /// What the table is keyed with, new for each process: how long a look-up takes tells nothing then.
    tag: hmac::Key,
    names: HashMap<[u8; 8], ([u8; SHA256_OUTPUT_LEN], String)>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("count", &self.names.len()).finish_non_exhaustive()
    }
}

impl Keys {
    /// Reads lines of `NAME SHA256`, the hash of the key in hexadecimal digits. Empty lines and those that
    /// begin with `#` say nothing.
    pub(crate) fn read(path: &Path) -> Result<Self, KeysError> {
        let at = |fault| KeysError { path: path.to_path_buf(), fault };
        let text = fs::read_to_string(path).map_err(|error| at(KeysFault::Io(error)))?;
        Self::parse(&text).map_err(at)
    }

    fn parse(text: &str) -> Result<Self, KeysFault> {
        let mut random = [0; 32];
        aws_lc_rs::rand::fill(&mut random).map_err(|_| KeysFault::Random)?;
        let mut keys =
            Self { tag: hmac::Key::new(hmac::HMAC_SHA256, &random), names: HashMap::new() };
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let fault = KeysFault::Line { number: index + 1 };
            let mut words = line.split_whitespace();
            let (Some(name), Some(hash), None) = (words.next(), words.next(), words.next()) else {
                return Err(fault);
            };
            let Some(hash) = from_hex(hash) else { return Err(fault) };
            if keys.names.len() == KEYS_MAX {
                return Err(KeysFault::TooMany);
            }
            keys.names.insert(keys.place(&hash), (hash, name.to_owned()));
        }
        Ok(keys)
    }

    /// Whose key it is.
    fn name(&self, key: &[u8]) -> Option<&str> {
        let key = key.get(..key.len().min(KEY_BYTES_MAX + 1))?;
        if key.len() > KEY_BYTES_MAX {
            return None;
        }
        let hash = digest(&SHA256, key);
        let (known, name) = self.names.get(&self.place(hash.as_ref()))?;
        verify_slices_are_equal(known, hash.as_ref()).ok().map(|()| name.as_str())
    }

    fn place(&self, hash: &[u8]) -> [u8; 8] {
        let tag = hmac::sign(&self.tag, hash);
        let mut place = [0; 8];
        place.copy_from_slice(&tag.as_ref()[..8]);
        place
    }
}

fn from_hex(text: &str) -> Option<[u8; SHA256_OUTPUT_LEN]> {
    let digits = text.as_bytes();
    let mut hash = [0; SHA256_OUTPUT_LEN];
    if digits.len() != 2 * hash.len() || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(hash)
}

/// Why a file of API keys cannot be used.
#[derive(Debug)]
pub struct KeysError {
    path: PathBuf,
    fault: KeysFault,
}

#[derive(Debug)]
enum KeysFault {
    Io(io::Error),
    Line { number: usize },
    TooMany,
    Random,
}

impl fmt::Display for KeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match &self.fault {
            KeysFault::Io(error) => error.fmt(f),
            // The line is not shown: somebody may have written the key itself.
            KeysFault::Line { number } => write!(
                f,
                "line {number} is no name and hash: write `NAME HASH` with the hash of `printf %s KEY | sha256sum`"
            ),
            KeysFault::TooMany => write!(f, "there are more than {KEYS_MAX} keys"),
            KeysFault::Random => f.write_str("the system gives no random numbers"),
        }
    }
}

impl std::error::Error for KeysError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hash of `secret`.
    const HASH: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    fn keys() -> Keys {
        Keys::parse(&format!("# keys\n\nann {HASH}\n")).unwrap()
    }

    #[test]
    fn a_key_is_known_by_its_hash() {
        let keys = keys();
        assert_eq!(keys.name(b"secret"), Some("ann"));
        for wrong in [&b""[..], b"Secret", b"secret ", HASH.as_bytes(), &[b'x'; KEY_BYTES_MAX + 1]]
        {
            assert_eq!(keys.name(wrong), None);
        }
    }

    #[test]
    fn a_line_that_is_no_hash_is_refused_without_showing_it() {
        for line in ["ann secret", "ann", &format!("{HASH}0"), &format!("ann {HASH} x")] {
            let error = KeysError { path: "keys".into(), fault: Keys::parse(line).unwrap_err() };
            let text = error.to_string();
            assert!(text.starts_with("keys: line 1 ") && !text.contains("secret"), "{text}");
        }
    }

    #[test]
    fn two_keys_are_nobodys() {
        let auth = Auth {
            is_required: true,
            header: HeaderName::from_static("x-api-key"),
            keys: Some(KeysFile { path: PathBuf::new(), keys: ArcSwap::from_pointee(keys()) }),
        };
        let mut headers = HeaderMap::new();
        let looked = |headers: &HeaderMap| {
            let mut attributes = Attributes::new();
            let sender = auth.look(headers, &mut attributes);
            let word = String::from_utf8(attributes.value("auth").unwrap().to_vec()).unwrap();
            (word, sender.is_authenticated)
        };
        assert_eq!(looked(&headers), ("none".into(), false));
        headers.append("x-api-key", "secret".parse().unwrap());
        assert_eq!(looked(&headers), ("key".into(), true));
        headers.append("x-api-key", "secret".parse().unwrap());
        assert_eq!(looked(&headers), ("invalid".into(), false));
    }

    #[test]
    fn lists_of_addresses_are_kept() {
        let lists = AddressLists {
            allow: vec!["10.0.0.0/8".parse().unwrap()],
            deny: vec!["10.9.0.0/16".parse().unwrap()],
        };
        let admits = |text: &str| lists.admit(Some(text.parse().unwrap()));
        assert!(admits("10.1.2.3") && admits("::ffff:10.1.2.3"));
        assert!(!admits("10.9.1.1") && !admits("192.0.2.1") && !lists.admit(None));
        assert!(AddressLists::default().admit(None));
    }
}
