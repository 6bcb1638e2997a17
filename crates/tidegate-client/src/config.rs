//! How a client behaves: plain settings, checked when it is made.

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use tidegate::RuleLimiter;
use tonic::transport::Endpoint;

use crate::budget::RetryBudget;
use crate::client::Client;
use crate::error::ConfigError;

/// A client in the making. See [`Client::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct ClientBuilder {
    pub(crate) address: String,
    pub(crate) connections: usize,
    pub(crate) deadline: Duration,
    pub(crate) keep_alive: Duration,
    pub(crate) window: Duration,
    pub(crate) linger: Duration,
    pub(crate) retries_max: u32,
    pub(crate) budget: Arc<RetryBudget>,
    pub(crate) while_away: WhileAway,
}

/// What happens to calls while the daemon does not answer. Where it answers others and there are too many calls, they are
/// [`Busy`](crate::ClientError::Busy), whatever is said here.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum WhileAway {
    /// They are errors, which the middleware answers with 503.
    #[default]
    Refuse,
    /// They pass.
    Allow,
    /// A limiter in this process decides, which knows nothing of what was taken elsewhere: give it this
    /// process's share.
    Local(Arc<RuleLimiter>),
}

impl ClientBuilder {
    /// Connections to the daemon, unless said.
    pub const CONNECTIONS_DEFAULT: usize = 2;
    /// How long a call may take with all its retries, unless said.
    pub const DEADLINE_DEFAULT: Duration = Duration::from_millis(250);
    /// The longest that a call may take, whatever is said.
    pub const DEADLINE_MAX: Duration = Duration::from_hours(1);
    /// How long a connection may be silent, unless said: a few pings a minute cost nothing, and whoever calls after a
    /// pause mostly finds a connection that works.
    pub const KEEP_ALIVE_DEFAULT: Duration = Duration::from_secs(5);
    /// How long the first call of a batch waits for others at most, unless said.
    pub const WINDOW_DEFAULT: Duration = Duration::from_micros(200);
    /// How often a call is made again, unless said.
    pub const RETRIES_MAX_DEFAULT: u32 = 3;

    pub(crate) fn new(address: String) -> Self {
        Self {
            address,
            connections: Self::CONNECTIONS_DEFAULT,
            deadline: Self::DEADLINE_DEFAULT,
            keep_alive: Self::KEEP_ALIVE_DEFAULT,
            window: Self::WINDOW_DEFAULT,
            linger: Duration::ZERO,
            retries_max: Self::RETRIES_MAX_DEFAULT,
            budget: Arc::default(),
            while_away: WhileAway::default(),
        }
    }

    /// How many connections there are.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// How long a call may take, with all its retries; at most [`DEADLINE_MAX`](Self::DEADLINE_MAX).
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline.min(Self::DEADLINE_MAX);
        self
    }

    /// How long a connection may be silent, in use or not, before it is asked whether the other end is still there. Where
    /// nothing is heard for as long again, it is given up and made anew.
    pub fn keep_alive(mut self, keep_alive: Duration) -> Self {
        self.keep_alive = keep_alive.min(Self::DEADLINE_MAX);
        self
    }

    /// How long the first call of a batch waits for others at most, while others keep coming: once all tasks that were
    /// ready have run and brought no more calls, it goes. Zero sends each call
    /// by itself, whatever they would [linger](Self::linger).
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// How long the first call of a batch waits in any case, though nobody else may be about to call; zero unless said, and
    /// at most half of [`deadline`](Self::deadline), since the daemon is to have time too. All calls that are made within
    /// that time share a message, as many as one holds, and a call that nobody joins takes so much longer. It pays where
    /// many callers make few calls each and the daemon is to hear as few messages as can be.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger.min(Self::DEADLINE_MAX);
        self
    }

    /// How often a call is made again that was not decided and took nothing.
    pub fn retries_max(mut self, retries: u32) -> Self {
        self.retries_max = retries;
        self
    }

    /// How many retries there may be over all calls. Clients may share a budget.
    pub fn retry_budget(mut self, budget: impl Into<Arc<RetryBudget>>) -> Self {
        self.budget = budget.into();
        self
    }

    /// What happens while the daemon does not answer.
    pub fn while_away(mut self, while_away: WhileAway) -> Self {
        self.while_away = while_away;
        self
    }

    /// The client. It connects when the first call is made, and again whenever it has to.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn build(self) -> Result<Client, ConfigError> {
        if self.connections == 0 {
            return Err(ConfigError::Zero("connections"));
        }
        if self.deadline.is_zero() {
            return Err(ConfigError::Zero("deadline"));
        }
        if self.keep_alive.is_zero() {
            return Err(ConfigError::Zero("keep_alive"));
        }
        if self.linger > self.deadline / 2 {
            return Err(ConfigError::Linger);
        }
        let endpoint = Endpoint::from(address(&self.address)?);
        // Whoever waits for a connection waits no longer than for an answer.
        let endpoint = endpoint.connect_timeout(self.deadline).tcp_nodelay(true);
        let endpoint = endpoint.http2_keep_alive_interval(self.keep_alive);
        let endpoint = endpoint.keep_alive_timeout(self.keep_alive).keep_alive_while_idle(true);
        Ok(Client::of(endpoint, self))
    }
}

/// What a connection can be made to. Whatever else can be written as an address would be found out at the first call.
fn address(text: &str) -> Result<Uri, ConfigError> {
    let uri: Uri = text.parse().map_err(|_| ConfigError::Address)?;
    let (Some(scheme), Some(host)) = (uri.scheme(), uri.host()) else {
        return Err(ConfigError::Address);
    };
    if *scheme != Scheme::HTTP {
        return Err(ConfigError::Scheme);
    }
    if host.is_empty() { Err(ConfigError::Address) } else { Ok(uri) }
}
