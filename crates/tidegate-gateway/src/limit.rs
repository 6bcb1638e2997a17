//! The limiter in front: the place of the middleware, which is this file. A request is asked about, held
//! back where a leaky bucket says so, and completed when its response has ended.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use tidegate::Call;
use tidegate_identity::Attributes;
use tidegate_server::engine::at_once;
use tidegate_server::{Answer, Engine, Protocol};
use tidegate_tower::{HeaderSet, refusal};

use crate::body::ResponseBody;
use crate::problem::Problem;

/// What a call that nobody answers is completed with: the client was gone first.
const CLIENT_GONE: u16 = 499;
/// The status that gRPC has for a refusal.
const RESOURCE_EXHAUSTED: HeaderValue = HeaderValue::from_static("8");

/// What the limiter let through. Dropped, it is completed: leases go back, and what the response does
/// not count for. Before it was forwarded, everything goes back.
#[derive(Debug)]
pub(crate) struct Ticket {
    engine: Arc<Engine>,
    answer: Option<Answer>,
    /// `None` while nothing was forwarded.
    status: Option<u16>,
}

/// How requests are asked about.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) engine: Arc<Engine>,
    pub(crate) headers: HeaderSet,
    pub(crate) delay_max: Duration,
}

impl Limits {
    /// Asks, and waits until it is the request's turn. What is refused is answered.
    pub(crate) async fn admit(
        &self,
        domain: &str,
        attributes: &Attributes,
        is_grpc: bool,
    ) -> Result<Ticket, Response<ResponseBody>> {
        let list = attributes.list();
        let call = Call::new(domain, &list);
        let asked = self.engine.check_within(&call, self.delay_max, Protocol::Gateway).await;
        let answer = asked.map_err(|_| Problem::Undecided.response())?;
        if !answer.is_allowed() {
            let refused = refusal(&answer.standing(), self.headers).map(ResponseBody::full);
            return Err(if is_grpc { as_grpc(refused) } else { refused });
        }
        let delay = answer.delay();
        let engine = Arc::clone(&self.engine);
        let ticket = Ticket { engine, answer: Some(answer), status: None };
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        Ok(ticket)
    }

    /// Adds what the client is told of its standing.
    pub(crate) fn tell(&self, ticket: &Ticket, headers: &mut HeaderMap) {
        if let Some(answer) = &ticket.answer {
            self.headers.write(&answer.standing(), headers);
        }
    }
}

impl Ticket {
    /// It is on its way, and counts even where the client does not wait for the answer.
    pub(crate) fn forwarded(&mut self) {
        self.status = Some(CLIENT_GONE);
    }

    /// It was answered, which decides whether it counts where rules count by the response.
    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.status = Some(status.as_u16());
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let Some(answer) = self.answer.take() else { return };
        if answer.taken_at().is_none() {
            return;
        }
        let (engine, status) = (Arc::clone(&self.engine), self.status);
        let is_shared = engine.is_shared();
        let completing = async move {
            match status {
                Some(status) => engine.complete(answer, status).await,
                None => engine.give_back(answer).await,
            }
        };
        if !is_shared {
            let _ = at_once(completing);
        } else if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(completing);
        }
    }
}

/// The same refusal as callers of gRPC understand it: status and message in the only head there is.
fn as_grpc(refused: Response<ResponseBody>) -> Response<ResponseBody> {
    let (mut parts, _) = refused.into_parts();
    parts.status = StatusCode::OK;
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    parts.headers.insert("grpc-status", RESOURCE_EXHAUSTED);
    parts.headers.insert("grpc-message", HeaderValue::from_static("rate limit exceeded"));
    Response::from_parts(parts, ResponseBody::full(bytes::Bytes::new()))
}
