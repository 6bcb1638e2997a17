//! What callers leave behind who go away, and what is told to a daemon that does not hear everything.
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with the place")]

mod fake;

use std::sync::Arc;
use std::time::Duration;

use fake::{Act, Fake, PATIENCE, until};
use tidegate::Call;
use tidegate_client::{Client, ClientError, RetryBudget};
use tidegate_proto::tidegate::v1::CheckResponse;
use tokio::sync::Semaphore;
use tonic::Code;

/// Calls that are sent together, and calls that are sent alone.
const WINDOWS: [Duration; 2] = [Duration::from_micros(200), Duration::ZERO];

fn taken() -> CheckResponse {
    CheckResponse {
        allowed: true,
        taken_at_us: Some(17),
        lease_id: Some("abc".to_owned()),
        counts_responses: true,
        ..CheckResponse::default()
    }
}

/// A daemon that takes what is asked, and answers when it is let.
fn taking() -> (Fake, Arc<Semaphore>) {
    let answers = Arc::new(Semaphore::new(0));
    let let_to = Arc::clone(&answers);
    let act = move |_| Act::After(Arc::clone(&let_to), Box::new(Act::Say(Box::new(taken()))));
    (Fake::new(act), answers)
}

fn asked(fake: &Fake) -> usize {
    fake.heard().messages.len() + fake.heard().single
}

#[tokio::test]
async fn what_was_taken_for_a_caller_that_went_away_is_given_back() {
    for window in WINDOWS {
        let (fake, answers) = taking();
        let client = fake.client().await.window(window).build().unwrap();
        let checking = tokio::spawn(async move {
            let attributes = [("key", "a").into()];
            client.check(&Call::new("api", &attributes).with_cost(3)).await
        });
        until("it is asked", || asked(&fake) == 1).await;
        checking.abort();
        assert!(checking.await.unwrap_err().is_cancelled());
        answers.add_permits(1);
        until("all is given back", || fake.heard().refunds.len() == 1).await;
        let heard = fake.heard();
        assert_eq!((heard.releases.len(), heard.releases[0].lease_id.as_str()), (1, "abc"));
        assert_eq!((heard.refunds[0].cost, heard.refunds[0].taken_at_us), (Some(3), Some(17)));
        assert_eq!(heard.refunds[0].attributes[0].value, "a");
    }
}

#[tokio::test]
async fn what_was_debited_stays_debited_whoever_hears_of_it() {
    let (fake, answers) = taking();
    let client = fake.client().await.build().unwrap();
    let debiting = tokio::spawn(async move { client.debit(&Call::new("api", &[])).await });
    until("it is asked", || asked(&fake) == 1).await;
    debiting.abort();
    assert!(debiting.await.unwrap_err().is_cancelled());
    answers.add_permits(1);
    until("the place is given back", || fake.heard().releases.len() == 1).await;
    // What is given back together is told in order, so a refund would have been next.
    let client = fake.client().await.build().unwrap();
    answers.add_permits(1);
    client.release(client.check(&Call::new("api", &[])).await.unwrap()).await.unwrap();
    assert!(fake.heard().refunds.is_empty());
}

#[tokio::test]
async fn a_release_that_is_not_heard_is_told_again() {
    for lost in [Act::Fail(Code::Unavailable), Act::Hang] {
        let say = |_| Act::Say(Box::new(taken()));
        let fake =
            Fake::hearing(say, move |told| if told == 0 { lost.clone() } else { Act::Allow });
        let client = fake.client().await.deadline(Duration::from_secs(1)).build().unwrap();
        let answer = client.check(&Call::new("api", &[])).await.unwrap();
        client.release(answer).await.unwrap();
        assert_eq!((fake.heard().told, fake.heard().releases.len()), (2, 1));
    }
}

#[tokio::test]
async fn a_refund_that_may_have_been_heard_is_not_told_again() {
    let allowed = CheckResponse { lease_id: None, ..taken() };
    let say = move |_| Act::Say(Box::new(allowed.clone()));
    for (lost, told) in [(Act::Fail(Code::Unavailable), 2), (Act::Hang, 1)] {
        let hear = move |told| if told == 0 { lost.clone() } else { Act::Allow };
        let fake = Fake::hearing(say.clone(), hear);
        let client = fake.client().await.deadline(Duration::from_secs(1)).build().unwrap();
        let answer = client.check(&Call::new("api", &[])).await.unwrap();
        let outcome = client.refund(answer).await;
        assert_eq!(outcome.is_ok(), told == 2, "{outcome:?}");
        assert_eq!(fake.heard().told, told);
    }
}

#[tokio::test]
async fn what_is_told_again_is_within_the_budget() {
    let say = |_| Act::Say(Box::new(taken()));
    let fake = Fake::hearing(say, |_| Act::Fail(Code::Unavailable));
    let builder = fake.client().await.retry_budget(RetryBudget::new(0, 2));
    let client: Client = builder.build().unwrap();
    for _ in 0..10 {
        let answer = client.check(&Call::new("api", &[])).await.unwrap();
        assert_eq!(client.release(answer).await.unwrap_err(), ClientError::Unavailable);
    }
    assert_eq!(fake.heard().told, 10 + 2);
}

#[tokio::test]
async fn only_so_much_is_told_at_the_same_time() {
    let heard = Arc::new(Semaphore::new(0));
    let let_to = Arc::clone(&heard);
    let say = |_| Act::Say(Box::new(taken()));
    let fake = Fake::hearing(say, move |_| Act::After(Arc::clone(&let_to), Box::new(Act::Allow)));
    let client = fake.client().await.build().unwrap();
    let mut telling = tokio::task::JoinSet::new();
    for _ in 0..300 {
        let answer = client.check(&Call::new("api", &[])).await.unwrap();
        let client = client.clone();
        telling.spawn(async move { client.release(answer).await });
    }
    until("some are told", || fake.heard().told == 64).await;
    // Whoever was not held back would be there before a call that comes after.
    let _answer = client.check(&Call::new("api", &[])).await.unwrap();
    assert_eq!(fake.heard().told, 64);
    heard.add_permits(300);
    let told = tokio::time::timeout(PATIENCE, telling.join_all()).await.unwrap();
    assert!(told.iter().all(Result::is_ok));
    assert_eq!(fake.heard().releases.len(), 300);
}
