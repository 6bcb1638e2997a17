//! Slots: which one a key is in, and which server says it has which.

use redis::Value;
use tidegate_core::Key;

use crate::config::Address;
use crate::key::tag;
use crate::link::text;

/// How many slots a cluster has.
pub(crate) const SLOTS: usize = 16_384;

/// The slot that a key is in: the checksum of its tag.
pub(crate) fn slot_of(key: Key) -> u16 {
    crc16(&tag(key)) % SLOTS as u16
}

/// The slot that a key of this name is in, whoever gave it.
pub(crate) fn slot_of_name(name: &[u8]) -> u16 {
    let open = name.iter().position(|&byte| byte == b'{');
    let tag = open.and_then(|open| {
        let behind = &name[open + 1..];
        let length = behind.iter().position(|&byte| byte == b'}').filter(|length| *length > 0)?;
        Some(&behind[..length])
    });
    crc16(tag.unwrap_or(name)) % SLOTS as u16
}

/// The checksum that clusters use: polynomial 0x1021, starting from 0.
const fn crc16(bytes: &[u8]) -> u16 {
    let (mut sum, mut index) = (0_u16, 0);
    while index < bytes.len() {
        sum ^= (bytes[index] as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 0x8000 == 0 { sum << 1 } else { sum << 1 ^ 0x1021 };
            bit += 1;
        }
        index += 1;
    }
    sum
}

/// Whose the slots are, as one server sees it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SlotMap {
    /// First and last slot, and the primary that has them.
    pub(crate) ranges: Vec<(u16, u16, Address)>,
    pub(crate) replicas: Vec<Address>,
}

impl SlotMap {
    /// How many slots have a server.
    pub(crate) fn slots(&self) -> usize {
        self.ranges.iter().map(|(first, last, _)| usize::from(last - first) + 1).sum()
    }

    /// All servers that have slots, each once.
    pub(crate) fn primaries(&self) -> Vec<Address> {
        let mut primaries: Vec<Address> = Vec::new();
        for (_, _, address) in &self.ranges {
            if !primaries.contains(address) {
                primaries.push(address.clone());
            }
        }
        primaries
    }

    /// Reads the answer to `CLUSTER SLOTS`. A server that does not know its own address, or that of
    /// others, means `asked`'s host by it.
    pub(crate) fn read(answer: &Value, asked: &Address) -> Option<Self> {
        let Value::Array(entries) = answer else { return None };
        let mut map = Self { ranges: Vec::with_capacity(entries.len()), replicas: Vec::new() };
        for entry in entries {
            let Value::Array(fields) = entry else { return None };
            let [Value::Int(first), Value::Int(last), primary, replicas @ ..] = &fields[..] else {
                return None;
            };
            let slot =
                |number: i64| u16::try_from(number).ok().filter(|&it| usize::from(it) < SLOTS);
            let (first, last) = (slot(*first)?, slot(*last)?);
            if first > last {
                return None;
            }
            map.ranges.push((first, last, address(primary, asked)?));
            for replica in replicas.iter().filter_map(|replica| address(replica, asked)) {
                if !map.replicas.contains(&replica) {
                    map.replicas.push(replica);
                }
            }
        }
        Some(map)
    }
}

fn address(server: &Value, asked: &Address) -> Option<Address> {
    let Value::Array(fields) = server else { return None };
    let [host, Value::Int(port), ..] = &fields[..] else { return None };
    let port = u16::try_from(*port).ok()?;
    match (text(host).filter(|host| !host.is_empty() && *host != "?"), asked) {
        (Some(host), _) => Some(Address::Tcp { host: host.to_owned(), port }),
        (None, Address::Tcp { host, .. }) => Some(Address::Tcp { host: host.clone(), port }),
        (None, Address::Unix(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.to_owned(), port }
    }

    fn server(host: Option<&str>, port: i64) -> Value {
        let host = host.map_or(Value::Nil, |host| Value::BulkString(host.into()));
        Value::Array(vec![host, Value::Int(port), Value::BulkString(b"id".to_vec())])
    }

    #[test]
    fn a_checksum_is_that_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot_of_name(b"foo"), 12_182);
    }

    #[test]
    fn the_slot_of_a_name_is_that_of_its_tag() {
        for (name, tag) in
            [("a{foo}b", "foo"), ("{}foo", "{}foo"), ("a{foo", "a{foo"), ("{a}{b}", "a")]
        {
            assert_eq!(
                slot_of_name(name.as_bytes()),
                crc16(tag.as_bytes()) % SLOTS as u16,
                "{name}"
            );
        }
        let key = Key::from_hash(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
        let mut name = Vec::new();
        crate::key::write_name("t", key, &mut name);
        assert_eq!(slot_of(key), slot_of_name(&name));
    }

    #[test]
    fn the_tags_of_keys_are_spread_over_all_parts_of_the_slots() {
        let mut counts = [0; 16];
        for tag in 0..1 << 13 {
            counts[usize::from(slot_of(Key::from_hash(tag << 64))) / (SLOTS / 16)] += 1;
        }
        assert!(counts.iter().all(|count| (400..=650).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_server_that_does_not_know_its_name_has_the_one_it_was_asked_by() {
        let entry =
            |first, last, server| Value::Array(vec![Value::Int(first), Value::Int(last), server]);
        let mut both = entry(6, 16_383, server(Some("b"), 2));
        if let Value::Array(fields) = &mut both {
            fields.push(server(Some("c"), 3));
        }
        let answer = Value::Array(vec![entry(0, 5, server(None, 1)), both]);
        let map = SlotMap::read(&answer, &tcp("a", 9)).unwrap();
        assert_eq!(map.ranges, [(0, 5, tcp("a", 1)), (6, 16_383, tcp("b", 2))]);
        assert_eq!(map.replicas, [tcp("c", 3)]);
    }

    #[test]
    fn an_answer_that_is_none_is_known_for_it() {
        let out_of_range = Value::Array(vec![Value::Int(0), Value::Int(16_384), server(None, 1)]);
        for answer in [Value::Nil, Value::Array(vec![Value::Nil]), Value::Array(vec![out_of_range])]
        {
            assert_eq!(SlotMap::read(&answer, &tcp("a", 1)), None);
        }
    }
}
