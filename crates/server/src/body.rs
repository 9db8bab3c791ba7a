//! Bodies: bounded ones in, whole ones or streams out.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use parking_lot::Mutex;
use polder_model::Status;
use tokio::time::Instant;

use crate::audit::Closing;
use crate::budget::Room;
use crate::limits::{Pass, Weight};
use crate::strangers::StrangerPlace;

/// What a request body may weigh, as upstream has it.
pub(crate) const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// How long a client may take to send one.
const BODY_PATIENCE: Duration = Duration::from_secs(60);

/// What is taken of a body that was refused, for how long, and how long its next piece is waited for.
const DISCARDED_BYTES_MAX: usize = 16 * 1024 * 1024;
const DISCARD_PATIENCE: Duration = Duration::from_secs(30);
const PIECE_PATIENCE: Duration = Duration::from_secs(5);

/// What a request body may take at most, as far as its client says.
fn bytes_expected(body: &Incoming) -> usize {
    let most = body.size_hint().upper().and_then(|most| usize::try_from(most).ok());
    most.map_or(BODY_BYTES_MAX, |most| most.min(BODY_BYTES_MAX))
}

/// The body of a request until somebody reads it.
///
/// Whoever answers without having read it looks here: were it dropped before the answer is on its way, HTTP/2 would reset the
/// stream, and a client that is still sending would never see why it was refused.
#[derive(Clone)]
pub(crate) struct Unread(Arc<Mutex<Option<Incoming>>>);

impl Unread {
    pub(crate) fn new(body: Incoming) -> Unread {
        Unread(Arc::new(Mutex::new(Some(body))))
    }

    pub(crate) fn take(&self) -> Option<Incoming> {
        self.0.lock().take()
    }

    /// What it may take at most, as far as its client says.
    pub(crate) fn bytes_expected(&self) -> usize {
        self.0.lock().as_ref().map_or(0, bytes_expected)
    }
}

/// Reads a whole request body. One that is too long is refused, and what is still to come of it stays unread.
pub(crate) async fn read(unread: &Unread) -> Result<Bytes, Status> {
    // Whoever took it has given up on this request: what it would have said must not be taken for nothing.
    let Some(mut body) = unread.take() else {
        return Err(Status::timeout("the request ended before its body was read"));
    };
    if body.size_hint().lower() <= BODY_BYTES_MAX as u64 {
        let whole = Limited::new(&mut body, BODY_BYTES_MAX).collect();
        match tokio::time::timeout(BODY_PATIENCE, whole).await {
            Ok(Ok(whole)) => return Ok(whole.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {}
            Ok(Err(_)) => return Err(Status::bad_request("the request body ended early")),
            Err(_) => return Err(Status::timeout("the request body did not arrive in time")),
        }
    }
    *unread.0.lock() = Some(body);
    Err(Status::too_large(format!("Request entity too large: limit is {BODY_BYTES_MAX}")))
}

/// Takes what is still sent of a body that was refused, and throws it away: many a client looks for the answer only when
/// it has sent everything, or loses it when its stream is reset.
pub(crate) async fn discard(body: Incoming) {
    let mut rest = Limited::new(body, DISCARDED_BYTES_MAX);
    let all =
        async { while let Ok(Some(Ok(_))) = tokio::time::timeout(PIECE_PATIENCE, rest.frame()).await {} };
    tokio::time::timeout(DISCARD_PATIENCE, all).await.ok();
}

/// An answer that cannot be finished: the connection says so by breaking off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer broke off")]
pub(crate) struct BrokenOff;

/// Makes the next piece of a streamed body.
type Polled = Box<dyn FnMut(&mut Context<'_>) -> Poll<Option<Result<Bytes, BrokenOff>>> + Send>;

/// A response body: one piece, or pieces as they come. Holds the request's place while it is there.
pub(crate) struct AnswerBody {
    content: Content,
    held: Option<Held>,
    /// What was set aside for a whole answer before it was made.
    room: Option<Room>,
    deadline: Option<Instant>,
    /// Notes what is sent, and the end.
    closing: Option<Closing>,
}

/// What an answer takes up until its last byte has left.
#[derive(Clone)]
pub(crate) enum Held {
    Place(Pass),
    Stranger(Arc<StrangerPlace>),
}

/// Tells whether an answer is still on its way.
pub(crate) struct OnItsWay(Weak<dyn Send + Sync>);

struct StrangerBytes {
    bytes: Bytes,
    _place: Arc<StrangerPlace>,
}

enum Content {
    /// Made for this answer, and counted when a place is held.
    Whole(Option<Bytes>),
    /// Kept anyway, for many answers.
    Shared(Option<Bytes>),
    /// Polled only while the client takes pieces.
    Stream { next: Polled, weight: Option<Weight> },
}

impl AnswerBody {
    fn new(content: Content) -> AnswerBody {
        AnswerBody { content, held: None, room: None, deadline: None, closing: None }
    }

    /// The whole body, if it is there already.
    pub(crate) fn whole_bytes(&self) -> Option<&[u8]> {
        match &self.content {
            Content::Whole(bytes) | Content::Shared(bytes) => Some(bytes.as_deref().unwrap_or_default()),
            Content::Stream { .. } => None,
        }
    }

    /// Says who is told what is sent, and of the end.
    pub(crate) fn close_with(&mut self, closing: Closing) {
        self.closing = Some(closing);
    }

    /// Leaves only its head, and says how long the rest would be, if that is known.
    pub(crate) fn behead(&mut self) -> Option<usize> {
        let len = self.whole_bytes().map(<[u8]>::len);
        self.content = Content::Whole(None);
        len
    }

    pub(crate) fn empty() -> AnswerBody {
        AnswerBody::new(Content::Whole(None))
    }

    pub(crate) fn whole(bytes: impl Into<Bytes>) -> AnswerBody {
        AnswerBody::new(Content::Whole(Some(bytes.into())))
    }

    /// A document that stays in memory whoever asks for it.
    pub(crate) fn shared(bytes: Bytes) -> AnswerBody {
        AnswerBody::new(Content::Shared(Some(bytes)))
    }

    /// Pieces as an async function gives them away; the body ends when it returns.
    pub(crate) fn stream<R>(write: impl FnOnce(Pieces) -> R) -> AnswerBody
    where
        R: Future<Output = Result<(), BrokenOff>> + Send + 'static,
    {
        AnswerBody::new(Content::Stream { next: polled(write), weight: Some(Weight::Counted) })
    }

    /// The same for pieces that are counted by whoever makes them.
    pub(crate) fn counted_stream<R>(write: impl FnOnce(Pieces) -> R) -> AnswerBody
    where
        R: Future<Output = Result<(), BrokenOff>> + Send + 'static,
    {
        AnswerBody::new(Content::Stream { next: polled(write), weight: None })
    }

    /// Keeps room that was set aside for the bytes of a whole answer.
    pub(crate) fn set_room(&mut self, room: Option<Room>) {
        self.room = room;
    }

    /// Holds a place until everything has been sent or the client is gone.
    pub(crate) fn hold(&mut self, held: Held) {
        if let Content::Whole(whole) = &mut self.content {
            let room = self.room.take();
            *whole = whole.take().map(|bytes| match &held {
                Held::Place(pass) => {
                    // Counted now, not when it is sent: a client that takes nothing has it made all the same.
                    let room = room.unwrap_or_else(|| pass.count(bytes.len()));
                    room.set(bytes.len());
                    pass.carry_in(bytes, Some(Arc::new(room)))
                }
                Held::Stranger(place) => Bytes::from_owner(StrangerBytes { bytes, _place: place.clone() }),
            });
        }
        self.held = Some(held);
    }

    pub(crate) fn on_its_way(&self) -> Option<OnItsWay> {
        Some(OnItsWay(match self.held.as_ref()? {
            Held::Place(pass) => pass.weak(),
            Held::Stranger(place) => {
                let weak: Weak<StrangerPlace> = Arc::downgrade(place);
                weak
            }
        }))
    }

    /// Says by when everything must have been sent. What was said first holds.
    pub(crate) fn end_at(&mut self, deadline: Instant) {
        self.deadline.get_or_insert(deadline);
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }
}

fn polled<R>(write: impl FnOnce(Pieces) -> R) -> Polled
where
    R: Future<Output = Result<(), BrokenOff>> + Send + 'static,
{
    let pieces = Pieces::default();
    let mut writing = Box::pin(write(Pieces(pieces.0.clone())));
    let mut outcome = Poll::Pending;
    Box::new(move |context| {
        if outcome.is_pending() {
            outcome = writing.as_mut().poll(context);
        }
        if let Some(piece) = pieces.0.lock().take() {
            return Poll::Ready(Some(Ok(piece)));
        }
        outcome.map(|outcome| outcome.err().map(Err))
    })
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

impl OnItsWay {
    pub(crate) fn is_held(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl AsRef<[u8]> for StrangerBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let AnswerBody { content, held, closing, .. } = self.get_mut();
        let (piece, carried) = match content {
            Content::Whole(bytes) => (Poll::Ready(bytes.take().map(Ok)), None),
            Content::Shared(bytes) => (Poll::Ready(bytes.take().map(Ok)), Some(Weight::Nothing)),
            Content::Stream { next, weight } => (next(context), *weight),
        };
        piece.map(|piece| {
            let bytes = match piece? {
                Ok(bytes) => bytes,
                Err(error) => return Some(Err(error)),
            };
            if let Some(closing) = closing {
                closing.sent(&bytes);
            }
            let bytes = match (held, carried) {
                (Some(Held::Place(pass)), Some(weight)) => pass.carry(bytes, weight),
                _ => bytes,
            };
            Some(Ok(Frame::data(bytes)))
        })
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.content, Content::Whole(None) | Content::Shared(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) | Content::Shared(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64)
            }
            Content::Stream { .. } => SizeHint::default(),
        }
    }
}
