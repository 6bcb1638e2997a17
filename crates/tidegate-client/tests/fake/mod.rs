//! A daemon that a test tells what to do. What the real one does is tested with it, where it is built.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with the place")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_client::ClientBuilder;
use tidegate_proto::tidegate::v1::limiter_server::{Limiter, LimiterServer};
use tidegate_proto::tidegate::v1::{
    CheckManyRequest, CheckManyResponse, CheckRequest, CheckResponse, CheckResult,
    CountResponseRequest, CountResponseResponse, Failure, RefundRequest, RefundResponse,
    ReleaseRequest, ReleaseResponse, check_result,
};
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Response, Status};

/// How long anything may take before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// The real daemon's bound.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// What the daemon does with a message of checks, and what it heard.
#[derive(Default)]
pub(crate) struct Script {
    /// Called with the number of the message, from 0.
    pub(crate) act: Option<Box<dyn Fn(usize) -> Act + Send + Sync>>,
    pub(crate) heard: Mutex<Heard>,
}

#[derive(Clone, Debug, Default)]
pub(crate) enum Act {
    /// Allows each call; the rule is the value of its first attribute.
    #[default]
    Allow,
    /// Answers each call with this.
    Say(Box<CheckResponse>),
    /// Cannot decide any of the calls.
    Undecided,
    /// Fails as a whole.
    Fail(Code),
    /// Never answers.
    Hang,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    /// How many calls each message had.
    pub(crate) messages: Vec<usize>,
    pub(crate) single: usize,
    pub(crate) refunds: Vec<RefundRequest>,
    pub(crate) releases: Vec<ReleaseRequest>,
    pub(crate) responses: Vec<CountResponseRequest>,
}

#[derive(Clone)]
pub(crate) struct Fake(pub(crate) Arc<Script>);

impl Fake {
    pub(crate) fn new(act: impl Fn(usize) -> Act + Send + Sync + 'static) -> Self {
        Self(Arc::new(Script { act: Some(Box::new(act)), heard: Mutex::default() }))
    }

    pub(crate) fn heard(&self) -> Heard {
        self.0.heard.lock().unwrap().clone()
    }

    pub(crate) async fn serve(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let service = LimiterServer::new(self.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX);
        tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
        address
    }

    /// A client that has time.
    pub(crate) async fn client(&self) -> ClientBuilder {
        let address = self.serve().await;
        tidegate_client::Client::builder(format!("http://{address}")).deadline(PATIENCE)
    }

    async fn act(&self, calls: usize) -> Act {
        let number = {
            let mut heard = self.0.heard.lock().unwrap();
            heard.messages.push(calls);
            heard.messages.len() - 1
        };
        let act = self.0.act.as_ref().map_or(Act::Allow, |act| act(number));
        if matches!(act, Act::Hang) {
            std::future::pending::<()>().await;
        }
        act
    }
}

fn answer(act: &Act, check: &CheckRequest) -> CheckResult {
    let of = match act {
        Act::Say(response) => check_result::Of::Response((**response).clone()),
        Act::Undecided => {
            let (code, message) = (Code::Unavailable.into(), "the store is away".to_owned());
            check_result::Of::Failure(Failure { code, message })
        }
        Act::Allow | Act::Fail(_) | Act::Hang => {
            let rule = check.attributes.first().map(|attribute| attribute.value.clone());
            check_result::Of::Response(CheckResponse {
                allowed: true,
                rule,
                ..CheckResponse::default()
            })
        }
    };
    CheckResult { of: Some(of) }
}

#[tonic::async_trait]
impl Limiter for Fake {
    async fn check(
        &self,
        request: Request<CheckRequest>,
    ) -> Result<Response<CheckResponse>, Status> {
        let number = {
            let mut heard = self.0.heard.lock().unwrap();
            heard.single += 1;
            heard.single - 1
        };
        if self.0.act.as_ref().is_some_and(|act| matches!(act(number), Act::Hang)) {
            std::future::pending::<()>().await;
        }
        match answer(&Act::Allow, request.get_ref()).of {
            Some(check_result::Of::Response(response)) => Ok(Response::new(response)),
            _ => Err(Status::unavailable("")),
        }
    }

    async fn check_many(
        &self,
        request: Request<CheckManyRequest>,
    ) -> Result<Response<CheckManyResponse>, Status> {
        let checks = &request.get_ref().checks;
        let act = self.act(checks.len()).await;
        if let Act::Fail(code) = act {
            return Err(Status::new(code, "as the test wants it"));
        }
        let results = checks.iter().map(|check| answer(&act, check)).collect();
        Ok(Response::new(CheckManyResponse { results }))
    }

    async fn peek(&self, _: Request<CheckRequest>) -> Result<Response<CheckResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn refund(
        &self,
        request: Request<RefundRequest>,
    ) -> Result<Response<RefundResponse>, Status> {
        self.0.heard.lock().unwrap().refunds.push(request.into_inner());
        Ok(Response::new(RefundResponse::default()))
    }

    async fn release(
        &self,
        request: Request<ReleaseRequest>,
    ) -> Result<Response<ReleaseResponse>, Status> {
        self.0.heard.lock().unwrap().releases.push(request.into_inner());
        Ok(Response::new(ReleaseResponse::default()))
    }

    async fn count_response(
        &self,
        request: Request<CountResponseRequest>,
    ) -> Result<Response<CountResponseResponse>, Status> {
        self.0.heard.lock().unwrap().responses.push(request.into_inner());
        Ok(Response::new(CountResponseResponse::default()))
    }
}
