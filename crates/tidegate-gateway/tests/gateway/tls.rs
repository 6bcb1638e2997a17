//! TLS on both sides, and what passes through it: versions that are agreed on, certificates that are exchanged,
//! and a stream of gRPC.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};
use rcgen::{CertificateParams, CertifiedKey, KeyPair, date_time_ymd, generate_simple_self_signed};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tidegate_gateway::tls::CertificateFiles;
use tidegate_gateway::upstream::Probe;
use tidegate_server::config::{Layer, Settings};
use tidegate_server::listen::{Address, Inherited, Service};
use tidegate_server::log::LogLevel;
use tidegate_server::serve::process::Life as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::http2::{HEADERS, RST_STREAM, WINDOW_UPDATE};
use crate::log::Log;
use crate::peer::Caller;
use crate::support::{
    Folder, PATIENCE, Upstream, failures, full, gateway, port, settings, until, until_idle, whole,
    with_rules,
};

/// A certificate for these names, and the files with it.
fn certificate(folder: &Folder, name: &str, hosts: &[&str]) -> CertificateFiles {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(hosts).unwrap();
    CertificateFiles {
        certificate: folder.write(&format!("{name}.pem"), cert.pem()),
        key: folder.write(&format!("{name}-key.pem"), signing_key.serialize_pem()),
    }
}

fn trusting(path: &PathBuf, protocols: &[&str]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).unwrap() {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|one| one.as_bytes().to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

type Tls = tokio_rustls::client::TlsStream<TcpStream>;

async fn connect(
    address: SocketAddr,
    name: &'static str,
    tls: &TlsConnector,
) -> std::io::Result<Tls> {
    let stream = TcpStream::connect(address).await.unwrap();
    tls.connect(ServerName::try_from(name).unwrap(), stream).await
}

fn request(host: &str) -> Request<Full<Bytes>> {
    Request::get(format!("https://{host}/x")).header("host", host).body(Full::default()).unwrap()
}

#[tokio::test]
async fn the_version_is_agreed_on_and_the_upstream_is_told_of_tls() {
    let folder = Folder::new("alpn");
    let files = certificate(&folder, "a", &["a.example"]);
    let upstream = Upstream::echo().await;
    let mut settings = settings(&[&upstream.url()]);
    settings.certificates = vec![files.clone()];
    let running = gateway(settings).await;

    let tls = trusting(&files.certificate, &["h2", "http/1.1"]);
    let stream = connect(port(&running), "a.example", &tls).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let answer = whole(sender.send_request(request("a.example")).await.unwrap()).await;
    assert!(answer.body().contains("x-forwarded-proto: https"), "{}", answer.body());

    let tls = trusting(&files.certificate, &[]);
    let stream = connect(port(&running), "a.example", &tls).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let one =
        Request::get("/x").header("host", "a.example").body(Full::<Bytes>::default()).unwrap();
    let answer = whole(sender.send_request(one).await.unwrap()).await;
    assert!(answer.body().contains("proto=https"), "{}", answer.body());
}

#[tokio::test]
async fn certificates_are_chosen_by_name_and_exchanged_while_it_runs() {
    let folder = Folder::new("reload");
    let (a, b) =
        (certificate(&folder, "a", &["a.example"]), certificate(&folder, "b", &["*.b.example"]));
    let upstream = Upstream::echo().await;
    let mut settings = settings(&[&upstream.url()]);
    settings.certificates = vec![a.clone(), b.clone()];
    let running = gateway(settings).await;
    let address = port(&running);
    let old = trusting(&a.certificate, &[]);
    assert!(connect(address, "a.example", &old).await.is_ok());
    assert!(connect(address, "x.b.example", &trusting(&b.certificate, &[])).await.is_ok());
    let mut kept = connect(address, "a.example", &old).await.unwrap();

    let new = certificate(&folder, "a", &["a.example"]);
    assert!(running.reload());
    assert!(connect(address, "a.example", &trusting(&new.certificate, &[])).await.is_ok());
    assert!(
        connect(address, "a.example", &old).await.is_err(),
        "the old one is not shown any more"
    );
    // A file that is no certificate changes nothing.
    std::fs::write(&new.certificate, "nonsense").unwrap();
    assert!(running.reload());
    assert!(connect(address, "x.b.example", &trusting(&b.certificate, &[])).await.is_ok());
    // Connections that are there go on.
    let ask = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    kept.write_all(ask).await.unwrap();
    let mut answer = Vec::new();
    kept.read_to_end(&mut answer).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200 OK"));
}

/// A certificate that begins and ends so many days from a time, and the moment when it ends.
fn dated(
    folder: &Folder,
    name: &str,
    now: Timestamp,
    (begins, ends): (i64, i64),
) -> (CertificateFiles, Timestamp) {
    let midnight = |days: i64| {
        let date = (now + SignedDuration::from_hours(24 * days)).to_zoned(TimeZone::UTC).date();
        date.to_zoned(TimeZone::UTC).unwrap()
    };
    let day = |time: &Zoned| {
        let (month, day) = (time.month().unsigned_abs(), time.day().unsigned_abs());
        date_time_ymd(time.year().into(), month, day)
    };
    let mut params = CertificateParams::new(vec![format!("{name}.example")]).unwrap();
    let (begins, ends) = (midnight(begins), midnight(ends));
    (params.not_before, params.not_after) = (day(&begins), day(&ends));
    let key = KeyPair::generate().unwrap();
    let files = CertificateFiles {
        certificate: folder.write(&format!("{name}.pem"), params.self_signed(&key).unwrap().pem()),
        key: folder.write(&format!("{name}-key.pem"), key.serialize_pem()),
    };
    (files, ends.timestamp())
}

#[tokio::test]
async fn certificates_that_clients_refuse_or_soon_will_are_told_of_at_the_start_and_at_each_reload()
{
    let folder = Folder::new("dated");
    let upstream = Upstream::echo().await;
    let clock = gateway(settings(&[&upstream.url()])).await;
    let now = clock.daemon().engine().limiter().now();
    let now = Timestamp::from_microsecond(now.as_micros().try_into().unwrap()).unwrap();
    let dated = |name: &str, days| dated(&folder, name, now, days);
    let all = [
        (dated("well", (-1, 60)), None),
        (dated("ending", (-60, 10)), Some("expires soon, at ")),
        (dated("expired", (-60, -3)), Some("expired at ")),
        (dated("early", (3, 60)), Some("is valid from ")),
    ];
    let mut settings = settings(&[&upstream.url()]);
    settings.certificates = all.iter().map(|((files, _), _)| files.clone()).collect();
    let log = Log::begin();
    let running = gateway(settings).await;
    for times in 1..=3 {
        for ((files, _), words) in &all {
            let lines = log.lines(files.certificate.to_str().unwrap());
            assert_eq!(lines.len(), if words.is_some() { times } else { 0 }, "{}", log.text());
            let has_words =
                |line: &String| line.contains(" WARN ") && line.contains(words.unwrap());
            assert!(lines.iter().all(has_words), "{lines:?}");
        }
        let _ = running.reload();
    }
    let ((_, ends), _) = &all[1];
    assert_eq!(log.lines(&format!("at {ends}")).len(), 4, "{}", log.text());
    // One that is renewed is not told of any more.
    let (renewed, ends) = dated("expired", (-1, 90));
    let before = log.lines("expired.pem").len();
    assert!(running.reload());
    assert_eq!(log.lines("expired.pem").len(), before);

    let engine = running.daemon().engine();
    let text = engine.metrics().render(engine);
    let name = renewed.certificate.display();
    let series = format!(
        "tidegate_certificate_expiry_timestamp_seconds{{certificate=\"{name}\"}} {}\n",
        ends.as_second()
    );
    assert!(text.contains(&series), "no {series} in {text}");
    assert_eq!(text.matches("tidegate_certificate_expiry_timestamp_seconds{").count(), 4);
}

#[tokio::test]
async fn an_upstream_is_reached_by_tls_only_where_it_is_trusted() {
    let folder = Folder::new("upstream");
    let files = certificate(&folder, "u", &["localhost"]);
    let plain = Upstream::echo().await;
    // A gateway with TLS is the upstream of another.
    let mut inner = settings(&[&plain.url()]);
    inner.certificates = vec![files.clone()];
    let inner = gateway(inner).await;
    let url = format!("https://localhost:{}", port(&inner).port());
    let mut outer = settings(&[&url]);
    outer.routes[0].upstream.ca = Some(files.certificate.clone());
    let outer = gateway(outer).await;
    let answer = crate::support::get(port(&outer), "/").await;
    assert_eq!(answer.status(), 200);
    // The version between the two was agreed on, and so was HTTP/2.
    assert!(answer.body().contains("via: 1.1 tidegate, 2 tidegate"), "{}", answer.body());
    until_idle(&outer).await;

    let strangers = certificate(&folder, "other", &["localhost"]);
    let mut other = settings(&[&url]);
    other.routes[0].upstream.ca = Some(strangers.certificate);
    let log = Log::begin();
    let other = gateway(other).await;
    assert_eq!(crate::support::get(port(&other), "/").await.status(), 502);
    let why = log.lines("no connection: invalid peer certificate: ");
    assert!(why.iter().any(|line| line.contains(&url)), "{}", log.text());
}

/// Takes connections by TLS, and speaks this protocol on them.
fn acceptor(files: &CertificateFiles, protocol: &str) -> TlsAcceptor {
    let chain = CertificateDer::pem_file_iter(&files.certificate).unwrap();
    let chain = chain.map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// Answers over HTTP/1.1 alone, and takes its time for handshakes, as over some distance.
async fn slow_to_greet(files: &CertificateFiles) -> Upstream {
    let acceptor = acceptor(files, "http/1.1");
    Upstream::accepting(move |stream, _| {
        let acceptor = acceptor.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(150)).await;
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            let mut head = vec![0; 4 << 10];
            while stream.read(&mut head).await.is_ok_and(|read| read > 0) {
                // So that each of those that come together needs a connection.
                tokio::time::sleep(Duration::from_millis(300)).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
                let _ = stream.flush().await;
            }
        }
    })
    .await
}

#[tokio::test]
async fn requests_that_come_together_connect_together_to_a_server_that_turns_out_to_speak_http1() {
    let folder = Folder::new("together");
    let files = certificate(&folder, "u", &["localhost"]);
    let upstream = slow_to_greet(&files).await;
    let mut settings = settings(&[&format!("https://localhost:{}", upstream.address.port())]);
    settings.routes[0].upstream.ca = Some(files.certificate);
    // One after the other they would take more than twice as long.
    settings.routes[0].upstream.connect_timeout = Duration::from_secs(2);
    let running = gateway(settings).await;
    let to = port(&running);
    let asked: Vec<_> = (0..30).map(|_| tokio::spawn(crate::support::get(to, "/"))).collect();
    for asked in asked {
        assert_eq!(asked.await.unwrap().status(), 200);
    }
    assert_eq!(failures(&running), 0);
    until_idle(&running).await;
}

#[tokio::test]
async fn a_probe_that_hangs_while_it_connects_keeps_no_request_from_connecting_anew() {
    let folder = Folder::new("hangs");
    let upstream = Upstream::accepting(|stream, asked| {
        asked.fetch_add(1, Ordering::SeqCst);
        async move {
            tokio::time::sleep(PATIENCE).await;
            drop(stream);
        }
    })
    .await;
    let mut settings = settings(&[&format!("https://localhost:{}", upstream.address.port())]);
    let route = &mut settings.routes[0].upstream;
    route.ca = Some(certificate(&folder, "u", &["localhost"]).certificate);
    route.connect_timeout = Duration::from_millis(300);
    route.probe = Some(Probe { path: "/".to_owned(), every: PATIENCE, timeout: PATIENCE });
    let running = gateway(settings).await;
    until("a probe", || upstream.asked() > 0).await;
    for _ in 0..3 {
        assert!(crate::support::get(port(&running), "/").await.status().is_server_error());
    }
    assert!(upstream.asked() >= 3, "{}", upstream.asked());
}

#[tokio::test]
async fn a_server_that_comes_to_speak_http2_is_asked_over_one_connection() {
    let folder = Folder::new("comes-to-speak");
    let files = certificate(&folder, "u", &["localhost"]);
    let acceptors = ["http/1.1", "h2"].map(|protocol| acceptor(&files, protocol));
    let upstream = Upstream::accepting(move |stream, asked| {
        let is_first = asked.fetch_add(1, Ordering::SeqCst) == 0;
        let acceptor = acceptors[usize::from(!is_first)].clone();
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            if is_first {
                let _ = stream.read(&mut [0; 4 << 10]).await;
                let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
                let _ = stream.write_all(answer).await;
                let _ = stream.shutdown().await;
                return;
            }
            let service = service_fn(async |_| Ok::<_, Infallible>(Response::new(full(""))));
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        }
    })
    .await;
    let mut settings = settings(&[&format!("https://localhost:{}", upstream.address.port())]);
    settings.routes[0].upstream.ca = Some(files.certificate);
    let running = gateway(settings).await;
    for _ in 0..5 {
        assert_eq!(crate::support::get(port(&running), "/").await.status(), 200);
    }
    assert_eq!(upstream.asked(), 2, "one connection of each kind");
    assert_eq!(failures(&running), 0);
    until_idle(&running).await;
}

#[tokio::test]
async fn a_stream_of_grpc_passes_through() {
    // The daemon's own gRPC is the service behind.
    let layer = Layer {
        http: Some(Address::Off),
        resp: Some(Address::Off),
        admin: Some(Address::Off),
        grpc: Some("127.0.0.1:0".parse().unwrap()),
        ..Layer::default()
    };
    let daemon = Settings::new(layer).unwrap();
    let daemon =
        tidegate_server::start(daemon, Inherited::none(), LogLevel::unused()).await.unwrap();
    let grpc = daemon.address(Service::Grpc).unwrap();
    let running = gateway(settings(&[&format!("h2c://{grpc}")])).await;
    let channel = tonic::transport::Channel::from_shared(format!("http://{}", port(&running)));
    let channel = channel.unwrap().connect().await.unwrap();
    let mut client = HealthClient::new(channel);
    let request = HealthCheckRequest { service: String::new() };
    let checked = client.check(request.clone()).await.unwrap();
    assert_eq!(checked.into_inner().status, 1);
    let mut watching = client.watch(request).await.unwrap().into_inner();
    assert_eq!(watching.message().await.unwrap().unwrap().status, 1);
    let unknown = HealthCheckRequest { service: "nobody".into() };
    let error = client.check(unknown).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::NotFound, "the status is in the trailers");
    drop((watching, client));
    until_idle(&running).await;
    daemon.shutdown().await;
}

#[tokio::test]
async fn a_websocket_passes_where_both_sides_prefer_http2() {
    let folder = Folder::new("websocket");
    let files = certificate(&folder, "w", &["localhost"]);
    let chat = crate::forward::shouting().await;
    let mut inner = settings(&[&chat.url()]);
    inner.certificates = vec![files.clone()];
    let inner = gateway(inner).await;
    let mut outer = settings(&[&format!("https://localhost:{}", port(&inner).port())]);
    outer.routes[0].upstream.ca = Some(files.certificate.clone());
    let outer = gateway(outer).await;
    let mut client = TcpStream::connect(port(&outer)).await.unwrap();
    client.write_all(crate::forward::UPGRADE.as_bytes()).await.unwrap();
    let head = crate::support::read_head(&mut client).await.unwrap();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    client.write_all(b"hello").await.unwrap();
    let mut back = [0; 5];
    let reading = client.read_exact(&mut back);
    tokio::time::timeout(PATIENCE, reading).await.unwrap().unwrap();
    assert_eq!(&back, b"HELLO");
    drop(client);
    until_idle(&outer).await;
    until_idle(&inner).await;
}

/// A stream that writes a byte at a time.
struct ByteByByte(TcpStream);

impl AsyncRead for ByteByByte {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for ByteByByte {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, &bytes[..bytes.len().min(1)])
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[tokio::test]
async fn records_that_come_byte_by_byte_are_put_together() {
    let folder = Folder::new("bytes");
    let files = certificate(&folder, "a", &["a.example"]);
    let upstream = Upstream::echo().await;
    let mut settings = settings(&[&upstream.url()]);
    settings.certificates = vec![files.clone()];
    let running = gateway(settings).await;
    let name = || ServerName::try_from("a.example").unwrap();
    for is_plain in [true, false] {
        let stream = TcpStream::connect(port(&running)).await.unwrap();
        // Each of them is a segment of its own.
        stream.set_nodelay(true).unwrap();
        let tls = trusting(&files.certificate, &["http/1.1"]);
        let mut stream = tls.connect(name(), ByteByByte(stream)).await.unwrap();
        let more = if is_plain { "" } else { "TE: trailers\r\n" };
        let asking =
            format!("GET / HTTP/1.1\r\nHost: a.example\r\n{more}Connection: close\r\n\r\n");
        stream.write_all(asking.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200 OK"));
    }
    let stream = TcpStream::connect(port(&running)).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let tls = trusting(&files.certificate, &["h2"]);
    let stream = tls.connect(name(), ByteByByte(stream)).await.unwrap();
    let mut two = Caller::over(stream, 65_535).await;
    two.get(1, "/").await;
    assert_eq!(two.hear(&[HEADERS]).await.unwrap().3[0], 0x88);
    drop(two);
    until_idle(&running).await;
}

/// How long clients have for what is asked of them.
const TIME: Duration = Duration::from_millis(500);

#[tokio::test]
async fn a_handshake_that_stops_or_trickles_is_not_waited_for() {
    let folder = Folder::new("handshake");
    let files = certificate(&folder, "a", &["a.example"]);
    let upstream = Upstream::echo().await;
    let mut settings = settings(&[&upstream.url()]);
    settings.certificates = vec![files.clone()];
    settings.front.head_timeout = TIME;
    let running = gateway(settings).await;
    let tls = trusting(&files.certificate, &[]);
    let name = ServerName::try_from("a.example").unwrap();
    let mut client = rustls::ClientConnection::new(Arc::clone(tls.config()), name).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    let mut ending = Vec::new();
    let begun = tokio::time::Instant::now();
    for length in [0, 1, 5, 6, hello.len() / 2, hello.len() - 1, hello.len()] {
        let mut stream = TcpStream::connect(port(&running)).await.unwrap();
        stream.write_all(&hello[..length]).await.unwrap();
        // What comes back, if anything, is no answer to wait for.
        ending.push(tokio::spawn(async move { crate::support::read_all(&mut stream).await }));
    }
    let (mut reading, mut writing) = TcpStream::connect(port(&running)).await.unwrap().into_split();
    let trickling = tokio::spawn(async move {
        let mut every = tokio::time::interval(TIME / 10);
        for byte in hello {
            every.tick().await;
            if writing.write_all(&[byte]).await.is_err() {
                return;
            }
        }
    });
    ending.push(tokio::spawn(async move {
        let _ = reading.read_to_end(&mut Vec::new()).await;
        String::new()
    }));
    for ended in ending {
        tokio::time::timeout(PATIENCE, ended).await.expect("an end in time").unwrap();
    }
    assert!(begun.elapsed() < 10 * TIME, "{:?}", begun.elapsed());
    trickling.abort();
    until_idle(&running).await;
    assert!(connect(port(&running), "a.example", &tls).await.is_ok(), "others are unharmed");
}

#[tokio::test]
async fn a_client_over_tls_that_takes_nothing_loses_its_place() {
    let folder = Folder::new("untaken");
    let files = certificate(&folder, "a", &["a.example"]);
    let upstream = Upstream::serving(|_| async { Response::new(full(vec![b'x'; 32 << 20])) }).await;
    let mut settings = with_rules(&[&upstream.url()], |layer| {
        layer.limit = Some("5 at once for 1h per ip".parse().unwrap());
    });
    settings.certificates = vec![files.clone()];
    settings.front.head_timeout = TIME;
    let running = gateway(settings).await;
    let (one, two) =
        (trusting(&files.certificate, &["http/1.1"]), trusting(&files.certificate, &["h2"]));
    let mut plain = Vec::new();
    for more in ["", "TE: trailers\r\n"] {
        let mut stream = connect(port(&running), "a.example", &one).await.unwrap();
        let asking = format!("GET / HTTP/1.1\r\nHost: a.example\r\n{more}\r\n");
        stream.write_all(asking.as_bytes()).await.unwrap();
        plain.push(stream);
    }
    // One reads nothing, however much it may be sent, and one reads and may be sent nothing.
    let stream = connect(port(&running), "a.example", &two).await.unwrap();
    let mut deaf = Caller::over(stream, 1 << 30).await;
    deaf.say(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes()).await;
    deaf.get(1, "/").await;
    let stream = connect(port(&running), "a.example", &two).await.unwrap();
    let mut closed = Caller::over(stream, 0).await;
    closed.get(1, "/").await;
    until("asked", || upstream.asked() == 4).await;
    assert!(closed.hear(&[HEADERS]).await.is_some());
    until("given back", || running.counts().under_way == 0).await;
    assert!(closed.hear(&[RST_STREAM]).await.is_some());
    // Their connections end as well, though none of them closes its own.
    until_idle(&running).await;
    drop((plain, deaf, closed));
}
