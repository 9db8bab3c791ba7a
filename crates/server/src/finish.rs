//! Work that is finished once it has begun, though whoever asked for it has gone.
//!
//! It runs where it is polled, so that it costs no task of its own. When it is dropped before its end, because the client
//! hung up or its time was over, a task takes it up from there.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio_util::task::TaskTracker;

pub(crate) struct Finish<F: Future<Output: Send> + Send + 'static> {
    /// Gone when it has ended, or panicked.
    future: Option<Pin<Box<F>>>,
    tasks: TaskTracker,
}

impl<F: Future<Output: Send> + Send + 'static> Finish<F> {
    pub(crate) fn new(future: F, tasks: &TaskTracker) -> Finish<F> {
        Finish { future: Some(Box::pin(future)), tasks: tasks.clone() }
    }
}

impl<F: Future<Output: Send> + Send + 'static> Future for Finish<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Some(mut future) = self.future.take() else { return Poll::Pending };
        let polled = future.as_mut().poll(context);
        if polled.is_pending() {
            self.future = Some(future);
        }
        polled
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for Finish<F> {
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            self.tasks.spawn(future);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use std::panic::AssertUnwindSafe;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn what_is_dropped_is_finished() {
        let tasks = TaskTracker::new();
        let (go, gone) = oneshot::channel::<()>();
        let (done, told) = oneshot::channel();
        let mut work = Finish::new(
            async move {
                gone.await.ok();
                done.send(7).ok();
            },
            &tasks,
        );
        assert!((&mut work).now_or_never().is_none());
        drop(work);
        go.send(()).unwrap();
        assert_eq!(told.await, Ok(7));
    }

    #[tokio::test]
    async fn what_has_ended_is_not_begun_again() {
        let tasks = TaskTracker::new();
        assert_eq!(Finish::new(async { 7 }, &tasks).await, 7);
        let panics = Finish::new(async { panic!("as it should") }, &tasks);
        assert!(AssertUnwindSafe(panics).catch_unwind().await.is_err());
        assert!(tasks.is_empty());
    }
}
