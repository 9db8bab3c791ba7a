//! Bodies: bounded ones in, whole ones or streams out.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, LengthLimitError, Limited};
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
type Pieces = Box<dyn FnMut(&mut Context<'_>) -> Poll<Option<Bytes>> + Send>;

/// A response body: one piece, or pieces as they come.
pub(crate) enum AnswerBody {
    Whole(Option<Bytes>),
    /// Polled only while the client takes pieces.
    Stream(Pieces),
}

impl AnswerBody {
    pub(crate) fn empty() -> AnswerBody {
        AnswerBody::Whole(None)
    }

    pub(crate) fn whole(bytes: impl Into<Bytes>) -> AnswerBody {
        AnswerBody::Whole(Some(bytes.into()))
    }

    /// Pieces from a state and an async function that makes the next one of it.
    pub(crate) fn stream<S, F, R>(state: S, next: F) -> AnswerBody
    where
        S: Send + 'static,
        F: Fn(S) -> R + Send + 'static,
        R: Future<Output = (Option<Bytes>, S)> + Send + 'static,
    {
        let mut running: Pin<Box<R>> = Box::pin(next(state));
        let mut ended = false;
        AnswerBody::Stream(Box::new(move |context| {
            if ended {
                return Poll::Ready(None);
            }
            running.as_mut().poll(context).map(|(piece, state)| {
                match piece {
                    Some(_) => running.set(next(state)),
                    None => ended = true,
                }
                piece
            })
        }))
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
