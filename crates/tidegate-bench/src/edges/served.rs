//! The app that layers stand around: one route that says hello, served as axum serves.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use tidegate::RuleLimiter;
use tidegate_tower::RateLimitLayer;
use tokio::net::TcpListener;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

use crate::wire::server::local;

/// How the benchmark starts it: with this word, a layer and a port.
pub(crate) const SUBCOMMAND: &str = "edge-app";

/// What stands around the app.
#[derive(Clone, Copy)]
pub(crate) enum Around {
    Nothing,
    Tidegate,
    Governor,
}

impl Around {
    pub(crate) const ALL: [Self; 3] = [Self::Nothing, Self::Tidegate, Self::Governor];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Tidegate => "tidegate",
            Self::Governor => "governor",
        }
    }

    /// The app, limited per address so generously that nobody is denied, with headers on every response.
    pub(crate) fn app(self) -> Result<Router, Box<dyn Error>> {
        const RULES: &str =
            "{ domain: default, rules: [ { name: all, per: [ip], limit: 1000000000/day } ] }";
        let app = Router::new().route("/limit/{key}", get(async || "hello"));
        Ok(match self {
            Self::Nothing => app,
            Self::Tidegate => app.layer(RateLimitLayer::new(RuleLimiter::new(RULES)?)),
            Self::Governor => {
                let mut config = GovernorConfigBuilder::default();
                config.per_nanosecond(1).burst_size(1_000_000_000);
                let config = config.use_headers().finish().ok_or("a quota that is none")?;
                app.layer(GovernorLayer::new(Arc::new(config)))
            }
        })
    }
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
