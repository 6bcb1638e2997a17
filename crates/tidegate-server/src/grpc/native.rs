//! `tidegate.v1.Limiter`: the calls of `POST /v1/check` and its neighbours as gRPC. A denial is an
//! answer, or, where the caller asks for it, an error that clients understand without our help.

mod denial;

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate::rules::{Held, LimitDecision};
use tidegate::{Attribute, Call, RuleDecision, Timestamp};
use tonic::{Code, Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::CHECKS_MAX;
use super::envoy::undecided;
use crate::answer::{Answer, millis};
use crate::engine::{Does, Engine, Protocol, together};
use crate::lease;
use crate::proto::tidegate::v1::limiter_server::Limiter;
use crate::proto::tidegate::v1::{
    self as wire, CheckManyRequest, CheckManyResponse, CheckRequest, CheckResponse, CheckResult,
    CountResponseRequest, CountResponseResponse, Failure, LimitStatus, RefundRequest,
    RefundResponse, ReleaseRequest, ReleaseResponse, RenewRequest, RenewResponse, check_result,
};

/// Answers calls of the native service.
#[derive(Debug)]
pub(super) struct Native {
    engine: Arc<Engine>,
}

/// Attributes that borrow from a message.
type Attributes<'m> = SmallVec<[Attribute<'m>; 8]>;

impl Native {
    pub(super) fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    async fn check_one(
        &self,
        request: &CheckRequest,
        does: Option<Does>,
    ) -> Result<Answer, Status> {
        let attributes = attributes(&request.domain, &request.attributes)?;
        let does = match (does, request.peek, request.debit) {
            (_, true, true) | (Some(_), _, true) => {
                return Err(bad_request("debit", "`debit` takes, and a look takes nothing"));
            }
            (Some(does), ..) => does,
            (None, true, false) => Does::Peek,
            (None, false, true) => Does::Debit,
            (None, false, false) => Does::Take,
        };
        let call = Call::new(&request.domain, &attributes).with_cost(request.cost.unwrap_or(1));
        let checked = self.engine.check(&call, does, Protocol::Grpc).await;
        checked.map_err(|error| undecided(&error))
    }

    /// Each for itself, in their order.
    async fn check_each(&self, checks: &[CheckRequest]) -> Vec<CheckResult> {
        if self.engine.is_shared() {
            return together(checks.iter().map(|check| self.result(check)).collect()).await;
        }
        let mut results = Vec::with_capacity(checks.len());
        for check in checks {
            results.push(self.result(check).await);
        }
        results
    }

    async fn result(&self, check: &CheckRequest) -> CheckResult {
        let of = match self.check_one(check, None).await {
            Ok(answer) => check_result::Of::Response(response(&answer)),
            Err(status) => {
                let message = status.message().to_owned();
                check_result::Of::Failure(Failure { code: status.code().into(), message })
            }
        };
        CheckResult { of: Some(of) }
    }

    async fn answer(
        &self,
        request: &CheckRequest,
        does: Option<Does>,
    ) -> Result<Response<CheckResponse>, Status> {
        let answering = async {
            let answer = self.check_one(request, does).await?;
            if request.fail_as_error && !answer.is_allowed() {
                return Err(denial::status(&answer));
            }
            Ok(Response::new(response(&answer)))
        };
        self.timed(answering).await
    }

    /// Notes how long an answer took.
    async fn timed<T>(&self, answering: impl Future<Output = T>) -> T {
        let started_at = self.engine.limiter().now();
        let answer = answering.await;
        let took = self.engine.limiter().now().since(started_at);
        self.engine.metrics().took(Protocol::Grpc, took.into());
        answer
    }
}

#[tonic::async_trait]
impl Limiter for Native {
    async fn check(
        &self,
        request: Request<CheckRequest>,
    ) -> Result<Response<CheckResponse>, Status> {
        self.answer(request.get_ref(), None).await
    }

    async fn check_many(
        &self,
        request: Request<CheckManyRequest>,
    ) -> Result<Response<CheckManyResponse>, Status> {
        let checks = &request.get_ref().checks;
        if checks.len() > CHECKS_MAX {
            let what = format!("there are more than {CHECKS_MAX} of them");
            return Err(bad_request("checks", &what));
        }
        if checks.iter().any(|check| check.fail_as_error) {
            let what = "many calls have one answer each, so a denial cannot be the error of all";
            return Err(bad_request("fail_as_error", what));
        }
        let results = self.timed(self.check_each(checks)).await;
        Ok(Response::new(CheckManyResponse { results }))
    }

    async fn peek(
        &self,
        request: Request<CheckRequest>,
    ) -> Result<Response<CheckResponse>, Status> {
        self.answer(request.get_ref(), Some(Does::Peek)).await
    }

    async fn refund(
        &self,
        request: Request<RefundRequest>,
    ) -> Result<Response<RefundResponse>, Status> {
        let request = request.get_ref();
        let attributes = attributes(&request.domain, &request.attributes)?;
        let call = Call::new(&request.domain, &attributes).with_cost(request.cost.unwrap_or(1));
        let now = || self.engine.limiter().told_now();
        let taken_at = request.taken_at_us.map_or_else(now, Timestamp::from_micros);
        let decision = self.engine.refund(&call, taken_at).await;
        let decision = decision.map_err(|error| undecided(&error))?;
        Ok(Response::new(RefundResponse {
            rule: rule(&decision),
            limit: decision.limit(),
            remaining: decision.remaining(),
            reset_after_ms: decision.reset_after().map(millis),
            source: decision.source().as_str().to_owned(),
            degraded: decision.is_degraded(),
        }))
    }

    async fn release(
        &self,
        request: Request<ReleaseRequest>,
    ) -> Result<Response<ReleaseResponse>, Status> {
        let request = request.get_ref();
        let attributes = attributes(&request.domain, &request.attributes)?;
        let held = held(&request.lease_id)?;
        let call = Call::new(&request.domain, &attributes);
        let decision = self.engine.release(&call, &held).await;
        let decision = decision.map_err(|error| undecided(&error))?;
        Ok(Response::new(ReleaseResponse {
            rule: rule(&decision),
            limit: decision.limit(),
            remaining: decision.remaining(),
            reset_after_ms: decision.reset_after().map(millis),
            source: decision.source().as_str().to_owned(),
            degraded: decision.is_degraded(),
        }))
    }

    async fn renew(
        &self,
        request: Request<RenewRequest>,
    ) -> Result<Response<RenewResponse>, Status> {
        let request = request.get_ref();
        let attributes = attributes(&request.domain, &request.attributes)?;
        let held = held(&request.lease_id)?;
        let call = Call::new(&request.domain, &attributes);
        let decision = self.engine.renew(&call, &held).await;
        let decision = decision.map_err(|error| undecided(&error))?;
        Ok(Response::new(RenewResponse {
            lease_id: lease::written(decision.held()),
            lease_expires_after_ms: decision.expires_after().map(millis),
            rule: rule(&decision),
            limit: decision.limit(),
            remaining: decision.remaining(),
            reset_after_ms: decision.reset_after().map(millis),
            source: decision.source().as_str().to_owned(),
            degraded: decision.is_degraded(),
        }))
    }

    async fn count_response(
        &self,
        request: Request<CountResponseRequest>,
    ) -> Result<Response<CountResponseResponse>, Status> {
        let request = request.get_ref();
        let attributes = attributes(&request.domain, &request.attributes)?;
        let status = u16::try_from(request.status).ok().filter(|status| *status >= 100);
        let Some(status) = status else {
            return Err(bad_request("status", "it is no status of HTTP"));
        };
        let call = Call::new(&request.domain, &attributes).with_cost(request.cost.unwrap_or(1));
        let taken_at = Timestamp::from_micros(request.taken_at_us);
        let counted = self.engine.limiter().count_response_at(&call, taken_at, status).await;
        counted.map_err(|error| undecided(&error))?;
        Ok(Response::new(CountResponseResponse {}))
    }
}

fn attributes<'m>(domain: &str, sent: &'m [wire::Attribute]) -> Result<Attributes<'m>, Status> {
    if domain.is_empty() {
        return Err(bad_request("domain", "`domain` is empty"));
    }
    let attribute = |one: &'m wire::Attribute| match (one.value.as_bytes(), &one.raw_value[..]) {
        (_, _) if one.name.is_empty() => Err(bad_request("attributes", "one has no `name`")),
        (value, []) | ([], value) => Ok(Attribute { name: &one.name, value }),
        _ => Err(bad_request("attributes", "one has both a `value` and a `raw_value`")),
    };
    sent.iter().map(attribute).collect()
}

fn held(lease_id: &str) -> Result<Vec<Held>, Status> {
    lease::read(lease_id).ok_or_else(|| bad_request("lease_id", "it is none that a check gave"))
}

fn bad_request(field: &str, what: &str) -> Status {
    let details = ErrorDetails::with_bad_request_violation(field, what);
    Status::with_error_details(Code::InvalidArgument, format!("`{field}`: {what}"), details)
}

fn response(answer: &Answer) -> CheckResponse {
    CheckResponse {
        allowed: answer.is_allowed(),
        rule: answer.rule().map(str::to_owned),
        limit: answer.limit(),
        remaining: answer.remaining(),
        reset_after_ms: answer.reset_after().map(millis),
        retry_after_ms: answer.retry_after().map(millis),
        delay_ms: millis(answer.delay()),
        reason: answer.reason().map(str::to_owned),
        soft: answer.is_soft(),
        shadow_denied: answer.is_shadow_denied(),
        source: answer.source().as_str().to_owned(),
        degraded: answer.is_degraded(),
        limits: answer.limits().map(|limit| limit_status(&limit)).collect(),
        lease_id: answer.lease_id(),
        lease_expires_after_ms: answer.lease_expires_after().map(millis),
        taken_at_us: answer.taken_at().map(Timestamp::as_micros),
        counts_responses: answer.decision().is_some_and(awaits_response),
    }
}

/// What stood in for a store is not found again by the call alone, so nothing is given back to it.
fn awaits_response(decision: &RuleDecision) -> bool {
    decision.counts_responses() && !decision.is_degraded()
}

fn limit_status(limit: &LimitDecision<'_>) -> LimitStatus {
    LimitStatus {
        rule: limit.rule().name.clone(),
        text: limit.text().to_owned(),
        name: limit.shown_name().to_owned(),
        allowed: limit.is_allowed(),
        enforced: limit.is_enforced(),
        limit: limit.limit(),
        remaining: limit.remaining(),
        reset_after_ms: millis(limit.reset_after()),
        retry_after_ms: limit.retry_after().map(millis),
        window_ms: limit.window().map(millis),
        at_once: limit.is_at_once(),
        reserve: limit.is_reserve(),
    }
}

fn rule(decision: &RuleDecision) -> Option<String> {
    decision.rule().map(|rule| rule.name.clone())
}
