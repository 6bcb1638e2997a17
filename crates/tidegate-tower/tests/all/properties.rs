//! Any standing gives headers that parse as structured fields, and a body that is JSON. The oracles are
//! the crates `sfv` and `serde_json`.

use std::time::Duration;

use http::HeaderMap;
use proptest::prelude::*;
use sfv::{BareItem, ListEntry, Parser};
use tidegate::rules::Reason;
use tidegate_tower::{HeaderSet, Policy, Standing, Unit, refusal};

/// A policy's parts: name, quota, remaining, window, unit, and what is told of its time.
type Parts = (String, u64, u64, Duration, bool, Option<(bool, Duration)>);

fn parts() -> impl Strategy<Value = Parts> {
    let time =
        || any::<(u64, u32)>().prop_map(|(secs, nanos)| Duration::new(secs, nanos % 1_000_000_000));
    let name = prop_oneof![any::<String>(), "[ -~]{0,200}", Just("same".to_owned())];
    let until = proptest::option::of((any::<bool>(), time()));
    (name, any::<u64>(), any::<u64>(), time(), any::<bool>(), until)
}

fn policy(parts: &Parts) -> Policy<'_> {
    let (name, quota, remaining, window, concurrent, until) = parts;
    let unit = if *concurrent { Unit::ConcurrentRequests } else { Unit::Requests };
    let policy = Policy::new(name, *quota, *remaining).per(*window).counting(unit);
    match until {
        None => policy.violated(None),
        Some((true, time)) => policy.violated(Some(*time)),
        Some((false, time)) => policy.resets_after(*time),
    }
}

/// A name, and its parameters; `None` for those that are no integers.
type Item = (String, Vec<(String, Option<i64>)>);

/// Names and integer parameters of a list, which must be one of strings.
fn items(headers: &HeaderMap, name: &str) -> Vec<Item> {
    let value = headers[name].to_str().expect("visible ASCII");
    let list: sfv::List = Parser::new(value).parse().expect("a list of RFC 9651");
    list.into_iter()
        .map(|entry| {
            let ListEntry::Item(item) = entry else { panic!("an inner list") };
            let BareItem::String(name) = item.bare_item else { panic!("no string") };
            let params = item.params.into_iter().map(|(key, value)| {
                let number = match value {
                    BareItem::Integer(number) => Some(i64::from(number)),
                    _ => None,
                };
                (key.as_str().to_owned(), number)
            });
            (name.as_str().to_owned(), params.collect())
        })
        .collect()
}

proptest! {
    #[test]
    fn any_policies_are_structured_fields_and_a_body_of_json(
        list in proptest::collection::vec(parts(), 1..5),
        denied in any::<bool>(),
        retry_after in proptest::option::of(any::<u32>()),
    ) {
        let retry_after = retry_after.map(|millis| Duration::from_millis(millis.into()));
        let mut standing = if denied {
            Standing::denied(Reason::OverLimit, retry_after)
        } else {
            Standing::allowed()
        };
        for parts in &list {
            standing = standing.with(policy(parts));
        }
        let response = refusal(&standing, HeaderSet::All);
        let headers = response.headers();
        let (policies, standings) = (items(headers, "ratelimit-policy"), items(headers, "ratelimit"));
        prop_assert_eq!(policies.len(), list.len());
        let names = |items: &[(String, _)]| items.iter().map(|item| item.0.clone()).collect::<Vec<_>>();
        prop_assert_eq!(names(&policies), names(&standings));
        for (_, params) in &policies {
            prop_assert!(params.iter().any(|(key, value)| key == "q" && value.is_some()));
            let window = params.iter().find(|(key, _)| key == "w");
            prop_assert!(window.is_none_or(|(_, value)| value.is_some_and(|secs| secs > 0)));
        }
        let told = headers.get("retry-after").map(|value| value.to_str().unwrap().parse::<i64>().unwrap());
        prop_assert_eq!(told.is_some(), denied && retry_after.is_some());
        for (_, params) in &standings {
            prop_assert!(params.iter().any(|(key, value)| key == "r" && value.is_some()));
            let until = params.iter().find(|(key, _)| key == "t").and_then(|(_, value)| *value);
            if let (Some(told), Some(until)) = (told, until) {
                prop_assert!(told >= until && told >= 1, "Retry-After {} before t={}", told, until);
            }
        }
        let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        prop_assert_eq!(&body["error"], "rate_limit_exceeded");
        let violated: Vec<_> = body["violated-policies"].as_array().unwrap().clone();
        let expected = list.iter().zip(names(&policies)).filter(|(parts, _)| {
            !matches!(parts.5, Some((false, _)))
        });
        let expected: Vec<serde_json::Value> = expected.map(|(_, name)| name.into()).collect();
        prop_assert_eq!(violated, expected);
        prop_assert!(response.body().is_ascii() && !response.body().contains(&b'\n'));
    }
}
