//! Bans and the allow-list.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tidegate_server::controls::{Target, TargetError};

use super::args::ListArgs;
use super::{answered, client, refused, warn_of_forgetting};
use crate::failure::Failure;
use crate::output::printable;
use crate::{Answer, output};

/// One of the two lists: where it is, and what its fields and entries are called.
#[derive(Clone, Copy)]
pub(super) struct List {
    path: &'static str,
    field: &'static str,
    done: &'static str,
    none: &'static str,
}

pub(super) const BANS: List =
    List { path: "/v1/bans", field: "bans", done: "banned", none: "nobody is banned\n" };
pub(super) const ALLOWED: List =
    List { path: "/v1/allow", field: "allow", done: "allowed", none: "the allow-list is empty\n" };

pub(super) fn run(list: List, args: &ListArgs) -> Result<Answer, Failure> {
    match &args.target {
        None => show(list, args),
        Some(target) => {
            // What is wrong with it can be told without asking anyone.
            let target = target.parse::<Target>();
            let target = target.map_err(|error: TargetError| Failure::Asked(error.to_string()))?;
            if args.lift { lift(list, args, &target) } else { add(list, args, &target) }
        }
    }
}

fn add(list: List, args: &ListArgs, target: &Target) -> Result<Answer, Failure> {
    let body = json!({
        "target": target.to_string(),
        "for": args.for_time,
        "domain": args.domain,
        "note": args.note,
    });
    let body = answered(client(&args.admin)?.post_json(list.path, &body))?;
    if args.admin.json {
        output::json(&body)?;
    } else {
        output::data(&format!("{} {}\n", list.done, entry(&body["entry"])))?;
    }
    warn_of_forgetting(&args.admin, &body);
    Ok(Answer::Yes)
}

fn lift(list: List, args: &ListArgs, target: &Target) -> Result<Answer, Failure> {
    let mut path = format!("{}?target={}", list.path, encoded(&target.to_string()));
    if let Some(domain) = &args.domain {
        path.extend(["&domain=", &encoded(domain)]);
    }
    let reply = client(&args.admin)?.delete(&path);
    if let Ok(reply) = &reply
        && reply.status == 404
        && reply.body["detail"].is_string()
    {
        let why = refused(reply);
        match why.as_json().filter(|_| args.admin.json) {
            Some(why) => output::json(&why)?,
            None => output::complain(&why.to_string()),
        }
        return Ok(Answer::No);
    }
    let body = answered(reply)?;
    if args.admin.json {
        output::json(&body)?;
    } else {
        output::data(&format!("lifted {}\n", printable(&target.to_string())))?;
    }
    warn_of_forgetting(&args.admin, &body);
    Ok(Answer::Yes)
}

fn show(list: List, args: &ListArgs) -> Result<Answer, Failure> {
    let body = answered(client(&args.admin)?.get(list.path))?;
    if args.admin.json {
        output::json(&body)?;
        return Ok(Answer::Yes);
    }
    let entries = body[list.field].as_array().map_or(&[][..], Vec::as_slice);
    let mut text = String::new();
    for one in entries {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", entry(one));
    }
    if entries.is_empty() {
        output::complain(list.none);
    }
    output::data(&text)?;
    Ok(Answer::Yes)
}

/// `192.0.2.0/24 in domain api until 2030-01-31T12:00:00Z: scrapes the catalogue`.
fn entry(value: &Value) -> String {
    let text = |field: &str| value[field].as_str().map(printable);
    let mut line = text("target").unwrap_or_default();
    for (before, field) in [(" in domain ", "domain"), (" until ", "until"), (": ", "note")] {
        if let Some(text) = text(field) {
            line.extend([before, &text]);
        }
    }
    line
}

/// Text as a query carries it.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_query_would_take_apart_is_encoded() {
        assert_eq!(encoded("user=a&b c/é"), "user%3Da%26b%20c%2F%C3%A9");
    }

    #[test]
    fn an_entry_is_one_line_whatever_is_in_it() {
        let value =
            json!({ "target": "user=a\n\u{1b}[31m", "domain": "api", "until": null, "note": "x" });
        assert_eq!(entry(&value), "user=a\\n\\u{1b}[31m in domain api: x");
    }
}
