//! The document at `/openapi.json` is held to what the server does: every path and method of it is called, what
//! comes back has a status, a type, headers and a body that it describes, and the server has no route
//! that it leaves out.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::support::Daemon;
use crate::wire::{Ask, Reply, Wire};
use serde_json::{Value, json};
use tidegate_server::http::{self, HttpSettings, ROUTES};

const RULES: &str = "
domain: default
rules:
  - { name: demo, per: [key], limits: [ 2/minute, 500/day ] }
  - { name: clients, match: { path: /login }, limit: 1/minute }
---
domain: work
rules:
  - { name: busy, per: [user], limit: 1 at once, soft: 10% }
  - { name: tried, limit: 1/hour, mode: shadow }
";

/// A status of an operation: `("get", "/limit/{key}", "429")`.
type Seen = BTreeSet<(String, String, String)>;

/// What only happens when a store fails, which the one in memory does not, or when an endpoint that is
/// described elsewhere says so.
fn is_out_of_reach(method: &str, path: &str, status: &str) -> bool {
    let undecided = status == "503" && path != "/readyz";
    let envoys = path == "/json" && matches!(status, "400" | "429" | "500");
    let unusual = path == "/v1/auth" && !matches!(method, "get" | "head") && status != "200";
    undecided || envoys || unusual
}

struct Walk {
    document: Value,
    wire: Wire,
    seen: Seen,
}

#[tokio::test]
async fn every_operation_of_the_document_answers_as_it_says() {
    let settings = HttpSettings::default();
    let leaving = settings.leaving.clone();
    let daemon = Daemon::new(RULES);
    let address = listen(&daemon, settings).await;
    let mut walk = Walk::new(address).await;

    for (method, path) in walk.operations() {
        // Whatever an operation is called with, what comes back is described.
        let target = path.replace("{key}", "walk");
        walk.call(&path, Ask::new(&method.to_ascii_uppercase(), &target)).await;
    }
    limits(&mut walk).await;
    proxies(&mut walk).await;
    checks(&mut walk).await;
    let body_timeout = Duration::from_millis(300);
    let impatient = HttpSettings { body_timeout, ..HttpSettings::default() };
    bodies(&mut walk, listen(&daemon, impatient).await).await;
    leaving.cancel();
    for path in ["/readyz", "/healthcheck"] {
        for method in ["GET", "HEAD"] {
            walk.call(path, Ask::new(method, path)).await;
        }
    }
    let promised = walk.promised();
    let unseen: Vec<_> = promised.difference(&walk.seen).collect();
    assert!(unseen.is_empty(), "described, and not what any call got: {unseen:#?}");
}

#[tokio::test]
async fn every_route_is_in_the_document_with_its_methods() {
    let daemon = Daemon::new(RULES);
    let address = listen(&daemon, HttpSettings::default()).await;
    let walk = Walk::new(address).await;
    let mut routes: Vec<(String, String)> = Vec::new();
    for (path, methods) in ROUTES {
        routes.extend(methods.split(", ").map(|method| (method.to_ascii_lowercase(), path.into())));
    }
    let mut described = walk.operations();
    routes.sort();
    described.sort();
    assert_eq!(routes, described);
}

#[tokio::test]
async fn the_document_names_the_bounds_and_the_version_that_hold() {
    let daemon = Daemon::new(RULES);
    let address = listen(&daemon, HttpSettings::default()).await;
    let document = Walk::new(address).await.document;
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    let batch = &document["paths"]["/v1/check/batch"]["post"]["requestBody"]["content"];
    let calls_max = HttpSettings::default().batch_calls_max;
    assert_eq!(batch["application/json"]["schema"]["maxItems"], calls_max);
    let attributes_max = tidegate_rules::attribute::ATTRIBUTES_MAX;
    let attributes = &document["components"]["schemas"]["Attributes"];
    assert_eq!(attributes["maxProperties"], attributes_max);
}

async fn listen(daemon: &Daemon, settings: HttpSettings) -> SocketAddr {
    let settings = Arc::new(settings);
    let serve = move |engine, stream, peer, drain| {
        http::serve_with(engine, Arc::clone(&settings), stream, peer, drain)
    };
    daemon.listen(serve).await
}

async fn limits(walk: &mut Walk) {
    for method in ["GET", "HEAD", "POST"] {
        walk.call("/limit/{key}", Ask::new(method, &format!("/limit/{method}"))).await;
        for target in ["/limit/ann?cost=2", "/limit/ann", "/limit/ann?cost=9", "/limit/ann?x=1"] {
            walk.call("/limit/{key}", Ask::new(method, target)).await;
        }
    }
}

async fn proxies(walk: &mut Walk) {
    let methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"];
    for method in methods {
        let free = Ask::new(method, "/v1/auth?domain=elsewhere")
            .header("x-forwarded-method", "GET")
            .header("x-forwarded-uri", "/");
        walk.call("/v1/auth", free).await;
        for target in ["/v1/auth", "/v1/auth?dialect=nginx"] {
            for _ in 0..2 {
                let login = Ask::new(method, target)
                    .header("x-original-method", "POST")
                    .header("x-original-uri", "/login");
                walk.call("/v1/auth", login).await;
            }
        }
    }
}

async fn checks(walk: &mut Walk) {
    let call = r#"{"attributes":{"key":"bob"}}"#;
    for _ in 0..3 {
        walk.post("/v1/check", call).await;
    }
    walk.post("/v1/check", r#"{"domain":"elsewhere"}"#).await;
    walk.post("/v1/check", r#"{"attributes":{"key":"bob"},"cost":9}"#).await;
    walk.post("/v1/check/batch", &format!("[{call},{call}]")).await;
    let held = r#"{"domain":"work","attributes":{"user":"ann"}}"#;
    let held = walk.post("/v1/check", held).await.json();
    assert!(held["lease_id"].is_string());
    let lease =
        json!({"domain": "work", "attributes": {"user": "ann"}, "lease_id": held["lease_id"]});
    walk.post("/v1/renew", &lease.to_string()).await;
    walk.post("/v1/release", &lease.to_string()).await;
    let taken = walk.post("/v1/check", r#"{"attributes":{"key":"carl"}}"#).await.json();
    let refund = json!({"attributes": {"key": "carl"}, "taken_at_us": taken["taken_at_us"]});
    walk.post("/v1/refund", &refund.to_string()).await;
    walk.post("/json", r#"{"domain":"default","descriptors":[{"entries":[]}]}"#).await;
}

/// Bodies that are none, too large, of another type, and too slow for whoever is impatient.
async fn bodies(walk: &mut Walk, impatient: SocketAddr) {
    let own = ["/v1/check", "/v1/check/batch", "/v1/refund", "/v1/release", "/v1/renew"];
    for path in own.into_iter().chain(["/json"]) {
        walk.post(path, &" ".repeat((1 << 20) + 1)).await;
        if path != "/json" {
            walk.post(path, "7").await;
            let typed = Ask::new("POST", path).header("content-type", "text/plain").body("{}");
            walk.call(path, typed).await;
        }
        let mut slow = Wire::open(impatient).await;
        slow.write(format!("POST {path} HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\r\n{{")).await;
        let reply = slow.reply(false).await.unwrap();
        assert_eq!(reply.status, 408);
        walk.hold("post", path, &reply);
    }
}

impl Walk {
    async fn new(address: SocketAddr) -> Self {
        let mut wire = Wire::open(address).await;
        let document = wire.get("/openapi.json").await.json();
        Self { document, wire, seen: Seen::new() }
    }

    /// The methods and paths of the document.
    fn operations(&self) -> Vec<(String, String)> {
        let paths = self.document["paths"].as_object().unwrap();
        let methods = ["get", "head", "post", "put", "patch", "delete", "options", "trace"];
        let of = |(path, item): (&String, &Value)| {
            let has = |method: &&&str| item.get(**method).is_some();
            let found =
                methods.iter().filter(has).map(|method| ((*method).to_owned(), path.clone()));
            found.collect::<Vec<_>>()
        };
        paths.iter().flat_map(of).collect()
    }

    /// Everything that the document says can happen, and that a test can bring about.
    fn promised(&self) -> Seen {
        let mut promised = Seen::new();
        for (method, path) in self.operations() {
            let responses =
                self.document["paths"][&path][&method]["responses"].as_object().unwrap();
            for status in responses.keys().filter(|status| !is_out_of_reach(&method, &path, status))
            {
                promised.insert((method.clone(), path.clone(), status.clone()));
            }
        }
        promised
    }

    async fn post(&mut self, path: &str, body: &str) -> Reply {
        self.call(path, Ask::new("POST", path).json(body)).await
    }

    async fn call(&mut self, path: &str, ask: Ask<'_>) -> Reply {
        let reply = self.wire.ask(&ask).await;
        self.hold(&ask.method().to_ascii_lowercase(), path, &reply);
        reply
    }

    /// Holds a reply to what the document says about it.
    fn hold(&mut self, method: &str, path: &str, reply: &Reply) {
        let what = format!("{method} {path}: {reply:?}");
        let status = reply.status.to_string();
        let described = &self.document["paths"][path][method]["responses"][&status];
        assert!(described.is_object(), "not described: {what}");
        let described = self.resolved(described);
        for (name, header) in described["headers"].as_object().into_iter().flatten() {
            let header = self.resolved(header);
            let value = reply.header(&name.to_ascii_lowercase());
            assert!(value.is_some() || header["required"] != true, "no {name}: {what}");
            if let Some(value) = value {
                let number =
                    value.parse::<u64>().map_or_else(|_| json!(value), |number| json!(number));
                self.validate(&header["schema"], &number, &what);
            }
        }
        if let Some(content) = described["content"].as_object() {
            let content_type = reply.header("content-type").expect(&what);
            let content_type = content_type.split(';').next().unwrap();
            let schema =
                &content.get(content_type).unwrap_or_else(|| panic!("of type: {what}"))["schema"];
            let is_json = content_type.ends_with("json");
            let body = if is_json { reply.json() } else { json!(reply.text()) };
            self.validate(schema, &body, &what);
        }
        self.seen.insert((method.to_owned(), path.to_owned(), status));
    }

    fn resolved<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str() {
            Some(pointer) => self.document.pointer(&pointer[1..]).expect(pointer),
            None => value,
        }
    }

    /// The schemas of a document are JSON schemas whose references point into it.
    fn validate(&self, schema: &Value, value: &Value, what: &str) {
        let mut root = schema.clone();
        root["components"] = self.document["components"].clone();
        let validator = jsonschema::draft202012::new(&root).expect("a schema");
        let faults: Vec<String> =
            validator.iter_errors(value).map(|fault| fault.to_string()).collect();
        assert!(faults.is_empty(), "{faults:#?}\nin {what}");
    }
}
