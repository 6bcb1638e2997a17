//! What is sent to a server, written down so that two calls can be told to be the same: those that are
//! can be decided together.

use std::hash::{BuildHasher, Hash, Hasher};

use redis::Cmd;
use tidegate_core::{Key, Timestamp};
use tidegate_store::Request;

use crate::config::{RedisConfig, TimeSource};
use crate::key::{member, write_name};
use crate::lease::book;
use crate::protocol::{self, Places};

/// A call of the script, or a command of the server itself.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// How many of the arguments are keys, where it is the script that is called.
    script_keys: Option<usize>,
    /// Whether the server is told first that the keys are moving there.
    asking: bool,
    /// The arguments, each behind its length.
    arguments: Vec<u8>,
    /// A hash of the arguments, once they are complete: several tables are asked for a call.
    digest: u64,
}

impl PartialEq for Call {
    fn eq(&self, other: &Self) -> bool {
        self.script_keys == other.script_keys
            && self.asking == other.asking
            && self.arguments == other.arguments
    }
}

impl Eq for Call {}

impl Hash for Call {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.digest);
    }
}

/// Rare enough to be sent whole.
const FORGET: &str = include_str!("forget.lua");

/// How long the length of an argument is.
const LENGTH_BYTES: usize = 4;

impl Call {
    /// The call of the script that decides a request, when the server's time is `around`.
    pub(super) fn decision(config: &RedisConfig, request: &Request<'_>, around: Timestamp) -> Self {
        let mut places = Places::default();
        let mut call = Self::script(0);
        for charge in request.charges {
            let before = places.count();
            places.of(charge.key);
            if places.count() > before {
                call.add(|out| write_name(&config.prefix, charge.key, out));
            }
        }
        call.script_keys = Some(places.count());
        call.add(|out| {
            let (frame, charges) = (out.len(), request.charges.len());
            protocol::write_frame(config.time, config.foreign_state, request.now, charges, out);
            protocol::write_charges(request, around, frame, out);
        });
        call
    }

    /// The call of the script that answers a request for a lease, when the server's time is `around`.
    pub(super) fn lease(
        config: &RedisConfig,
        lease: &book::Call,
        now: Timestamp,
        around: Timestamp,
    ) -> Self {
        let mut call = Self::script(1);
        call.add(|out| write_name(&config.prefix, lease.key, out));
        call.add(|out| {
            protocol::write_frame(config.time, config.foreign_state, now, 1, out);
            protocol::write_ask(lease, around, out);
        });
        call
    }

    /// The command that forgets a key, except for what is leased of it.
    pub(super) fn forget(config: &RedisConfig, key: Key) -> Self {
        let mut name = Vec::new();
        write_name(&config.prefix, key, &mut name);
        let by_server = match config.time {
            TimeSource::Server => b"1",
            TimeSource::Request => b"0",
        };
        Self::eval(FORGET, &[name], &[by_server.to_vec(), member(key).to_vec()])
    }

    /// The command that runs another script than ours.
    pub(crate) fn eval(script: &str, keys: &[Vec<u8>], arguments: &[Vec<u8>]) -> Self {
        let mut call = Self { script_keys: None, asking: false, arguments: Vec::new(), digest: 0 };
        call.add(|out| out.extend(b"EVAL"));
        call.add(|out| out.extend(script.as_bytes()));
        call.add(|out| out.extend(keys.len().to_string().as_bytes()));
        for argument in keys.iter().chain(arguments) {
            call.add(|out| out.extend(argument));
        }
        call
    }

    /// A call of the script, with so many keys for its first arguments.
    pub(crate) fn script(keys: usize) -> Self {
        let arguments = Vec::with_capacity(128 * keys.max(1));
        Self { script_keys: Some(keys), asking: false, arguments, digest: 0 }
    }

    /// The same, with or without the server being told first that the keys are moving there.
    pub(super) fn asking(self, asking: bool) -> Self {
        Self { asking, ..self }
    }

    pub(super) fn is_asking(&self) -> bool {
        self.asking
    }

    /// Adds the argument that `write` appends.
    pub(crate) fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.arguments.len();
        self.arguments.extend([0; LENGTH_BYTES]);
        write(&mut self.arguments);
        let length = self.arguments.len() - start - LENGTH_BYTES;
        self.arguments[start..start + LENGTH_BYTES].copy_from_slice(&(length as u32).to_be_bytes());
    }

    /// The same, ready to be found among others that this hasher has seen.
    pub(super) fn digested(mut self, by: &impl BuildHasher) -> Self {
        self.digest = by.hash_one(&self.arguments);
        self
    }

    /// Whether it is the script that is called.
    pub(super) fn is_script(&self) -> bool {
        self.script_keys.is_some()
    }

    /// The command, with the script under the name that the server has for it, for so many requests.
    pub(super) fn command(&self, script: &str, repeats: u16) -> Cmd {
        let mut command =
            Cmd::with_capacity(4 + self.arguments.len() / 32, 64 + self.arguments.len());
        if let Some(keys) = self.script_keys {
            command.arg("EVALSHA").arg(script).arg(keys);
        }
        let (mut rest, mut index) = (&self.arguments[..], 0);
        while let Some((length, behind)) = rest.split_first_chunk::<LENGTH_BYTES>() {
            let (argument, behind) = behind.split_at(u32::from_be_bytes(*length) as usize);
            if repeats > 1 && self.script_keys == Some(index) {
                let mut framed = argument.to_vec();
                protocol::write_repeats(repeats, &mut framed);
                command.arg(framed);
            } else {
                command.arg(argument);
            }
            (rest, index) = (behind, index + 1);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use redis::Arg;
    use tidegate_core::{Limit, Operation, Rate, Span, TokenBucket};
    use tidegate_store::Charge;

    use super::*;

    fn call(hash: u128, cost: u64) -> Call {
        let config = RedisConfig::new("redis://127.0.0.1:1").unwrap();
        let rate = Rate::new(1, Span::SECOND).unwrap();
        let limit = Limit::from(TokenBucket::new(rate, 5).unwrap());
        let operation = Operation::Take { cost };
        let charges = [Charge { limit: &limit, key: Key::from_hash(hash), operation }];
        let now = Timestamp::from_micros(u64::try_from(hash).unwrap());
        Call::decision(&config, &Request { now, charges: &charges }, now)
    }

    #[test]
    fn calls_are_the_same_where_key_limit_and_cost_are_whenever_they_come() {
        assert_eq!(call(1, 1), call(1, 1));
        assert_ne!(call(1, 1), call(2, 1));
        assert_ne!(call(1, 1), call(1, 2));
    }

    #[test]
    fn only_the_number_of_repeats_differs_between_one_and_many() {
        let bytes = |repeats| -> Vec<Vec<u8>> {
            let command = call(1, 1).command("name", repeats);
            command
                .args_iter()
                .map(|argument| match argument {
                    Arg::Simple(bytes) => bytes.to_vec(),
                    _ => panic!("an argument of its own kind"),
                })
                .collect()
        };
        let (one, many) = (bytes(1), bytes(0x101 - 1));
        assert_eq!(one.len(), 5);
        assert_eq!(one[..4], many[..4]);
        assert_eq!((&one[4][12..14], &many[4][12..14]), (&[0, 1][..], &[1, 0][..]));
        assert_eq!((&one[4][..12], &one[4][14..]), (&many[4][..12], &many[4][14..]));
    }
}
