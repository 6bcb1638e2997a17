//! What a store is told: where the servers are, and how to behave. Checked here, not in use.

mod url;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use url::UrlError;
pub(crate) use url::address as parse_address;

use crate::ConnectError;

/// The settings of a [`RedisStore`](crate::RedisStore).
#[derive(Clone, Debug)]
pub struct RedisConfig {
    pub(crate) deployment: Deployment,
    pub(crate) access: Access,
    pub(crate) prefix: String,
    pub(crate) deadline: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) time: TimeSource,
    pub(crate) foreign_state: ForeignState,
}

/// Which servers there are, as far as the settings know them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deployment {
    Single(Address),
    /// The Sentinels know which server has the name of the service now.
    Sentinel {
        sentinels: Vec<Address>,
        service: String,
    },
    /// Any of these knows the others.
    Cluster {
        seeds: Vec<Address>,
    },
}

/// Where one server is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Address {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Who we are there, and how that is kept secret.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Password>,
    pub(crate) sentinel_user: Option<String>,
    pub(crate) sentinel_password: Option<Password>,
    pub(crate) database: u32,
    pub(crate) tls: Option<Tls>,
}

/// A password, or the file that holds it. The file is read again for every connection.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Password {
    Text(String),
    File(PathBuf),
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("(hidden)"),
            Self::File(path) => write!(f, "(in {})", path.display()),
        }
    }
}

/// Files for TLS, in PEM format. They are read again for every connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tls {
    /// Who vouches for servers, in place of those whom this machine trusts.
    pub(crate) ca: Option<PathBuf>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

/// Whose clock decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeSource {
    /// The server's, so that the clocks of nodes do not matter.
    #[default]
    Server,
    /// The `now` of each request, for tests that move time themselves. States then stay for a day
    /// beyond their time, since the server's clock does not know when that is.
    Request,
}

/// What to do with a state that somebody else wrote: one of another type, or of bytes that make no
/// sense.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForeignState {
    /// The key starts anew, with all of its quota, and what was there is written over.
    #[default]
    Reset,
    /// Requests for that key are answered with
    /// [`StoreError::ForeignState`](tidegate_store::StoreError::ForeignState), and what is there stays.
    Refuse,
}

impl RedisConfig {
    /// The longest prefix: it is part of every key.
    pub const PREFIX_BYTES_MAX: usize = 32;

    /// One server, or several with Sentinels or as a cluster, by URL:
    ///
    /// ```text
    /// redis           ://[user[:password]@]host[:port][/database][?options]
    /// redis+unix      :///path[?db=number&user=name&pass=password]
    /// redis-sentinel  ://[user[:password]@]host[:port],host[:port]…/service[/database][?options]
    /// redis-cluster   ://[user[:password]@]host[:port],host[:port]…[?options]
    /// ```
    ///
    /// `rediss`, `rediss-sentinel` and `rediss-cluster` are the same with TLS, and `valkey` can stand
    /// for `redis`. Options are names and values with `&` between them:
    ///
    /// | option | what it is |
    /// | --- | --- |
    /// | `password-file` | a file that holds the password |
    /// | `ca` | a file with the certificates of who vouches for servers; without it, whom this machine trusts |
    /// | `cert`, `key` | files with a certificate of our own and its key |
    /// | `sentinel-user`, `sentinel-password`, `sentinel-password-file` | for the Sentinels, where they want any |
    ///
    /// All files are read again for every connection, so that what is in them can be replaced.
    pub fn new(url: &str) -> Result<Self, ConnectError> {
        let (deployment, access) = url::parse(url).map_err(ConnectError::Address)?;
        Ok(Self {
            deployment,
            access,
            prefix: String::from("t"),
            deadline: Duration::from_millis(10),
            connect_timeout: Duration::from_secs(1),
            time: TimeSource::default(),
            foreign_state: ForeignState::default(),
        })
    }

    /// A file that holds the password, in place of that of the URL. It is read again for every
    /// connection, and the end of its last line is no part of the password.
    #[must_use]
    pub fn password_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.access.password = Some(Password::File(file.into()));
        self
    }

    /// A password, in place of that of the URL.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.access.password = Some(Password::Text(password.to_owned()));
        self
    }

    /// A file with the certificates of who vouches for servers, in place of that of the URL. It means
    /// something for URLs with TLS only.
    #[must_use]
    pub fn ca(mut self, file: impl Into<PathBuf>) -> Self {
        if let Some(tls) = &mut self.access.tls {
            tls.ca = Some(file.into());
        }
        self
    }

    /// Files with a certificate of our own and its key, in place of those of the URL. They mean something
    /// for URLs with TLS only.
    #[must_use]
    pub fn certificate(mut self, file: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        if let Some(tls) = &mut self.access.tls {
            (tls.certificate, tls.key) = (Some(file.into()), Some(key.into()));
        }
        self
    }

    /// What every key begins with; `t` unless said. At most [`RedisConfig::PREFIX_BYTES_MAX`] printed
    /// ASCII characters, and no braces, which would move the keys to another slot.
    pub fn prefix(mut self, prefix: &str) -> Result<Self, ConnectError> {
        let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}');
        if prefix.len() > Self::PREFIX_BYTES_MAX || !prefix.bytes().all(plain) {
            return Err(ConnectError::Prefix);
        }
        prefix.clone_into(&mut self.prefix);
        Ok(self)
    }

    /// How long a call may take, from first to last; 10 ms unless said.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// How long one attempt to connect may take; a second unless said. It goes on beside the calls,
    /// which keep their own deadline.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Whose clock decides; the server's unless said.
    #[must_use]
    pub fn time(mut self, time: TimeSource) -> Self {
        self.time = time;
        self
    }

    /// What to do with a state that somebody else wrote; start anew unless said.
    #[must_use]
    pub fn foreign_state(mut self, policy: ForeignState) -> Self {
        self.foreign_state = policy;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_shows_in_debug_output() {
        let url = "redis-sentinel://me:secret@a/limits?sentinel-password=secret";
        let shown = format!("{:?}", RedisConfig::new(url).unwrap());
        assert!(shown.contains("limits") && !shown.contains("secret"), "{shown}");
    }

    #[test]
    fn a_prefix_cannot_change_the_slot() {
        let prefix = |prefix: &str| RedisConfig::new("redis://127.0.0.1:1").unwrap().prefix(prefix);
        assert_eq!(prefix("api:").unwrap().prefix, "api:");
        for wrong in ["a{1}", "a b", "\n", &"x".repeat(33)] {
            assert!(matches!(prefix(wrong), Err(ConnectError::Prefix)), "{wrong}");
        }
    }
}
