//! The head of a request, whatever its body is made of, and who is at the other end of its connection.

use std::net::{IpAddr, SocketAddr};

use http::{Extensions, HeaderMap, HeaderValue, Method, Request, Uri};

use tidegate::rules::Foreseen;

use crate::grpc;

/// What is known of a request before its body is read.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Head<'r> {
    /// The method.
    pub method: &'r Method,
    /// The target as the client sent it, also where a router has cut something off.
    pub uri: &'r Uri,
    /// The headers.
    pub headers: &'r HeaderMap,
    /// What servers and other layers noted.
    pub extensions: &'r Extensions,
    /// Who is at the other end, where the [connection](crate::RateLimit::of_peer) says it. What is noted elsewhere is in
    /// the extensions.
    pub peer: Option<IpAddr>,
    /// The same as the connection has it.
    pub(crate) other_end: Option<&'r SocketAddr>,
}

impl<'r> Head<'r> {
    pub(crate) fn of<B>(request: &'r Request<B>, other_end: Option<&'r SocketAddr>) -> Self {
        let extensions = request.extensions();
        Self {
            method: request.method(),
            uri: original_uri(extensions).unwrap_or_else(|| request.uri()),
            headers: request.headers(),
            extensions,
            peer: other_end.map(SocketAddr::ip),
            other_end,
        }
    }
}

/// A connection, for the service that serves it and no other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    /// Who is at the other end.
    pub(crate) peer: SocketAddr,
    /// What follows from each of its requests, where rules read no more than that of them.
    pub(crate) foreseen: Option<Foreseen>,
}

/// The address of the other end of a connection, for servers that note it themselves: one layer puts it
/// into the extensions of each request, and this one finds it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer(pub SocketAddr);

/// Whether somebody noted a [`Peer`] in a request.
#[inline]
pub(crate) fn names_peer(extensions: &Extensions) -> bool {
    extensions.get::<Peer>().is_some()
}

/// Where the address is found unless the layer is told otherwise. Who notes a `Peer` in a request knows it better than
/// its connection.
///
/// It stays where it is: an address that is moved has parts of several sizes, and who reads it right after waits until they
/// are written.
#[inline]
pub(crate) fn noted_peer<'r>(
    known: Option<&'r SocketAddr>,
    extensions: &'r Extensions,
) -> Option<&'r SocketAddr> {
    if let Some(Peer(address)) = extensions.get() {
        return Some(address);
    }
    if known.is_some() {
        return known;
    }
    #[cfg(feature = "axum")]
    if let Some(axum::extract::ConnectInfo(address)) =
        extensions.get::<axum::extract::ConnectInfo<SocketAddr>>()
    {
        return Some(address);
    }
    None
}

/// The same where it is nowhere to be pointed at, as tonic has it.
#[cfg(feature = "tonic")]
pub(crate) fn made_peer(extensions: &Extensions) -> Option<IpAddr> {
    let info = extensions.get::<tonic::transport::server::TcpConnectInfo>()?;
    info.remote_addr().map(|address| address.ip())
}

#[cfg(not(feature = "tonic"))]
pub(crate) fn made_peer(_: &Extensions) -> Option<IpAddr> {
    None
}

/// Routers cut the prefix of what they nest off the path, and a rule for the whole path would not see
/// its requests any more.
#[cfg(feature = "axum")]
fn original_uri(extensions: &Extensions) -> Option<&Uri> {
    extensions.get::<axum::extract::OriginalUri>().map(|axum::extract::OriginalUri(uri)| uri)
}

#[cfg(not(feature = "axum"))]
fn original_uri(_: &Extensions) -> Option<&Uri> {
    None
}

/// The language that a refusal is written in.
#[derive(Clone, Debug)]
pub(crate) enum Tongue {
    Http,
    /// With the content type that the client speaks.
    Grpc(HeaderValue),
}

impl Tongue {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        grpc::content_type(headers).map_or(Self::Http, |value| Self::Grpc(value.clone()))
    }
}
