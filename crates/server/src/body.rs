//! Bodies: bounded ones in, whole ones or streams out.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use parking_lot::Mutex;
use polder_model::Status;

/// What a request body may weigh, as upstream has it.
pub(crate) const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// How long a client may take to send one.
const BODY_PATIENCE: Duration = Duration::from_secs(60);

/// Reads a whole request body.
pub(crate) async fn read(body: hyper::body::Incoming) -> Result<Bytes, Status> {
    let too_large = || Status::too_large(format!("Request entity is too large: limit is {BODY_BYTES_MAX}"));
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(too_large());
    }
    match tokio::time::timeout(BODY_PATIENCE, Limited::new(body, BODY_BYTES_MAX).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(Status::bad_request("the request body ended early")),
        Err(_) => Err(Status::timeout("the request body did not arrive in time")),
    }
}

/// Makes the next piece of a streamed body.
type Polled = Box<dyn FnMut(&mut Context<'_>) -> Poll<Option<Bytes>> + Send>;

/// A response body: one piece, or pieces as they come.
pub(crate) enum AnswerBody {
    Whole(Option<Bytes>),
    /// Polled only while the client takes pieces.
    Stream(Polled),
}

impl AnswerBody {
    pub(crate) fn empty() -> AnswerBody {
        AnswerBody::Whole(None)
    }

    pub(crate) fn whole(bytes: impl Into<Bytes>) -> AnswerBody {
        AnswerBody::Whole(Some(bytes.into()))
    }

    /// Pieces as an async function gives them away; the body ends when it returns.
    pub(crate) fn stream<R>(write: impl FnOnce(Pieces) -> R) -> AnswerBody
    where
        R: Future<Output = ()> + Send + 'static,
    {
        let pieces = Pieces::default();
        let mut writing = Box::pin(write(Pieces(pieces.0.clone())));
        let mut ended = false;
        AnswerBody::Stream(Box::new(move |context| {
            if ended {
                return Poll::Ready(None);
            }
            ended = writing.as_mut().poll(context).is_ready();
            match pieces.0.lock().take() {
                Some(piece) => Poll::Ready(Some(piece)),
                None if ended => Poll::Ready(None),
                None => Poll::Pending,
            }
        }))
    }
}

/// Where the writer of a stream puts its pieces, one at a time.
#[derive(Default)]
pub(crate) struct Pieces(Arc<Mutex<Option<Bytes>>>);

impl Pieces {
    /// Gives a piece away; returns when the next one is asked for.
    pub(crate) async fn send(&self, piece: Bytes) {
        *self.0.lock() = Some(piece);
        let mut asked = false;
        // Whoever polls takes the piece and polls again for the next: nobody needs to be woken.
        poll_fn(|_| if std::mem::replace(&mut asked, true) { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = match self.get_mut() {
            AnswerBody::Whole(bytes) => Poll::Ready(bytes.take()),
            AnswerBody::Stream(next) => next(context),
        };
        piece.map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, AnswerBody::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            AnswerBody::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            AnswerBody::Stream(_) => SizeHint::default(),
        }
    }
}
