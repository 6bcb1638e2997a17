//! A way to a server that can be slow, and can be cut in the middle of a call.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_redis::RedisConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

use super::{Server, runtime};

/// Stands in front of a server, on a socket of its own.
pub struct Proxy {
    socket: PathBuf,
    wishes: Arc<Wishes>,
    accepting: JoinHandle<()>,
}

#[derive(Default)]
struct Wishes {
    delay_ms: AtomicU64,
    cuts: AtomicU64,
}

impl Proxy {
    pub fn start(server: &Server) -> Self {
        let socket = server.socket().with_extension("proxy");
        let wishes = Arc::<Wishes>::default();
        let accepting = {
            let _entered = runtime().enter();
            let listener = UnixListener::bind(&socket).expect("a socket");
            let (behind, wishes) = (server.socket().to_owned(), Arc::clone(&wishes));
            runtime().spawn(async move {
                while let Ok((client, _)) = listener.accept().await {
                    tokio::spawn(relay(client, behind.clone(), Arc::clone(&wishes)));
                }
            })
        };
        Self { socket, wishes, accepting }
    }

    pub fn config(&self) -> RedisConfig {
        RedisConfig::new(&format!("redis+unix://{}", self.socket.display())).expect("a URL")
    }

    /// What the server says from now on comes later by so much.
    pub fn delay(&self, delay: Duration) {
        self.wishes.delay_ms.store(delay.as_millis() as u64, Ordering::SeqCst);
    }

    /// The next answers do not arrive: the connection breaks after the server did its work.
    pub fn cut(&self, times: u64) {
        self.wishes.cuts.fetch_add(times, Ordering::SeqCst);
    }

    /// How many of those cuts are still to come.
    pub fn cuts_left(&self) -> u64 {
        self.wishes.cuts.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Passes on what both say until one of them ends, or the connection is cut.
async fn relay(mut client: UnixStream, behind: impl AsRef<Path>, wishes: Arc<Wishes>) {
    let Ok(mut server) = UnixStream::connect(behind).await else { return };
    let (mut asked, mut said) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => match read {
                Ok(1..) => {
                    let length = read.unwrap_or_default();
                    if server.write_all(&asked[..length]).await.is_err() {
                        return;
                    }
                }
                Ok(0) | Err(_) => return,
            },
            read = server.read(&mut said) => match read {
                Ok(1..) => {
                    let length = read.unwrap_or_default();
                    let cut = |cuts: u64| cuts.checked_sub(1);
                    if wishes.cuts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, cut).is_ok() {
                        return;
                    }
                    let delay = Duration::from_millis(wishes.delay_ms.load(Ordering::SeqCst));
                    if !delay.is_zero() {
                        tokio::time::sleep(delay).await;
                    }
                    if client.write_all(&said[..length]).await.is_err() {
                        return;
                    }
                }
                Ok(0) | Err(_) => return,
            },
        }
    }
}
