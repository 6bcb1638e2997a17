//! Reflection, in the version that tools ask for first and in the one that older ones ask for.

use std::convert::Infallible;
use std::sync::LazyLock;

use http::{Request, Response};
use hyper::body::Incoming;
use tonic::Status;
use tonic::body::Body;
use tonic_reflection::server::{Builder, Error};
use tower_service::Service;

use super::{Answering, MESSAGE_BYTES_MAX};
use crate::proto::DESCRIPTORS;

type Answer = Box<dyn Fn(Request<Incoming>) -> Answering + Send + Sync>;

/// Answers a request for either version.
pub(super) fn answer(request: Request<Incoming>) -> Answering {
    // Made of the descriptors once, and only where someone asks.
    static ANSWER: LazyLock<Result<Answer, Error>> = LazyLock::new(new);
    match &*ANSWER {
        Ok(answer) => answer(request),
        Err(_) => refuse(Status::internal("the descriptors cannot be read")),
    }
}

fn new() -> Result<Answer, Error> {
    let v1 = builder().build_v1()?.max_decoding_message_size(MESSAGE_BYTES_MAX);
    let v1alpha = builder().build_v1alpha()?.max_decoding_message_size(MESSAGE_BYTES_MAX);
    Ok(Box::new(move |request| {
        let path = request.uri().path();
        if path.starts_with("/grpc.reflection.v1.ServerReflection/") {
            v1.clone().call(request)
        } else if path.starts_with("/grpc.reflection.v1alpha.ServerReflection/") {
            v1alpha.clone().call(request)
        } else {
            refuse(Status::unimplemented("there is no such version of reflection here"))
        }
    }))
}

fn builder<'b>() -> Builder<'b> {
    Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

fn refuse(status: Status) -> Answering {
    let response: Result<Response<Body>, Infallible> = Ok(status.into_http());
    Box::pin(std::future::ready(response))
}
