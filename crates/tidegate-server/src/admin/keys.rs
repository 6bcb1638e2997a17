//! One key: why it is counted as it is, how it stands, and forgetting what it took. And those at the
//! top.

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::json;
use tidegate::rules::Reason;
use tidegate::{Call, CheckError};

use super::body::{Attributes, Fields, Query};
use super::explained;
use super::reply::{Problem, Reply};
use super::{AUDIT, AUDITED};
use crate::controls::{Ruling, time_text};
use crate::engine::{Does, Engine, Protocol};
use crate::http::shown::Checked;
use crate::listen::Peer;
use crate::top::By;

/// The most keys that are listed at once.
pub const TOP_COUNT_MAX: usize = 100;
const TOP_COUNT: usize = 10;

/// What a request is about.
struct About {
    domain: String,
    attributes: Attributes,
    cost: u64,
}

impl About {
    fn of(mut fields: Fields) -> Result<Self, Problem> {
        let domain = fields.text("domain")?;
        let attributes = fields.attributes()?;
        let cost = fields.whole_number("cost", 1)?;
        fields.end()?;
        Ok(Self { domain, attributes, cost })
    }
}

/// Which rules match, why the others do not, and what the controls say before them.
pub(super) async fn explain(engine: &Engine, fields: Fields) -> Result<Reply, Problem> {
    let about = About::of(fields)?;
    let attributes = about.attributes.borrowed();
    let call = Call::new(&about.domain, &attributes).with_cost(about.cost);
    let explanation = engine.limiter().explain(&call);
    let reason = engine.peek(&call).await.ok().and_then(|decision| decision.reason());
    let is_denied = matches!(reason, Some(Reason::Banned | Reason::MissingAttribute));
    let mut value = explained(&explanation, is_denied);
    let now = engine.limiter().now();
    value["ruling"] = json!(engine.controls().rule_on(call.domain, call.attributes, now).map(word));
    Ok(Reply::json(&value))
}

/// How a key stands, without taking anything: what a check over HTTP says, and what the controls say.
pub(super) async fn peek(engine: &Engine, fields: Fields) -> Result<Reply, Problem> {
    let about = About::of(fields)?;
    let attributes = about.attributes.borrowed();
    let call = Call::new(&about.domain, &attributes).with_cost(about.cost);
    let answer = engine.check(&call, Does::Peek, Protocol::Http).await.map_err(undecided)?;
    let mut value = json!(Checked::of(&answer));
    value["ruling"] = json!(answer.ruling().map(word));
    Ok(Reply::json(&value))
}

/// Forgets what was taken under every limit that applies.
pub(super) async fn reset(
    engine: &Arc<Engine>,
    fields: Fields,
    peer: Peer,
) -> Result<Reply, Problem> {
    let about = About::of(fields)?;
    let attributes = about.attributes.borrowed();
    let call = Call::new(&about.domain, &attributes).with_cost(about.cost);
    let charges = engine.limiter().explain(&call).charges;
    engine.reset(&call).await.map_err(undecided)?;
    let keys: Vec<_> = charges.iter().map(|charge| format!("{:032x}", charge.key)).collect();
    let (domain, count) = (about.domain.as_str(), keys.len());
    tracing::info!(target: AUDIT, action = "reset", domain, keys = count, ?peer, "{AUDITED}");
    Ok(Reply::json(&json!({ "reset": count > 0, "keys": keys })))
}

/// The busiest keys, or those that were denied most.
pub(super) fn top(engine: &Engine, mut query: Query) -> Result<Reply, Problem> {
    let by = match query.take("by").as_deref() {
        None | Some("denied") => By::Denied,
        Some("requests") => By::Requests,
        Some(_) => return Err(Problem::field("by", "it is `denied` or `requests`")),
    };
    let count = match query.take("count").map(|text| text.parse()) {
        None => TOP_COUNT,
        Some(Ok(count)) if (1..=TOP_COUNT_MAX).contains(&count) => count,
        Some(_) => {
            let detail = format!("it is a number from 1 to {TOP_COUNT_MAX}");
            return Err(Problem::field("count", detail));
        }
    };
    query.end()?;
    let ranking = engine.top().ranking(by, count, engine.limiter().now());
    let keys = ranking.keys.iter().map(|one| {
        json!({
            "key": format!("{:032x}", one.key.as_hash()),
            "domain": one.domain,
            "rule": one.rule,
            "name": one.name,
            "count": one.count,
        })
    });
    Ok(Reply::json(&json!({
        "by": if by == By::Denied { "denied" } else { "requests" },
        "since": time_text(ranking.since),
        "error": ranking.error,
        "names": engine.top().has_names(),
        "keys": keys.collect::<Vec<_>>(),
    })))
}

/// Whose doing it is that there is no answer: the store's, or that of who asks.
fn undecided(error: CheckError) -> Problem {
    let status = match error {
        CheckError::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    };
    Problem::new(status, error.to_string())
}

/// The word for what the controls say.
pub(super) fn word(ruling: Ruling) -> &'static str {
    match ruling {
        Ruling::Bypassed => "bypassed",
        Ruling::AllowListed => "allow-listed",
        Ruling::Banned { .. } => "banned",
        Ruling::Shadow => "shadow",
    }
}
