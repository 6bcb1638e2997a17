//! What `docs/migrating.md` says about other limiters, seen beside them: as many requests pass, one by one,
//! under their settings and under the rules that the page gives for them.

use std::process::Command;
use std::thread;

use crate::page::block;
use crate::stage::Stage;
use crate::{envoy, nginx};

const PAGE: &str = "../migrating.md";

/// Ours in the place of the proxy.
fn gateway(name: &str, rules: &str) -> Stage {
    let mut stage = Stage::set(name);
    let rules = stage.write_text("moved.yaml", rules);
    let words = "gateway --listen 127.0.0.1:8000 --upstream http://127.0.0.1:9000 --domain web \
                 --admin off --max-delay 30s";
    let words = stage.places.put_into(words);
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    stage.start_proxy(command.args(words.split(' ')).arg("--rules").arg(rules));
    stage
}

/// The statuses of so many requests of one client, one after the other.
fn statuses(stage: &Stage, path: &str, requests: usize) -> Vec<u16> {
    (0..requests).map(|_| stage.alice().get(path).status).collect()
}

#[test]
fn a_rule_lets_through_what_nginx_lets_through() {
    let theirs = nginx::with(Stage::set("moved-nginx"), &block(PAGE, "limit_req.conf"));
    let ours = gateway("moved-from-nginx", &block(PAGE, "limit_req.yaml"));
    let expected = [[200; 6].as_slice(), &[429; 4]].concat();
    for stage in [theirs, ours] {
        assert_eq!(statuses(&stage, "/login", 10), expected);
        assert_eq!(stage.bob().get("/login").status, 200, "another client has its own");
    }
}

/// nginx counts the request that is under way beside those that wait, and the page adds it.
#[test]
fn a_leaky_bucket_queues_as_many_as_nginx_does() {
    const REQUESTS: usize = 6;
    let conf = "
        limit_req_zone $binary_remote_addr zone=one:1m rate=1r/s;
        server {
            listen 127.0.0.1:8000;
            location / { limit_req zone=one burst=2; limit_req_status 429; proxy_pass http://127.0.0.1:9000; }
        }";
    let rules =
        "{ domain: web, rules: [ { name: all, per: [ip], limit: 1/s leaky-bucket burst 3 } ] }";
    let theirs = nginx::with(Stage::set("moved-nginx-queue"), conf);
    let ours = gateway("moved-from-nginx-queue", rules);
    for stage in [theirs, ours] {
        let passed = thread::scope(|scope| {
            let client = stage.alice();
            let asked: Vec<_> =
                (0..REQUESTS).map(|_| scope.spawn(move || client.get("/").status)).collect();
            let statuses = asked.into_iter().map(|one| one.join().expect("an answer"));
            statuses.filter(|status| *status == 200).count()
        });
        assert_eq!(passed, 3);
    }
}

#[test]
fn a_rule_lets_through_what_envoys_local_filter_lets_through() {
    let filter = block(PAGE, "local_ratelimit.yaml").replace('\n', "\n            ");
    let conf = ENVOY.replace("FILTER", filter.trim_end());
    let theirs = envoy::with(Stage::set("moved-envoy"), &conf);
    let ours = gateway("moved-from-envoy", &block(PAGE, "local_ratelimit_rules.yaml"));
    let expected = [[200; 20].as_slice(), &[429; 3]].concat();
    for stage in [theirs, ours] {
        assert_eq!(statuses(&stage, "/", 23), expected);
        assert_eq!(stage.bob().get("/").status, 429, "all clients share it");
    }
}

/// What is around the filter.
const ENVOY: &str = r#"
static_resources:
  listeners:
  - address: { socket_address: { address: 127.0.0.1, port_value: 8000 } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: http
          route_config:
            virtual_hosts:
            - { name: all, domains: ["*"], routes: [ { match: { prefix: / }, route: { cluster: app } } ] }
          http_filters:
          - FILTER
          - name: envoy.filters.http.router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
  clusters:
  - name: app
    load_assignment:
      cluster_name: app
      endpoints:
      - lb_endpoints:
        - endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 9000 } } }
"#;
