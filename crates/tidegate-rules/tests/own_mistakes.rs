//! Mistakes in Tidegate's own spelling: what is said of them, and where.

use tidegate_rules::{ParseOptions, RuleSet, Severity, Source};

/// The errors of a text as `line:column message`, each with its help below.
fn errors(text: &str) -> Vec<String> {
    let sources = [Source::new("rules.yaml", text)];
    let Err(report) = RuleSet::parse(&sources, &ParseOptions::default()) else { return Vec::new() };
    let errors = report.iter().filter(|(_, found)| found.severity == Severity::Error);
    let lines = errors.flat_map(|(_, found)| {
        let message = format!("{}:{} {}", found.place.line, found.place.column, found.message);
        [Some(message), found.help.as_ref().map(|help| format!("    {help}"))]
    });
    lines.flatten().collect()
}

#[test]
fn every_mistake_is_told_with_its_place_and_a_remedy() {
    let sections = include_str!("own_mistakes.txt").split("\n## ").skip(1);
    let mut cases = 0;
    for section in sections {
        let (head, body) = section.split_once("\n----\n").expect("a line between head and cases");
        let (title, base) = head.split_once('\n').unwrap_or((head, ""));
        for case in body.trim_end().split("\n\n") {
            let is_told = |line: &&str| line.starts_with("> ");
            let told: Vec<&str> = case.lines().filter(is_told).map(|line| &line[2..]).collect();
            let written: Vec<&str> = case.lines().filter(|line| !is_told(line)).collect();
            let text = format!("{base}\n{}", written.join("\n"));
            assert!(!told.is_empty(), "{title}: nothing is told of {case}");
            assert_eq!(errors(text.trim_start()), told, "{title}: {text}");
            cases += 1;
        }
    }
    assert!(cases > 130, "only {cases} cases were found");
}

#[test]
fn all_seven_mistakes_of_a_file_are_told() {
    let text = "\
domain: api
rules:
  - name: login
    match: { method: post, path: /login }
    per: [ip, ip]
    limit: 10/minuet
    missing: ignore
  - name: orders
    per: user
    limit: { rate: 500/hour, algoritm: sliding-slots }
    soft: 10
    colour: red
";
    let told = errors(text);
    let told: Vec<&str> = told.iter().map(String::as_str).filter(|l| !l.starts_with(' ')).collect();
    assert_eq!(
        told,
        [
            "4:22 `post` is not a method",
            "5:15 `ip` is twice in `per`",
            "6:15 unknown unit `minuet` (did you mean `minute`?)",
            "7:14 `missing` cannot be `ignore`",
            "10:30 unknown field `algoritm`",
            "11:11 `10` is not a percentage",
            "12:5 unknown field `colour`",
        ]
    );
}

#[test]
fn mistakes_of_a_refused_domain_are_told_all_the_same() {
    let told = errors("domain: ''\nrules: [{ name: a, limit: 1/s, mode: of }]");
    assert_eq!(told[0], "1:9 `domain` is empty");
    assert_eq!(told[2], "2:38 `mode` cannot be `of`");
}

#[test]
fn a_rule_has_at_most_a_hundred_thousand_overrides() {
    let rule = |count: u32| {
        let keys: Vec<String> = (0..count).map(|user| format!("\"user={user}\": 1/s")).collect();
        let overrides = keys.join(", ");
        format!(
            "{{domain: a, rules: [{{name: a, per: user, limit: 2/s, overrides: {{{overrides}}}}}]}}"
        )
    };
    assert_eq!(errors(&rule(100_000)), [""; 0]);
    assert_eq!(errors(&rule(100_001))[0], "1:65 too many overrides");
}

#[test]
fn names_have_a_longest_length() {
    let rule = |name: &str, per: &str, shown_as: &str| {
        format!(
            "{{domain: a, rules: [{{name: {name}, per: {per}, limit: 1/s, shown_as: {shown_as}}}]}}"
        )
    };
    let of = |count: usize| "x".repeat(count);
    assert_eq!(errors(&rule(&of(128), &of(64), &of(128))), [""; 0]);
    let told = errors(&rule(&of(129), &of(65), &of(129)));
    assert_eq!(told[0], "1:28 the name of a rule is too long");
    assert_eq!(told[2], "1:164 the name of an attribute is too long");
    assert_eq!(told[4], "1:253 `shown_as` cannot be sent to clients");
}

#[test]
fn a_limit_in_json_is_pointed_into_as_well() {
    let text = r#"{"domain": "a", "rules": [{"name": "a", "limit": "10/fortnight"}]}"#;
    assert_eq!(errors(text)[0], "1:54 unknown unit `fortnight`");
}
