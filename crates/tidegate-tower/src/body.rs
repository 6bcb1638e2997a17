//! The body of a response that came through the layer: as the service made it, with places that are held
//! until it ends, or a refusal. And in what type that comes out.

use std::fmt;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

/// Something that is given back when it is dropped.
pub(crate) type Place = Box<dyn Send>;
/// The same in a body that several threads may point at, as boxes of bodies ask for. It is never locked: nobody looks at it
/// before it is dropped.
type Shared = Mutex<Place>;

/// How the bodies of responses come out of the layer. There are two: [`Enclosed`] for all services, and `InAxum`
/// for those whose bodies are axum's.
pub trait Enclose<B>: sealed::Sealed {
    /// What a body is then.
    type Body;

    #[doc(hidden)]
    fn plain(body: B) -> Self::Body;
    /// What was polled with each body as [`plain`](Self::plain) has it.
    #[doc(hidden)]
    #[inline]
    fn polled<E>(polled: Poll<Result<Response<B>, E>>) -> Poll<Result<Response<Self::Body>, E>> {
        polled.map_ok(|response| response.map(Self::plain))
    }
    #[doc(hidden)]
    fn held(body: B, place: Box<dyn Send>) -> Self::Body;
    #[doc(hidden)]
    fn refusal(bytes: Bytes) -> Self::Body;
}

/// Every body is a [`RateLimitBody`] around that of the service.
#[derive(Clone, Copy, Debug)]
pub enum Enclosed {}

impl<B> Enclose<B> for Enclosed {
    type Body = RateLimitBody<B>;

    #[inline]
    fn plain(body: B) -> RateLimitBody<B> {
        RateLimitBody { kind: Kind::Plain { body } }
    }

    fn held(body: B, place: Place) -> RateLimitBody<B> {
        RateLimitBody { kind: Kind::Held { body, place: Some(Mutex::new(place)) } }
    }

    fn refusal(bytes: Bytes) -> RateLimitBody<B> {
        let bytes = Some(bytes).filter(|bytes| !bytes.is_empty());
        RateLimitBody { kind: Kind::Refusal { bytes } }
    }
}

/// The body stays what axum made, unless something is held until its end. axum puts every other type into a box.
#[cfg(feature = "axum")]
#[derive(Clone, Copy, Debug)]
pub enum InAxum {}

#[cfg(feature = "axum")]
impl Enclose<axum::body::Body> for InAxum {
    type Body = axum::body::Body;

    #[inline]
    fn plain(body: axum::body::Body) -> axum::body::Body {
        body
    }

    /// It is the same, and need not be taken apart.
    #[inline]
    fn polled<E>(
        polled: Poll<Result<Response<axum::body::Body>, E>>,
    ) -> Poll<Result<Response<axum::body::Body>, E>> {
        polled
    }

    fn held(body: axum::body::Body, place: Place) -> axum::body::Body {
        axum::body::Body::new(Enclosed::held(body, place))
    }

    fn refusal(bytes: Bytes) -> axum::body::Body {
        bytes.into()
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Enclosed {}
    #[cfg(feature = "axum")]
    impl Sealed for super::InAxum {}
}

pin_project! {
    /// The body of a response that came through the layer.
    ///
    /// It costs nothing where no place is held. Where one is, it is given back as soon as the last frame
    /// has been handed out, or when the body is dropped, because nobody reads on.
    pub struct RateLimitBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProjection]
    enum Kind<B> {
        Plain { #[pin] body: B },
        Held { #[pin] body: B, place: Option<Shared> },
        Refusal { bytes: Option<Bytes> },
    }
}

impl<B: Body<Data = Bytes>> Body for RateLimitBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            KindProjection::Plain { body } => body.poll_frame(cx),
            KindProjection::Held { mut body, place } => {
                let frame = ready!(body.as_mut().poll_frame(cx));
                let is_over = match &frame {
                    None | Some(Err(_)) => true,
                    // Servers ask for no more frames than they were told that there are.
                    Some(Ok(frame)) => frame.is_trailers() || body.is_end_stream(),
                };
                if is_over {
                    *place = None;
                }
                Poll::Ready(frame)
            }
            KindProjection::Refusal { bytes } => {
                Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Plain { body } | Kind::Held { body, .. } => body.is_end_stream(),
            Kind::Refusal { bytes } => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Plain { body } | Kind::Held { body, .. } => body.size_hint(),
            Kind::Refusal { bytes } => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
        }
    }
}

impl<B> fmt::Debug for RateLimitBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.kind {
            Kind::Plain { .. } => "RateLimitBody::Plain",
            Kind::Held { .. } => "RateLimitBody::Held",
            Kind::Refusal { .. } => "RateLimitBody::Refusal",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_can_be_boxed_as_that_of_the_service_can() {
        fn can_be_boxed<B: Body + Send + Sync + 'static>() {}
        can_be_boxed::<RateLimitBody<String>>();
    }
}
