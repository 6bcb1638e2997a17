//! What a person is told of a deployment is what it is.

use std::time::Duration;

use crate::support::{Cluster, Deployment, Kind, Mode, PATIENCE, Sentinels, Server, block_on};
use tidegate_core::Timestamp;
use tidegate_redis::probe::{self, ProbedServer, Role, ServerKind, Warning};
use tidegate_redis::{ConnectError, Probe, RedisConfig};

const KINDS: [Kind; 2] = [Kind::Redis, Kind::Valkey];

fn find(url: &str) -> Result<Probe, ConnectError> {
    let config = RedisConfig::new(url).unwrap().connect_timeout(PATIENCE).deadline(PATIENCE);
    // A clock that stands still an hour before 2001-09-09.
    block_on(probe::probe(&config, || Timestamp::from_secs(999_996_400)))
}

fn only(probe: &Probe) -> &ProbedServer {
    let [(_, Ok(server))] = &probe.servers[..] else { panic!("{probe:?}") };
    server
}

#[test]
fn one_server_is_told_as_it_is() {
    for kind in KINDS {
        let options = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
        let server = Server::start_with(kind, &options);
        let probe = find(&format!("redis+unix://{}", server.socket().display())).unwrap();
        assert_eq!(probe.mode, probe::Mode::Standalone);
        let found = only(&probe);
        let (program, version) = match kind {
            Kind::Redis => (ServerKind::Redis, "7."),
            Kind::Valkey => (ServerKind::Valkey, "9."),
        };
        assert_eq!(found.kind, program);
        assert!(found.version.starts_with(version), "{}", found.version);
        assert_eq!((found.role, found.replicas, found.runs_scripts), (Role::Primary, 0, true));
        assert_eq!(found.memory_max_bytes, Some(100 << 20));
        assert!(found.may_evict() && found.memory_used_bytes > 0);
        assert_eq!((found.appends, found.saves), (false, Some(false)));
        assert!(found.latency.least <= found.latency.median);
        assert!(found.latency.most > Duration::ZERO);
        // The server's clock is right, and the test's is decades behind.
        let ahead = found.clock_ahead_micros.unwrap();
        assert!(ahead > 500_000_000 * 1_000_000, "{ahead}");
        let address = server.socket().display().to_string();
        let policy = Warning::MayEvict("allkeys-lru".to_owned());
        let expected = [policy, Warning::Forgetful, Warning::ClockAhead(ahead)];
        let expected = expected.map(|warning| (address.as_str(), warning));
        assert_eq!(probe.warnings(), expected);
    }
}

#[test]
fn a_server_with_a_file_of_changes_is_not_forgetful() {
    let server = Server::start_with(Kind::Redis, &["--appendonly", "yes", "--save", "60 1"]);
    let probe = find(&format!("redis+unix://{}", server.socket().display())).unwrap();
    assert_eq!((only(&probe).appends, only(&probe).saves), (true, Some(true)));
    assert!(!probe.warnings().iter().any(|(_, warning)| *warning == Warning::Forgetful));
}

#[test]
fn tls_sentinels_and_clusters_are_told_as_they_are() {
    for kind in KINDS {
        let tls = Deployment::start(kind, Mode::Tls);
        assert!(only(&find(tls.url()).unwrap()).runs_scripts);

        let sentinels = Sentinels::start(kind);
        let url = sentinels.url().replace("://", "://127.0.0.1:1,");
        let probe = find(&url).unwrap();
        assert_eq!(probe.mode, probe::Mode::Sentinel { sentinels: 4, answering: 3 });
        assert_eq!((only(&probe).role, only(&probe).replicas), (Role::Primary, 1));
        assert_eq!(probe.warnings()[0], ("", Warning::SentinelsMissing(1)));
        let replica = format!("redis://127.0.0.1:{}", sentinels.servers[1].port());
        let probe = find(&replica).unwrap();
        assert_eq!(only(&probe).role, Role::Replica);
        assert_eq!(probe.warnings()[0].1, Warning::ReadOnly);

        let mut cluster = Cluster::start(kind);
        let url = cluster.url();
        let probe = find(&url).unwrap();
        assert_eq!(probe.mode, probe::Mode::Cluster { slots: 16_384 });
        assert_eq!(probe.servers.len(), 3);
        assert!(probe.servers.iter().all(|(_, found)| found.is_ok()));
        cluster.servers[1].kill();
        let warnings = find(&url).unwrap();
        let warnings = warnings.warnings();
        let gone = format!("127.0.0.1:{}", cluster.servers[1].port());
        assert!(warnings.contains(&(gone.as_str(), Warning::ServerMissing)), "{warnings:?}");
        let single = url.split(',').next().unwrap().replace("-cluster", "");
        assert!(matches!(find(&single), Err(ConnectError::IsCluster)));
    }
}

#[test]
fn what_cannot_be_probed_says_why() {
    assert!(matches!(find("redis+unix:///no/such/socket"), Err(ConnectError::Unreachable(_))));
    let server = Server::start_with(Kind::Redis, &["--requirepass", "secret"]);
    let url = format!("redis+unix://{}", server.socket().display());
    assert!(matches!(find(&url), Err(ConnectError::Credentials(_))));
}
