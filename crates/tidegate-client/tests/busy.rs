//! More calls than can be sent in time, with a daemon that is well and with one that is not.
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with the place")]

mod fake;

use std::sync::Arc;
use std::time::Duration;

use fake::{Act, Fake, PATIENCE, until};
use tidegate::Call;
use tidegate_client::{Answer, Client, ClientError, WhileAway};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

#[tokio::test]
async fn a_flood_does_not_make_the_daemon_count_as_away() {
    // More than may wait to be sent.
    const CALLERS: usize = 70_000;
    let fake = Fake::new(|_| Act::Allow);
    let client = fake.client().await.while_away(WhileAway::Allow).build().unwrap();
    let mut checking = JoinSet::new();
    for _ in 0..CALLERS {
        let client = client.clone();
        checking.spawn(async move { client.check(&Call::new("api", &[])).await });
    }
    let answers = tokio::time::timeout(PATIENCE, checking.join_all()).await.unwrap();
    assert!(answers.into_iter().all(|answer| !answer.unwrap().is_fallback()));
    assert_eq!(fake.heard().messages.iter().sum::<usize>(), CALLERS);
}

/// Six calls, each as large as a message, of which two are under way at a time. The daemon answers so many of
/// them, and then says nothing more.
async fn six_of_which_are_answered(answered: usize) -> Vec<Result<Answer, ClientError>> {
    let answers = Arc::new(Semaphore::new(0));
    let let_to = Arc::clone(&answers);
    let fake = Fake::new(move |_| Act::After(Arc::clone(&let_to), Box::new(Act::Allow)));
    let builder = fake.client().await.connections(1).while_away(WhileAway::Allow);
    let client = builder.deadline(Duration::from_secs(2)).build().unwrap();
    let checking: Vec<_> = (0..6).map(|_| tokio::spawn(check_large(client.clone()))).collect();
    until("two are under way", || fake.heard().messages.len() == 2).await;
    answers.add_permits(answered);
    let mut outcomes = Vec::new();
    for checking in checking {
        outcomes.push(checking.await.unwrap());
    }
    assert_eq!(fake.heard().messages.len(), 2 + answered);
    outcomes
}

async fn check_large(client: Client) -> Result<Answer, ClientError> {
    let value = "x".repeat(40 << 10);
    let attributes = [("key", value.as_str()).into()];
    client.check(&Call::new("api", &attributes)).await
}

#[tokio::test]
async fn a_call_that_is_not_sent_in_time_is_busy_and_does_not_pass() {
    let mut outcomes = six_of_which_are_answered(1).await;
    // The daemon was heard while they waited, so it is not away.
    for late in outcomes.drain(3..) {
        assert_eq!(late.unwrap_err(), ClientError::Busy);
    }
    let mut fallbacks: Vec<_> =
        outcomes.into_iter().map(|outcome| outcome.unwrap().is_fallback()).collect();
    fallbacks.sort_unstable();
    assert_eq!(fallbacks, [false, true, true]);
}

#[tokio::test]
async fn while_nothing_is_heard_calls_that_are_not_sent_are_decided_here_too() {
    for outcome in six_of_which_are_answered(0).await {
        assert!(outcome.unwrap().is_fallback());
    }
}
