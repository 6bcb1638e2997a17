//! How one key stands, forgetting what it took, and the keys at the top.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::args::{By, KeyArgs, TopArgs};
use super::{answered, client};
use crate::failure::Failure;
use crate::output::printable;
use crate::{Answer, output};

pub(super) fn top(args: &TopArgs) -> Result<Answer, Failure> {
    let by = match args.by {
        By::Denied => "denied",
        By::Requests => "requests",
    };
    let path = format!("/v1/top?by={by}&count={}", args.count);
    let body = answered(client(&args.admin)?.get(&path))?;
    if args.admin.json {
        output::json(&body)?;
        return Ok(Answer::Yes);
    }
    let keys = body["keys"].as_array().map_or(&[][..], Vec::as_slice);
    let mut text = String::new();
    for key in keys {
        let field = |name: &str| key[name].as_str().map(printable);
        let count = key["count"].as_u64().unwrap_or_default();
        let who = field("name").or_else(|| field("key")).unwrap_or_default();
        let (domain, rule) =
            (field("domain").unwrap_or_default(), field("rule").unwrap_or_default());
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{count:>10}  {domain}/{rule}  {who}");
    }
    output::data(&text)?;
    let since = body["since"].as_str().map(printable).unwrap_or_default();
    output::complain(&format!("{by} since {since}"));
    Ok(Answer::Yes)
}

pub(super) fn peek(args: &KeyArgs) -> Result<Answer, Failure> {
    let body = answered(client(&args.admin)?.post_json("/v1/peek", &about(args)))?;
    let is_allowed = body["allowed"] == true;
    if args.admin.json {
        output::json(&body)?;
    } else {
        output::data(&standing(&body, is_allowed))?;
    }
    Ok(if is_allowed { Answer::Yes } else { Answer::No })
}

pub(super) fn reset(args: &KeyArgs) -> Result<Answer, Failure> {
    let body = answered(client(&args.admin)?.post_json("/v1/reset", &about(args)))?;
    let is_reset = body["reset"] == true;
    if args.admin.json {
        output::json(&body)?;
    } else {
        let count = body["keys"].as_array().map_or(0, Vec::len);
        let counters = output::counted(count, "counter");
        output::data(&format!("{counters} reset\n"))?;
    }
    Ok(if is_reset { Answer::Yes } else { Answer::No })
}

fn about(args: &KeyArgs) -> Value {
    let attributes = args.attributes.iter().map(|(name, value)| (name.clone(), json!(value)));
    let attributes: Map<_, _> = attributes.collect();
    json!({ "domain": args.domain, "attributes": attributes, "cost": args.cost })
}

/// What a person wants to know first, in the first line; then each limit.
fn standing(body: &Value, is_allowed: bool) -> String {
    let mut text = String::from(if is_allowed { "would pass" } else { "would be denied" });
    // Where the controls deny, both say that it is banned.
    if let Some(word) = body["reason"].as_str().or(body["ruling"].as_str()) {
        let _ = write!(text, " ({})", printable(word));
    }
    if let Some(wait) = body["retry_after_ms"].as_u64() {
        let _ = write!(text, ", and passes in {wait} ms");
    }
    text.push('\n');
    for limit in body["limits"].as_array().into_iter().flatten() {
        let field = |name: &str| limit[name].as_str().map(printable).unwrap_or_default();
        let (rule, of) = (field("rule"), field("text"));
        let _ = writeln!(text, "  {rule}: {of}, {} of {} left", limit["remaining"], limit["limit"]);
    }
    text
}
