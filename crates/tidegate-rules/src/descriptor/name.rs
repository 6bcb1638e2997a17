//! The name of a rule of Envoy's: the path of its levels, as `database=users` or `a=b / c`.

use std::fmt::Write as _;

use crate::rule::DescriptorValue;

/// Appends a level to the name of the levels above it.
///
/// Two different paths never get the same name: a `\` stands before every character of a key or a
/// value that could be taken for one of the name's own, which are the first `=` of a level and a `/`
/// behind a space.
pub(crate) fn push_level(name: &mut String, key: &str, value: &DescriptorValue) {
    if !name.is_empty() {
        name.push_str(" / ");
    }
    // The first character of a level stands behind a space, save in the first level, where treating
    // it alike does no harm.
    let mut before = ' ';
    push_escaped(name, key, &mut before, true);
    let value = match value {
        DescriptorValue::Any => return,
        DescriptorValue::Exact(value) => value,
        DescriptorValue::Glob(glob) => glob.as_str(),
    };
    name.push('=');
    before = '=';
    push_escaped(name, value, &mut before, false);
}

fn push_escaped(name: &mut String, text: &str, before: &mut char, is_key: bool) {
    for c in text.chars() {
        match c {
            '\\' => name.push_str("\\\\"),
            '=' if is_key => name.push_str("\\="),
            '/' if *before == ' ' => name.push_str("\\/"),
            c if c.is_control() => {
                // Writing to a text cannot fail.
                let _ = write!(name, "\\u{{{:x}}}", u32::from(c));
            }
            c => name.push(c),
        }
        *before = c;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::glob::Glob;
    use proptest::prelude::*;

    fn value(text: &str) -> DescriptorValue {
        match text {
            "" => DescriptorValue::Any,
            text if text.contains('*') => DescriptorValue::Glob(Glob::new(text)),
            text => DescriptorValue::Exact(text.to_owned()),
        }
    }

    fn name(path: &[(&str, &str)]) -> String {
        let mut name = String::new();
        for (key, text) in path {
            push_level(&mut name, key, &value(text));
        }
        name
    }

    #[test]
    fn a_path_reads_as_it_is_written_where_nothing_can_be_confused() {
        assert_eq!(name(&[("database", "users")]), "database=users");
        assert_eq!(name(&[("a", "b"), ("c", "")]), "a=b / c");
        assert_eq!(name(&[("path", "/api/*"), ("q", "x=y / z/")]), r"path=/api/* / q=x=y \/ z/");
    }

    #[test]
    fn what_could_be_confused_is_escaped() {
        assert_eq!(name(&[("a=b", "c")]), r"a\=b=c");
        assert_eq!(name(&[("/", "\n")]), r"\/=\u{a}");
        assert_ne!(name(&[("a /", ""), ("b", "")]), name(&[("a", ""), ("/ b", "")]));
    }

    proptest! {
        #[test]
        fn two_paths_have_one_name_only_if_they_are_the_same_path(
            one in prop::collection::vec(("[a/=\\\\ \n]{1,3}", "[a/=\\\\ *]{0,3}"), 1..3),
            other in prop::collection::vec(("[a/=\\\\ \n]{1,3}", "[a/=\\\\ *]{0,3}"), 1..3),
        ) {
            let of = |path: &[(String, String)]| {
                name(&path.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect::<Vec<_>>())
            };
            prop_assert_eq!(of(&one) == of(&other), one == other);
        }
    }
}
