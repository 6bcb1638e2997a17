//! Requests of a connection whose limit was looked for once are answered as those that are looked at one by one: under
//! any rules, through reloads, for any peer and identity.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ConnectInfo;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use proptest::prelude::*;
use tidegate::{ManualClock, RuleLimiter, RuleSet};
use tidegate_identity::{Identity, IdentityConfig, Trust};
use tidegate_rules::{ParseOptions, Source};
use tidegate_tower::{Peer, RateLimitLayer};
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::support::{limiter, rules};

const LIMITS: [&str; 21] = [
    "limit: 3/minute",
    "limit: 6/minute",
    "limit: 2/hour",
    "limit: 3/minute, mode: shadow",
    "limit: 4/hour fixed-window",
    "limit: 3/minute sliding-log",
    "limit: { rate: 1/s, burst: 3, algorithm: leaky-bucket }",
    "limit: 2 at once",
    "limit: unlimited",
    "limits: [ 3/minute, 5/hour ]",
    "limit: 3/minute, tiers: { by: plan, limits: { a: 100/minute, b: unlimited } }",
    "limit: 3/minute, overrides: { 'ip=192.0.2.7': 5/minute }",
    "limit: 3/minute, soft: 50%",
    "limit: 3/minute, elastic: { up_to: 150%, while_pressure_below: 0.7 }",
    "limit: 3/minute, priority: { by: plan, reserve: { a: 20% } }",
    "limit: 3/minute, candidate: 2/minute",
    "limit: 3/minute, cost: 2",
    "limit: 3/minute, missing: deny",
    "limit: 3/minute, missing: shared",
    "limit: 3/minute, charge_refused: true",
    "limit: 3/minute, count: on-response, statuses: [404]",
];
const MATCHES: [&str; 6] = [
    "",
    "match: { ip: 192.0.2.0/24 }, ",
    "match: { ip: { not: 192.0.2.0/24 } }, ",
    "match: { ip: '2001:db8::/32' }, ",
    "match: { method: GET }, ",
    "match: { path: /a }, ",
];
const COUNTED_BY: [&str; 3] = ["per: [ip], ", "", "per: [ip, host], "];
const PEERS: [&str; 6] = [
    "192.0.2.7:1",
    "192.0.2.8:1",
    "198.51.100.1:5",
    "[2001:db8::1]:7",
    "[::ffff:192.0.2.7]:9",
    "[64:ff9b::c000:207]:9",
];

/// What a rule matches, counts by, and how many it lets through.
type Rule = (&'static str, &'static str, &'static str);

fn rule() -> impl Strategy<Value = Rule> {
    let matched = prop_oneof![1 => Just(MATCHES[0]), 2 => proptest::sample::select(&MATCHES[..])];
    let by = prop_oneof![3 => Just(COUNTED_BY[0]), 1 => proptest::sample::select(&COUNTED_BY[..])];
    (matched, by, proptest::sample::select(&LIMITS[..]))
}

/// One rule mostly, since a limit is foreseen for one alone. All of them can be read.
fn rule_set() -> impl Strategy<Value = String> {
    let sets = prop_oneof![
        3 => proptest::collection::vec(rule(), 1),
        1 => proptest::collection::vec(rule(), 2..4),
    ];
    let written = |list: Vec<Rule>| {
        let mut text = String::from("domain: default\nrules:\n");
        for (number, (matched, by, limit)) in list.into_iter().enumerate() {
            writeln!(text, "  - {{ name: r{number}, {matched}{by}{limit} }}").unwrap();
        }
        text
    };
    sets.prop_map(written).prop_filter("overrides name what is counted by", |text| {
        RuleSet::parse(&[Source::new("rules", text.as_str())], &ParseOptions::default()).is_ok()
    })
}

#[derive(Clone, Debug)]
enum Step {
    /// A request of a peer, by what it is and carries.
    Ask {
        peer: usize,
        is_post: bool,
        is_b: bool,
        carries: Carries,
        is_held: bool,
    },
    /// Responses that are held are let go.
    LetGo,
    /// The later rules are put in force, or the first again.
    Reload {
        is_later: bool,
    },
    /// A peer connects anew.
    Connect {
        peer: usize,
    },
    Wait {
        secs: u64,
    },
}

/// What may be taken for a client's address.
#[derive(Clone, Copy, Debug)]
enum Carries {
    Nothing,
    Forwarded,
    /// Another peer, noted by the program.
    Peer,
    /// Another one, noted by a server.
    Info,
}

fn step() -> impl Strategy<Value = Step> {
    let carries = prop_oneof![
        4 => Just(Carries::Nothing),
        1 => Just(Carries::Forwarded),
        1 => Just(Carries::Peer),
        1 => Just(Carries::Info),
    ];
    let ask = (0..PEERS.len(), any::<bool>(), any::<bool>(), carries, any::<bool>());
    prop_oneof![
        9 => ask.prop_map(|(peer, is_post, is_b, carries, is_held)| {
            Step::Ask { peer, is_post, is_b, carries, is_held }
        }),
        1 => Just(Step::LetGo),
        1 => any::<bool>().prop_map(|is_later| Step::Reload { is_later }),
        1 => (0..PEERS.len()).prop_map(|peer| Step::Connect { peer }),
        2 => (0..40_u64).prop_map(|secs| Step::Wait { secs }),
    ]
}

fn identity(kind: usize) -> Identity {
    let mut config = IdentityConfig::new([7; 16]);
    match kind {
        0 => {}
        1 => config.proxies.trust = Trust::Networks(vec!["192.0.2.8/32".parse().unwrap()]),
        2 => config.proxies.trust = Trust::Hops(1),
        3 => (config.address.ipv4_prefix, config.address.ipv6_prefix) = (24, 56),
        4 => {
            config.address.translators = vec!["64:ff9b::/96".parse().unwrap()];
            config.proxies.trust = Trust::Networks(vec!["192.0.2.7/32".parse().unwrap()]);
        }
        _ => (config.proxies.local_peer_trusted, config.address.whole) = (true, true),
    }
    Identity::new(config).unwrap()
}

fn request(
    peer: Option<SocketAddr>,
    (is_post, is_b, carries): (bool, bool, Carries),
) -> Request<()> {
    let mut request = Request::builder()
        .method(if is_post { "POST" } else { "GET" })
        .uri(if is_b { "/b" } else { "/a" })
        .header("host", "example.com")
        .body(())
        .unwrap();
    let of_somebody_else = SocketAddr::from(([203, 0, 113, 7], 1));
    let extensions = request.extensions_mut();
    if let Some(peer) = peer {
        extensions.insert(Peer(peer));
    }
    match carries {
        Carries::Nothing => {}
        Carries::Forwarded => {
            let chain = "203.0.113.9, 203.0.113.10".parse().unwrap();
            request.headers_mut().insert("x-forwarded-for", chain);
        }
        Carries::Peer => drop(extensions.insert(Peer(of_somebody_else))),
        Carries::Info => drop(extensions.insert(ConnectInfo(of_somebody_else))),
    }
    request
}

async fn answer(request: Request<()>) -> Result<Response<Empty<Bytes>>, Infallible> {
    let mut response = Response::new(Empty::new());
    if request.uri().path() == "/a" {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    Ok(response)
}

/// A limiter, its clock and a layer with it.
struct Side {
    limiter: Arc<RuleLimiter<ManualClock>>,
    clock: ManualClock,
    layer: RateLimitLayer<RuleLimiter<ManualClock>>,
}

impl Side {
    fn new(text: &str, identity_kind: usize, costs_two: bool) -> Self {
        let (limiter, clock) = limiter(text);
        let limiter = Arc::new(limiter);
        // Nothing waits, or the test would.
        let layer = RateLimitLayer::sharing(Arc::clone(&limiter)).delay_max(Duration::ZERO);
        let layer = layer.identity(identity(identity_kind));
        let layer = if costs_two { layer.cost(|_| 2) } else { layer };
        Self { limiter, clock, layer }
    }
}

async fn are_answered_alike(sides: [Side; 2], texts: [&str; 2], steps: Vec<Step>) {
    let [known, general] = &sides;
    let connected =
        |peer: &str| known.layer.layer(service_fn(answer)).of_peer(peer.parse().unwrap());
    let mut connections = PEERS.map(connected);
    let one_by_one = general.layer.layer(service_fn(answer));
    let mut held = Vec::new();
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::Wait { secs } => {
                for side in &sides {
                    side.clock.advance(Duration::from_secs(secs));
                }
            }
            Step::LetGo => held.clear(),
            Step::Reload { is_later } => {
                let text = texts[usize::from(is_later)];
                for side in &sides {
                    side.limiter.reload(rules(text)).unwrap();
                }
            }
            Step::Connect { peer } => connections[peer] = connected(PEERS[peer]),
            Step::Ask { peer, is_post, is_b, carries, is_held } => {
                let asks = (is_post, is_b, carries);
                let carried = Some(PEERS[peer].parse().unwrap());
                let one = connections[peer].clone().oneshot(request(None, asks)).await.unwrap();
                let other = one_by_one.clone().oneshot(request(carried, asks)).await.unwrap();
                let said = |response: &Response<_>| (response.status(), response.headers().clone());
                assert_eq!(said(&one), said(&other), "step {number}: {} {asks:?}", PEERS[peer]);
                if is_held {
                    held.push((one, other));
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn a_connection_whose_limit_is_foreseen_is_answered_as_any_other(
        first in rule_set(),
        later in rule_set(),
        identity_kind in 0..6_usize,
        costs_two in proptest::bool::weighted(0.1),
        steps in proptest::collection::vec(step(), 1..50),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let sides = [(); 2].map(|()| Side::new(&first, identity_kind, costs_two));
        runtime.block_on(are_answered_alike(sides, [&first, &later], steps));
    }
}
