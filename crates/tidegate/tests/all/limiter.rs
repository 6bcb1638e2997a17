//! The library as its users meet it.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tidegate::{BuildError, Limiter, ManualClock, Restored, SnapshotError, Timestamp};

const EVERY_ALGORITHM: [&str; 9] = [
    "5/minute",
    "5/minute stepped",
    "5/minute leaky-bucket",
    "5/minute fixed-window",
    "5/minute fixed-window from-first-request",
    "5/minute sliding-window",
    "5/minute sliding-slots slots 6",
    "5/minute sliding-log",
    "5 at once for 1min",
];

fn clock() -> ManualClock {
    ManualClock::starting_at(Timestamp::from_secs(1_790_553_600))
}

fn limiter(limit: &str) -> Limiter<ManualClock> {
    Limiter::builder().limit(limit).clock(clock()).build().expect("a limit")
}

#[test]
fn every_algorithm_can_be_had_from_text() {
    for text in EVERY_ALGORITHM {
        let limiter = limiter(text);
        for left in (0..5).rev() {
            assert_eq!(limiter.check("ann").remaining(), left, "{text}");
        }
        let denied = limiter.check("ann");
        assert!(!denied.is_allowed() && denied.retry_after().is_some(), "{text}");
        assert_eq!(limiter.peek("bob").remaining(), 5, "{text}");
        limiter.reset("ann");
        assert_eq!(limiter.peek("ann").remaining(), 5, "{text}");
    }
}

#[test]
fn calls_in_a_batch_are_decided_in_order_at_one_instant() {
    for text in EVERY_ALGORITHM {
        let limiter = limiter(text);
        let who: Vec<_> = (0..200).map(|call| format!("user {}", call % 20)).collect();
        let mut allowed = Vec::new();
        limiter.check_many(&who, |decision| allowed.push(decision.is_allowed()));
        let expected: Vec<_> = (0..200).map(|call| call / 20 < 5).collect();
        assert_eq!(allowed, expected, "{text}");
    }
}

#[test]
fn a_request_under_several_limits_is_charged_to_all_or_none() {
    let clock = clock();
    let limiter = Limiter::builder()
        .limit("2/s fixed-window")
        .limit("3/minute sliding-log")
        .clock(clock.clone())
        .build()
        .unwrap();
    assert!(limiter.check("ann").is_allowed());
    assert!(limiter.check("ann").is_allowed());
    let denied = limiter.check("ann");
    assert_eq!((denied.is_allowed(), denied.limit_index()), (false, 0));
    clock.advance(Duration::from_secs(1));
    assert!(limiter.check("ann").is_allowed(), "the denied one was not charged to the log");
    let denied = limiter.check("ann");
    assert_eq!((denied.is_allowed(), denied.limit_index()), (false, 1));
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(59)));
}

#[test]
fn two_limits_of_one_algorithm_and_period_count_apart() {
    let limiter = Limiter::builder()
        .limit("3/minute burst 2")
        .limit("10/minute burst 5")
        .clock(clock())
        .build()
        .unwrap();
    assert!(limiter.check("ann").is_allowed());
    assert!(limiter.check("ann").is_allowed());
    assert!(!limiter.check("ann").is_allowed());
}

#[test]
fn attributes_and_names_are_different_people() {
    let limiter = limiter("1/minute");
    assert!(limiter.check([("user", "ann")]).is_allowed());
    assert!(!limiter.check([("user", "ann")]).is_allowed());
    assert!(limiter.check([("user", "an"), ("n", "")]).is_allowed());
    assert!(limiter.check([("path", "ann")]).is_allowed());
    assert!(limiter.check("ann").is_allowed());
    assert!(limiter.check("198.51.100.7".parse::<std::net::IpAddr>().unwrap()).is_allowed());
    assert!(
        !limiter.check("::ffff:198.51.100.7".parse::<std::net::IpAddr>().unwrap()).is_allowed()
    );
}

#[test]
fn permits_give_their_place_back_when_dropped() {
    let limiter = Arc::new(limiter("2 at once"));
    let first = limiter.acquire("ann").unwrap();
    let second = limiter.acquire_owned("ann").unwrap();
    assert_eq!(second.decision().remaining(), 0);
    assert!(limiter.acquire("ann").is_err());
    std::thread::spawn(move || drop(second)).join().unwrap();
    assert!(limiter.acquire("ann").is_ok(), "given back by another thread");
    drop(first);
    assert_eq!(limiter.peek("ann").remaining(), 2);
}

#[test]
fn a_permit_that_is_leaked_comes_back_when_it_expires() {
    let clock = clock();
    let limiter =
        Limiter::builder().limit("1 at once for 30s").clock(clock.clone()).build().unwrap();
    std::mem::forget(limiter.acquire("ann").unwrap());
    assert!(limiter.acquire("ann").is_err());
    clock.advance(Duration::from_secs(30));
    assert!(limiter.acquire("ann").is_ok());
}

#[test]
fn a_denied_permit_leaves_other_limits_alone() {
    let limiter =
        Limiter::builder().limit("1 at once").limit("5/minute").clock(clock()).build().unwrap();
    let held = limiter.acquire("ann").unwrap();
    assert!(limiter.acquire("ann").is_err());
    drop(held);
    assert_eq!(limiter.acquire("ann").unwrap().decision().remaining(), 0);
    let buckets: Vec<_> = limiter.limits().map(tidegate::Limit::name).collect();
    assert_eq!(buckets, ["concurrency", "token-bucket"]);
}

#[test]
fn state_survives_in_a_file() {
    let folder = TempFolder::new("survives");
    let path = folder.path("state");
    let clock = clock();
    for text in EVERY_ALGORITHM {
        let builder = || Limiter::builder().limit(text).clock(clock.clone());
        let (limiter, found) = builder().build_from(&path).unwrap();
        assert!(matches!(found, Restored::Nothing), "{text}: {found:?}");
        let _ = limiter.check_cost("ann", 3);
        limiter.save(&path).unwrap();
        let (again, found) = builder().build_from(&path).unwrap();
        assert!(matches!(found, Restored::Keys(1)), "{text}: {found:?}");
        assert_eq!(again.peek("ann").remaining(), 2, "{text}");
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_bad_state_file_is_refused_and_the_limiter_starts_empty() {
    let folder = TempFolder::new("refused");
    let path = folder.path("state");
    let builder = || Limiter::builder().limit("5/minute").clock(clock());
    let refused = |builder: tidegate::LimiterBuilder<ManualClock>| {
        let (limiter, found) = builder.build_from(&path).unwrap();
        assert_eq!(limiter.peek("ann").remaining(), 5);
        match found {
            Restored::Refused(error) => error,
            other => panic!("{other:?}"),
        }
    };
    std::fs::write(&path, b"something else entirely").unwrap();
    assert!(matches!(refused(builder()), SnapshotError::Foreign));

    let limiter = builder().build().unwrap();
    let _ = limiter.check("ann");
    limiter.save(&path).unwrap();
    assert!(matches!(refused(builder().memory_bytes(32 << 20)), SnapshotError::OtherSize { .. }));
    assert!(matches!(refused(builder().secret([7; 16])), SnapshotError::OtherLabel));

    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert!(matches!(refused(builder()), SnapshotError::Damaged { .. }));
}

#[test]
fn a_secret_that_is_given_stays_out_of_the_file() {
    let folder = TempFolder::new("secret");
    let path = folder.path("state");
    let secret = *b"sixteen bytes of";
    let builder = || Limiter::builder().limit("5/minute").clock(clock()).secret(secret);
    let limiter = builder().build().unwrap();
    let _ = limiter.check("ann@example.org");
    limiter.save(&path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let holds = |needle: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
    assert!(!holds(&secret) && !holds(b"ann@example.org"));
    let (_, found) = builder().build_from(&path).unwrap();
    assert!(matches!(found, Restored::Keys(1)), "{found:?}");
}

#[test]
fn mistakes_are_named() {
    let error = |text: &str| Limiter::new(text).unwrap_err().to_string();
    assert!(error("10/fortnight").contains("`fortnight`"), "{}", error("10/fortnight"));
    assert!(error("0/s").contains('0'), "{}", error("0/s"));
    let none = Limiter::builder().build().unwrap_err();
    assert_eq!(none, BuildError::NoLimit);
    let mut many = Limiter::builder();
    for _ in 0..17 {
        many = many.limit("1/s");
    }
    assert!(matches!(many.build(), Err(BuildError::TooManyLimits { max: 16 })));
    let huge = Limiter::builder().limit("1/s").memory_bytes(usize::MAX).build();
    assert!(matches!(huge, Err(BuildError::Memory(_))), "{huge:?}");
    let small = Limiter::builder().limit("1/s").memory_bytes(1000).build();
    assert!(matches!(small, Err(BuildError::Memory(_))), "{small:?}");
}

#[test]
fn a_clock_that_jumps_by_sixty_years_leaves_every_limit_in_force() {
    let clock = ManualClock::new();
    let folder = TempFolder::new("jumps");
    let path = folder.path("state");
    for text in EVERY_ALGORITHM {
        let builder = || Limiter::builder().limit(text).clock(clock.clone());
        clock.set(Timestamp::ZERO);
        let limiter = builder().build().unwrap();
        clock.set(Timestamp::from_secs(60 * 365 * 86_400));
        for round in 0..6 {
            for user in 0..200_u64 {
                assert_eq!(limiter.check(user).is_allowed(), round < 5, "{text}: {user}, {round}");
            }
        }
        limiter.save(&path).unwrap();
        let (restored, found) = builder().build_from(&path).unwrap();
        assert!(matches!(found, Restored::Keys(200)), "{text}: {found:?}");
        assert!((0..200_u64).all(|user| !restored.check(user).is_allowed()), "{text}");
    }
}

#[test]
fn what_threads_take_and_refund_is_there_again() {
    for text in ["1000/hour", "1000/hour fixed-window", "1000/hour sliding-log"] {
        let limiter = Limiter::builder().limit(text).clock(clock()).build().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let taken = limiter.check("ann");
                        assert!(taken.is_allowed(), "{text}");
                        let _ = limiter.refund("ann", 1, taken.at());
                    }
                });
            }
        });
        assert_eq!(limiter.peek("ann").remaining(), 1_000, "{text}");
    }
}

#[test]
fn saves_at_the_same_time_leave_a_whole_file() {
    let folder = TempFolder::new("saves");
    let path = folder.path("state");
    let builder = || Limiter::builder().limit("5/minute").memory_bytes(2 << 20).clock(clock());
    let limiter = builder().build().unwrap();
    let _ = limiter.check("ann");
    limiter.save(&path).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..20).for_each(|_| limiter.save(&path).unwrap()));
        }
        for _ in 0..40 {
            let (_, found) = builder().build_from(&path).unwrap();
            assert!(matches!(found, Restored::Keys(1)), "{found:?}");
        }
    });
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1, "no draft is left");
}

#[test]
fn a_place_is_given_back_by_its_lease_whichever_limit_binds() {
    let limiter =
        Limiter::builder().limit("3/minute").limit("5 at once").clock(clock()).build().unwrap();
    let taken = limiter.check("ann");
    assert_eq!(taken.limit_index(), 0, "the rate has less left");
    limiter.release("ann", taken.lease().expect("a place"));
    assert!(limiter.acquire("ann").is_ok());
    let places = limiter.acquire("ann").map(|permit| permit.decision().lease().is_some());
    assert_eq!(places, Ok(true));
}

#[test]
fn a_state_file_of_any_length_is_refused_without_reading_all_of_it() {
    let folder = TempFolder::new("long");
    let path = folder.path("state");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(1 << 36).unwrap();
    let (_, found) = Limiter::builder().limit("5/minute").build_from(&path).unwrap();
    assert!(matches!(found, Restored::Refused(SnapshotError::TooLarge { .. })), "{found:?}");
}

#[test]
fn a_limit_whose_states_outgrow_the_memory_is_refused() {
    let built = |text: &str, memory_bytes| {
        Limiter::builder().limit(text).memory_bytes(memory_bytes).clock(clock()).build()
    };
    let error = built("1_000_000/hour sliding-log", 16 << 20).unwrap_err().to_string();
    assert!(error.contains("bytes") && error.contains("more memory"), "{error}");
    assert!(built("1_000_000 at once", 16 << 20).is_err());
    // The largest that is not refused is really limited.
    let limiter = built("100_000/hour sliding-log", 16 << 20).unwrap();
    for _ in 0..100_000 {
        assert!(limiter.check("ann").is_allowed());
    }
    assert!(!limiter.check("ann").is_allowed());
    assert_eq!(limiter.stats().dropped, 0);
}

proptest! {
    #[test]
    fn no_input_makes_the_library_panic(
        text in "\\PC{0,24}",
        cost: u64,
        refund: u64,
        who: Vec<u8>,
        at: u64,
        advance: u64,
    ) {
        let _ = Limiter::new(&text);
        let clock = clock();
        for text in EVERY_ALGORITHM {
            let limiter = Limiter::builder().limit(text).memory_bytes(2 << 20).clock(clock.clone());
            let limiter = limiter.build().unwrap();
            let _ = limiter.check_cost(&who[..], cost);
            let _ = limiter.debit(&who[..], cost);
            let _ = limiter.refund(&who[..], refund, Timestamp::from_micros(at));
            clock.set(Timestamp::from_micros(advance));
            let _ = limiter.peek_cost(&who[..], cost);
            limiter.check_many([&who[..]; 3], |_| ());
            let _ = limiter.acquire(&who[..]);
            limiter.reset(&who[..]);
        }
    }
}

/// A folder for one test, removed when it is done.
struct TempFolder(std::path::PathBuf);

impl TempFolder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("tidegate-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
