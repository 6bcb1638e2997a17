//! The admin address: what an operator sees and switches. It decides nothing about limits itself, and
//! no call of a protected service comes in here.
//!
//! It listens on the loopback address unless said otherwise. There no token is needed, and browsers
//! are kept out instead: requests must name an address or `localhost` as their host, must not come
//! from another site's page, and writes must be JSON. Everywhere else a token is needed for all but
//! the health of the daemon.

mod body;
mod explained;
mod guard;
mod keys;
mod lists;
mod reply;
mod rules;
mod settings;

use std::convert::Infallible;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use tokio_util::sync::CancellationToken;

use self::body::{Fields, Query};
use self::reply::{Problem, Reply};
use crate::controls::Which;
use crate::engine::Engine;
use crate::listen::{Address, Peer, Stream};
use crate::metrics::{self, Entrance, Metrics};
use crate::web::{self, End, Versions};

pub use self::body::{BODY_BYTES_MAX, BODY_TIMEOUT};
pub use self::explained::explained;
pub use self::keys::TOP_COUNT_MAX;
pub use self::settings::{
    AdminSettings, LevelHook, Reload, SetLevel, TOKEN_BYTES_MIN, Token, TokenError,
};

/// Serves one connection with all defaults: no token, and nothing that can be reloaded.
pub async fn serve(engine: Arc<Engine>, stream: Stream, peer: Peer, drain: CancellationToken) {
    Admin::new(engine, AdminSettings::default()).serve(stream, peer, drain).await;
}

/// Whether an address may be listened on only with a token: those that another machine can reach. A
/// socket in the file system has permissions instead.
pub fn needs_token(address: &Address) -> bool {
    match address {
        Address::Tcp(address) => !address.ip().to_canonical().is_loopback(),
        Address::Unix(_) | Address::Off => false,
    }
}

/// The admin address of one engine.
#[derive(Clone, Debug)]
pub struct Admin {
    engine: Arc<Engine>,
    settings: Arc<AdminSettings>,
}

impl Admin {
    /// The admin address of an engine, with these settings.
    pub fn new(engine: Arc<Engine>, settings: AdminSettings) -> Self {
        engine.top().keep_names(settings.names_in_top);
        Self { engine, settings: Arc::new(settings) }
    }

    /// Serves one connection until it ends, or until `drain` is cancelled and what is under way is
    /// answered.
    pub async fn serve(&self, stream: Stream, peer: Peer, drain: CancellationToken) {
        let _connected = self.engine.metrics().connected(Entrance::Admin);
        let service = service_fn(|request| {
            let (admin, drain) = (self.clone(), drain.clone());
            Box::pin(async move {
                let is_head = *request.method() == Method::HEAD;
                let reply = admin.answer(request, peer, &drain).await;
                Ok::<_, Infallible>(reply.unwrap_or_else(Reply::from).into_response(is_head))
            })
        });
        let panicked = |is_head| Reply::from(Problem::panicked()).into_response(is_head);
        let end = web::serve(service, panicked, stream, Versions::Both, drain.clone()).await;
        if end == End::NotTheProtocol {
            self.engine.metrics().protocol_error(Entrance::Admin);
        }
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        peer: Peer,
        drain: &CancellationToken,
    ) -> Result<Reply, Problem> {
        guard::check_origin(&request, peer, self.settings.token.is_some())?;
        let path = request.uri().path().to_owned();
        match path.as_str() {
            "/healthz" => return Ok(Reply::text(StatusCode::OK, "ok\n")),
            "/readyz" => return Ok(self.readiness(drain)),
            _ => guard::check_token(&request, self.settings.token.as_ref())?,
        }
        let asked = Asked::of(&path).ok_or_else(Problem::not_found)?;
        let method = match *request.method() {
            Method::HEAD => Method::GET,
            ref method => method.clone(),
        };
        if !asked.methods().contains(&method) {
            return Err(Problem::method(asked.methods()));
        }
        let query = Query::of(request.uri().query().unwrap_or_default())?;
        let fields = match method {
            Method::GET => Fields::default(),
            _ => body::read(request, method == Method::DELETE).await?,
        };
        self.act(asked, &method, (query, fields), peer).await
    }

    async fn act(
        &self,
        asked: Asked,
        method: &Method,
        (query, fields): (Query, Fields),
        peer: Peer,
    ) -> Result<Reply, Problem> {
        let engine = &self.engine;
        let is_read = *method == Method::GET;
        match asked {
            Asked::Metrics => {
                let text = Metrics::scrape(engine).await;
                Ok(Reply::typed(StatusCode::OK, metrics::CONTENT_TYPE, text))
            }
            Asked::Rules => rules::list(engine, query),
            Asked::Explain => keys::explain(engine, fields).await,
            Asked::Peek => keys::peek(engine, fields).await,
            Asked::Reset => keys::reset(engine, fields, peer).await,
            Asked::Top => keys::top(engine, query),
            Asked::LogLevel if is_read => self.log_level(),
            Asked::LogLevel => self.set_log_level(fields, peer),
            Asked::List(which) => match *method {
                Method::GET => Ok(lists::list(engine, which)),
                Method::DELETE => lists::lift(engine, which, (query, fields), peer).await,
                _ => lists::add(engine, which, fields, peer).await,
            },
            Asked::Bypass if is_read => Ok(lists::bypass(engine)),
            Asked::Bypass => lists::set_bypass(engine, fields, peer).await,
            Asked::Shadow if is_read => Ok(lists::shadow(engine)),
            Asked::Shadow => lists::set_shadow(engine, fields, peer).await,
            Asked::Reload => self.reload(fields, peer),
        }
    }

    /// Ready to be sent calls: not while the daemon drains, and not where it says that it is not.
    fn readiness(&self, drain: &CancellationToken) -> Reply {
        let is_ready = self.settings.is_ready.as_ref().is_none_or(|is_ready| is_ready());
        if is_ready && !drain.is_cancelled() {
            Reply::text(StatusCode::OK, "ready\n")
        } else {
            Reply::text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
        }
    }

    fn log_level(&self) -> Result<Reply, Problem> {
        let hook = self.settings.log_level.as_ref().ok_or_else(no_log_level)?;
        Ok(Reply::json(&serde_json::json!({ "level": (hook.read)() })))
    }

    fn set_log_level(&self, mut fields: Fields, peer: Peer) -> Result<Reply, Problem> {
        let level = fields.text("level")?;
        fields.end()?;
        let hook = self.settings.log_level.as_ref().ok_or_else(no_log_level)?;
        (hook.write)(&level).map_err(|why| Problem::field("level", why))?;
        tracing::info!(target: AUDIT, action = "log-level", level, ?peer, "{AUDITED}");
        self.log_level()
    }

    /// Has the rules read again. Whether that went well shows in the version of the rules, in the
    /// metrics and in the log: reading takes as long as disks do, and nobody waits here.
    fn reload(&self, fields: Fields, peer: Peer) -> Result<Reply, Problem> {
        fields.end()?;
        let version = self.engine.limiter().rules().version();
        let is_asked = self.settings.on_reload.as_ref().is_some_and(|reload| reload());
        tracing::info!(target: AUDIT, action = "reload", asked = is_asked, ?peer, "{AUDITED}");
        if !is_asked {
            return Err(Problem::new(StatusCode::CONFLICT, "the rules are not from files"));
        }
        let value = serde_json::json!({ "asked": true, "version_before": version });
        Ok(Reply::typed(StatusCode::ACCEPTED, "application/json", format!("{value}\n")))
    }
}

/// Where the lines go that say who changed what, at any level of the log. They hold no identifier: a
/// target is told by a hash with the limiter's secret.
pub(crate) const AUDIT: &str = "tidegate::audit";
/// How such a line begins where a log does not show where lines go.
const AUDITED: &str = "an operator's change";

fn no_log_level() -> Problem {
    Problem::new(StatusCode::CONFLICT, "the log level of this daemon cannot be changed")
}

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Metrics,
    Rules,
    Explain,
    Peek,
    Reset,
    Top,
    LogLevel,
    List(Which),
    Bypass,
    Shadow,
    Reload,
}

impl Asked {
    fn of(path: &str) -> Option<Self> {
        Some(match path {
            "/metrics" => Self::Metrics,
            "/v1/rules" => Self::Rules,
            "/v1/explain" => Self::Explain,
            "/v1/peek" => Self::Peek,
            "/v1/reset" => Self::Reset,
            "/v1/top" => Self::Top,
            "/v1/log-level" => Self::LogLevel,
            "/v1/bans" => Self::List(Which::Bans),
            "/v1/allow" => Self::List(Which::Allowed),
            "/v1/bypass" => Self::Bypass,
            "/v1/shadow" => Self::Shadow,
            "/v1/reload" => Self::Reload,
            _ => return None,
        })
    }

    fn methods(self) -> &'static [Method] {
        match self {
            Self::Metrics | Self::Rules | Self::Top => &[Method::GET],
            Self::Explain | Self::Peek | Self::Reset | Self::Reload => &[Method::POST],
            Self::LogLevel | Self::Bypass | Self::Shadow => &[Method::GET, Method::PUT],
            Self::List(_) => &[Method::GET, Method::POST, Method::DELETE],
        }
    }
}
