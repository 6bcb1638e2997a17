//! The body of a response that came through the layer: as the service made it, with places that are held
//! until it ends, or a refusal.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

/// Something that is given back when it is dropped.
type Place = Box<dyn Send>;

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
        Held { #[pin] body: B, place: Option<Place> },
        Refusal { bytes: Option<Bytes> },
    }
}

impl<B> RateLimitBody<B> {
    pub(crate) fn plain(body: B) -> Self {
        Self { kind: Kind::Plain { body } }
    }

    pub(crate) fn held(body: B, place: Place) -> Self {
        Self { kind: Kind::Held { body, place: Some(place) } }
    }

    pub(crate) fn refusal(bytes: Bytes) -> Self {
        Self { kind: Kind::Refusal { bytes: Some(bytes).filter(|bytes| !bytes.is_empty()) } }
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
