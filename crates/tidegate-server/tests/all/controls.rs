//! Bans, the allow-list and the switches: what wins, for how long, and what is kept.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::{Daemon, at_once};
use tidegate::{Attribute, Call, Span, Timestamp};
use tidegate_server::controls::{
    ADDRESS_ATTRIBUTES, ChangeError, Controls, ENTRIES_MAX, Entry, Kept, LoadError, Ruling,
    TEXT_BYTES_MAX, Which,
};
use tidegate_server::{Does, Protocol};

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

fn entry(target: &str) -> Entry {
    Entry::new(target.parse().expect("a target"), NOW)
}

fn add(controls: &Controls, which: Which, entry: Entry) {
    let _ = controls.add(which, entry, NOW).expect("there is room");
}

fn ruled(
    controls: &Controls,
    domain: &str,
    attributes: &[(&str, &str)],
    now: Timestamp,
) -> Option<Ruling> {
    let attributes: Vec<Attribute<'_>> = attributes.iter().map(|&pair| pair.into()).collect();
    controls.rule_on(domain, &attributes, now)
}

fn is_banned(controls: &Controls, name: &str, value: &str) -> bool {
    matches!(ruled(controls, "api", &[(name, value)], NOW), Some(Ruling::Banned { .. }))
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder to write in");
    folder
}

#[test]
fn a_value_is_banned_in_its_attribute_alone() {
    let controls = Controls::default();
    assert!(controls.is_idle());
    add(&controls, Which::Bans, entry("user=42"));
    assert!(is_banned(&controls, "user", "42") && !controls.is_idle());
    for (name, value) in
        [("user", "4"), ("user", "421"), ("user", ""), ("tenant", "42"), ("User", "42")]
    {
        assert!(!is_banned(&controls, name, value), "{name}={value}");
    }
}

#[test]
fn a_range_is_looked_for_wherever_addresses_come() {
    let controls = Controls::default();
    add(&controls, Which::Bans, entry("192.0.2.0/24"));
    add(&controls, Which::Bans, entry("2001:db8::/32"));
    for name in ADDRESS_ATTRIBUTES {
        for inside in
            ["192.0.2.7", "::ffff:192.0.2.7", "192.0.2.128/25", "2001:db8::1", "2001:db8:1:2::/64"]
        {
            assert!(is_banned(&controls, name, inside), "{name}={inside}");
        }
        for outside in [
            "192.0.3.7",
            "192.0.0.0/16",
            "2001:db9::1",
            "2001:d00::/24",
            "elsewhere",
            "",
            "192.0.2",
        ] {
            assert!(!is_banned(&controls, name, outside), "{name}={outside}");
        }
    }
    assert!(!is_banned(&controls, "user", "192.0.2.7"));
}

#[test]
fn a_ban_that_is_narrower_than_the_prefix_meets_nobody() {
    let controls = Controls::default();
    add(&controls, Which::Bans, entry("2001:db8::1"));
    assert!(!is_banned(&controls, "ip", "2001:db8::/64"));
    assert!(is_banned(&controls, "address", "2001:db8::1"));
}

#[test]
fn the_allow_list_wins_over_bans() {
    let controls = Controls::default();
    add(&controls, Which::Bans, entry("192.0.2.0/24"));
    add(&controls, Which::Allowed, entry("192.0.2.7"));
    add(&controls, Which::Bans, entry("192.0.2.7"));
    assert_eq!(ruled(&controls, "api", &[("ip", "192.0.2.7")], NOW), Some(Ruling::AllowListed));
    assert_eq!(
        ruled(&controls, "api", &[("ip", "192.0.2.8")], NOW),
        Some(Ruling::Banned { until: None })
    );
    // Wherever it stands: one attribute is enough.
    let both = [("ip", "192.0.2.8"), ("user", "42")];
    add(&controls, Which::Allowed, entry("user=42"));
    assert_eq!(ruled(&controls, "api", &both, NOW), Some(Ruling::AllowListed));
}

#[test]
fn the_switch_that_lets_everything_through_wins_over_all_and_shadow_over_none() {
    let controls = Controls::default();
    add(&controls, Which::Bans, entry("user=42"));
    let _ = controls.set_shadow(true, NOW);
    assert!(is_banned(&controls, "user", "42"));
    assert_eq!(ruled(&controls, "api", &[("user", "1")], NOW), Some(Ruling::Shadow));
    let _ = controls.set_bypass(true, NOW);
    assert_eq!(ruled(&controls, "api", &[("user", "42")], NOW), Some(Ruling::Bypassed));
    let _ = controls.set_bypass(false, NOW);
    let _ = controls.set_shadow(false, NOW);
    assert_eq!(ruled(&controls, "api", &[("user", "1")], NOW), None);
}

#[test]
fn an_entry_of_one_domain_is_of_no_other() {
    let controls = Controls::default();
    add(&controls, Which::Bans, entry("user=42").in_domain(Some("api".into())));
    assert!(is_banned(&controls, "user", "42"));
    assert_eq!(ruled(&controls, "mail", &[("user", "42")], NOW), None);
    // To lift it, the domain is part of its name.
    let target = "user=42".parse().expect("a target");
    let lifted = controls.lift(Which::Bans, &target, None, NOW);
    assert_eq!(lifted.err(), Some(ChangeError::NotListed));
    let _ = controls.lift(Which::Bans, &target, Some("api"), NOW).expect("it is there");
    assert!(controls.is_idle());
}

#[test]
fn an_entry_ends_at_its_time_and_the_longest_ban_is_told() {
    let controls = Controls::default();
    let (minute, hour) = (NOW.plus(Span::MINUTE), NOW.plus(Span::HOUR));
    add(&controls, Which::Bans, entry("192.0.2.7").until(Some(minute)));
    add(&controls, Which::Bans, entry("192.0.2.0/24").until(Some(hour)));
    let at = |now| ruled(&controls, "api", &[("ip", "192.0.2.7")], now);
    assert_eq!(at(NOW), Some(Ruling::Banned { until: Some(hour) }));
    assert_eq!(at(hour.minus(Span::TICK)), Some(Ruling::Banned { until: Some(hour) }));
    assert_eq!(at(hour), None);
    add(&controls, Which::Bans, entry("ip=192.0.2.7"));
    assert_eq!(at(NOW), Some(Ruling::Banned { until: None }));
    assert_eq!(controls.entries(Which::Bans, hour).len(), 1);
    let over = controls.add(Which::Bans, entry("user=1").until(Some(NOW)), NOW);
    assert_eq!(over.err(), Some(ChangeError::Over));
}

#[test]
fn the_same_target_again_takes_the_place_of_the_first() {
    let controls = Controls::default();
    add(&controls, Which::Bans, entry("192.0.2.0/24").until(Some(NOW.plus(Span::MINUTE))));
    add(&controls, Which::Bans, entry("192.0.2.77/24"));
    assert_eq!(controls.counts(NOW).bans, 1);
    assert_eq!(
        ruled(&controls, "api", &[("ip", "192.0.2.7")], NOW),
        Some(Ruling::Banned { until: None })
    );
}

#[test]
fn entries_are_bounded_and_those_that_ended_make_room() {
    let path = scratch("controls-full").join("state.controls.json");
    let entries: Vec<String> = (0..ENTRIES_MAX)
        .map(|n| format!(r#"{{"target":"user={n}","until":"2023-11-14T22:14:20Z","since":"2023-11-14T22:13:20Z"}}"#))
        .collect();
    let text = format!(
        r#"{{"form":1,"bypass":false,"shadow":false,"bans":[{}],"allow":[]}}"#,
        entries.join(",")
    );
    std::fs::write(&path, text).expect("a file");
    let controls = Controls::load(&path).expect("as many as there may be");
    assert!(is_banned(&controls, "user", "9999"));
    let full = controls.add(Which::Allowed, entry("user=new"), NOW);
    assert_eq!(full.err(), Some(ChangeError::Full));
    let later = NOW.plus(Span::HOUR);
    let added = controls.add(Which::Allowed, entry("user=new"), later);
    assert!(matches!(added, Ok(Kept::InFile)));
    assert_eq!((controls.counts(later).bans, controls.counts(later).allowed), (0, 1));
    let mut long = entry("user=1");
    long.note = Some("x".repeat(TEXT_BYTES_MAX + 1));
    assert_eq!(controls.add(Which::Bans, long, later).err(), Some(ChangeError::TooLong));
}

#[test]
fn everything_is_kept_over_a_restart_and_its_owner_alone_may_read_it() {
    let folder = scratch("controls-kept");
    let path = Controls::path_beside(&folder.join("state"));
    assert_eq!(path, folder.join("state.controls.json"));
    let before = Controls::load(&path).expect("there is none yet");
    let mut ban = entry("user=42").in_domain(Some("api".into())).until(Some(NOW.plus(Span::HOUR)));
    ban.note = Some("scrapes".into());
    add(&before, Which::Bans, ban);
    add(&before, Which::Allowed, entry("2001:db8::/32"));
    let kept = before.set_bypass(true, NOW);
    assert!(matches!(kept, Kept::InFile), "{kept:?}");
    let after = Controls::load(&path).expect("what was written");
    for which in [Which::Bans, Which::Allowed] {
        assert_eq!(after.entries(which, NOW), before.entries(which, NOW));
    }
    assert!(after.is_bypassed() && !after.is_in_shadow());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(&path).expect("the file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let names = std::fs::read_dir(&folder).expect("the folder").count();
    assert_eq!(names, 1, "a draft was left behind");
}

#[test]
fn what_the_daemon_was_started_with_is_not_kept() {
    let path = scratch("controls-flag").join("state.controls.json");
    let controls = Controls::load(&path).expect("there is none yet").with_shadow(true);
    assert_eq!(ruled(&controls, "api", &[], NOW), Some(Ruling::Shadow));
    let _ = controls.set_shadow(false, NOW);
    assert_eq!(ruled(&controls, "api", &[], NOW), Some(Ruling::Shadow));
    assert!(!Controls::load(&path).expect("what was written").is_in_shadow());
}

#[test]
fn a_file_with_mistakes_is_refused_as_a_whole_and_stays() {
    let path = scratch("controls-broken").join("state.controls.json");
    let cases = [
        "",
        "[]",
        r#"{"form":1,"bypass":false,"shadow":false,"bans":[],"allow":[],"more":1}"#,
        r#"{"form":2,"bypass":false,"shadow":false,"bans":[],"allow":[]}"#,
        r#"{"form":1,"bypass":false,"shadow":false,"bans":[{"target":"secret-user","since":"2023-11-14T22:13:20Z"}],"allow":[]}"#,
        r#"{"form":1,"bypass":false,"shadow":false,"bans":[],"allow":[{"target":"user=1","since":"yesterday"}]}"#,
    ];
    for text in cases {
        std::fs::write(&path, text).expect("a file");
        let error = Controls::load(&path).expect_err(text);
        assert!(!error.to_string().contains("secret-user"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).expect("the file"), text);
    }
    let folder = Controls::load(path.parent().expect("a folder")).expect_err("it is no file");
    assert!(matches!(folder, LoadError::Io(_)), "{folder}");
}

#[test]
fn a_change_is_in_force_even_if_it_cannot_be_written() {
    let controls = Controls::load(scratch("controls-nowhere").join("gone/state.controls.json"))
        .expect("none yet");
    let kept = controls.add(Which::Bans, entry("user=42"), NOW).expect("there is room");
    assert!(matches!(kept, Kept::Failed(_)), "{kept:?}");
    assert!(is_banned(&controls, "user", "42"));
}

#[test]
fn a_banned_call_is_denied_until_then_and_charged_nothing() {
    let daemon =
        Daemon::new("{ domain: api, rules: [ { name: all, per: [user], limit: 1/minute } ] }");
    let now = daemon.engine.limiter().now();
    let ban =
        Entry::new("user=42".parse().expect("a target"), now).until(Some(now.plus(Span::MINUTE)));
    let _ = daemon.engine.controls().add(Which::Bans, ban, now).expect("there is room");
    let attributes = [("user", "42").into()];
    let check = || {
        let call = Call::new("api", &attributes);
        at_once(daemon.engine.check(&call, Does::Take, Protocol::Http)).expect("a decision")
    };
    let denied = check();
    assert_eq!(
        (denied.is_allowed(), denied.reason(), denied.rule()),
        (false, Some("banned"), None)
    );
    assert_eq!(denied.retry_after(), Some(Duration::from_mins(1)));
    daemon.clock.advance(Duration::from_mins(1));
    assert!(check().is_allowed(), "the ban is over, and nothing was taken meanwhile");
    assert!(!check().is_allowed());
    let text = daemon.engine.metrics().render(&daemon.engine);
    assert!(text.contains("tidegate_rulings_total{ruling=\"banned\"} 1\n"), "{text}");
}
