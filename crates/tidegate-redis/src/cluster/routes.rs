//! Which lane leads to the server that has a slot.

use std::sync::Arc;

use super::slots::{SLOTS, SlotMap};
use crate::config::{Address, RedisConfig};
use crate::lane::Lane;
use crate::link::{Connector, Link, Target};
use crate::stats::{BreakerState, Stats};

/// The most servers that are known. A cluster has at most 1,000.
const SERVERS_MAX: usize = 1_024;

/// A server without slots is forgotten when the map has been read so often. One to which slots are
/// moving has none at first, and is needed.
const READS_WITHOUT_SLOTS_MAX: u32 = 20;

const NOBODY: u16 = u16::MAX;

/// One primary, and the way to it.
pub(super) struct Server {
    pub(super) address: Address,
    pub(super) lane: Lane,
}

/// All that is known of the cluster.
pub(super) struct Routes {
    config: Arc<RedisConfig>,
    /// For each slot, the number of its server.
    owners: Box<[u16]>,
    servers: Vec<Known>,
    pub(super) replicas: Vec<Address>,
    /// What servers met that are not here any more.
    retired: Stats,
}

#[derive(Clone)]
struct Known {
    server: Arc<Server>,
    /// How often the map was read in which it had no slots.
    reads_without_slots: u32,
}

impl Routes {
    pub(super) fn new(config: Arc<RedisConfig>) -> Self {
        Self {
            config,
            owners: vec![NOBODY; SLOTS].into(),
            servers: Vec::new(),
            replicas: Vec::new(),
            retired: Stats::default(),
        }
    }

    /// Whether nothing is known yet.
    pub(super) fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// Who has the slot.
    pub(super) fn owner(&self, slot: u16) -> Option<Arc<Server>> {
        let number = *self.owners.get(usize::from(slot))?;
        self.servers.get(usize::from(number)).map(|known| Arc::clone(&known.server))
    }

    pub(super) fn servers(&self) -> impl Iterator<Item = &Arc<Server>> {
        self.servers.iter().map(|known| &known.server)
    }

    /// What all servers have met.
    pub(super) fn stats(&self) -> Stats {
        self.servers().fold(self.retired, |sum, server| sum.plus(server.lane.stats()))
    }

    /// The server at an address, which need not have been known; `None` where there are too many.
    pub(super) fn server_at(&mut self, address: &Address) -> Option<Arc<Server>> {
        let number = self.number_of(address)?;
        Some(Arc::clone(&self.servers[usize::from(number)].server))
    }

    /// Takes note of who has a slot now.
    pub(super) fn moved(&mut self, slot: u16, address: &Address) {
        if let Some(number) = self.number_of(address)
            && let Some(owner) = self.owners.get_mut(usize::from(slot))
        {
            *owner = number;
        }
    }

    /// Takes over what a server says. Lanes to servers that stay are kept. Gives whether other servers
    /// have slots than before.
    pub(super) fn update(&mut self, map: SlotMap) -> bool {
        let before = self.with_slots();
        self.owners.fill(NOBODY);
        for (first, last, address) in &map.ranges {
            let Some(number) = self.number_of(address) else { continue };
            if let Some(owners) = self.owners.get_mut(usize::from(*first)..=usize::from(*last)) {
                owners.fill(number);
            }
        }
        self.replicas = map.replicas;
        let after = self.with_slots();
        let changed = self.addresses(&before) != self.addresses(&after);
        self.forget_idle(&after);
        changed
    }

    /// Which servers have slots.
    fn with_slots(&self) -> Vec<bool> {
        let mut with = vec![false; self.servers.len()];
        for &owner in &self.owners {
            if let Some(found) = with.get_mut(usize::from(owner)) {
                *found = true;
            }
        }
        with
    }

    fn addresses(&self, chosen: &[bool]) -> Vec<&Address> {
        let servers = self.servers().zip(chosen).filter(|(_, chosen)| **chosen);
        servers.map(|(server, _)| &server.address).collect()
    }

    fn forget_idle(&mut self, with_slots: &[bool]) {
        let mut numbers = vec![NOBODY; self.servers.len()];
        let mut kept = Vec::with_capacity(self.servers.len());
        for (number, (mut known, &with)) in self.servers.drain(..).zip(with_slots).enumerate() {
            known.reads_without_slots = if with { 0 } else { known.reads_without_slots + 1 };
            if known.reads_without_slots > READS_WITHOUT_SLOTS_MAX {
                let met = known.server.lane.stats();
                let past = Stats { in_flight: 0, breaker: BreakerState::Closed, ..met };
                self.retired = self.retired.plus(past);
            } else {
                numbers[number] = kept.len() as u16;
                kept.push(known);
            }
        }
        self.servers = kept;
        for owner in &mut self.owners {
            *owner = numbers.get(usize::from(*owner)).copied().unwrap_or(NOBODY);
        }
    }

    fn number_of(&mut self, address: &Address) -> Option<u16> {
        if let Some(number) = self.servers().position(|server| server.address == *address) {
            return Some(number as u16);
        }
        if self.servers.len() >= SERVERS_MAX {
            return None;
        }
        let target = Target::Server(address.clone());
        let link = Link::new(Connector::new(Arc::clone(&self.config), target));
        let lane = Lane::new(Arc::clone(&self.config), link);
        let server = Arc::new(Server { address: address.clone(), lane });
        self.servers.push(Known { server, reads_without_slots: 0 });
        Some(self.servers.len() as u16 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(port: u16) -> Address {
        Address::Tcp { host: "127.0.0.1".to_owned(), port }
    }

    fn map(ranges: &[(u16, u16, u16)]) -> SlotMap {
        let ranges = ranges.iter().map(|&(first, last, port)| (first, last, tcp(port))).collect();
        SlotMap { ranges, replicas: Vec::new() }
    }

    fn routes() -> Routes {
        let config = RedisConfig::new("redis-cluster://127.0.0.1:1").unwrap();
        Routes::new(Arc::new(config))
    }

    fn owner(routes: &Routes, slot: u16) -> Option<Address> {
        routes.owner(slot).map(|server| server.address.clone())
    }

    #[tokio::test]
    async fn a_slot_is_whose_the_last_word_says() {
        let mut routes = routes();
        assert!(routes.is_empty() && owner(&routes, 0).is_none());
        assert!(routes.update(map(&[(0, 9, 1), (10, 16_383, 2)])));
        assert_eq!((owner(&routes, 9), owner(&routes, 10)), (Some(tcp(1)), Some(tcp(2))));
        routes.moved(9, &tcp(2));
        assert_eq!((owner(&routes, 8), owner(&routes, 9)), (Some(tcp(1)), Some(tcp(2))));
        assert!(!routes.update(map(&[(0, 8, 1), (9, 16_383, 2)])), "the same servers");
        assert!(routes.update(map(&[(0, 16_382, 3)])), "another one");
        assert_eq!((owner(&routes, 0), owner(&routes, 16_383)), (Some(tcp(3)), None));
    }

    #[tokio::test]
    async fn a_server_that_keeps_slots_keeps_its_lane_and_one_without_is_forgotten_in_time() {
        let mut routes = routes();
        routes.update(map(&[(0, 9, 1), (10, 16_383, 2)]));
        let (first, second) = (routes.owner(0).unwrap(), routes.owner(10).unwrap());
        for _ in 0..READS_WITHOUT_SLOTS_MAX {
            routes.update(map(&[(0, 16_383, 2)]));
        }
        assert!(Arc::ptr_eq(&routes.server_at(&tcp(1)).unwrap(), &first));
        routes.update(map(&[(0, 16_383, 2)]));
        assert_eq!(routes.servers().count(), 1);
        assert!(Arc::ptr_eq(&routes.owner(0).unwrap(), &second));
    }

    #[tokio::test]
    async fn there_are_never_more_servers_than_a_cluster_can_have() {
        let mut routes = routes();
        for port in 0..SERVERS_MAX as u16 + 10 {
            routes.moved(0, &tcp(port));
        }
        assert_eq!(routes.servers().count(), SERVERS_MAX);
        assert!(routes.server_at(&tcp(u16::MAX)).is_none());
    }
}
