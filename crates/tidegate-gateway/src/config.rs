//! What a gateway is told before it starts: the settings of the daemon that decides for it, and its own.

pub mod layer;
mod reader;
#[cfg(test)]
mod tests;
pub mod words;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use tidegate_server::Settings;
use tidegate_server::listen::{Address, BindError};

use crate::access_log::AccessLogSettings;
use crate::auth::KeysError;
use crate::front::FrontBounds;
use crate::route::RouteSettings;
use crate::tls::{CertificateFiles, TlsError};

pub use layer::{GatewayLayer, RouteLayer};

/// Everything that a gateway is told.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// The daemon that decides. Of its addresses only the operator's is used.
    pub daemon: Settings,
    /// Where clients connect.
    pub listen: Vec<Address>,
    /// The certificates that are shown to them; none is no TLS.
    pub certificates: Vec<CertificateFiles>,
    /// Where requests go.
    pub routes: Vec<RouteSettings>,
    /// How clients are served.
    pub front: FrontBounds,
    /// Whether requests are written down, and where.
    pub access_log: Option<AccessLogSettings>,
}

/// Why a gateway does not start. Nothing runs.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The daemon that decides does not start.
    Daemon(tidegate_server::serve::StartError),
    /// An address cannot be had.
    Bind(BindError),
    /// There is no address to listen at.
    Nowhere,
    /// A socket of the service manager cannot be used.
    Inherited {
        /// What the system says.
        error: io::Error,
    },
    /// Certificates cannot be used.
    Tls(TlsError),
    /// Who vouches for upstreams cannot be found out.
    UpstreamTls(TlsError),
    /// A file of API keys cannot be used.
    Keys(KeysError),
    /// A folder cannot be served.
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The access log cannot be opened.
    AccessLog {
        /// Which file; `None` is standard output.
        path: Option<PathBuf>,
        /// Why.
        error: io::Error,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Daemon(error) => error.fmt(f),
            Self::Bind(error) => error.fmt(f),
            Self::Nowhere => {
                f.write_str("there is nowhere to listen: name an address with --listen")
            }
            Self::Inherited { error } => {
                write!(f, "the socket of the service manager cannot be used: {error}")
            }
            Self::Tls(error) => {
                write!(f, "TLS: {error}: look at --tls-cert and --tls-key, or `tls` in the file")
            }
            Self::UpstreamTls(error) => {
                write!(f, "TLS to upstreams: {error}: look at --upstream-ca, or `upstream_ca`")
            }
            Self::Keys(error) => write!(f, "API keys: `keys_file`: {error}"),
            Self::Folder { path, error } => {
                write!(f, "`folder`: the files in {} cannot be served: {error}", path.display())
            }
            Self::AccessLog { path, error } => {
                let path = path.as_deref().unwrap_or(Path::new("-")).display();
                write!(f, "--access-log: {path} cannot be opened: {error}")
            }
        }
    }
}

impl std::error::Error for StartError {}
