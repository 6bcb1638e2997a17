//! What bodies are read as, and which field an error names.

use super::*;

fn pairs(who: &Who<'_>) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    who.attributes().iter().map(|one| (one.name.to_owned(), text(one.value))).collect()
}

/// The pointer and the fault of a body that is none.
fn wrong(body: &str) -> (String, BodyFault) {
    let error = check(body.as_bytes()).expect_err(body);
    assert!(!error.to_string().is_empty());
    (error.pointer, error.fault)
}

#[test]
fn a_call_is_read_with_what_holds_where_nothing_is_said() {
    let body = br#"{"domain":"api","attributes":{"user":"42","path":"\/a\u00e4"},"cost":3}"#;
    let read = check(body).unwrap();
    assert_eq!(read.who.domain.as_deref(), Some("api"));
    assert_eq!(pairs(&read.who), [("user".into(), "42".into()), ("path".into(), "/aä".into())]);
    assert_eq!((read.cost, read.does), (3, Does::Take));
    let empty = check(b" {} ").unwrap();
    assert_eq!(empty, CheckBody { who: Who::default(), cost: 1, does: Does::Take });
    assert_eq!(check(br#"{"peek":true,"debit":false}"#).unwrap().does, Does::Peek);
    assert_eq!(check(br#"{"debit":true}"#).unwrap().does, Does::Debit);
}

#[test]
fn numbers_and_truth_values_are_taken_as_they_are_written() {
    let body = br#"{"attributes":{"a":42,"b":true,"c":-0.50,"d":123456789012345678901234567890}}"#;
    let values: Vec<String> =
        pairs(&check(body).unwrap().who).into_iter().map(|(_, value)| value).collect();
    assert_eq!(values, ["42", "true", "-0.50", "123456789012345678901234567890"]);
}

#[test]
fn an_error_names_the_field() {
    use BodyFault::*;
    for (body, pointer, fault) in [
        ("[]", "", NotAnObject),
        ("7", "", NotAnObject),
        ("null", "", NotAnObject),
        (r#"{"domain":7}"#, "/domain", NotText),
        (r#"{"domain":"\ud800"}"#, "/domain", NotText),
        (r#"{"attributes":[]}"#, "/attributes", NotAnObject),
        (r#"{"attributes":{"user":null}}"#, "/attributes/user", NotAValue),
        (r#"{"attributes":{"a/b~c":{"x":1}}}"#, "/attributes/a~1b~0c", NotAValue),
        (r#"{"attributes":{"user":["a"]}}"#, "/attributes/user", NotAValue),
        (r#"{"attributes":{"user":"a","user":"b"}}"#, "/attributes/user", Repeated),
        (r#"{"cost":-1}"#, "/cost", NotACount),
        (r#"{"cost":1.0}"#, "/cost", NotACount),
        (r#"{"cost":"1"}"#, "/cost", NotACount),
        (r#"{"cost":18446744073709551616}"#, "/cost", NotACount),
        (r#"{"cost":1,"cost":2}"#, "/cost", Repeated),
        (r#"{"peek":1}"#, "/peek", NotABoolean),
        (r#"{"peek":true,"debit":true}"#, "/debit", PeekAndDebit),
        (r#"{"costs":1}"#, "/costs", Unknown),
    ] {
        assert_eq!(wrong(body), (pointer.to_owned(), fault), "{body}");
    }
    assert_eq!(check(b"{\"domain\":\"\xff\"}").unwrap_err().fault, Encoding);
}

#[test]
fn what_is_not_json_is_refused_where_it_stops_being() {
    for (body, line, column) in
        [("", 1, 0), ("{", 1, 1), ("{\"a\"\n:}", 2, 2), ("{} {}", 1, 4), ("{'a':1}", 1, 2)]
    {
        let (pointer, fault) = wrong(body);
        assert_eq!((pointer.as_str(), fault), ("", BodyFault::Syntax { line, column }), "{body}");
    }
    let deep = format!("{{\"attributes\":{}{}}}", "[".repeat(30_000), "]".repeat(30_000));
    assert_eq!(wrong(&deep).1, BodyFault::NotAnObject);
}

#[test]
fn there_are_as_many_attributes_as_rules_look_at() {
    let body = |count: usize| {
        let attributes: Vec<String> = (0..count).map(|n| format!("\"a{n}\":{n}")).collect();
        format!("{{\"attributes\":{{{}}}}}", attributes.join(","))
    };
    assert_eq!(check(body(32).as_bytes()).unwrap().who.attributes().len(), 32);
    assert_eq!(wrong(&body(33)), ("/attributes".into(), BodyFault::TooManyAttributes));
    assert_eq!(wrong(&body(9_000)), ("/attributes".into(), BodyFault::TooManyAttributes));
}

#[test]
fn a_batch_is_a_list_of_calls_and_an_error_says_which() {
    let calls = batch(br#"[{"cost":1},{"cost":2}]"#, 2).unwrap();
    assert_eq!(calls.iter().map(|call| call.cost).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(batch(b"[]", 2).unwrap(), []);
    let error = |body: &str| {
        let error = batch(body.as_bytes(), 2).unwrap_err();
        (error.pointer, error.fault)
    };
    let bad = r#"[{},{"attributes":{"user":null}}]"#;
    assert_eq!(error(bad), ("/1/attributes/user".into(), BodyFault::NotAValue));
    assert_eq!(error("[{},7]"), ("/1".into(), BodyFault::NotAnObject));
    assert_eq!(error("{}"), (String::new(), BodyFault::NotAList));
    assert_eq!(error("[1,1,1]"), (String::new(), BodyFault::TooManyCalls { max: 2 }));
}

#[test]
fn giving_back_needs_to_know_what() {
    let read = refund(br#"{"attributes":{"user":1},"cost":2,"taken_at_us":5}"#).unwrap();
    assert_eq!((read.cost, read.taken_at), (2, Timestamp::from_micros(5)));
    assert_eq!(refund(b"{}").unwrap_err(), BodyError::new("/taken_at_us", BodyFault::Missing));
    assert_eq!(refund(br#"{"peek":true}"#).unwrap_err().fault, BodyFault::Unknown);
    let read = of_lease(br#"{"domain":"d","lease_id":"00"}"#).unwrap();
    assert_eq!((read.who.domain.as_deref(), &*read.lease_id), (Some("d"), "00"));
    assert_eq!(of_lease(b"{}").unwrap_err(), BodyError::new("/lease_id", BodyFault::Missing));
}
