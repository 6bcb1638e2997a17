//! Why a store could not be opened.

use std::error::Error;
use std::sync::Arc;
use std::{fmt, io};

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::config::UrlError;

/// Why a store could not be opened. Nothing was changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL is none.
    Address(UrlError),
    /// The prefix of keys is too long, or holds braces or characters that are not printed.
    Prefix,
    /// A file that the settings name cannot be read: that of the password, or of a certificate.
    File(io::Error),
    /// Nobody answers at that address.
    Unreachable(RedisError),
    /// Somebody accepts connections there and does not answer in time. A server without TLS does so where
    /// the URL wants TLS.
    Silent,
    /// The server's certificate is not one to trust, ours is none, or the server speaks no TLS. A server
    /// that wants a certificate and gets none can just close the connection.
    Certificate(RedisError),
    /// Who answers there does not speak the protocol of Redis, or wants TLS.
    NotRedis(RedisError),
    /// The server does not accept the user name or the password, needs one, or does not let this user
    /// do what is needed.
    Credentials(RedisError),
    /// There is no database of that number.
    Database(RedisError),
    /// The server is still reading its data, or its cluster is down.
    NotReady(RedisError),
    /// The server is a replica, which may not write.
    ReadOnly,
    /// The server is a Sentinel, and the URL does not say so.
    IsSentinel,
    /// The server is no Sentinel, and the URL says so.
    IsNoSentinel,
    /// The server is part of a cluster, and the URL does not say so.
    IsCluster,
    /// The server is not part of a cluster, and the URL says so.
    IsNoCluster,
    /// The Sentinels do not know a service of that name, or none that has a primary now.
    Service,
    /// The server answers, and does not keep scripts or do what else is needed.
    Unsuitable(RedisError),
}

impl ConnectError {
    /// What an error means that came in answer to a command.
    pub(crate) fn of(error: RedisError) -> Self {
        match error.kind() {
            ErrorKind::AuthenticationFailed | ErrorKind::Server(ServerErrorKind::NoPerm) => {
                Self::Credentials(error)
            }
            ErrorKind::Server(
                ServerErrorKind::BusyLoading
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ClusterDown,
            ) => Self::NotReady(error),
            ErrorKind::Server(ServerErrorKind::ReadOnly) => Self::ReadOnly,
            ErrorKind::Parse => Self::NotRedis(error),
            _ if matches!(error.code(), Some("NOAUTH" | "WRONGPASS")) => Self::Credentials(error),
            _ if error.is_timeout() => Self::Silent,
            _ if is_tls(&error) => Self::Certificate(error),
            _ if error.is_io_error() => Self::Unreachable(error),
            _ => Self::Unsuitable(error),
        }
    }
}

/// Whether it was TLS that failed, and not the network.
fn is_tls(error: &RedisError) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(found) = cause {
        if found.is::<rustls::Error>() || found.is::<rustls::pki_types::InvalidDnsNameError>() {
            return true;
        }
        // An I/O error does not give what it wraps as its source, but what that has for one.
        let wrapped = found.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let shared = found.downcast_ref::<Arc<dyn Error + Send + Sync>>();
        cause = match (wrapped, shared) {
            (Some(wrapped), _) => Some(wrapped),
            (None, Some(shared)) => Some(&**shared),
            (None, None) => found.source(),
        };
    }
    false
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Address(_) => "the store's URL is not valid",
            Self::Prefix => "the prefix of the store's keys is too long or holds braces",
            Self::File(_) => "a file of the store's settings cannot be read",
            Self::Unreachable(_) => "the store cannot be reached",
            Self::Silent => "the store accepts connections and does not answer",
            Self::Certificate(_) => {
                "the store and Tidegate do not agree on TLS or on a certificate"
            }
            Self::NotRedis(_) => "who answers there is not a Redis or Valkey server, or wants TLS",
            Self::Credentials(_) => "the store does not accept the user name or password",
            Self::Database(_) => "the store has no database of that number",
            Self::NotReady(_) => "the store is not ready yet",
            Self::ReadOnly => "the store is a replica, which may not write",
            Self::IsSentinel => "the store is a Sentinel; its URL begins with redis-sentinel://",
            Self::IsNoSentinel => "who answers there is no Sentinel; a server's URL is redis://",
            Self::IsCluster => "the store is a cluster; its URL begins with redis-cluster://",
            Self::IsNoCluster => "the store is not a cluster; its URL begins with redis://",
            Self::Service => "the Sentinels know no primary of that service",
            Self::Unsuitable(_) => "the store answers, and cannot run the script",
        })
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Address(error) => Some(error),
            Self::File(error) => Some(error),
            Self::Unreachable(error)
            | Self::Certificate(error)
            | Self::NotRedis(error)
            | Self::Credentials(error)
            | Self::Database(error)
            | Self::NotReady(error)
            | Self::Unsuitable(error) => Some(error),
            Self::Prefix
            | Self::Silent
            | Self::ReadOnly
            | Self::IsSentinel
            | Self::IsNoSentinel
            | Self::IsCluster
            | Self::IsNoCluster
            | Self::Service => None,
        }
    }
}
