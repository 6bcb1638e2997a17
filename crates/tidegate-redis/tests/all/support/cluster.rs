//! A cluster of three primaries on free ports, with replicas where a test needs them.

use redis::{Connection, FromRedisValue};

use tidegate_testing::free_port;

use super::server::{Kind, Server, on_free_port};
use super::tls::Certificates;
use super::until;

const PRIMARIES: u16 = 3;
const SLOTS: u16 = 16_384;

/// A running cluster. It ends with this value.
pub struct Cluster {
    /// The primaries in the order of their slots, then a replica of each where there are any.
    pub servers: Vec<Server>,
}

impl Cluster {
    pub fn start(kind: Kind) -> Self {
        Self::start_with(kind, false, &[])
    }

    pub fn with_replicas(kind: Kind) -> Self {
        Self::start_with(kind, true, &[])
    }

    /// With TLS on every port and between the servers.
    pub fn start_tls(certificates: &Certificates, options: &[&str]) -> Self {
        let (certificate, key, ca) = certificates.server_files();
        let mut all = vec!["--tls-cert-file", &certificate, "--tls-key-file", &key];
        all.extend(["--tls-ca-cert-file", &ca, "--tls-cluster", "yes", "--tls-auth-clients", "no"]);
        all.extend(options);
        Self::start_with(Kind::Redis, false, &all)
    }

    pub fn start_with(kind: Kind, replicas: bool, options: &[&str]) -> Self {
        let count = PRIMARIES * if replicas { 2 } else { 1 };
        let servers: Vec<_> = (0..count).map(|_| start_node(kind, options)).collect();
        let cluster = Self { servers };
        for (index, server) in (0..).zip(&cluster.servers) {
            let mut client = server.client();
            let _: () = ask(&mut client, &["SET-CONFIG-EPOCH", &(index + 1).to_string()]);
            if index < PRIMARIES {
                let bound = |index: u16| u32::from(SLOTS) * u32::from(index) / u32::from(PRIMARIES);
                let (first, last) = (bound(index).to_string(), (bound(index + 1) - 1).to_string());
                let _: () = ask(&mut client, &["ADDSLOTSRANGE", &first, &last]);
            }
        }
        cluster.meet();
        for (index, server) in cluster.servers.iter().enumerate().skip(PRIMARIES.into()) {
            let primary = cluster.id(index - usize::from(PRIMARIES));
            let _: () = ask(&mut server.client(), &["REPLICATE", &primary]);
        }
        cluster.wait_until_settled(usize::from(count));
        if replicas {
            // Now they may notice soon that one is gone.
            for server in &cluster.servers {
                let mut set = redis::cmd("CONFIG");
                set.arg("SET").arg("cluster-node-timeout").arg(1_000);
                set.exec(&mut server.client()).expect("it can be set");
            }
        }
        cluster
    }

    /// Each gets to know the first, and by it all the others.
    fn meet(&self) {
        let mut first = self.servers[0].client();
        for server in &self.servers[1..] {
            let (port, bus) = (server.port().to_string(), bus_port(server).to_string());
            let _: () = ask(&mut first, &["MEET", "127.0.0.1", &port, &bus]);
        }
        self.wait_until_settled(self.servers.len());
    }

    /// All know all, all slots are served, and replicas have what their primaries have.
    fn wait_until_settled(&self, count: usize) {
        for server in &self.servers {
            until("the cluster settles", || {
                let mut client = server.try_client()?;
                let info: String = ask(&mut client, &["INFO"]);
                let nodes: String = ask(&mut client, &["NODES"]);
                let known = nodes.lines().filter(|line| {
                    !["handshake", "fail", "noaddr"].iter().any(|word| line.contains(word))
                });
                let replication: String =
                    redis::cmd("INFO").arg("replication").query(&mut client).ok()?;
                let linked = !replication.contains("master_link_status:down");
                (info.contains("cluster_state:ok") && known.count() == count && linked)
                    .then_some(())
            });
        }
    }

    /// The name that the cluster knows a server by.
    pub fn id(&self, server: usize) -> String {
        ask(&mut self.servers[server].client(), &["MYID"])
    }

    pub fn url(&self) -> String {
        let addresses = self.servers.iter().map(|each| format!("127.0.0.1:{}", each.port()));
        format!("redis-cluster://{}", addresses.collect::<Vec<_>>().join(","))
    }

    /// Begins to move a slot from one primary to another: keys that are not there any more are asked for
    /// at the other.
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        let (source, target) = (self.id(from), self.id(to));
        let _: () = ask(&mut self.servers[to].client(), &["SETSLOT", &slot, "IMPORTING", &source]);
        let _: () =
            ask(&mut self.servers[from].client(), &["SETSLOT", &slot, "MIGRATING", &target]);
    }

    /// Moves the slot's keys that are there now.
    pub fn move_keys(&self, slot: u16, from: usize, to: usize) {
        while self.move_some_keys(slot, from, to, 100) > 0 {}
    }

    /// Moves some of the slot's keys, and says how many that were.
    pub fn move_some_keys(&self, slot: u16, from: usize, to: usize, most: usize) -> usize {
        let mut client = self.servers[from].client();
        let (slot, most, port) = (slot.to_string(), most.to_string(), self.servers[to].port());
        let keys: Vec<Vec<u8>> = ask(&mut client, &["GETKEYSINSLOT", &slot, &most]);
        let count = keys.len();
        if count > 0 {
            let mut migrate = redis::cmd("MIGRATE");
            migrate.arg("127.0.0.1").arg(port).arg("").arg(0).arg(5000).arg("KEYS").arg(keys);
            migrate.exec(&mut client).expect("keys move");
        }
        count
    }

    /// Says to all primaries whose the slot is now.
    pub fn end_move(&self, slot: u16, to: usize) {
        let target = self.id(to);
        // The new owner first, so that there is always somebody who takes it.
        let mut order: Vec<_> = (0..usize::from(PRIMARIES)).collect();
        order.sort_by_key(|index| *index != to);
        for index in order {
            let slot = slot.to_string();
            let _: () =
                ask(&mut self.servers[index].client(), &["SETSLOT", &slot, "NODE", &target]);
        }
    }
}

fn start_node(kind: Kind, options: &[&str]) -> Server {
    on_free_port(|port| {
        let bus = free_port().to_string();
        // Longer than a machine stands still: who is not met by then is not met, and who does not answer is gone.
        let mut all = vec!["--cluster-enabled", "yes", "--cluster-node-timeout", "15000"];
        all.extend(["--cluster-port", &bus, "--cluster-replica-validity-factor", "0"]);
        all.extend(options);
        let number = port.to_string();
        if options.contains(&"--tls-cluster") {
            all.extend(["--port", "0", "--tls-port", &number]);
        }
        Server::try_start_on(kind, port, &all)
    })
}

fn ask<T: FromRedisValue>(client: &mut Connection, words: &[&str]) -> T {
    redis::cmd("CLUSTER").arg(words).query(client).expect("the cluster's answer")
}

fn bus_port(server: &Server) -> u16 {
    let found: Vec<String> = redis::cmd("CONFIG")
        .arg("GET")
        .arg("cluster-port")
        .query(&mut server.client())
        .expect("a setting");
    found[1].parse().expect("a port")
}
