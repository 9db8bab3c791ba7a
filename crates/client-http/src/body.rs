//! Request bodies: one piece, or pieces as somebody makes them.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

/// Pieces that may wait to be sent.
const PIECES_LEN_MAX: usize = 4;

/// What is sent with a request.
pub(crate) enum RequestBody {
    Whole(Option<Bytes>),
    Pieces(mpsc::Receiver<Bytes>),
}

impl RequestBody {
    /// A body and the end that feeds it. It is complete when that end is dropped.
    pub(crate) fn pieces() -> (Upload, RequestBody) {
        let (sender, receiver) = mpsc::channel(PIECES_LEN_MAX);
        (Upload(sender), RequestBody::Pieces(receiver))
    }
}

/// Where the pieces of a streamed request body go in. The body ends when this is dropped.
#[derive(Debug)]
pub struct Upload(mpsc::Sender<Bytes>);

impl Upload {
    /// Hands a piece over; waits while the server is slower. False when the server takes no more.
    pub async fn send(&self, piece: Bytes) -> bool {
        self.0.send(piece).await.is_ok()
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = match self.get_mut() {
            RequestBody::Whole(bytes) => Poll::Ready(bytes.take()),
            RequestBody::Pieces(receiver) => receiver.poll_recv(context),
        };
        piece.map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, RequestBody::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            RequestBody::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            RequestBody::Pieces(_) => SizeHint::default(),
        }
    }
}
