//! What runs beside the requests to a group of upstreams: probes that ask each whether it is well, and
//! closing the connections that nobody uses any more.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HOST, USER_AGENT};
use http::{HeaderValue, Request};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::cause::Cause;
use super::pool::SendError;
use super::{Server, Upstreams};
use crate::body::RequestBody;

/// How often idle connections are looked at.
const SWEEP_EVERY: Duration = Duration::from_millis(250);

/// How long it takes until a probe is sent again at the least, whatever a program asks for: a timer of nothing is none.
const PROBE_EVERY_MIN: Duration = Duration::from_millis(1);

/// How upstreams are asked whether they are well: 2xx and 3xx say so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The path that is asked for.
    pub path: String,
    /// How often.
    pub every: Duration,
    /// How long an answer may take. Connecting may take no longer than for a request.
    pub timeout: Duration,
}

/// Looks after the upstreams until the task ends.
pub(crate) async fn keep(upstreams: Arc<Upstreams>) {
    let mut tasks = JoinSet::new();
    if let Some(probe) = &upstreams.settings.probe {
        // Requests and probes share what is being made, so that no probe may take longer for that than a request.
        let connect_timeout = upstreams.settings.connect_timeout.min(probe.timeout);
        for server in upstreams.balancer.servers() {
            tasks.spawn(ask(Arc::clone(server), probe.clone(), connect_timeout));
        }
    }
    let mut every = interval(SWEEP_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        for server in upstreams.balancer.servers() {
            server.sweep(Some(Instant::now()));
        }
    }
}

async fn ask(server: Arc<Server>, probe: Probe, connect_timeout: Duration) {
    let mut every = interval(probe.every.max(PROBE_EVERY_MIN));
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        let asking = timeout(probe.timeout, look(&server, &probe, connect_timeout));
        server.probed(asking.await.unwrap_or(Err(Cause::Late(probe.timeout))));
    }
}

/// Whether a server is well, or why it is not.
async fn look(server: &Server, probe: &Probe, connect_timeout: Duration) -> Result<(), Cause> {
    let mut request = Request::new(RequestBody::empty());
    let uri = probe.path.parse().map_err(|_| unfit())?;
    let host = HeaderValue::from_str(server.authority()).map_err(|_| unfit())?;
    *request.uri_mut() = uri;
    request.headers_mut().insert(HOST, host);
    request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("tidegate-probe"));
    match server.pool.send(request, connect_timeout).await {
        Ok((response, _lent)) => {
            let status = response.status();
            let is_well = status.is_success() || status.is_redirection();
            if is_well { Ok(()) } else { Err(Cause::Status(status)) }
        }
        Err(SendError::Connect(_, error)) => Err(Cause::Connect(error)),
        Err(SendError::Broken(error)) => Err(error.into()),
        Err(SendError::Ambiguous) => Err(Cause::NoHttp),
    }
}

/// Why nothing can be asked for that is not said as a path.
fn unfit() -> Cause {
    Cause::Connect(io::ErrorKind::InvalidInput.into())
}
