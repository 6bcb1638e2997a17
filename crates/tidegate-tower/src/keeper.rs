//! Places under concurrency limits that a call holds. They come back by themselves after a while, in case
//! that their holder has died; so whoever lives renews them for as long as the call goes on.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// Renews the places of one call, again and again.
pub struct Keeper(Pin<Box<dyn Future<Output = ()> + Send>>);

impl Keeper {
    /// Renews every so often. What a renewal is told does not matter: who was away may be back the next
    /// time, and a place that is gone stays so.
    pub fn every<F>(period: Duration, mut renew: impl FnMut() -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send,
    {
        Self(Box::pin(async move {
            loop {
                tokio::time::sleep(period).await;
                renew().await;
            }
        }))
    }

    /// Lets it renew until the call is over. Outside of a runtime nobody can, and places last as long as
    /// their limit says.
    pub fn start(self) -> Option<Keeping> {
        let runtime = Handle::try_current().ok()?;
        Some(Keeping(runtime.spawn(self.0).abort_handle()))
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keeper")
    }
}

/// A keeper at work. It ends when this is dropped.
#[derive(Debug)]
#[must_use = "the keeper ends as soon as this is dropped"]
pub struct Keeping(AbortHandle);

impl Drop for Keeping {
    fn drop(&mut self) {
        self.0.abort();
    }
}
