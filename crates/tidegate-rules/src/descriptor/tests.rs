//! The documented examples of envoyproxy/ratelimit as claims, and a slow model of how it searches.

use proptest::prelude::*;

use super::*;
use crate::rule::{DescriptorTraits, Rule};
use crate::source::Place;

/// A level with a limit, named after what leads to it.
fn limited(key: &str, value: &str) -> Descriptor {
    let rule = Some(Rule::new(format!("{key}={value}"), Place::default()));
    Descriptor { rule, ..level(key, value, Vec::new()) }
}

/// A level without a limit.
fn level(key: &str, value: &str, children: Vec<Descriptor>) -> Descriptor {
    let value = match value {
        "" => DescriptorValue::Any,
        value if value.contains('*') => DescriptorValue::Glob(Glob::new(value)),
        value => DescriptorValue::Exact(value.to_owned()),
    };
    Descriptor {
        place: Place::default(),
        key: key.to_owned(),
        value,
        rule: None,
        traits: DescriptorTraits::default(),
        children,
    }
}

fn sharing(mut descriptor: Descriptor) -> Descriptor {
    descriptor.traits.share_threshold = true;
    descriptor
}

/// The name of the rule that is found, and the values that are counted by.
fn find(levels: &[Descriptor], entries: &[(&str, &str)]) -> Option<(String, Vec<String>)> {
    let entries: Vec<Attribute<'_>> = entries.iter().copied().map(Attribute::from).collect();
    let tree = DescriptorTree::new(levels);
    let found = tree.find(&entries)?;
    let rule = with_rules(levels)[found.rule as usize].rule.clone().unwrap();
    let text = |(_, value): (&str, &[u8])| String::from_utf8(value.to_vec()).unwrap();
    Some((rule.name, found.counted_by(&entries).map(text).collect()))
}

fn rule(levels: &[Descriptor], entries: &[(&str, &str)]) -> Option<String> {
    find(levels, entries).map(|(name, _)| name)
}

#[test]
fn a_nested_level_and_one_of_the_same_key_above_it_have_limits_of_their_own() {
    let levels = [
        level("message_type", "marketing", vec![limited("to_number", "")]),
        limited("to_number", "above"),
        limited("to_number", ""),
    ];
    let marketing = [("message_type", "marketing"), ("to_number", "2061111111")];
    let (name, values) = find(&levels, &marketing).unwrap();
    assert_eq!(
        (name.as_str(), values),
        ("to_number=", vec!["marketing".into(), "2061111111".into()])
    );
    assert_eq!(DescriptorTree::new(&levels).find(&marketing.map(Attribute::from)).unwrap().rule, 0);
    assert_eq!(rule(&levels, &[("to_number", "above")]).unwrap(), "to_number=above");
    assert_eq!(rule(&levels, &[("message_type", "other"), ("to_number", "1")]), None);
}

#[test]
fn an_exact_value_goes_before_a_pattern_and_a_pattern_before_any_value() {
    let levels = [limited("ip", ""), limited("ip", "50.*"), limited("ip", "50.0.0.5")];
    assert_eq!(rule(&levels, &[("ip", "50.0.0.5")]).unwrap(), "ip=50.0.0.5");
    assert_eq!(rule(&levels, &[("ip", "50.0.0.1")]).unwrap(), "ip=50.*");
    assert_eq!(rule(&levels, &[("ip", "51.0.0.1")]).unwrap(), "ip=");
    assert_eq!(rule(&levels, &[("ip", "")]).unwrap(), "ip=");
    assert_eq!(rule(&levels, &[("IP", "50.0.0.5")]), None);
}

#[test]
fn the_depth_of_the_request_must_be_that_of_the_level() {
    let shallow = [limited("key", "value")];
    assert_eq!(rule(&shallow, &[("key", "value"), ("subkey", "subvalue")]), None);
    let deep = [level("key", "value", vec![limited("subkey", "")])];
    assert_eq!(rule(&deep, &[("key", "value"), ("subkey", "subvalue")]).unwrap(), "subkey=");
    assert_eq!(rule(&deep, &[("key", "value")]), None);
    assert_eq!(rule(&deep, &[]), None);
}

#[test]
fn a_step_is_not_taken_back() {
    let levels = [level("a", "x", vec![limited("b", "1")]), level("a", "", vec![limited("b", "")])];
    assert_eq!(rule(&levels, &[("a", "x"), ("b", "2")]), None);
    assert_eq!(rule(&levels, &[("a", "y"), ("b", "2")]).unwrap(), "b=");
}

#[test]
fn a_level_without_a_limit_and_without_children_lets_its_value_pass() {
    let levels = [limited("ip", ""), level("ip", "10.0.0.1", Vec::new())];
    assert_eq!(rule(&levels, &[("ip", "10.0.0.1")]), None);
    assert_eq!(rule(&levels, &[("ip", "10.0.0.2")]).unwrap(), "ip=");
}

#[test]
fn patterns_fit_at_every_level_and_with_stars_anywhere() {
    let levels = [
        limited("wild", "foo*"),
        limited("midWild", "bar*b"),
        limited("multiWild", "foo*bar*baz"),
        level("nestedWild", "val1", vec![limited("wild", "goo*")]),
    ];
    let is_found = |entries: &[(&str, &str)]| rule(&levels, entries).is_some();
    assert!(is_found(&[("wild", "foo")]) && is_found(&[("wild", "foo1")]));
    assert!(!is_found(&[("wild", "fo")]));
    assert!(is_found(&[("midWild", "bar1b")]) && !is_found(&[("midWild", "barx")]));
    assert!(is_found(&[("multiWild", "foo-bar-baz")]) && !is_found(&[("multiWild", "foobaz")]));
    assert!(is_found(&[("nestedWild", "val1"), ("wild", "goober")]));
    assert!(!is_found(&[("nestedWild", "val1"), ("wild", "foo")]), "a pattern of another level");
}

#[test]
fn a_value_that_is_the_text_of_a_pattern_leads_to_it_whatever_stands_before() {
    let levels = [limited("a", "f*"), limited("a", "foo*")];
    assert_eq!(rule(&levels, &[("a", "foo*")]).unwrap(), "a=foo*");
    assert_eq!(rule(&levels, &[("a", "foo")]).unwrap(), "a=f*");
}

#[test]
fn the_values_of_a_level_that_shares_are_counted_as_its_pattern() {
    let levels = [
        sharing(limited("files", "files/*")),
        sharing(level("files", "top/*", vec![limited("files", "nested/*"), limited("type", "")])),
    ];
    let values = |entries: &[(&str, &str)]| find(&levels, entries).unwrap().1;
    assert_eq!(values(&[("files", "files/a.pdf")]), ["files/*"]);
    assert_eq!(values(&[("files", "top/1"), ("files", "nested/2")]), ["top/*", "nested/2"]);
    assert_eq!(values(&[("files", "top/1"), ("type", "x")]), ["top/*", "x"]);
}

#[test]
fn key_and_value_are_compared_apart() {
    let levels = [limited("user_x", "y"), limited("user_z", "")];
    assert_eq!(rule(&levels, &[("user", "x_y")]), None);
    assert_eq!(rule(&levels, &[("user", "z")]), None);
}

#[test]
fn values_are_bytes_and_need_not_be_text() {
    let levels = [limited("a", "\u{e9}"), limited("a", "b*")];
    let tree = DescriptorTree::new(&levels);
    let found = |value: &[u8]| Some(tree.find(&[Attribute { name: "a", value }])?.rule);
    assert_eq!(found("\u{e9}".as_bytes()), Some(0));
    assert_eq!(found(b"\xe9"), None);
    assert_eq!(found(b"b\xff\0"), Some(1));
}

/// What the reference does, word for word: one text of key and value, a list of patterns.
fn model(levels: &[Descriptor], entries: &[(String, String)]) -> Option<(usize, Vec<String>)> {
    let joined = |level: &Descriptor| match &level.value {
        DescriptorValue::Any => level.key.clone(),
        DescriptorValue::Exact(value) => format!("{}_{value}", level.key),
        DescriptorValue::Glob(glob) => format!("{}_{}", level.key, glob.as_str()),
    };
    let (mut siblings, mut shown, mut found) = (levels, Vec::new(), None);
    for (place, (key, value)) in entries.iter().enumerate() {
        let whole = format!("{key}_{value}");
        let exact = siblings.iter().find(|level| joined(level) == whole);
        let pattern = || {
            siblings
                .iter()
                .find(|level| joined(level).contains('*') && fits(&joined(level), &whole))
        };
        let any = || siblings.iter().find(|level| joined(level) == *key);
        let by_pattern = if exact.is_none() { pattern() } else { None };
        let next = exact.or(by_pattern).or_else(any)?;
        let shares = by_pattern.is_some() && next.traits.share_threshold;
        shown.push(if shares {
            joined(next).replacen(&format!("{key}_"), "", 1)
        } else {
            value.clone()
        });
        if place + 1 == entries.len() {
            found = next.rule.as_ref();
        }
        siblings = &next.children;
    }
    let place = with_rules(levels).iter().position(|level| {
        level.rule.as_ref().zip(found).is_some_and(|(one, other)| std::ptr::eq(one, other))
    })?;
    Some((place, shown))
}

fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_at_checked(1) {
        None => text.is_empty(),
        Some(("*", rest)) => (0..=text.len()).any(|skipped| fits(rest, &text[skipped..])),
        Some((first, rest)) => text.strip_prefix(first).is_some_and(|text| fits(rest, text)),
    }
}

/// Levels over a small alphabet, so that most requests lead somewhere. Keys have no `_`: with them
/// the reference confuses keys and values, which is not imitated.
fn levels() -> impl Strategy<Value = Vec<Descriptor>> {
    let unique = |mut levels: Vec<Descriptor>| {
        let mut seen: Vec<(String, DescriptorValue)> = Vec::new();
        levels.retain(|level| {
            let composite = (level.key.clone(), level.value.clone());
            let is_new = !seen.contains(&composite);
            seen.push(composite);
            is_new
        });
        levels
    };
    let one = |children: BoxedStrategy<Vec<Descriptor>>| {
        ("[ab]", "[xy_*]{0,3}", any::<bool>(), any::<bool>(), children).prop_map(
            |(key, value, has_rule, shares, children)| {
                let mut level = level(&key, &value, children);
                level.rule = has_rule.then(|| Rule::new("", Place::default()));
                level.traits.share_threshold = shares && value.contains('*');
                level
            },
        )
    };
    let mut below = Just(Vec::new()).boxed();
    for _ in 0..3 {
        below = prop::collection::vec(one(below), 0..7).prop_map(unique).boxed();
    }
    below
}

proptest! {
    #[test]
    fn finds_what_the_reference_finds(
        levels in levels(),
        requests in prop::collection::vec(
            prop::collection::vec(("[abc]", "[xy_*]{0,4}"), 0..4), 1..20,
        ),
    ) {
        let tree = DescriptorTree::new(&levels);
        for request in &requests {
            let entries: Vec<Attribute<'_>> =
                request.iter().map(|(key, value)| Attribute::from((key.as_str(), value.as_str()))).collect();
            let found = tree.find(&entries).map(|found| {
                let text = |(_, value): (&str, &[u8])| String::from_utf8(value.to_vec()).unwrap();
                (found.rule as usize, found.counted_by(&entries).map(text).collect::<Vec<_>>())
            });
            prop_assert_eq!(found, model(&levels, request));
        }
    }
}
