//! `POST /json` as envoyproxy/ratelimit has it: the messages of Envoy's service in protobuf's JSON
//! form, for clients that speak no gRPC. The status is 200 or 429 by the decision.

mod read;
#[cfg(test)]
mod tests;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use prost_types::value::Kind;
use serde_json::{Map, Value, json};
use tonic::Code as Grpc;

use super::{MESSAGE_BYTES_MAX, envoy};
use crate::engine::Engine;
use crate::proto::envoy::service::ratelimit::v3::RateLimitResponse;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};

/// Answers `POST /json`: a `RateLimitRequest` in, a `RateLimitResponse` out.
pub async fn json(engine: &Engine, body: &[u8]) -> Response<Bytes> {
    if body.len() > MESSAGE_BYTES_MAX {
        return refusal(StatusCode::PAYLOAD_TOO_LARGE);
    }
    let Ok(request) = read::request(body) else { return refusal(StatusCode::BAD_REQUEST) };
    let response = match envoy::answer(engine, &request).await {
        Ok(response) => response,
        Err(status) if status.code() == Grpc::InvalidArgument => {
            return refusal(StatusCode::BAD_REQUEST);
        }
        // Nothing was decided, which is never told as a denial.
        Err(status) if status.code() == Grpc::Unavailable => {
            return refusal(StatusCode::SERVICE_UNAVAILABLE);
        }
        Err(_) => return refusal(StatusCode::INTERNAL_SERVER_ERROR),
    };
    let status = match response.overall_code() {
        Code::Ok => StatusCode::OK,
        Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
        Code::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let body = Bytes::from(written(&response).to_string());
    with(status, "application/json", body)
}

/// The name of the status in plain text, which is all that is said there too.
fn refusal(status: StatusCode) -> Response<Bytes> {
    let text = format!("{}\n", status.canonical_reason().unwrap_or_default());
    with(status, "text/plain; charset=utf-8", Bytes::from(text))
}

fn with(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A response in protobuf's JSON form, which leaves out what is unset, 0 or empty.
fn written(response: &RateLimitResponse) -> Value {
    let mut fields = Map::new();
    fields.insert("overallCode".to_owned(), response.overall_code().as_str_name().into());
    let statuses: Vec<Value> = response.statuses.iter().map(written_status).collect();
    if !statuses.is_empty() {
        fields.insert("statuses".to_owned(), statuses.into());
    }
    let headers = response.response_headers_to_add.iter();
    let headers: Vec<Value> =
        headers.map(|header| json!({ "key": header.key, "value": header.value })).collect();
    if !headers.is_empty() {
        fields.insert("responseHeadersToAdd".to_owned(), headers.into());
    }
    if !response.raw_body.is_empty() {
        fields.insert("rawBody".to_owned(), STANDARD.encode(&response.raw_body).into());
    }
    if let Some(metadata) = &response.dynamic_metadata {
        fields.insert("dynamicMetadata".to_owned(), written_struct(metadata));
    }
    Value::Object(fields)
}

fn written_status(status: &DescriptorStatus) -> Value {
    let mut fields = Map::new();
    fields.insert("code".to_owned(), status.code().as_str_name().into());
    if let Some(limit) = &status.current_limit {
        fields.insert("currentLimit".to_owned(), written_limit(limit));
    }
    if status.limit_remaining != 0 {
        fields.insert("limitRemaining".to_owned(), status.limit_remaining.into());
    }
    if let Some(reset) = &status.duration_until_reset {
        fields.insert("durationUntilReset".to_owned(), format!("{}s", reset.seconds).into());
    }
    Value::Object(fields)
}

fn written_limit(limit: &RateLimit) -> Value {
    let mut fields = Map::new();
    if !limit.name.is_empty() {
        fields.insert("name".to_owned(), limit.name.as_str().into());
    }
    if limit.requests_per_unit != 0 {
        fields.insert("requestsPerUnit".to_owned(), limit.requests_per_unit.into());
    }
    if limit.unit != 0 {
        fields.insert("unit".to_owned(), limit.unit().as_str_name().into());
    }
    Value::Object(fields)
}

fn written_struct(fields: &prost_types::Struct) -> Value {
    let fields = fields.fields.iter();
    fields.map(|(name, value)| (name.clone(), written_value(value))).collect()
}

fn written_value(value: &prost_types::Value) -> Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(flag)) => (*flag).into(),
        Some(Kind::NumberValue(number)) => written_number(*number),
        Some(Kind::StringValue(text)) => text.as_str().into(),
        Some(Kind::ListValue(list)) => list.values.iter().map(written_value).collect(),
        Some(Kind::StructValue(fields)) => written_struct(fields),
    }
}

/// A whole number is written without a point, as protobuf does.
fn written_number(number: f64) -> Value {
    const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= WHOLE_MAX {
        #[expect(clippy::cast_possible_truncation, reason = "it is whole and within range")]
        return (number as i64).into();
    }
    number.into()
}
