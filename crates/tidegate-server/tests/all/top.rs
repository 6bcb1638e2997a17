//! Which keys are at the top, in how much memory, and what is shown of them.

use std::time::Duration;

use crate::support::{Daemon, at_once};
use tidegate::{Attribute, Call};
use tidegate_server::top::{By, KEYS_MAX, NAME_BYTES_MAX, NOTED_FULLY, Ranking};
use tidegate_server::{Does, Protocol};

const RULES: &str =
    "{ domain: api, rules: [ { name: all, per: [user], limits: [ 2/minute, 100/hour ] } ] }";

fn ask(daemon: &Daemon, user: &str, times: usize) {
    let attributes = [Attribute::from(("user", user)), ("path", "/secret").into()];
    for _ in 0..times {
        let call = Call::new("api", &attributes);
        let _ =
            at_once(daemon.engine.check(&call, Does::Take, Protocol::Http)).expect("a decision");
    }
}

fn ranking(daemon: &Daemon, by: By) -> Ranking {
    daemon.engine.top().ranking(by, 10, daemon.engine.limiter().now())
}

fn counts(ranking: &Ranking) -> Vec<u64> {
    ranking.keys.iter().map(|key| key.count).collect()
}

#[test]
fn the_most_throttled_and_the_busiest_keys_come_first() {
    let daemon = Daemon::new(RULES);
    for (user, times) in [("ann", 5), ("bob", 9), ("cid", 2)] {
        ask(&daemon, user, times);
    }
    assert_eq!(counts(&ranking(&daemon, By::Requests)), [9, 5, 2]);
    // Two a minute pass, and who is never denied is not in this list.
    let denied = ranking(&daemon, By::Denied);
    assert_eq!((counts(&denied), denied.error), (vec![7, 3], 0));
    assert_eq!((&*denied.keys[0].domain, &*denied.keys[0].rule), ("api", "all"));
}

#[test]
fn keys_are_shown_by_the_hash_that_explain_shows_and_not_by_name() {
    let daemon = Daemon::new(RULES);
    ask(&daemon, "ann", 3);
    let attributes = [("user", "ann").into()];
    let explained = daemon.engine.limiter().explain(&Call::new("api", &attributes));
    let ranked = ranking(&daemon, By::Denied);
    assert_eq!(ranked.keys[0].key.as_hash(), explained.charges[0].key);
    assert_eq!(ranked.keys[0].name, None);
    assert!(!format!("{:?}", daemon.engine.top()).contains("ann"));
}

#[test]
fn names_are_kept_only_where_that_is_turned_on_and_only_so_much_of_them() {
    let daemon = Daemon::new(RULES);
    daemon.engine.top().keep_names(true);
    ask(&daemon, "ann", 3);
    ask(&daemon, &"é".repeat(1_000), 4);
    let ranked = ranking(&daemon, By::Requests);
    assert_eq!(ranked.keys[1].name.as_deref(), Some("user=ann"));
    let long = ranked.keys[0].name.as_deref().expect("a name");
    assert!(long.len() <= NAME_BYTES_MAX && long.starts_with("user=é"), "{long}");
    daemon.engine.top().keep_names(false);
    assert!(ranking(&daemon, By::Requests).keys.iter().all(|key| key.name.is_none()));
}

#[test]
fn what_is_over_is_forgotten() {
    let daemon = Daemon::new(RULES);
    ask(&daemon, "ann", 3);
    daemon.clock.advance(Duration::from_mins(1));
    ask(&daemon, "bob", 5);
    assert_eq!(counts(&ranking(&daemon, By::Requests)), [5, 3]);
    daemon.clock.advance(Duration::from_mins(1));
    assert_eq!(counts(&ranking(&daemon, By::Requests)), [5]);
    daemon.clock.advance(Duration::from_mins(1));
    assert!(counts(&ranking(&daemon, By::Requests)).is_empty());
}

#[test]
fn a_flood_of_keys_takes_no_more_memory_and_hides_nobody() {
    let daemon = Daemon::new(RULES);
    // One in twenty calls is of one key, all others of new ones. The clock moves with them, so that
    // some are noted and some sampled.
    for number in 0..400_000_u32 {
        let name;
        let user = if number % 20 == 0 {
            "the one"
        } else {
            name = number.to_string();
            &name
        };
        ask(&daemon, user, 1);
        if number % 1_000 == 0 {
            daemon.clock.advance(Duration::from_millis(10));
        }
    }
    let ranked =
        daemon.engine.top().ranking(By::Requests, usize::MAX, daemon.engine.limiter().now());
    assert!(ranked.keys.len() <= 2 * KEYS_MAX, "{} keys from one thread", ranked.keys.len());
    let first = &ranked.keys[0];
    let (count, exact) = (first.count, 20_000);
    assert!(
        count + ranked.error > exact * 8 / 10 && count < exact * 12 / 10,
        "{count}, {}",
        ranked.error
    );
    assert!(ranked.keys[1].count < count / 10, "nobody comes near");
}

#[test]
fn calls_in_a_regular_pattern_are_sampled_fairly() {
    let daemon =
        Daemon::new("{ domain: api, rules: [ { name: all, per: [user], limit: 1000000/s } ] }");
    let users: Vec<String> = (0..16).map(|user| user.to_string()).collect();
    let rounds = NOTED_FULLY as usize * 16;
    for _ in 0..rounds / 16 {
        for user in &users {
            ask(&daemon, user, 16);
        }
    }
    let ranked = daemon.engine.top().ranking(By::Requests, 16, daemon.engine.limiter().now());
    assert_eq!(ranked.keys.len(), 16);
    for key in &ranked.keys {
        let (count, exact) = (key.count, rounds as u64);
        assert!(count > exact * 7 / 10 && count < exact * 13 / 10, "{count} of {exact}");
    }
}

#[test]
fn limits_that_calls_bring_along_are_ranked_too() {
    let daemon = Daemon::new(RULES);
    let limiter = daemon.engine.limiter();
    let key = limiter.hasher().bytes(b"ann").key(limiter.given_salt("throttle"));
    for _ in 0..3 {
        daemon.engine.top().decided_given(key, b"ann", false, limiter.now());
    }
    let ranked = ranking(&daemon, By::Denied);
    assert_eq!((counts(&ranked), ranked.keys[0].key), (vec![3], key));
    assert_eq!(&*ranked.keys[0].rule, "(given)");
}
