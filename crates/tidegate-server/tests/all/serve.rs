//! The daemon as one: every setting reaches the protocol that it is for, and what operators change is kept.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tidegate_server::config::secret::Secret;
use tidegate_server::config::value::{EnvoyHeaders, Headers};
use tidegate_server::config::{Layer, Settings};
use tidegate_server::listen::{Address, Inherited, Service};
use tidegate_server::log::LogLevel;
use tidegate_server::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tidegate_server::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use tidegate_server::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use tidegate_server::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tidegate_server::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tidegate_server::serve::{Running, StartError, start};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const TOKEN: &str = "correct-horse-battery";

/// An empty folder, removed with this value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("tidegate-serve-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn try_serve(layer: Layer) -> Result<Running, StartError> {
    let free = || Some("127.0.0.1:0".parse::<Address>().unwrap());
    let ports =
        Layer { http: free(), grpc: free(), resp: free(), admin: free(), ..Layer::default() };
    let settings = Settings::new(layer.over(ports)).unwrap();
    start(settings, Inherited::none(), LogLevel::unused()).await
}

async fn serve(layer: Layer) -> Running {
    try_serve(layer).await.unwrap_or_else(|error| panic!("{error}"))
}

fn rules_at(path: &Path, text: &str) -> Layer {
    std::fs::write(path, text).unwrap();
    Layer { rules: Some(vec![path.to_path_buf()]), ..Layer::default() }
}

fn limit(text: &str) -> Layer {
    Layer { limit: Some(text.parse().unwrap()), ..Layer::default() }
}

fn address(daemon: &Running, service: Service) -> String {
    daemon.address(service).unwrap().to_string()
}

/// What is answered to these very bytes, until the end of the connection.
async fn exchange(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

/// The status, the head in small letters, and the body.
async fn http(address: &str, line: &str, headers: &str, body: &str) -> (u16, String, String) {
    let length = body.len();
    let request = format!(
        "{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
    );
    let answer = exchange(address, &request).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_lowercase(), body.to_owned())
}

async fn get(address: &str, path: &str) -> (u16, String, String) {
    http(address, &format!("GET {path}"), "", "").await
}

async fn send(address: &str, line: &str, body: Value) -> (u16, Value) {
    let json = "content-type: application/json\r\n";
    let (status, _, body) = http(address, line, json, &body.to_string()).await;
    (status, serde_json::from_str(&body).unwrap())
}

async fn ask_envoy(daemon: &Running, domain: &str, key: &str, value: &str) -> RateLimitResponse {
    let address = address(daemon, Service::Grpc);
    let mut client = RateLimitServiceClient::connect(format!("http://{address}")).await.unwrap();
    let entries = vec![Entry { key: key.to_owned(), value: value.to_owned() }];
    let descriptors = vec![RateLimitDescriptor { entries, ..Default::default() }];
    let request = RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 1 };
    client.should_rate_limit(request).await.unwrap().into_inner()
}

#[tokio::test]
async fn the_set_of_headers_is_that_of_the_settings() {
    for (headers, ietf, older) in [
        (Headers::All, true, true),
        (Headers::Ietf, true, false),
        (Headers::XRateLimit, false, true),
        (Headers::None, false, false),
    ] {
        let daemon = serve(Layer { headers: Some(headers), ..limit("1/day per key") }).await;
        let http = address(&daemon, Service::Http);
        for status in [200, 429] {
            let (found, head, _) = get(&http, "/limit/ann").await;
            assert_eq!(found, status, "{headers}");
            let has = |name: &str| head.contains(&format!("\r\n{name}: "));
            assert_eq!((has("ratelimit"), has("ratelimit-policy")), (ietf, ietf), "{head}");
            assert_eq!(has("x-ratelimit-limit"), older, "{head}");
            assert_eq!(has("retry-after"), status == 429, "{head}");
        }
        daemon.shutdown().await;
    }
}

#[tokio::test]
async fn envoy_is_asked_to_add_the_headers_of_the_settings() {
    for (headers, allowed, denied) in [
        (EnvoyHeaders::None, &[][..], &[][..]),
        (
            EnvoyHeaders::Reference,
            &["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"],
            &["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"],
        ),
        (
            EnvoyHeaders::XRateLimit,
            &["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"],
            &["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After"],
        ),
    ] {
        let layer = Layer { envoy_headers: Some(headers), ..limit("1/day per user") };
        let daemon = serve(layer).await;
        for (code, names) in [(Code::Ok, allowed), (Code::OverLimit, denied)] {
            let answer = ask_envoy(&daemon, "default", "user", "42").await;
            assert_eq!(answer.overall_code(), code, "{headers}");
            let added: Vec<&str> =
                answer.response_headers_to_add.iter().map(|one| one.key.as_str()).collect();
            assert_eq!(added, names, "{headers}");
        }
        daemon.shutdown().await;
    }
}

#[tokio::test]
async fn nobody_is_held_back_for_longer_than_the_settings_say() {
    // The second of two would be let go a day after the first.
    let layer = Layer {
        max_delay: Some("60s".parse().unwrap()),
        envoy_headers: Some(EnvoyHeaders::XRateLimit),
        ..limit("1/day leaky-bucket burst 2 per key")
    };
    let daemon = serve(layer).await;
    let http = address(&daemon, Service::Http);
    assert_eq!(get(&http, "/limit/ann").await.0, 200);
    let (status, head, _) = get(&http, "/limit/ann").await;
    assert_eq!(status, 429);
    // Whoever comes back then waits for as long as may be, and that is by this setting.
    let is_told = |wait: &str| (86_000..=86_340).contains(&wait.parse::<u32>().unwrap());
    let wait = head.lines().find_map(|line| line.strip_prefix("retry-after: "));
    assert!(is_told(wait.unwrap()), "{head}");
    assert_eq!(ask_envoy(&daemon, "default", "key", "bob").await.overall_code(), Code::Ok);
    let answer = ask_envoy(&daemon, "default", "key", "bob").await;
    assert_eq!(answer.overall_code(), Code::OverLimit);
    let headers = &answer.response_headers_to_add;
    let wait = headers.iter().find(|one| one.key == "Retry-After").unwrap();
    assert!(is_told(&wait.value), "{headers:?}");
    daemon.shutdown().await;
}

#[tokio::test]
async fn the_token_of_the_settings_guards_the_admin_address() {
    let token = Some(Secret::new(TOKEN.as_bytes()).unwrap());
    let daemon = serve(Layer { admin_token: token, ..Layer::default() }).await;
    let admin = address(&daemon, Service::Admin);
    assert_eq!(get(&admin, "/v1/rules").await.0, 401);
    let wrong = "authorization: Bearer correct-horse-batterz\r\n";
    assert_eq!(http(&admin, "GET /v1/rules", wrong, "").await.0, 401);
    let right = format!("authorization: Bearer {TOKEN}\r\n");
    assert_eq!(http(&admin, "GET /v1/rules", &right, "").await.0, 200);
    assert_eq!(get(&admin, "/readyz").await.0, 200);
    daemon.shutdown().await;

    let token = Some(Secret::new(b"short").unwrap());
    let error = try_serve(Layer { admin_token: token, ..Layer::default() }).await.unwrap_err();
    assert!(matches!(error, StartError::Token(_)), "{error}");
}

#[tokio::test]
async fn the_password_of_the_settings_guards_the_resp_address() {
    let password = Some(Secret::new(b"sesame").unwrap());
    let daemon = serve(Layer { resp_password: password, ..Layer::default() }).await;
    let resp = address(&daemon, Service::Resp);
    let ask = "CL.THROTTLE ann 1 1 60\r\nQUIT\r\n";
    let answer = exchange(&resp, ask).await;
    assert!(answer.starts_with("-NOAUTH "), "{answer}");
    let answer = exchange(&resp, &format!("AUTH open\r\n{ask}")).await;
    assert!(answer.starts_with("-WRONGPASS "), "{answer}");
    let answer = exchange(&resp, &format!("AUTH sesame\r\n{ask}")).await;
    assert!(answer.starts_with("+OK\r\n*5\r\n:0\r\n:2\r\n:1\r\n:-1\r\n"), "{answer}");
    daemon.shutdown().await;
}

#[tokio::test]
async fn top_keys_have_names_where_the_settings_say_so() {
    for names in [false, true] {
        let daemon = serve(Layer { names_in_top: Some(names), ..limit("1/day per key") }).await;
        let (http, admin) = (address(&daemon, Service::Http), address(&daemon, Service::Admin));
        get(&http, "/limit/ann").await;
        get(&http, "/limit/ann").await;
        let (_, _, body) = get(&admin, "/v1/top").await;
        let top: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((&top["names"], &top["keys"][0]["count"]), (&json!(names), &json!(1)), "{top}");
        assert_eq!(body.contains("ann"), names, "{top}");
        daemon.shutdown().await;
    }
}

#[tokio::test]
async fn the_log_level_is_changed_at_the_admin_address() {
    let daemon = serve(Layer::default()).await;
    let admin = address(&daemon, Service::Admin);
    assert_eq!(get(&admin, "/v1/log-level").await.2, "{\"level\":\"info\"}\n");
    let (status, body) = send(&admin, "PUT /v1/log-level", json!({ "level": "debug" })).await;
    assert_eq!((status, body), (200, json!({ "level": "debug" })));
    let (status, body) = send(&admin, "PUT /v1/log-level", json!({ "level": "loud" })).await;
    assert_eq!((status, &body["field"]), (400, &json!("level")));
    assert!(body["detail"].as_str().unwrap().starts_with("write `error`"), "{body}");
    assert_eq!(get(&admin, "/v1/log-level").await.2, "{\"level\":\"debug\"}\n");
    daemon.shutdown().await;
}

#[tokio::test]
async fn rules_are_read_again_over_the_admin_address() {
    let folder = Folder::new("reload");
    let rules = "{ domain: default, rules: [{ name: all, per: [key], limit: 1/day }] }";
    let daemon = serve(rules_at(&folder.file("rules.yaml"), rules)).await;
    let (admin, metrics) = (address(&daemon, Service::Admin), address(&daemon, Service::Http));
    let (status, body) = send(&admin, "POST /v1/reload", json!({})).await;
    assert_eq!((status, body), (202, json!({ "asked": true, "version_before": 1 })));
    let reloads = async || {
        let text = get(&metrics, "/metrics").await.2;
        text.contains("\ntidegate_rules_reloads_total 1\n")
            && text.contains("\ntidegate_rules_version 2\n")
    };
    let done = async {
        while !reloads().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), done).await.expect("it is read");
    daemon.shutdown().await;

    let daemon = serve(Layer::default()).await;
    let (status, _) = send(&address(&daemon, Service::Admin), "POST /v1/reload", json!({})).await;
    assert_eq!(status, 409, "there are no files");
    daemon.shutdown().await;
}

#[tokio::test]
async fn controls_are_kept_over_a_restart_with_a_state() {
    let folder = Folder::new("controls");
    let layer = Layer { state: Some(folder.file("state")), ..limit("1/day per user") };
    let daemon = serve(layer.clone()).await;
    let admin = address(&daemon, Service::Admin);
    for (line, body) in [
        ("POST /v1/bans", json!({ "target": "key=mallory" })),
        ("POST /v1/allow", json!({ "target": "user=42" })),
        ("PUT /v1/shadow", json!({ "on": true })),
    ] {
        let (status, body) = send(&admin, line, body).await;
        assert_eq!((status, &body["kept"]), (200, &json!("file")), "{line}: {body}");
    }
    // Dropped and not shut down: what is kept does not wait for the end.
    drop(daemon);
    // What it had under way ends where it waits, and the state is free then.
    tokio::task::yield_now().await;
    let daemon = serve(layer.clone()).await;
    let (http, admin) = (address(&daemon, Service::Http), address(&daemon, Service::Admin));
    assert_eq!(get(&http, "/limit/mallory").await.0, 429);
    assert_eq!(get(&http, "/limit/ann").await.0, 200);
    let allowed: Value = serde_json::from_str(&get(&admin, "/v1/allow").await.2).unwrap();
    assert_eq!(allowed["allow"][0]["target"], "user=42");
    assert!(get(&admin, "/v1/shadow").await.2.starts_with("{\"on\":true"));
    daemon.shutdown().await;

    // A file that cannot be read keeps it from starting, rather than all bans from being in force.
    std::fs::write(folder.file("state.controls.json"), "{").unwrap();
    let error = try_serve(layer).await.unwrap_err();
    assert!(matches!(error, StartError::Controls { .. }), "{error}");
}

#[tokio::test]
async fn metrics_are_at_both_addresses_and_count_every_protocol() {
    let daemon = serve(limit("1/day per key")).await;
    let (http, admin) = (address(&daemon, Service::Http), address(&daemon, Service::Admin));
    get(&http, "/limit/zoe").await;
    get(&http, "/limit/zoe").await;
    ask_envoy(&daemon, "default", "key", "bob").await;
    exchange(&address(&daemon, Service::Resp), "CL.THROTTLE ann 1 1 60\r\nQUIT\r\n").await;
    for at in [http, admin] {
        let (status, head, text) = get(&at, "/metrics").await;
        assert_eq!(status, 200);
        assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
        for line in [
            "tidegate_answers_total{protocol=\"http\",verdict=\"allowed\"} 1",
            "tidegate_answers_total{protocol=\"http\",verdict=\"denied\"} 1",
            "tidegate_answers_total{protocol=\"envoy\",verdict=\"allowed\"} 1",
            "tidegate_answers_total{protocol=\"resp\",verdict=\"allowed\"} 1",
            "tidegate_connections_total{listener=\"grpc\"} 1",
            "tidegate_connections_total{listener=\"resp\"} 1",
            "tidegate_decisions_total{domain=\"default\",rule=\"limit\",verdict=\"denied\",source=\"memory\"} 1",
        ] {
            assert!(text.lines().any(|one| one == line), "no {line} in {text}");
        }
        assert!(!text.contains("zoe") && !text.contains("bob"), "{text}");
    }
    daemon.shutdown().await;
}

#[tokio::test]
async fn a_state_belongs_to_one_daemon_at_a_time() {
    let folder = Folder::new("claim");
    let state = folder.file("state");
    let layer = Layer { state: Some(state.clone()), ..limit("1/day per key") };
    let first = serve(layer.clone()).await;
    let error = try_serve(layer.clone()).await.unwrap_err();
    assert!(matches!(error, StartError::StateInUse { .. }), "{error}");
    first.shutdown().await;
    let written = std::fs::read(&state).unwrap();
    // One that cannot start for another reason leaves a state alone that it could not use anyhow.
    let other = Layer {
        memory: Some("1MiB".parse().unwrap()),
        http: Some("192.0.2.1:1".parse().unwrap()),
        ..layer.clone()
    };
    assert!(matches!(try_serve(other).await.unwrap_err(), StartError::Bind(_)));
    assert_eq!(std::fs::read(&state).unwrap(), written);
    serve(layer).await.shutdown().await;
}

#[tokio::test]
async fn what_a_killed_daemon_left_half_written_is_removed() {
    let folder = Folder::new("drafts");
    let drafts = ["state.7-00000000000000ff.draft", "state.controls.json.7-00000000000000ff.draft"];
    for name in drafts.into_iter().chain(["state.old", "mine.draft"]) {
        std::fs::write(folder.file(name), "x").unwrap();
    }
    let layer = Layer { state: Some(folder.file("state")), ..Layer::default() };
    serve(layer).await.shutdown().await;
    assert!(drafts.iter().all(|name| !folder.file(name).exists()));
    assert!(folder.file("state.old").exists() && folder.file("mine.draft").exists());
}

#[tokio::test]
async fn a_folder_in_the_place_of_the_state_stays_where_it_is() {
    let folder = Folder::new("folder");
    std::fs::create_dir(folder.file("state")).unwrap();
    let layer = Layer { state: Some(folder.file("state")), ..Layer::default() };
    let error = try_serve(layer).await.unwrap_err().to_string();
    assert!(error.ends_with("state cannot be used: is a directory"), "{error}");
    assert!(folder.file("state").is_dir());
}
