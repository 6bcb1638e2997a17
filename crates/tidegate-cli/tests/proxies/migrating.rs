//! What `docs/migrating.md` says about other limiters, seen beside them: as many requests pass, one by one,
//! under their settings and under the rules that the page gives for them.

use std::process::Command;
use std::thread;
use std::time::Duration;

use tidegate_testing::seen_within;

use crate::page::block;
use crate::stage::Stage;
use crate::{envoy, nginx};

const PAGE: &str = "../migrating.md";
/// In less nothing comes back under the limits of the page.
const FIVE_SECONDS: Duration = Duration::from_secs(5);

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
    let theirs = || nginx::with(Stage::set("moved-nginx"), &block(PAGE, "limit_req.conf"));
    let ours = || gateway("moved-from-nginx", &block(PAGE, "limit_req.yaml"));
    // Another client has its own.
    let expected = ([[200; 6].as_slice(), &[429; 4]].concat(), 200);
    let see = |stage: &Stage| (statuses(stage, "/login", 10), stage.bob().get("/login").status);
    assert_eq!(seen_within(FIVE_SECONDS, theirs, see), expected);
    assert_eq!(seen_within(FIVE_SECONDS, ours, see), expected);
}

/// nginx counts the request that is under way beside those that wait, and the page adds it.
#[test]
fn a_leaky_bucket_queues_as_many_as_nginx_does() {
    const REQUESTS: usize = 6;
    let conf = "
        limit_req_zone $binary_remote_addr zone=one:1m rate=20r/m;
        server {
            listen 127.0.0.1:8000;
            location / { limit_req zone=one burst=2; limit_req_status 429; proxy_pass http://127.0.0.1:9000; }
        }";
    let rules = "{ domain: web, rules: [ { name: all, per: [ip], limit: 20/minute leaky-bucket burst 3 } ] }";
    let theirs = nginx::with(Stage::set("moved-nginx-queue"), conf);
    let ours = gateway("moved-from-nginx-queue", rules);
    // All of them within the three seconds after which the next one would find room.
    let passed = thread::scope(|scope| {
        let asked = [&theirs, &ours].map(|stage| {
            let client = stage.alice();
            [(); REQUESTS].map(|()| scope.spawn(move || client.get("/").status))
        });
        asked.map(|asked| {
            let statuses = asked.map(|one| one.join().expect("an answer"));
            statuses.into_iter().filter(|status| *status == 200).count()
        })
    });
    assert_eq!(passed, [3, 3]);
}

#[test]
fn a_rule_lets_through_what_envoys_local_filter_lets_through() {
    let filter = block(PAGE, "local_ratelimit.yaml").replace('\n', "\n            ");
    let conf = ENVOY.replace("FILTER", filter.trim_end());
    let theirs = || envoy::with(Stage::set("moved-envoy"), &conf);
    let ours = || gateway("moved-from-envoy", &block(PAGE, "local_ratelimit_rules.yaml"));
    // All clients share it.
    let expected = ([[200; 20].as_slice(), &[429; 3]].concat(), 429);
    let see = |stage: &Stage| (statuses(stage, "/", 23), stage.bob().get("/").status);
    assert_eq!(seen_within(FIVE_SECONDS, theirs, see), expected);
    assert_eq!(seen_within(FIVE_SECONDS, ours, see), expected);
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
