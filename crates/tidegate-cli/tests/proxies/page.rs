//! The pages below `docs/proxies`, and the configurations in them.
//!
//! A block of code that follows the line `<!-- tested: NAME -->` is what the tests run, as the page
//! shows it. What they replace in it is in [`Places`], and `docs/proxies/README.md` says so.

use std::path::{Path, PathBuf};

const FENCE: &str = "```";

/// What takes the place of the numbers and paths of the pages.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// A port of the pages, and the one it becomes.
    pub(crate) ports: Vec<(u16, u16)>,
    /// Takes the place of `/etc/tidegate`.
    pub(crate) folder: PathBuf,
    /// Takes the place of the time that a proxy waits, where a test is about something else:
    /// on a busy machine an answer may take longer, and then the proxy lets requests through.
    pub(crate) is_patient: bool,
}

/// How long the proxies of the pages wait for an answer, in each spelling, and what patient tests make of it.
const WAITS: [(&str, &str); 2] = [("50ms", "15s"), ("0.05s", "15s")];

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/proxies")
}

/// The block of this name on a page, word for word.
pub(crate) fn block(page: &str, name: &str) -> String {
    let file = folder().join(page);
    let text = std::fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut found = blocks(&text).into_iter().filter(|(found, _)| found == name);
    let (_, block) = found.next().unwrap_or_else(|| panic!("{page} has no block {name}"));
    assert!(found.next().is_none(), "{page} has two blocks {name}");
    block
}

/// Every marked block with its name.
pub(crate) fn blocks(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("<!-- tested: ") else { continue };
        let name = name.strip_suffix(" -->").expect("the mark ends on its line");
        let fence = lines.next().expect("a block below the mark");
        assert!(fence.starts_with(FENCE), "no block below the mark of {name}: {fence}");
        let block = lines.by_ref().take_while(|line| *line != FENCE);
        found.push((name.to_owned(), block.flat_map(|line| [line, "\n"]).collect()));
    }
    found
}

impl Places {
    /// The port that takes the place of one of the pages.
    pub(crate) fn port(&self, written: u16) -> u16 {
        let found = self.ports.iter().find(|(port, _)| *port == written);
        found.expect("a port of the pages").1
    }

    /// The text with these places in it.
    pub(crate) fn put_into(&self, text: &str) -> String {
        let mut words = String::with_capacity(text.len());
        // Numbers are replaced as whole words: 8080 in `127.0.0.1:8080`, but not in 18080.
        let mut rest = text;
        while let Some(start) = rest.find(|c: char| c.is_ascii_alphanumeric()) {
            let end = rest[start..].find(|c: char| !c.is_ascii_alphanumeric());
            let end = end.map_or(rest.len(), |end| start + end);
            let word = &rest[start..end];
            let port = self.ports.iter().find(|(written, _)| word == written.to_string());
            words += &rest[..start];
            words += &port.map_or(word.to_owned(), |(_, port)| port.to_string());
            rest = &rest[end..];
        }
        words += rest;
        let mut adapted = words.replace("/etc/tidegate", &self.folder.display().to_string());
        if self.is_patient {
            for (written, patient) in WAITS {
                adapted = adapted.replace(written, patient);
            }
        }
        adapted
    }
}

#[test]
fn only_whole_numbers_and_the_folder_are_replaced() {
    let ports = vec![(8080, 20_001)];
    let mut places = Places { ports, folder: "/tmp/x".into(), is_patient: false };
    let text = "127.0.0.1:8080 18080 a8080 port_value: 8080, /etc/tidegate/a 50ms";
    assert_eq!(
        places.put_into(text),
        "127.0.0.1:20001 18080 a8080 port_value: 20001, /tmp/x/a 50ms"
    );
    places.is_patient = true;
    assert!(places.put_into(text).ends_with(" 15s"));
}

#[test]
fn a_marked_block_is_read_and_an_unmarked_one_is_not() {
    let text = "a\n<!-- tested: b.conf -->\n```nginx\nc;\n\nd;\n```\n```yaml\ne\n```\n";
    assert_eq!(blocks(text), [("b.conf".to_owned(), "c;\n\nd;\n".to_owned())]);
}
