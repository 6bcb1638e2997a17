//! What `docs/migrating.md` says about other limiters, seen beside them: as many requests pass, one by one,
//! under their settings and under the rules that the page gives for them.

use std::ffi::OsStr;
use std::process::Command;
use std::thread;
use std::time::Duration;

use tidegate_testing::seen_within;

use crate::page::{block, folder};
use crate::stage::Stage;
use crate::{envoy, nginx};

const PAGE: &str = "../migrating.md";
/// In less nothing comes back under the limits of the page.
const FIVE_SECONDS: Duration = Duration::from_secs(5);

/// Ours in the place of the proxy, by the command of the page and with flags that it names beside that.
fn gateway(name: &str, rules: &str, flags: &str) -> Stage {
    let mut stage = Stage::set(name);
    let rules = stage.write_text("moved.yaml", rules);
    let command = stage.places.put_into(&command());
    let words = command.strip_prefix("tidegate ").expect("a command of ours");
    let word = |word| if word == "rules.yaml" { rules.as_os_str() } else { OsStr::new(word) };
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    // The page leaves the admin address where it is; here several of them run at a time.
    command.args(words.split(' ').map(word)).args(["--admin", "off"]);
    command.args(flags.split_whitespace());
    stage.start_proxy(&mut command);
    stage
}

/// The command that takes nginx's place on the page.
fn command() -> String {
    let text = text();
    let command = text.split('`').find(|code| code.starts_with("tidegate gateway "));
    command.expect("a command on the page").to_owned()
}

/// The words in code of a row in one of the page's tables, by those of its first column.
fn row(first: &str) -> Vec<String> {
    let text = text();
    let begins = format!("| `{first}` |");
    let row = text.lines().find(|line| line.starts_with(&begins)).expect("a row of the page");
    row.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn text() -> String {
    std::fs::read_to_string(folder().join(PAGE)).expect("the page")
}

/// The statuses of so many requests of one client, one after the other.
fn statuses(stage: &Stage, path: &str, requests: usize) -> Vec<u16> {
    (0..requests).map(|_| stage.alice().get(path).status).collect()
}

#[test]
fn a_rule_lets_through_what_nginx_lets_through() {
    let theirs = || nginx::with(Stage::set("moved-nginx"), &block(PAGE, "limit_req.conf"));
    let ours = || gateway("moved-from-nginx", &block(PAGE, "limit_req.yaml"), "");
    // Another client has its own.
    let expected = ([[200; 6].as_slice(), &[429; 4]].concat(), 200);
    let see = |stage: &Stage| (statuses(stage, "/login", 10), stage.bob().get("/login").status);
    assert_eq!(seen_within(FIVE_SECONDS, theirs, see), expected);
    assert_eq!(seen_within(FIVE_SECONDS, ours, see), expected);
}

/// How many of so many requests at once pass through nginx with these words, and through ours with this limit.
fn passed_at_once(name: &str, requests: usize, theirs: [&str; 2], ours: [&str; 2]) -> [usize; 2] {
    let ([rate, burst], [limit, flags]) = (theirs, ours);
    let conf = format!(
        "limit_req_zone $binary_remote_addr zone=one:1m rate={rate};
        server {{
            listen 127.0.0.1:8000;
            location / {{ limit_req zone=one {burst}; limit_req_status 429; proxy_pass http://127.0.0.1:9000; }}
        }}"
    );
    let rules = format!("{{ domain: web, rules: [ {{ name: all, per: [ip], limit: {limit} }} ] }}");
    let theirs = nginx::with(Stage::set(&format!("{name}-nginx")), &conf);
    let ours = gateway(name, &rules, flags);
    thread::scope(|scope| {
        let ask = |stage: &Stage| {
            let client = stage.alice();
            let one = |_| scope.spawn(move || client.get("/").status);
            (0..requests).map(one).collect::<Vec<_>>()
        };
        let asked = [&theirs, &ours].map(ask);
        asked.map(|asked| {
            let statuses = asked.into_iter().map(|one| one.join().expect("an answer"));
            statuses.filter(|status| *status == 200).count()
        })
    })
}

/// nginx counts the request that is under way beside those that wait, and the page adds it. Ours is with what the
/// page says and no more.
#[test]
fn a_leaky_bucket_queues_as_many_as_nginx_does() {
    let row = row("burst=20");
    let [burst, limit, flags, ..] = &row[..] else { panic!("a limit and a flag: {row:?}") };
    let passed = passed_at_once("moved-from-nginx-row", 21, ["10r/s", burst], [limit, flags]);
    assert_eq!(passed, [21, 21]);
}

#[test]
fn a_leaky_bucket_refuses_as_many_as_nginx_does() {
    // All of them within the three seconds after which the next one would find room.
    let (theirs, ours) =
        (["20r/m", "burst=2"], ["20/minute leaky-bucket burst 3", "--max-delay 6s"]);
    assert_eq!(passed_at_once("moved-from-nginx-queue", 6, theirs, ours), [3, 3]);
}

#[test]
fn a_rule_lets_through_what_envoys_local_filter_lets_through() {
    let filter = block(PAGE, "local_ratelimit.yaml").replace('\n', "\n            ");
    let conf = ENVOY.replace("FILTER", filter.trim_end());
    let theirs = || envoy::with(Stage::set("moved-envoy"), &conf);
    let ours = || gateway("moved-from-envoy", &block(PAGE, "local_ratelimit_rules.yaml"), "");
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
