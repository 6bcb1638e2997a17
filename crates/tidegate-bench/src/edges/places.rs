//! What each place for the limiter adds to the time that a client waits: in the process of the service, in
//! front of it as a gateway, or beside a proxy as a daemon. One app, and one and the same load at a rate that
//! everybody takes easily, so that nobody waits for a turn.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use super::served::{self, Around};
use crate::targets::Figure;
use crate::wire::load::{self, Driver};
use crate::wire::scenario::Scenario;
use crate::wire::server::{Cores, Server, free_port, local};
use crate::wire::{Effort, entrant};

/// Requests per second. A chain of three servers on one core takes several times as many.
const RATE: f64 = 1_000.0;

/// Never reached, as in the app.
const LIMIT: &str = "1000000000/day per ip";

const APP: &str = "the app alone";
const LAYER: &str = "tidegate layer around the app";
const GATEWAY: &str = "tidegate gateway before the app";
const NGINX: &str = "nginx before the app";
const ASKING: &str = "nginx before the app, asking tidegate";

pub(super) fn figures(
    tidegate: &Path,
    cores: Cores,
    effort: Effort,
) -> Result<Vec<Figure>, Box<dyn Error>> {
    let folder = Folder::new()?;
    let app = served::start(Around::Nothing, APP, cores.server)?;
    let layer = served::start(Around::Tidegate, LAYER, cores.server)?;
    let start = |name: &str, program: &Path, words: &[&str], port| {
        let words: Vec<String> = words.iter().copied().map(ToOwned::to_owned).collect();
        Server::start(name, program, &words, port, cores.server, &[])
    };
    let gateway = {
        let port = free_port()?;
        let (listen, upstream) = (local(port).to_string(), format!("http://{}", app.address()));
        let words =
            ["gateway", "--listen", &listen, "--upstream", &upstream, "--limit", LIMIT, "--admin"];
        start(GATEWAY, tidegate, &[&words[..], &["off"]].concat(), port)?
    };
    let daemon = {
        let port = free_port()?;
        let settings = folder.write("tidegate.yaml", &settings(port))?;
        start("tidegate serve", tidegate, &["serve", "--config", &settings], port)?
    };
    let nginx = |name: &str, daemon: Option<&Server>| {
        let port = free_port()?;
        let file = format!("{port}.conf");
        let path = folder.write(&file, &folder.nginx(port, &app, daemon))?;
        start(name, Path::new("nginx"), &["-c", &path], port)
    };
    let (plain, asking) = (nginx(NGINX, None)?, nginx(ASKING, Some(&daemon))?);
    let entrants = [(LAYER, &layer), (APP, &app), (GATEWAY, &gateway), (NGINX, &plain)];
    let entrants = entrants.into_iter().chain([(ASKING, &asking)]);
    let entrants = entrants.map(|(name, server)| entrant(name, server, &["http"], None)).collect();
    let driver = Driver { tidegate: tidegate.to_owned(), core: cores.load, keys: load::KEYS };
    let scenario = Scenario::open(format!("at {RATE} requests per second"), RATE, entrants);
    Ok(scenario.run(&driver, effort)?.typical_latency())
}

fn settings(port: u16) -> String {
    let http = local(port);
    format!(
        "http: {http}\ngrpc: 'off'\nresp: 'off'\nadmin: 'off'\nlimit: {LIMIT}\n\
         identity: {{ proxies: {{ networks: [127.0.0.1/32] }} }}\n"
    )
}

/// Files that are gone when the run is over.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, Box<dyn Error>> {
        let path = std::env::temp_dir().join(format!("tidegate-bench-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    fn write(&self, name: &str, text: &str) -> Result<String, Box<dyn Error>> {
        let path = self.0.join(name);
        fs::write(&path, text)?;
        Ok(path.display().to_string())
    }

    /// What `docs/proxies/nginx.md` says, without what a request that passes does not meet.
    fn nginx(&self, port: u16, app: &Server, daemon: Option<&Server>) -> String {
        let folder = self.0.display();
        let keep = "proxy_http_version 1.1; proxy_set_header Connection ''";
        let (asks, asked) = match daemon {
            Some(daemon) => (
                "auth_request /_tidegate; \
                 auth_request_set $standing $upstream_http_ratelimit; \
                 add_header RateLimit $standing always;",
                format!("upstream tidegate {{ server {}; keepalive 32; }}", daemon.address()),
            ),
            None => ("", String::new()),
        };
        let question = daemon.map_or_else(String::new, |_| {
            format!(
                "location = /_tidegate {{ internal; {keep}; \
                 proxy_pass 'http://tidegate/v1/auth?domain=default&dialect=nginx'; \
                 proxy_pass_request_body off; proxy_set_header Content-Length ''; \
                 proxy_set_header X-Original-Method $request_method; \
                 proxy_set_header X-Original-URI $request_uri; \
                 proxy_set_header X-Original-Host $host; \
                 proxy_set_header X-Forwarded-For $remote_addr; }}"
            )
        });
        format!(
            "daemon off; master_process off; pid {folder}/{port}.pid; error_log stderr crit;\n\
             events {{ }}\n\
             http {{ access_log off; client_body_temp_path {folder}; proxy_temp_path {folder};\n\
             fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};\n\
             keepalive_requests 1000000000;\n\
             upstream app {{ server {}; keepalive 32; }} {asked}\n\
             server {{ listen {}; location / {{ {asks} {keep}; proxy_pass http://app; }} {question} }} }}\n",
            app.address(),
            local(port),
        )
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays behind is a few small files among others like it.
        let _ = fs::remove_dir_all(&self.0);
    }
}
