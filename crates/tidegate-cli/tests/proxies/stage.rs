//! Everything between a client and an application, on free ports: a proxy, and the daemon beside it.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use tidegate_testing::free_port;

use crate::app::App;
use crate::client::Client;
use crate::page::{self, Places};
use crate::process::{Process, wait_for};

/// The ports that the pages use, by what listens there.
const PROXY: u16 = 8000;
const HTTP: u16 = 8080;
const GRPC: u16 = 8081;
const ADMIN: u16 = 8082;
const INNER: u16 = 8083;
const APP: u16 = 9000;

/// Two clients. Neither is the proxy, which is at 127.0.0.1 like the daemon.
const ALICE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const BOB: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

pub(crate) struct Stage {
    pub(crate) places: Places,
    daemon: Option<Process>,
    proxy: Option<Process>,
    app: App,
}

impl Stage {
    /// The daemon and the application, and a folder for the configurations.
    pub(crate) fn set(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("proxies-{name}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder for the test");
        let ports = [PROXY, HTTP, GRPC, ADMIN, INNER, APP].map(|written| (written, free_port()));
        let places = Places { ports: ports.into(), folder, is_patient: true };
        let app = App::start(places.port(APP));
        let mut stage = Self { places, daemon: None, proxy: None, app };
        stage.write("README.md", "tidegate.yaml");
        stage.write("README.md", "rules.yaml");
        stage.start_daemon();
        stage
    }

    /// The same, with proxies that wait exactly as long as the pages say.
    pub(crate) fn set_in_a_hurry(name: &str) -> Self {
        let mut stage = Self::set(name);
        stage.places.is_patient = false;
        stage
    }

    /// Writes a block of a page to a file of its name, and says where.
    pub(crate) fn write(&self, page: &str, name: &str) -> PathBuf {
        self.write_text(name, &page::block(page, name))
    }

    pub(crate) fn write_text(&self, name: &str, text: &str) -> PathBuf {
        let file = self.file(name);
        fs::write(&file, self.places.put_into(text)).expect("a written file");
        file
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.places.folder.join(name)
    }

    pub(crate) fn start_daemon(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.arg("serve").arg("--config").arg(self.file("tidegate.yaml"));
        let mut daemon = Process::start(&mut command, self.file("daemon.log"));
        let health = self.client_on(HTTP, ALICE);
        wait_for("the daemon is ready", || {
            assert!(!daemon.has_ended(), "the daemon ended:\n{}", daemon.log());
            let answer =
                health.connect().and_then(|mut there| there.send("GET", "/readyz", &[], ""));
            answer.ok().filter(|answer| answer.status == 200)
        });
        self.daemon = Some(daemon);
    }

    /// Starts the proxy and waits until it listens. Nothing is counted by that.
    pub(crate) fn start_proxy(&mut self, command: &mut Command) {
        let mut proxy = Process::start(command, self.file("proxy.log"));
        let address = (Ipv4Addr::LOCALHOST, self.places.port(PROXY));
        wait_for("the proxy listens", || {
            assert!(!proxy.has_ended(), "the proxy ended:\n{}", proxy.log());
            std::net::TcpStream::connect(address).ok()
        });
        self.proxy = Some(proxy);
    }

    pub(crate) fn kill_daemon(&mut self) {
        self.daemon.take().expect("a running daemon").kill();
    }

    /// The daemon's connections stay open and are accepted, and nothing is answered.
    pub(crate) fn freeze_daemon(&self) {
        self.daemon.as_ref().expect("a running daemon").freeze();
    }

    pub(crate) fn thaw_daemon(&self) {
        self.daemon.as_ref().expect("a running daemon").thaw();
    }

    /// From which ports there are or were connections to the daemon's HTTP address, for a minute back.
    pub(crate) fn ports_that_asked(&self) -> BTreeSet<u16> {
        let table = fs::read_to_string("/proc/net/tcp").expect("the system's connections");
        let asked = self.places.port(HTTP);
        let port = |field: &str| u16::from_str_radix(field.split_once(':')?.1, 16).ok();
        let ends = table.lines().skip(1).filter_map(|line| {
            let mut fields = line.split_whitespace().skip(1);
            Some((port(fields.next()?)?, port(fields.next()?)?))
        });
        ends.filter_map(|(local, remote)| match (local == asked, remote == asked) {
            (true, false) if remote != 0 => Some(remote),
            (false, true) => Some(local),
            _ => None,
        })
        .collect()
    }

    pub(crate) fn app(&self) -> &App {
        &self.app
    }

    pub(crate) fn alice(&self) -> Client {
        self.client_on(PROXY, ALICE)
    }

    pub(crate) fn bob(&self) -> Client {
        self.client_on(PROXY, BOB)
    }

    /// A client of the daemon itself.
    pub(crate) fn direct(&self) -> Client {
        self.client_on(HTTP, Ipv4Addr::LOCALHOST)
    }

    fn client_on(&self, written: u16, from: Ipv4Addr) -> Client {
        Client { from, port: self.places.port(written) }
    }
}
