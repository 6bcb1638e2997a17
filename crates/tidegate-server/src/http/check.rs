//! The endpoints that take JSON: calls to be decided, one or many, and what is given back.

use ::http::header::{CONTENT_TYPE, HeaderValue};
use ::http::{Request, Response};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use serde::Serialize;
use tidegate::rules::Held;
use tidegate::{Call, RuleDecision};

use super::body::{self, BodyError, BodyFault, CheckBody, LeaseBody, Who};
use super::problem::Problem;
use super::read::{may_be_json, read};
use super::route::Route;
use super::shown::{Checked, Left, OneOfMany, Renewed};
use super::{Answered, Connection};
use crate::answer::Answer;
use crate::engine::{Protocol, together};
use crate::lease;

/// Reads the body and answers. No such endpoint has an answer to `HEAD`.
pub(super) async fn answer(
    connection: &Connection,
    route: Route,
    request: Request<Incoming>,
) -> Answered {
    let settings = &connection.settings;
    // envoyproxy/ratelimit does not look at the type, so its clients send any.
    if route != Route::Json && !may_be_json(request.headers()) {
        return Problem::media_type().answer();
    }
    let is_batch = route == Route::Batch;
    let bytes_max = if is_batch { settings.batch_bytes_max } else { settings.body_bytes_max };
    // Until there is room, nothing of the body is read, and the client cannot send more of it.
    let rooms = &connection.rooms;
    let room = if is_batch { rooms.large().await } else { rooms.small().await };
    let body = match read(request.into_body(), bytes_max, settings.body_timeout).await {
        Ok(body) => body,
        Err(problem) => return problem.answer(),
    };
    if route == Route::Json {
        return crate::grpc::json(&connection.engine, &body).await.map(Full::new);
    }
    let making = async {
        match route {
            Route::Batch => batch(connection, &body).await,
            Route::Refund => refund(connection, &body).await,
            Route::Release => release(connection, &body).await,
            Route::Renew => renew(connection, &body).await,
            _ => check(connection, &body).await,
        }
    };
    let made = connection.timed(Protocol::Http, making).await;
    let answer = made.unwrap_or_else(|problem| problem.answer());
    if is_batch { room.until_taken(answer).await } else { answer }
}

async fn check(connection: &Connection, body: &[u8]) -> Result<Answered, Problem> {
    let call = body::check(body)?;
    let answer = decide(connection, &call).await?;
    Ok(json(&Checked::of(&answer)))
}

/// Each call for itself, in their order: what one takes, the next one no longer finds. Nothing is
/// decided where any of them cannot be read.
async fn batch(connection: &Connection, body: &[u8]) -> Result<Answered, Problem> {
    let calls = body::batch(body, connection.settings.batch_calls_max)?;
    let answers = if connection.engine.is_shared() {
        let deciding = calls.iter().map(|call| decide(connection, call)).collect();
        together(deciding).await
    } else {
        let mut answers = Vec::with_capacity(calls.len());
        for call in &calls {
            answers.push(decide(connection, call).await);
        }
        answers
    };
    let shown = answers.iter().map(|answer| match answer {
        Ok(answer) => OneOfMany::Checked(Box::new(Checked::of(answer))),
        Err(problem) => OneOfMany::Undecided(problem.clone()),
    });
    Ok(json(&shown.collect::<Vec<_>>()))
}

async fn refund(connection: &Connection, body: &[u8]) -> Result<Answered, Problem> {
    let given = body::refund(body)?;
    let attributes = given.who.attributes();
    let call = Call::new(domain(connection, &given.who), &attributes).with_cost(given.cost);
    left(&connection.engine.refund(&call, given.taken_at).await)
}

async fn release(connection: &Connection, body: &[u8]) -> Result<Answered, Problem> {
    let given = body::of_lease(body)?;
    let held = held(&given)?;
    let attributes = given.who.attributes();
    let call = Call::new(domain(connection, &given.who), &attributes);
    left(&connection.engine.release(&call, &held).await)
}

async fn renew(connection: &Connection, body: &[u8]) -> Result<Answered, Problem> {
    let given = body::of_lease(body)?;
    let held = held(&given)?;
    let attributes = given.who.attributes();
    let call = Call::new(domain(connection, &given.who), &attributes);
    let decision = connection.engine.renew(&call, &held).await;
    Ok(json(&Renewed::of(&decision.map_err(|error| Problem::undecided(&error))?)))
}

fn held(given: &LeaseBody<'_>) -> Result<Vec<Held>, Problem> {
    lease::read(&given.lease_id).ok_or_else(|| {
        let detail = "this has to be what the answer to the call says";
        Problem::bad("/lease_id".to_owned(), detail)
    })
}

async fn decide(connection: &Connection, call: &CheckBody<'_>) -> Result<Answer, Problem> {
    let attributes = call.who.attributes();
    let asked = Call::new(domain(connection, &call.who), &attributes).with_cost(call.cost);
    let answer = connection.engine.check(&asked, call.does, Protocol::Http).await;
    answer.map_err(|error| Problem::undecided(&error))
}

fn domain<'a>(connection: &'a Connection, who: &'a Who<'_>) -> &'a str {
    who.domain.as_deref().unwrap_or(&connection.settings.default_domain)
}

fn left(decision: &Result<RuleDecision, tidegate::CheckError>) -> Result<Answered, Problem> {
    match decision {
        Ok(decision) => Ok(json(&Left::of(decision))),
        Err(error) => Err(Problem::undecided(error)),
    }
}

fn json(value: &impl Serialize) -> Answered {
    // Text and numbers always have a form in JSON.
    let body = serde_json::to_vec(value).unwrap_or_default();
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

impl From<BodyError> for Problem {
    fn from(error: BodyError) -> Self {
        match error.fault {
            BodyFault::TooManyCalls { max } => Self::too_large("there are too many calls", max),
            fault => Self::bad(error.pointer, fault.to_string()),
        }
    }
}
