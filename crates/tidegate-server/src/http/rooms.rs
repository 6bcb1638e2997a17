//! How much one connection can make us keep at a time. Over HTTP/2 a client can have a thousand requests
//! under way, send half of each body, and take nothing of any answer.

use std::sync::Arc;

use ::http::Response;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Answered;

/// How many ordinary bodies are read at once on one connection.
const SMALL_MAX: usize = 64;
/// How many large things there are at once on one connection: batches, from the first byte of the body to the
/// last one of the answer, and pages of metrics.
const LARGE_MAX: usize = 4;

/// The rooms of one connection. Large things have rooms of their own, so nothing small waits for them.
#[derive(Debug)]
pub(super) struct Rooms {
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

/// A room that is given back when this is dropped.
#[derive(Debug)]
pub(super) struct Room {
    /// Nobody closes the rooms, so there is always one.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Default for Rooms {
    fn default() -> Self {
        let [small, large] = [SMALL_MAX, LARGE_MAX].map(|count| Arc::new(Semaphore::new(count)));
        Self { small, large }
    }
}

impl Rooms {
    /// Waits for a room for an ordinary body.
    pub(super) async fn small(&self) -> Room {
        Room { _permit: Arc::clone(&self.small).acquire_owned().await.ok() }
    }

    /// Waits for a room for a large body or answer.
    pub(super) async fn large(&self) -> Room {
        Room { _permit: Arc::clone(&self.large).acquire_owned().await.ok() }
    }
}

impl Room {
    /// The same answer, which keeps the room until all of its body is sent or nobody wants it any more.
    pub(super) async fn until_taken(self, answer: Answered) -> Answered {
        let (parts, body) = answer.into_parts();
        let Ok(body) = body.collect().await;
        let kept = Kept { body: body.to_bytes(), _room: self };
        Response::from_parts(parts, Full::new(Bytes::from_owner(kept)))
    }
}

struct Kept {
    body: Bytes,
    _room: Room,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}
