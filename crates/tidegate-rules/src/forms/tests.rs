//! Documents of each spelling, and what must hold across them.

use super::*;

fn parse(texts: &[&str], options: &ParseOptions) -> Result<Checked, Report> {
    let sources: Vec<Source> = (1..)
        .zip(texts)
        .map(|(number, text)| Source::new(format!("{number}.yaml"), *text))
        .collect();
    RuleSet::parse(&sources, options)
}

/// Each message with its place and help.
fn said(report: &Report) -> Vec<String> {
    let one = |(name, diagnostic): (&str, &crate::Diagnostic)| {
        let Place { line, column, .. } = diagnostic.place;
        let help = diagnostic.help.as_deref().unwrap_or_default();
        format!("{name}:{line}:{column} {}; {help}", diagnostic.message)
    };
    report.iter().map(one).collect()
}

fn errors(texts: &[&str]) -> Vec<String> {
    said(&parse(texts, &ParseOptions::default()).unwrap_err())
}

fn short(domain: &str, key: &str) -> String {
    format!("{{domain: {domain}, key: {key}, rate_limit: {{unit: day, requests: 5}}}}")
}

#[test]
fn a_short_document_is_a_rule_per_its_key() {
    let checked = parse(&[&short("messaging", "email")], &ParseOptions::default()).unwrap();
    let [domain] = checked.rules.domains() else { panic!("{checked:?}") };
    let [rule] = &domain.rules[..] else { panic!("{domain:?}") };
    assert_eq!((domain.name.as_str(), rule.name.as_str()), ("messaging", "email"));
    assert_eq!(rule.per, ["email"]);
    let crate::rule::Quota::Limits(limits) = &rule.quota else { panic!("{rule:?}") };
    assert_eq!(limits[0].text, "5/day fixed-window");
    assert_eq!(limits[0].limit, crate::parse_limit("5/day fixed-window").unwrap());
    assert!(checked.warnings.is_empty());
}

#[test]
fn documents_lists_and_files_add_to_the_same_domains() {
    let list = format!("- {}\n- {}\n---\n{}", short("a", "x"), short("b", "x"), short("a", "y"));
    let checked = parse(&[&list, &short("b", "z")], &ParseOptions::default()).unwrap();
    let found: Vec<(&str, Vec<&str>)> = checked
        .rules
        .domains()
        .iter()
        .map(|domain| (&*domain.name, domain.rules.iter().map(|rule| &*rule.name).collect()))
        .collect();
    assert_eq!(found, [("a", vec!["x", "y"]), ("b", vec!["x", "z"])]);
}

#[test]
fn all_mistakes_of_all_files_are_reported_in_order() {
    let first =
        "domain: ''\nkey: a\nrate_limit: {unti: day, requests: -1}\n---\nkey: b\nrate_limit: 5";
    let second = "domain: x\nkey: [a]\nrate_limit: {unit: fortnight, requests: 0}";
    assert_eq!(
        errors(&[first, second, "domain: y\nkey: k\nrate_limit: {unit: day, requests: 0}"]),
        [
            "1.yaml:1:9 `domain` is empty; write the name that requests give, such as `api`",
            "1.yaml:3:14 unknown field `unti`; did you mean `unit`?",
            "1.yaml:3:35 `requests` must be a whole number, not `-1`; use 1 or more",
            "1.yaml:5:1 `domain` is missing; add `domain: …`",
            "1.yaml:6:13 `rate_limit` must be a mapping, not text; write `key: value` lines",
            "2.yaml:2:6 `key` must be text, not a list; write a single value",
            "2.yaml:3:20 `unit` cannot be `fortnight`; use `second`, `minute`, `hour`, `day`, `week`, \
             `month` or `year`",
            "3.yaml:3:35 the count is 0; it must be at least 1; use 1 or more",
        ]
    );
}

#[test]
fn a_document_has_exactly_one_spelling() {
    let help = format!("; {EXPECTED_HELP}");
    assert_eq!(errors(&["5"]), [format!("1.yaml:1:1 a document must be a mapping{help}")]);
    assert_eq!(
        errors(&["domain:a"]),
        ["1.yaml:1:1 a document must be a mapping; put a space behind the colon"]
    );
    assert_eq!(
        errors(&["domain: a\nfoo: b"]),
        [format!("1.yaml:1:1 expected `rules`, `descriptors` or `key`{help}")]
    );
    assert_eq!(
        errors(&["domain: a\ndescriptor: []"]),
        ["1.yaml:2:1 unknown field `descriptor`; did you mean `descriptors`?"]
    );
    assert_eq!(
        errors(&["domain: a\nrules: []\ndescriptors: []"]),
        [
            "1.yaml:3:1 `rules` and `descriptors` cannot be in one document; write two documents with \
          a line `---` between them"
        ]
    );
    assert_eq!(
        errors(&["domain: a\nrate_limit: {unit: day, requests: 5}"]),
        ["1.yaml:1:1 `key` is missing; add `key: …`"]
    );
}

#[test]
fn names_are_unique_in_a_domain_across_files() {
    assert_eq!(
        errors(&[&short("a", "x"), &short("b", "x"), &short("a", "x")]),
        [
            "3.yaml:1:18 the domain `a` has two rules named `x`; give one another name; the first is \
          at 1.yaml:1:18"
        ]
    );
}

#[test]
fn domains_of_envoy_are_merged_where_that_is_asked_for() {
    let mut problems = Problems::default();
    let mut draft = Draft::default();
    let place = Place::default();
    let mut name = |draft: &mut Draft, spelling| {
        let domain = draft.domain("a", place, spelling, &mut problems);
        domain.unwrap().rules.push(crate::rule::Rule::new("r", place));
        problems.errors()
    };
    assert_eq!(name(&mut draft, Spelling::Own), 0);
    assert_eq!(name(&mut draft, Spelling::Envoy), 0);
    assert_eq!(name(&mut draft, Spelling::Short), 0);
    assert_eq!(name(&mut draft, Spelling::Envoy), 1);
    assert_eq!(draft.domains[0].rules.len(), 3, "what is refused is not added");
    draft.options.merge_domains = true;
    assert_eq!(name(&mut draft, Spelling::Envoy), 1);
    assert_eq!((draft.domains.len(), draft.domains[0].rules.len()), (1, 4));
}

#[test]
fn no_sources_are_no_rules_and_a_warning() {
    let checked = parse(&[], &ParseOptions::default()).unwrap();
    assert_eq!(checked.rules, RuleSet::default());
    assert_eq!(said(&checked.warnings), [":0:0 there are no rules; every request is allowed"]);
}
