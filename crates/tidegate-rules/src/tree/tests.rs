//! Texts and their trees, and everything that text can do to its reader.

use proptest::prelude::*;

use super::*;

/// The trees of a text in one line, and the messages about it with their places.
fn read(text: impl AsRef<[u8]>) -> (String, Vec<String>) {
    let source = Source::new("rules.yaml", text.as_ref());
    let mut problems = Problems::default();
    let documents = documents(&source, 0, &mut problems);
    let trees: Vec<String> = documents.iter().map(tree).collect();
    let report = problems.into_report(&[source]);
    let message = |(_, diagnostic): (&str, &crate::Diagnostic)| {
        let Place { line, column, length, .. } = diagnostic.place;
        assert!(diagnostic.help.is_some(), "{}", diagnostic.message);
        format!("{line}:{column}+{length} {}", diagnostic.message)
    };
    (trees.join(" "), report.iter().map(message).collect())
}

fn tree(node: &Node) -> String {
    match &node.value {
        Value::Null => "~".to_owned(),
        Value::Scalar(Scalar { text, plain: true }) => text.clone(),
        Value::Scalar(Scalar { text, plain: false }) => format!("{text:?}"),
        Value::List(items) => {
            format!("[{}]", items.iter().map(tree).collect::<Vec<_>>().join(", "))
        }
        Value::Map(entries) => {
            let entry = |(key, node): &(Key, Node)| format!("{}: {}", key.text, tree(node));
            format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
    }
}

fn tree_of(text: impl AsRef<[u8]>) -> String {
    let (tree, messages) = read(text);
    assert_eq!(messages, [""; 0]);
    tree
}

/// The only message about a text.
fn message_of(text: impl AsRef<[u8]>) -> String {
    let (_, messages) = read(text);
    assert_eq!(messages.len(), 1, "{messages:?}");
    messages.concat()
}

/// What the first message about a text says to do.
fn help_of(text: &str) -> String {
    let mut problems = Problems::default();
    documents(&Source::new("x", text), 0, &mut problems);
    let report = problems.into_report(&[]);
    let help = report.iter().next().and_then(|(_, diagnostic)| diagnostic.help.clone());
    help.unwrap_or_default()
}

#[test]
fn scalars_keep_their_text_and_whether_they_had_quotes() {
    assert_eq!(
        tree_of("a: 010\nb: 1e3\nc: yes\nd: 'on'\ne: \"10\"\nf: ~\ng:\nh: null\ni: 'null'\nj: a b"),
        "{a: 010, b: 1e3, c: yes, d: \"on\", e: \"10\", f: ~, g: ~, h: ~, i: \"null\", j: a b}"
    );
    assert_eq!(tree_of("- |\n  a\n  b\n- >\n  a\n  b\n"), r#"["a\nb\n", "a b\n"]"#);
    assert_eq!(
        tree_of("- !!str 10\n- !!int 10\n- !!null x\n- !!seq []\n- !!map {}"),
        "[\"10\", 10, ~, [], {}]"
    );
}

#[test]
fn json_is_read_like_yaml() {
    assert_eq!(
        tree_of(
            r#"{"a":1,"b":["x\/y\u0041\n",null,true,{"\ud83d\ude00":"\\ud83d\ude00x"}]}"#
                .replace(r"\ude00x", "x")
        ),
        "{a: 1, b: [\"x/yA\\n\", ~, true, {\u{1f600}: \"\\\\ud83dx\"}]}"
    );
    assert_eq!(tree_of("{\n\t\"a\": [\n\t\t1,\n\t\t2\n\t]\n}\n"), "{a: [1, 2]}");
}

#[test]
fn several_documents_a_mark_at_the_beginning_and_any_line_ends_are_read() {
    assert_eq!(tree_of("---\na: 1\n---\n---\n- b\n...\n"), "{a: 1} [b]");
    assert_eq!(tree_of("\u{feff}a: 1\r\nb: 2\rc: 3\n"), "{a: 1, b: 2, c: 3}");
    assert_eq!(tree_of("%YAML 1.2\n---\na: 1\n"), "{a: 1}");
}

#[test]
fn places_are_lines_and_columns_in_characters() {
    let source = Source::new("x", "é: {b: ['ü', x]}\nc:\n  - name: d\n    e: f\n");
    let document = documents(&source, 3, &mut Problems::default()).remove(0);
    let at = |place: Place| (place.source, place.line, place.column, place.length);
    let Value::Map(entries) = &document.value else { panic!("{document:?}") };
    assert_eq!(at(document.place), (3, 1, 1, 1));
    let (key, flow) = &entries[0];
    assert_eq!((at(key.place), at(flow.place)), ((3, 1, 1, 1), (3, 1, 4, 1)));
    let Value::Map(inner) = &flow.value else { panic!("{flow:?}") };
    let Value::List(items) = &inner[0].1.value else { panic!("{inner:?}") };
    assert_eq!((at(items[0].place), at(items[1].place)), ((3, 1, 9, 3), (3, 1, 14, 1)));
    let Value::List(items) = &entries[1].1.value else { panic!("{entries:?}") };
    assert_eq!(at(items[0].place), (3, 3, 5, 4), "a mapping is shown by its first key");
}

#[test]
fn aliases_stand_for_a_copy_and_merge_keys_add_what_is_not_there() {
    assert_eq!(
        tree_of("a: &x [1]\nb: *x\nc: &y {d: *x}\ne: *y"),
        "{a: [1], b: [1], c: {d: [1]}, e: {d: [1]}}"
    );
    assert_eq!(
        tree_of(
            "- &a {x: 1, y: 2}\n- &b {y: 3, z: 4}\n- {<<: *a, x: 5}\n- {w: 0, <<: [*b, *a]}\n- {'<<': 1}"
        ),
        "[{x: 1, y: 2}, {y: 3, z: 4}, {x: 5, y: 2}, {w: 0, y: 3, z: 4, x: 1}, {<<: 1}]"
    );
    assert_eq!(message_of("a: {<<: 1}"), "1:9+1 `<<` must be a mapping or a list of mappings");
    assert_eq!(
        message_of("a: &a [*a]"),
        "1:8+2 this alias is inside of what it stands for, or in another document"
    );
    assert_eq!(
        message_of("a: &a b\n---\nc: *a"),
        "3:4+2 this alias is inside of what it stands for, or in another document"
    );
    assert_eq!(message_of("a: *b"), "1:4+1 this alias has no anchor");
}

#[test]
fn keys_that_are_repeated_or_no_text_are_refused_and_the_rest_is_read() {
    assert_eq!(
        read("a: 1\nb: 2\na: 3\na: 4\n"),
        (
            "{a: 1, b: 2}".to_owned(),
            vec![
                "3:1+1 `a` is written twice in this mapping".to_owned(),
                "4:1+1 `a` is written twice in this mapping".to_owned()
            ]
        )
    );
    assert_eq!(
        read("{[a]: {b: 1}, c: 2, {d: e}: f, : g}"),
        (
            "{c: 2}".to_owned(),
            vec![
                "1:2+1 a key must be text, not a list".to_owned(),
                "1:21+1 a key must be text, not a mapping".to_owned(),
                "1:32+1 a key must be text, not nothing".to_owned()
            ]
        )
    );
}

#[test]
fn unknown_tags_are_refused() {
    assert_eq!(message_of("a: !secret b"), "1:4+9 unknown tag `!secret`");
    assert_eq!(message_of("a: !!binary b"), "1:4+10 unknown tag `!!binary`");
    assert_eq!(message_of("a: !!str [b]"), "1:4+7 unknown tag `!!str`");
    assert_eq!(message_of("!!set {a: b}"), "1:1+7 unknown tag `!!set`");
}

#[test]
fn bytes_that_are_no_text_are_refused_at_their_place() {
    assert_eq!(message_of(b"a: b\nc: \xc3\xa9\xe9\n"), "2:5+1 the byte 0xe9 is not UTF-8");
    assert_eq!(message_of(b"\xff\xfea\0"), "1:1+1 the byte 0xff is not UTF-8");
    assert_eq!(message_of("\u{feff}a\r\nb\0"), "2:2+1 the control character `\\0` is not allowed");
    assert_eq!(message_of("a: \x1b[0m"), "1:4+1 the control character `\\u{1b}` is not allowed");
}

#[test]
fn a_text_without_anything_says_what_to_write() {
    for text in ["", "\n \n", "# nothing\n", "---\n---\n...\n", "\u{feff}", "~"] {
        assert_eq!(message_of(text), "0:0+0 there are no rules in it", "{text:?}");
    }
}

#[test]
fn broken_yaml_is_explained_where_it_is_broken() {
    for (text, message) in [
        ("a:\n\tb: c", "2:1+1 a tab cannot indent YAML"),
        ("a: \"\\d\"", "1:4+1 in double quotes a backslash begins an escape, and this is none"),
        ("a: \"\\ud83d\"", "1:4+1 this escape is no character"),
        ("a: \"\\u00\"", "1:4+1 this escape has too few digits"),
        ("a: \"b\"c", "1:7+1 something stands behind the closing quote"),
        ("a: 'b", "1:4+1 the quotes are not closed"),
        ("a: [b\nc: d\n", "1:4+1 this `[` is not closed"),
        ("a: b]\nc: ]\n", "2:4+1 this closes nothing"),
        ("a: @b", "1:4+1 text cannot begin with this character"),
        ("a: b: c", "1:5+1 a second `:` makes no sense here"),
        (
            "a:\n  - b: 1\n    c:2\n    d: 3\n",
            "3:5+3 this is neither `key: value` nor indented like its neighbours",
        ),
        ("a:\n  - b: 1\n  c: 2\n", "3:3+1 this line is not indented like what is before it"),
        ("a: b\nc\n\n# d\n", "2:1+1 this is neither `key: value` nor indented like its neighbours"),
    ] {
        assert_eq!(message_of(text), message, "{text:?}");
    }
}

#[test]
fn a_value_with_braces_is_told_to_have_quotes() {
    for (text, value) in [
        ("a: { path: /orders/{id} }", "/orders/{id}"),
        ("a: {path: /orders/{id}}", "/orders/{id}"),
        ("a: { b: c, path: /a/{b}/c/{d}/e }\ne: f", "/a/{b}/c/{d}/e"),
        ("a: [/x/{id}, b]", "/x/{id}"),
    ] {
        let help = format!("put quotes around a value with braces in it: \"{value}\"");
        assert_eq!(help_of(text), help, "{text:?}");
    }
    for text in ["a: { b: {c: d}", "a: [ {b: c} {d: e} ]", "a: { b: '/x/{id}' c }"] {
        assert!(!help_of(text).contains("quotes around a value"), "{text:?}");
    }
}

#[test]
fn a_last_line_without_a_line_break_is_the_last_line() {
    for (text, place) in [("a: b\nc: [d", "2:1"), ("a: [\n b", "1:4"), ("a: b\n.", "2:1")] {
        let message = message_of(text);
        assert!(message.starts_with(place), "{text:?}: {message}");
    }
}

#[test]
fn a_broken_document_does_not_hide_the_next_one() {
    assert_eq!(
        read("a: 1\n---\nb: [\n---\nc: 3\nc: 4\n---\nd: 'x\n--- # again\ne: 5\n"),
        (
            "{a: 1} {c: 3} {e: 5}".to_owned(),
            vec![
                "3:4+1 this `[` is not closed".to_owned(),
                "6:1+1 `c` is written twice in this mapping".to_owned(),
                "8:4+1 the quotes are not closed".to_owned(),
            ]
        )
    );
}

#[test]
fn depth_is_bounded_before_anything_is_built() {
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(read(deep(DEPTH_MAX)).1, [""; 0]);
    let too_deep = format!("more than {DEPTH_MAX} lists and mappings are inside each other");
    for text in [
        deep(DEPTH_MAX + 1),
        "[".repeat(100_000),
        "{a: ".repeat(100_000),
        "- ".repeat(100_000),
        "? ".repeat(100_000),
        (0..1_000).flat_map(|n| [" ".repeat(n), "a:\n".to_owned()]).collect(),
        // Each is one deeper than the one before.
        (1..100).fold("a0: &a0 []\n".to_owned(), |text, n| {
            format!("{text}a{n}: &a{n} [*a{}]\n", n - 1)
        }),
    ] {
        assert!(message_of(&text).ends_with(&too_deep), "{}", message_of(&text));
    }
}

#[test]
fn anchors_cannot_explode() {
    let bomb = (1..30).fold("a0: &a0 [x, x]\n".to_owned(), |text, n| {
        format!("{text}a{n}: &a{n} [*a{0}, *a{0}]\n", n - 1)
    });
    assert!(message_of(bomb).ends_with(builder::TOO_MUCH));
    let merges =
        format!("a: &a {{{}}}\nb: [{}]", "x: [1,1,1,1,1,1,1,1]", "{<<: *a}, ".repeat(1_000));
    assert_eq!(read(merges).1, [""; 0]);
}

#[test]
fn size_and_number_are_bounded() {
    let long = vec![b'a'; SOURCE_BYTES_MAX + 1];
    assert_eq!(message_of(&long), "0:0+0 33554433 bytes are too many: at most 33554432");
    assert!(message_of(format!("[{}]", "1,".repeat(NODES_MAX))).ends_with(builder::TOO_MUCH));
    let (_, messages) = read("--- a\n".repeat(DOCUMENTS_MAX + 1));
    assert_eq!(messages, ["200001:5+1 a file may have at most 200000 documents"]);
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        read(&bytes);
    }

    #[test]
    fn no_yaml_marks_make_the_reader_panic(
        text in r#"([-?:,\[\]{}#&*!|>'"%@ \t\r\na1~]|--- |\.\.\.|<<: |: |- |\\u|&a |\*a|\n  ){0,60}"#
    ) {
        read(&text);
    }
}
