//! The limiter in front of what is forwarded: the same answers as everywhere, and nothing held for longer than
//! it is needed.

use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use tidegate_gateway::Running;
use tidegate_gateway::route::{AuthSettings, RouteSettings, Shed};
use tidegate_gateway::upstream::ServerSettings;
use tidegate_identity::{Claim, Extract, Source, TokenConfig, TokenKey, Trust};
use tidegate_server::serve::process::Life as _;
use tidegate_testing::undisturbed;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::support::{
    Folder, Upstream, ask, ask_h2, full, gateway, get, port, until, until_idle, with_rules,
};

/// Which rules an answer tells of.
fn policy(answer: &http::Response<String>) -> &str {
    answer.headers()["ratelimit-policy"].to_str().unwrap()
}

/// A gateway with these rules.
async fn limited(folder: &Folder, rules: &str, upstream: &Upstream) -> Running {
    let rules = folder.write("rules.yaml", rules);
    gateway(with_rules(&[&upstream.url()], |layer| layer.rules = Some(vec![rules]))).await
}

#[tokio::test]
async fn what_is_over_the_limit_is_429_with_everything_and_is_not_forwarded() {
    let upstream = Upstream::echo().await;
    let settings = with_rules(&[&upstream.url()], |layer| {
        layer.limit = Some("2/hour per ip".parse().unwrap());
    });
    let running = gateway(settings).await;
    for left in ["1", "0"] {
        let answer = get(port(&running), "/").await;
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["x-ratelimit-remaining"], left);
    }
    let refused = get(port(&running), "/").await;
    assert_eq!(refused.status(), 429);
    for name in
        ["retry-after", "ratelimit", "ratelimit-policy", "x-ratelimit-limit", "cache-control"]
    {
        assert!(refused.headers().contains_key(name), "{name}");
    }
    assert_eq!(refused.headers()["content-type"], "application/problem+json");
    assert!(refused.body().contains("rate_limit_exceeded"), "{}", refused.body());
    assert_eq!(upstream.asked(), 2);
}

#[tokio::test]
async fn a_refusal_of_head_has_no_body_that_would_be_the_next_answer() {
    let upstream = Upstream::echo().await;
    let settings = with_rules(&[&upstream.url()], |layer| {
        layer.limit = Some("1/hour per ip".parse().unwrap());
    });
    let running = gateway(settings).await;
    let ask = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3)
        + "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let answer = crate::support::exchange(port(&running), ask.as_bytes()).await;
    let answers: Vec<&str> = answer.split("HTTP/1.1 ").skip(1).collect();
    let statuses: Vec<&str> = answers.iter().map(|answer| &answer[..3]).collect();
    assert_eq!(statuses, ["200", "429", "429", "429"], "{answer}");
    assert!(answers[1].ends_with("\r\n\r\n") && answers[2].ends_with("\r\n\r\n"), "{answer}");
    assert!(answers[3].ends_with('}'), "{answer}");
}

#[tokio::test]
async fn a_caller_of_grpc_is_refused_in_its_own_words() {
    let upstream = Upstream::echo().await;
    let settings = with_rules(&[&upstream.url()], |layer| {
        layer.limit = Some("1/hour per ip".parse().unwrap());
    });
    let running = gateway(settings).await;
    let call = || {
        let request = Request::post("http://a.example/pkg.Service/Method");
        request.header("content-type", "application/grpc").body(full("")).unwrap()
    };
    assert_eq!(ask_h2(port(&running), call()).await.status(), 200);
    let refused = ask_h2(port(&running), call()).await;
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["grpc-status"]),
        (200, &"8".parse().unwrap())
    );
    assert!(refused.headers().contains_key("retry-after"));
    // The details are those of the middleware, whose test reads them.
    assert!(refused.headers().contains_key("grpc-status-details-bin"));
    assert!(
        refused.headers()["grpc-retry-pushback-ms"].to_str().unwrap().parse::<u64>().unwrap() > 0
    );
}

#[tokio::test]
async fn what_grpc_says_in_its_own_status_is_what_rules_count_by() {
    // A response that is nothing but trailers: 200, whatever happened.
    let upstream = Upstream::serving(|request| async move {
        let code = request.headers()["x-code"].clone();
        let response = http::Response::builder().header("content-type", "application/grpc");
        response.header("grpc-status", code).body(full("")).unwrap()
    })
    .await;
    let folder = Folder::new("grpc-status");
    let rules = "{ domain: default, rules: [ { name: failures, per: [ip], limit: 1/hour, \
                 count: on-response, statuses: [401] } ] }";
    let running = limited(&folder, rules, &upstream).await;
    let call = |code: &'static str| {
        let request = Request::post("http://a.example/pkg.Service/Method");
        let request = request.header("content-type", "application/grpc").header("x-code", code);
        ask_h2(port(&running), request.body(full("")).unwrap())
    };
    for (code, status) in [("0", "0"), ("5", "5"), ("16", "16"), ("0", "8")] {
        assert_eq!(call(code).await.headers()["grpc-status"], status);
        until_idle(&running).await;
    }
}

#[tokio::test]
async fn sixty_spellings_of_a_path_meet_one_rule() {
    let upstream = Upstream::echo().await;
    let folder = Folder::new("spellings");
    let rules = "{ domain: default, rules: [ { name: login, match: { path: /login, ignore_case: true }, limit: 1/hour } ] }";
    let running = limited(&folder, rules, &upstream).await;
    assert_eq!(get(port(&running), "/login").await.status(), 200);
    let first = [
        "/login",
        "//login",
        "/./login",
        "/a/../login",
        "/%6cogin",
        "/log%69n",
        "/%2flogin",
        "/;x/login",
        "/login;x",
        "/login;x=y",
        "/%2e/login",
        "/a/%2e%2e/login",
        "/login.",
        "/login..",
        "/login%2f",
        "/%5clogin",
        "/LogIn",
    ];
    let last = ["", "/", "?a=b", "/?login", "/.", "/;y", "/%2E"];
    for path in first.iter().flat_map(|first| last.map(|last| format!("{first}{last}"))) {
        assert_eq!(get(port(&running), &path).await.status(), 429, "{path}");
    }
    assert_eq!(get(port(&running), "/log").await.status(), 200);
    assert_eq!(upstream.asked(), 2);
}

/// An upstream that sends the first part of its bodies at once, and the rest when it is told to.
async fn beginning(held: tokio::sync::watch::Receiver<bool>) -> Upstream {
    Upstream::serving(move |_| {
        let mut held = held.clone();
        async move {
            let rest = futures_util::stream::once(async move {
                let _ = held.wait_for(|done| *done).await;
                Ok(http_body::Frame::data(Bytes::from_static(b"rest")))
            });
            let first =
                futures_util::stream::iter([Ok(http_body::Frame::data(Bytes::from("first")))]);
            let body = futures_util::StreamExt::chain(first, rest);
            http::Response::new(http_body_util::StreamBody::new(body).boxed_unsync())
        }
    })
    .await
}

#[tokio::test]
async fn a_lease_is_held_until_the_body_ends() {
    let (hold, held) = tokio::sync::watch::channel(false);
    let upstream = beginning(held).await;
    let folder = Folder::new("lease");
    let rules = "{ domain: default, rules: [ { name: one, per: [ip], \
                 limit: { at_once: 1, expires_after: 1h } } ] }";
    let running = limited(&folder, rules, &upstream).await;
    let stream = TcpStream::connect(port(&running)).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = || Request::get("/").header("host", "a").body(Full::<Bytes>::default()).unwrap();
    let first = sender.send_request(request()).await.unwrap();
    assert_eq!(first.status(), 200);
    assert_eq!(get(port(&running), "/").await.status(), 429, "the body is under way");
    hold.send(true).unwrap();
    assert_eq!(first.into_body().collect().await.unwrap().to_bytes(), "firstrest");
    assert_eq!(get(port(&running), "/").await.status(), 200);
    // A client that goes away gives its lease back as well.
    hold.send(false).unwrap();
    let second = sender.send_request(request()).await.unwrap();
    assert_eq!(second.status(), 200);
    drop((second, sender));
    until("given back", || running.counts().under_way == 0).await;
    hold.send(true).unwrap();
    assert_eq!(get(port(&running), "/").await.status(), 200);
    until_idle(&running).await;
}

#[test]
fn a_lease_is_renewed_while_the_body_goes_on() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    undisturbed(|| runtime.block_on(see_a_lease_renewed()));
}

async fn see_a_lease_renewed() {
    const HELD: Duration = Duration::from_secs(5);
    let (hold, held) = tokio::sync::watch::channel(false);
    let upstream = beginning(held).await;
    let folder = Folder::new("renewed");
    let rules = "{ domain: default, rules: [ { name: one, limit: 1 at once for 3s } ] }";
    let running = limited(&folder, rules, &upstream).await;
    let address = port(&running);
    let long = tokio::spawn(async move { get(address, "/").await.status() });
    until("the body is under way", || running.counts().under_way == 1).await;
    let began = tokio::time::Instant::now();
    while began.elapsed() < HELD {
        let status = get(address, "/").await.status();
        assert_eq!(status, 429, "after {:?}", began.elapsed());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    hold.send(true).unwrap();
    assert_eq!(long.await.unwrap(), 200);
    assert_eq!(get(address, "/").await.status(), 200);
    until_idle(&running).await;
}

#[tokio::test]
async fn what_is_counted_by_the_response_counts_when_it_says_so() {
    let upstream = Upstream::echo().await;
    let folder = Folder::new("response");
    let rules = "{ domain: default, rules: [ { name: failures, per: [ip], limit: 2/hour, \
                 count: on-response, statuses: [401] } ] }";
    let running = limited(&folder, rules, &upstream).await;
    for _ in 0..5 {
        assert_eq!(get(port(&running), "/status/200").await.status(), 200);
        until_idle(&running).await;
    }
    for status in [401, 401, 429] {
        assert_eq!(get(port(&running), "/status/401").await.status(), status);
        until_idle(&running).await;
    }
}

#[tokio::test]
async fn a_leaky_bucket_shapes_traffic_and_refuses_the_excess() {
    let upstream = Upstream::echo().await;
    let folder = Folder::new("leaky");
    let rules = "{ domain: default, rules: [ { name: queue, limit: { rate: 20/s, burst: 4, \
                 algorithm: leaky-bucket } } ] }";
    let running = limited(&folder, rules, &upstream).await;
    let address = port(&running);
    let began = tokio::time::Instant::now();
    let asking: Vec<_> = (0..20).map(|_| tokio::spawn(get(address, "/"))).collect();
    let mut passed = 0;
    for asking in asking {
        passed += usize::from(asking.await.unwrap().status() == 200);
    }
    assert!((4..20).contains(&passed), "{passed}");
    assert!(began.elapsed() >= Duration::from_millis(50) * (passed as u32 - 2), "they are delayed");
}

#[tokio::test]
async fn routes_have_rules_and_upstreams_of_their_own() {
    let (one, two) = (Upstream::echo().await, Upstream::echo().await);
    let folder = Folder::new("routes");
    let rules = "{ domain: a, rules: [ { name: all, limit: 1/hour } ] }\n---\n\
                 { domain: b, rules: [ { name: all, limit: 2/hour } ] }";
    let rules = folder.write("rules.yaml", rules);
    let mut settings = with_rules(&[], |layer| layer.rules = Some(vec![rules]));
    let route = |path: &str, domain: &str, upstream: &Upstream| {
        let url = upstream.url().parse().unwrap();
        let mut route = RouteSettings::new(vec![ServerSettings { url, weight: 1 }]);
        path.clone_into(&mut route.path);
        domain.clone_into(&mut route.domain);
        route
    };
    settings.routes = vec![route("/a", "a", &one), route("/b", "b", &two)];
    let running = gateway(settings).await;
    let mut statuses = Vec::new();
    for path in ["/a", "/a/x", "/b", "/b", "/b", "/c"] {
        statuses.push(get(port(&running), path).await.status().as_u16());
    }
    assert_eq!(statuses, [200, 429, 200, 200, 429, 404]);
    assert_eq!((one.asked(), two.asked()), (1, 2));
}

#[tokio::test]
async fn who_is_nobody_is_401_and_is_limited_by_address() {
    let upstream = Upstream::echo().await;
    let folder = Folder::new("auth");
    // The hash of `secret`.
    let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    let keys = folder.write("keys", format!("ann {hash}\n"));
    let rules = "{ domain: default, rules: [ \
        { name: guests, match: { auth: [none, invalid] }, per: [ip], limit: 2/hour }, \
        { name: clients, match: { auth: key }, per: [client], limit: 3/hour } ] }";
    let rules = folder.write("rules.yaml", rules);
    let mut settings = with_rules(&[&upstream.url()], |layer| layer.rules = Some(vec![rules]));
    settings.routes[0].auth = Some(AuthSettings {
        is_required: true,
        header: http::HeaderName::from_static("x-api-key"),
        keys: Some(keys),
    });
    let running = gateway(settings).await;
    let with_key = |key: &'static str| {
        let request = Request::get("/").header("host", "a").header("x-api-key", key);
        ask(port(&running), request.body(Full::default()).unwrap())
    };
    assert_eq!(get(port(&running), "/").await.status(), 401);
    assert_eq!(with_key("wrong").await.status(), 401);
    assert_eq!(with_key("guess").await.status(), 429, "guessing is limited");
    for status in [200, 200, 200, 429] {
        assert_eq!(with_key("secret").await.status(), status);
    }
    assert_eq!(upstream.asked(), 3);
    // Keys are read again, and a file with a mistake changes nothing.
    folder.write("keys", "nonsense");
    assert!(running.reload());
    assert!(policy(&with_key("secret").await).contains("clients"), "it is still known");
    folder.write("keys", "");
    assert!(running.reload());
    assert!(policy(&with_key("secret").await).contains("guests"), "it is a guest's now");
    assert_eq!(upstream.asked(), 3);
}

#[tokio::test]
async fn listed_addresses_are_refused() {
    let upstream = Upstream::echo().await;
    let mut settings = crate::support::settings(&[&upstream.url()]);
    settings.routes[0].addresses.deny = vec!["127.0.0.0/8".parse().unwrap()];
    let running = gateway(settings).await;
    assert_eq!(get(port(&running), "/").await.status(), 403);
    assert_eq!(upstream.asked(), 0);
}

#[tokio::test]
async fn a_busy_upstream_is_not_given_more_and_low_priority_goes_first() {
    let hanging = Upstream::accepting(|mut stream, asked| async move {
        crate::support::read_head(&mut stream).await;
        asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        std::future::pending::<()>().await;
    })
    .await;
    let mut settings = crate::support::settings(&[&hanging.url()]);
    settings.routes[0].upstream.in_flight_max = 5;
    settings.routes[0].shed =
        Some(Shed { attribute: "path".into(), values: vec!["/report".into()] });
    let running = gateway(settings).await;
    let address = port(&running);
    let waiting: Vec<_> = (0..4).map(|_| tokio::spawn(get(address, "/"))).collect();
    until("asked", || hanging.asked() == 4).await;
    let refused = get(address, "/report").await;
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["retry-after"]),
        (503, &"1".parse().unwrap())
    );
    let fifth = tokio::spawn(get(address, "/"));
    until("asked", || hanging.asked() == 5).await;
    assert_eq!(get(address, "/").await.status(), 503);
    for one in waiting.into_iter().chain([fifth]) {
        one.abort();
    }
    until_idle(&running).await;
}

#[tokio::test]
async fn a_token_counts_for_somebody_only_where_it_is_verified() {
    let upstream = Upstream::echo().await;
    let folder = Folder::new("token");
    let rules = "{ domain: default, rules: [ \
        { name: users, match: { auth: token }, per: [user], limit: 2/hour } ] }";
    let rules = folder.write("rules.yaml", rules);
    let mut settings = with_rules(&[&upstream.url()], |layer| layer.rules = Some(vec![rules]));
    let secret = b"an example secret of 32 bytes...";
    let mut token = TokenConfig::new(vec![TokenKey::secret(secret).unwrap()]);
    token.claims = vec![Claim::new("user", "sub")];
    settings.daemon.identity.token = Some(token);
    settings.routes[0].auth = Some(AuthSettings {
        is_required: true,
        header: http::HeaderName::from_static("x-api-key"),
        keys: None,
    });
    let running = gateway(settings).await;
    let signed_as = |header: &str, user: &str, expires: u64, secret: &[u8]| {
        let claims = format!(r#"{{"sub":"{user}","exp":{expires}}}"#);
        let parts = [header, claims.as_str()];
        let text = parts.map(|part| BASE64_URL_SAFE_NO_PAD.encode(part)).join(".");
        let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), text.as_bytes());
        format!("Bearer {text}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
    };
    let (hs256, in_2100) = (r#"{"alg":"HS256","typ":"JWT"}"#, 4_102_444_800);
    let signed = |user: &str, secret: &[u8]| signed_as(hs256, user, in_2100, secret);
    let with = |token: String| {
        let request = Request::get("/").header("host", "a").header("authorization", token);
        ask(port(&running), request.body(Full::default()).unwrap())
    };
    for status in [200, 200, 429] {
        assert_eq!(with(signed("ann", secret)).await.status(), status);
    }
    assert_eq!(with(signed("bob", secret)).await.status(), 200);
    assert_eq!(with(signed("bob", b"another secret, also of 32 bytes")).await.status(), 401);
    assert_eq!(get(port(&running), "/").await.status(), 401);

    // Nobody is let in by a token that has expired, that is not signed, or that says that it needs no signature.
    let expired = signed_as(hs256, "bob", 1_600_000_000, secret);
    let none = signed_as(r#"{"alg":"none"}"#, "bob", in_2100, secret);
    let (unsigned, _) = none.rsplit_once('.').unwrap();
    for token in [expired, none.clone(), format!("{unsigned}."), unsigned.to_owned()] {
        assert_eq!(with(token.clone()).await.status(), 401, "{token}");
    }
    assert_eq!(with(signed("bob", secret)).await.status(), 200, "none of them was counted");
}

#[tokio::test]
async fn the_access_log_has_every_line_once_the_gateway_has_ended() {
    use tidegate_gateway::access_log::{AccessLogFormat, AccessLogSettings};
    let upstream = Upstream::echo().await;
    let folder = Folder::new("access-log");
    let path = folder.0.join("access.log");
    let mut settings = with_rules(&[&upstream.url()], |layer| {
        layer.limit = Some("100/day per ip".parse().unwrap());
    });
    let format = AccessLogFormat::Json;
    settings.access_log = Some(AccessLogSettings { path: Some(path.clone()), format });
    let running = gateway(settings).await;
    let mut lengths = Vec::new();
    for number in 0..150 {
        let answer = if number % 2 == 0 {
            get(port(&running), "/").await
        } else {
            let request = Request::get("http://a.example/").body(full("")).unwrap();
            ask_h2(port(&running), request).await
        };
        lengths.push(answer.body().len());
    }
    assert_eq!(running.shutdown().await.cut, 0);
    let log = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 150);
    for (line, length) in lines.iter().zip(lengths) {
        assert_eq!(
            (&line["bytes"], &line["host"]),
            (&length.into(), &"a.example".into()),
            "{line}"
        );
    }
    assert_eq!(lines.iter().filter(|line| line["status"] == 429).count(), 50);
}

#[tokio::test]
async fn a_client_that_reads_nothing_holds_a_place_for_no_longer_than_it_may_take_nothing() {
    let upstream = Upstream::echo().await;
    let folder = Folder::new("unread");
    let rules = folder.write(
        "rules.yaml",
        "{ domain: default, rules: [
           { name: few, match: { path: /few }, limit: 1/day },
           { name: one, match: { path: /one }, limit: { at_once: 1, expires_after: 1h } } ] }",
    );
    let mut settings = with_rules(&[&upstream.url()], |layer| layer.rules = Some(vec![rules]));
    settings.front.head_timeout = Duration::from_millis(300);
    let running = gateway(settings).await;
    let few = "GET /few HTTP/1.1\r\nHost: a\r\n\r\n";
    let block = format!("{}{}", few.repeat(12), few.replace("/few", "/one"));
    let mut stream = TcpStream::connect(port(&running)).await.unwrap();
    // Until nothing goes on, because the gateway waits to be read, or has ended the connection for it.
    let half = Duration::from_millis(150);
    while let Ok(Ok(())) = tokio::time::timeout(half, stream.write_all(block.as_bytes())).await {}
    let free = async { while get(port(&running), "/one").await.status() != 200 {} };
    tokio::time::timeout(Duration::from_secs(20), free).await.expect("the place is free again");
    drop(stream);
    until_idle(&running).await;
}

/// What a rule that matches is told of by 429: its cost never fits.
const NEVER: &str = "per: [ip], cost: 5, limit: 2/day";

#[tokio::test]
async fn a_request_meets_the_same_rule_over_http1_and_over_http2() {
    let upstream = Upstream::echo().await;
    let folder = Folder::new("same-rule");
    let matches = ["path: '/never/*'", "host: b.example", "method: DELETE", "ip: 192.0.2.7"];
    let taken = ["cookie.session: x", "header.x-plan: free"];
    let rules =
        matches.iter().chain(&taken).enumerate().map(|(number, matches)| {
            format!("{{ name: r{number}, match: {{ {matches} }}, {NEVER} }}")
        });
    let rules = rules.collect::<Vec<_>>().join(", ");
    let rules = folder.write("rules.yaml", format!("{{ domain: default, rules: [ {rules} ] }}"));
    let before = async |is_trusted: bool| {
        let layer =
            |layer: &mut tidegate_server::config::Layer| layer.rules = Some(vec![rules.clone()]);
        let mut settings = with_rules(&[&upstream.url()], layer);
        let identity = &mut settings.daemon.identity;
        let cookie = Extract::new(Source::Cookie("session".to_owned()));
        identity.extract = vec![cookie, Extract::new(Source::header("x-plan").unwrap())];
        if is_trusted {
            let networks = vec!["127.0.0.1/32".parse().unwrap()];
            identity.proxies.trust = Trust::Networks(networks);
        }
        gateway(settings).await
    };
    let [untrusted, trusted] = [before(false).await, before(true).await];
    let (first, last) = (("x-forwarded-for", "198.51.100.1"), ("x-forwarded-for", "192.0.2.7"));
    for (method, host, path, lines, status, status_trusted) in [
        ("GET", "a.example", "/", vec![], 200, 200),
        ("GET", "a.example", "/never/x", vec![], 429, 429),
        ("GET", "a.example", "//never/./x?y", vec![], 429, 429),
        ("GET", "a.example", "/%6eever/x", vec![], 429, 429),
        ("GET", "a.example", "/b/../never/x", vec![], 429, 429),
        ("GET", "a.example", "/NEVER/x", vec![], 200, 200),
        ("GET", "B.example.:8000", "/", vec![], 429, 429),
        ("DELETE", "a.example", "/", vec![], 429, 429),
        ("delete", "a.example", "/", vec![], 200, 200),
        ("GET", "a.example", "/", vec![("cookie", "a=1; session=x")], 429, 429),
        ("GET", "a.example", "/", vec![("cookie", "a=1"), ("cookie", "session=x")], 429, 429),
        ("GET", "a.example", "/", vec![("x-plan", " free\t")], 429, 429),
        ("GET", "a.example", "/", vec![last], 200, 429),
        ("GET", "a.example", "/", vec![first, last], 200, 429),
        ("GET", "a.example", "/", vec![last, first], 200, 200),
    ] {
        for (running, status) in [(&untrusted, status), (&trusted, status_trusted)] {
            let request = |more: &[(&'static str, &'static str)], target: &str| {
                let lines = lines.iter().chain(more);
                let request = Request::builder().method(method).uri(target);
                lines.fold(request, |request, (name, value)| request.header(*name, *value))
            };
            let mut got = Vec::new();
            // As a plain request, as one that is none, and over HTTP/2.
            for more in [&[][..], &[("te", "trailers")]] {
                let request = request(more, path).header("host", host).body(Full::default());
                got.push(ask(port(running), request.unwrap()).await.status().as_u16());
            }
            let two = request(&[], &format!("http://{host}{path}")).body(full("")).unwrap();
            got.push(ask_h2(port(running), two).await.status().as_u16());
            assert_eq!(got, [status; 3], "{method} {host} {path} {lines:?}");
        }
    }
}
