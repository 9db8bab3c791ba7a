//! Runs one HTTP/2 connection, all its requests included, in one task.
//!
//! Hyper hands every request to an executor as a future of its own. A task for each would cost more than most
//! answers do: a queue, a wake-up of another thread, a write of its own. Here the connection's task polls them
//! itself, so that ten answers, or one event for a hundred watches, leave in one write (see [`crate::gather`]).
//! Handlers must not compute for long without waiting: a poll is a turn (see [`crate::turns`]), and others wait for its
//! end.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, Stream};
use hyper::rt::Executor;
use parking_lot::Mutex;
use tokio::io::AsyncWrite;
use tokio::time::{Instant, Sleep};

use crate::gather::Gather;

/// Turns of the scheduler that an answer may wait for others to go with it.
const ROUNDS_MAX: u32 = 4;
/// Requests that one turn may start; the others wait for the next.
const STARTED_MAX: usize = 32;
/// After this long a turn polls no further request. One that is being polled goes on: each sees to it that it does not
/// take long.
const TURN_TIME_MAX: Duration = Duration::from_millis(1);
/// One TLS record: nothing is gained by waiting for more.
const WORTH_SENDING_LEN: usize = 16 * 1024;

/// Why a connection ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DriveError {
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error("cannot send")]
    Send(#[from] std::io::Error),
    #[error("an answer was not taken in time")]
    NotTaken,
}

/// One request being answered.
struct Work {
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
    allowance: Allowance,
    /// Ends the request, though its client has not taken the answer.
    end: Option<Pin<Box<Sleep>>>,
}

/// What a connection's requests and whoever polls them tell each other.
#[derive(Clone, Default)]
pub(crate) struct Allowance(Arc<Mutex<Times>>);

#[derive(Default)]
struct Times {
    /// Until when the request that is being polled may take: an answer says so to whoever polls it. A client that
    /// takes no data keeps hyper from asking for more, so the answer itself could not notice the time.
    request_end: Option<Instant>,
    /// When the turn that is running should be over.
    turn_end: Option<std::time::Instant>,
}

impl Allowance {
    pub(crate) fn set(&self, until: Option<Instant>) {
        self.0.lock().request_end = until;
    }

    fn begin_turn(&self) {
        self.0.lock().turn_end = Some(std::time::Instant::now() + TURN_TIME_MAX);
    }

    fn turn_is_over(&self) -> bool {
        self.0.lock().turn_end.is_some_and(|end| std::time::Instant::now() >= end)
    }
}

impl Future for Work {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.allowance.turn_is_over() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        // A request that panics ends as if it were done; the others of its connection go on.
        let polled = catch_unwind(AssertUnwindSafe(|| self.future.as_mut().poll(context)));
        let until = self.allowance.0.lock().request_end.take();
        if polled.unwrap_or(Poll::Ready(())).is_ready() {
            return Poll::Ready(());
        }
        if let Some(until) = until {
            self.end = Some(Box::pin(tokio::time::sleep_until(until)));
        }
        self.end.as_mut().map_or(Poll::Pending, |end| end.as_mut().poll(context))
    }
}

/// Where the connection puts requests that have arrived.
#[derive(Clone, Default)]
pub(crate) struct Inbox {
    arrived: Arc<Mutex<VecDeque<Work>>>,
    allowance: Allowance,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Inbox {
    fn execute(&self, work: F) {
        let work = Work { future: Box::pin(work), allowance: self.allowance.clone(), end: None };
        self.arrived.lock().push_back(work);
    }
}

/// A connection's requests, from arrival to answer.
#[derive(Default)]
pub(crate) struct Requests {
    inbox: Inbox,
    waiting: FuturesUnordered<Work>,
    busy: bool,
}

impl Requests {
    /// What to give to the connection as its executor.
    pub(crate) fn inbox(&self) -> Inbox {
        self.inbox.clone()
    }

    /// Where an answer says until when it may take.
    pub(crate) fn allowance(&self) -> Allowance {
        self.inbox.allowance.clone()
    }

    /// Whether nothing is being answered, and nothing was since this was last asked.
    pub(crate) fn is_idle(&mut self) -> bool {
        !std::mem::take(&mut self.busy) && self.waiting.is_empty()
    }

    /// Goes on with requests that have been waiting for something. Returns how many are done.
    fn resume(&mut self, context: &mut Context<'_>) -> usize {
        let mut count = 0;
        while let Poll::Ready(Some(())) = Pin::new(&mut self.waiting).poll_next(context) {
            count += 1;
        }
        count
    }

    /// Starts requests that have arrived, oldest first, as many as are given. Most are answered at once. Returns how
    /// many there were.
    fn start(&mut self, max: usize, context: &mut Context<'_>) -> usize {
        let mut count = 0;
        while count < max && !self.inbox.allowance.turn_is_over() {
            let Some(mut work) = self.inbox.arrived.lock().pop_front() else { break };
            if Pin::new(&mut work).poll(context).is_pending() {
                self.waiting.push(work);
            }
            count += 1;
        }
        self.busy |= count > 0;
        count
    }
}

/// Runs a connection to its end.
pub(crate) async fn drive<S: AsyncWrite + Unpin>(
    mut connection: Pin<&mut impl Future<Output = Result<(), hyper::Error>>>,
    requests: &mut Requests,
    gather: &Gather<S>,
) -> Result<(), DriveError> {
    // How much had been gathered when sending was last put off, and how often it was.
    let (mut gathered, mut rounds) = (0, 0);
    poll_fn(|context| {
        requests.inbox.allowance.begin_turn();
        let mut worked_on = requests.resume(context);
        let mut left = STARTED_MAX;
        let outcome = loop {
            let outcome = connection.as_mut().poll(context);
            let started = requests.start(left, context);
            left -= started;
            worked_on += started;
            // Whatever is answered leaves frames for the connection to write.
            if started == 0 || outcome.is_ready() {
                break outcome;
            }
            // Those that wait now must be polled by the set, which wakes this task for them.
            requests.resume(context);
        };
        if !requests.inbox.arrived.lock().is_empty() {
            // The rest in the next turn.
            context.waker().wake_by_ref();
        }
        // Under load the next answers are a moment away: as long as a turn of the scheduler brings more, it pays
        // to wait for another. A client that does one thing at a time is answered at once.
        let len = gather.len();
        let busy = worked_on > 1 || !requests.waiting.is_empty();
        if busy && outcome.is_pending() && len > gathered && len < WORTH_SENDING_LEN && rounds < ROUNDS_MAX {
            (gathered, rounds) = (len, rounds + 1);
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        (gathered, rounds) = (0, 0);
        match (gather.send(context), outcome) {
            (_, Poll::Ready(outcome)) => Poll::Ready(outcome.map_err(DriveError::from)),
            (Poll::Ready(Err(error)), Poll::Pending) => Poll::Ready(Err(error.into())),
            (_, Poll::Pending) => Poll::Pending,
        }
    })
    .await
}
