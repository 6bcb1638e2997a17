//! What is told of changes to a real file system. Each case runs twice: with the system's events alone,
//! and by comparison alone.
//!
//! No test waits for nothing to happen. A poke is always answered, so whatever was told without need stands
//! before that answer.
#![cfg(unix)]

mod scene;

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use scene::{PATIENCE, Scene, both_ways};
use tidegate_files::{Change, Reason, WatchError, WatchOptions, Watcher};

#[test]
fn a_file_renamed_over_is_told_once() {
    for options in both_ways() {
        let scene = Scene::new("renamed");
        scene.write("rules.yaml", "one");
        let watched = scene.watch(&["rules.yaml"], &options);
        for text in ["two", "three", "one"] {
            scene.swap_in("rules.yaml", text);
            watched.tells(&[("rules.yaml", text)]);
        }
        watched.ends_with(&[("rules.yaml", "one")]);
    }
}

#[test]
fn a_file_rewritten_in_place_is_told_with_at_most_one_extra_call() {
    for options in both_ways() {
        let scene = Scene::new("in-place");
        scene.write("rules.yaml", "one");
        let watched = scene.watch(&["rules.yaml"], &options);
        scene.write("rules.yaml", "two");
        watched.tells_after(1, &[("rules.yaml", "two")]);
        watched.ends_with(&[("rules.yaml", "two")]);
    }
}

#[test]
fn a_file_that_is_half_written_at_first_is_told_complete() {
    for options in both_ways() {
        let scene = Scene::new("half");
        scene.write("rules.yaml", "one");
        let watched = scene.watch(&["rules.yaml"], &options);
        let mut file = File::create(scene.path("rules.yaml")).expect("an empty file");
        watched.tells(&[("rules.yaml", "")]);
        file.write_all(b"two").expect("a complete file");
        watched.tells(&[("rules.yaml", "two")]);
        drop(file);
        watched.ends_with(&[("rules.yaml", "two")]);
    }
}

#[test]
fn a_change_that_keeps_the_length_is_told() {
    for options in both_ways() {
        let scene = Scene::new("same-length");
        scene.write("rules.yaml", "one");
        let watched = scene.watch(&["rules.yaml"], &options);
        let mut file =
            OpenOptions::new().write(true).open(scene.path("rules.yaml")).expect("a file");
        file.write_all(b"two").expect("a changed file");
        watched.tells(&[("rules.yaml", "two")]);
        watched.ends_with(&[("rules.yaml", "two")]);
    }
}

#[test]
fn a_file_deleted_and_made_again_is_told_even_if_it_is_as_before() {
    for options in both_ways() {
        let scene = Scene::new("deleted");
        scene.write("rules.yaml", "one");
        let watched = scene.watch(&["rules.yaml"], &options);
        scene.remove("rules.yaml");
        watched.fails("rules.yaml", Reason::Missing);
        scene.swap_in("rules.yaml", "one");
        watched.tells(&[("rules.yaml", "one")]);
        watched.ends_with(&[("rules.yaml", "one")]);
    }
}

#[test]
fn a_swap_of_links_as_kubernetes_does_it_is_told_once() {
    for options in both_ways() {
        for given in ["", "rules.yaml"] {
            let scene = Scene::new("kubernetes");
            scene.folder("..v1");
            scene.write("..v1/rules.yaml", "one");
            scene.link("..v1", "..data");
            scene.link("..data/rules.yaml", "rules.yaml");
            let watched = scene.watch(&[given], &options);
            for (old, new) in [("..v1", "..v2"), ("..v2", "..v3")] {
                scene.folder(new);
                scene.write(&format!("{new}/rules.yaml"), new);
                scene.link(new, "..data_tmp");
                scene.rename("..data_tmp", "..data");
                scene.remove(old);
                watched.tells(&[("rules.yaml", new)]);
            }
            watched.ends_with(&[("rules.yaml", "..v3")]);
        }
    }
}

#[test]
fn a_swap_of_a_link_above_the_folder_is_told() {
    for options in both_ways() {
        let scene = Scene::new("release");
        for version in ["v1", "v2"] {
            scene.folder(&format!("releases/{version}/config"));
            scene.write(&format!("releases/{version}/config/rules.yaml"), version);
        }
        scene.link("releases/v1", "current");
        let watched = scene.watch(&["current/config"], &options);
        scene.link("releases/v2", "next");
        scene.rename("next", "current");
        watched.tells(&[("current/config/rules.yaml", "v2")]);
        scene.swap_in("releases/v2/config/rules.yaml", "v2.1");
        watched.tells(&[("current/config/rules.yaml", "v2.1")]);
        watched.ends_with(&[("current/config/rules.yaml", "v2.1")]);
    }
}

#[test]
fn a_link_out_of_the_folder_is_watched_where_it_leads() {
    for options in both_ways() {
        let scene = Scene::new("outside");
        scene.folder("rules");
        scene.folder("elsewhere");
        scene.write("elsewhere/real", "one");
        scene.link("../elsewhere/real", "rules/a.yaml");
        let watched = scene.watch(&["rules"], &options);
        scene.swap_in("elsewhere/real", "two");
        watched.tells(&[("rules/a.yaml", "two")]);
        watched.ends_with(&[("rules/a.yaml", "two")]);
    }
}

#[test]
fn what_editors_leave_beside_a_file_is_not_told() {
    for options in both_ways() {
        let scene = Scene::new("editors");
        scene.write("rules.yaml", "one");
        let watched = scene.watch(&[""], &options);
        let left = [".rules.yaml.swp", "rules.yaml~", "#rules.yaml#", "4913", "rules.yaml.tmp"];
        for name in left {
            scene.write(name, "domain: not this one");
            watched.watcher.poke();
            watched.tells(&[("rules.yaml", "one")]);
        }
        for name in left {
            scene.remove(name);
        }
        scene.swap_in("rules.yaml", "two");
        watched.tells(&[("rules.yaml", "two")]);
        watched.ends_with(&[("rules.yaml", "two")]);
    }
}

#[test]
fn a_file_saved_as_vim_does_it_ends_as_it_was_saved() {
    for options in both_ways() {
        let scene = Scene::new("vim");
        scene.write("rules.yaml", "one");
        let watched = scene.watch(&["rules.yaml"], &options);
        scene.write("4913", "");
        scene.remove("4913");
        scene.rename("rules.yaml", "rules.yaml~");
        scene.write("rules.yaml", "two");
        scene.remove("rules.yaml~");
        // It may be caught while it is away, and while it is empty.
        watched.tells_after(2, &[("rules.yaml", "two")]);
        watched.ends_with(&[("rules.yaml", "two")]);
    }
}

#[test]
fn a_file_that_was_only_touched_is_not_told() {
    for options in both_ways() {
        let scene = Scene::new("touched");
        scene.write("rules.yaml", "one");
        scene.write("other", "");
        let watched = scene.watch(&["rules.yaml"], &options);
        // A poke could hide a look that the touch led to. A second watcher gives the first one time for it.
        let beside = scene.watch(&["other"], &options);
        for round in ["1", "2", "3", "4", "5"] {
            scene.swap_in("rules.yaml", "one");
            scene.swap_in("other", round);
            beside.tells(&[("other", round)]);
        }
        watched.ends_with(&[("rules.yaml", "one")]);
    }
}

#[test]
fn files_that_come_and_go_in_a_folder_are_told() {
    for options in both_ways() {
        let scene = Scene::new("come-and-go");
        scene.write("a.yaml", "one");
        let watched = scene.watch(&[""], &options);
        scene.swap_in("b.json", "two");
        watched.tells(&[("a.yaml", "one"), ("b.json", "two")]);
        scene.rename("b.json", "c.yml");
        watched.tells(&[("a.yaml", "one"), ("c.yml", "two")]);
        scene.remove("a.yaml");
        watched.tells(&[("c.yml", "two")]);
        scene.rename("c.yml", "c.yml.disabled");
        watched.fails("", Reason::NoRuleFiles);
        scene.rename("c.yml.disabled", "c.yml");
        watched.tells(&[("c.yml", "two")]);
        watched.ends_with(&[("c.yml", "two")]);
    }
}

#[test]
fn files_in_a_new_folder_inside_are_told() {
    for options in both_ways() {
        let scene = Scene::new("new-folder");
        scene.write("a.yaml", "one");
        let watched = scene.watch(&[""], &options);
        scene.folder("team");
        scene.swap_in("team/b.yaml", "two");
        watched.tells(&[("a.yaml", "one"), ("team/b.yaml", "two")]);
        scene.swap_in("team/b.yaml", "three");
        watched.tells(&[("a.yaml", "one"), ("team/b.yaml", "three")]);
        watched.ends_with(&[("a.yaml", "one"), ("team/b.yaml", "three")]);
    }
}

#[test]
fn a_file_replaced_by_a_folder_fails_until_it_is_back() {
    for options in both_ways() {
        for given in ["", "rules.yaml"] {
            let scene = Scene::new("replaced");
            scene.write("rules.yaml", "one");
            scene.write("z.txt", "two");
            scene.folder(".folder");
            let watched = scene.watch(&[given, "z.txt"], &options);
            scene.remove("rules.yaml");
            scene.rename(".folder", "rules.yaml");
            // It may be caught while neither is there.
            watched.fails_after(1, "rules.yaml", &Reason::FolderNamedAsFile);
            scene.rename("rules.yaml", ".folder");
            scene.swap_in("rules.yaml", "one");
            watched.tells_after(1, &[("rules.yaml", "one"), ("z.txt", "two")]);
            watched.ends_with(&[("rules.yaml", "one"), ("z.txt", "two")]);
        }
    }
}

#[test]
fn a_folder_that_vanishes_fails_until_it_is_back() {
    for options in both_ways() {
        let scene = Scene::new("vanished");
        scene.folder("rules");
        scene.write("rules/a.yaml", "one");
        let watched = scene.watch(&["rules"], &options);
        scene.rename("rules", "away");
        watched.fails("rules", Reason::Missing);
        scene.rename("away", "rules");
        watched.tells(&[("rules/a.yaml", "one")]);
        watched.ends_with(&[("rules/a.yaml", "one")]);
    }
}

#[test]
fn a_folder_deleted_and_made_again_is_watched_on() {
    for options in both_ways() {
        let scene = Scene::new("made-again");
        scene.folder("rules");
        scene.write("rules/a.yaml", "one");
        let watched = scene.watch(&["rules"], &options);
        for (before, after) in [("two", "three"), ("four", "five")] {
            scene.remove("rules");
            // It may be caught while it is empty.
            watched.fails_after(1, "rules", &Reason::Missing);
            scene.folder("rules");
            scene.swap_in("rules/a.yaml", before);
            watched.tells_after(1, &[("rules/a.yaml", before)]);
            scene.swap_in("rules/a.yaml", after);
            watched.tells(&[("rules/a.yaml", after)]);
        }
        watched.ends_with(&[("rules/a.yaml", "five")]);
    }
}

#[test]
fn a_folder_replaced_at_once_by_another_is_watched_on() {
    for options in both_ways() {
        let scene = Scene::new("replaced-folder");
        for folder in ["rules", "next"] {
            scene.folder(folder);
            scene.write(&format!("{folder}/a.yaml"), folder);
        }
        let watched = scene.watch(&["rules"], &options);
        scene.rename("rules", "last");
        scene.rename("next", "rules");
        watched.tells_after(1, &[("rules/a.yaml", "next")]);
        scene.swap_in("rules/a.yaml", "two");
        watched.tells(&[("rules/a.yaml", "two")]);
        watched.ends_with(&[("rules/a.yaml", "two")]);
    }
}

#[test]
fn a_failure_is_told_once_and_another_one_again() {
    for options in both_ways() {
        let scene = Scene::new("failures");
        scene.write("a.yaml", "one");
        let watched = scene.watch(&[""], &options);
        scene.link("nowhere", ".link");
        scene.rename(".link", "b.yaml");
        let dead = |target: &str| Reason::DeadLink { target: target.into() };
        watched.fails("b.yaml", dead("nowhere"));
        // Not a new failure, though something happened.
        scene.swap_in("a.yaml", "two");
        scene.link("no-more", ".link");
        scene.rename(".link", "b.yaml");
        watched.fails("b.yaml", dead("no-more"));
        scene.swap_in("no-more", "three");
        watched.tells(&[("a.yaml", "two"), ("b.yaml", "three")]);
        watched.ends_with(&[("a.yaml", "two"), ("b.yaml", "three")]);
    }
}

#[test]
fn a_path_that_is_missing_at_the_start_is_an_error() {
    for options in both_ways() {
        let scene = Scene::new("missing");
        let paths = vec![scene.path("rules"), scene.path("other.yaml")];
        let started =
            Watcher::start(paths, Vec::new(), options, |_| unreachable!("nothing to tell"));
        let Err(WatchError::Read(error)) = started else { panic!("{started:?}") };
        let expected = ["rules", "other.yaml"].map(|name| (name.to_owned(), Reason::Missing));
        assert_eq!(scene.reasons(&error), expected);
    }
}

#[test]
fn what_changed_between_reading_and_watching_is_told() {
    for options in both_ways() {
        let scene = Scene::new("between");
        scene.write("rules.yaml", "one");
        let known = scene.read(&[""]).expect("readable rules");
        scene.swap_in("rules.yaml", "two");
        let watched = scene.watch_knowing(&[""], known, &options);
        watched.tells(&[("rules.yaml", "two")]);
        watched.ends_with(&[("rules.yaml", "two")]);
        let watched = scene.watch_knowing(&[""], Vec::new(), &options);
        watched.tells(&[("rules.yaml", "two")]);
        watched.ends_with(&[("rules.yaml", "two")]);
    }
}

#[test]
fn a_burst_of_changes_while_the_last_one_is_handled_is_one_call() {
    for options in both_ways() {
        let scene = Scene::new("burst");
        scene.write("rules.yaml", "0");
        let paths = vec![scene.path("rules.yaml")];
        let known = scene.read(&["rules.yaml"]).expect("readable rules");
        // Without room in between, each call waits until the test takes it.
        let (sender, calls) = sync_channel(0);
        let on_change = move |change| {
            let _ = sender.send(change);
            let _ = sender.send(Change::Sources(Vec::new()));
        };
        let watcher = Watcher::start(paths, known, options, on_change).expect("a watcher");
        let text = || match calls.recv_timeout(PATIENCE).expect("a call") {
            Change::Sources(sources) => sources.first().map(|source| source.bytes.clone()),
            Change::Failed(error) => panic!("{error}"),
        };
        scene.swap_in("rules.yaml", "1");
        assert_eq!(text(), Some(b"1".to_vec()));
        for round in 2..50 {
            scene.swap_in("rules.yaml", &round.to_string());
        }
        assert_eq!(text(), None, "the end of the first call");
        assert_eq!(text(), Some(b"49".to_vec()));
        assert_eq!(text(), None, "the end of the second call");
        watcher.poke();
        assert_eq!(text(), Some(b"49".to_vec()), "the answer to the poke");
        drop(calls);
        watcher.stop();
    }
}

#[test]
fn a_poke_is_answered_at_once_though_nothing_changed() {
    let never = Duration::from_secs(1_000_000);
    let slow =
        WatchOptions { settle: never, settle_max: never, compare_every: never, events: true };
    let scene = Scene::new("poke");
    scene.write("rules.yaml", "one");
    let watched = scene.watch(&["rules.yaml"], &slow);
    watched.watcher.poke();
    watched.tells(&[("rules.yaml", "one")]);
    // Waiting for quiet is cut short too.
    scene.swap_in("rules.yaml", "two");
    watched.watcher.poke();
    watched.tells(&[("rules.yaml", "two")]);
    scene.remove("rules.yaml");
    for _ in 0..2 {
        watched.watcher.poke();
        watched.fails("rules.yaml", Reason::Missing);
    }
    scene.swap_in("rules.yaml", "three");
    watched.ends_with(&[("rules.yaml", "three")]);
}

#[test]
fn a_panic_over_one_change_does_not_end_the_watching() {
    for options in both_ways() {
        let scene = Scene::new("panic");
        scene.write("rules.yaml", "one");
        let paths = vec![scene.path("rules.yaml")];
        let known = scene.read(&["rules.yaml"]).expect("readable rules");
        let (sender, calls) = sync_channel(2);
        let on_change = move |change| {
            let failed = matches!(change, Change::Failed(_));
            sender.send(failed).expect("a test that listens");
            assert!(!failed, "the panic of this test");
        };
        let _watcher = Watcher::start(paths, known, options, on_change).expect("a watcher");
        scene.remove("rules.yaml");
        assert_eq!(calls.recv_timeout(PATIENCE), Ok(true));
        scene.swap_in("rules.yaml", "two");
        assert_eq!(calls.recv_timeout(PATIENCE), Ok(false));
    }
}

#[test]
fn a_watcher_stopped_by_what_it_tells_does_not_wait_for_itself() {
    for options in both_ways() {
        let scene = Scene::new("stops-itself");
        scene.write("rules.yaml", "one");
        let slot = Arc::new(Mutex::new(None::<Watcher>));
        let (sender, dropped) = sync_channel::<()>(1);
        let own = Arc::clone(&slot);
        let on_change = move |_| {
            let _until_the_thread_ends = &sender;
            drop(own.lock().expect("a slot").take());
        };
        let paths = vec![scene.path("rules.yaml")];
        let known = scene.read(&["rules.yaml"]).expect("readable rules");
        let watcher = Watcher::start(paths, known, options, on_change).expect("a watcher");
        *slot.lock().expect("a slot") = Some(watcher);
        fs::remove_file(scene.path("rules.yaml")).expect("a removed file");
        let end = dropped.recv_timeout(PATIENCE);
        assert_eq!(end, Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
    }
}
