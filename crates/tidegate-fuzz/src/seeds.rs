//! The inputs that fuzzing begins with, and the words that it puts into them, in the files of `fuzz/`.
//!
//! `seeds/TARGET` has one input per file, and `dictionaries/TARGET.dict` the words, as libFuzzer reads
//! them. Rule text begins with the examples and the broken files of the tests as well.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The folder of the fuzzer, from the folder of this crate.
const FUZZ: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz");

/// Folders below the workspace's that hold rule text.
const RULE_FOLDERS: [&str; 2] = ["examples/rules", "crates/tidegate-cli/tests"];
const RULE_ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// Where the fuzzer, its seeds and its dictionaries are.
pub fn folder() -> PathBuf {
    PathBuf::from(FUZZ)
}

/// The seeds of a target, in the order of their paths.
pub fn of(target: &str) -> io::Result<Vec<Vec<u8>>> {
    let mut files = Vec::new();
    walk(&folder().join("seeds").join(target), &mut files)?;
    if target == "rule_text" {
        for name in RULE_FOLDERS {
            let folder = folder().join("..").join(name);
            if folder.is_dir() {
                walk(&folder, &mut files)?;
            }
        }
        files.retain(|file| {
            let ending = file.extension().and_then(|ending| ending.to_str());
            ending.is_some_and(|ending| RULE_ENDINGS.contains(&ending))
        });
    }
    files.sort();
    files.iter().map(fs::read).collect()
}

/// The words of a target.
pub fn words(target: &str) -> io::Result<Vec<Vec<u8>>> {
    let text = fs::read_to_string(folder().join(format!("dictionaries/{target}.dict")))?;
    Ok(text.lines().filter_map(word).collect())
}

/// What stands between the quotes of a line, `\\`, `\"` and `\xAB` undone.
fn word(line: &str) -> Option<Vec<u8>> {
    if line.starts_with('#') {
        return None;
    }
    let (start, end) = (line.find('"')? + 1, line.rfind('"')?);
    let mut rest = line.get(start..end)?.as_bytes();
    let mut word = Vec::new();
    while let Some((&byte, after)) = rest.split_first() {
        let hex = || u8::from_str_radix(std::str::from_utf8(after.get(1..3)?).ok()?, 16).ok();
        (rest, ()) = match (byte, after.first()) {
            (b'\\', Some(b'x')) => (&after[3..], word.push(hex()?)),
            (b'\\', Some(&escaped)) => (&after[1..], word.push(escaped)),
            _ => (after, word.push(byte)),
        };
    }
    Some(word)
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { walk(&path, files)? } else { files.push(path) }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_the_fuzzer_reads_them() {
        assert_eq!(word(r#"name="a\"b\\c\x0a""#).as_deref(), Some(&b"a\"b\\c\n"[..]));
        assert_eq!(word(r#""plain""#).as_deref(), Some(&b"plain"[..]));
        assert_eq!(word("# \"a comment\""), None);
        assert_eq!(word(""), None);
    }
}
