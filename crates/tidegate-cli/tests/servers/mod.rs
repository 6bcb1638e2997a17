//! Servers that answer every third request with a denial, and count. Each has a port of its own and
//! ends with the test.

use std::io::{BufRead as _, BufReader, BufWriter, Read as _, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use hyper::body::Bytes;
use hyper::http;

/// A server that runs.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    counts: Mutex<Counts>,
    more: Condvar,
}

#[derive(Default)]
struct Counts {
    asked: u64,
    connections: u64,
}

impl Seen {
    /// Counts a request, and says whether it is denied.
    fn is_denied(&self) -> bool {
        let mut counts = self.counts.lock().expect("counts");
        counts.asked += 1;
        self.more.notify_all();
        counts.asked.is_multiple_of(3)
    }
}

impl Server {
    fn start(serve: impl Fn(TcpStream, &Seen) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Seen::default());
        let (serve, counted) = (Arc::new(serve), Arc::clone(&seen));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (serve, seen) = (Arc::clone(&serve), Arc::clone(&counted));
                seen.counts.lock().expect("counts").connections += 1;
                thread::spawn(move || serve(stream, &seen));
            }
        });
        Self { address, seen }
    }

    pub(crate) fn asked(&self) -> u64 {
        self.seen.counts.lock().expect("counts").asked
    }

    pub(crate) fn connections(&self) -> u64 {
        self.seen.counts.lock().expect("counts").connections
    }

    pub(crate) fn wait_until_asked(&self, times: u64) {
        let counts = self.seen.counts.lock().expect("counts");
        drop(self.seen.more.wait_while(counts, |counts| counts.asked < times).expect("counts"));
    }
}

/// Answers are written when there is nothing left to read, many in one go where many were asked.
fn flush_when_idle(input: &BufReader<&TcpStream>, output: &mut BufWriter<&TcpStream>) -> bool {
    !input.buffer().is_empty() || output.flush().is_ok()
}

/// Answers with 200 and 429.
pub(crate) fn http() -> Server {
    Server::start(|stream, seen| {
        let (mut input, mut output) = (BufReader::new(&stream), BufWriter::new(&stream));
        let mut line = String::new();
        while input.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            if line == "\r\n" {
                let answer = if seen.is_denied() {
                    "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\ncontent-length: 2\r\n\r\nno"
                } else {
                    "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
                };
                if output.write_all(answer.as_bytes()).is_err() {
                    return;
                }
            } else if !line.starts_with("GET /limit/key:0") && !line.starts_with("host: ") {
                let _ = output.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
                return;
            }
            line.clear();
            if !flush_when_idle(&input, &mut output) {
                return;
            }
        }
    })
}

/// Answers as `CL.THROTTLE` does.
pub(crate) fn resp() -> Server {
    const COMMAND: &[u8] =
        b"*5\r\n$11\r\nCL.THROTTLE\r\n$16\r\nkey:000000000000\r\n$1\r\n9\r\n$2\r\n10\r\n$2\r\n60\r\n";
    Server::start(|stream, seen| {
        let (mut input, mut output) = (BufReader::new(&stream), BufWriter::new(&stream));
        let mut command = [0; COMMAND.len()];
        while input.read_exact(&mut command).is_ok() {
            if !command.starts_with(b"*5\r\n$11\r\nCL.THROTTLE\r\n$16\r\nkey:0") {
                let _ = output.write_all(b"-ERR Protocol error\r\n");
                return;
            }
            let answer: &[u8] = if seen.is_denied() {
                b"*5\r\n:1\r\n:10\r\n:0\r\n:6\r\n:60\r\n"
            } else {
                b"*5\r\n:0\r\n:10\r\n:9\r\n:-1\r\n:6\r\n"
            };
            if output.write_all(answer).is_err() || !flush_when_idle(&input, &mut output) {
                return;
            }
        }
    })
}

/// What an HTTP/2 server does with its connection when it was asked often enough.
#[derive(Clone, Copy)]
pub(crate) enum Then {
    /// It takes no more requests, and answers those that it has.
    GoesAway,
    /// It ends it, and says that this was too much.
    SendsAway,
}

/// How many requests such a server takes on each connection.
pub(crate) const ASKED_MAX: u64 = 50;

/// Answers with 200 and 429 and a kilobyte, on the HTTP/2 of the `h2` crate.
pub(crate) fn http2(then: Option<Then>) -> Server {
    over_http2(move |connection, seen| {
        Box::pin(async move {
            let mut asked = 0;
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                assert!(request.uri().path().starts_with("/limit/key:0"), "{request:?}");
                let status = if seen.is_denied() { 429 } else { 200 };
                let head = http::Response::builder().status(status).body(()).expect("a head");
                let mut stream = respond.send_response(head, false).expect("a stream");
                stream.send_data(Bytes::from_static(&[b'x'; 1024]), true).expect("a stream");
                asked += 1;
                match then {
                    Some(Then::GoesAway) if asked == ASKED_MAX => connection.graceful_shutdown(),
                    Some(Then::SendsAway) if asked == ASKED_MAX => {
                        connection.abrupt_shutdown(h2::Reason::ENHANCE_YOUR_CALM);
                    }
                    Some(Then::GoesAway | Then::SendsAway) | None => {}
                }
            }
        })
    })
}

/// Refuses every request.
pub(crate) fn resetting() -> Server {
    over_http2(|connection, seen| {
        Box::pin(async {
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                seen.is_denied();
                respond.send_reset(h2::Reason::REFUSED_STREAM);
            }
        })
    })
}

/// Answers as Envoy's rate limit service does.
pub(crate) fn grpc() -> Server {
    over_http2(|connection, seen| {
        Box::pin(async {
            while let Some(Ok((request, respond))) = connection.accept().await {
                let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
                assert_eq!(request.uri().path(), path);
                assert_eq!(request.headers()["content-type"], "application/grpc");
                assert_eq!(request.headers()["te"], "trailers");
                let code = if seen.is_denied() { 2 } else { 1 };
                tokio::spawn(answer(request.into_body(), respond, code));
            }
        })
    })
}

type Connection = h2::server::Connection<tokio::net::TcpStream, Bytes>;

/// Each connection with a runtime of its own.
fn over_http2<S>(serve: S) -> Server
where
    S: for<'c> Fn(&'c mut Connection, &'c Seen) -> Pin<Box<dyn Future<Output = ()> + 'c>>,
    S: Send + Sync + 'static,
{
    Server::start(move |stream, seen| {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        stream.set_nonblocking(true).expect("a socket");
        runtime.block_on(async {
            let stream = tokio::net::TcpStream::from_std(stream).expect("a socket");
            let mut connection = h2::server::handshake(stream).await.expect("HTTP/2");
            serve(&mut connection, seen).await;
        });
    })
}

async fn answer(
    mut body: h2::RecvStream,
    mut respond: h2::server::SendResponse<Bytes>,
    code: u8,
) -> Option<()> {
    let mut asked = Vec::new();
    while let Some(Ok(bytes)) = body.data().await {
        body.flow_control().release_capacity(bytes.len()).ok()?;
        asked.extend_from_slice(&bytes);
    }
    assert!(asked.starts_with(b"\x00\x00\x00\x00\x24\x0a\x07default\x12"), "{asked:?}");
    let head = http::Response::builder().header("content-type", "application/grpc");
    let mut stream = respond.send_response(head.body(()).ok()?, false).ok()?;
    let message = Bytes::from(vec![0, 0, 0, 0, 2, 0x08, code]);
    stream.send_data(message, false).ok()?;
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
    stream.send_trailers(trailers).ok()
}
