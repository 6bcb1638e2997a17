//! The app that layers stand around: one route that says hello, served as axum serves.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use tidegate::{RuleLimiter, RulesError};
use tidegate_tower::{HeaderSet, RateLimitLayer};
use tokio::net::TcpListener;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

use crate::wire::server::{Server, free_port, local};

/// How the benchmark starts it: with this word, a layer and a port.
pub(crate) const SUBCOMMAND: &str = "edge-app";

/// What stands around the app.
#[derive(Clone, Copy)]
pub(crate) enum Around {
    Nothing,
    /// A layer that does nothing: what axum takes for any layer, whoever wrote it.
    Empty,
    Tidegate,
    /// The same with the headers alone that `tower_governor` sends, and one more.
    TidegateFewHeaders,
    Governor,
}

impl Around {
    pub(crate) const ALL: [Self; 5] =
        [Self::Nothing, Self::Empty, Self::Tidegate, Self::TidegateFewHeaders, Self::Governor];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Empty => "empty",
            Self::Tidegate => "tidegate",
            Self::TidegateFewHeaders => "tidegate-few-headers",
            Self::Governor => "governor",
        }
    }

    /// The app, limited per address so generously that nobody is denied, with headers on every response.
    pub(crate) fn app(self) -> Result<Router, Box<dyn Error>> {
        const RULES: &str =
            "{ domain: default, rules: [ { name: all, per: [ip], limit: 1000000000/day } ] }";
        let app = Router::new().route("/limit/{key}", get(async || "hello"));
        let limit = || Ok::<_, RulesError>(RateLimitLayer::new(RuleLimiter::new(RULES)?).in_axum());
        Ok(match self {
            Self::Nothing => app,
            Self::Empty => app.layer(tower::layer::layer_fn(|service| service)),
            Self::Tidegate => app.layer(limit()?),
            Self::TidegateFewHeaders => app.layer(limit()?.headers(HeaderSet::XRateLimit)),
            Self::Governor => {
                let mut config = GovernorConfigBuilder::default();
                config.per_nanosecond(1).burst_size(1_000_000_000);
                let config = config.use_headers().finish().ok_or("a quota that is none")?;
                app.layer(GovernorLayer::new(Arc::new(config)))
            }
        })
    }
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
    let app = around.ok_or("no such layer")?.app()?;
    let address = local(port.parse()?);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(address).await?;
        let service = app.into_make_service_with_connect_info::<SocketAddr>();
        Ok(axum::serve(listener, service).await?)
    })
}
