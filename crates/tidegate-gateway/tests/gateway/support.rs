//! A gateway, servers to put behind it, and clients, for tests. Each has a port of its own and ends with the
//! test.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Request, Response, Version};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tidegate_gateway::front::FrontBounds;
use tidegate_gateway::upstream::ServerSettings;
use tidegate_gateway::{GatewaySettings, RouteSettings, Running, start};
use tidegate_server::config::{Layer, Settings};
use tidegate_server::listen::{Address, Inherited};
use tidegate_server::log::LogLevel;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

/// How long anything may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A server behind, which counts what it is asked.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    asked: Arc<AtomicUsize>,
    _task: AbortOnDropHandle<()>,
}

impl Upstream {
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// A server that tells what it was asked; see [`echo`].
    pub(crate) async fn echo() -> Self {
        Self::serving(echo).await
    }

    /// A server that answers each request with what the function says.
    pub(crate) async fn serving<F, R>(answer: F) -> Self
    where
        F: Fn(Request<Incoming>) -> R + Clone + Send + 'static,
        R: Future<Output = Response<Body>> + Send + 'static,
    {
        Self::accepting(move |stream, asked| {
            let answer = answer.clone();
            async move {
                let service = service_fn(move |request| {
                    asked.fetch_add(1, Ordering::SeqCst);
                    let answering = answer(request);
                    async move { Ok::<_, Infallible>(answering.await) }
                });
                let builder = auto::Builder::new(TokioExecutor::new());
                let io = TokioIo::new(stream);
                let _ = builder.serve_connection_with_upgrades(io, service).await;
            }
        })
        .await
    }

    /// A server that does with each connection what the function says.
    pub(crate) async fn accepting<F, R>(serve: F) -> Self
    where
        F: Fn(TcpStream, Arc<AtomicUsize>) -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                tokio::spawn(serve(stream, Arc::clone(&counted)));
            }
        });
        Self { address, asked, _task: AbortOnDropHandle::new(task) }
    }

    /// A server that reads a head and answers with these bytes, or with nothing, and then closes.
    pub(crate) async fn raw(answer: &'static [u8]) -> Self {
        Self::accepting(move |mut stream, asked| async move {
            if read_head(&mut stream).await.is_some() {
                asked.fetch_add(1, Ordering::SeqCst);
                let _ = stream.write_all(answer).await;
            }
        })
        .await
    }

    /// A server that keeps what it is sent, byte for byte, and answers each request of which all has come.
    pub(crate) async fn recording() -> (Self, Arc<Mutex<Vec<String>>>) {
        let recorded = Arc::<Mutex<Vec<String>>>::default();
        let records = Arc::clone(&recorded);
        let upstream = Self::accepting(move |mut stream, asked| {
            let records = Arc::clone(&records);
            async move {
                let mut request = String::new();
                while let Ok(byte) = stream.read_u8().await {
                    request.push(byte.into());
                    if is_whole(&request) {
                        asked.fetch_add(1, Ordering::SeqCst);
                        records.lock().push(std::mem::take(&mut request));
                        let _ =
                            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
                    }
                }
            }
        });
        (upstream.await, recorded)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// Whether this is all of a request, by what its head says.
fn is_whole(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
    let said = |name| head.lines().find_map(|line| line.strip_prefix(name));
    match said("content-length: ") {
        Some(length) => length.parse() == Ok(body.len()),
        None if said("transfer-encoding: chunked").is_none() => true,
        None => {
            body.starts_with("0\r\n") || body.contains("\r\n0\r\n") && body.ends_with("\r\n\r\n")
        }
    }
}

/// The bytes up to the empty line.
pub(crate) async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

/// Tells the request line, the headers, and the body with its trailers. `/status/N` answers with that
/// status, `/trailers` with trailers.
pub(crate) async fn echo(request: Request<Incoming>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let mut text = format!("{} {} {:?}\n", parts.method, parts.uri, parts.version);
    for (name, value) in &parts.headers {
        let _ = writeln!(text, "{name}: {}", value.to_str().unwrap());
    }
    let body = body.collect().await;
    let Ok(body) = body else { return Response::new(full("broken")) };
    if let Some(trailers) = body.trailers() {
        let _ = writeln!(text, "trailers: {trailers:?}");
    }
    let bytes = body.to_bytes();
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(100)]);
    let _ = write!(text, "\n{} bytes: {shown}", bytes.len());
    if parts.uri.path() == "/trailers" {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", HeaderValue::from_static("42"));
        let frames = [Ok(Frame::data(Bytes::from(text))), Ok(Frame::trailers(trailers))];
        let mut response = Response::new(StreamBody::new(stream::iter(frames)).boxed_unsync());
        response.headers_mut().insert("trailer", HeaderValue::from_static("x-sum"));
        return response;
    }
    let mut response = Response::new(full(text));
    response.headers_mut().insert("connection", HeaderValue::from_static("x-hop"));
    response.headers_mut().insert("x-hop", HeaderValue::from_static("1"));
    response.headers_mut().insert("x-end", HeaderValue::from_static("1"));
    if let Some(status) = parts.uri.path().strip_prefix("/status/") {
        *response.status_mut() = status.parse().unwrap();
    }
    response
}

pub(crate) fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).boxed_unsync()
}

/// A folder that is removed with this value.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("tidegate-gateway-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Settings with these upstreams behind one route, and with rules that let everything pass.
pub(crate) fn settings(upstreams: &[&str]) -> GatewaySettings {
    with_rules(upstreams, |layer| layer.limit = Some("1000000/s per ip".parse().unwrap()))
}

pub(crate) fn with_rules(upstreams: &[&str], rules: impl FnOnce(&mut Layer)) -> GatewaySettings {
    let mut layer = Layer { admin: Some(Address::Off), ..Layer::default() };
    rules(&mut layer);
    let servers =
        upstreams.iter().map(|url| ServerSettings { url: url.parse().unwrap(), weight: 1 });
    GatewaySettings {
        daemon: Settings::new(layer).unwrap(),
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        certificates: Vec::new(),
        routes: vec![RouteSettings::new(servers.collect())],
        front: FrontBounds::default(),
        access_log: None,
    }
}

/// A gateway that runs.
pub(crate) async fn gateway(settings: GatewaySettings) -> Running {
    start(settings, Inherited::none(), LogLevel::unused()).await.unwrap()
}

pub(crate) fn port(running: &Running) -> SocketAddr {
    match &running.addresses()[0] {
        Address::Tcp(address) => *address,
        other => panic!("{other}"),
    }
}

/// Sends bytes and reads until the other end closes.
pub(crate) async fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // A server may close before all is sent.
    let _ = stream.write_all(bytes).await;
    read_all(&mut stream).await
}

pub(crate) async fn read_all(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    let _ = read.expect("the connection is closed in time");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Asks over a connection of its own, and takes the whole answer.
pub(crate) async fn get(address: SocketAddr, path: &str) -> Response<String> {
    let request = Request::get(path).header("host", "a.example").body(Full::default()).unwrap();
    ask(address, request).await
}

pub(crate) async fn ask(address: SocketAddr, request: Request<Full<Bytes>>) -> Response<String> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let response = sender.send_request(request).await.unwrap();
    whole(response).await
}

/// Sends a body over a connection of its own, and tells the status of the answer.
pub(crate) async fn post(to: SocketAddr, body: String) -> u16 {
    let request = Request::post("/").header("host", "a").body(Full::new(Bytes::from(body)));
    ask(to, request.unwrap()).await.status().as_u16()
}

/// Asks over HTTP/2, known beforehand.
pub(crate) async fn ask_h2(address: SocketAddr, request: Request<Body>) -> Response<String> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let mut request = request;
    *request.version_mut() = Version::HTTP_2;
    let response = sender.send_request(request).await.unwrap();
    whole(response).await
}

/// The answer with its text; trailers are put behind it.
pub(crate) async fn whole(response: Response<Incoming>) -> Response<String> {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap();
    let trailers = body.trailers().map(|trailers| format!("\n{trailers:?}")).unwrap_or_default();
    let text = String::from_utf8_lossy(&body.to_bytes()).into_owned() + &trailers;
    Response::from_parts(parts, text)
}

/// How often upstreams failed, were asked again, or were left out.
pub(crate) fn failures(running: &Running) -> u64 {
    let engine = running.daemon().engine();
    let text = engine.metrics().render(engine);
    let names = ["failures_total", "retries_total", "ejections_total"];
    let is_one = |line: &&str| {
        names.iter().any(|name| line.starts_with(&format!("tidegate_upstream_{name}{{")))
    };
    let values = text.lines().filter(is_one).map(|line| line.rsplit(' ').next().unwrap());
    values.map(|value| value.parse::<u64>().unwrap()).sum()
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Waits until nothing is under way, and nobody is connected.
pub(crate) async fn until_idle(running: &Running) {
    until("idle", || {
        let counts = running.counts();
        counts.connections == 0 && counts.under_way == 0
    })
    .await;
}
