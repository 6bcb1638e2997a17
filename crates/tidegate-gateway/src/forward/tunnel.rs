//! A connection that has changed its protocol, as to WebSocket: bytes in both directions, until an end closes,
//! nothing has passed for too long, or the gateway ends.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tidegate_server::listen::accept::Shutdown;
use tokio::io::copy_bidirectional;
use tokio_util::sync::CancellationToken;

use super::ended::Ended;
use crate::watched::{Watch, Watched};

/// Opens a tunnel between two ends once both have changed. `ended` is held until it closes, which is told by what is
/// returned.
pub(crate) fn open(
    shutdown: &Shutdown,
    (client, server): (OnUpgrade, OnUpgrade),
    mut ended: Ended,
    idle_timeout: Duration,
) -> Closed {
    // The connection belongs to the tunnel, and can carry no request any more.
    if let Some(lent) = ended.lent.take() {
        lent.keep_out();
    }
    let cut = shutdown.cut.clone();
    let closed = CancellationToken::new();
    let closes = closed.clone().drop_guard();
    shutdown.connections.spawn(async move {
        cut.run_until_cancelled(carry(client, server, idle_timeout)).await;
        drop((ended, closes));
    });
    Closed(closed)
}

/// Tells when a tunnel has closed.
pub(crate) struct Closed(pub(crate) CancellationToken);

thread_local! {
    static OPENED: Cell<Option<Closed>> = const { Cell::new(None) };
}

impl Closed {
    /// Notes it for whoever runs what sends to the client: over HTTP/2 hyper begins that by itself, in the same turn of the
    /// same thread.
    pub(crate) fn note(self) {
        OPENED.set(Some(self));
    }

    /// What was noted last on this thread since this was called before.
    pub(crate) fn take() -> Option<Self> {
        OPENED.take()
    }
}

async fn carry(client: OnUpgrade, server: OnUpgrade, idle_timeout: Duration) {
    let Ok((client, server)) = tokio::try_join!(client, server) else { return };
    let passed = Arc::new(AtomicU64::new(0));
    let counted = |end| Watched::new(TokioIo::new(end), Count(Arc::clone(&passed)));
    let (mut client, mut server) = (counted(client), counted(server));
    // However it ends, both connections end with it.
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        () = idle(&passed, idle_timeout) => {}
    }
}

/// Ends when nothing has passed for that long.
async fn idle(passed: &AtomicU64, idle_timeout: Duration) {
    let mut before = u64::MAX;
    loop {
        // ORDERING: the number stands for itself, here and below.
        let now = passed.load(Ordering::Relaxed);
        if now == before {
            return;
        }
        before = now;
        tokio::time::sleep(idle_timeout).await;
    }
}

/// Counts the reads.
struct Count(Arc<AtomicU64>);

impl Watch for Count {
    fn came(&mut self, _: &mut [u8]) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
