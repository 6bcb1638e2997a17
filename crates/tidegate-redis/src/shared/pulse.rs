//! The pulse: every so often a node tells each group that it is there, how many nodes there are is told
//! to it, and what quota one gave back is told to the others, whose denials are then lifted.
//!
//! It is also how a group is found to be well again that nobody asks for anything. One script in each
//! group, on two keys that expire by themselves:
//!
//! ```text
//! prefix{nodes}n    sorted set: node, 8 bytes -> when it is forgotten, in ms of the server's clock
//! prefix{nodes}l    stream: node -> the keys whose quota came back, 16 bytes each, or `*` for too many
//! ```

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;
use tidegate_core::Key;
use tidegate_store::StoreError;
use tokio::time::Instant;

use super::node::Node;

/// How long a node is remembered that is not heard of.
pub(super) const NODE_LASTS: Duration = Duration::from_secs(3);

/// How long one pulse may take. It is no decision that somebody waits for.
pub(super) const PULSE_WITHIN: Duration = Duration::from_millis(500);

/// The most keys that one pulse tells of. Beyond that it says that there were too many, and the others
/// lift all their denials.
const LIFTED_MAX: usize = 256;

/// What is said where there are too many.
const TOO_MANY: &[u8] = b"*";

/// Beyond such a gap between two pulses a node may have missed what came back.
const GAP_MAX: Duration = Duration::from_secs(5);

pub(super) const SCRIPT: &str = include_str!("pulse.lua");

/// Takes a node out.
pub(super) const FAREWELL: &str = "return redis.call('ZREM', KEYS[1], ARGV[1])";

/// The name of a node, drawn at random: 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeId(pub(crate) u64);

/// What this node knows of the others, and has to tell them.
pub(super) struct Pulse {
    outbox: Mutex<Outbox>,
    seen: Mutex<Seen>,
}

/// The keys whose quota came back by this node since the last pulse.
#[derive(Default)]
struct Outbox {
    keys: HashSet<Key>,
    too_many: bool,
}

#[derive(Default)]
struct Seen {
    /// The last entry that this node knows; empty where it has had no pulse yet.
    last: Vec<u8>,
    /// When the last pulse was answered.
    at: Option<Instant>,
    nodes: Nodes,
}

/// How many nodes there are. A group that comes back empty hears of them one after the other, so a number
/// that is lower counts only when it has stayed so for as long as a node is remembered.
#[derive(Clone, Copy, Debug, Default)]
struct Nodes {
    count: u32,
    /// When there were as many last.
    confirmed_at: Option<Instant>,
}

/// What a pulse told.
pub(super) struct Heard {
    pub(super) nodes: u32,
    pub(super) lifted: Lifted,
}

/// Whose quota came back by others.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lifted {
    Keys(Vec<Key>),
    /// Too many to tell, or more than is known.
    All,
}

/// The answer of the script.
#[derive(Debug, PartialEq, Eq)]
struct Reply {
    nodes: u32,
    was_known: bool,
    missed: bool,
    last: Vec<u8>,
    lifted: Lifted,
}

impl Pulse {
    pub(super) fn new() -> Self {
        Self { outbox: Mutex::default(), seen: Mutex::default() }
    }

    /// Notes that quota of a key came back, for the others to be told.
    pub(super) fn lifted(&self, key: Key) {
        let mut outbox = self.outbox.lock();
        if outbox.keys.len() < LIFTED_MAX {
            outbox.keys.insert(key);
        } else if !outbox.keys.contains(&key) {
            outbox.too_many = true;
        }
    }

    /// Sends one pulse by `eval`, which runs a script on two keys.
    pub(super) async fn beat<F>(
        &self,
        node: NodeId,
        eval: impl FnOnce([Vec<u8>; 4]) -> F,
    ) -> Result<Heard, StoreError>
    where
        F: Future<Output = Result<Arc<Value>, StoreError>>,
    {
        let outbox = std::mem::take(&mut *self.outbox.lock());
        let last = self.seen.lock().last.clone();
        let lasts = NODE_LASTS.as_millis().to_string().into_bytes();
        let arguments = [node.0.to_be_bytes().to_vec(), lasts, outbox.written(), last];
        let answered =
            eval(arguments).await.and_then(|reply| read(&reply).ok_or(StoreError::NoAnswer));
        match answered {
            Ok(reply) => Ok(self.seen.lock().learn(Instant::now(), reply)),
            Err(error) => {
                // It may have been heard all the same. Telling twice does no harm.
                self.put_back(outbox);
                Err(error)
            }
        }
    }

    fn put_back(&self, outbox: Outbox) {
        let mut now = self.outbox.lock();
        now.too_many |= outbox.too_many;
        for key in outbox.keys {
            if now.keys.len() >= LIFTED_MAX {
                now.too_many = true;
                break;
            }
            now.keys.insert(key);
        }
    }
}

impl Outbox {
    fn written(&self) -> Vec<u8> {
        if self.too_many {
            return TOO_MANY.to_vec();
        }
        self.keys.iter().flat_map(|key| key.as_hash().to_be_bytes()).collect()
    }
}

impl Seen {
    fn learn(&mut self, now: Instant, reply: Reply) -> Heard {
        let gap = self.at.is_some_and(|at| now.duration_since(at) > GAP_MAX);
        // A node that is not known any more talks to a store that has lost what it knew.
        let forgotten = self.at.is_some() && !reply.was_known;
        // After a failover the stream can end before what was read of it.
        let cut = number(&reply.last).is_some_and(|newest| Some(newest) < number(&self.last));
        let missed = gap || forgotten || cut || reply.missed;
        let lifted = if missed { Lifted::All } else { reply.lifted };
        self.at = Some(now);
        self.last = reply.last;
        Heard { nodes: self.nodes.learn(now, reply.nodes), lifted }
    }
}

/// The place of an entry among others; `None` where there is none.
fn number(entry: &[u8]) -> Option<(u64, u64)> {
    let (millis, count) = std::str::from_utf8(entry).ok()?.split_once('-')?;
    let number = (millis.parse().ok()?, count.parse().ok()?);
    (number > (0, 0)).then_some(number)
}

impl Nodes {
    fn learn(&mut self, now: Instant, count: u32) -> u32 {
        let is_old = self.confirmed_at.is_none_or(|at| now.duration_since(at) > NODE_LASTS);
        if count >= self.count || is_old {
            *self = Self { count, confirmed_at: Some(now) };
        }
        self.count
    }
}

fn read(reply: &Value) -> Option<Reply> {
    let Value::Array(values) = reply else { return None };
    let (head, entries) = values.split_at_checked(4)?;
    let [Value::Int(nodes), Value::Int(known), Value::Int(missed), Value::BulkString(last)] = head
    else {
        return None;
    };
    Some(Reply {
        nodes: u32::try_from(*nodes).ok()?,
        was_known: *known != 0,
        missed: *missed != 0,
        last: last.clone(),
        lifted: read_lifted(entries)?,
    })
}

fn read_lifted(entries: &[Value]) -> Option<Lifted> {
    let mut keys = Vec::new();
    for entry in entries {
        let Value::BulkString(bytes) = entry else { return None };
        let (chunks, rest) = bytes.as_chunks::<16>();
        if !rest.is_empty() {
            return Some(Lifted::All);
        }
        keys.extend(chunks.iter().map(|bytes| Key::from_hash(u128::from_be_bytes(*bytes))));
    }
    Some(Lifted::Keys(keys))
}

/// What the keys of pulses have between their braces.
const TAG: &[u8] = b"nodes";

/// The keys of a group's pulse in the store, under its prefix.
pub(super) fn names(prefix: &str) -> [Vec<u8>; 2] {
    [b"n", b"l"].map(|name| [prefix.as_bytes(), b"{", TAG, b"}", name].concat())
}

/// Sends pulses to a group for as long as there is somebody who decides.
pub(super) async fn keep_beating(node: Weak<Node>, group: usize, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let Some(node) = node.upgrade() else { return };
        node.beat(group).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(nodes: i64, known: i64, missed: i64, entries: &[&[u8]]) -> Value {
        let mut values = vec![Value::Int(nodes), Value::Int(known), Value::Int(missed)];
        values.push(Value::BulkString(b"5-1".to_vec()));
        values.extend(entries.iter().map(|entry| Value::BulkString(entry.to_vec())));
        Value::Array(values)
    }

    fn keys(numbers: &[u128]) -> Lifted {
        Lifted::Keys(numbers.iter().copied().map(Key::from_hash).collect())
    }

    #[test]
    fn a_reply_tells_nodes_and_keys() {
        let (one, two) = (7_u128.to_be_bytes(), [8_u128.to_be_bytes(), 9_u128.to_be_bytes()]);
        let heard = read(&reply(3, 1, 0, &[&one, two.as_flattened()])).unwrap();
        assert_eq!((heard.nodes, heard.was_known, heard.missed), (3, true, false));
        assert_eq!((heard.lifted, heard.last), (keys(&[7, 8, 9]), b"5-1".to_vec()));
        let heard = read(&reply(3, 1, 0, &[&one, b"*"])).unwrap();
        assert_eq!(heard.lifted, Lifted::All);
        assert_eq!(read(&Value::Okay), None);
        assert_eq!(read(&Value::Array(vec![Value::Int(1)])), None);
    }

    #[test]
    fn a_store_that_lost_what_it_knew_lifts_everything() {
        let now = Instant::now();
        let mut seen = Seen::default();
        let heard = |known, missed| read(&reply(1, known, missed, &[])).unwrap();
        assert_eq!(seen.learn(now, heard(0, 0)).lifted, keys(&[]), "the first pulse");
        assert_eq!(seen.learn(now, heard(1, 0)).lifted, keys(&[]));
        assert_eq!(seen.learn(now, heard(0, 0)).lifted, Lifted::All, "it has forgotten us");
        assert_eq!(seen.learn(now, heard(1, 1)).lifted, Lifted::All, "entries were missed");
        let ends_at = |last: &str| Reply { last: last.as_bytes().to_vec(), ..heard(1, 0) };
        assert_eq!(seen.learn(now, ends_at("5-2")).lifted, keys(&[]));
        assert_eq!(seen.learn(now, ends_at("5-1")).lifted, Lifted::All, "entries were lost");
        assert_eq!(seen.learn(now, ends_at("0-0")).lifted, keys(&[]), "all of them are old");
        assert_eq!(seen.learn(now, ends_at("4-9")).lifted, keys(&[]));
        assert_eq!(seen.learn(now, ends_at("10-0")).lifted, keys(&[]), "numbers, not letters");
        let later = now + GAP_MAX + Duration::from_millis(1);
        assert_eq!(seen.learn(later, heard(1, 0)).lifted, Lifted::All, "entries may be gone");
    }

    #[test]
    fn fewer_nodes_count_only_when_the_others_are_forgotten() {
        let start = Instant::now();
        let mut nodes = Nodes::default();
        assert_eq!(nodes.learn(start, 3), 3);
        assert_eq!(nodes.learn(start + NODE_LASTS, 1), 3, "a store that comes back empty");
        assert_eq!(nodes.learn(start + NODE_LASTS, 2), 3);
        assert_eq!(nodes.learn(start + NODE_LASTS + Duration::from_millis(1), 2), 2);
        assert_eq!(nodes.learn(start + NODE_LASTS, 5), 5, "more count at once");
    }

    #[test]
    fn what_could_not_be_told_is_told_later_and_too_much_is_said_to_be_too_much() {
        let pulse = Pulse::new();
        let told = |pulse: &Pulse, answer: Result<Value, StoreError>| {
            let mut told = Vec::new();
            let beat = pulse.beat(NodeId(1), |arguments| {
                told.clone_from(&arguments[2]);
                std::future::ready(answer.map(Arc::new))
            });
            let _ = tidegate_store::conformance::block_on(beat);
            told
        };
        assert_eq!(told(&pulse, Ok(reply(1, 0, 0, &[]))), b"");
        pulse.lifted(Key::from_hash(7));
        pulse.lifted(Key::from_hash(7));
        assert_eq!(told(&pulse, Err(StoreError::Unreachable)), 7_u128.to_be_bytes());
        assert_eq!(told(&pulse, Ok(reply(1, 1, 0, &[]))), 7_u128.to_be_bytes());
        assert_eq!(told(&pulse, Ok(reply(1, 1, 0, &[]))), b"");
        (0..=LIFTED_MAX as u128).for_each(|key| pulse.lifted(Key::from_hash(key)));
        assert_eq!(told(&pulse, Err(StoreError::NoAnswer)), TOO_MANY);
        assert_eq!(told(&pulse, Ok(reply(1, 1, 0, &[]))), TOO_MANY);
    }
}
