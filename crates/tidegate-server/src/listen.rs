//! Sockets: where the daemon listens, and who is at the other end.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `bind` | an address to a socket that listens |
//! | `inherited` | sockets that a service manager has opened |
//! | `accept` | connections from a socket, within a bound |
//! | `bell` | what their tasks wait for beside their work |

pub mod accept;
pub mod bell;
pub mod bind;
pub mod inherited;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::str::FromStr;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

pub use bind::BindError;
pub use inherited::{Inherited, InheritedError};

/// What an address is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// The HTTP endpoints.
    Http,
    /// The gRPC services.
    Grpc,
    /// The protocol of Redis.
    Resp,
    /// What an operator sees and switches.
    Admin,
    /// What a gateway forwards.
    Gateway,
}

impl Service {
    /// Those of a daemon, in the order in which a service manager hands sockets over without names.
    pub const ALL: [Self; 4] = [Self::Http, Self::Grpc, Self::Resp, Self::Admin];

    /// Its name in settings and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Grpc => "grpc",
            Self::Resp => "resp",
            Self::Admin => "admin",
            Self::Gateway => "gateway",
        }
    }

    /// The flag that sets its address.
    pub const fn flag(self) -> &'static str {
        match self {
            Self::Http => "--http",
            Self::Grpc => "--grpc",
            Self::Resp => "--resp",
            Self::Admin => "--admin",
            Self::Gateway => "--listen",
        }
    }
}

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP port; 0 picks a free one.
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
    /// Nowhere.
    Off,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        match text.strip_prefix("unix:") {
            _ if text == "off" => Ok(Self::Off),
            Some("") => Err(AddressError),
            Some(path) => Ok(Self::Unix(path.into())),
            // A port alone, as `:8080`, is on the loopback address: nobody opens a port to the world
            // by leaving something out.
            None => match text.strip_prefix(':') {
                Some(port) => port.parse().map(|port| SocketAddr::from(([127, 0, 0, 1], port))),
                None => return text.parse().map(Self::Tcp).map_err(|_| AddressError),
            }
            .map(Self::Tcp)
            .map_err(|_| AddressError),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Off => f.write_str("off"),
        }
    }
}

/// The text names no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressError;

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("write an address and a port (`127.0.0.1:8080`, `[::1]:8080`, `:8080`), `unix:PATH`, or `off`")
    }
}

impl std::error::Error for AddressError {}

/// A socket that listens.
#[derive(Debug)]
pub enum Listener {
    /// On a TCP port.
    Tcp(TcpListener),
    /// In the file system.
    Unix(UnixListener),
}

/// A connection.
#[derive(Debug)]
pub enum Stream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a socket in the file system.
    Unix(UnixStream),
}

/// The address at the other end; `None` for a socket in the file system.
pub type Peer = Option<IpAddr>;

impl Listener {
    /// Where it really listens: with the port that was picked where 0 was asked for.
    pub fn address(&self) -> io::Result<Address> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Address::Tcp),
            Self::Unix(listener) => {
                let address = listener.local_addr()?;
                Ok(Address::Unix(address.as_pathname().map_or_else(PathBuf::new, Into::into)))
            }
        }
    }

    /// The next connection. Small answers leave at once: nothing waits for more to send.
    pub async fn accept(&self) -> io::Result<(Stream, Peer)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // It fails where the client is gone already, which reading will tell.
                let _ = stream.set_nodelay(true);
                Ok((Stream::Tcp(stream), Some(peer.ip())))
            }
            Self::Unix(listener) => Ok((Stream::Unix(listener.accept().await?.0), None)),
        }
    }
}

impl AsyncRead for Stream {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    #[inline]
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(context, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Self::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
