//! One new connection to an upstream: a name looked up, a socket, and TLS where the upstream wants it.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;

use http::uri::{Authority, Scheme, Uri};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

/// Where an upstream is: `http://HOST:PORT`, `https://HOST`, or `h2c://HOST:PORT` for HTTP/2 without TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamUrl {
    pub(crate) protocol: Protocol,
    pub(crate) authority: Authority,
    host: String,
    port: u16,
}

/// What an upstream speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.1.
    One,
    /// HTTP/2 without TLS, known beforehand.
    Two,
    /// TLS, in which the version is agreed on.
    Tls,
}

impl Protocol {
    pub(crate) fn scheme(self) -> Scheme {
        if self == Self::Tls { Scheme::HTTPS } else { Scheme::HTTP }
    }
}

impl FromStr for UpstreamUrl {
    type Err = UpstreamUrlError;

    fn from_str(text: &str) -> Result<Self, UpstreamUrlError> {
        let uri: Uri = text.parse().map_err(|_| UpstreamUrlError)?;
        let (protocol, usual) = match uri.scheme_str() {
            Some("http") => (Protocol::One, 80),
            Some("h2c") => (Protocol::Two, 80),
            Some("https") => (Protocol::Tls, 443),
            _ => return Err(UpstreamUrlError),
        };
        let authority = uri.authority().ok_or(UpstreamUrlError)?.clone();
        let has_more = !matches!(uri.path(), "" | "/") || uri.query().is_some();
        if has_more || authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(UpstreamUrlError);
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        // What is no port of TCP is none to the library, and then it would be the usual one.
        let after_host = authority.as_str().strip_prefix(authority.host());
        let port = match after_host.and_then(|after| after.strip_prefix(':')) {
            Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or(UpstreamUrlError)?,
            None => usual,
        };
        Ok(Self { protocol, authority, host, port })
    }
}

impl fmt::Display for UpstreamUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.protocol {
            Protocol::One => "http",
            Protocol::Two => "h2c",
            Protocol::Tls => "https",
        };
        write!(f, "{scheme}://{}", self.authority)
    }
}

/// The text names no upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamUrlError;

impl fmt::Display for UpstreamUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("write where the service is, without a path, and with a port up to 65535: `http://127.0.0.1:3000`, `https://api.internal`, or `h2c://127.0.0.1:50051` for gRPC")
    }
}

impl std::error::Error for UpstreamUrlError {}

/// A connection to an upstream.
pub(crate) type Wire = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// Makes connections to one upstream.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    pub(crate) url: UpstreamUrl,
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

impl Connector {
    /// Connects, and says whether HTTP/2 is spoken. A connection that is to change its protocol cannot be
    /// one of HTTP/2. The caller bounds the time it takes.
    pub(crate) async fn connect(&self, is_upgrade: bool) -> io::Result<(Wire, bool)> {
        let stream = self.connect_plain().await?;
        let Some(config) = &self.tls else {
            return Ok((Either::Left(stream), self.url.protocol == Protocol::Two));
        };
        let name = ServerName::try_from(self.url.host.clone()).map_err(io::Error::other)?;
        let connector = TlsConnector::from(Arc::clone(config));
        let stream = if is_upgrade {
            connector.with_alpn(vec![b"http/1.1".to_vec()]).connect(name, stream).await?
        } else {
            connector.connect(name, stream).await?
        };
        let is_two = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok((Either::Right(Box::new(stream)), is_two))
    }

    /// Connects without TLS.
    pub(crate) async fn connect_plain(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect((self.url.host.as_str(), self.url.port)).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_a_scheme_and_a_host() {
        for text in ["http://127.0.0.1:3000", "https://api.internal", "h2c://[::1]:50051"] {
            assert_eq!(text.parse::<UpstreamUrl>().unwrap().to_string(), text);
        }
        let url: UpstreamUrl = "https://[::1]/".parse().unwrap();
        assert_eq!((url.host.as_str(), url.port), ("::1", 443));
    }

    #[test]
    fn what_an_upstream_cannot_be_is_refused() {
        for text in
            ["", "127.0.0.1:3000", "ftp://a", "http://", "http://a/b", "http://a?b", "http://u@a"]
        {
            assert_eq!(text.parse::<UpstreamUrl>(), Err(UpstreamUrlError), "{text}");
        }
        for port in ["65536", "99999", "0", ""] {
            let text = format!("http://[::1]:{port}");
            assert_eq!(text.parse::<UpstreamUrl>(), Err(UpstreamUrlError), "{text}");
        }
    }
}
