//! The gateway beside nginx's `proxy_pass`: one core each in turns, connections kept on both sides, and the same
//! server behind, which shares the other core with the load. And what a request costs that is denied, beside a server
//! on the same runtime that reads and sends the same bytes and does nothing else.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use super::behind;
use crate::targets::{Figure, Target};
use crate::wire::load::{self, Asks, Driver};
use crate::wire::scenario::{Entrant, Scenario, Tried};
use crate::wire::server::{Cores, Server, free_port, local};
use crate::wire::{Effort, capture, entrant};

const OURS: &str = "tidegate gateway";
const DENYING: &str = "tidegate gateway, denying";
const ANSWERING: &str = "a server that only answers";
const NGINX: &str = "nginx proxy_pass";
const NGINX_LIMITED: &str = "nginx proxy_pass with limit_req";
const NGINX_DENYING: &str = "nginx limit_req, denying";

/// A limit that nobody reaches, and one that everybody has.
const FAR: &str = "1000000000 per day per ip";
const NEAR: &str = "1 per day per ip";
/// The same in nginx: the rate of the zone, and what else is said of the limit.
const NGINX_FAR: (&str, &str) = ("1000000r/s", "burst=1000000 nodelay");
const NGINX_NEAR: (&str, &str) = ("1r/m", "");

/// How many requests are under way on each connection: one, where a client waits for each answer before it asks
/// again, and as many as a browser or a proxy sends at once.
const UNDER_WAY: [u32; 2] = [1, 8];

pub(super) fn figures(
    tidegate: &Path,
    cores: Cores,
    effort: Effort,
) -> Result<(Vec<Figure>, Vec<String>), Box<dyn Error>> {
    let behind = behind::start("the server behind", cores.load, &behind::kilobyte())?;
    let ours = gateway(tidegate, &behind, cores.server, FAR)?;
    let denying = gateway(tidegate, &behind, cores.server, NEAR)?;
    let answering = behind::start(ANSWERING, cores.server, &capture::denial(denying.port)?)?;
    let nginx = |name, limit| nginx(name, &behind, cores.server, limit);
    let (plain, _folder) = nginx(NGINX, None)?;
    let (limited, _folder_of_limited) = nginx(NGINX_LIMITED, Some(NGINX_FAR))?;
    let (nginx_denying, _folder_of_denying) = nginx(NGINX_DENYING, Some(NGINX_NEAR))?;
    let driver = Driver { tidegate: tidegate.to_owned(), core: cores.load, keys: load::KEYS };
    let (mut figures, mut notes) = (Vec::new(), Vec::new());
    for under_way in UNDER_WAY {
        let is_one = under_way == 1;
        let mut entrants = vec![
            entrant(OURS, &ours, &["http"], None),
            entrant(NGINX, &plain, &["http"], is_one.then_some(0.8)),
            denied(DENYING, &denying),
            denied(NGINX_DENYING, &nginx_denying),
            denied(ANSWERING, &answering),
        ];
        if is_one {
            entrants.push(entrant(NGINX_LIMITED, &limited, &["http"], None));
        }
        let name = format!("a gateway, 1 KB, {under_way} under way");
        let scenario = Scenario::closed(&name, 16, under_way, entrants);
        let tried = scenario.sharing_the_core_of_load().run(&driver, effort)?;
        figures.extend(tried.throughput());
        figures.extend(denials(&tried));
        notes.extend(tried.idle_servers());
    }
    Ok((figures, notes))
}

/// What denying is to forwarding, and how near both are to what reading and writing alone would be.
fn denials(tried: &Tried) -> Vec<Figure> {
    let target = Some(Target::AtLeast(3.0));
    let ratios = [
        ("denying to forwarding", (DENYING, OURS), target),
        ("a server that only answers, to forwarding", (ANSWERING, OURS), None),
        ("denying, to a server that only answers", (DENYING, ANSWERING), None),
        ("nginx, denying to forwarding", (NGINX_DENYING, NGINX), None),
        ("denying, to nginx", (DENYING, NGINX_DENYING), None),
    ];
    ratios.into_iter().flat_map(|(name, pair, target)| tried.ratio(name, pair, target)).collect()
}

fn denied(name: &'static str, server: &Server) -> Entrant {
    let words = vec!["http".to_owned(), server.address().to_string()];
    Entrant { name, process: server.id(), asks: Asks::ToBeDenied(words), target: None }
}

fn gateway(
    tidegate: &Path,
    behind: &Server,
    core: usize,
    limit: &str,
) -> Result<Server, Box<dyn Error>> {
    let port = free_port()?;
    let words = [
        "gateway".to_owned(),
        format!("--listen={}", local(port)),
        format!("--upstream=http://{}", behind.address()),
        format!("--limit={limit}"),
        "--admin=off".to_owned(),
    ];
    Server::start(OURS, tidegate, &words, port, core, &[])
}

/// A folder of this process, removed with this value.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is left to the system.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One worker, which is the process itself, with nothing on but what is measured.
fn nginx(
    name: &str,
    behind: &Server,
    core: usize,
    limit: Option<(&str, &str)>,
) -> Result<(Server, Folder), Box<dyn Error>> {
    let port = free_port()?;
    let path = std::env::temp_dir().join(format!("tidegate-bench-{}-{port}", std::process::id()));
    fs::create_dir_all(&path)?;
    let folder = Folder(path);
    let (zone, limit) = limit.map_or_else(Default::default, |(rate, more)| {
        let zone = format!("limit_req_zone $binary_remote_addr zone=all:10m rate={rate};");
        (zone, format!("limit_req zone=all {more}; limit_req_status 429;"))
    });
    let (listen, server) = (local(port), behind.address());
    let settings = format!(
        "daemon off; master_process off; worker_processes 1; pid nginx.pid; error_log error.log crit;
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 1000000000; keepalive_timeout 1h;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi; {zone}
  upstream behind {{ server {server}; keepalive 64; keepalive_requests 1000000000; }}
  server {{
    listen {listen};
    location / {{
      proxy_pass http://behind; proxy_http_version 1.1; proxy_set_header Connection \"\"; {limit}
    }}
  }}
}}
"
    );
    fs::write(folder.0.join("nginx.conf"), settings)?;
    let words = ["-p", &folder.0.to_string_lossy(), "-c", "nginx.conf"].map(ToOwned::to_owned);
    Ok((Server::start(name, Path::new("nginx"), &words, port, core, &[])?, folder))
}
