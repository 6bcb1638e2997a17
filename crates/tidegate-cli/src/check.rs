//! `tidegate check`: asks a running daemon whether a request may pass, and takes what it costs.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::args::CheckArgs;
use crate::client::Client;
use crate::failure::Failure;
use crate::output::printable;
use crate::{Answer, output};

/// Asks, and answers with an exit code.
pub(crate) fn run(args: &CheckArgs) -> Result<Answer, Failure> {
    let attributes = args.attributes.iter();
    let attributes: Map<String, Value> =
        attributes.map(|(name, value)| (name.clone(), json!(value))).collect();
    let mut body = json!({ "domain": args.domain, "attributes": attributes, "cost": args.cost });
    if args.peek {
        body["peek"] = json!(true);
    }
    let client = Client::new(&args.server).with_timeout(args.timeout);
    let reply = client.post_json("/v1/check", &body);
    let reply = reply.map_err(|error| Failure::Asked(error.to_string()))?;
    let allowed = reply.body["allowed"].as_bool().filter(|_| reply.status == 200);
    let Some(is_allowed) = allowed else {
        return undecided(&reply.body, reply.status, args.json);
    };
    if args.json {
        output::json(&reply.body)?;
    } else {
        output::data(&format!("{}\n", sentence(&reply.body, is_allowed)))?;
    }
    Ok(if is_allowed { Answer::Yes } else { Answer::No })
}

/// The daemon answered, and not with a decision.
fn undecided(body: &Value, status: u16, is_json: bool) -> Result<Answer, Failure> {
    if is_json && body.is_object() {
        output::json(body)?;
        return Ok(Answer::Unknown);
    }
    let words = ["detail", "message", "title"].into_iter().find_map(|name| body[name].as_str());
    let words = words.map_or_else(String::new, |words| format!(": {}", printable(words)));
    Err(Failure::Asked(format!("the daemon could not decide (status {status}){words}")))
}

/// The decision in a line.
fn sentence(body: &Value, is_allowed: bool) -> String {
    let number = |name: &str| body[name].as_u64();
    let rule = body["rule"].as_str().map(printable);
    let mut parts = Vec::new();
    match (number("remaining"), number("limit")) {
        (Some(remaining), Some(limit)) => parts.push(format!("{remaining} of {limit} left")),
        _ if is_allowed && rule.is_none() => parts.push("no rule applies".to_owned()),
        _ => {}
    }
    match body["reason"].as_str() {
        Some("over-limit") | None => {}
        Some(reason) => parts.push(printable(reason)),
    }
    parts.extend(rule.map(|rule| format!("rule {rule}")));
    if let Some(wait_ms) = number("retry_after_ms") {
        parts.push(format!("try again in {}", shown(wait_ms)));
    }
    if let Some(delay_ms) = number("delay_ms").filter(|delay_ms| *delay_ms > 0) {
        parts.push(format!("to be held back for {}", shown(delay_ms)));
    }
    let flags = [
        ("soft", "beyond the limit, by a soft rule"),
        ("shadow_denied", "a rule in shadow would have denied it"),
        ("degraded", "decided without the store"),
    ];
    let flags = flags.into_iter().filter(|(name, _)| body[name].as_bool() == Some(true));
    parts.extend(flags.map(|(_, words)| words.to_owned()));
    let verdict = if is_allowed { "allowed" } else { "denied" };
    if parts.is_empty() { verdict.to_owned() } else { format!("{verdict}: {}", parts.join(", ")) }
}

/// A time as a person says it, never less than it is.
fn shown(time_ms: u64) -> String {
    let time = Duration::from_millis(time_ms);
    match time.as_secs() {
        0 => format!("{time_ms} ms"),
        1..=9 => format!("{}.{} s", time_ms.div_ceil(100) / 10, time_ms.div_ceil(100) % 10),
        10..=119 => format!("{} s", time_ms.div_ceil(1_000)),
        120..=7_199 => format!("{} min", time_ms.div_ceil(60_000)),
        _ => format!("{} h", time_ms.div_ceil(3_600_000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_is_one_line() {
        let allowed = json!({
            "allowed": true, "rule": "login", "limit": 10, "remaining": 9, "reset_after_ms": 6_000,
            "retry_after_ms": null, "delay_ms": 0, "reason": null, "soft": false,
        });
        assert_eq!(sentence(&allowed, true), "allowed: 9 of 10 left, rule login");
        let denied = json!({
            "allowed": false, "rule": "login", "limit": 10, "remaining": 0,
            "retry_after_ms": 5_210, "reason": "over-limit",
        });
        let expected = "denied: 0 of 10 left, rule login, try again in 5.3 s";
        assert_eq!(sentence(&denied, false), expected);
        let banned = json!({ "allowed": false, "rule": null, "reason": "banned" });
        assert_eq!(sentence(&banned, false), "denied: banned");
        assert_eq!(sentence(&json!({ "rule": null }), true), "allowed: no rule applies");
        let queued = json!({ "rule": "q", "limit": 5, "remaining": 4, "delay_ms": 1_000 });
        let expected = "allowed: 4 of 5 left, rule q, to be held back for 1.0 s";
        assert_eq!(sentence(&queued, true), expected);
    }

    #[test]
    fn times_are_never_rounded_down() {
        for (time_ms, text) in [
            (1, "1 ms"),
            (999, "999 ms"),
            (1_001, "1.1 s"),
            (9_999, "10.0 s"),
            (10_001, "11 s"),
            (120_001, "3 min"),
            (7_200_001, "3 h"),
        ] {
            assert_eq!(shown(time_ms), text);
        }
    }
}
