//! The bodies of calls over HTTP: any bytes are a call, which says what they say, or an error that points
//! into them. The oracle is the tree that `serde_json` makes of the same bytes.

use serde_json::Value;
use tidegate_rules::attribute::ATTRIBUTES_MAX;
use tidegate_server::Does;
use tidegate_server::http::body::{self, BodyError, BodyFault, CheckBody, Who};

/// Small, so that inputs meet it.
const CALLS_MAX: usize = 4;

/// # Panics
///
/// Where the claim does not hold.
pub fn check(data: &[u8]) {
    // It has bounds of its own (depth, and numbers that are no 64 bits), so it does not know everything.
    let tree: Option<Value> = serde_json::from_slice(data).ok();
    let tree = tree.as_ref();
    match body::check(data) {
        Ok(call) => says_the_same(&call, tree),
        Err(error) => points_into(tree, &error),
    }
    match body::batch(data, CALLS_MAX) {
        Ok(calls) => {
            assert!(calls.len() <= CALLS_MAX);
            for (index, call) in calls.iter().enumerate() {
                says_the_same(call, tree.map(|tree| &tree[index]));
            }
        }
        Err(error) => points_into(tree, &error),
    }
    match body::refund(data) {
        Ok(refund) => of_the_same(&refund.who, tree),
        Err(error) => points_into(tree, &error),
    }
    match body::of_lease(data) {
        Ok(release) => of_the_same(&release.who, tree),
        Err(error) => points_into(tree, &error),
    }
}

fn says_the_same(call: &CheckBody<'_>, tree: Option<&Value>) {
    of_the_same(&call.who, tree);
    let Some(tree) = tree else { return };
    assert_eq!(Some(call.cost), tree.get("cost").map_or(Some(1), Value::as_u64));
    assert_eq!(call.does == Does::Peek, tree["peek"] == true);
    assert_eq!(call.does == Does::Debit, tree["debit"] == true);
}

fn of_the_same(who: &Who<'_>, tree: Option<&Value>) {
    let attributes = who.attributes();
    assert!(attributes.len() <= ATTRIBUTES_MAX);
    let Some(tree) = tree else { return };
    assert_eq!(who.domain.as_deref(), tree["domain"].as_str());
    let expected = tree["attributes"].as_object();
    assert_eq!(attributes.len(), expected.map_or(0, serde_json::Map::len));
    for attribute in &attributes {
        let text = std::str::from_utf8(attribute.value).expect("text");
        match &tree["attributes"][attribute.name] {
            Value::String(expected) => assert_eq!(text, expected),
            Value::Bool(expected) => assert_eq!(text, expected.to_string()),
            // As it is written, which is the same number.
            Value::Number(_) => assert!(text.parse::<f64>().is_ok(), "{text}"),
            other => panic!("{other} is no value of an attribute"),
        }
    }
}

fn points_into(tree: Option<&Value>, error: &BodyError) {
    assert!(!error.to_string().is_empty());
    let is_pointer = error.pointer.is_empty() || error.pointer.starts_with('/');
    assert!(is_pointer, "{:?}", error.pointer);
    let is_absent = matches!(error.fault, BodyFault::Missing);
    if let (Some(tree), false) = (tree, is_absent) {
        assert!(tree.pointer(&error.pointer).is_some(), "{error} at {:?}", error.pointer);
    }
}
