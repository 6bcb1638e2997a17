//! What is read from a real file system, in which order, and what is refused.
#![cfg(unix)]

mod scene;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use scene::Scene;
use tidegate_files::{
    DEPTH_MAX, ENTRIES_MAX, FILE_BYTES_MAX, FILES_MAX, Reason, TOTAL_BYTES_MAX, read, read_each,
};

/// The names of what was read.
#[track_caller]
fn names_read(scene: &Scene, paths: &[&str]) -> Vec<String> {
    let sources = scene.read(paths).expect("readable rules");
    scene.texts(&sources).into_iter().map(|(name, _)| name).collect()
}

#[track_caller]
fn reasons(scene: &Scene, paths: &[&str]) -> Vec<(String, Reason)> {
    scene.reasons(&scene.read(paths).expect_err("a refusal"))
}

#[test]
fn files_come_in_the_order_of_the_paths_and_in_a_folder_by_name() {
    let scene = Scene::new("order");
    scene.folder("rules");
    for name in ["rules/b.yml", "rules/a.yaml", "rules/c.json", "z.yaml", "rules/notes.md"] {
        scene.write(name, name);
    }
    let sources = scene.read(&["z.yaml", "rules"]).expect("readable rules");
    let names = ["z.yaml", "rules/a.yaml", "rules/b.yml", "rules/c.json"];
    assert_eq!(scene.texts(&sources), names.map(|name| (name.to_owned(), name.to_owned())));
}

#[test]
fn a_file_that_was_named_is_read_whatever_its_name_and_bytes() {
    let scene = Scene::new("named");
    fs::write(scene.path(".hidden~"), [0xff, 0, b'\n']).expect("a file");
    scene.write("empty.yaml", "");
    let sources = scene.read(&[".hidden~", "empty.yaml"]).expect("readable rules");
    assert_eq!(sources[0].bytes, [0xff, 0, b'\n']);
    assert_eq!(sources[1].bytes, b"");
}

#[test]
fn what_can_be_read_is_to_be_had_beside_what_cannot() {
    let scene = Scene::new("each");
    scene.write("a.yaml", "one");
    scene.write("c.yaml", "three");
    let paths = ["a.yaml", "b.yaml", "c.yaml"].map(|name| scene.path(name));
    let (sources, error) = read_each(&paths);
    let texts = [("a.yaml", "one"), ("c.yaml", "three")];
    assert_eq!(scene.texts(&sources), texts.map(|(name, text)| (name.into(), text.into())));
    let reasons = scene.reasons(&error.expect("a problem"));
    assert_eq!(reasons, [("b.yaml".to_owned(), Reason::Missing)]);
    assert_eq!(read_each(&paths[..1]).1, None);
}

#[test]
fn no_paths_are_no_rules_and_no_error() {
    assert_eq!(read(&[]), Ok(Vec::new()));
}

#[test]
fn folders_inside_are_read_except_hidden_ones() {
    let scene = Scene::new("nested");
    for folder in ["teams/pay", ".git", "..2026", "empty"] {
        scene.folder(folder);
    }
    for name in ["teams/pay/a.yaml", "teams/b.yaml", "a.yaml", ".git/c.yaml", "..2026/d.yaml"] {
        scene.write(name, "");
    }
    assert_eq!(names_read(&scene, &[""]), ["a.yaml", "teams/b.yaml", "teams/pay/a.yaml"]);
}

#[test]
fn a_mounted_config_map_is_read_once() {
    let scene = Scene::new("config-map");
    scene.folder("..2026_11_15/team");
    scene.write("..2026_11_15/rules.yaml", "one");
    scene.write("..2026_11_15/team/more.yaml", "two");
    scene.link("..2026_11_15", "..data");
    scene.link("..data/rules.yaml", "rules.yaml");
    scene.link("..data/team", "team");
    assert_eq!(names_read(&scene, &[""]), ["rules.yaml", "team/more.yaml"]);
}

#[test]
fn a_file_reached_twice_is_read_once() {
    let scene = Scene::new("twice");
    scene.folder("rules");
    scene.write("rules/a.yaml", "");
    scene.link("a.yaml", "rules/b.yaml");
    scene.link("../rules", "rules/again");
    scene.link("rules", "other");
    let paths = ["rules/a.yaml", "rules", "rules", "other", "other/b.yaml"];
    assert_eq!(names_read(&scene, &["rules"]), ["rules/a.yaml"]);
    assert_eq!(names_read(&scene, &paths[1..]), ["rules/a.yaml"]);
}

#[test]
fn every_problem_is_told_and_not_only_the_first() {
    let scene = Scene::new("all-problems");
    scene.folder("rules/folder.yaml");
    scene.folder("empty");
    scene.folder("named.json");
    scene.write("rules/good.yaml", "");
    scene.write("empty/notes.md", "");
    scene.link("nowhere", "rules/dead.yaml");
    let found = reasons(&scene, &["missing.yaml", "rules", "empty", "named.json"]);
    let dead = Reason::DeadLink { target: "nowhere".into() };
    let expected = [
        ("missing.yaml", Reason::Missing),
        ("rules/dead.yaml", dead),
        ("rules/folder.yaml", Reason::FolderNamedAsFile),
        ("empty", Reason::NoRuleFiles),
        ("named.json", Reason::FolderNamedAsFile),
    ];
    assert_eq!(found, expected.map(|(path, reason)| (path.to_owned(), reason)));
}

#[test]
fn a_message_has_the_path_the_reason_and_what_to_do() {
    let scene = Scene::new("message");
    scene.folder("empty");
    let error = scene.read(&["a.yaml", "empty"]).expect_err("a refusal").to_string();
    let lines: Vec<_> = error.lines().map(|line| scene.plain(Path::new(line))).collect();
    let expected = [
        "a.yaml: does not exist: create it, or correct the path",
        "empty: holds no rule files: put files in it that end in .yaml, .yml or .json and are not hidden",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn a_path_through_a_file_and_a_link_in_a_circle_are_refused() {
    let scene = Scene::new("circle");
    scene.write("a.yaml", "");
    scene.link("b.yaml", "c.yaml");
    scene.link("c.yaml", "b.yaml");
    for path in ["a.yaml/b.yaml", "b.yaml"] {
        let found = reasons(&scene, &[path]);
        assert!(matches!(&found[..], [(_, Reason::System { .. })]), "{found:?}");
    }
}

#[test]
fn what_is_not_a_file_is_refused_and_never_waited_for() {
    let scene = Scene::new("kinds");
    scene.folder("rules");
    let pipe = Command::new("mkfifo").arg(scene.path("rules/pipe.yaml")).status();
    assert!(pipe.expect("mkfifo").success());
    let _socket = UnixListener::bind(scene.path("rules/socket.yaml")).expect("a socket");
    scene.link("/dev/zero", "rules/device.yaml");
    let found = reasons(&scene, &["rules", "rules/pipe.yaml"]);
    let kinds = [
        ("rules/device.yaml", "a device"),
        ("rules/pipe.yaml", "a pipe"),
        ("rules/socket.yaml", "a socket"),
        ("rules/pipe.yaml", "a pipe"),
    ];
    let expected = kinds.map(|(path, found)| (path.to_owned(), Reason::NotAFile { found }));
    assert_eq!(found, expected);
}

#[test]
fn a_file_may_be_as_long_as_the_bound_and_no_longer() {
    let scene = Scene::new("long");
    let file = File::create(scene.path("a.yaml")).expect("a file");
    file.set_len(FILE_BYTES_MAX).expect("a long file");
    let sources = scene.read(&["a.yaml"]).expect("readable rules");
    assert_eq!(sources[0].bytes.len() as u64, FILE_BYTES_MAX);
    file.set_len(FILE_BYTES_MAX + 1).expect("a long file");
    assert_eq!(reasons(&scene, &["a.yaml"]), [("a.yaml".to_owned(), Reason::FileTooLarge)]);
}

#[test]
fn all_files_together_are_bounded_too() {
    let scene = Scene::new("total");
    let full = TOTAL_BYTES_MAX / FILE_BYTES_MAX;
    for index in 0..full {
        let file = File::create(scene.path(&format!("{index}.yaml"))).expect("a file");
        file.set_len(FILE_BYTES_MAX).expect("a long file");
    }
    scene.write("x.yaml", "");
    assert_eq!(names_read(&scene, &[""]).len() as u64, full + 1);
    scene.write("y.yaml", "1");
    scene.write("z.yaml", "1");
    assert_eq!(reasons(&scene, &[""]), [("y.yaml".to_owned(), Reason::TotalTooLarge)]);
}

#[test]
fn the_number_of_files_is_bounded() {
    let scene = Scene::new("many");
    for index in 0..FILES_MAX {
        scene.write(&format!("{index:05}.yaml"), "");
    }
    assert_eq!(names_read(&scene, &[""]).len(), FILES_MAX);
    scene.write("x.yaml", "");
    assert_eq!(reasons(&scene, &[""]), [("x.yaml".to_owned(), Reason::TooManyFiles)]);
}

#[test]
fn the_number_of_other_files_looked_at_is_bounded() {
    let scene = Scene::new("entries");
    scene.folder("rules");
    scene.write("rules/a.yaml", "");
    // Names of one file are as many entries as files would be.
    for index in 1..ENTRIES_MAX {
        let name = scene.path(&format!("rules/{index}"));
        fs::hard_link(scene.path("rules/a.yaml"), name).expect("another name");
    }
    assert_eq!(names_read(&scene, &["rules"]), ["rules/a.yaml"]);
    scene.write("rules/one-more", "");
    assert_eq!(reasons(&scene, &["rules"]), [("rules".to_owned(), Reason::TooManyEntries)]);
}

#[test]
fn folders_are_entered_to_a_bounded_depth() {
    let scene = Scene::new("deep");
    let deepest = ["d"; DEPTH_MAX].join("/");
    scene.folder(&deepest);
    scene.write(&format!("{deepest}/a.yaml"), "");
    assert_eq!(names_read(&scene, &[""]), [format!("{deepest}/a.yaml")]);
    let too_deep = format!("{deepest}/d");
    scene.folder(&too_deep);
    assert_eq!(reasons(&scene, &[""]), [(too_deep, Reason::TooDeep)]);
}

#[test]
fn a_name_that_is_not_utf_8_is_read_under_a_name_that_is() {
    let scene = Scene::new("bytes");
    let path: PathBuf = scene.path("").join(OsStr::from_bytes(b"\xff.yaml"));
    fs::write(path, "one").expect("a file");
    let sources = scene.read(&[""]).expect("readable rules");
    assert_eq!(scene.texts(&sources), [("\u{fffd}.yaml".to_owned(), "one".to_owned())]);
}
