//! A limiter that follows its files, on a real file system.
#![cfg(unix)]

mod scene;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use scene::{PATIENCE, Scene, both_ways};
use tidegate::{Attribute, Call, ManualClock, RuleLimiter, RuleSet};
use tidegate_files::{Reload, WatchOptions, Watcher, follow, read};
use tidegate_rules::ParseOptions;

const ANN: [Attribute<'static>; 1] = [Attribute { name: "user", value: b"ann" }];

fn rules(limit: &str) -> String {
    format!("{{ domain: api, rules: [ {{ name: r, per: [user], limit: {limit} }} ] }}")
}

struct Followed {
    limiter: Arc<RuleLimiter<ManualClock>>,
    reloads: Receiver<Reload>,
    watcher: Watcher,
}

impl Followed {
    fn new(scene: &Scene, options: &WatchOptions) -> Self {
        let paths = vec![scene.path("rules.yaml")];
        let sources = read(&paths).expect("rules to read");
        let parsed = RuleSet::parse(&sources, &ParseOptions::default()).expect("good rules").rules;
        let clock = ManualClock::new();
        let limiter = RuleLimiter::builder(parsed).clock(clock).build().expect("a limiter");
        let limiter = Arc::new(limiter);
        let (tell, reloads) = sync_channel(16);
        let watcher = follow(
            &limiter,
            paths,
            sources,
            ParseOptions::default(),
            options.clone(),
            move |reload| tell.send(reload).expect("somebody listens"),
        );
        Self { limiter, reloads, watcher: watcher.expect("a watcher") }
    }

    fn next(&self) -> Reload {
        self.reloads.recv_timeout(PATIENCE).expect("a reload in time")
    }

    fn left(&self) -> Option<u64> {
        let look = Call::new("api", &ANN).with_cost(0);
        self.limiter.peek(&look).expect("a decision").remaining()
    }

    fn take(&self, cost: u64) {
        let call = Call::new("api", &ANN).with_cost(cost);
        assert!(self.limiter.check(&call).expect("a decision").is_allowed());
    }
}

#[test]
fn a_changed_file_is_in_force_and_what_was_spent_stays_spent() {
    for options in both_ways() {
        let scene = Scene::new("follow-changed");
        scene.write("rules.yaml", &rules("10/minute fixed-window"));
        let followed = Followed::new(&scene, &options);
        followed.take(6);
        scene.swap_in("rules.yaml", &rules("8/minute fixed-window"));
        let Reload::Done { changes, .. } = followed.next() else { panic!("refused") };
        assert_eq!(
            changes[0].to_string(),
            "api/r: limit 10/minute fixed-window -> 8/minute fixed-window (what has been spent \
             stays spent)"
        );
        assert_eq!(followed.left(), Some(2));
        followed.watcher.stop();
    }
}

#[test]
fn a_broken_or_missing_file_leaves_the_old_rules_in_force_until_it_is_mended() {
    for options in both_ways() {
        let scene = Scene::new("follow-broken");
        scene.write("rules.yaml", &rules("10/minute"));
        let followed = Followed::new(&scene, &options);
        followed.take(6);
        scene.swap_in("rules.yaml", &rules("10/fortnight"));
        let refused = followed.next();
        assert!(matches!(refused, Reload::Refused(_)), "{refused}");
        assert!(refused.to_string().contains("rules.yaml:1:"), "{refused}");
        assert_eq!(followed.left(), Some(4));
        scene.remove("rules.yaml");
        let missing = followed.next();
        assert!(matches!(missing, Reload::Unreadable(_)), "{missing}");
        assert_eq!(followed.left(), Some(4));
        scene.write("rules.yaml", &rules("20/minute burst 10"));
        // A write in place may be seen half done first, which is refused and not put in force.
        while !matches!(followed.next(), Reload::Done { .. }) {}
        assert_eq!(followed.left(), Some(4));
        followed.watcher.stop();
    }
}

#[test]
fn a_reload_that_is_asked_for_is_answered_though_nothing_changed() {
    let scene = Scene::new("follow-poked");
    scene.write("rules.yaml", &rules("10/minute"));
    let followed = Followed::new(&scene, &WatchOptions::default());
    followed.watcher.poke();
    let Reload::Done { changes, .. } = followed.next() else { panic!("refused") };
    assert!(changes.is_empty());
}
