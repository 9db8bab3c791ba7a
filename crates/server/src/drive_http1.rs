//! Runs one HTTP/1.1 connection, and ends it when its client has not taken an answer by the time the request had.
//!
//! Hyper notices only a client that takes nothing at all. One that takes a byte now and then would keep its answer, and its
//! place among its plane's requests, for days.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};

use crate::body::{AnswerBody, OnItsWay};
use crate::drive::DriveError;

/// Where an answer says until when it may take.
#[derive(Clone, Default)]
pub(crate) struct Made(Arc<Mutex<Option<(Instant, OnItsWay)>>>);

impl Made {
    pub(crate) fn note(&self, body: &AnswerBody) {
        if let (Some(deadline), Some(on_its_way)) = (body.deadline(), body.on_its_way()) {
            *self.0.lock() = Some((deadline, on_its_way));
        }
    }
}

/// The answers of a connection, one after the other.
#[derive(Default)]
pub(crate) struct Answers {
    made: Made,
    /// Of the answer that is being taken.
    end: Option<(Pin<Box<Sleep>>, OnItsWay)>,
}

impl Answers {
    pub(crate) fn made(&self) -> Made {
        self.made.clone()
    }

    /// Runs a connection to its end.
    pub(crate) async fn drive(
        &mut self,
        mut connection: Pin<&mut impl Future<Output = Result<(), hyper::Error>>>,
    ) -> Result<(), DriveError> {
        poll_fn(|context| {
            if let Poll::Ready(outcome) = connection.as_mut().poll(context) {
                return Poll::Ready(outcome.map_err(DriveError::from));
            }
            if let Some((deadline, on_its_way)) = self.made.0.lock().take() {
                // Most answers have left already.
                self.end =
                    on_its_way.is_held().then(|| (Box::pin(tokio::time::sleep_until(deadline)), on_its_way));
            }
            if let Some((end, on_its_way)) = &mut self.end
                && end.as_mut().poll(context).is_ready()
            {
                if on_its_way.is_held() {
                    return Poll::Ready(Err(DriveError::NotTaken));
                }
                self.end = None;
            }
            Poll::Pending
        })
        .await
    }
}
