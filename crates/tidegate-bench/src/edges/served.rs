//! The app that layers stand around or in: one route that says hello, served as axum serves.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use axum::routing::get;
use axum::serve::IncomingStream;
use axum::{Router, ServiceExt as _};
use governor::clock::QuantaInstant;
use governor::middleware::RateLimitingMiddleware;
use tidegate::{RuleLimiter, RulesError};
use tidegate_tower::{HeaderSet, InAxum, RateLimit, RateLimitLayer};
use tokio::net::TcpListener;
use tower::util::MapResponse;
use tower::{Layer as _, Service};
use tower_governor::GovernorLayer;
use tower_governor::governor::{GovernorConfig, GovernorConfigBuilder};
use tower_governor::key_extractor::KeyExtractor;

use crate::wire::server::{Server, free_port, local};

/// How the benchmark starts it: with this word, a layer and a port.
pub(crate) const SUBCOMMAND: &str = "edge-app";

/// What stands around the app, or inside of it by `Router::layer`, for which axum boxes what a layer makes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Around {
    Nothing,
    Tidegate,
    /// The same with the headers alone that `tower_governor` sends, and one more.
    TidegateFewHeaders,
    Governor,
    /// Both without headers, which is how `tower_governor` comes: what is left is the limiter and its layer.
    TidegateNoHeaders,
    GovernorNoHeaders,
    /// No limiter: the headers that ours sends, with values that never change. What they cost whoever sends them.
    HeadersAlone,
    FewHeadersAlone,
    /// A layer that does nothing, inside: what axum takes for any layer, whoever wrote it.
    EmptyInside,
    TidegateInside,
    TidegateFewHeadersInside,
    GovernorInside,
    /// Requests that do not carry the address of their peer: the app alone, and ours, which its connection tells.
    NothingByConnection,
    TidegateByConnection,
    TidegateFewHeadersByConnection,
    TidegateNoHeadersByConnection,
    /// A limit of requests at once in place of a rate: each holds a place until its body has ended.
    TidegateHolding,
}

/// The app with our layer around it.
pub(super) type Limited = RateLimit<Router, RuleLimiter, InAxum>;

/// What is done with an app, whatever its type is.
pub(super) trait Use {
    type Outcome;

    fn of<S>(self, app: S) -> Self::Outcome
    where
        S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send;

    /// The same where requests do not carry the address of their peer.
    fn without_addresses<S>(self, app: S) -> Self::Outcome
    where
        S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send;

    /// The same with our layer around it, in either of the ways in which it is served.
    fn limited(self, app: Limited, carries_addresses: bool) -> Self::Outcome;
}

impl Around {
    pub(super) const ALL: [Self; 17] = [
        Self::Nothing,
        Self::Tidegate,
        Self::TidegateFewHeaders,
        Self::Governor,
        Self::TidegateNoHeaders,
        Self::GovernorNoHeaders,
        Self::HeadersAlone,
        Self::FewHeadersAlone,
        Self::EmptyInside,
        Self::TidegateInside,
        Self::TidegateFewHeadersInside,
        Self::GovernorInside,
        Self::NothingByConnection,
        Self::TidegateByConnection,
        Self::TidegateFewHeadersByConnection,
        Self::TidegateNoHeadersByConnection,
        Self::TidegateHolding,
    ];

    const fn word(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Tidegate => "tidegate",
            Self::TidegateFewHeaders => "tidegate-few-headers",
            Self::Governor => "governor",
            Self::TidegateNoHeaders => "tidegate-no-headers",
            Self::GovernorNoHeaders => "governor-no-headers",
            Self::HeadersAlone => "headers-alone",
            Self::FewHeadersAlone => "few-headers-alone",
            Self::EmptyInside => "empty-inside",
            Self::TidegateInside => "tidegate-inside",
            Self::TidegateFewHeadersInside => "tidegate-few-headers-inside",
            Self::GovernorInside => "governor-inside",
            Self::NothingByConnection => "nothing-by-connection",
            Self::TidegateByConnection => "tidegate-by-connection",
            Self::TidegateFewHeadersByConnection => "tidegate-few-headers-by-connection",
            Self::TidegateNoHeadersByConnection => "tidegate-no-headers-by-connection",
            Self::TidegateHolding => "tidegate-holding",
        }
    }

    /// What people read.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "no layer",
            Self::Tidegate => "tidegate around the app",
            Self::TidegateFewHeaders => "tidegate around the app, X-RateLimit headers alone",
            Self::Governor => "tower_governor around the app",
            Self::TidegateNoHeaders => "tidegate around the app, no headers",
            Self::GovernorNoHeaders => "tower_governor around the app, no headers",
            Self::HeadersAlone => "fixed headers and no limiter around the app",
            Self::FewHeadersAlone => "fixed X-RateLimit headers and no limiter around the app",
            Self::EmptyInside => "a layer that does nothing, by Router::layer",
            Self::TidegateInside => "tidegate by Router::layer",
            Self::TidegateFewHeadersInside => {
                "tidegate by Router::layer, X-RateLimit headers alone"
            }
            Self::GovernorInside => "tower_governor by Router::layer",
            Self::NothingByConnection => "no layer, no addresses in requests",
            Self::TidegateByConnection => "tidegate, peers by connection",
            Self::TidegateFewHeadersByConnection => {
                "tidegate, peers by connection, X-RateLimit headers alone"
            }
            Self::TidegateNoHeadersByConnection => "tidegate, peers by connection, no headers",
            Self::TidegateHolding => "tidegate around the app, a place held",
        }
    }

    /// Who that is, unless it is ours.
    pub(super) const fn peer(self) -> Option<&'static str> {
        if matches!(self, Self::Governor | Self::GovernorNoHeaders | Self::GovernorInside) {
            Some("tower_governor")
        } else {
            None
        }
    }

    /// The app, limited per address so generously that nobody is denied, with headers on every response: from a
    /// bucket so deep that it does not get empty, filled so slowly that it does not get full, as that of a busy client.
    pub(super) fn used<U: Use>(self, to: U) -> Result<U::Outcome, Box<dyn Error>> {
        const RULES: &str = "{ domain: default, rules: [ { name: all, per: [ip], limit: 1000/s burst 1000000000 } ] }";
        let app = Router::new().route("/limit/{key}", get(async || "hello"));
        let limit = || Ok::<_, RulesError>(RateLimitLayer::new(RuleLimiter::new(RULES)?).in_axum());
        let few = || Ok::<_, RulesError>(limit()?.headers(HeaderSet::XRateLimit));
        let none = || Ok::<_, RulesError>(limit()?.headers(HeaderSet::None));
        let mut quota = GovernorConfigBuilder::default();
        quota.per_nanosecond(1_000_000).burst_size(1_000_000_000);
        // As routers are served: an app without its state makes its routes anew for every request.
        let with_state = |app: Router| -> Router { app.with_state(()) };
        Ok(match self {
            Self::Nothing => to.of(with_state(app)),
            Self::Tidegate => to.limited(limit()?.around(app), true),
            Self::TidegateFewHeaders => to.limited(few()?.around(app), true),
            Self::Governor => to.of(theirs(quota.use_headers().finish())?.layer(with_state(app))),
            Self::TidegateNoHeaders => to.limited(none()?.around(app), true),
            Self::GovernorNoHeaders => to.of(theirs(quota.finish())?.layer(with_state(app))),
            Self::HeadersAlone => {
                to.of(MapResponse::new(with_state(app), |it| with_fixed(it, &FIXED)))
            }
            Self::FewHeadersAlone => {
                to.of(MapResponse::new(with_state(app), |it| with_fixed(it, &FIXED[..3])))
            }
            Self::EmptyInside => {
                to.of(with_state(app.layer(tower::layer::layer_fn(|service| service))))
            }
            Self::TidegateInside => to.of(with_state(app.layer(limit()?))),
            Self::TidegateFewHeadersInside => to.of(with_state(app.layer(few()?))),
            Self::GovernorInside => {
                to.of(with_state(app.layer(theirs(quota.use_headers().finish())?)))
            }
            Self::NothingByConnection => to.without_addresses(with_state(app)),
            Self::TidegateByConnection => to.limited(limit()?.around(app), false),
            Self::TidegateFewHeadersByConnection => to.limited(few()?.around(app), false),
            Self::TidegateNoHeadersByConnection => to.limited(none()?.around(app), false),
            Self::TidegateHolding => {
                const HOLDING: &str =
                    "{ domain: default, rules: [ { name: all, per: [ip], limit: 1000 at once } ] }";
                let layer = RateLimitLayer::new(RuleLimiter::new(HOLDING)?);
                to.limited(layer.around(app), true)
            }
        })
    }
}

fn theirs<K: KeyExtractor, M: RateLimitingMiddleware<QuantaInstant>>(
    config: Option<GovernorConfig<K, M>>,
) -> Result<GovernorLayer<K, M, axum::body::Body>, &'static str> {
    config.map(|config| GovernorLayer::new(Arc::new(config))).ok_or("a quota that is none")
}

/// What [`Around::Tidegate`] sends at first; of [`HeaderSet::XRateLimit`] the first three.
static FIXED: [(HeaderName, HeaderValue); 5] = [
    fixed("x-ratelimit-limit", "1000000000"),
    fixed("x-ratelimit-remaining", "999999999"),
    fixed("x-ratelimit-reset", "1"),
    fixed("ratelimit-policy", "\"all\";q=1000000000;w=10000"),
    fixed("ratelimit", "\"all\";r=999999999;t=1"),
];

const fn fixed(name: &'static str, value: &'static str) -> (HeaderName, HeaderValue) {
    (HeaderName::from_static(name), HeaderValue::from_static(value))
}

fn with_fixed(mut response: Response, fixed: &'static [(HeaderName, HeaderValue)]) -> Response {
    let headers = response.headers_mut();
    headers.reserve(fixed.len());
    for (name, value) in fixed {
        headers.insert(name, value.clone());
    }
    response
}

/// The app in a process of its own, on this core alone.
pub(super) fn start(around: Around, name: &str, core: usize) -> Result<Server, Box<dyn Error>> {
    let port = free_port()?;
    let words = [SUBCOMMAND.to_owned(), around.word().to_owned(), port.to_string()];
    Server::start(name, &std::env::current_exe()?, &words, port, core, &[])
}

/// Serves the app until the process is ended.
pub(crate) fn serve(layer: &str, port: &str) -> Result<(), Box<dyn Error>> {
    let around = Around::ALL.into_iter().find(|around| around.word() == layer);
    around.ok_or("no such layer")?.used(Serving { at: local(port.parse()?) })?
}

struct Serving {
    at: SocketAddr,
}

impl Use for Serving {
    type Outcome = Result<(), Box<dyn Error>>;

    fn of<S>(self, app: S) -> Self::Outcome
    where
        S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
    {
        self.serve(app.into_make_service_with_connect_info::<SocketAddr>())
    }

    fn without_addresses<S>(self, app: S) -> Self::Outcome
    where
        S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
    {
        self.serve(app.into_make_service())
    }

    fn limited(self, app: Limited, carries_addresses: bool) -> Self::Outcome {
        if carries_addresses {
            self.serve(app.into_make_service_with_connect_info::<SocketAddr>())
        } else {
            self.serve(app.into_make_service_with_peers())
        }
    }
}

impl Serving {
    fn serve<M, S>(self, make: M) -> Result<(), Box<dyn Error>>
    where
        M: for<'a> Service<IncomingStream<'a, TcpListener>, Error = Infallible, Response = S>,
        M: Send + 'static,
        for<'a> <M as Service<IncomingStream<'a, TcpListener>>>::Future: Send,
        S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
    {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = TcpListener::bind(self.at).await?;
            Ok(axum::serve(listener, make).await?)
        })
    }
}
