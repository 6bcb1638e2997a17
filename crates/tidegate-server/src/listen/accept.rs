//! Connections from a socket: never more at once than the bound, and never the end of the daemon,
//! whatever the system says.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::bell::Bell;
use super::{Listener, Peer, Service, Stream};

/// How long to wait before the next try where the system has nothing to give, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// When to stop, and what is to be waited for then.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    /// No further connections, and no further requests on those that are there.
    pub drain: CancellationToken,
    /// The end of every connection, whatever is under way.
    pub cut: CancellationToken,
    /// The connections.
    pub connections: TaskTracker,
}

/// Accepts connections until the drain begins, and serves each as a task of its own. Those beyond the
/// bound wait in the system's queue until another one ends.
pub async fn accept<F>(
    service: Service,
    listener: Listener,
    connections_max: usize,
    shutdown: Shutdown,
    serve: impl Fn(Stream, Peer) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
    let mut pause = Pause::default();
    loop {
        let next = shutdown.drain.run_until_cancelled(next(&listener, &places));
        let Some(Some((place, accepted))) = next.await else { return };
        match accepted {
            Ok((stream, peer)) => {
                pause = Pause::default();
                let (connection, cut) = (serve(stream, peer), shutdown.cut.clone());
                shutdown.connections.spawn(async move {
                    until(&cut, connection).await;
                    drop(place);
                });
            }
            // It was gone before we came to it.
            Err(error) if is_the_clients(&error) => {}
            Err(error) => {
                drop(place);
                if pause.is_first() {
                    let service = service.name();
                    tracing::warn!(service, %error, "no connection could be accepted; trying on");
                }
                shutdown.drain.run_until_cancelled(tokio::time::sleep(pause.next())).await;
            }
        }
    }
}

/// Serves a connection until it ends, or is cut off.
async fn until(cut: &CancellationToken, connection: impl Future<Output = ()>) {
    let (mut cut, mut bell) = (pin!(cut.cancelled()), Bell::default());
    let mut connection = pin!(connection);
    poll_fn(|context| match bell.poll(context, |context| cut.as_mut().poll(context)) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => connection.as_mut().poll(context),
    })
    .await;
}

type Place = tokio::sync::OwnedSemaphorePermit;

/// A place, and then a connection for it: so a connection is never held without one. `None` where there
/// are no places any more, which does not happen.
async fn next(
    listener: &Listener,
    places: &Arc<Semaphore>,
) -> Option<(Place, io::Result<(Stream, Peer)>)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    Some((place, listener.accept().await))
}

/// Whether it says something of one connection, and nothing of the next.
fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable, Interrupted,
        NetworkUnreachable, TimedOut,
    };
    matches!(
        error.kind(),
        ConnectionAborted
            | ConnectionRefused
            | ConnectionReset
            | HostUnreachable
            | Interrupted
            | NetworkUnreachable
            | TimedOut
    )
}

/// How long to wait where there are no descriptors or no memory left: a loop that tried at once would take
/// a whole processor from the connections that could give some back.
#[derive(Debug, Default)]
struct Pause {
    last: Option<Duration>,
}

impl Pause {
    fn is_first(&self) -> bool {
        self.last.is_none()
    }

    fn next(&mut self) -> Duration {
        let next = self.last.map_or(PAUSE_MIN, |last| (last * 2).min(PAUSE_MAX));
        self.last = Some(next);
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    fn shutdown() -> Shutdown {
        Shutdown::default()
    }

    async fn listener() -> (Listener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (Listener::Tcp(listener), address)
    }

    /// Echoes one byte for each byte until the client ends.
    async fn echo(mut stream: Stream) {
        let mut byte = [0];
        while stream.read(&mut byte).await.is_ok_and(|count| count > 0) {
            if stream.write_all(&byte).await.is_err() {
                return;
            }
        }
    }

    async fn answers(stream: &mut TcpStream) -> bool {
        let mut byte = [0];
        stream.write_all(b"x").await.is_ok() && stream.read(&mut byte).await.is_ok_and(|n| n == 1)
    }

    #[tokio::test]
    async fn connections_beyond_the_bound_wait_for_one_to_end() {
        let (listener, address) = listener().await;
        let shutdown = shutdown();
        let most = Arc::new(AtomicUsize::new(0));
        let now = Arc::new(AtomicUsize::new(0));
        let serve = {
            let (most, now) = (Arc::clone(&most), Arc::clone(&now));
            move |stream, _| {
                let (most, now) = (Arc::clone(&most), Arc::clone(&now));
                async move {
                    let count = now.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(count, Ordering::SeqCst);
                    echo(stream).await;
                    now.fetch_sub(1, Ordering::SeqCst);
                }
            }
        };
        tokio::spawn(accept(Service::Http, listener, 2, shutdown.clone(), serve));
        let mut clients = Vec::new();
        for _ in 0..2 {
            let mut client = TcpStream::connect(address).await.unwrap();
            assert!(answers(&mut client).await);
            clients.push(client);
        }
        let mut third = TcpStream::connect(address).await.unwrap();
        third.write_all(b"x").await.unwrap();
        // The first two are still served while the third waits.
        assert!(answers(&mut clients[0]).await && answers(&mut clients[1]).await);
        drop(clients.pop());
        let mut byte = [0];
        assert_eq!(third.read(&mut byte).await.unwrap(), 1);
        assert_eq!(most.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_drain_closes_the_socket_and_a_cut_ends_the_rest() {
        let (listener, address) = listener().await;
        let shutdown = shutdown();
        let accepting =
            tokio::spawn(accept(Service::Http, listener, 10, shutdown.clone(), |stream, _| {
                echo(stream)
            }));
        let mut client = TcpStream::connect(address).await.unwrap();
        assert!(answers(&mut client).await);
        shutdown.drain.cancel();
        accepting.await.unwrap();
        assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
        assert!(answers(&mut client).await, "what is under way goes on");
        shutdown.connections.close();
        shutdown.cut.cancel();
        shutdown.connections.wait().await;
        assert!(!answers(&mut client).await);
    }

    #[test]
    fn pauses_grow_to_a_bound() {
        let mut pause = Pause::default();
        assert!(pause.is_first());
        let pauses: Vec<_> = (0..9).map(|_| pause.next()).collect();
        assert_eq!((pauses[0], pauses[1]), (PAUSE_MIN, PAUSE_MIN * 2));
        assert_eq!((pauses[8], pause.is_first()), (PAUSE_MAX, false));
    }
}
