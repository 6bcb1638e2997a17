//! A primary, a replica, and three Sentinels that watch them.

use std::fmt::Write as _;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use redis::{Client, Connection, Value};

use super::server::{Kind, Server, new_folder, on_free_port, program};
use super::until;

/// The name that the Sentinels know the servers by.
pub const SERVICE: &str = "limits";

const SENTINELS: usize = 3;

/// A primary, a replica and their Sentinels. All end with this value.
pub struct Sentinels {
    sentinels: Vec<Sentinel>,
    /// The primary at first, then the replica.
    pub servers: Vec<Server>,
}

struct Sentinel {
    child: Child,
    folder: PathBuf,
    port: u16,
    password: Option<String>,
}

impl Sentinels {
    pub fn start(kind: Kind) -> Self {
        Self::start_with(kind, None)
    }

    /// With a password for the servers, which the Sentinels know, and they have none.
    pub fn start_with(kind: Kind, password: Option<&str>) -> Self {
        Self::start_guarded(kind, password, None)
    }

    /// With a password for the servers, and one for the Sentinels.
    pub fn start_guarded(kind: Kind, password: Option<&str>, guard: Option<&str>) -> Self {
        let credentials = password
            .map_or(vec![], |password| vec!["--requirepass", password, "--masterauth", password]);
        let primary = Server::start_tcp(kind, &credentials);
        let port = primary.port().to_string();
        let mut options = credentials.clone();
        options.extend(["--replicaof", "127.0.0.1", &port]);
        let replica = Server::start_tcp(kind, &options);
        let servers = vec![primary, replica];
        let watched = servers[0].port();
        let sentinels =
            (0..SENTINELS).map(|_| Sentinel::start(kind, watched, password, guard)).collect();
        let started = Self { sentinels, servers };
        for sentinel in &started.sentinels {
            until("the Sentinels know each other and the replica", || sentinel.knows_all());
        }
        started
    }

    /// Lets a server be silent for longer than a machine stands still, where it is not the Sentinels that are tested.
    pub fn are_patient(&self) {
        for sentinel in &self.sentinels {
            let mut set = redis::cmd("SENTINEL");
            set.arg("SET").arg(SERVICE).arg("down-after-milliseconds").arg(30_000);
            set.exec(&mut sentinel.client().expect("it answers")).expect("it can be set");
        }
    }

    /// The addresses of the Sentinels, with commas between them.
    pub fn addresses(&self) -> String {
        let addresses = self.sentinels.iter().map(|each| format!("127.0.0.1:{}", each.port));
        addresses.collect::<Vec<_>>().join(",")
    }

    pub fn url(&self) -> String {
        format!("redis-sentinel://{}/{SERVICE}", self.addresses())
    }

    /// Crashes the primary that the test began with.
    pub fn kill_primary(&mut self) {
        self.servers[0].kill();
    }
}

impl Sentinel {
    fn start(kind: Kind, watched: u16, password: Option<&str>, guard: Option<&str>) -> Self {
        on_free_port(|port| {
            let folder = new_folder();
            let mut text = format!(
                "port {port}\nbind 127.0.0.1\ndir {}\n\
                 sentinel monitor {SERVICE} 127.0.0.1 {watched} 2\n\
                 sentinel down-after-milliseconds {SERVICE} 1000\n\
                 sentinel failover-timeout {SERVICE} 5000\n",
                folder.display()
            );
            if let Some(password) = password {
                writeln!(text, "sentinel auth-pass {SERVICE} {password}").expect("memory");
            }
            if let Some(guard) = guard {
                writeln!(text, "requirepass {guard}\nsentinel sentinel-pass {guard}")
                    .expect("memory");
            }
            let file = folder.join("sentinel.conf");
            std::fs::write(&file, text).expect("a file");
            let log = File::create(folder.join("log")).expect("a log");
            let mut command = Command::new(program(kind));
            command.arg(file).arg("--sentinel").stdout(log).stderr(Stdio::null());
            let child = command.spawn().expect("the Sentinel starts");
            let mut sentinel = Self { child, folder, port, password: guard.map(str::to_owned) };
            let ready = until("the Sentinel answers", || {
                let ended = matches!(sentinel.child.try_wait(), Ok(Some(_)));
                if ended { Some(false) } else { sentinel.client().map(|_| true) }
            });
            ready.then_some(sentinel)
        })
    }

    fn client(&self) -> Option<Connection> {
        let mut client = Client::open(("127.0.0.1", self.port)).ok()?.get_connection().ok()?;
        if let Some(password) = &self.password {
            redis::cmd("AUTH").arg(password).exec(&mut client).ok()?;
        }
        Some(client)
    }

    fn knows_all(&self) -> Option<()> {
        let mut client = self.client()?;
        let mut count = |what: &str| -> Option<usize> {
            let asked =
                redis::cmd("SENTINEL").arg(what).arg(SERVICE).query::<Vec<Value>>(&mut client);
            Some(asked.ok()?.len())
        };
        (count("SENTINELS")? == SENTINELS - 1 && count("REPLICAS")? == 1).then_some(())
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
