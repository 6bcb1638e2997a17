//! What stands around the gRPC services: health, reflection, drain; and bytes that are no gRPC, while
//! good calls go on.

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::Daemon;
use bytes::{BufMut, Bytes, BytesMut};
use http::{Method, Request, Response};
use prost::Message as _;
use tidegate_server::grpc;
use tidegate_server::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tidegate_server::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use tidegate_server::proto::envoy::service::ratelimit::v3::rate_limit_response::Code as Rls;
use tidegate_server::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tidegate_server::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::Code;
use tonic::codegen::tokio_stream::StreamExt as _;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::{v1, v1alpha};

const RULES: &str = "
domain: web
rules:
  - { name: user, per: [user], limit: 1000000/day }
  - { name: slow, match: { path: /slow }, limit: { rate: 4/s, algorithm: leaky-bucket, burst: 9 } }
";

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// How long anything here may take before the test fails.
const DEADLINE: Duration = Duration::from_secs(20);

fn request(key: &str, value: &str) -> RateLimitRequest {
    let entries = vec![Entry { key: key.to_owned(), value: value.to_owned() }];
    let descriptors = vec![RateLimitDescriptor { entries, ..Default::default() }];
    RateLimitRequest { domain: "web".to_owned(), descriptors, hits_addend: 0 }
}

async fn channel(address: SocketAddr) -> Channel {
    Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

/// A call that must be answered, on a connection of its own.
async fn is_well(address: SocketAddr) {
    let mut client = RateLimitServiceClient::new(channel(address).await);
    let call = client.should_rate_limit(request("user", "good"));
    let response = timeout(DEADLINE, call).await.unwrap().unwrap().into_inner();
    assert_eq!(response.overall_code(), Rls::Ok);
}

/// A message as it is framed.
fn framed(flag: u8, length: usize, bytes: &[u8]) -> Bytes {
    let mut framed = BytesMut::new();
    framed.put_u8(flag);
    framed.put_u32(u32::try_from(length).unwrap());
    framed.put_slice(bytes);
    framed.freeze()
}

type Sender = h2::client::SendRequest<Bytes>;

async fn connect(address: SocketAddr) -> Sender {
    let stream = TcpStream::connect(address).await.unwrap();
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    sender.ready().await.unwrap()
}

fn head(path: &str, content_type: &str) -> Request<()> {
    let uri = format!("http://localhost{path}");
    let builder = Request::builder().method(Method::POST).uri(uri);
    builder.header("content-type", content_type).body(()).unwrap()
}

/// Sends these bytes as the body, and gives the response's head and the status of gRPC.
async fn send(sender: &mut Sender, head: Request<()>, body: Bytes) -> (Response<()>, Option<i32>) {
    let (response, mut stream) = sender.send_request(head, false).unwrap();
    stream.send_data(body, true).unwrap();
    let (head, mut body) = timeout(DEADLINE, response).await.unwrap().unwrap().into_parts();
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
    }
    let trailers = body.trailers().await.unwrap().unwrap_or_default();
    let status = head.headers.get("grpc-status").or(trailers.get("grpc-status"));
    let status = status.map(|value| value.to_str().unwrap().parse().unwrap());
    (Response::from_parts(head, ()), status)
}

#[tokio::test]
async fn malformed_messages_are_errors_and_never_denials() {
    let daemon = Daemon::new(RULES);
    let address = daemon.listen(grpc::serve).await;
    let mut sender = connect(address).await;
    let good = request("user", "ann").encode_to_vec();
    let grpc = || head(PATH, "application/grpc");
    let huge = grpc::MESSAGE_BYTES_MAX + 1;
    for (body, code) in [
        (framed(0, 4, b"\xff\xff\xff\xff"), Code::Internal),
        (framed(0, 7, b"\x0a\x05\xff\xfe\xfd\xfc\xfb"), Code::Internal),
        (framed(0, good.len() + 100, &good), Code::Internal),
        (framed(7, good.len(), &good), Code::Internal),
        (framed(1, good.len(), &good), Code::Internal),
        (framed(0, huge, &good), Code::OutOfRange),
        (framed(0, u32::MAX as usize, &good), Code::OutOfRange),
        (Bytes::from_static(b"\x00\x00"), Code::Internal),
        (Bytes::new(), Code::Internal),
    ] {
        let (response, status) = send(&mut sender, grpc(), body.clone()).await;
        assert_eq!(response.status(), 200);
        assert_eq!(status, Some(i32::from(code)), "{body:?}");
    }
    let body = framed(0, good.len(), &good);
    assert_eq!(send(&mut sender, grpc(), body.clone()).await.1, Some(0), "the connection lives on");
    let html = send(&mut sender, head(PATH, "text/html"), body.clone()).await;
    assert_eq!((html.0.status().as_u16(), html.1), (415, None));
    for path in ["/", "/nobody.Knows/It", "/tidegate.v1.Limiter/Nothing", "/grpc.reflection.v9.X/Y"]
    {
        let unknown = send(&mut sender, head(path, "application/grpc"), body.clone()).await;
        assert_eq!(unknown.1, Some(Code::Unimplemented.into()), "{path}");
    }
}

#[tokio::test]
async fn bytes_that_are_no_http_end_their_connection_alone() {
    let daemon = Daemon::new(RULES);
    let address = daemon.listen(grpc::serve).await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    let with = |tail: &[u8]| [&preface[..], settings, tail].concat();
    // A length that no frame has, headers on stream 0, half a frame, a header block of rubbish.
    let inputs = [
        b"GET / HTTP/1.1\r\nhost: a\r\n\r\n".to_vec(),
        (0..=255).cycle().take(9_000).collect(),
        with(&[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]),
        with(&[0, 0, 1, 1, 5, 0, 0, 0, 0, 0x82]),
        with(&[0, 0, 200, 1, 5, 0, 0, 0, 1, 0x82]),
        with(&[0, 0, 4, 1, 5, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]),
        with(&[0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    ];
    for (number, input) in inputs.iter().enumerate() {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // The other side may have hung up before all of it is written.
        let _ = stream.write_all(input).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let read = timeout(DEADLINE, stream.read_to_end(&mut answer)).await;
        assert!(read.is_ok(), "input {number} kept its connection");
        is_well(address).await;
    }
}

#[tokio::test]
async fn a_message_that_never_ends_is_not_waited_for_beyond_its_time() {
    let daemon = Daemon::new(RULES);
    let patience = Duration::from_secs(1);
    let serve = move |engine, stream, peer, drain| {
        grpc::serve_within(patience, engine, stream, peer, drain)
    };
    let address = daemon.listen(serve).await;
    let mut sender = connect(address).await;
    for path in [PATH, "/tidegate.v1.Limiter/Check"] {
        let (response, mut stream) =
            sender.send_request(head(path, "application/grpc"), false).unwrap();
        // It says that a hundred bytes follow, and sends three of them.
        stream.send_data(Bytes::from_static(b"\0\0\0\0\x64abc"), false).unwrap();
        is_well(address).await;
        let response = timeout(DEADLINE, response).await.unwrap().unwrap();
        let status = response.headers().get("grpc-status").unwrap();
        assert_eq!(status.to_str().unwrap(), (Code::DeadlineExceeded as i32).to_string(), "{path}");
    }
    is_well(address).await;
}

/// Opens streams and takes each back at once, until all are done or the other side has had enough.
async fn flood(mut sender: Sender) {
    for _ in 0..20_000 {
        let Ok(ready) = sender.ready().await else { return };
        sender = ready;
        let Ok((_, mut stream)) = sender.send_request(head(PATH, "application/grpc"), false) else {
            return;
        };
        stream.send_reset(h2::Reason::CANCEL);
    }
}

#[tokio::test]
async fn a_flood_of_resets_harms_nobody_else() {
    let daemon = Daemon::new(RULES);
    let address = daemon.listen(grpc::serve).await;
    let stream = TcpStream::connect(address).await.unwrap();
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let flooding = tokio::spawn(flood(sender));
    while !flooding.is_finished() {
        is_well(address).await;
    }
    flooding.await.unwrap();
    // Cut off with an error, or ended because the client is done: but ended.
    let _ = timeout(DEADLINE, connection).await.unwrap();
    is_well(address).await;
}

#[tokio::test]
async fn health_is_told_by_service_and_turns_while_draining() {
    let daemon = Daemon::new(RULES);
    let address = daemon.listen(grpc::serve).await;
    let mut client = HealthClient::new(channel(address).await);
    let ask = |service: &str| HealthCheckRequest { service: service.to_owned() };
    for service in
        ["", "envoy.service.ratelimit.v3.RateLimitService", "tidegate.v1.Limiter", "ratelimit"]
    {
        let response = client.check(ask(service)).await.unwrap().into_inner();
        assert_eq!(response.status(), ServingStatus::Serving, "{service}");
    }
    assert_eq!(client.check(ask("nobody")).await.unwrap_err().code(), Code::NotFound);

    let mut watched = client.watch(ask("")).await.unwrap().into_inner();
    let mut unknown = client.watch(ask("nobody")).await.unwrap().into_inner();
    let first = watched.message().await.unwrap().unwrap();
    assert_eq!(first.status(), ServingStatus::Serving);
    let first = unknown.message().await.unwrap().unwrap();
    assert_eq!(first.status(), ServingStatus::ServiceUnknown);
    daemon.drain.cancel();
    let last = timeout(DEADLINE, watched.message()).await.unwrap().unwrap().unwrap();
    assert_eq!(last.status(), ServingStatus::NotServing);
    assert!(watched.message().await.unwrap().is_none(), "a watcher does not hold the drain up");
    assert!(timeout(DEADLINE, unknown.message()).await.unwrap().unwrap().is_none());
}

#[tokio::test]
async fn a_call_that_is_under_way_is_answered_while_draining() {
    let daemon = Daemon::new(RULES);
    let address = daemon.listen(grpc::serve).await;
    let mut client = RateLimitServiceClient::new(channel(address).await);
    let slow = || request("path", "/slow");
    client.should_rate_limit(slow()).await.unwrap();
    // The second has to wait for 250 ms; it has been decided once the bucket says so.
    let mut waiting = client.clone();
    let call = tokio::spawn(async move { waiting.should_rate_limit(slow()).await });
    let limiter = daemon.engine.limiter();
    let look = [("path", "/slow").into()];
    let look = tidegate::Call::new("web", &look).with_cost(0);
    while limiter.peek(&look).await.unwrap().remaining() > Some(7) {
        tokio::task::yield_now().await;
    }
    daemon.drain.cancel();
    let response: RateLimitResponse =
        timeout(DEADLINE, call).await.unwrap().unwrap().unwrap().into_inner();
    assert_eq!(response.overall_code(), Rls::Ok);
}

const SERVICES: [&str; 3] =
    ["envoy.service.ratelimit.v3.RateLimitService", "grpc.health.v1.Health", "tidegate.v1.Limiter"];

#[tokio::test]
async fn reflection_lists_the_services_and_their_files() {
    use v1::server_reflection_client::ServerReflectionClient;
    use v1::server_reflection_request::MessageRequest;
    use v1::server_reflection_response::MessageResponse;

    let daemon = Daemon::new(RULES);
    let address = daemon.listen(grpc::serve).await;
    let mut client = ServerReflectionClient::new(channel(address).await);
    let symbol = MessageRequest::FileContainingSymbol(SERVICES[2].to_owned());
    let asked = [MessageRequest::ListServices(String::new()), symbol].map(|message| {
        v1::ServerReflectionRequest { host: String::new(), message_request: Some(message) }
    });
    let stream = tonic::codegen::tokio_stream::iter(asked);
    let mut answers = client.server_reflection_info(stream).await.unwrap().into_inner();
    let answer = answers.next().await.unwrap().unwrap().message_response.unwrap();
    let MessageResponse::ListServicesResponse(list) = answer else { panic!("a list") };
    let names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
    assert!(SERVICES.iter().all(|name| names.iter().any(|other| other == name)), "{names:?}");
    let answer = answers.next().await.unwrap().unwrap().message_response.unwrap();
    let MessageResponse::FileDescriptorResponse(files) = answer else { panic!("a file") };
    assert!(!files.file_descriptor_proto.is_empty());
}

#[tokio::test]
async fn older_tools_find_the_older_reflection() {
    use v1alpha::server_reflection_client::ServerReflectionClient;
    use v1alpha::server_reflection_request::MessageRequest;
    use v1alpha::server_reflection_response::MessageResponse;

    let daemon = Daemon::new(RULES);
    let address = daemon.listen(grpc::serve).await;
    let mut client = ServerReflectionClient::new(channel(address).await);
    let list = MessageRequest::ListServices(String::new());
    let request =
        v1alpha::ServerReflectionRequest { host: String::new(), message_request: Some(list) };
    let stream = tonic::codegen::tokio_stream::iter([request]);
    let mut answers = client.server_reflection_info(stream).await.unwrap().into_inner();
    let answer = answers.next().await.unwrap().unwrap().message_response.unwrap();
    let MessageResponse::ListServicesResponse(list) = answer else { panic!("a list") };
    let names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
    assert!(SERVICES.iter().all(|name| names.iter().any(|other| other == name)), "{names:?}");
}
