//! Runs one HTTP/2 connection: requests that need not wait are answered in the connection's own task.
//!
//! Hyper hands every request to an executor as a future of its own. Most reads are ready at once, and a task for
//! each would cost more than the answer. So a request is polled once right here; only what has to wait (writes,
//! watches, reads from disk) becomes a task. What the poll wrote is sent in one piece, see [`crate::gather`].

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::rt::Executor;
use parking_lot::Mutex;
use tokio::io::AsyncWrite;

use crate::gather::Gather;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Why a connection ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DriveError {
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error("cannot send")]
    Send(#[from] std::io::Error),
}

/// Where the connection puts requests that have arrived.
#[derive(Clone, Default)]
pub(crate) struct Inbox(Arc<Mutex<Vec<Work>>>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Inbox {
    fn execute(&self, work: F) {
        self.0.lock().push(Box::pin(work));
    }
}

impl Inbox {
    /// Starts what has arrived. False when nothing has.
    fn start(&self, context: &mut Context<'_>) -> bool {
        let arrived = std::mem::take(&mut *self.0.lock());
        let some = !arrived.is_empty();
        for mut work in arrived {
            // One request that panics must not take the others of its connection with it.
            let poll = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
            if matches!(poll, Ok(Poll::Pending)) {
                #[expect(clippy::disallowed_methods, reason = "the task ends with its request's stream")]
                tokio::spawn(work);
            }
        }
        some
    }
}

/// Runs a connection to its end.
pub(crate) async fn drive<S: AsyncWrite + Unpin>(
    mut connection: Pin<&mut impl Future<Output = Result<(), hyper::Error>>>,
    inbox: &Inbox,
    gather: &Gather<S>,
) -> Result<(), DriveError> {
    poll_fn(|context| {
        let outcome = loop {
            let outcome = connection.as_mut().poll(context);
            // Whatever was answered has left frames for the connection to write.
            if !inbox.start(context) || outcome.is_ready() {
                break outcome;
            }
        };
        match (gather.send(context), outcome) {
            (_, Poll::Ready(outcome)) => Poll::Ready(outcome.map_err(DriveError::from)),
            (Poll::Ready(Err(error)), Poll::Pending) => Poll::Ready(Err(error.into())),
            (_, Poll::Pending) => Poll::Pending,
        }
    })
    .await
}
