//! Which function serves which address, and with which settings: the one place where protocols are put
//! to sockets.

use std::sync::Arc;

use tidegate_files::Watcher;
use tidegate_tower::HeaderSet;
use tokio_util::sync::CancellationToken;

use super::StartError;
use crate::admin::{Admin, AdminSettings, LevelHook, Token};
use crate::config::Settings;
use crate::config::value::Headers;
use crate::engine::Engine;
use crate::http::HttpSettings;
use crate::listen::accept::{Shutdown, accept};
use crate::listen::{Listener, Service};
use crate::log::LogLevel;
use crate::metrics::Entrance;
use crate::resp::RespSettings;
use crate::{grpc, http, resp};

/// What protocols are served with.
#[derive(Clone, Debug)]
pub(super) struct Wiring {
    engine: Arc<Engine>,
    http: Arc<HttpSettings>,
    resp: Arc<RespSettings>,
    admin: Admin,
    connections_max: usize,
}

impl Wiring {
    pub(super) fn new(
        engine: &Arc<Engine>,
        settings: &Settings,
        drain: &CancellationToken,
        watcher: Option<&Arc<Watcher>>,
        log: LogLevel,
    ) -> Result<Self, StartError> {
        let headers = match settings.headers {
            Headers::All => HeaderSet::All,
            Headers::Ietf => HeaderSet::Ietf,
            Headers::XRateLimit => HeaderSet::XRateLimit,
            Headers::None => HeaderSet::None,
        };
        let http = HttpSettings {
            headers,
            delay_max: settings.max_delay,
            leaving: drain.clone(),
            ..HttpSettings::default()
        };
        let mut resp = RespSettings::new();
        if let Some(password) = &settings.resp_password {
            resp = resp.with_password(password.as_bytes());
        }
        Ok(Self {
            engine: Arc::clone(engine),
            http: Arc::new(http),
            resp: Arc::new(resp),
            admin: Admin::new(Arc::clone(engine), admin(settings, watcher, log)?),
            connections_max: settings.max_connections,
        })
    }

    /// Accepts connections of a service until the drain begins.
    pub(super) async fn serve(self, service: Service, listener: Listener, shutdown: Shutdown) {
        let Self { engine, http, resp, admin, connections_max: max } = self;
        let drain = shutdown.drain.clone();
        match service {
            Service::Http => {
                let serve = |stream, peer| {
                    let (engine, http) = (Arc::clone(&engine), Arc::clone(&http));
                    let drain = drain.clone();
                    async move {
                        let _open = engine.metrics().connected(Entrance::Http);
                        http::serve_with(Arc::clone(&engine), http, stream, peer, drain).await;
                    }
                };
                accept(service, listener, max, shutdown, serve).await;
            }
            Service::Grpc => {
                let serve = |stream, peer| {
                    let (engine, drain) = (Arc::clone(&engine), drain.clone());
                    async move {
                        let _open = engine.metrics().connected(Entrance::Grpc);
                        grpc::serve(Arc::clone(&engine), stream, peer, drain).await;
                    }
                };
                accept(service, listener, max, shutdown, serve).await;
            }
            Service::Resp => {
                let serve = |stream, peer| {
                    let (engine, resp) = (Arc::clone(&engine), Arc::clone(&resp));
                    let drain = drain.clone();
                    async move {
                        let _open = engine.metrics().connected(Entrance::Resp);
                        resp::serve_with(Arc::clone(&engine), resp, stream, peer, drain).await;
                    }
                };
                accept(service, listener, max, shutdown, serve).await;
            }
            Service::Admin => {
                let serve = |stream, peer| {
                    let (admin, drain) = (admin.clone(), drain.clone());
                    async move { admin.serve(stream, peer, drain).await }
                };
                accept(service, listener, max, shutdown, serve).await;
            }
            // A gateway has no address in these settings, and accepts its connections itself.
            Service::Gateway => {}
        }
    }
}

fn admin(
    settings: &Settings,
    watcher: Option<&Arc<Watcher>>,
    log: LogLevel,
) -> Result<AdminSettings, StartError> {
    let mut admin = AdminSettings::default();
    if let Some(token) = &settings.admin_token {
        let text = String::from_utf8_lossy(token.as_bytes());
        admin.token = Some(Token::new(&text).map_err(StartError::Token)?);
    }
    admin.names_in_top = settings.names_in_top;
    // The daemon ends when its last owner does, and an open connection is none.
    let watcher = watcher.map(Arc::downgrade);
    admin.on_reload = Some(Arc::new(move || {
        let watcher = watcher.as_ref().and_then(std::sync::Weak::upgrade);
        watcher.inspect(|watcher| watcher.poke()).is_some()
    }));
    let read = log.clone();
    admin.log_level = Some(LevelHook {
        read: Arc::new(move || read.level().to_string()),
        write: Arc::new(move |level| log.set(level).map_err(|error| error.to_string())),
    });
    Ok(admin)
}
