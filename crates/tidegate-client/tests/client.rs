//! The client against a daemon that does what a test says: batches, deadlines, retries, fallbacks.
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with the place")]

mod fake;

use std::sync::Arc;
use std::time::Duration;

use fake::{Act, Fake, PATIENCE, until};
use tidegate::{Call, RuleLimiter};
use tidegate_client::{Client, ClientBuilder, ClientError, ConfigError, RetryBudget, WhileAway};
use tidegate_proto::tidegate::v1::{CheckResponse, LimitStatus};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::Code;

async fn check(client: &Client, value: &str) -> Result<tidegate_client::Answer, ClientError> {
    let attributes = [("key", value).into()];
    let call = Call::new("api", &attributes);
    tokio::time::timeout(PATIENCE, client.check(&call)).await.unwrap()
}

/// Makes calls at the same time; each has to get its own answer.
async fn check_together(client: &Client, calls: usize, padding: usize) {
    let mut checking = JoinSet::new();
    for number in 0..calls {
        let client = client.clone();
        checking.spawn(async move {
            let value = format!("{number}-{}", "x".repeat(padding));
            let answer = check(&client, &value).await.unwrap();
            assert_eq!(answer.rule(), Some(value.as_str()));
        });
    }
    checking.join_all().await;
}

#[tokio::test]
async fn calls_made_at_the_same_time_share_a_message() {
    let fake = Fake::new(|_| Act::Allow);
    let client = fake.client().await.build().unwrap();
    check_together(&client, 500, 0).await;
    let messages = fake.heard().messages;
    assert_eq!(messages.iter().sum::<usize>(), 500);
    assert!(messages.len() <= 20, "{messages:?}");
}

#[tokio::test]
async fn a_call_alone_is_sent_alone_and_without_a_window_all_are() {
    let fake = Fake::new(|_| Act::Allow);
    let client = fake.client().await.build().unwrap();
    check_together(&client, 1, 0).await;
    assert_eq!(fake.heard().messages, [1]);
    let client = fake.client().await.window(Duration::ZERO).build().unwrap();
    check_together(&client, 10, 0).await;
    assert_eq!(fake.heard().single, 10);
}

#[tokio::test]
async fn calls_that_linger_share_a_message_with_those_that_come_within_that_time() {
    // More than a machine that is busy with something else takes for the calls below.
    const LINGER: Duration = Duration::from_secs(1);
    let fake = Fake::new(|_| Act::Allow);
    let client = fake.client().await.linger(LINGER).deadline(PATIENCE).build().unwrap();
    let mut checking = JoinSet::new();
    let began = Instant::now();
    for _ in 0..5 {
        let client = client.clone();
        checking.spawn(async move { check(&client, "a").await.unwrap() });
        // Everything that is to be done is done before the next one comes.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    checking.join_all().await;
    assert_eq!(fake.heard().messages, [5]);
    assert!(began.elapsed() >= LINGER);
    // What one message does not hold waits no longer than any other.
    let began = Instant::now();
    check_together(&client, 30, 5_000).await;
    assert_eq!(fake.heard().messages, [5, 12, 12, 6]);
    assert!(began.elapsed() < LINGER * 2, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_message_that_is_full_goes_at_once_though_its_calls_would_linger() {
    // The most calls of a message; and as many of those with so many bytes as are too much for one.
    for (calls, in_one, padding) in [(1_000, 1_000, 0), (13, 12, 5_000)] {
        let fake = Fake::new(|_| Act::Allow);
        // Longer than anybody waits here.
        let builder = fake.client().await.linger(PATIENCE * 10).deadline(PATIENCE * 20);
        let client = builder.build().unwrap();
        let mut checking = JoinSet::new();
        for number in 0..calls {
            let (client, value) = (client.clone(), "x".repeat(padding));
            checking.spawn(async move { check(&client, &value).await.unwrap() });
            if number == 0 {
                // It is waiting by the time that the others come.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        for _ in 0..in_one {
            assert!(checking.join_next().await.unwrap().unwrap().is_allowed());
        }
        assert_eq!(fake.heard().messages, [in_one]);
        checking.abort_all();
    }
}

#[tokio::test]
async fn calls_that_come_while_all_messages_are_under_way_linger_too() {
    const LINGER: Duration = Duration::from_millis(500);
    let answers = Arc::new(Semaphore::new(0));
    let let_to = Arc::clone(&answers);
    let fake = Fake::new(move |_| Act::After(Arc::clone(&let_to), Box::new(Act::Allow)));
    let builder = fake.client().await.connections(1).linger(LINGER).deadline(PATIENCE);
    let client = builder.build().unwrap();
    let mut checking = JoinSet::new();
    let mut ask = |client: &Client| {
        let client = client.clone();
        checking.spawn(async move { check(&client, "a").await.unwrap() });
    };
    for sent in 1..=2 {
        ask(&client);
        until("it is sent", || fake.heard().messages.len() == sent).await;
    }
    ask(&client);
    tokio::task::yield_now().await;
    answers.add_permits(2);
    until("they are answered", || answers.available_permits() == 0).await;
    ask(&client);
    answers.add_permits(1);
    checking.join_all().await;
    assert_eq!(fake.heard().messages, [1, 1, 2]);
}

#[tokio::test]
async fn calls_fifty_microseconds_apart_share_a_message_where_they_linger() {
    const ROUNDS: usize = 50;
    let fake = Fake::new(|_| Act::Allow);
    let client = fake.client().await.linger(ClientBuilder::WINDOW_DEFAULT).build().unwrap();
    for _ in 0..ROUNDS {
        let first = tokio::spawn({
            let client = client.clone();
            async move { check(&client, "a").await.unwrap() }
        });
        let apart = Instant::now();
        while apart.elapsed() < Duration::from_micros(50) {
            tokio::task::yield_now().await;
        }
        assert!(check(&client, "b").await.unwrap().is_allowed());
        assert!(first.await.unwrap().is_allowed());
    }
    // Now and then something else has the processor for longer than the window.
    let messages = fake.heard().messages;
    let shared = messages.iter().filter(|calls| **calls == 2).count();
    assert!(shared >= ROUNDS / 4, "{messages:?}");
}

#[tokio::test]
async fn a_call_that_is_tried_again_does_not_linger_again() {
    const LINGER: Duration = Duration::from_secs(1);
    let fake = Fake::new(|message| match message {
        0 | 1 => Act::Fail(Code::Unavailable),
        _ => Act::Allow,
    });
    // There is time to linger once, and the daemon would be left none.
    let client = fake.client().await.linger(LINGER).deadline(LINGER * 2).build().unwrap();
    assert!(check(&client, "a").await.unwrap().is_allowed());
    assert_eq!(fake.heard().messages, [1, 1, 1]);
}

#[tokio::test]
async fn a_call_that_is_tried_again_does_not_linger_with_another() {
    const LINGER: Duration = Duration::from_secs(1);
    let fails = Arc::new(Semaphore::new(0));
    let let_to = Arc::clone(&fails);
    let fake = Fake::new(move |message| match message {
        0 => Act::After(Arc::clone(&let_to), Box::new(Act::Fail(Code::Unavailable))),
        _ => Act::Allow,
    });
    let client = fake.client().await.linger(LINGER).deadline(LINGER * 2).build().unwrap();
    let asking = |value| {
        let client = client.clone();
        tokio::spawn(async move { check(&client, value).await.unwrap() })
    };
    let first = asking("a");
    until("it is sent", || fake.heard().messages.len() == 1).await;
    let second = asking("b");
    tokio::time::sleep(LINGER / 50).await;
    fails.add_permits(1);
    assert!(first.await.unwrap().is_allowed() && second.await.unwrap().is_allowed());
    assert_eq!(fake.heard().messages, [1, 2]);
}

/// A client may be asked from several runtimes.
#[tokio::test]
async fn a_runtime_that_ends_while_calls_linger_leaves_those_of_others_alone() {
    const LINGER: Duration = Duration::from_secs(1);
    let fake = Fake::new(|_| Act::Allow);
    let builder = fake.client().await.linger(LINGER).deadline(LINGER * 10);
    let client = builder.build().unwrap();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let elsewhere = runtime.worker_threads(1).enable_all().build().unwrap();
    let asking = |value| {
        let client = client.clone();
        async move { check(&client, value).await }
    };
    let first = elsewhere.spawn(asking("a"));
    tokio::time::sleep(LINGER / 10).await;
    let second = tokio::spawn(asking("b"));
    tokio::time::sleep(LINGER / 10).await;
    tokio::task::spawn_blocking(|| drop(elsewhere)).await.unwrap();
    assert!(first.await.unwrap_err().is_cancelled());
    assert!(second.await.unwrap().unwrap().is_allowed());
    assert_eq!(fake.heard().messages, [1]);
}

/// Nobody drives it, and it is still there.
#[test]
fn a_runtime_that_stands_still_holds_up_no_calls_of_others() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let fake = Fake::new(|_| Act::Allow);
    let mut home = tokio::runtime::Builder::new_multi_thread();
    let home = home.worker_threads(1).enable_all().build().unwrap();
    let client = home.block_on(async {
        let builder = fake.client().await.linger(Duration::from_millis(500));
        builder.deadline(Duration::from_secs(5)).build().unwrap()
    });
    let (still, other) = (runtime(), runtime());
    still.block_on(async {
        let time = Duration::from_millis(20);
        assert!(tokio::time::timeout(time, check(&client, "a")).await.is_err());
    });
    assert!(other.block_on(check(&client, "b")).unwrap().is_allowed());
}

#[tokio::test]
async fn while_messages_are_under_way_the_next_one_gathers() {
    let answers = Arc::new(Semaphore::new(0));
    let let_to = Arc::clone(&answers);
    let fake = Fake::new(move |_| Act::After(Arc::clone(&let_to), Box::new(Act::Allow)));
    let client = fake.client().await.connections(1).build().unwrap();
    let mut checking = JoinSet::new();
    for calls in 1..=52 {
        let client = client.clone();
        checking.spawn(async move { check(&client, "a").await.unwrap() });
        // Two go alone, one after the other. From then on nobody sends, however late the next one comes.
        until("it is sent", || fake.heard().messages.len() == calls.min(2)).await;
    }
    answers.add_permits(52);
    checking.join_all().await;
    assert_eq!(fake.heard().messages, [1, 1, 50]);
}

#[tokio::test]
async fn no_message_is_larger_than_the_daemon_takes() {
    let fake = Fake::new(|_| Act::Allow);
    let client = fake.client().await.build().unwrap();
    check_together(&client, 100, 5_000).await;
    check_together(&client, 3_000, 0).await;
    assert!(fake.heard().messages.iter().all(|calls| *calls <= 1_000));
}

#[tokio::test]
async fn a_daemon_that_does_not_answer_is_waited_for_until_the_deadline() {
    // The message has to be on its way by then, on a machine that is busy with something else too.
    const DEADLINE: Duration = Duration::from_secs(2);
    let fake = Fake::new(|_| Act::Hang);
    let client = fake.client().await.deadline(DEADLINE).build().unwrap();
    let start = Instant::now();
    assert_eq!(check(&client, "a").await.unwrap_err(), ClientError::NoAnswer);
    assert!(start.elapsed() >= DEADLINE);
    // It may have been decided, so it is not asked again.
    assert_eq!(fake.heard().messages, [1]);
}

#[tokio::test]
async fn what_took_nothing_is_tried_again() {
    let fake = Fake::new(|message| match message {
        0 | 1 => Act::Fail(Code::Unavailable),
        _ => Act::Allow,
    });
    let client = fake.client().await.build().unwrap();
    assert!(check(&client, "a").await.unwrap().is_allowed());
    assert_eq!(fake.heard().messages.len(), 3);
}

#[tokio::test]
async fn retries_stay_within_their_budget() {
    // Every fourth message is answered, so that the daemon never counts as away.
    let fake = Fake::new(|message| match message % 4 {
        3 => Act::Allow,
        _ => Act::Fail(Code::Unavailable),
    });
    let client = fake.client().await.retry_budget(RetryBudget::new(10, 5)).build().unwrap();
    for _ in 0..200 {
        // What has no retry left fails, and is asked again as another call.
        let _outcome = check(&client, "a").await;
    }
    // Five that were there and a tenth of the calls. Without a budget there would be three for each call.
    let messages = fake.heard().messages.len();
    assert!((220..=225).contains(&messages), "{messages}");
}

#[tokio::test]
async fn a_message_that_fails_is_one_failure_whatever_is_in_it() {
    let fake = Fake::new(|message| match message {
        1 => Act::Allow,
        _ => Act::Fail(Code::Internal),
    });
    let client = fake.client().await.build().unwrap();
    let mut checking = JoinSet::new();
    for _ in 0..10 {
        let client = client.clone();
        checking.spawn(async move { check(&client, "a").await });
    }
    assert!(checking.join_all().await.iter().all(Result::is_err));
    assert_eq!(fake.heard().messages, [10]);
    assert!(check(&client, "a").await.is_ok());
    // Five of them in a row are what it takes.
    for _ in 0..5 {
        assert_eq!(check(&client, "a").await.unwrap_err(), ClientError::NoAnswer);
    }
    assert_eq!(fake.heard().messages.len(), 7);
    for _ in 0..100 {
        assert!(check(&client, "a").await.is_err());
    }
    assert!(fake.heard().messages.len() < 50, "it counts as away");
}

#[tokio::test]
async fn while_the_daemon_hangs_callers_do_not_queue_up_behind_it() {
    let fake = Fake::new(|_| Act::Hang);
    let deadline = Duration::from_millis(20);
    let builder = fake.client().await.deadline(deadline).while_away(WhileAway::Allow);
    let client = builder.build().unwrap();
    for _ in 0..1_000 {
        let answer = check(&client, "a").await.unwrap();
        assert!(answer.is_allowed() && answer.is_fallback() && answer.is_degraded());
    }
    // At one deadline each this would have taken a thousand messages.
    assert!(fake.heard().messages.len() < 100, "{}", fake.heard().messages.len());
}

#[tokio::test]
async fn a_local_limiter_stands_in_while_the_daemon_is_away() {
    let gone = tidegate_testing::free_address();
    let rules = "{ domain: api, rules: [ { name: share, per: [key], limit: 2/day } ] }";
    let local = Arc::new(RuleLimiter::new(rules).unwrap());
    let builder = Client::builder(format!("http://{gone}")).deadline(PATIENCE);
    let client = builder.clone().while_away(WhileAway::Local(local)).build().unwrap();
    for (key, allowed) in [("a", true), ("a", true), ("a", false), ("b", true)] {
        let answer = check(&client, key).await.unwrap();
        assert_eq!(answer.is_allowed(), allowed);
        assert!(answer.is_fallback());
        assert_eq!(answer.rule(), Some("share"));
    }
    let refusing = builder.build().unwrap();
    assert_eq!(check(&refusing, "a").await.unwrap_err(), ClientError::Unavailable);
}

#[tokio::test]
async fn what_the_daemon_cannot_decide_is_not_decided_here() {
    let fake = Fake::new(|_| Act::Undecided);
    let client = fake.client().await.while_away(WhileAway::Allow).build().unwrap();
    for _ in 0..10 {
        assert_eq!(check(&client, "a").await.unwrap_err(), ClientError::Undecided);
    }
    assert_eq!(fake.heard().messages.len(), 10);
}

#[tokio::test]
async fn a_denied_call_is_made_again_when_the_daemon_says_so() {
    let denied = CheckResponse { retry_after_ms: Some(30), ..CheckResponse::default() };
    let never = CheckResponse { reason: Some("never-fits".to_owned()), ..CheckResponse::default() };
    let fake = Fake::new(move |message| match message {
        0 | 1 => Act::Say(Box::new(denied.clone())),
        2 => Act::Allow,
        3 => Act::Say(Box::new(CheckResponse { retry_after_ms: Some(60_000), ..denied.clone() })),
        _ => Act::Say(Box::new(never.clone())),
    });
    let client = fake.client().await.build().unwrap();
    let call = Call::new("api", &[]);
    let start = Instant::now();
    assert!(client.acquire(&call, PATIENCE).await.unwrap().is_allowed());
    assert!(start.elapsed() >= Duration::from_millis(60));
    // What takes too long or never helps is not waited for.
    for reason in ["over-limit", "never-fits"] {
        let answer = client.acquire(&call, Duration::from_secs(30)).await.unwrap();
        assert_eq!(answer.reason().unwrap().as_str(), reason);
    }
    assert_eq!(fake.heard().messages.len(), 5);
}

#[tokio::test]
async fn what_was_taken_is_given_back_by_its_own_name() {
    let taken = CheckResponse {
        allowed: true,
        taken_at_us: Some(17),
        lease_id: Some("abc".to_owned()),
        counts_responses: true,
        ..CheckResponse::default()
    };
    let fake = Fake::new(move |_| Act::Say(Box::new(taken.clone())));
    let client = fake.client().await.build().unwrap();
    let mut answer = check(&client, "a").await.unwrap();
    assert!(answer.holds_places() && answer.counts_responses());
    client.count_response(&mut answer, 401).await.unwrap();
    assert!(!answer.counts_responses());
    client.count_response(&mut answer, 200).await.unwrap();
    client.release(answer).await.unwrap();
    client.refund(check(&client, "b").await.unwrap()).await.unwrap();
    let heard = fake.heard();
    let [told] = &heard.responses[..] else { panic!("told once") };
    assert_eq!((told.status, told.taken_at_us, told.cost), (401, 17, Some(1)));
    assert_eq!(heard.releases.len(), 2);
    assert!(heard.releases.iter().all(|release| release.lease_id == "abc"));
    let [refund] = &heard.refunds[..] else { panic!("one refund") };
    assert_eq!((refund.taken_at_us, refund.attributes[0].value.as_str()), (Some(17), "b"));
}

#[tokio::test]
async fn nobody_gets_the_answer_of_somebody_else() {
    for answers in [0, 9, 11, 20] {
        let fake = Fake::new(move |_| Act::Answers(answers));
        let client = fake.client().await.build().unwrap();
        let mut checking = JoinSet::new();
        for number in 0..10 {
            let client = client.clone();
            checking.spawn(async move { check(&client, &number.to_string()).await });
        }
        for answer in checking.join_all().await {
            assert_eq!(answer.unwrap_err(), ClientError::NoAnswer);
        }
        assert_eq!(fake.heard().messages, [10]);
    }
}

#[tokio::test]
async fn answers_may_be_as_large_as_rules_make_them() {
    let limit =
        LimitStatus { rule: "n".repeat(128), name: "n".repeat(128), ..LimitStatus::default() };
    let allowed =
        CheckResponse { allowed: true, limits: vec![limit; 32], ..CheckResponse::default() };
    let fake = Fake::new(move |_| Act::Say(Box::new(allowed.clone())));
    let client = fake.client().await.build().unwrap();
    let mut checking = JoinSet::new();
    for _ in 0..1_000 {
        let client = client.clone();
        checking.spawn(async move { check(&client, "a").await.unwrap() });
    }
    assert!(checking.join_all().await.iter().all(tidegate_client::Answer::is_allowed));
    // Together they are more than 4 MiB.
    assert_eq!(fake.heard().messages, [1_000]);
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_may_have_taken_something() {
    let limit = LimitStatus { text: "x".repeat(70_000), ..LimitStatus::default() };
    let allowed = CheckResponse { allowed: true, limits: vec![limit], ..CheckResponse::default() };
    let fake = Fake::new(move |_| Act::Say(Box::new(allowed.clone())));
    let client = fake.client().await.build().unwrap();
    assert_eq!(check(&client, "a").await.unwrap_err(), ClientError::NoAnswer);
    assert_eq!(fake.heard().messages, [1]);
}

#[tokio::test]
async fn a_call_that_is_too_large_is_refused_here() {
    let fake = Fake::new(|_| Act::Allow);
    for window in [Duration::ZERO, Duration::from_micros(200)] {
        let builder = fake.client().await.while_away(WhileAway::Allow);
        let client = builder.window(window).build().unwrap();
        for _ in 0..10 {
            let error = check(&client, &"x".repeat(61 << 10)).await.unwrap_err();
            assert_eq!(error, ClientError::Call);
        }
        assert!(!check(&client, "a").await.unwrap().is_fallback());
    }
    assert_eq!((fake.heard().messages.len(), fake.heard().single), (1, 1));
}

/// Hands connections on to `to`, and counts them; all of them break when the handle is told to.
async fn breakable(to: std::net::SocketAddr) -> (std::net::SocketAddr, Arc<tokio::sync::Notify>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let broken = Arc::new(tokio::sync::Notify::new());
    let breaks = Arc::clone(&broken);
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let broken = Arc::clone(&broken);
            tokio::spawn(async move {
                let mut far = tokio::net::TcpStream::connect(to).await.unwrap();
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    () = broken.notified() => {}
                }
            });
        }
    });
    (address, breaks)
}

#[tokio::test]
async fn a_call_whose_connection_broke_is_not_charged_twice() {
    let fake = Fake::new(|_| Act::Hang);
    let (address, breaks) = breakable(fake.serve().await).await;
    for window in [Duration::ZERO, Duration::from_micros(200)] {
        let before = fake.heard().messages.len() + fake.heard().single;
        let builder = Client::builder(format!("http://{address}")).deadline(PATIENCE);
        let client = builder.window(window).build().unwrap();
        let checking = tokio::spawn(async move { check(&client, "a").await });
        let heard = || fake.heard().messages.len() + fake.heard().single - before;
        while heard() == 0 {
            tokio::task::yield_now().await;
        }
        breaks.notify_waiters();
        assert_eq!(checking.await.unwrap().unwrap_err(), ClientError::NoAnswer);
        assert_eq!(heard(), 1, "it may have been decided, so it is not asked again");
    }
}

#[tokio::test]
async fn for_ever_is_a_deadline_and_a_time_to_wait() {
    let denied = CheckResponse { retry_after_ms: Some(1), ..CheckResponse::default() };
    let fake = Fake::new(move |message| match message {
        0..3 => Act::Say(Box::new(denied.clone())),
        _ => Act::Allow,
    });
    let client = fake.client().await.deadline(Duration::MAX).build().unwrap();
    let answer = client.acquire(&Call::new("api", &[]), Duration::MAX).await.unwrap();
    assert!(answer.is_allowed());
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused() {
    let error = |builder: ClientBuilder| builder.build().unwrap_err();
    let builder = Client::builder("http://127.0.0.1:1");
    assert_eq!(error(builder.clone().connections(0)), ConfigError::Zero("connections"));
    let zero = Duration::ZERO;
    assert_eq!(error(builder.clone().deadline(zero)), ConfigError::Zero("deadline"));
    assert_eq!(error(builder.clone().keep_alive(zero)), ConfigError::Zero("keep_alive"));
    let half = ClientBuilder::DEADLINE_DEFAULT / 2;
    let longer = builder.clone().linger(half + Duration::from_nanos(1));
    assert_eq!(error(longer), ConfigError::Linger);
    assert_eq!(error(builder.linger(Duration::MAX).deadline(Duration::MAX)), ConfigError::Linger);
}

#[tokio::test]
async fn addresses_that_cannot_work_are_refused() {
    let error = |address: &str| Client::connect(address).unwrap_err();
    let none =
        ["not an address", "", "/", "localhost", "127.0.0.1:8081", "unix:/a.sock", "http://:8081"];
    for address in none {
        assert_eq!(error(address), ConfigError::Address, "{address}");
    }
    for address in ["https://127.0.0.1:8081", "ftp://127.0.0.1:8081"] {
        assert_eq!(error(address), ConfigError::Scheme, "{address}");
        assert!(error(address).to_string().contains("http://"));
    }
    for address in ["http://127.0.0.1:8081", "HTTP://tidegate:8081/", "http://[::1]:8081"] {
        assert!(Client::connect(address).is_ok(), "{address}");
    }
}
