//! The connections to one upstream that are kept for the next request. Over HTTP/1 a connection carries one
//! request at a time, and the one used last is used next, so the others grow old and are closed; those of HTTP/2 are
//! [shared](super::shared).
//!
//! It is written here rather than taken from a library because it says of each failure whether the request
//! left, which is what makes a retry safe, and counts what is open.

use std::error::Error as _;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::uri::{Authority, Uri};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::connect::{Connector, Protocol, Wire};
use super::hearing::Hearing;
use super::shared::{Shared, Turn};
use super::two::{Stream, Two};
use crate::forward::framing::Framing;
use crate::forward::hop;
use crate::forward::kept::Kept;

/// The most idle connections that are kept.
const IDLE_MAX: usize = 512;
/// How long a connection may take to be ready again once its response has ended. What is left of a request that
/// was answered before its end is sent within this time, or not at all.
const READY_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest head of a response, and the most headers in it.
pub(super) const HEAD_BYTES_MAX: usize = 256 << 10;
const HEADERS_MAX: usize = 256;

/// How often a request is sent over HTTP/2 that the server says it has not looked at: connections may end
/// faster than requests find their way to the next one.
const UNPROCESSED_MAX: usize = 16;
/// How many connections one request opens for that. A new connection that does the same again and again is no
/// connection.
const OPENED_MAX: usize = 3;

/// A connection of HTTP/1.
#[derive(Debug)]
struct One {
    sender: http1::SendRequest<Kept>,
    /// What keeps it going.
    task: JoinHandle<()>,
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
    /// Those of HTTP/2.
    shared: Shared,
    open: Arc<AtomicUsize>,
}

/// Why there is no response.
#[derive(Debug)]
pub(crate) enum SendError {
    /// There is no connection; nothing was sent, or nothing that the upstream looked at.
    Connect(Box<Request<Kept>>, io::Error),
    /// The connection broke, or what came was no response. The upstream may have seen the request.
    Broken(hyper::Error),
    /// The head of the response says two things, or nobody asked for what it says.
    Ambiguous,
}

/// Gives a connection back to its pool when it is dropped, if it can be used again.
#[derive(Debug)]
pub(crate) struct Lent {
    pool: Pool,
    sender: Option<One>,
    /// What it takes up of a connection of HTTP/2.
    _stream: Option<Arc<Stream>>,
}

impl Pool {
    pub(crate) fn new(connector: Connector, idle_timeout: Duration) -> Self {
        let open = Arc::default();
        let shared = Shared::new(connector.clone(), Arc::clone(&open));
        let inner = Inner { connector, idle_timeout, idle: Mutex::default(), shared, open };
        Self { inner: Arc::new(inner) }
    }

    /// Sends a request whose target is a path, and whose host is in its header. The caller bounds the time
    /// until the response; connecting has its own.
    pub(crate) async fn send(
        &self,
        request: Request<impl Into<Kept>>,
        connect_timeout: Duration,
    ) -> Result<(Response<Incoming>, Lent), SendError> {
        let mut request = request.map(Into::into);
        let asked = Asked::of(&request);
        let (mut sent, mut opened, mut is_refused) = (0, 0, false);
        loop {
            let is_upgrade = asked.upgrade.is_some();
            let (sender, is_new) = match self.sender(is_upgrade, connect_timeout).await {
                Ok(sender) => sender,
                Err(error) => return Err(SendError::Connect(Box::new(request), error)),
            };
            let answered = match sender {
                Sender::One(one) => self.send_one(one, request, is_new).await,
                Sender::Two(two, stream) => {
                    (sent, opened) = (sent + 1, opened + usize::from(is_new));
                    self.send_two(two, stream, request).await
                }
            };
            match answered {
                Ok((response, lent)) => return asked.answered_by(response, lent),
                Err(Unanswered::Again(again, _))
                    if sent < UNPROCESSED_MAX && opened < OPENED_MAX =>
                {
                    request = again;
                }
                Err(Unanswered::Refused(again, _)) if !is_refused => {
                    (request, is_refused) = (again, true);
                }
                Err(
                    Unanswered::Again(unsent, error)
                    | Unanswered::Refused(unsent, error)
                    | Unanswered::Failed(unsent, error),
                ) => {
                    return Err(SendError::Connect(Box::new(unsent), io::Error::other(error)));
                }
                Err(Unanswered::Broken(error)) => return Err(SendError::Broken(error)),
            }
        }
    }

    async fn send_one(
        &self,
        mut one: One,
        request: Request<Kept>,
        is_new: bool,
    ) -> Result<(Response<Incoming>, Lent), Unanswered> {
        let mut sending = pin!(one.sender.try_send_request(as_one(request)));
        // What is given to a connection in the moment in which it ends may be left in its queue, and is given back only once
        // nobody is there any more who could give it another.
        let (answered, one) = tokio::select! {
            biased;
            answered = &mut sending => (answered, Some(one)),
            _ = &mut one.task => {
                drop(one);
                (sending.await, None)
            }
        };
        let mut error = match answered {
            Ok(response) => {
                return Ok((response, Lent { pool: self.clone(), sender: one, _stream: None }));
            }
            Err(error) => error,
        };
        Err(match error.take_message() {
            // It was closed before anything was written: another one does. A new connection that does the
            // same again and again is no connection.
            Some(unsent) if !is_new => Unanswered::Again(unsent, error.into_error()),
            Some(unsent) => Unanswered::Failed(unsent, error.into_error()),
            None => Unanswered::Broken(error.into_error()),
        })
    }

    async fn send_two(
        &self,
        mut two: Two,
        stream: Stream,
        request: Request<Kept>,
    ) -> Result<(Response<Incoming>, Lent), Unanswered> {
        let mut request = as_two(request, self.inner.connector.url.protocol.scheme());
        let mut again = copied(&request);
        let keeper = request.body_mut().keep();
        // The server counts it until both have ended.
        let stream = Arc::new(stream);
        request.body_mut().hold(Arc::clone(&stream));
        let sending = two.sender.try_send_request(request);
        // As over HTTP/1: of a connection that has ended, the others are dropped by what is shared.
        drop(two);
        let mut error = match sending.await {
            Ok(response) => {
                keeper.let_go();
                stream.prove();
                return Ok((
                    response,
                    Lent { pool: self.clone(), sender: None, _stream: Some(stream) },
                ));
            }
            Err(error) => error,
        };
        let unsent = error.take_message();
        let error = error.into_error();
        let fate = if unsent.is_some() { Fate::Unprocessed } else { Fate::of(&error) };
        if fate == Fate::Unknown {
            return Err(Unanswered::Broken(error));
        }
        if fate == Fate::Refused {
            self.inner.shared.refuse(&stream);
        } else {
            self.inner.shared.retire(&stream);
        }
        let Some(body) = keeper.take_back() else { return Err(Unanswered::Broken(error)) };
        *again.body_mut() = body;
        Err(match fate {
            Fate::Unprocessed => Unanswered::Again(again, error),
            Fate::Refused => Unanswered::Refused(again, error),
            Fate::Blamed | Fate::Unknown => Unanswered::Failed(again, error),
        })
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
        self.inner.shared.sweep(now.map(|now| (now, timeout)));
    }

    /// A connection, and whether it is new. One that is to change its protocol speaks HTTP/1. Connecting may take so long.
    async fn sender(&self, is_upgrade: bool, within: Duration) -> io::Result<(Sender, bool)> {
        if let Some(one) = self.idle() {
            return Ok((Sender::One(one), false));
        }
        let mut turn = Turn::Unshared;
        // Where HTTP/2 is spoken in any case there is no upgrade.
        if !is_upgrade || self.inner.connector.url.protocol == Protocol::Two {
            turn = self.inner.shared.stream(within).await?;
        }
        if matches!(turn, Turn::Unshared) {
            let alone = timeout(within, self.alone(is_upgrade)).await;
            turn = alone.unwrap_or_else(|late| Err(late.into()))?;
        }
        match turn {
            Turn::Stream(two, stream, is_new) => Ok((Sender::Two(two, stream), is_new)),
            Turn::Alone(wire, open) => {
                Ok((Sender::One(open_http1(TokioIo::new(Hearing::new(wire)), open).await?), true))
            }
            Turn::Unshared => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// A connection for one request, unless it turns out to be one that all can share.
    async fn alone(&self, is_upgrade: bool) -> io::Result<Turn> {
        let (wire, is_two) = self.inner.connector.connect(is_upgrade).await?;
        let open = Open::new(&self.inner.open);
        if is_two { self.inner.shared.adopt(wire, open).await } else { Ok(Turn::Alone(wire, open)) }
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

    fn put_back(&self, one: One) {
        let mut idle = self.inner.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push((one, Instant::now()));
        }
    }
}

async fn open_http1(io: TokioIo<Hearing<Wire>>, open: Open) -> io::Result<One> {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX);
    let (sender, connection) = builder.handshake(io).await.map_err(io::Error::other)?;
    let task = tokio::spawn(async move {
        let _ = connection.with_upgrades().await;
        drop(open);
    });
    Ok(One { sender, task })
}

enum Sender {
    One(One),
    Two(Two, Stream),
}

/// What of a request says how its response is to be read.
struct Asked {
    method: Method,
    upgrade: Option<HeaderValue>,
}

impl Asked {
    fn of(request: &Request<Kept>) -> Self {
        let upgrade = request.headers().get(UPGRADE).cloned();
        Self { method: request.method().clone(), upgrade }
    }

    /// Takes a response whose head can be read in one way only, as where there is no general client in between. Any other
    /// is none, and its connection carries no more.
    fn answered_by(
        &self,
        mut response: Response<Incoming>,
        lent: Lent,
    ) -> Result<(Response<Incoming>, Lent), SendError> {
        let (version, status) = (response.version(), response.status());
        let is_sound = if status == StatusCode::SWITCHING_PROTOCOLS {
            self.is_switch(response.headers())
        } else {
            Framing::of(&self.method, version, status, response.headers_mut()).is_ok()
        };
        if is_sound {
            return Ok((response, lent));
        }
        lent.cut();
        Err(SendError::Ambiguous)
    }

    /// An upstream may change the protocol to one that was asked for, and to no other.
    fn is_switch(&self, response: &HeaderMap) -> bool {
        self.upgrade.as_ref().is_some_and(|asked| hop::is_asked(asked, response))
    }
}

/// Why one connection gave no response.
enum Unanswered {
    /// The upstream did not look at the request and does not mind: another connection does.
    Again(Request<Kept>, hyper::Error),
    /// The same, because it has enough to do: one more try is no burden, and each further one is for the budget.
    Refused(Request<Kept>, hyper::Error),
    /// The upstream did not look at the request, and is to blame.
    Failed(Request<Kept>, hyper::Error),
    /// The upstream may have seen it, or it cannot be sent a second time.
    Broken(hyper::Error),
}

/// What became of a request over HTTP/2 that has no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The server did not look at it, in good order.
    Unprocessed,
    /// The server did not look at it because it has enough to do.
    Refused,
    /// The server did not look at it because something is wrong.
    Blamed,
    Unknown,
}

impl Fate {
    fn of(error: &hyper::Error) -> Self {
        // Where the connection ended while the request waited for the server to take another stream, there is no such error:
        // it may have left in the same moment.
        let Some(error) = error.source().and_then(|source| source.downcast_ref::<h2::Error>())
        else {
            return Self::Unknown;
        };
        match error.reason().filter(|_| error.is_remote()) {
            // A stream hears of a GOAWAY only where it is beyond the last one that was taken (RFC 9113,
            // section 6.8).
            Some(h2::Reason::NO_ERROR) if error.is_go_away() => Self::Unprocessed,
            Some(_) if error.is_go_away() => Self::Blamed,
            Some(h2::Reason::REFUSED_STREAM) => Self::Refused,
            _ => Self::Unknown,
        }
    }
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

    /// Ends the connection, and what is still sent over it.
    fn cut(mut self) {
        if let Some(one) = self.sender.take() {
            one.task.abort();
        }
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

/// The same request once more, without its body.
pub(crate) fn copied(request: &Request<Kept>) -> Request<Kept> {
    let mut copy = Request::new(Kept::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    copy.headers_mut().clone_from(request.headers());
    copy
}

/// The request as HTTP/1 has it: a path, and the host in a header.
fn as_one(mut request: Request<Kept>) -> Request<Kept> {
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
    // Unless that is said, hyper takes it that a `GET` or a `HEAD` has no body, and leaves it out.
    if !request.body().is_empty() && !request.headers().contains_key(CONTENT_LENGTH) {
        request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    request
}

/// The request as HTTP/2 has it: all of it in the target.
fn as_two(mut request: Request<Kept>, scheme: http::uri::Scheme) -> Request<Kept> {
    *request.version_mut() = Version::HTTP_2;
    request.headers_mut().remove(CONNECTION);
    request.headers_mut().remove(TRANSFER_ENCODING);
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
    use std::future::poll_fn;
    use std::hint::spin_loop;
    use std::task::Poll;
    use std::thread::yield_now;

    use tokio::io::duplex;
    use tokio::task::spawn_blocking;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// Few of them meet in the moment that matters: without what `send_one` does for that, one in some five hundred.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_request_that_is_given_to_a_connection_that_ends_is_given_back() {
        let connector = Connector { url: "http://127.0.0.1:1".parse().unwrap(), tls: None };
        let pool = Pool::new(connector, PATIENCE);
        for number in 0..4_000 {
            let (_server, stream) = duplex(1);
            let (sender, mut connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
            poll_fn(|context| Poll::Ready(pin!(&mut connection).poll(context).is_ready())).await;
            assert!(sender.is_ready());
            let both = Arc::new(AtomicUsize::new(0));
            let other = Arc::clone(&both);
            let meet = |both: &AtomicUsize| {
                both.fetch_add(1, Ordering::SeqCst);
                while both.load(Ordering::SeqCst) < 2 {
                    yield_now();
                }
            };
            let task = spawn_blocking(move || {
                meet(&other);
                (0..number / 50 % 50).for_each(|_| spin_loop());
                drop(connection);
            });
            meet(&both);
            (0..number % 50).for_each(|_| spin_loop());
            let sending = pool.send_one(One { sender, task }, Request::new(Kept::empty()), false);
            let sent = timeout(PATIENCE, sending).await;
            assert!(matches!(sent, Ok(Err(Unanswered::Again(..)))), "request {number} is stuck");
        }
    }

    #[test]
    fn a_request_can_change_its_version_on_every_try() {
        let request = Request::builder().uri("/a?b").header("host", "h:1");
        let request = request.body(Kept::empty()).unwrap();
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
            let one = as_one(request.body(Kept::empty()).unwrap());
            one.headers().get(CONNECTION).map(|value| value.to_str().unwrap().to_owned())
        };
        let upgrade = [("connection", "upgrade"), ("upgrade", "websocket"), ("te", "trailers")];
        assert_eq!(connection(&upgrade).as_deref(), Some("upgrade, te"));
        assert_eq!(connection(&upgrade[2..]).as_deref(), Some("te"));
        assert_eq!(connection(&[]), None);
    }
}
