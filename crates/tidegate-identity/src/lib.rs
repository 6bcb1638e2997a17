//! A request to the attributes that rules look at. No files, no network, no clock: whoever calls it has
//! read the keys and databases, and knows what time it is.
//!
//! The middleware, the gateway and the endpoint that proxies ask make attributes here and nowhere
//! else, so one client is counted as one, whichever way its requests come.
//!
//! ```
//! use http::{HeaderMap, HeaderValue};
//! use tidegate_core::Timestamp;
//! use tidegate_identity::{Attributes, Extract, Identity, IdentityConfig, RequestParts, Source, Trust};
//!
//! let mut config = IdentityConfig::new(*b"sixteen  secrets");
//! config.proxies.trust = Trust::Networks(vec!["10.0.0.0/8".parse()?]);
//! config.api_key = vec![Source::header("x-api-key")?];
//! config.extract = vec![Extract::named("tenant", Source::header("x-tenant")?)];
//! let identity = Identity::new(config)?;
//!
//! let mut headers = HeaderMap::new();
//! headers.insert("host", HeaderValue::from_static("API.example.com:443"));
//! // The client wrote the first address, and our proxy the second.
//! headers.insert("x-forwarded-for", HeaderValue::from_static("198.51.100.1, 2001:db8::7"));
//! headers.insert("x-tenant", HeaderValue::from_static("acme"));
//!
//! let mut attributes = Attributes::new();
//! let proxy = Some("10.0.0.9".parse()?);
//! let request = RequestParts::new(proxy, b"GET", b"/orders?page=2", &headers);
//! identity.attributes(&request, Timestamp::from_secs(1_700_000_000), &mut attributes);
//!
//! assert_eq!(attributes.value("ip"), Some(&b"2001:db8::/64"[..]));
//! assert_eq!(attributes.value("host"), Some(&b"api.example.com"[..]));
//! assert_eq!(attributes.value("path"), Some(&b"/orders"[..]));
//! assert_eq!(attributes.value("tenant"), Some(&b"acme"[..]));
//! assert_eq!(attributes.value("api_key"), None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The map
//!
//! | file | what it holds |
//! | --- | --- |
//! | `identity` | [`Identity`]: settings applied to a request |
//! | [`config`] | [`IdentityConfig`]: the settings |
//! | [`attributes`] | [`Attributes`]: the buffer they end in, and what was odd about the request |
//! | [`request`] | [`RequestParts`]: what is looked at of a request |
//! | [`forward_auth`](mod@forward_auth) | a request that a proxy describes in headers |
//! | [`client`] | who the client is, past trusted proxies |
//! | `trust` | which networks may be trusted |
//! | `chain`, `node` | the headers in which proxies note addresses |
//! | [`address`] | an address as an attribute |
//! | [`token`] | JSON web tokens: keys, checks, claims |
//! | [`source`] | headers, cookies, query parameters, bearer tokens |
//! | [`host`] | one spelling of a host |
//! | [`country`] | where an address is |
//! | [`networks`] | a table of networks; the longest prefix wins |
//! | `fingerprint` | keyed hashes for API keys and long values |
//! | [`error`] | what is wrong with a setting |
#![forbid(unsafe_code)]

pub mod address;
pub mod attributes;
mod chain;
pub mod client;
pub mod config;
pub mod country;
pub mod error;
mod fingerprint;
pub mod forward_auth;
pub mod host;
mod identity;
pub mod networks;
mod node;
pub mod request;
pub mod source;
pub mod token;
mod trust;

pub use address::AddressConfig;
pub use attributes::{Attributes, Doubts, Token, TokenFault};
pub use chain::ForwardedHeader;
pub use client::{Proxies, Trust};
pub use config::IdentityConfig;
pub use country::CountryConfig;
pub use error::{Fault, IdentityError};
pub use forward_auth::{Dialect, ForwardAuthError, forward_auth};
pub use identity::Identity;
pub use request::{Host, RequestParts};
pub use source::{Extract, Source};
pub use token::{Claim, TokenConfig, TokenKey};
