//! No text of ours knows the machine it was written on: no folders of a developer, no hosts of a
//! package registry.
//!
//! What is looked for is put together from parts, so that this file does not find itself.

use super::finding::Finding;
use super::tree::{File, Tree};

/// Top folders under which developers keep their work.
const FOLDERS: [&str; 4] = ["work", "home", "root", "Users"];

/// Domains of package registries. A package is named; where it comes from is the machine's setting.
const REGISTRIES: [[&str; 2]; 5] = [
    ["crates", "io"],
    ["pypi", "org"],
    ["pythonhosted", "org"],
    ["npmjs", "org"],
    ["debian", "org"],
];

/// The one source that a locked crate may have. Cargo writes it, wherever it fetched from.
const LOCKED_SOURCE: &str = "source = \"registry+https://github.com/rust-lang/";

pub(super) fn check(tree: &Tree<'_>) -> Vec<Finding> {
    tree.files.iter().flat_map(in_file).collect()
}

fn in_file(file: &File) -> Vec<Finding> {
    let mut found = Vec::new();
    for (number, line) in file.lines() {
        if let Some(folder) = developer_folder(line) {
            let what = format!("`{folder}` is a folder of one machine");
            let remedy = "write the path from the root of the project";
            found.push(Finding::fault(&file.path, number, what, remedy));
        }
        if let Some(host) = registry_host(&file.path, line) {
            let what = format!("`{host}` is the host of a package registry");
            let remedy = "name the package; where it comes from is the machine's own setting";
            found.push(Finding::fault(&file.path, number, what, remedy));
        }
    }
    found
}

/// A folder counts where a path begins, not inside an address or a longer path.
fn developer_folder(line: &str) -> Option<String> {
    let folders = FOLDERS.into_iter().map(|name| format!("/{name}/"));
    folders.into_iter().find(|folder| {
        line.match_indices(folder).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            before.is_none_or(|before| !before.is_alphanumeric() && !"._-~}/*".contains(before))
        })
    })
}

fn registry_host(path: &str, line: &str) -> Option<String> {
    if path.ends_with("Cargo.lock") {
        let foreign = line.starts_with("source = ") && !line.starts_with(LOCKED_SOURCE);
        return foreign.then(|| line.trim_start_matches("source = ").to_owned());
    }
    REGISTRIES.into_iter().map(|labels| labels.join(".")).find(|host| {
        line.match_indices(host).any(|(at, _)| {
            let after = line[at + host.len()..].chars().next();
            after.is_none_or(|after| !after.is_alphanumeric() && after != '-')
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(path: &str, text: &str) -> usize {
        check(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn a_path_of_a_developers_machine_is_a_fault() {
        for folder in FOLDERS {
            assert_eq!(faults("a.md", &format!("see `/{folder}/me/x`")), 1, "{folder}");
            assert_eq!(faults("a.sh", &format!("/{folder}/me/x")), 1, "{folder}");
            assert_eq!(faults("a.md", &format!("https://example.com/{folder}/x")), 0, "{folder}");
            assert_eq!(faults("a.md", &format!("docs/{folder}/x and /{folder}s/x")), 0, "{folder}");
        }
    }

    #[test]
    fn the_host_of_a_registry_is_a_fault() {
        for labels in REGISTRIES {
            let host = labels.join(".");
            assert_eq!(faults("a.toml", &format!("index = \"https://x.{host}/y\"")), 1, "{host}");
            assert_eq!(faults("a.md", &format!("{host}n")), 0, "{host}");
        }
    }

    #[test]
    fn the_lock_file_names_no_other_source() {
        let usual = format!("{LOCKED_SOURCE}index\"");
        assert_eq!(faults("Cargo.lock", &usual), 0);
        assert_eq!(faults("Cargo.lock", "source = \"registry+https://mirror.example/\""), 1);
    }
}
