//! The servers that the other tests start: each kind comes up, answers, and ends with its value.

use crate::support::{Certificates, Cluster, Kind, Sentinels, Server, TlsFront};

const KINDS: [Kind; 2] = [Kind::Redis, Kind::Valkey];

fn is_gone(pid: u32) -> bool {
    !std::path::Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_server_ends_with_its_value_and_leaves_nothing_behind() {
    for kind in KINDS {
        let server = Server::start_tcp(kind, &["--requirepass", "secret"]);
        redis::cmd("PING").exec(&mut server.client()).unwrap();
        let (pid, folder) = (server.pid(), server.socket().parent().unwrap().to_owned());
        drop(server);
        assert!(is_gone(pid) && !folder.exists());
    }
}

#[test]
fn a_server_ends_where_its_test_panics() {
    let pid = std::sync::Mutex::new(0);
    let panicked = std::panic::catch_unwind(|| {
        let server = Server::start(Kind::Redis);
        *pid.lock().unwrap() = server.pid();
        panic!("as a test does");
    });
    assert!(panicked.is_err());
    assert!(is_gone(*pid.lock().unwrap()));
}

#[test]
fn servers_with_tls_come_up() {
    let certificates = Certificates::new();
    assert_ne!(Server::start_tls(&certificates, &[]).port(), 0);
    let server = Server::start(Kind::Valkey);
    assert_ne!(TlsFront::start(&server, &certificates).port(), 0);
}

#[test]
fn sentinels_come_up() {
    for kind in KINDS {
        assert_eq!(Sentinels::start_with(kind, Some("secret")).servers.len(), 2);
    }
}

#[test]
fn clusters_come_up() {
    for kind in KINDS {
        assert_eq!(Cluster::start(kind).servers.len(), 3);
        let cluster = Cluster::with_replicas(kind);
        cluster.begin_move(0, 0, 1);
        cluster.move_keys(0, 0, 1);
        cluster.end_move(0, 1);
    }
}
