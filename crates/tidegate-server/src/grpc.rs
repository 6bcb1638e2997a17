//! The gRPC services: Envoy's rate limit service, our own, health and reflection, over HTTP/2. Here is
//! how a request finds its service; what each answers is in the files below.

mod envoy;
mod headers;
mod health;
mod in_time;
mod json;
mod metadata;
mod native;
mod reflection;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{CONTENT_TYPE, HeaderValue};
use ::http::{Request, Response, StatusCode};
use bytes::Bytes;
use hyper::body::Incoming;
use tidegate::rules::descriptors::with_concurrency;
use tidegate_rules::RuleSet;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::body::Body;
use tonic_health::pb::health_server::HealthServer;
use tower_service::Service as _;

pub use headers::{reference_headers, x_ratelimit_headers};
pub use json::json;

use crate::engine::{DescriptorsAnswer, Engine};
use crate::listen::{Peer, Stream};
use crate::metrics::Entrance;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitServiceServer;
use crate::proto::tidegate::v1::limiter_server::LimiterServer;
use crate::web::{self, End, Versions};
use envoy::Envoy;
use health::Health;
use in_time::InTime;
use native::Native;

/// The most bytes of a message. Those of proxies are a few hundred.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// The most descriptors of a call over Envoy's service.
pub const DESCRIPTORS_MAX: usize = 64;
/// The most calls that are checked together.
pub const CHECKS_MAX: usize = 1_000;
/// The longest that a call over Envoy's service is held back by a leaky bucket, unless another time is
/// set. What would have to wait longer is denied.
pub const DELAY_MAX: Duration = Duration::from_secs(5);

/// How long a client may take to send a message, once it has begun.
pub const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Names and values of headers.
pub type Headers = Vec<(String, String)>;

/// What answers of Envoy's service have beside the decision. All of it is off unless it is turned on.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct EnvoySettings {
    /// The headers that the proxy adds to its response.
    pub headers: Option<fn(&DescriptorsAnswer) -> Headers>,
    /// The body that the proxy sends to a client that is denied.
    pub body: Option<fn(&DescriptorsAnswer) -> Bytes>,
    /// Whether the proxy is told the descriptors, what rules say while there is room, and which
    /// quotas and rules in shadow are over, as metadata of the request. Values of the request are in
    /// it.
    pub dynamic_metadata: bool,
    /// The longest that a call is held back by a leaky bucket. What would have to wait longer is denied.
    pub delay_max: Duration,
}

impl Default for EnvoySettings {
    fn default() -> Self {
        Self { headers: None, body: None, dynamic_metadata: false, delay_max: DELAY_MAX }
    }
}

/// Serves one connection until it ends, or until `drain` is cancelled and what is under way is
/// answered.
pub async fn serve(engine: Arc<Engine>, stream: Stream, peer: Peer, drain: CancellationToken) {
    serve_within(MESSAGE_TIMEOUT, engine, stream, peer, drain).await;
}

/// The same with another time in which messages have to arrive.
pub async fn serve_within(
    message_timeout: Duration,
    engine: Arc<Engine>,
    stream: Stream,
    _peer: Peer,
    drain: CancellationToken,
) {
    let services = Services::new(Arc::clone(&engine), drain.clone(), message_timeout);
    let panicked = |_| Status::internal("something went wrong here").into_http();
    if web::serve(services, panicked, stream, Versions::Two, drain).await == End::NotTheProtocol {
        engine.metrics().protocol_error(Entrance::Grpc);
    }
}

/// What an operator is told when rules are put in force: which limits cannot be kept over Envoy's
/// service, and take more of whoever asks for a status over HTTP.
pub fn warnings(rules: &RuleSet) -> Vec<String> {
    with_concurrency(rules)
        .map(|(domain, rule)| {
            format!(
                "rule `{}` of domain `{domain}` has a concurrency limit, which does not apply to \
                 calls over Envoy's rate limit service: a proxy does not say when a request ends. Over \
                 /limit and /v1/auth a place stays taken until its X-RateLimit-Lease-Id is released, \
                 or its time is over",
                rule.name
            )
        })
        .collect()
}

/// All services of one connection.
#[derive(Clone)]
struct Services {
    envoy: RateLimitServiceServer<Envoy>,
    native: LimiterServer<Native>,
    health: HealthServer<Health>,
    message_timeout: Duration,
}

/// An answer in the making.
type Answering = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl Services {
    fn new(engine: Arc<Engine>, drain: CancellationToken, message_timeout: Duration) -> Self {
        Self {
            message_timeout,
            envoy: RateLimitServiceServer::new(Envoy::new(Arc::clone(&engine)))
                .max_decoding_message_size(MESSAGE_BYTES_MAX),
            native: LimiterServer::new(Native::new(engine))
                .max_decoding_message_size(MESSAGE_BYTES_MAX),
            health: HealthServer::new(Health::new(drain))
                .max_decoding_message_size(MESSAGE_BYTES_MAX),
        }
    }
}

impl hyper::service::Service<Request<Incoming>> for Services {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    /// Compares a few prefixes, the busiest first, which is faster than any router.
    fn call(&self, request: Request<Incoming>) -> Answering {
        let content_type = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        if !content_type.is_some_and(|value| value.starts_with(b"application/grpc")) {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Box::pin(std::future::ready(Ok(response)));
        }
        let in_time = |body| InTime::new(body, self.message_timeout);
        let path = request.uri().path();
        if path.starts_with("/envoy.service.ratelimit.v3.RateLimitService/") {
            self.envoy.clone().call(request.map(in_time))
        } else if path.starts_with("/tidegate.v1.Limiter/") {
            self.native.clone().call(request.map(in_time))
        } else if path.starts_with("/grpc.health.v1.Health/") {
            self.health.clone().call(request.map(in_time))
        } else if path.starts_with("/grpc.reflection.") {
            // A conversation, in which a client may well think for a while.
            reflection::answer(request)
        } else {
            let unknown = Status::unimplemented("there is no such service here");
            Box::pin(std::future::ready(Ok(unknown.into_http())))
        }
    }
}
