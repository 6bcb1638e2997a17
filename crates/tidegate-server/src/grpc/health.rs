//! `grpc.health.v1`: whether the services take calls. They do until the daemon is drained; whoever
//! watches is told at once, and the stream ends, so that nobody's watching keeps a daemon from ending.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::codegen::tokio_stream::Stream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse, health_server};

/// What can be asked about: everything together, each service, and the name under which
/// envoyproxy/ratelimit answers.
const NAMES: [&str; 4] =
    ["", "envoy.service.ratelimit.v3.RateLimitService", "tidegate.v1.Limiter", "ratelimit"];

/// Tells whether calls are taken.
#[derive(Debug)]
pub(super) struct Health {
    drain: CancellationToken,
}

impl Health {
    pub(super) fn new(drain: CancellationToken) -> Self {
        Self { drain }
    }

    fn status(&self) -> ServingStatus {
        if self.drain.is_cancelled() { ServingStatus::NotServing } else { ServingStatus::Serving }
    }
}

#[tonic::async_trait]
impl health_server::Health for Health {
    type WatchStream = Watch;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        if !NAMES.contains(&&*request.get_ref().service) {
            return Err(Status::not_found("there is no such service here"));
        }
        Ok(Response::new(response(self.status())))
    }

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Watch>, Status> {
        let is_known = NAMES.contains(&&*request.get_ref().service);
        let first = if is_known { self.status() } else { ServingStatus::ServiceUnknown };
        let drained = Box::pin(self.drain.clone().cancelled_owned());
        Ok(Response::new(Watch { first: Some(first), last: is_known, drained: Some(drained) }))
    }
}

/// What there is to tell: how it is now, and that the end has come.
pub(super) struct Watch {
    first: Option<ServingStatus>,
    /// Whether the end is told.
    last: bool,
    drained: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl Stream for Watch {
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(first) = self.first.take() {
            self.last &= first != ServingStatus::NotServing;
            return Poll::Ready(Some(Ok(response(first))));
        }
        let Some(drained) = &mut self.drained else { return Poll::Ready(None) };
        std::task::ready!(drained.as_mut().poll(context));
        self.drained = None;
        let last = self.last.then(|| Ok(response(ServingStatus::NotServing)));
        Poll::Ready(last)
    }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}
