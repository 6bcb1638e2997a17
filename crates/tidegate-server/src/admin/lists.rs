//! Bans, the allow-list, and the two switches.

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::{Value, json};
use tidegate::{Span, Timestamp};

use super::body::{Fields, Query};
use super::reply::{Problem, Reply};
use super::{AUDIT, AUDITED};
use crate::controls::{ChangeError, Controls, Entry, Kept, Target, Which, read_time, time_text};
use crate::engine::Engine;
use crate::listen::Peer;

/// The entries of a list that are in force.
pub(super) fn list(engine: &Engine, which: Which) -> Reply {
    let now = engine.limiter().now();
    let entries = engine.controls().entries(which, now);
    let entries: Vec<Value> = entries.iter().map(|entry| shown(entry, now)).collect();
    Reply::json(&json!({ name_of(which): entries }))
}

/// Puts an entry on a list.
pub(super) async fn add(
    engine: &Arc<Engine>,
    which: Which,
    mut fields: Fields,
    peer: Peer,
) -> Result<Reply, Problem> {
    let now = engine.limiter().now();
    let target = target(Some(fields.text("target")?))?;
    let until = end(&mut fields, now)?;
    let mut entry = Entry::new(target, now).in_domain(fields.text_if_any("domain")?).until(until);
    entry.note = fields.text_if_any("note")?;
    fields.end()?;
    let shown = shown(&entry, now);
    let who = Audited::of(engine, &entry.target, entry.domain.as_deref());
    let action = if which == Which::Bans { "ban" } else { "allow" };
    let added = change(
        engine,
        move |controls| controls.add(which, entry, now),
        move |kept| who.tell(which, action, until, kept, peer),
    );
    let kept = added.await?;
    Ok(Reply::json(&with_kept(json!({ "entry": shown }), &kept)))
}

/// Takes an entry off a list. It is named in the body, or in the query.
pub(super) async fn lift(
    engine: &Arc<Engine>,
    which: Which,
    (mut query, mut fields): (Query, Fields),
    peer: Peer,
) -> Result<Reply, Problem> {
    let target = target(fields.text_if_any("target")?.or_else(|| query.take("target")))?;
    let domain = fields.text_if_any("domain")?.or_else(|| query.take("domain"));
    fields.end()?;
    query.end()?;
    let now = engine.limiter().now();
    let who = Audited::of(engine, &target, domain.as_deref());
    let lifted = change(
        engine,
        move |controls| controls.lift(which, &target, domain.as_deref(), now),
        move |kept| who.tell(which, "lift", None, kept, peer),
    );
    let kept = lifted.await?;
    Ok(Reply::json(&with_kept(json!({ "lifted": true }), &kept)))
}

pub(super) fn bypass(engine: &Engine) -> Reply {
    Reply::json(&json!({ "on": engine.controls().is_bypassed() }))
}

pub(super) fn shadow(engine: &Engine) -> Reply {
    let controls = engine.controls();
    // What the daemon was started with cannot be switched off, and whoever tries should know why.
    Reply::json(&json!({ "on": controls.is_in_shadow(), "always": controls.is_always_shadow() }))
}

pub(super) async fn set_bypass(
    engine: &Arc<Engine>,
    fields: Fields,
    peer: Peer,
) -> Result<Reply, Problem> {
    set(engine, fields, peer, "bypass", Controls::set_bypass).await
}

pub(super) async fn set_shadow(
    engine: &Arc<Engine>,
    fields: Fields,
    peer: Peer,
) -> Result<Reply, Problem> {
    set(engine, fields, peer, "shadow", Controls::set_shadow).await
}

async fn set(
    engine: &Arc<Engine>,
    mut fields: Fields,
    peer: Peer,
    name: &'static str,
    set: fn(&Controls, bool, Timestamp) -> Kept,
) -> Result<Reply, Problem> {
    let on = fields.switch("on")?;
    fields.end()?;
    let now = engine.limiter().now();
    let switched = change(
        engine,
        move |controls| Ok(set(controls, on, now)),
        move |kept| {
            let kept = word_for(kept);
            tracing::info!(target: AUDIT, action = name, on, kept, ?peer, "{AUDITED}");
        },
    );
    let kept = switched.await?;
    Ok(Reply::json(&with_kept(json!({ "on": on }), &kept)))
}

/// Makes a change where it may wait for a disk, and tells the log of it. It is a task of its own: whoever
/// asks may be gone before the change is made, and it is made and told all the same.
async fn change(
    engine: &Arc<Engine>,
    change: impl FnOnce(&Controls) -> Result<Kept, ChangeError> + Send + 'static,
    tell: impl FnOnce(&Kept) + Send + 'static,
) -> Result<Kept, Problem> {
    let engine = Arc::clone(engine);
    let made = tokio::spawn(async move {
        let changed = tokio::task::spawn_blocking(move || change(engine.controls())).await;
        changed.inspect(|changed| {
            if let Ok(kept) = changed {
                tell(kept);
            }
        })
    });
    match made.await {
        Ok(Ok(changed)) => changed.map_err(refused),
        _ => Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the change failed")),
    }
}

fn target(text: Option<String>) -> Result<Target, Problem> {
    let text = text.ok_or_else(|| Problem::field("target", "it is missing"))?;
    text.parse()
        .map_err(|error: crate::controls::TargetError| Problem::field("target", error.to_string()))
}

/// When an entry ends: after a time, at a time, or not by itself.
fn end(fields: &mut Fields, now: Timestamp) -> Result<Option<Timestamp>, Problem> {
    match (fields.text_if_any("for")?, fields.text_if_any("until")?) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(Problem::field("until", "say `for` or `until`, not both")),
        (Some(text), None) => {
            let span = tidegate_rules::parse_period(&text);
            let span = span.map_err(|error| Problem::field("for", error.to_string()))?;
            Ok(Some(now.plus(span)))
        }
        (None, Some(text)) => {
            let detail = "write a time as `2030-01-31T12:00:00Z`";
            read_time(&text).map(Some).ok_or_else(|| Problem::field("until", detail))
        }
    }
}

fn refused(error: ChangeError) -> Problem {
    match error {
        ChangeError::Full => Problem::new(StatusCode::INSUFFICIENT_STORAGE, error.to_string()),
        ChangeError::NotListed => Problem::new(StatusCode::NOT_FOUND, error.to_string()),
        ChangeError::Over => Problem::field("until", error.to_string()),
        ChangeError::TooLong => Problem::new(StatusCode::BAD_REQUEST, error.to_string()),
    }
}

fn shown(entry: &Entry, now: Timestamp) -> Value {
    let left = entry.until.map(|until| until.since(now)).map(Span::as_millis_ceil);
    json!({
        "target": entry.target.to_string(),
        "domain": entry.domain,
        "since": time_text(entry.since),
        "until": entry.until.map(time_text),
        "left_ms": left,
        "note": entry.note,
    })
}

fn with_kept(mut value: Value, kept: &Kept) -> Value {
    value["kept"] = json!(word_for(kept));
    if let Kept::Failed(error) = kept {
        let warning = format!("it is in force, and a restart forgets it: {error}");
        tracing::error!(%error, "the controls could not be written");
        value["warning"] = json!(warning);
    }
    value
}

/// Where a change is kept.
fn word_for(kept: &Kept) -> &'static str {
    match kept {
        Kept::InFile => "file",
        Kept::InMemory => "memory",
        Kept::Failed(_) => "failed",
    }
}

fn name_of(which: Which) -> &'static str {
    match which {
        Which::Bans => "bans",
        Which::Allowed => "allow",
    }
}

/// A target as the log may know it.
struct Audited {
    hash: u128,
    domain: Option<String>,
}

impl Audited {
    fn of(engine: &Engine, target: &Target, domain: Option<&str>) -> Self {
        let hash = engine.limiter().hasher().bytes(target.to_string().as_bytes()).as_u128();
        Self { hash, domain: domain.map(str::to_owned) }
    }

    fn tell(&self, which: Which, action: &str, until: Option<Timestamp>, kept: &Kept, peer: Peer) {
        let (list, domain) = (name_of(which), self.domain.as_deref());
        let (target, kept) = (format!("{:032x}", self.hash), word_for(kept));
        let until = until.map(time_text);
        tracing::info!(
            target: AUDIT, action, list, entry = target, domain, until, kept, ?peer, "{AUDITED}"
        );
    }
}
