//! Which requests may be made a second time: those whose method is made for it, or that carry a key by
//! which the server knows them again, and whose body is still there.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{Empty, Full};

/// A body that can be sent again.
pub trait Replay: Sized {
    /// The same body once more; `None` where it is gone once it was sent.
    fn replay(&self) -> Option<Self>;
}

/// The header by which servers know a request again that came before.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The same request once more, where it may be made twice.
pub(super) fn copy<B: Replay>(request: &Request<B>) -> Option<Request<B>> {
    let is_idempotent = matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE
    );
    if !is_idempotent && !request.headers().contains_key(IDEMPOTENCY_KEY) {
        return None;
    }
    let mut copy = Request::new(request.body().replay()?);
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    *copy.version_mut() = request.version();
    copy.headers_mut().clone_from(request.headers());
    copy.extensions_mut().clone_from(request.extensions());
    Some(copy)
}

impl Replay for () {
    fn replay(&self) -> Option<Self> {
        Some(())
    }
}

impl Replay for Bytes {
    fn replay(&self) -> Option<Self> {
        Some(self.clone())
    }
}

impl Replay for String {
    fn replay(&self) -> Option<Self> {
        Some(self.clone())
    }
}

impl<D: Clone> Replay for Full<D> {
    fn replay(&self) -> Option<Self> {
        Some(self.clone())
    }
}

impl<D> Replay for Empty<D> {
    fn replay(&self) -> Option<Self> {
        Some(Self::new())
    }
}

/// A stream of which nobody knows what it is made of. It is gone once it was sent.
impl<D, E> Replay for BoxBody<D, E> {
    fn replay(&self) -> Option<Self> {
        None
    }
}

/// As [`BoxBody`].
impl<D, E> Replay for UnsyncBoxBody<D, E> {
    fn replay(&self) -> Option<Self> {
        None
    }
}
