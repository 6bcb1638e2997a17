//! A small HTTP client for the commands that ask a running daemon: one request, one answer, within a
//! time. It speaks HTTP/1.1 over TCP or over a socket in the file system.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// How long a request may take unless said.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);
/// The longest answer that is read.
const BODY_BYTES_MAX: usize = 16 << 20;

/// Where a daemon is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    /// At an address and a port, as `http://127.0.0.1:8080`.
    Tcp { host: String, port: u16 },
    /// At a socket in the file system, as `unix:/run/tidegate/http.sock`.
    Unix(PathBuf),
}

impl FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const WRITE: &str = "write `http://HOST:PORT` or `unix:PATH`";
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() {
                Err(WRITE.to_owned())
            } else {
                Ok(Self::Unix(path.into()))
            };
        }
        if text.starts_with("https://") {
            return Err(
                "the daemon speaks no TLS: ask it on its own machine, with `http://`".to_owned()
            );
        }
        let authority = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
        let authority: hyper::http::uri::Authority =
            authority.parse().map_err(|_| WRITE.to_owned())?;
        if authority.host().is_empty() || authority.as_str().contains('@') {
            return Err(WRITE.to_owned());
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        Ok(Self::Tcp { host, port: authority.port_u16().unwrap_or(80) })
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "http://[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "http://{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Asks one daemon.
#[derive(Debug)]
pub(crate) struct Client {
    server: Server,
    token: Option<String>,
    timeout: Duration,
    /// The flag that says where the daemon is.
    flag: &'static str,
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Reply {
    /// The status.
    pub(crate) status: u16,
    /// The body; null where there is none.
    pub(crate) body: Value,
}

impl Client {
    /// A client of this daemon.
    pub(crate) fn new(server: &Server) -> Self {
        Self { server: server.clone(), token: None, timeout: TIMEOUT, flag: "--server" }
    }

    /// The same with a bearer token.
    #[must_use]
    pub(crate) fn with_token(mut self, token: Option<String>) -> Self {
        self.token = token;
        self
    }

    /// The same with another time for each request.
    #[must_use]
    pub(crate) fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The same, for an address that another flag than `--server` names.
    #[must_use]
    pub(crate) fn with_flag(mut self, flag: &'static str) -> Self {
        self.flag = flag;
        self
    }

    /// Puts a body at a path.
    pub(crate) fn put_json(&self, path: &str, body: &Value) -> Result<Reply, ClientError> {
        self.ask(Method::PUT, path, Some(body))
    }

    /// Posts a body to a path.
    pub(crate) fn post_json(&self, path: &str, body: &Value) -> Result<Reply, ClientError> {
        self.ask(Method::POST, path, Some(body))
    }

    /// Reads a path.
    pub(crate) fn get(&self, path: &str) -> Result<Reply, ClientError> {
        self.ask(Method::GET, path, None)
    }

    /// Removes what is at a path.
    pub(crate) fn delete(&self, path: &str) -> Result<Reply, ClientError> {
        self.ask(Method::DELETE, path, None)
    }

    fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Reply, ClientError> {
        let fail = |fault| ClientError { server: self.server.clone(), flag: self.flag, fault };
        let request = self.request(method, path, body).map_err(|_| fail(Fault::Request))?;
        // One request at a time: the thread that asks is enough.
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build();
        let runtime = runtime.map_err(|error| fail(Fault::Connect(error)))?;
        let reply = runtime.block_on(async {
            let reply = tokio::time::timeout(self.timeout, self.send(request)).await;
            reply.unwrap_or(Err(Fault::Timeout(self.timeout)))
        });
        // A name that is still looked up must not hold the answer back.
        runtime.shutdown_background();
        reply.map_err(fail)
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
        let host = match &self.server {
            Server::Tcp { .. } => self.server.to_string()["http://".len()..].to_owned(),
            Server::Unix(_) => "localhost".to_owned(),
        };
        let mut request = Request::builder().method(method).uri(path).header(HOST, host);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        match body {
            Some(body) => request
                .header(CONTENT_TYPE, "application/json")
                .body(Full::new(Bytes::from(body.to_string()))),
            None => request.body(Full::default()),
        }
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Reply, Fault> {
        match &self.server {
            Server::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await;
                exchange(stream.map_err(Fault::Connect)?, request).await
            }
            Server::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(Fault::Connect)?;
                exchange(stream, request).await
            }
        }
    }
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Reply, Fault>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|_| Fault::Exchange)?;
    let connection = tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(|_| Fault::Exchange)?;
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await;
    let body = body.map_err(|_| Fault::Body)?.to_bytes();
    connection.abort();
    let body = if body.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(&body).map_err(|_| Fault::NoJson { status })?
    };
    Ok(Reply { status, body })
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) struct ClientError {
    server: Server,
    flag: &'static str,
    fault: Fault,
}

#[derive(Debug)]
enum Fault {
    /// The path or a header cannot be sent.
    Request,
    Connect(io::Error),
    Exchange,
    Timeout(Duration),
    /// The body broke off, or was too long.
    Body,
    NoJson {
        status: u16,
    },
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (server, flag) = (&self.server, self.flag);
        match &self.fault {
            Fault::Request => f.write_str("this cannot be asked over HTTP"),
            Fault::Connect(error) => {
                let why = match error.kind() {
                    io::ErrorKind::ConnectionRefused => "nobody listens there".to_owned(),
                    io::ErrorKind::NotFound => "there is no such socket".to_owned(),
                    _ => error.to_string(),
                };
                write!(
                    f,
                    "no daemon at {server}: {why}; start one with `tidegate serve`, or say where it is with {flag}"
                )
            }
            Fault::Exchange => {
                write!(
                    f,
                    "what listens at {server} does not speak HTTP: is {flag} the right address of the daemon?"
                )
            }
            Fault::Timeout(after) => {
                write!(f, "no answer from {server} within {} ms", after.as_millis())
            }
            Fault::Body => write!(f, "the answer of {server} broke off"),
            Fault::NoJson { status } => {
                write!(
                    f,
                    "{server} answered {status} and no JSON: is it the address of a Tidegate daemon?"
                )
            }
        }
    }
}

impl std::error::Error for ClientError {}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream as BlockingStream};

    fn server(text: &str) -> Result<Server, String> {
        text.parse()
    }

    #[test]
    fn servers_are_addresses_or_sockets() {
        let tcp = |host: &str, port| Ok(Server::Tcp { host: host.to_owned(), port });
        assert_eq!(server("http://127.0.0.1:8080"), tcp("127.0.0.1", 8080));
        assert_eq!(server("http://localhost:8080/"), tcp("localhost", 8080));
        assert_eq!(server("limits.internal:81"), tcp("limits.internal", 81));
        assert_eq!(server("http://[::1]:8080"), tcp("::1", 8080));
        assert_eq!(server("http://[::1]:8080").unwrap().to_string(), "http://[::1]:8080");
        assert_eq!(server("unix:/run/t.sock"), Ok(Server::Unix("/run/t.sock".into())));
        for text in
            ["", "unix:", "https://a:1", "http://", "http://a b", "http://u:p@a:1", "http://a:1/x"]
        {
            assert!(server(text).is_err(), "{text}");
        }
    }

    /// Answers one request with these bytes, and gives what was asked.
    fn answering(answer: &'static str) -> (Server, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let asked = read_request(&mut stream);
            stream.write_all(answer.as_bytes()).unwrap();
            asked
        });
        (Server::Tcp { host: "127.0.0.1".to_owned(), port }, asked)
    }

    fn read_request(stream: &mut BlockingStream) -> String {
        let (mut asked, mut byte) = (Vec::new(), [0]);
        while !asked.ends_with(b"}") && stream.read(&mut byte).unwrap() > 0 {
            asked.push(byte[0]);
        }
        String::from_utf8(asked).unwrap()
    }

    #[test]
    fn a_request_carries_its_body_and_token() {
        let (server, asked) = answering("HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n{\"a\":1}");
        let client = Client { token: Some("sesame".to_owned()), ..Client::new(&server) };
        let reply = client.post_json("/v1/check", &json!({ "cost": 1 })).unwrap();
        assert_eq!((reply.status, reply.body), (200, json!({ "a": 1 })));
        let asked = asked.join().unwrap();
        assert!(asked.starts_with("POST /v1/check HTTP/1.1\r\n"), "{asked}");
        assert!(asked.contains("authorization: Bearer sesame\r\n"), "{asked}");
        assert!(asked.ends_with("\r\n\r\n{\"cost\":1}"), "{asked}");
    }

    #[test]
    fn what_is_no_daemon_is_told() {
        let (server, asked) = answering("HTTP/1.1 404 Not Found\r\ncontent-length: 5\r\n\r\nnope!");
        let error = Client::new(&server).post_json("/v1/check", &json!({})).unwrap_err();
        assert!(error.to_string().contains("answered 404 and no JSON"), "{error}");
        asked.join().unwrap();
        let (server, asked) = answering("+PONG\r\n");
        let error = Client::new(&server).post_json("/v1/check", &json!({})).unwrap_err();
        assert!(error.to_string().contains("does not speak HTTP"), "{error}");
        asked.join().unwrap();
    }

    #[test]
    fn silence_has_an_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Server::Tcp { host: "127.0.0.1".to_owned(), port };
        let client = Client::new(&server).with_timeout(Duration::from_millis(20));
        let error = client.post_json("/", &json!({})).unwrap_err();
        assert!(error.to_string().ends_with("within 20 ms"), "{error}");
    }

    #[test]
    fn nobody_there_says_what_to_do() {
        let port = tidegate_testing::free_port();
        let server = Server::Tcp { host: "127.0.0.1".to_owned(), port };
        let error = Client::new(&server).post_json("/", &json!({})).unwrap_err();
        assert!(error.to_string().contains("start one with `tidegate serve`"), "{error}");
    }
}
