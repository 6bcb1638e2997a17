//! What a person is shown.

use proptest::prelude::*;

use super::*;

fn place(line: u32, column: u32, length: u32) -> Place {
    Place { source: 0, line, column, length }
}

fn report(text: &str, places: &[Place]) -> String {
    let sources = [Source::new("rules.yaml", text)];
    let mut problems = Problems::new(&sources);
    for &place in places {
        problems.error(place, format!("wrong {}", place.length)).help = Some("right".to_owned());
    }
    problems.into_report(&sources).to_string()
}

#[test]
fn a_diagnostic_is_shown_with_its_line() {
    let text = "\n".repeat(11) + "      algoritm: token-bucket\n";
    assert_eq!(
        report(&text, &[place(12, 7, 8)]),
        "\
error: wrong 8
  --> rules.yaml:12:7
   |
12 |       algoritm: token-bucket
   |       ^^^^^^^^
   = help: right
"
    );
}

#[test]
fn diagnostics_are_in_the_order_of_sources_and_places() {
    let sources = [Source::new("a", "x\ny z"), Source::new("b\u{1b}", "")];
    let mut problems = Problems::new(&sources);
    problems.error(Place { source: 1, ..Place::default() }, "empty");
    problems.warning(place(2, 3, 1), "second");
    problems.error(place(2, 1, 1), "first");
    problems.warning(Place { source: 9, ..Place::default() }, "about no source");
    let report = problems.into_report(&sources);
    assert_eq!((report.errors(), report.warnings(), report.is_empty()), (2, 2, false));
    let found: Vec<_> =
        report.iter().map(|(name, diagnostic)| (name, diagnostic.message.as_str())).collect();
    assert_eq!(
        found,
        [("a", "first"), ("a", "second"), ("b\u{1b}", "empty"), ("", "about no source")]
    );
    let text = report.to_string();
    assert!(text.contains("\n\nwarning: second\n --> a:2:3\n  |\n2 | y z\n  |   ^\n"), "{text}");
    assert!(text.contains("error: empty\n --> b\\u{1b}\n"), "{text}");
    assert!(text.ends_with("\nwarning: about no source\n"), "{text}");
}

#[test]
fn control_and_wide_characters_do_not_move_the_carets() {
    assert!(
        report("a\t\u{1b}[31m\u{202e}b", &[place(1, 9, 1)])
            .contains("1 | a\\t\\u{1b}[31m\\u{202e}b\n  |                      ^\n")
    );
    assert!(report("中文 é x", &[place(1, 6, 1)]).contains("1 | 中文 é x\n  |        ^\n"));
    assert!(report("中文", &[place(1, 1, 2)]).contains("1 | 中文\n  | ^^^^\n"));
    assert!(report("\u{feff}ab", &[place(1, 2, 1)]).contains("1 | ab\n  |  ^\n"));
    assert!(report("a\r\nb\rc", &[place(3, 1, 1)]).contains("3 | c\n  | ^\n"));
    assert!(report("a\n", &[place(2, 1, 1)]).contains("2 | \n  | ^\n"));
}

#[test]
fn long_lines_are_cut_around_the_place() {
    let line = format!("{}X{}", "a".repeat(1_000), "b".repeat(1_000));
    let shown = report(&line, &[place(1, 1_001, 1)]);
    let expected =
        format!("1 | …{}X{}…\n  | {}^\n", "a".repeat(60), "b".repeat(98), " ".repeat(61));
    assert!(shown.contains(&expected), "{shown}");
    let whole = format!("{}X", "a".repeat(159));
    assert!(report(&whole, &[place(1, 160, 1)]).contains(&format!("1 | {whole}\n")));
    let wide = report(&"c".repeat(1_000), &[place(1, 1, 1_000)]);
    assert!(wide.contains(&format!("  | {}\n", "^".repeat(160))), "{wide}");
}

#[test]
fn only_so_many_are_kept_and_the_others_are_counted() {
    let mut problems = Problems::default();
    for line in 1..=150 {
        assert_eq!(problems.is_full(), line > 100);
        problems.error(place(line, 1, 1), "wrong").help = Some(line.to_string());
    }
    problems.warning(place(1, 1, 1), "odd");
    let report = problems.into_report(&[]);
    assert_eq!((report.errors(), report.warnings(), report.iter().count()), (150, 1, 101));
    assert!(report.to_string().ends_with("\n\nand 50 more errors\n"), "{report}");
}

#[test]
fn the_same_is_said_once() {
    let mut problems = Problems::default();
    for message in ["a", "b", "a"] {
        problems.error(place(1, 1, 1), message);
    }
    assert_eq!(problems.errors(), 2);
}

#[test]
fn quoted_text_is_short_and_printable() {
    assert_eq!(quoted("a\n\u{202e}\"'\\"), "`a\\n\\u{202e}\"'\\`");
    assert_eq!(quoted(&"é".repeat(41)), format!("`{}…`", "é".repeat(40)));
}

proptest! {
    #[test]
    fn any_place_in_any_text_can_be_shown(
        text in "([a\u{1b}中\u{301}\r\n\t]|a{100}){0,40}",
        places in prop::collection::vec((0_u32..9, 0_u32..300, 0_u32..300), 0..9),
    ) {
        let places: Vec<Place> = places.into_iter().map(|(l, c, n)| place(l, c, n)).collect();
        let shown = report(&text, &places);
        prop_assert!(shown.chars().all(|c| c == '\n' || !c.is_control()));
        // A line is cut before it is escaped, and an escape has at most ten characters.
        prop_assert!(shown.lines().all(|line| line.chars().count() < 200 * 10));
    }
}
