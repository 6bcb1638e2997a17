//! The ways in which servers are run, each behind one URL. Tests that run at the same time share them,
//! since a cluster takes seconds to settle; each has keys of its own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use tidegate_redis::{RedisConfig, TimeSource};

use super::tls::{Certificates, TlsFront};
use super::{Cluster, Kind, PATIENCE, Sentinels, Server};

/// How servers are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// One server on a socket.
    Single,
    /// One server on a port, with TLS and a password.
    Tls,
    /// A primary with a replica, a password and Sentinels.
    Sentinel,
    /// Three primaries.
    Cluster,
}

/// Servers that run. They end with the last test that uses them.
pub struct Deployment {
    url: String,
    _servers: Vec<Box<dyn std::any::Any + Send + Sync>>,
}

impl Deployment {
    /// The deployment of this mode that other tests use, or a new one.
    pub fn shared(kind: Kind, mode: Mode) -> Arc<Self> {
        type Running = Mutex<HashMap<(Kind, Mode), Arc<Mutex<Weak<Deployment>>>>>;
        static RUNNING: OnceLock<Running> = OnceLock::new();
        // Tests of other modes need not wait while one starts.
        let place = {
            let mut running = RUNNING.get_or_init(Mutex::default).lock().expect("no panic");
            Arc::clone(running.entry((kind, mode)).or_default())
        };
        // A test that could not start its servers has failed; the next may try.
        let mut place = place.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        place.upgrade().unwrap_or_else(|| {
            let started = Arc::new(Self::start(kind, mode));
            *place = Arc::downgrade(&started);
            started
        })
    }

    pub fn start(kind: Kind, mode: Mode) -> Self {
        match mode {
            Mode::Single => {
                let server = Server::start(kind);
                let url = format!("redis+unix://{}", server.socket().display());
                Self { url, _servers: vec![Box::new(server)] }
            }
            Mode::Tls => Self::start_tls(kind),
            Mode::Sentinel => {
                let sentinels = Sentinels::start_with(kind, Some("secret"));
                sentinels.are_patient();
                let url = sentinels.url().replace("://", "://:secret@");
                Self { url, _servers: vec![Box::new(sentinels)] }
            }
            Mode::Cluster => {
                let cluster = Cluster::start(kind);
                Self { url: cluster.url(), _servers: vec![Box::new(cluster)] }
            }
        }
    }

    fn start_tls(kind: Kind) -> Self {
        let certificates = Certificates::new();
        let url = |port: u16| {
            format!("rediss://:secret@127.0.0.1:{port}?ca={}", certificates.ca().display())
        };
        let password = ["--requirepass", "secret"];
        match kind {
            Kind::Redis => {
                let server = Server::start_tls(&certificates, &password);
                let url = url(server.port());
                Self { url, _servers: vec![Box::new(server), Box::new(certificates)] }
            }
            Kind::Valkey => {
                let server = Server::start_with(kind, &password);
                let front = TlsFront::start(&server, &certificates);
                let url = url(front.port());
                let servers: Vec<Box<dyn std::any::Any + Send + Sync>> =
                    vec![Box::new(front), Box::new(server), Box::new(certificates)];
                Self { url, _servers: servers }
            }
        }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// A configuration with keys of its own, whose time is that of the requests.
    pub fn config(&self) -> RedisConfig {
        static PREFIXES: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("{}:", PREFIXES.fetch_add(1, Ordering::Relaxed));
        let config = RedisConfig::new(&self.url).expect("a URL");
        let config = config.prefix(&prefix).expect("a prefix").time(TimeSource::Request);
        config.deadline(PATIENCE).connect_timeout(PATIENCE)
    }
}
