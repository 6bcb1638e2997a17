//! A connection that has changed its protocol, as to WebSocket: bytes in both directions, until an end closes,
//! nothing has passed for too long, or the gateway ends.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tidegate_server::listen::accept::Shutdown;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};

use super::ended::Ended;

/// Opens a tunnel between two ends once both have changed. `ended` is held until it closes.
pub(crate) fn open(
    shutdown: &Shutdown,
    (client, server): (OnUpgrade, OnUpgrade),
    mut ended: Ended,
    idle_timeout: Duration,
) {
    // The connection belongs to the tunnel, and can carry no request any more.
    if let Some(lent) = ended.lent.take() {
        lent.keep_out();
    }
    let cut = shutdown.cut.clone();
    shutdown.connections.spawn(async move {
        cut.run_until_cancelled(carry(client, server, idle_timeout)).await;
        drop(ended);
    });
}

async fn carry(client: OnUpgrade, server: OnUpgrade, idle_timeout: Duration) {
    let Ok((client, server)) = tokio::try_join!(client, server) else { return };
    let passed = Arc::new(AtomicU64::new(0));
    let mut client = Watched { io: TokioIo::new(client), passed: Arc::clone(&passed) };
    let mut server = Watched { io: TokioIo::new(server), passed: Arc::clone(&passed) };
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

/// Counts the reads that brought something.
struct Watched<T> {
    io: T,
    passed: Arc<AtomicU64>,
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let read = Pin::new(&mut this.io).poll_read(context, buffer);
        if read.is_ready() {
            this.passed.fetch_add(1, Ordering::Relaxed);
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(context)
    }
}
