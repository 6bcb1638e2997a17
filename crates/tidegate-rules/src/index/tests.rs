//! The compiled index against the plain meaning of conditions, and its own promises.

use proptest::prelude::*;

use super::*;
use crate::glob::Glob;
use crate::path::{PathTemplate, normalise};
use crate::rule::Test;
use crate::source::Place;

/// What must be found, rule by rule and condition by condition, of values as they come.
fn model(rules: &[Rule], attributes: &[Attribute<'_>]) -> Vec<u32> {
    let value = |name: &str| {
        let known = attributes.iter().find(|attribute| attribute.name == name)?;
        Some(match name {
            "path" => normalise(known.value).into_owned(),
            "host" => value::normal_host(known.value).into_owned(),
            _ => known.value.to_vec(),
        })
    };
    let matches = |rule: &Rule| {
        rule.conditions
            .iter()
            .all(|condition| condition.holds_in(rule, value(&condition.attribute).as_deref()))
    };
    (0..).zip(rules).filter(|(_, rule)| matches(rule)).map(|(number, _)| number).collect()
}

fn find(index: &Index, attributes: &[Attribute<'_>]) -> Vec<u32> {
    index.find(&mut View::new(attributes)).all().to_vec()
}

fn condition(attribute: &str, any_of: Vec<Test>, negated: bool) -> Condition {
    Condition { attribute: attribute.to_owned(), any_of, negated }
}

fn exact(attribute: &str, text: &str) -> Condition {
    condition(attribute, vec![Test::Exact(text.to_owned())], false)
}

fn rule(conditions: Vec<Condition>) -> Rule {
    let mut rule = Rule::new("rule", Place::default());
    rule.conditions = conditions;
    rule
}

fn template(text: &str) -> Test {
    Test::Path(PathTemplate::parse(text).unwrap())
}

fn cidr(text: &str) -> Test {
    Test::Cidr(text.parse().unwrap())
}

#[test]
fn finds_rules_of_every_kind_in_the_order_of_the_file() {
    let rules = [
        rule(vec![]),
        rule(vec![exact("method", "POST"), condition("path", vec![template("/login")], false)]),
        rule(vec![condition("path", vec![template("/orders/**")], false)]),
        rule(vec![condition("ip", vec![cidr("10.0.0.0/8")], false)]),
        rule(vec![condition("country", vec![Test::Exact("IN".into())], true)]),
        rule(vec![condition("host", vec![Test::Glob(Glob::new("*.Example.com"))], false)]),
        rule(vec![condition("debug", vec![Test::Present], false)]),
    ];
    let index = Index::builder().build(&rules);
    let login = [("method", "POST"), ("path", "//login/"), ("ip", "::ffff:10.1.2.3")];
    assert_eq!(find(&index, &login.map(Attribute::from)), [0, 1, 3, 4]);
    let orders = [("path", "/orders"), ("country", "IN"), ("host", "API.example.com.:80")];
    assert_eq!(find(&index, &orders.map(Attribute::from)), [0, 2, 5]);
    assert_eq!(find(&index, &[("debug", "").into(), ("country", "DE").into()]), [0, 4, 6]);
    assert_eq!(find(&index, &[]), [0, 4]);
}

#[test]
fn first_of_two_values_counts() {
    let index = Index::builder().build(&[rule(vec![exact("user", "1")])]);
    assert_eq!(find(&index, &[("user", "1").into(), ("user", "2").into()]), [0]);
    assert_eq!(find(&index, &[("user", "2").into(), ("user", "1").into()]), [] as [u32; 0]);
}

#[test]
fn an_address_is_in_the_narrowest_network_and_in_all_around_it() {
    let ranges = ["0.0.0.0/0", "10.0.0.0/8", "10.1.2.2/31", "10.1.2.3/32", "2001:db8::/32"];
    let rules = ranges.map(|range| rule(vec![condition("ip", vec![cidr(range)], false)]));
    let index = Index::builder().build(&rules);
    for (value, expected) in [
        ("10.1.2.3", &[0, 1, 2, 3][..]),
        ("::ffff:10.1.2.3", &[0, 1, 2, 3]),
        ("10.1.2.2", &[0, 1, 2]),
        ("10.1.2.4", &[0, 1]),
        ("192.0.2.7", &[0]),
        ("2001:db8::7", &[4]),
        ("nobody", &[]),
    ] {
        assert_eq!(find(&index, &[("ip", value).into()]), expected, "{value}");
    }
}

#[test]
fn range_holds_a_network_only_if_it_holds_all_of_it() {
    let ranges = ["2001:db8::/32", "2001:db8:1:2::/64", "2001:db8:1:2::/65", "::/0", "10.0.0.0/8"];
    let mut rules: Vec<_> =
        ranges.iter().map(|range| rule(vec![condition("ip", vec![cidr(range)], false)])).collect();
    // The same without an index, since a negated condition is no anchor.
    rules.extend(ranges.map(|range| rule(vec![condition("ip", vec![cidr(range)], true)])));
    let index = Index::builder().build(&rules);
    for (value, expected) in [
        ("2001:db8:1:2::/64", [0, 1, 3, 7, 9]),
        ("2001:db8:1:2::/63", [0, 3, 6, 7, 9]),
        ("10.1.0.0/16", [4, 5, 6, 7, 8]),
    ] {
        assert_eq!(find(&index, &[("ip", value).into()]), expected, "{value}");
    }
    assert_eq!(find(&index, &[("ip", "2001:db8:1:2::7").into()]), [0, 1, 2, 3, 9]);
    assert_eq!(find(&index, &[("ip", "10.0.0.0/7").into()]), [5, 6, 7, 8, 9]);
}

#[test]
fn case_of_a_path_is_ignored_where_a_rule_says_so() {
    let mut lenient = rule(vec![condition("path", vec![template("/Login")], false)]);
    let strict = lenient.clone();
    lenient.ignore_case = true;
    let mut builder = Index::builder();
    let folded = builder.intern("path", true);
    let kept = builder.intern("path", false);
    let index = builder.build(&[lenient, strict]);
    assert_eq!(find(&index, &[("path", "/LOGIN").into()]), [0]);
    assert_eq!(find(&index, &[("path", "/login").into()]), [0]);
    assert_eq!(find(&index, &[("path", "/Login").into()]), [0, 1]);
    let attributes = [("path", "/./LogIn").into()];
    let view = index.view(&attributes);
    assert_eq!(view.value(folded), Some(&b"/login"[..]));
    assert_eq!(view.value(kept), Some(&b"/LogIn"[..]));
}

#[test]
fn one_rule_is_found_as_one_whichever_way_leads_to_it() {
    let is_one = |rules: &[Rule], attributes: &[Attribute<'_>]| {
        let index = Index::builder().build(rules);
        matches!(index.find(&mut View::new(attributes)), Found::One(0))
    };
    let path = || rule(vec![condition("path", vec![template("/a/*")], false)]);
    let attributes = [("path", "/a/1").into(), ("user", "1").into()];
    assert!(is_one(&[rule(vec![])], &attributes), "without conditions");
    assert!(is_one(&[path()], &attributes), "by a path");
    assert!(is_one(&[path(), rule(vec![exact("user", "2")])], &attributes), "beside another");
    assert!(is_one(&[path(), rule(vec![exact("method", "GET")])], &attributes));
    let lenient = Rule { ignore_case: true, ..path() };
    assert!(is_one(&[lenient], &attributes), "by a path in lower case");
    assert!(!is_one(&[path(), rule(vec![])], &attributes), "two are found");
}

#[test]
fn builder_numbers_attributes_that_no_condition_names() {
    let mut builder = Index::builder();
    let user = builder.intern("user", false);
    let index = builder.build(&[rule(vec![exact("method", "GET")])]);
    let attributes = [("nobody", "x").into(), ("user", "42").into()];
    let view = index.view(&attributes);
    assert_eq!(view.value(user), Some(&b"42"[..]));
    assert_eq!(index.names.find("user"), Some(user));
    assert_eq!(index.names.find("nobody"), None);
    assert_eq!(view.value(index.names.find("method").unwrap()), None);
}

#[test]
fn first_condition_that_fails_is_told() {
    let rules = [rule(vec![exact("method", "GET"), exact("user", "1"), exact("plan", "pro")])];
    let index = Index::builder().build(&rules);
    let attributes = [("method", "GET").into(), ("user", "2").into()];
    let failed = index.why_not(&rules[0], &index.view(&attributes));
    assert_eq!(failed, Some(&rules[0].conditions[1]));
    let attributes = [("plan", "pro"), ("user", "1"), ("method", "GET")].map(Attribute::from);
    assert_eq!(index.why_not(&rules[0], &index.view(&attributes)), None);
}

#[test]
fn more_conditions_than_bits_are_all_tested() {
    let conditions = |last: &str| {
        let mut conditions: Vec<_> =
            (0..40).map(|_| condition("user", vec![Test::Present], false)).collect();
        conditions.push(exact("plan", last));
        rule(conditions)
    };
    let index = Index::builder().build(&[conditions("pro"), conditions("free")]);
    assert_eq!(find(&index, &[("user", "1").into(), ("plan", "free").into()]), [1]);
}

#[test]
fn rules_that_share_every_single_condition_are_found_by_both() {
    // Each user and each path has a hundred rules, and each pair has one.
    let rules: Vec<_> = (0..10_000)
        .map(|number| {
            let path = template(&format!("/path/{}", number / 100));
            rule(vec![
                exact("user", &(number % 100).to_string()),
                condition("path", vec![path], false),
            ])
        })
        .collect();
    let index = Index::builder().build(&rules);
    assert_eq!(find(&index, &[("user", "37").into(), ("path", "/path/12").into()]), [1237]);
}

#[test]
fn long_lists_of_mixed_tests_are_looked_up() {
    let mut tests: Vec<_> = (0..1000).map(|number| Test::Exact(number.to_string())).collect();
    tests.extend([Test::Glob(Glob::new("a*b*c")), Test::Prefix("a!".into()), cidr("10.0.0.0/8")]);
    let rules =
        [rule(vec![condition("x", tests.clone(), true)]), rule(vec![condition("x", tests, false)])];
    let index = Index::builder().build(&rules);
    for (value, expected) in
        [("999", 1), ("1000", 0), ("abbc", 1), ("acb", 0), ("a!", 1), ("10.9.9.9", 1)]
    {
        assert_eq!(find(&index, &[("x", value).into()]), [expected], "{value}");
    }
    assert_eq!(find(&index, &[]), [0]);
}

#[test]
fn work_of_compiling_does_not_multiply_lists() {
    // Three lists of two hundred would be eight million ways to find one rule.
    let list = |attribute: &str| {
        let tests = (0..200).map(|number| Test::Exact(number.to_string())).collect();
        condition(attribute, tests, false)
    };
    let rules: Vec<_> = (0..50).map(|_| rule(vec![list("a"), list("b"), list("c")])).collect();
    let index = Index::builder().build(&rules);
    let hit = [("a", "1"), ("b", "2"), ("c", "3")].map(Attribute::from);
    assert_eq!(find(&index, &hit).len(), 50);
    assert_eq!(find(&index, &hit[..2]).len(), 0);
}

fn text_tests() -> impl Strategy<Value = Test> {
    prop_oneof![
        "[abA]{0,2}".prop_map(Test::Exact),
        "[abA]{0,2}".prop_map(Test::Prefix),
        "[abA*]{0,4}".prop_map(|text| Test::Glob(Glob::new(&text))),
        Just(Test::Present),
    ]
}

fn path_tests() -> impl Strategy<Value = Test> {
    prop_oneof![
        4 => "(/([abA]|\\*|\\{x\\})){0,3}(/\\*\\*)?".prop_map(|text| {
            template(if text.is_empty() { "/" } else { &text })
        }),
        1 => "(/[abA.%41]{0,2}){0,2}".prop_map(Test::Exact),
        1 => "(/[abA]{0,2}){0,2}".prop_map(Test::Prefix),
        1 => "/[abA*]{0,4}".prop_map(|text| Test::Glob(Glob::new(&text))),
    ]
}

fn network_tests() -> impl Strategy<Value = Test> {
    let v4 = (0..4_u32, 28..=32_u8).prop_map(|(host, bits)| cidr(&format!("10.0.0.{host}/{bits}")));
    let v6 =
        (0..4_u32, 120..=128_u8).prop_map(|(host, bits)| cidr(&format!("fe80::{host}/{bits}")));
    let mapped = (124..=128_u8).prop_map(|bits| cidr(&format!("::ffff:10.0.0.2/{bits}")));
    let wide = prop::sample::select(vec!["0.0.0.0/0", "::/0", "10.0.0.0/8"]).prop_map(cidr);
    prop_oneof![3 => v4, 2 => v6, 1 => mapped, 1 => wide, 1 => "10\\.0\\.0\\.[0-3]".prop_map(Test::Exact)]
}

fn conditions() -> impl Strategy<Value = Condition> {
    let negated = prop::bool::weighted(0.2);
    let any_of = |tests: BoxedStrategy<Test>| {
        prop_oneof![
            6 => prop::collection::vec(tests.clone(), 1..4),
            1 => prop::collection::vec(tests, 0..14),
        ]
    };
    let of = move |names: &'static [&'static str], tests: BoxedStrategy<Test>| {
        (prop::sample::select(names), any_of(tests), negated)
            .prop_map(|(name, any_of, negated)| condition(name, any_of, negated))
    };
    let mixed = prop_oneof![text_tests(), path_tests(), network_tests()].boxed();
    prop_oneof![
        4 => of(&["a", "b", "host"], text_tests().boxed()),
        3 => of(&["path"], path_tests().boxed()),
        2 => of(&["ip"], network_tests().boxed()),
        1 => of(&["a", "path", "ip", "host"], mixed),
    ]
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let one = (prop::collection::vec(conditions(), 0..4), any::<bool>());
    prop::collection::vec(one, 0..40).prop_map(|rules| {
        let make = |(conditions, ignore_case)| Rule { ignore_case, ..rule(conditions) };
        rules.into_iter().map(make).collect()
    })
}

/// Rules that share nearly everything, so that they have levels below each other.
fn crowds() -> impl Strategy<Value = Vec<Rule>> {
    let value = prop_oneof![
        4 => "[ab]".prop_map(Test::Exact),
        1 => "[ab]".prop_map(Test::Prefix),
        1 => "[ab]\\*[ab]\\*".prop_map(|text| Test::Glob(Glob::new(&text))),
    ];
    let tests = prop::collection::vec(value, 1..3);
    let one = |name| {
        (tests.clone(), prop::bool::weighted(0.1))
            .prop_map(move |(tests, negated)| condition(name, tests, negated))
    };
    let conditions = (one("a"), one("b"), one("c"), one("d"), 0..=4_usize);
    prop::collection::vec(conditions, 40..200).prop_map(|rules| {
        let make = |(a, b, c, d, len)| {
            let mut conditions = vec![d, c, b, a];
            conditions.truncate(len);
            rule(conditions)
        };
        rules.into_iter().map(make).collect()
    })
}

fn requests() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let ip = prop_oneof![
        "10\\.0\\.0\\.[0-5]",
        "fe80::[0-5]",
        "10\\.0\\.0\\.[0-5]/(2[7-9]|3[0-2])",
        "fe80::[0-5]/12[0-8]",
        "::ffff:10\\.0\\.0\\.[0-3]",
        "\\[fe80::1%x\\]:1",
        "[ab]"
    ];
    let attribute = prop_oneof![
        3 => (prop::sample::select(vec!["a", "b", "c"]), "[abA]{0,4}"),
        1 => (Just("host"), "[abA]{0,3}\\.?(:80)?"),
        2 => (Just("path"), "(/{1,2}([abA.]|%41)?){0,4}"),
        2 => (Just("ip"), ip),
        1 => (prop::sample::select(vec!["a", "b"]), "(/{1,2}[ab]?){0,3}/?|[ab]?|10\\.0\\.0\\.[0-3]"),
    ];
    prop::collection::vec(attribute, 0..6)
}

fn agrees_with_the_model(rules: &[Rule], request: &[(&str, String)]) -> Result<(), TestCaseError> {
    let index = Index::builder().build(rules);
    let attributes: Vec<Attribute<'_>> =
        request.iter().map(|(name, value)| (*name, value.as_str()).into()).collect();
    let view = index.view(&attributes);
    let expected = model(rules, &attributes);
    prop_assert_eq!(find(&index, &attributes), &expected[..]);
    for (number, rule) in (0..).zip(rules) {
        prop_assert_eq!(index.why_not(rule, &view).is_none(), expected.contains(&number));
    }
    Ok(())
}

proptest! {
    #[test]
    fn finds_what_the_model_finds(
        rules in rules(),
        requests in prop::collection::vec(requests(), 1..6),
    ) {
        for request in &requests {
            agrees_with_the_model(&rules, request)?;
        }
    }

    #[test]
    fn finds_what_the_model_finds_in_a_crowd(
        rules in crowds(),
        values in prop::collection::vec("[ab]{1,2}", 0..=4),
    ) {
        let request: Vec<_> = ["a", "b", "c", "d"].into_iter().zip(values).collect();
        agrees_with_the_model(&rules, &request)?;
    }
}
