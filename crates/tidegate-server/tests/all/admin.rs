//! The admin address, over real connections: who may ask, what is answered, and what is changed.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::support::{Daemon, at_once};
use serde_json::{Value, json};
use tidegate::{Attribute, Call};
use tidegate_server::admin::{
    self, Admin, AdminSettings, BODY_BYTES_MAX, LevelHook, Token, TokenError,
};
use tidegate_server::listen::Address;
use tidegate_server::{Does, Protocol};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const RULES: &str = "
domain: api
rules:
  - { name: login, match: { path: /login }, per: [user], limit: 2/minute }
  - { name: all, per: [user], limits: [ 10/minute, 100/hour ], overrides: [ { for: { user: secret }, limit: 1/s } ] }
---
{ domain: mail, rules: [ { name: sent, per: [user], limit: 5/day, mode: shadow } ] }
";
const TOKEN: &str = "correct-horse-battery";

struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{}\n{}", self.head, self.body))
    }
}

/// Sends these very bytes, and reads until the end.
async fn exchange(address: SocketAddr, request: &str) -> Reply {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream.write_all(request.as_bytes()).await.expect("it reads");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.expect("it answers");
    let text = String::from_utf8(bytes).expect("text");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text}"));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
    Reply { status, head: head.to_lowercase(), body: body.to_owned() }
}

async fn ask_with(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> Reply {
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\n{headers}connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    exchange(address, &request).await
}

async fn get(address: SocketAddr, path: &str) -> Reply {
    ask_with(address, "GET", path, &format!("host: {address}\r\n"), "").await
}

async fn send(address: SocketAddr, method: &str, path: &str, body: Value) -> Reply {
    let headers = format!("host: {address}\r\ncontent-type: application/json\r\n");
    ask_with(address, method, path, &headers, &body.to_string()).await
}

async fn daemon() -> (Daemon, SocketAddr) {
    let daemon = Daemon::new(RULES);
    let address = daemon.listen(admin::serve).await;
    (daemon, address)
}

async fn daemon_with(settings: AdminSettings) -> (Daemon, SocketAddr) {
    let daemon = Daemon::new(RULES);
    let admin = Admin::new(Arc::clone(&daemon.engine), settings);
    let address = daemon
        .listen(move |_, stream, peer, drain| {
            let admin = admin.clone();
            async move { admin.serve(stream, peer, drain).await }
        })
        .await;
    (daemon, address)
}

fn check(daemon: &Daemon, domain: &str, attributes: &[(&str, &str)]) -> bool {
    let attributes: Vec<Attribute<'_>> = attributes.iter().map(|&pair| pair.into()).collect();
    let answer =
        at_once(daemon.engine.check(&Call::new(domain, &attributes), Does::Take, Protocol::Http));
    answer.expect("a decision").is_allowed()
}

#[tokio::test]
async fn rules_are_shown_with_what_they_have_decided() {
    let (daemon, address) = daemon().await;
    for _ in 0..3 {
        check(&daemon, "api", &[("user", "42"), ("path", "/login")]);
    }
    let all = get(address, "/v1/rules").await.json();
    assert_eq!((&all["version"], all["domains"].as_array().map(Vec::len)), (&json!(1), Some(2)));
    assert_eq!(all["fingerprint"].as_str().map(str::len), Some(12));
    assert_eq!(all["loaded"], json!("2023-11-14T22:13:20Z"));
    let login = &all["domains"][0]["rules"][0];
    assert_eq!((&login["name"], &login["limits"]), (&json!("login"), &json!(["2/minute"])));
    let decided =
        json!({ "allowed": 2, "soft": 0, "shadow_denied": 0, "denied": 1, "shadow_denials": 0 });
    assert_eq!(login["decisions"], decided);
    assert_eq!(all["domains"][0]["rules"][1]["overrides"], json!(1));
    assert!(!all.to_string().contains("secret"), "{all}");
    let one = get(address, "/v1/rules?domain=mail").await.json();
    assert_eq!(one["domains"].as_array().map(Vec::len), Some(1));
    assert_eq!(one["domains"][0]["rules"][0]["mode"], json!("shadow"));
    let none = get(address, "/v1/rules?domain=nowhere").await;
    assert_eq!((none.status, &none.json()["field"]), (400, &json!("domain")));
}

#[tokio::test]
async fn a_request_is_explained_with_what_the_controls_say() {
    let (_daemon, address) = daemon().await;
    let about = json!({ "domain": "api", "attributes": { "user": "42", "path": "/other" } });
    let explained = send(address, "POST", "/v1/explain", about.clone()).await.json();
    assert_eq!(explained["rules"][0]["finding"], json!("no-match"));
    assert_eq!(explained["rules"][1]["finding"], json!("applies"));
    assert_eq!(explained["charges"].as_array().map(Vec::len), Some(2));
    assert_eq!((&explained["ruling"], &explained["denied"]), (&Value::Null, &json!(false)));
    send(address, "POST", "/v1/bans", json!({ "target": "user=42" })).await;
    let explained = send(address, "POST", "/v1/explain", about).await.json();
    assert_eq!(explained["ruling"], json!("banned"));
}

#[tokio::test]
async fn a_key_is_peeked_at_and_reset() {
    let (daemon, address) = daemon().await;
    let attributes = [("user", "42"), ("path", "/login")];
    assert!(check(&daemon, "api", &attributes) && check(&daemon, "api", &attributes));
    assert!(!check(&daemon, "api", &attributes));
    let about = json!({ "domain": "api", "attributes": { "user": "42", "path": "/login" } });
    for _ in 0..2 {
        let peeked = send(address, "POST", "/v1/peek", about.clone()).await.json();
        assert_eq!((&peeked["allowed"], &peeked["rule"]), (&json!(false), &json!("login")));
        assert_eq!(
            (&peeked["reason"], &peeked["retry_after_ms"]),
            (&json!("over-limit"), &json!(30_000))
        );
        assert_eq!(peeked["limits"].as_array().map(Vec::len), Some(3));
        // It is the answer of `/v1/check`, with the ruling beside it.
        assert_eq!(peeked["limits"][0]["reserve"], json!(false));
        assert_eq!((&peeked["lease_id"], &peeked["ruling"]), (&json!(null), &json!(null)));
        assert!(peeked.as_object().unwrap().contains_key("taken_at_us"));
    }
    let reset = send(address, "POST", "/v1/reset", about.clone()).await.json();
    assert_eq!((&reset["reset"], reset["keys"].as_array().map(Vec::len)), (&json!(true), Some(3)));
    assert_eq!(send(address, "POST", "/v1/peek", about).await.json()["remaining"], json!(2));
    assert!(check(&daemon, "api", &attributes));
    let nobody = json!({ "domain": "nowhere", "attributes": {} });
    assert_eq!(send(address, "POST", "/v1/reset", nobody).await.json()["reset"], json!(false));
}

#[tokio::test]
async fn top_keys_are_hashed_unless_names_are_turned_on() {
    for (names_in_top, name) in [(false, Value::Null), (true, json!("user=42"))] {
        let mut settings = AdminSettings::default();
        settings.names_in_top = names_in_top;
        let (daemon, address) = daemon_with(settings).await;
        for _ in 0..4 {
            check(&daemon, "api", &[("user", "42"), ("path", "/login")]);
        }
        let top = get(address, "/v1/top").await.json();
        assert_eq!((&top["by"], &top["names"]), (&json!("denied"), &json!(names_in_top)));
        let key = &top["keys"][0];
        assert_eq!(
            (&key["count"], &key["rule"], &key["name"]),
            (&json!(2), &json!("login"), &name)
        );
        let about = json!({ "domain": "api", "attributes": { "user": "42", "path": "/login" } });
        let explained = send(address, "POST", "/v1/explain", about).await.json();
        assert_eq!(key["key"], explained["charges"][0]["key"]);
        let busy = get(address, "/v1/top?by=requests&count=1").await.json();
        assert_eq!(
            (&busy["keys"][0]["count"], busy["keys"].as_array().map(Vec::len)),
            (&json!(4), Some(1))
        );
    }
    let (_daemon, address) = daemon().await;
    for (query, field) in
        [("by=name", "by"), ("count=0", "count"), ("count=1000", "count"), ("cuont=1", "cuont")]
    {
        let reply = get(address, &format!("/v1/top?{query}")).await;
        assert_eq!((reply.status, &reply.json()["field"]), (400, &json!(field)), "{query}");
    }
}

#[tokio::test]
async fn bans_and_the_allow_list_are_changed_and_shown() {
    let (daemon, address) = daemon().await;
    let ban = json!({ "target": "192.0.2.77/24", "for": "1h", "domain": "api", "note": "scrapes" });
    let added = send(address, "POST", "/v1/bans", ban).await.json();
    assert_eq!(
        (&added["entry"]["target"], &added["kept"]),
        (&json!("192.0.2.0/24"), &json!("memory"))
    );
    assert!(!check(&daemon, "api", &[("ip", "192.0.2.7")]));
    assert!(check(&daemon, "mail", &[("ip", "192.0.2.7")]));
    let listed = get(address, "/v1/bans").await.json();
    let entry = json!({
        "target": "192.0.2.0/24", "domain": "api", "since": "2023-11-14T22:13:20Z",
        "until": "2023-11-14T23:13:20Z", "left_ms": 3_600_000, "note": "scrapes",
    });
    assert_eq!(listed, json!({ "bans": [entry] }));
    let allowed = json!({ "target": "192.0.2.7", "until": "2030-01-31T12:00:00Z" });
    assert_eq!(send(address, "POST", "/v1/allow", allowed).await.status, 200);
    assert!(check(&daemon, "api", &[("ip", "192.0.2.7")]));
    // Lifted by its name in the body, or in the query.
    let target = json!({ "target": "192.0.2.0/24" });
    assert_eq!(
        send(address, "DELETE", "/v1/bans", target.clone()).await.status,
        404,
        "the domain is part of it"
    );
    let (path, host) =
        ("/v1/bans?target=192.0.2.0%2F24&domain=api", format!("host: {address}\r\n"));
    let lifted = ask_with(address, "DELETE", path, &host, "");
    assert_eq!(lifted.await.json()["lifted"], json!(true));
    assert_eq!(
        send(address, "DELETE", "/v1/allow", json!({ "target": "192.0.2.7" })).await.status,
        200
    );
    assert!(daemon.engine.controls().is_idle());
}

#[tokio::test]
async fn switches_are_switched_and_shown() {
    let (daemon, address) = daemon().await;
    for (path, is_on) in [
        (
            "/v1/bypass",
            (|daemon: &Daemon| daemon.engine.controls().is_bypassed()) as fn(&Daemon) -> bool,
        ),
        ("/v1/shadow", |daemon| daemon.engine.controls().is_in_shadow()),
    ] {
        assert_eq!(get(address, path).await.json()["on"], json!(false));
        assert_eq!(
            send(address, "PUT", path, json!({ "on": true })).await.json()["on"],
            json!(true)
        );
        assert!(is_on(&daemon), "{path}");
        assert_eq!(get(address, path).await.json()["on"], json!(true));
        assert_eq!(send(address, "PUT", path, json!({ "on": false })).await.status, 200);
        assert!(!is_on(&daemon), "{path}");
        let wrong = send(address, "PUT", path, json!({ "on": "yes" })).await;
        assert_eq!((wrong.status, &wrong.json()["field"]), (400, &json!("on")));
    }
}

#[tokio::test]
async fn the_log_level_and_the_reload_are_the_daemons() {
    let (level, reloads) = (Arc::new(Mutex::new("info".to_owned())), Arc::new(AtomicUsize::new(0)));
    let (read, write, counted) = (Arc::clone(&level), Arc::clone(&level), Arc::clone(&reloads));
    let mut settings = AdminSettings::default();
    settings.log_level = Some(LevelHook {
        read: Arc::new(move || read.lock().unwrap().clone()),
        write: Arc::new(move |level| {
            if level == "loud" {
                return Err("write `info` or `debug`".to_owned());
            }
            level.clone_into(&mut write.lock().unwrap());
            Ok(())
        }),
    });
    settings.on_reload = Some(Arc::new(move || counted.fetch_add(1, Ordering::Relaxed) == 0));
    let (_daemon, address) = daemon_with(settings).await;
    assert_eq!(get(address, "/v1/log-level").await.json(), json!({ "level": "info" }));
    let set = send(address, "PUT", "/v1/log-level", json!({ "level": "debug" })).await;
    assert_eq!(set.json(), json!({ "level": "debug" }));
    let wrong = send(address, "PUT", "/v1/log-level", json!({ "level": "loud" })).await;
    assert_eq!((wrong.status, &wrong.json()["field"]), (400, &json!("level")));
    assert_eq!(*level.lock().unwrap(), "debug");
    assert_eq!(send(address, "POST", "/v1/reload", json!({})).await.status, 202);
    assert_eq!(send(address, "POST", "/v1/reload", json!({})).await.status, 409);
    assert_eq!(reloads.load(Ordering::Relaxed), 2);
    let (_daemon, address) = daemon().await;
    assert_eq!(get(address, "/v1/log-level").await.status, 409);
    assert_eq!(send(address, "POST", "/v1/reload", json!({})).await.status, 409);
}

#[tokio::test]
async fn health_and_readiness_are_told() {
    let mut settings = AdminSettings::default();
    let is_ready = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&is_ready);
    settings.is_ready = Some(Arc::new(move || counted.load(Ordering::Relaxed) > 0));
    let (_daemon, address) = daemon_with(settings).await;
    assert_eq!(
        (get(address, "/healthz").await.status, get(address, "/readyz").await.status),
        (200, 503)
    );
    is_ready.store(1, Ordering::Relaxed);
    assert_eq!(get(address, "/readyz").await.status, 200);
    let metrics = get(address, "/metrics").await;
    assert!(metrics.head.contains("content-type: text/plain; version=0.0.4"), "{}", metrics.head);
    assert!(
        metrics.body.contains("tidegate_connections_open{listener=\"admin\"} 1\n"),
        "{}",
        metrics.body
    );
    let head = ask_with(address, "HEAD", "/metrics", &format!("host: {address}\r\n"), "").await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_told_by_field() {
    let (_daemon, address) = daemon().await;
    let cases = [
        ("/v1/peek", json!({ "attributes": {} }), "domain"),
        ("/v1/peek", json!({ "domain": 7 }), "domain"),
        ("/v1/peek", json!({ "domain": "api", "attributes": [] }), "attributes"),
        ("/v1/peek", json!({ "domain": "api", "attributes": { "user": 4711 } }), "attributes.user"),
        ("/v1/peek", json!({ "domain": "api", "cost": -1 }), "cost"),
        ("/v1/peek", json!({ "domain": "api", "csot": 1 }), "csot"),
        ("/v1/bans", json!({}), "target"),
        ("/v1/bans", json!({ "target": "somebody" }), "target"),
        ("/v1/bans", json!({ "target": "0.0.0.0/0" }), "target"),
        ("/v1/bans", json!({ "target": "user=4711", "for": "a while" }), "for"),
        ("/v1/bans", json!({ "target": "user=4711", "until": "tomorrow" }), "until"),
        ("/v1/bans", json!({ "target": "user=4711", "until": "2020-01-01T00:00:00Z" }), "until"),
        (
            "/v1/bans",
            json!({ "target": "user=4711", "for": "1h", "until": "2030-01-01T00:00:00Z" }),
            "until",
        ),
    ];
    for (path, body, field) in cases {
        let reply = send(address, "POST", path, body.clone()).await;
        let problem = reply.json();
        assert_eq!((reply.status, &problem["field"]), (400, &json!(field)), "{path} {body}");
        assert!(reply.head.contains("content-type: application/problem+json"), "{}", reply.head);
        assert_eq!((&problem["status"], &problem["title"]), (&json!(400), &json!("Bad Request")));
        assert!(!problem["detail"].to_string().contains("4711"), "{problem}");
    }
    let host = format!("host: {address}\r\ncontent-type: application/json\r\n");
    for body in ["{", "[]", "nonsense"] {
        assert_eq!(ask_with(address, "POST", "/v1/peek", &host, body).await.status, 400, "{body}");
    }
    let long = format!("{{\"domain\":\"{}\"}}", "x".repeat(BODY_BYTES_MAX));
    assert_eq!(ask_with(address, "POST", "/v1/peek", &host, &long).await.status, 413);
    assert_eq!(get(address, "/v2/rules").await.status, 404);
    let wrong = ask_with(address, "PATCH", "/v1/bans", &host, "{}").await;
    assert_eq!(wrong.status, 405);
    assert!(wrong.head.contains("allow: get, post, delete"), "{}", wrong.head);
}

#[tokio::test]
async fn a_page_of_another_site_cannot_use_the_address() {
    let (daemon, address) = daemon().await;
    let port = address.port();
    let json = "content-type: application/json\r\n";
    let own = format!("host: {address}\r\n");
    for (headers, status) in [
        // A name that somebody lets point here, or none at all.
        (format!("host: evil.example\r\n{json}"), 403),
        (format!("host: evil.example:{port}\r\n{json}"), 403),
        (format!("host: 127.0.0.1.evil.example\r\n{json}"), 403),
        (json.to_owned(), 403),
        // A page of another site, and one that hides where it is from.
        (format!("{own}{json}origin: http://evil.example\r\n"), 403),
        (format!("{own}{json}origin: null\r\n"), 403),
        (format!("{own}{json}origin: http://127.0.0.1:1\r\n"), 403),
        (format!("{own}{json}sec-fetch-site: cross-site\r\n"), 403),
        (format!("{own}{json}sec-fetch-site: same-site\r\n"), 403),
        // What a form can send without being asked.
        (format!("{own}content-type: text/plain\r\n"), 415),
        (format!("{own}content-type: application/x-www-form-urlencoded\r\n"), 415),
        (own.clone(), 415),
        // People, and pages of this very address.
        (format!("{own}{json}"), 200),
        (format!("host: localhost:{port}\r\n{json}"), 200),
        (format!("host: [::1]:{port}\r\n{json}"), 200),
        (format!("{own}{json}origin: http://{address}\r\nsec-fetch-site: same-origin\r\n"), 200),
    ] {
        let _ = daemon.engine.controls().set_bypass(false, daemon.engine.limiter().now());
        let reply =
            ask_with(address, "POST", "/v1/bans", &headers, r#"{"target":"user=42"}"#).await;
        assert_eq!(reply.status, status, "{headers}");
    }
    // Reading is refused as well: what is listed here are people.
    assert_eq!(
        ask_with(address, "GET", "/v1/bans", "host: evil.example\r\n", "").await.status,
        403
    );
}

#[tokio::test]
async fn with_a_token_everything_but_health_needs_it() {
    let mut settings = AdminSettings::default();
    settings.token = Some(Token::new(&format!(" {TOKEN}\n")).expect("a token"));
    let (daemon, address) = daemon_with(settings).await;
    let paths = ["/metrics", "/v1/rules", "/v1/top", "/v1/bans", "/v1/bypass", "/nothing"];
    for path in paths {
        let reply = get(address, path).await;
        assert_eq!(reply.status, 401, "{path}");
        assert!(reply.head.contains("www-authenticate: bearer"), "{}", reply.head);
    }
    let body = r#"{"target":"user=42"}"#;
    for offered in ["", "x", &TOKEN[1..], &TOKEN[..TOKEN.len() - 1], &format!("{TOKEN}x")] {
        let headers = format!(
            "host: a\r\ncontent-type: application/json\r\nauthorization: Bearer {offered}\r\n"
        );
        assert_eq!(
            ask_with(address, "POST", "/v1/bans", &headers, body).await.status,
            401,
            "{offered}"
        );
    }
    let basic = format!("host: a\r\nauthorization: Basic {TOKEN}\r\n");
    assert_eq!(ask_with(address, "GET", "/metrics", &basic, "").await.status, 401);
    assert!(daemon.engine.controls().is_idle());
    // By any name, since whoever has the token is no browser that was led here.
    let headers = format!(
        "host: limits.internal\r\ncontent-type: application/json\r\nauthorization: bearer {TOKEN}\r\n"
    );
    assert_eq!(ask_with(address, "POST", "/v1/bans", &headers, body).await.status, 200);
    for path in ["/healthz", "/readyz"] {
        assert_eq!(get(address, path).await.status, 200, "{path}");
    }
}

#[test]
fn a_token_is_long_enough_and_shows_nowhere() {
    assert_eq!(Token::new("short").err(), Some(TokenError::TooShort));
    assert_eq!(Token::new("sixteen letters ä").err(), Some(TokenError::Unsendable));
    let token = Token::new(TOKEN).expect("a token");
    assert_eq!(format!("{token:?}"), "Token");
}

#[test]
fn only_addresses_that_other_machines_reach_need_a_token() {
    for (text, needed) in [
        ("127.0.0.1:8082", false),
        ("127.8.8.8:8082", false),
        ("[::1]:8082", false),
        ("[::ffff:127.0.0.1]:8082", false),
        ("unix:/run/admin.sock", false),
        ("off", false),
        ("0.0.0.0:8082", true),
        ("[::]:8082", true),
        ("192.0.2.7:8082", true),
    ] {
        let address: Address = text.parse().expect("an address");
        assert_eq!(admin::needs_token(&address), needed, "{text}");
    }
}
