//! Commands that a store has to be asked about. Those of one read are sent together and answered in
//! order, as if they had come one after the other. Where memory decides, there are none.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use futures_util::future::join_all;

/// The most commands that a store is asked about at a time, for one connection.
const WAITING_MAX: usize = crate::engine::TOGETHER_MAX;

/// Answers in the making. Who drops it asks nothing more.
pub type Asking = Pin<Box<dyn Future<Output = Vec<u8>> + Send>>;

/// What is to be asked, in order.
#[derive(Default)]
pub(super) struct Waiting {
    asked: Vec<Asked>,
}

struct Asked {
    /// Where its answer goes, in what has been answered already.
    at: usize,
    order: Order,
    asking: Asking,
}

/// What may be under way at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// One step in the store, which takes the steps in the order that they are sent in.
    Together,
    /// Begins when all before it are answered, and nothing after it begins before it is.
    Alone,
}

impl Waiting {
    /// Adds a command whose answer goes behind the first `at` bytes that are there already.
    pub(super) fn push(
        &mut self,
        at: usize,
        order: Order,
        asking: impl Future<Output = Vec<u8>> + Send + 'static,
    ) {
        self.asked.push(Asked { at, order, asking: Box::pin(asking) });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.asked.len() >= WAITING_MAX
    }

    /// Asks, and puts the answers where they belong in `said`.
    pub(super) async fn answers(self, said: Vec<u8>) -> Vec<u8> {
        let (mut answers, mut copied) = (Vec::with_capacity(said.len()), 0);
        let mut put = |places: &mut Vec<usize>, answered: Vec<Vec<u8>>| {
            for (at, answer) in places.drain(..).zip(answered) {
                answers.extend_from_slice(&said[copied..at]);
                answers.extend_from_slice(&answer);
                copied = at;
            }
        };
        let (mut places, mut together) = (Vec::new(), Vec::new());
        for Asked { at, order, asking } in self.asked {
            if order == Order::Alone {
                put(&mut places, join_all(together.drain(..)).await);
                put(&mut vec![at], vec![asking.await]);
            } else {
                places.push(at);
                together.push(asking);
            }
        }
        put(&mut places, join_all(together).await);
        answers.extend_from_slice(&said[copied..]);
        answers
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("asked", &self.asked.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Notes when it begins and when it ends, with a pause in between.
    fn slow(
        name: &'static str,
        told: &Arc<Mutex<Vec<String>>>,
    ) -> impl Future<Output = Vec<u8>> + use<> {
        let told = Arc::clone(told);
        async move {
            told.lock().expect("lines").push(format!("{name} begins"));
            tokio::task::yield_now().await;
            told.lock().expect("lines").push(format!("{name} ends"));
            name.as_bytes().to_vec()
        }
    }

    #[tokio::test]
    async fn answers_stand_where_their_commands_stood() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = Waiting::default();
        waiting.push(0, Order::Together, slow("a", &told));
        waiting.push(2, Order::Alone, slow("b", &told));
        waiting.push(2, Order::Together, slow("c", &told));
        waiting.push(4, Order::Together, slow("d", &told));
        assert_eq!(waiting.answers(b"123456".to_vec()).await, b"a12bc34d56");
    }

    #[tokio::test]
    async fn what_goes_together_begins_before_the_first_has_ended_and_what_goes_alone_waits() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = Waiting::default();
        waiting.push(0, Order::Together, slow("a", &told));
        waiting.push(0, Order::Together, slow("b", &told));
        waiting.push(0, Order::Alone, slow("c", &told));
        waiting.push(0, Order::Together, slow("d", &told));
        waiting.answers(Vec::new()).await;
        let expected = ["a begins", "b begins", "a ends", "b ends", "c begins", "c ends"];
        assert_eq!(told.lock().expect("lines")[..6], expected);
    }
}
