//! What a store is told: where the server is, and how to behave. Checked here, not in use.

use std::time::Duration;

use redis::{ConnectionInfo, IntoConnectionInfo};

use crate::ConnectError;

/// The settings of a [`RedisStore`](crate::RedisStore).
#[derive(Clone, Debug)]
pub struct RedisConfig {
    pub(crate) address: ConnectionInfo,
    pub(crate) prefix: String,
    pub(crate) deadline: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) time: TimeSource,
    pub(crate) foreign_state: ForeignState,
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

    /// A server, by its URL: `redis://[user[:password]@]host[:port][/database]`, or
    /// `redis+unix:///path` for a socket.
    pub fn new(url: &str) -> Result<Self, ConnectError> {
        let address = url.into_connection_info().map_err(ConnectError::Address)?;
        // Without it an answer can wait for 40 ms for the next packet.
        let tcp = address.tcp_settings().clone().set_nodelay(true);
        Ok(Self {
            address: address.set_tcp_settings(tcp),
            prefix: String::from("t"),
            deadline: Duration::from_millis(10),
            connect_timeout: Duration::from_secs(1),
            time: TimeSource::default(),
            foreign_state: ForeignState::default(),
        })
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
    fn a_url_that_is_none_is_refused() {
        for url in ["", "redis", "http://127.0.0.1", "redis://[::1", "redis://host:port"] {
            assert!(matches!(RedisConfig::new(url), Err(ConnectError::Address(_))), "{url}");
        }
    }

    #[test]
    fn packets_are_sent_at_once() {
        let config = RedisConfig::new("redis://127.0.0.1:1").unwrap();
        assert!(config.address.tcp_settings().nodelay());
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
