//! The connections to one upstream that are kept for the next request. Over HTTP/1 a connection carries one
//! request at a time, and the one used last is used next, so the others grow old and are closed; over HTTP/2
//! all requests share one.
//!
//! It is written here rather than taken from a library because it says of each failure whether the request
//! left, which is what makes a retry safe, and counts what is open.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::header::{CONNECTION, HOST, TE, UPGRADE};
use http::uri::{Authority, Uri};
use http::{HeaderValue, Request, Response, Version};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use super::connect::{Connector, Protocol, Wire};
use super::hearing::Hearing;
use crate::body::RequestBody;

/// The most idle connections that are kept.
const IDLE_MAX: usize = 512;
/// How long a connection may take to be ready again once its response has ended. What is left of a request that
/// was answered before its end is sent within this time, or not at all.
const READY_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest head of a response, and the most headers in it.
const HEAD_BYTES_MAX: usize = 256 << 10;
const HEADERS_MAX: usize = 256;

type Two = http2::SendRequest<RequestBody>;

/// A connection of HTTP/1.
#[derive(Debug)]
struct One {
    sender: http1::SendRequest<RequestBody>,
    /// What keeps it going.
    task: AbortHandle,
}

/// The connections to one upstream. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    connector: Connector,
    /// A server that closes a connection just as we use it costs a request. Ours are closed before that.
    idle_timeout: Duration,
    idle: Mutex<Vec<(One, Instant)>>,
    shared: tokio::sync::Mutex<Option<Two>>,
    /// Set where the upstream is known to speak HTTP/1, so that there is nothing to share.
    is_unshared: AtomicBool,
    open: Arc<AtomicUsize>,
}

/// Why there is no response.
#[derive(Debug)]
pub(crate) enum SendError {
    /// There is no connection; nothing was sent.
    Connect(Box<Request<RequestBody>>, io::Error),
    /// The connection broke, and what came was no response. The upstream may have seen the request.
    Broken(hyper::Error),
}

/// Gives a connection back to its pool when it is dropped, if it can be used again.
#[derive(Debug)]
pub(crate) struct Lent {
    pool: Pool,
    sender: Option<One>,
}

impl Pool {
    pub(crate) fn new(connector: Connector, idle_timeout: Duration) -> Self {
        let is_unshared = AtomicBool::new(connector.url.protocol == Protocol::One);
        let inner = Inner {
            connector,
            idle_timeout,
            idle: Mutex::default(),
            shared: tokio::sync::Mutex::default(),
            is_unshared,
            open: Arc::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Sends a request whose target is a path, and whose host is in its header. The caller bounds the time
    /// until the response; connecting has its own.
    pub(crate) async fn send(
        &self,
        mut request: Request<RequestBody>,
        connect_timeout: Duration,
    ) -> Result<(Response<Incoming>, Lent), SendError> {
        let is_upgrade = request.headers().contains_key(UPGRADE);
        loop {
            let sender = timeout(connect_timeout, self.sender(is_upgrade)).await;
            let (sender, is_new) = match sender.unwrap_or_else(|late| Err(late.into())) {
                Ok(sender) => sender,
                Err(error) => return Err(SendError::Connect(Box::new(request), error)),
            };
            let sent = match sender {
                Sender::One(mut one) => match one.sender.try_send_request(as_one(request)).await {
                    Ok(response) => {
                        return Ok((response, Lent { pool: self.clone(), sender: Some(one) }));
                    }
                    Err(error) => error,
                },
                Sender::Two(mut two) => {
                    let scheme = self.inner.connector.url.protocol.scheme();
                    match two.try_send_request(as_two(request, scheme)).await {
                        Ok(response) => {
                            return Ok((response, Lent { pool: self.clone(), sender: None }));
                        }
                        Err(error) => {
                            self.forget(&two).await;
                            error
                        }
                    }
                }
            };
            let mut error = sent;
            match error.take_message() {
                // It was closed before anything was written: another one does. A new connection that
                // does the same again and again is no connection.
                Some(unsent) if !is_new => request = unsent,
                Some(unsent) => {
                    let error = io::Error::other(error.into_error());
                    return Err(SendError::Connect(Box::new(unsent), error));
                }
                None => return Err(SendError::Broken(error.into_error())),
            }
        }
    }

    /// How many connections are open, idle ones too.
    pub(crate) fn open(&self) -> usize {
        // ORDERING: the number stands for itself.
        self.inner.open.load(Ordering::Relaxed)
    }

    /// The same number, for who opens connections beside these.
    pub(crate) fn open_count(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.inner.open)
    }

    /// Closes the connections that nobody used for too long, or all of them.
    pub(crate) fn sweep(&self, now: Option<Instant>) {
        let timeout = self.inner.idle_timeout;
        self.inner.idle.lock().retain(|(one, since)| {
            now.is_some_and(|now| now.duration_since(*since) < timeout) && !one.sender.is_closed()
        });
    }

    /// A connection, and whether it is new. One that is to change its protocol speaks HTTP/1.
    async fn sender(&self, is_upgrade: bool) -> io::Result<(Sender, bool)> {
        if let Some(one) = self.idle() {
            return Ok((Sender::One(one), false));
        }
        // ORDERING: the flag stands for itself, here and below.
        if is_upgrade || self.inner.is_unshared.load(Ordering::Relaxed) {
            return Ok((self.open_one(is_upgrade).await?, true));
        }
        // Whoever comes while the connection is made that all share waits for it.
        let mut shared = self.inner.shared.lock().await;
        if let Some(two) = shared.as_ref().filter(|two| two.is_ready()) {
            return Ok((Sender::Two(two.clone()), false));
        }
        let sender = self.open_one(false).await?;
        match &sender {
            Sender::Two(two) => *shared = Some(two.clone()),
            Sender::One(_) => self.inner.is_unshared.store(true, Ordering::Relaxed),
        }
        Ok((sender, true))
    }

    fn idle(&self) -> Option<One> {
        let now = Instant::now();
        let mut idle = self.inner.idle.lock();
        while let Some((one, since)) = idle.pop() {
            if now.duration_since(since) >= self.inner.idle_timeout {
                // All that are below are older.
                idle.clear();
                return None;
            }
            if one.sender.is_ready() {
                return Some(one);
            }
        }
        None
    }

    async fn open_one(&self, is_upgrade: bool) -> io::Result<Sender> {
        let (wire, is_two) = self.inner.connector.connect(is_upgrade).await?;
        let open = Open::new(&self.inner.open);
        if is_two {
            self.open_two(TokioIo::new(wire), open).await
        } else {
            open_http1(TokioIo::new(Hearing::new(wire)), open).await
        }
    }

    async fn open_two(&self, io: TokioIo<Wire>, open: Open) -> io::Result<Sender> {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(20))
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .adaptive_window(true);
        let (two, connection) = builder.handshake(io).await.map_err(io::Error::other)?;
        tokio::spawn(async move {
            // What goes wrong is told to the requests that are under way.
            let _ = connection.await;
            drop(open);
        });
        Ok(Sender::Two(two))
    }

    /// Lets the next request open another connection where this one has ended.
    async fn forget(&self, two: &Two) {
        let mut shared = self.inner.shared.lock().await;
        if two.is_closed() && shared.as_ref().is_some_and(Two::is_closed) {
            *shared = None;
        }
    }

    fn put_back(&self, one: One) {
        let mut idle = self.inner.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push((one, Instant::now()));
        }
    }
}

async fn open_http1(io: TokioIo<Hearing<Wire>>, open: Open) -> io::Result<Sender> {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX);
    let (sender, connection) = builder.handshake(io).await.map_err(io::Error::other)?;
    let task = tokio::spawn(async move {
        let _ = connection.with_upgrades().await;
        drop(open);
    });
    Ok(Sender::One(One { sender, task: task.abort_handle() }))
}

enum Sender {
    One(One),
    Two(Two),
}

/// Counts a connection for as long as it lives.
#[derive(Debug)]
pub(crate) struct Open(Arc<AtomicUsize>);

impl Open {
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Self {
        // ORDERING: the number stands for itself, here and below.
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lent {
    /// Keeps the connection from being used again, as one that has become a tunnel.
    pub(crate) fn keep_out(mut self) {
        self.sender = None;
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(mut one) = self.sender.take().filter(|one| !one.sender.is_closed()) else {
            return;
        };
        if one.sender.is_ready() {
            self.pool.put_back(one);
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let pool = self.pool.clone();
        runtime.spawn(async move {
            if let Ok(Ok(())) = timeout(READY_TIMEOUT, one.sender.ready()).await {
                pool.put_back(one);
            } else {
                // The upstream has answered and does not read the rest of the request. Neither it nor the
                // client would ever let go.
                one.task.abort();
            }
        });
    }
}

/// The request as HTTP/1 has it: a path, and the host in a header.
fn as_one(mut request: Request<RequestBody>) -> Request<RequestBody> {
    *request.version_mut() = Version::HTTP_11;
    let uri = std::mem::take(request.uri_mut()).into_parts();
    if let Some(authority) = &uri.authority
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        request.headers_mut().insert(HOST, host);
    }
    *request.uri_mut() = uri.path_and_query.map_or_else(Uri::default, Uri::from);
    // Here `TE` is about one connection, and has to be named as such.
    if request.headers().contains_key(TE) {
        let is_upgrade = request.headers().contains_key(UPGRADE);
        let named = if is_upgrade { "upgrade, te" } else { "te" };
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static(named));
    }
    request
}

/// The request as HTTP/2 has it: all of it in the target.
fn as_two(mut request: Request<RequestBody>, scheme: http::uri::Scheme) -> Request<RequestBody> {
    *request.version_mut() = Version::HTTP_2;
    request.headers_mut().remove(CONNECTION);
    let host = request.headers_mut().remove(HOST);
    let Some(authority) = host.and_then(|host| Authority::try_from(host.as_bytes()).ok()) else {
        return request;
    };
    let mut uri = std::mem::take(request.uri_mut()).into_parts();
    uri.scheme = Some(scheme);
    uri.authority = Some(authority);
    if let Ok(uri) = Uri::from_parts(uri) {
        *request.uri_mut() = uri;
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_can_change_its_version_on_every_try() {
        let request = Request::builder().uri("/a?b").header("host", "h:1");
        let request = request.body(RequestBody::empty()).unwrap();
        let two = as_two(request, http::uri::Scheme::HTTP);
        assert_eq!(two.uri().to_string(), "http://h:1/a?b");
        assert!(two.headers().is_empty());
        let one = as_one(two);
        assert_eq!(
            (one.uri().to_string().as_str(), &one.headers()["host"]),
            ("/a?b", &"h:1".parse::<HeaderValue>().unwrap())
        );
        assert_eq!(as_one(one).uri().to_string(), "/a?b");
    }

    #[test]
    fn an_upgrade_stays_one_where_trailers_are_taken() {
        let connection = |lines: &[(&str, &str)]| {
            let mut request = Request::builder();
            for (name, value) in lines {
                request = request.header(*name, *value);
            }
            let one = as_one(request.body(RequestBody::empty()).unwrap());
            one.headers().get(CONNECTION).map(|value| value.to_str().unwrap().to_owned())
        };
        let upgrade = [("connection", "upgrade"), ("upgrade", "websocket"), ("te", "trailers")];
        assert_eq!(connection(&upgrade).as_deref(), Some("upgrade, te"));
        assert_eq!(connection(&upgrade[2..]).as_deref(), Some("te"));
        assert_eq!(connection(&[]), None);
    }
}
