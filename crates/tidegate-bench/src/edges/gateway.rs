//! The gateway beside nginx's `proxy_pass`: one core each in turns, connections kept on both sides, and the same
//! server behind, which shares the other core with the load. And what a request costs that is denied. Beside both, servers
//! without a runtime that read and send the same bytes and do nothing else.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use super::{behind, between};
use crate::targets::{Figure, Target};
use crate::wire::load::{self, Asks, Driver};
use crate::wire::scenario::{Entrant, Scenario, Tried};
use crate::wire::server::{Cores, Server, free_port, local};
use crate::wire::{Effort, capture, entrant};

const OURS: &str = "tidegate gateway";
const DENYING: &str = "tidegate gateway, denying";
const ANSWERING: &str = "a server that only answers";
const PASSING_ON: &str = "a server that only forwards";
const NGINX: &str = "nginx proxy_pass";
const NGINX_LIMITED: &str = "nginx proxy_pass with limit_req";
const NGINX_DENYING: &str = "nginx limit_req, denying";

/// A limit that nobody reaches, and one that everybody has.
const FAR: &str = "1000000000 per day per ip";
const NEAR: &str = "1 per day per ip";
/// The same in nginx: the rate of the zone, and what else is said of the limit.
const NGINX_FAR: (&str, &str) = ("1000000r/s", "burst=1000000 nodelay");
const NGINX_NEAR: (&str, &str) = ("1r/m", "");

/// How clients ask.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Over HTTP/1.1; each answer is waited for before the next request.
    One,
    /// Over HTTP/1.1, in pipelines.
    Pipelined,
    /// Over HTTP/2, as many streams at a time as a browser or a proxy may have: this is how they ask.
    Streams,
}

impl Way {
    const ALL: [Self; 3] = [Self::One, Self::Pipelined, Self::Streams];

    fn name(self) -> &'static str {
        match self {
            Self::One => "a gateway, 1 KB, 1 under way",
            Self::Pipelined => "a gateway, 1 KB, 8 under way",
            Self::Streams => "a gateway, 1 KB, 8 streams of HTTP/2 under way",
        }
    }

    fn under_way(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Pipelined | Self::Streams => 8,
        }
    }

    /// How `tidegate bench` is told.
    fn words(self) -> &'static [&'static str] {
        match self {
            Self::One | Self::Pipelined => &["http"],
            Self::Streams => &["http", "--http2"],
        }
    }
}

pub(super) fn figures(
    tidegate: &Path,
    cores: Cores,
    effort: Effort,
) -> Result<(Vec<Figure>, Vec<String>), Box<dyn Error>> {
    let behind = behind::start("the server behind", cores.load, &behind::kilobyte())?;
    let ours = gateway(tidegate, &behind, cores.server, FAR)?;
    let denying = gateway(tidegate, &behind, cores.server, NEAR)?;
    let answering = behind::start(ANSWERING, cores.server, &capture::denial(denying.port)?)?;
    let passing_on = between::start(PASSING_ON, cores.server, &behind)?;
    let driver = Driver { tidegate: tidegate.to_owned(), core: cores.load, keys: load::KEYS };
    let (mut figures, mut notes) = (Vec::new(), Vec::new());
    for way in Way::ALL {
        let nginx = |name, limit| nginx(name, &behind, cores.server, limit, way);
        let (plain, _folder) = nginx(NGINX, None)?;
        let (limited, _folder_of_limited) = nginx(NGINX_LIMITED, Some(NGINX_FAR))?;
        let (nginx_denying, _folder_of_denying) = nginx(NGINX_DENYING, Some(NGINX_NEAR))?;
        let (is_one, words) = (way == Way::One, way.words());
        let mut entrants = vec![
            entrant(OURS, &ours, words, None),
            entrant(NGINX, &plain, words, is_one.then_some(0.8)),
            denied(DENYING, &denying, words),
            denied(NGINX_DENYING, &nginx_denying, words),
        ];
        if is_one {
            entrants.push(entrant(NGINX_LIMITED, &limited, words, None));
            entrants.push(entrant(PASSING_ON, &passing_on, words, None));
        }
        // It knows no HTTP/2.
        if way != Way::Streams {
            entrants.push(denied(ANSWERING, &answering, words));
        }
        let scenario = Scenario::closed(way.name(), 16, way.under_way(), entrants);
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
        ("denying, to nginx forwarding", (DENYING, NGINX), None),
        ("a server that only answers, to forwarding", (ANSWERING, OURS), None),
        ("denying, to a server that only answers", (DENYING, ANSWERING), None),
        ("a server that only answers, to one that only forwards", (ANSWERING, PASSING_ON), None),
        ("nginx, denying to forwarding", (NGINX_DENYING, NGINX), None),
        ("denying, to nginx", (DENYING, NGINX_DENYING), None),
    ];
    ratios.into_iter().flat_map(|(name, pair, target)| tried.ratio(name, pair, target)).collect()
}

fn denied(name: &'static str, server: &Server, words: &[&str]) -> Entrant {
    let mut words = load::owned(words);
    words.insert(1, server.address().to_string());
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
    way: Way,
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
    let version = if way == Way::Streams { " http2" } else { "" };
    let settings = format!(
        "daemon off; master_process off; worker_processes 1; pid nginx.pid; error_log error.log crit;
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 1000000000; keepalive_timeout 1h;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi; {zone}
  upstream behind {{ server {server}; keepalive 64; keepalive_requests 1000000000; }}
  server {{
    listen {listen}{version};
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
