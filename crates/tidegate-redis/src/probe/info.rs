//! What a server says of itself: lines of `name:value`.

use redis::RedisError;
use redis::aio::MultiplexedConnection;

use super::{Role, ServerKind};
use crate::link::{ask, text};

pub(super) struct Info(String);

impl Info {
    pub(super) async fn ask(connection: &mut MultiplexedConnection) -> Result<Self, RedisError> {
        let answer = ask(connection, &redis::cmd("INFO")).await?;
        Ok(Self(text(&answer).unwrap_or_default().to_owned()))
    }

    /// A value by its name; empty where there is none.
    pub(super) fn text(&self, name: &str) -> &str {
        let mut pairs = self.0.lines().filter_map(|line| line.split_once(':'));
        pairs.find(|(known, _)| *known == name).map_or("", |(_, value)| value.trim_end())
    }

    /// A number by its name; 0 where there is none.
    pub(super) fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }

    /// Whose program it is, and its version. Some say that they are Redis, and what they are besides.
    pub(super) fn program(&self) -> (ServerKind, String) {
        let valkey = self.text("valkey_version");
        let redis = self.text("redis_version");
        if !valkey.is_empty() {
            (ServerKind::Valkey, valkey.to_owned())
        } else if redis.is_empty() || self.0.contains("dragonfly_version:") {
            (ServerKind::Other, redis.to_owned())
        } else {
            (ServerKind::Redis, redis.to_owned())
        }
    }

    /// How it is run. Valkey has another name for it.
    pub(super) fn mode(&self) -> &str {
        let mode = self.text("server_mode");
        if mode.is_empty() { self.text("redis_mode") } else { mode }
    }

    pub(super) fn role(&self) -> Role {
        match self.text("role") {
            "master" | "primary" => Role::Primary,
            "slave" | "replica" => Role::Replica,
            _ => Role::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_who_it_says_it_is_besides_redis() {
        let info = |text: &str| Info(text.to_owned());
        let valkey =
            info("# Server\r\nredis_version:7.2.4\r\nvalkey_version:9.1.2\r\nrole:master\r\n");
        assert_eq!(valkey.program(), (ServerKind::Valkey, "9.1.2".to_owned()));
        assert_eq!(valkey.role(), Role::Primary);
        let redis = info("redis_version:7.0.15\r\nrole:slave\r\nmaxmemory:12\r\n");
        assert_eq!(redis.program(), (ServerKind::Redis, "7.0.15".to_owned()));
        assert_eq!((redis.role(), redis.number("maxmemory")), (Role::Replica, 12));
        let other = info("redis_version:7.4.0\r\ndragonfly_version:df-v1\r\n");
        assert_eq!(other.program().0, ServerKind::Other);
        assert_eq!((info("").program().0, info("").role()), (ServerKind::Other, Role::Unknown));
    }
}
