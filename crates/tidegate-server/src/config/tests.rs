//! Claims about settings: where they come from, what goes before what, and what is said about mistakes.

use std::path::{Path, PathBuf};

use tidegate_identity::{ForwardedHeader, Source as From, Trust};
use tidegate_rules::Source;

use super::file::{self, parse};
use super::value::{Consistency, Headers, Level, LogFormat, OnStoreFailure, StoreForeignState};
use super::*;

fn settings(layer: Layer) -> Settings {
    Settings::new(layer).unwrap_or_else(|error| panic!("{error}"))
}

fn refused(layer: Layer) -> String {
    Settings::new(layer).unwrap_err().to_string()
}

fn said(text: &str) -> Layer {
    parse(&Source::new("tidegate.yaml", text), Path::new("/etc/tidegate"))
        .unwrap_or_else(|report| panic!("{report}"))
}

fn mistakes(text: &str) -> String {
    let parsed = parse(&Source::new("tidegate.yaml", text), Path::new("/etc/tidegate"));
    parsed.expect_err("there are mistakes in it").to_string()
}

fn address(text: &str) -> Address {
    text.parse().unwrap()
}

#[test]
fn without_any_setting_the_defaults_are_those_of_the_manual() {
    let settings = settings(Layer::default());
    assert_eq!(settings.rules, RulesFrom::Demonstration);
    let addresses = settings.addresses.each().map(|(_, address)| address.to_string());
    assert_eq!(addresses, ["127.0.0.1:8080", "127.0.0.1:8081", "127.0.0.1:6390", "127.0.0.1:8082"]);
    assert_eq!((settings.memory_bytes, settings.state), (64 << 20, None));
    assert_eq!((settings.headers, settings.max_connections), (Headers::All, 16_384));
    assert_eq!((settings.log_format, settings.log_level), (LogFormat::Text, Level::Info));
    let times = (settings.max_delay.as_secs(), settings.drain_timeout.as_secs());
    assert_eq!(times, (1, 10));
    assert!(!settings.shadow && !settings.merge_domains && !settings.names_in_top);
}

#[test]
fn what_stands_above_goes_before_what_is_below() {
    let above = Layer { http: Some(address(":1")), shadow: Some(false), ..Layer::default() };
    let below = said("http: :2\ngrpc: :3\nshadow: true\n");
    let settings = settings(above.over(below));
    let at = |address: &Address| address.to_string();
    assert_eq!(at(&settings.addresses.http), "127.0.0.1:1");
    assert_eq!(at(&settings.addresses.grpc), "127.0.0.1:3");
    assert_eq!(at(&settings.addresses.resp), "127.0.0.1:6390");
    assert!(!settings.shadow);
}

#[test]
fn a_secret_above_goes_before_the_file_of_one_below() {
    let above = Layer { admin_token: Some(Secret::new(b"sesame").unwrap()), ..Layer::default() };
    let below = said("admin_token_file: /nowhere/token\n");
    assert_eq!(settings(above.over(below)).admin_token.unwrap().as_bytes(), b"sesame");
}

#[test]
fn every_setting_has_a_key_in_the_file() {
    let layer = said(
        "
rules: [rules, /srv/more.yaml]
store: memory
consistency: local
on_store_failure: deny
store_required: false
store_deadline: 20ms
store_nodes: 3
store_prefix: limits
store_foreign_state: refuse
store_password_file: store-password
store_ca: ca.pem
store_cert: node.pem
store_key: node.key
secret_file: secret
store_ranges: { attribute: user, ranges: [{ from: 1, group: 1 }] }
memory: 1GiB
state: state/limits
shadow: true
http: 0.0.0.0:8080
grpc: unix:/run/tidegate/grpc.sock
resp: off
admin: :0
headers: ietf
log_format: json
log_level: debug
admin_token_file: token
resp_password_file: password
max_delay: 250ms
max_connections: 100
drain_timeout: 1m
merge_domains: yes
names_in_top: true
",
    );
    assert!(layer.limit.is_none() && layer.identity.is_none());
    assert_eq!(
        layer.rules,
        Some(["/etc/tidegate/rules", "/srv/more.yaml"].map(PathBuf::from).into())
    );
    assert_eq!(layer.state.as_deref(), Some(Path::new("/etc/tidegate/state/limits")));
    assert_eq!(layer.admin_token_file.as_deref(), Some(Path::new("/etc/tidegate/token")));
    assert_eq!(layer.resp_password_file.as_deref(), Some(Path::new("/etc/tidegate/password")));
    assert_eq!((layer.memory.map(Size::bytes), layer.resp), (Some(1 << 30), Some(Address::Off)));
    assert_eq!(layer.grpc, Some(address("unix:/run/tidegate/grpc.sock")));
    let store = layer.store;
    assert_eq!(store.store.as_deref().map(|urls| urls[0].to_string()), Some("memory".to_owned()));
    assert_eq!((store.consistency, store.on_store_failure), {
        (Some(Consistency::Local), Some(OnStoreFailure::Deny))
    });
    assert_eq!(
        (store.store_required, store.store_prefix.as_deref()),
        (Some(false), Some("limits"))
    );
    assert_eq!(store.store_foreign_state, Some(StoreForeignState::Refuse));
    assert_eq!(store.store_deadline.map(Time::duration), Some(Duration::from_millis(20)));
    assert_eq!(store.store_nodes.map(Count::number), Some(3));
    let files = [store.store_password_file, store.store_ca, store.store_cert, store.store_key];
    let names = ["store-password", "ca.pem", "node.pem", "node.key"];
    assert_eq!(files, names.map(|name| Some(Path::new("/etc/tidegate").join(name))));
    assert!(store.secret_file.is_some() && store.store_ranges.is_some());
    assert_eq!((layer.headers, layer.log_level), (Some(Headers::Ietf), Some(Level::Debug)));
    assert_eq!(layer.max_delay.map(Time::duration), Some(Duration::from_millis(250)));
    assert_eq!((layer.merge_domains, layer.names_in_top), (Some(true), Some(true)));
    assert_eq!(said("limit: 5/s per ip").limit, Some("5/s per ip".parse().unwrap()));
}

#[test]
fn a_file_that_says_nothing_is_no_mistake() {
    for text in ["", "# nothing yet\n", "http:\nidentity: ~\n"] {
        let layer = said(text);
        assert!(layer.http.is_none() && layer.identity.is_none(), "{text:?}");
    }
}

#[test]
fn mistakes_in_the_file_are_told_all_at_once_with_their_places() {
    let report = mistakes(
        "htpp: 127.0.0.1:8080\nmemory: lots\nshadow: maybe\nmax_connections: 0\nlog_level: loud\nidentity:\n  proxis: {}\n",
    );
    let expected = "\
error: unknown field `htpp`
 --> tidegate.yaml:1:1
  |
1 | htpp: 127.0.0.1:8080
  | ^^^^
  = help: did you mean `http`?

error: `memory` cannot be `lots`
 --> tidegate.yaml:2:9
  |
2 | memory: lots
  |         ^^^^
  = help: write a size such as `64MiB`, `1GiB` or `500MB`

error: `shadow` must be `true` or `false`, not `maybe`
 --> tidegate.yaml:3:9
  |
3 | shadow: maybe
  |         ^^^^^
  = help: write `true` or `false`

error: `max_connections` cannot be `0`
 --> tidegate.yaml:4:18
  |
4 | max_connections: 0
  |                  ^
  = help: write a number from 1 on, such as `1000`

error: `log_level` cannot be `loud`
 --> tidegate.yaml:5:12
  |
5 | log_level: loud
  |            ^^^^
  = help: write `error`, `warn`, `info`, `debug` or `trace`

error: unknown field `proxis`
 --> tidegate.yaml:7:3
  |
7 |   proxis: {}
  |   ^^^^^^
  = help: did you mean `proxies`?
";
    assert_eq!(report, expected);
}

#[test]
fn a_second_document_and_what_is_no_mapping_are_told() {
    assert!(mistakes("http: :1\n---\ngrpc: :2\n").contains("there is a second document"));
    assert!(mistakes("- http\n").contains("the settings file must be a mapping, not a list"));
    assert!(
        mistakes("http: [\n").contains("tidegate.yaml:"),
        "text that is no YAML has a place too"
    );
}

#[test]
fn identity_settings_become_those_of_the_requests() {
    let layer = said(
        "
identity:
  proxies: { networks: [10.0.0.0/8, 'fd00::/8'], header: forwarded, local_peer_trusted: true }
  address: { ipv4_prefix: 24, ipv6_prefix: 56, translators: ['64:ff9b::/96'], whole: true }
  api_key: [header.x-api-key, query.key, bearer]
  extract: { tenant: header.x-tenant, page: query.page }
  country: { table: { 192.0.2.0/24: DE } }
",
    );
    let identity = layer.identity.expect("settings");
    assert!(matches!(&identity.proxies.trust, Trust::Networks(networks) if networks.len() == 2));
    assert_eq!(identity.proxies.header, ForwardedHeader::Forwarded);
    assert!(identity.proxies.local_peer_trusted && identity.address.whole);
    assert_eq!((identity.address.ipv4_prefix, identity.address.ipv6_prefix), (24, 56));
    assert_eq!(identity.api_key[1], From::Query("key".into()));
    let names: Vec<&str> = identity.extract.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["tenant", "page"]);
    assert_eq!(identity.country.table.len(), 1);

    let unnamed = said("identity: { extract: [header.x-tenant], proxies: { hops: 2 } }");
    let identity = unnamed.identity.expect("settings");
    assert_eq!(identity.extract[0].name, "header.x-tenant");
    assert!(matches!(identity.proxies.trust, Trust::Hops(2)));
}

#[test]
fn token_keys_are_read_from_files_beside_the_settings() {
    let folder = std::env::temp_dir().join(format!("tidegate-keys-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("secret"), "an example secret of 32 bytes...\n").unwrap();
    let text = "
identity:
  token:
    keys: [{ secret_file: secret, kid: first }]
    claims: { user: sub, plan: org.plan }
    issuers: https://issuer.example
    audiences: [limits]
    leeway: 5s
    expiry_required: false
";
    let layer = parse(&Source::new("tidegate.yaml", text), &folder);
    std::fs::remove_dir_all(&folder).unwrap();
    let token = layer.unwrap_or_else(|report| panic!("{report}")).identity.unwrap().token.unwrap();
    assert_eq!((token.keys.len(), token.claims.len()), (1, 2));
    assert_eq!((token.issuers.len(), token.audiences.len()), (1, 1));
    assert_eq!((token.leeway, token.expiry_required), (tidegate::Span::from_secs(5), false));
}

#[test]
fn mistakes_of_identity_point_at_their_line() {
    for (text, place, words) in [
        (
            "identity:\n  proxies:\n    networks: [10.0.0.0/8, 0.0.0.0/0]",
            "3:28",
            "too wide to trust",
        ),
        ("identity:\n  proxies:\n    networks: [ten]", "3:16", "`ten` is no network"),
        ("identity: { proxies: { networks: [], hops: 1 } }", "1:44", "both say whom to trust"),
        ("identity:\n  address: { ipv6_prefix: 16 }", "2:27", "out of range"),
        ("identity:\n  extract: { a: header.cookie }", "2:17", "holds a credential"),
        ("identity:\n  extract: { a: body.name }", "2:17", "write `header.NAME`"),
        ("identity:\n  token: { keys: [{ pem_file: no.pem }] }", "2:31", "cannot be read"),
        ("identity:\n  token: { keys: [{ kid: a }] }", "2:19", "a key is in one file"),
        ("identity:\n  token: { claims: {} }", "2:10", "`keys` is missing"),
        ("identity:\n  country: { database: no.mmdb }", "2:24", "/etc/tidegate/no.mmdb"),
    ] {
        let report = mistakes(text);
        assert!(report.contains(&format!("tidegate.yaml:{place}\n")), "{text}\n{report}");
        assert!(report.contains(words), "{text}\n{report}");
    }
}

#[test]
fn the_example_is_a_file_that_can_be_used() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/tidegate.yaml");
    let layer = file::read(&path).unwrap_or_else(|error| panic!("{error}"));
    assert!(layer.rules.is_some() && layer.identity.is_some());
    let rules = layer.rules.clone().unwrap();
    tidegate_files::read(&rules).expect("the rules that it names are there");
    settings(layer);
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let refused = |text: &str| refused(said(text));
    for (text, words) in [
        ("{ rules: a.yaml, limit: 1/s per ip }", "rules from files and one from --limit"),
        ("rules: []", "the list of rules is empty"),
        ("store: redis://localhost", "`openssl rand -hex 32`"),
        ("store: [memory, rediss://localhost]", "there is `memory` and a store beside it"),
        ("store: [redis://a, redis://x:y@a]", "redis://a is there twice"),
        ("secret_file: nowhere", "--secret-file: /etc/tidegate/nowhere: "),
        ("consistency: strict", "need a store that several nodes share"),
        ("{ http: ':7', grpc: ':7' }", "--http and --grpc are both 127.0.0.1:7"),
        ("{ resp: unix:/a, admin: unix:/a }", "--resp and --admin are both unix:/a"),
        ("{ http: off, grpc: off, resp: off }", "nobody could ask anything"),
        ("max_delay: 2m", "--max-delay is too long: at most 60s"),
        ("drain_timeout: 1h", "--drain-timeout is too long: at most 600s"),
        ("max_connections: 1000001", "--max-connections is too large"),
        ("admin_token_file: nowhere", "--admin-token-file: /etc/tidegate/nowhere: "),
    ] {
        let message = refused(text);
        assert!(message.contains(words), "{text}: {message}");
    }
    let zero = said("{ http: ':0', grpc: ':0', resp: ':0', admin: ':0' }");
    assert!(Settings::new(zero).is_ok(), "port 0 is another one each time");
}

/// A layer with a secret, and what else this says.
fn with_secret(text: &str) -> Layer {
    let mut layer = said(text);
    layer.store.secret = Some(Secret::new(b"0123456789abcdef").unwrap());
    layer
}

#[test]
fn a_store_that_nodes_share_has_the_defaults_of_the_manual() {
    let settings = settings(with_secret("store: redis://localhost"));
    let store = settings.store.expect("a store");
    assert_eq!((store.consistency, store.on_failure), (Consistency::Strict, OnStoreFailure::Local));
    assert_eq!((store.is_required, store.deadline), (true, Duration::from_millis(10)));
    assert!(settings.secret.is_some());
    let memory = self::settings(with_secret("store: memory"));
    assert!(memory.store.is_none() && memory.secret.is_some());
}

#[test]
fn a_store_that_has_long_to_answer_has_as_long_to_connect() {
    for (deadline, timeout) in [("10ms", "connect_timeout: 1s,"), ("9s", "connect_timeout: 9s,")] {
        let text = format!("{{ store: 'redis://localhost', store_deadline: {deadline} }}");
        let store = settings(with_secret(&text)).store.expect("a store");
        let config = format!("{:?}", store.config(&store.urls[0]).unwrap());
        assert!(config.contains(timeout), "{config}");
    }
}

#[test]
fn settings_of_a_store_that_contradict_each_other_are_refused() {
    for (text, words) in [
        ("store_deadline: 0", "--store-deadline is from 1ms to 10s"),
        ("store_nodes: 10001", "--store-nodes is at most 10000"),
        ("store_deadline: 11s", "--store-deadline is from 1ms to 10s"),
        ("store_cert: a.pem", "--store-cert and --store-key go together"),
        ("store_ca: a.pem", "write its URL with `rediss://`"),
        ("store_password_file: nowhere", "--store-password-file: /etc/tidegate/nowhere: "),
        (
            "store_ranges: { attribute: user, ranges: [{ from: 1, group: 2 }] }",
            "a range names a group beyond the 1 that --store names",
        ),
    ] {
        let message = refused(with_secret(&format!("store: redis://localhost\n{text}")));
        assert!(message.contains(words), "{text}: {message}");
    }
    let mut short = said("store: redis://localhost");
    short.store.secret = Some(Secret::new(b"fifteen letters").unwrap());
    assert!(refused(short).contains("a secret has at least 16 characters"));
}

#[test]
fn groups_are_given_ranges_of_an_attribute_and_counted_from_one() {
    let text = "
store: [redis://a, redis://b]
store_ranges:
  attribute: user
  ranges: [{ from: 1, to: 5000, group: 1 }, { from: 5001, group: 2 }]
";
    let ranges = settings(with_secret(text)).store.unwrap().ranges.unwrap();
    assert_eq!(ranges.attribute, "user");
    assert_eq!(ranges.ranges, [(1..=5000, 0), (5001..=u64::MAX, 1)]);
    for (list, words) in [
        ("{ from: 1, group: 0 }", "there is no such group"),
        ("{ from: 9, to: 1, group: 1 }", "the range ends before it begins"),
        ("{ from: 1, group: 1 }, { from: 5, to: 6, group: 2 }", "have a number in common"),
        ("{ to: 1, group: 1 }", "`from` is missing"),
    ] {
        let report = mistakes(&format!("store_ranges: {{ attribute: user, ranges: [{list}] }}"));
        assert!(report.contains(words), "{list}\n{report}");
    }
}

#[test]
fn no_password_of_a_store_shows() {
    let report = mistakes("store: redsi://:hunter2@localhost\n");
    assert!(report.contains("what `store` names is no store"), "{report}");
    assert!(!report.contains("hunter2"), "{report}");
    let layer = with_secret("store: redis://:hunter2@localhost");
    assert!(!format!("{layer:?}{:?}", settings(layer.clone())).contains("hunter2"));
}

#[test]
fn a_secret_comes_from_one_place() {
    let token = Some(Secret::new(b"sesame").unwrap());
    let layer =
        Layer { admin_token_file: Some("a".into()), admin_token: token, ..Layer::default() };
    let message = refused(layer);
    assert!(message.contains("--admin-token-file and from TIDEGATE_ADMIN_TOKEN"), "{message}");
}
