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
    ReleaseRequest, ReleaseResponse, RenewRequest, RenewResponse, check_result,
};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Response, Status};

/// How long anything may take before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// The real daemon's bound.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Waits until something has happened.
pub(crate) async fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let waiting = async {
        while !is_true() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// What the daemon does with a message of checks, and what it heard.
#[derive(Default)]
pub(crate) struct Script {
    /// Called with the number of the message, from 0.
    pub(crate) act: Option<Box<dyn Fn(usize) -> Act + Send + Sync>>,
    /// The same for what it is told after calls; anything but to fail and to hang is to hear it.
    pub(crate) hear: Option<Box<dyn Fn(usize) -> Act + Send + Sync>>,
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
    /// Allows each call, and gives so many answers, the last ones, whatever the number of calls.
    Answers(usize),
    /// Does the other once the test says so.
    After(Arc<Semaphore>, Box<Act>),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    /// How many calls each message had.
    pub(crate) messages: Vec<usize>,
    pub(crate) single: usize,
    /// How often it was told something, whether it heard it or not.
    pub(crate) told: usize,
    pub(crate) refunds: Vec<RefundRequest>,
    pub(crate) releases: Vec<ReleaseRequest>,
    pub(crate) renewals: Vec<RenewRequest>,
    pub(crate) responses: Vec<CountResponseRequest>,
}

#[derive(Clone)]
pub(crate) struct Fake(pub(crate) Arc<Script>);

impl Fake {
    pub(crate) fn new(act: impl Fn(usize) -> Act + Send + Sync + 'static) -> Self {
        Self(Arc::new(Script { act: Some(Box::new(act)), ..Script::default() }))
    }

    /// What it is told is heard as the second says.
    pub(crate) fn hearing(
        act: impl Fn(usize) -> Act + Send + Sync + 'static,
        hear: impl Fn(usize) -> Act + Send + Sync + 'static,
    ) -> Self {
        let (act, hear): (Box<_>, Box<_>) = (Box::new(act), Box::new(hear));
        Self(Arc::new(Script { act: Some(act), hear: Some(hear), ..Script::default() }))
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

    async fn act(&self, number: usize) -> Result<Act, Status> {
        done(self.0.act.as_ref().map_or(Act::Allow, |act| act(number))).await
    }

    async fn hear(&self) -> Result<Act, Status> {
        let number = self.count(|heard| &mut heard.told);
        done(self.0.hear.as_ref().map_or(Act::Allow, |hear| hear(number))).await
    }

    /// The number of a message, from 0.
    fn count(&self, of: impl Fn(&mut Heard) -> &mut usize) -> usize {
        let mut heard = self.0.heard.lock().unwrap();
        let count = of(&mut heard);
        *count += 1;
        *count - 1
    }
}

/// Waits as it has to, and fails if it has to.
async fn done(mut act: Act) -> Result<Act, Status> {
    loop {
        match act {
            Act::Hang => std::future::pending().await,
            Act::Fail(code) => return Err(Status::new(code, "as the test wants it")),
            Act::After(said, then) => {
                said.acquire().await.unwrap().forget();
                act = *then;
            }
            Act::Allow | Act::Say(_) | Act::Undecided | Act::Answers(_) => return Ok(act),
        }
    }
}

fn answer(act: &Act, check: &CheckRequest) -> CheckResult {
    let of = match act {
        Act::Say(response) => check_result::Of::Response((**response).clone()),
        Act::Undecided => {
            let (code, message) = (Code::Unavailable.into(), "the store is away".to_owned());
            check_result::Of::Failure(Failure { code, message })
        }
        Act::Allow | Act::Answers(_) | Act::Fail(_) | Act::Hang | Act::After(..) => {
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
        let act = self.act(self.count(|heard| &mut heard.single)).await?;
        match answer(&act, request.get_ref()).of {
            Some(check_result::Of::Response(response)) => Ok(Response::new(response)),
            _ => Err(Status::unavailable("")),
        }
    }

    async fn check_many(
        &self,
        request: Request<CheckManyRequest>,
    ) -> Result<Response<CheckManyResponse>, Status> {
        let checks = &request.get_ref().checks;
        let number = {
            let mut heard = self.0.heard.lock().unwrap();
            heard.messages.push(checks.len());
            heard.messages.len() - 1
        };
        let act = self.act(number).await?;
        let results = checks.iter().map(|check| answer(&act, check));
        let results = match act {
            Act::Answers(count) => results.rev().cycle().take(count).collect(),
            _ => results.collect(),
        };
        Ok(Response::new(CheckManyResponse { results }))
    }

    async fn peek(&self, _: Request<CheckRequest>) -> Result<Response<CheckResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn refund(
        &self,
        request: Request<RefundRequest>,
    ) -> Result<Response<RefundResponse>, Status> {
        self.hear().await?;
        self.0.heard.lock().unwrap().refunds.push(request.into_inner());
        Ok(Response::new(RefundResponse::default()))
    }

    async fn release(
        &self,
        request: Request<ReleaseRequest>,
    ) -> Result<Response<ReleaseResponse>, Status> {
        self.hear().await?;
        self.0.heard.lock().unwrap().releases.push(request.into_inner());
        Ok(Response::new(ReleaseResponse::default()))
    }

    /// Whatever was not released before is still held.
    async fn renew(
        &self,
        request: Request<RenewRequest>,
    ) -> Result<Response<RenewResponse>, Status> {
        self.hear().await?;
        let request = request.into_inner();
        let mut heard = self.0.heard.lock().unwrap();
        let is_held = heard.releases.iter().all(|release| release.lease_id != request.lease_id);
        let lease_id = is_held.then(|| request.lease_id.clone());
        heard.renewals.push(request);
        Ok(Response::new(RenewResponse { lease_id, ..RenewResponse::default() }))
    }

    async fn count_response(
        &self,
        request: Request<CountResponseRequest>,
    ) -> Result<Response<CountResponseResponse>, Status> {
        self.hear().await?;
        self.0.heard.lock().unwrap().responses.push(request.into_inner());
        Ok(Response::new(CountResponseResponse::default()))
    }
}
