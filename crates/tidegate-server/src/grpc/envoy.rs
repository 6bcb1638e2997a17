//! Envoy's rate limit service, as envoyproxy/ratelimit answers it. That a call is over its limit is an
//! answer; an error means that nothing was decided, and leaves it to the proxy what to do then.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost_types::Duration as WireDuration;
use smallvec::SmallVec;
use tidegate::rules::{DescriptorCall, DescriptorStatus, Hits, PerUnit, Unit};
use tidegate::{Attribute, CheckError, Source};
use tidegate_rules::attribute::ATTRIBUTES_MAX;
use tonic::{Code as GrpcCode, Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::{DESCRIPTORS_MAX, metadata};
use crate::engine::{DescriptorsAnswer, Engine, Protocol};
use crate::proto::envoy::config::core::v3::HeaderValue;
use crate::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit as WireUnit;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus as WireStatus, RateLimit,
};
use crate::proto::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitService;
use crate::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use crate::proto::envoy::r#type::v3::RateLimitUnit;

/// Answers calls of Envoy's service.
#[derive(Debug)]
pub(super) struct Envoy {
    engine: Arc<Engine>,
}

impl Envoy {
    pub(super) fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }
}

#[tonic::async_trait]
impl RateLimitService for Envoy {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        Ok(Response::new(answer(&self.engine, request.get_ref()).await?))
    }
}

/// Answers one call, and holds it back for as long as a leaky bucket says.
pub(super) async fn answer(
    engine: &Engine,
    request: &RateLimitRequest,
) -> Result<RateLimitResponse, Status> {
    let started_at = engine.limiter().now();
    let (response, delay) = decide(engine, request).await?;
    let took = engine.limiter().now().since(started_at);
    engine.metrics().took(Protocol::Envoy, took.into());
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    Ok(response)
}

async fn decide(
    engine: &Engine,
    request: &RateLimitRequest,
) -> Result<(RateLimitResponse, Duration), Status> {
    check(request)?;
    let mut entries = SmallVec::<[Attribute<'_>; 8]>::new();
    let mut places = SmallVec::<[Range<usize>; 4]>::new();
    for descriptor in &request.descriptors {
        let first = entries.len();
        entries.extend(
            descriptor
                .entries
                .iter()
                .map(|entry| Attribute { name: &entry.key, value: entry.value.as_bytes() }),
        );
        places.push(first..entries.len());
    }
    let mut calls = SmallVec::<[DescriptorCall<'_>; 4]>::new();
    for (descriptor, place) in request.descriptors.iter().zip(places) {
        let call = DescriptorCall::new(&entries[place]).with_hits(hits(request, descriptor));
        calls.push(match limit(descriptor)? {
            Some(limit) => call.with_limit(limit),
            None => call,
        });
    }
    let answer = engine
        .check_descriptors(&request.domain, &calls, engine.envoy().delay_max, Protocol::Envoy)
        .await
        .map_err(|error| undecided(&error))?;
    let delay = if answer.is_allowed() { answer.delay() } else { Duration::ZERO };
    Ok((response(engine, request, &answer), delay))
}

/// Refuses what no rules could decide.
fn check(request: &RateLimitRequest) -> Result<(), Status> {
    if request.domain.is_empty() {
        return Err(Status::invalid_argument("`domain` is empty"));
    }
    if request.descriptors.is_empty() {
        return Err(Status::invalid_argument("`descriptors` is empty"));
    }
    if request.descriptors.len() > DESCRIPTORS_MAX {
        let message = format!("`descriptors` has more than {DESCRIPTORS_MAX}");
        return Err(Status::invalid_argument(message));
    }
    if request.descriptors.iter().any(|one| one.entries.len() > ATTRIBUTES_MAX) {
        let message = format!("a descriptor has more than {ATTRIBUTES_MAX} `entries`");
        return Err(Status::invalid_argument(message));
    }
    Ok(())
}

/// The error for a call that could not be decided: whose doing it was is in the code.
pub(super) fn undecided(error: &CheckError) -> Status {
    match error {
        CheckError::Resolve(error) => Status::invalid_argument(error.to_string()),
        error => {
            let source = [("source".to_owned(), Source::Fallback.as_str().to_owned())];
            let details = ErrorDetails::with_error_info(
                "STORE_UNAVAILABLE",
                "tidegate",
                HashMap::from(source),
            );
            Status::with_error_details(GrpcCode::Unavailable, error.to_string(), details)
        }
    }
}

/// The descriptor's own number wins, and its 0 looks; that of the request is at least 1.
fn hits(request: &RateLimitRequest, descriptor: &RateLimitDescriptor) -> Hits {
    let count = descriptor.hits_addend.unwrap_or_else(|| request.hits_addend.max(1).into());
    if descriptor.is_negative_hits { Hits::GiveBack(count) } else { Hits::Take(count) }
}

fn limit(descriptor: &RateLimitDescriptor) -> Result<Option<PerUnit>, Status> {
    let Some(limit) = &descriptor.limit else { return Ok(None) };
    let unit = match limit.unit() {
        RateLimitUnit::Second => Unit::Second,
        RateLimitUnit::Minute => Unit::Minute,
        RateLimitUnit::Hour => Unit::Hour,
        RateLimitUnit::Day => Unit::Day,
        RateLimitUnit::Week => Unit::Week,
        RateLimitUnit::Month => Unit::Month,
        RateLimitUnit::Year => Unit::Year,
        RateLimitUnit::Unknown => {
            return Err(Status::invalid_argument(
                "the `unit` of a descriptor's `limit` is unknown",
            ));
        }
    };
    Ok(Some(PerUnit { count: limit.requests_per_unit, unit }))
}

fn response(
    engine: &Engine,
    request: &RateLimitRequest,
    answer: &DescriptorsAnswer,
) -> RateLimitResponse {
    let settings = engine.envoy();
    let statuses = match answer.decision() {
        Some(decision) => decision.statuses().map(|one| wire_status(&one, answer)).collect(),
        None => vec![ruled_status(answer); request.descriptors.len()],
    };
    let headers = settings.headers.map_or_else(Vec::new, |headers| headers(answer));
    let to_wire = |(key, value)| HeaderValue { key, value, raw_value: Bytes::new() };
    let body = settings.body.filter(|_| !answer.is_allowed());
    RateLimitResponse {
        overall_code: code(!answer.is_allowed()).into(),
        statuses,
        response_headers_to_add: headers.into_iter().map(to_wire).collect(),
        request_headers_to_add: Vec::new(),
        raw_body: body.map_or_else(Bytes::new, |body| body(answer)),
        dynamic_metadata: settings.dynamic_metadata.then(|| metadata::of(request, answer)),
        quota: None,
    }
}

/// Of a call that the operator's controls decided.
fn ruled_status(answer: &DescriptorsAnswer) -> WireStatus {
    WireStatus {
        code: code(!answer.is_allowed()).into(),
        duration_until_reset: answer.retry_after().map(whole_seconds),
        ..WireStatus::default()
    }
}

fn wire_status(status: &DescriptorStatus<'_>, answer: &DescriptorsAnswer) -> WireStatus {
    let wait = answer.retry_after_of(status).or(status.reset_after());
    let limit = status.per_unit().map(|limit| (limit.count, wire_unit(limit.unit)));
    let nothing = status.gives_nothing().then_some((0, WireUnit::Unknown));
    let current_limit = limit.or(nothing).map(|(requests_per_unit, unit)| RateLimit {
        requests_per_unit,
        unit: unit.into(),
        name: status.limit_name().unwrap_or_default().to_owned(),
    });
    let remaining =
        if status.is_unlimited() { None } else { Some(status.remaining().unwrap_or(0)) };
    WireStatus {
        code: code(answer.is_over(status)).into(),
        current_limit,
        limit_remaining: remaining.map_or(u32::MAX, saturated),
        // Envoy makes `Retry-After` of it, so on a denial it is the time to come back.
        duration_until_reset: wait.map(whole_seconds),
        quota: None,
    }
}

fn code(is_over: bool) -> Code {
    if is_over { Code::OverLimit } else { Code::Ok }
}

pub(super) fn wire_unit(unit: Unit) -> WireUnit {
    match unit {
        Unit::Second => WireUnit::Second,
        Unit::Minute => WireUnit::Minute,
        Unit::Hour => WireUnit::Hour,
        Unit::Day => WireUnit::Day,
        Unit::Week => WireUnit::Week,
        Unit::Month => WireUnit::Month,
        Unit::Year => WireUnit::Year,
    }
}

/// The wire has no room for more, and nobody minds beyond that.
pub(super) fn saturated(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Rounded up, since Envoy cuts off what is no whole second: a client that came back then would be
/// early.
fn whole_seconds(wait: Duration) -> WireDuration {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    WireDuration { seconds: i64::try_from(seconds).unwrap_or(i64::MAX), nanos: 0 }
}
