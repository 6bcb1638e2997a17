//! The limiter in front: the place of the middleware, which is this file. A request is asked about, held
//! back where a leaky bucket says so, and completed when its response has ended.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use http::header::HeaderValue;
use http::{HeaderMap, Response};
use tidegate::{Call, CheckError, Reads, RuleDecision, Timestamp};
use tidegate_identity::Attributes;
use tidegate_server::engine::at_once;
use tidegate_server::{Answer, Engine, Protocol};
use tidegate_tower::{Awaited, HeaderSet, Keeping, Standing, Undecided, grpc, refusal};

use crate::body::ResponseBody;
use crate::problem::Problem;

/// What a call that nobody answers is completed with: the client was gone first.
const CLIENT_GONE: u16 = 499;

/// What the limiter let through. Dropped, it is completed: leases go back, and what the response does
/// not count for. Before it was forwarded, everything goes back.
#[derive(Debug)]
pub(crate) struct Ticket {
    engine: Arc<Engine>,
    /// It is large, and passes through many hands.
    answer: Option<Box<Answer>>,
    /// `None` while nothing was forwarded.
    status: Option<u16>,
    /// Renews its leases while it lasts.
    keeping: Option<Keeping>,
}

/// Why a request does not pass.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The limiter denies it.
    Denied(Box<Answer>),
    /// The limiter could not decide.
    Undecided(Undecided),
    /// Something else is wrong.
    By(Problem),
}

/// What is said of a request at once.
#[derive(Debug)]
pub(crate) enum AtOnce<T> {
    /// It passes, after so long, with the [ticket](Limits::ticket) of the decision.
    Passes(Duration),
    /// It does not, and this was made of that.
    Denied(T),
    /// The limiter could not decide.
    Undecided(Undecided),
}

/// How requests are asked about.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) engine: Arc<Engine>,
    pub(crate) headers: HeaderSet,
    pub(crate) delay_max: Duration,
}

impl Limits {
    /// Asks, and waits until it is the request's turn.
    pub(crate) async fn admit(
        &self,
        domain: &str,
        attributes: &Attributes,
    ) -> Result<Ticket, Refused> {
        let asked = self.ask(domain, attributes).await;
        let answer = Box::new(asked.map_err(|error| Refused::Undecided(error.into()))?);
        if !answer.is_allowed() {
            return Err(Refused::Denied(answer));
        }
        let delay = answer.delay();
        let ticket = Ticket::new(&self.engine, answer);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        Ok(ticket)
    }

    /// A decision that is to be made at once, by the rules in force now.
    #[inline]
    pub(crate) fn begin(&self) -> RuleDecision {
        self.engine.limiter().begin()
    }

    /// The attributes that what was begun depends on. All of them where it may be for somebody else to decide.
    #[inline]
    pub(crate) fn reads(&self, begun: &RuleDecision) -> Reads {
        if self.engine.is_at_once() { self.engine.limiter().reads(begun) } else { Reads::ALL }
    }

    /// As [`admit`](Self::admit) where memory decides, at an instant that was just read, but for the wait, which is
    /// for the caller to see to. Of a request that is denied `denied` is told, where the answer stands. `None` where
    /// there is somebody to wait for; nothing has happened then.
    #[inline]
    pub(crate) fn admit_at_once<T>(
        &self,
        begun: &mut RuleDecision,
        (domain, attributes): (&str, &Attributes),
        now: Timestamp,
        denied: impl FnOnce(&Standing<'_>) -> T,
    ) -> Option<AtOnce<T>> {
        let over = (self.delay_max, Protocol::Gateway);
        let denied = |answer: &Answer<&mut RuleDecision>| denied(&answer.standing());
        let admitted = attributes.with_list(|list| {
            self.engine.admit_at_once(begun, &Call::new(domain, list), over, now, denied)
        })?;
        Some(match admitted {
            Ok(ControlFlow::Break(told)) => AtOnce::Denied(told),
            Ok(ControlFlow::Continue(delay)) => AtOnce::Passes(delay),
            Err(error) => AtOnce::Undecided(error.into()),
        })
    }

    /// What a request passes with that was decided at once.
    pub(crate) fn ticket(&self, decision: RuleDecision) -> Ticket {
        Ticket::new(&self.engine, Box::new(Answer::decided(decision, false)))
    }

    async fn ask(&self, domain: &str, attributes: &Attributes) -> Result<Answer, CheckError> {
        let (engine, delay_max) = (Arc::clone(&self.engine), self.delay_max);
        if !engine.is_shared() {
            let list = attributes.list();
            let call = Call::new(domain, &list);
            return engine.check_within(&call, delay_max, Protocol::Gateway).await;
        }
        // The client may go away while a store is asked. What the call took by then goes back.
        let (domain, attributes) = (domain.to_owned(), attributes.clone());
        let asking = Arc::clone(&engine);
        let asking = async move {
            let list = attributes.list();
            let call = Call::new(&domain, &list);
            asking.check_within(&call, delay_max, Protocol::Gateway).await
        };
        let give_back = move |asked: Result<Answer, _>| {
            let answer = asked.ok().map(Box::new);
            drop(Ticket { engine, answer, status: None, keeping: None });
        };
        Awaited::new(asking, give_back).await
    }

    /// The whole answer to a request that is refused, in the words of gRPC where there is a content type of it.
    pub(crate) fn response(
        &self,
        refused: Refused,
        grpc_type: Option<HeaderValue>,
    ) -> Response<ResponseBody> {
        let response = match (refused, grpc_type) {
            (Refused::By(problem), _) => return problem.response(),
            (Refused::Undecided(why), None) => refusal::undecided(why),
            (Refused::Undecided(why), Some(grpc_type)) => grpc::undecided(why, grpc_type),
            (Refused::Denied(answer), grpc_type) => {
                return self.denial(&answer.standing(), grpc_type);
            }
        };
        response.map(ResponseBody::full)
    }

    /// The same to a request that the limiter denies.
    pub(crate) fn denial(
        &self,
        standing: &Standing<'_>,
        grpc_type: Option<HeaderValue>,
    ) -> Response<ResponseBody> {
        let response = match grpc_type {
            None => refusal(standing, self.headers),
            Some(grpc_type) => grpc::refusal(standing, self.headers, grpc_type),
        };
        response.map(ResponseBody::full)
    }

    /// The same answer to a request that is denied, as HTTP/1 has it: appends its headers to `out`, all but the
    /// length of the body and the date, for which `end_head` is called, and its body where that says so.
    #[inline]
    pub(crate) fn put_refusal(
        &self,
        standing: &Standing<'_>,
        out: &mut Vec<u8>,
        end_head: impl FnOnce(&mut Vec<u8>, usize) -> bool,
    ) {
        refusal::put(standing, self.headers, out, end_head);
    }

    /// Appends what the client is told of its standing, as lines of HTTP/1. It is for a head that says nothing of
    /// the kind yet.
    pub(crate) fn put_standing(&self, ticket: &Ticket, out: &mut Vec<u8>) {
        if let Some(answer) = &ticket.answer {
            self.headers.write_lines(&answer.standing(), out);
        }
    }

    /// Adds what the client is told of its standing.
    pub(crate) fn tell(&self, ticket: &Ticket, headers: &mut HeaderMap) {
        if let Some(answer) = &ticket.answer {
            self.headers.write(&answer.standing(), headers);
        }
    }
}

impl Ticket {
    fn new(engine: &Arc<Engine>, answer: Box<Answer>) -> Self {
        let keeping = engine.keep(&answer);
        Self { engine: Arc::clone(engine), answer: Some(answer), status: None, keeping }
    }

    /// It is on its way, and counts even where the client does not wait for the answer.
    pub(crate) fn forwarded(&mut self) {
        self.status = Some(CLIENT_GONE);
    }

    /// It was answered, which decides whether it counts where rules count by the response.
    pub(crate) fn answered(&mut self, status: u16) {
        self.status = Some(status);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let Some(answer) = self.answer.take() else { return };
        // First, so that nothing is renewed on the way that is given back.
        self.keeping = None;
        if answer.taken_at().is_none() {
            return;
        }
        let (engine, status) = (Arc::clone(&self.engine), self.status);
        let is_shared = engine.is_shared();
        let completing = async move {
            match status {
                Some(status) => engine.complete(*answer, status).await,
                None => engine.give_back(*answer).await,
            }
        };
        if !is_shared {
            let _ = at_once(completing);
        } else if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(completing);
        }
    }
}
