//! Which names in a folder are those of rule files. Only the name decides; what the file holds is read
//! later.

use std::ffi::OsStr;
use std::path::Path;

/// What the name of a rule file ends in, in capitals or not.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// Whether a file of this name, in a folder of rules, is read: it ends in `.yaml`, `.yml` or `.json`
/// and begins neither with a dot, as hidden files do, nor with `#` or `~`.
///
/// What editors leave beside a file (`rules.yaml~`, `.rules.yaml.swp`, `#rules.yaml#`,
/// `rules.yaml.tmp`, `4913`) fails one or the other.
pub fn is_rule_file(name: &OsStr) -> bool {
    let extension = Path::new(name).extension();
    let ends_right = extension.is_some_and(|extension| {
        EXTENSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known))
    });
    ends_right && !is_out_of_sight(name)
}

/// Whether a file or folder of this name is passed over unseen: hidden (`.git`, `..data`), or begun as
/// editors and office programs begin theirs (`#rules.yaml#`, `~$rules.json`).
pub(crate) fn is_out_of_sight(name: &OsStr) -> bool {
    matches!(name.as_encoded_bytes().first(), None | Some(b'.' | b'#' | b'~'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rule_files_are_told_by_their_names() {
        let counted =
            ["a.yaml", "a.yml", "a.json", "A.YAML", "a b.Yml", "a.b.json", "é.yaml", "4913.yml"];
        for name in counted {
            assert!(is_rule_file(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn hidden_files_and_those_of_editors_do_not_count() {
        let hidden = ["", ".", "..", ".yaml", ".a.yaml", "..data", "..2026_11_15.json", ".#a.yaml"];
        let of_editors = [
            "a.yaml~",
            "~a.yaml",
            "~$a.json",
            ".a.yaml.swp",
            ".a.yaml.swx",
            "a.yaml.swp",
            "a.yaml.tmp",
            "#a.yaml#",
            "#a.yaml",
            "4913",
            "a.yaml.bak",
            "a.yaml.orig",
            "a.yaml___jb_tmp___",
            ".goutputstream-X1.yaml",
            "sedXyz",
        ];
        let others =
            ["yaml", "a", "a.", "a.yaml.", "a.yamlx", "a.toml", "a.jsonc", "a_yaml", "README.md"];
        for name in hidden.iter().chain(&of_editors).chain(&others) {
            assert!(!is_rule_file(OsStr::new(name)), "{name}");
        }
    }

    /// The same, said letter by letter.
    fn counts_by_hand(name: &str) -> bool {
        let lower = name.to_ascii_lowercase();
        let stem = [".yaml", ".yml", ".json"].iter().find_map(|end| lower.strip_suffix(end));
        stem.is_some_and(|stem| !stem.is_empty())
            && !name.starts_with('.')
            && !name.starts_with('#')
            && !name.starts_with('~')
    }

    proptest! {
        #[test]
        fn any_name_counts_as_the_plain_words_of_the_rule_say(
            name in "[.#~a]{0,2}[a-zé .~#$]{0,4}(\\.yaml|\\.yml|\\.json|\\.YaML|yaml|\\.swp|)[~#.]?",
        ) {
            prop_assert_eq!(is_rule_file(OsStr::new(&name)), counts_by_hand(&name), "{}", name);
        }
    }
}
