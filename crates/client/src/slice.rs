//! What one turn may do and what it used: told to it when it begins, measured while it runs.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use rustix::time::{ClockId, clock_gettime};

use crate::stage::FEW;

tokio::task_local! {
    static ROOM: usize;
}

/// How many of the objects that a reconcile wants to make it may make in this turn: all if they are a few, else what
/// there is room for. `None` if its plane must wait for that: then the turn ends with `Next::Aside`. What was
/// begun is thus brought to its end before more is begun.
pub fn may_make(wanted: usize) -> Option<usize> {
    match ROOM.try_with(|room| *room).unwrap_or(wanted) {
        room if wanted <= room => Some(wanted),
        room if room > FEW => Some(room),
        _ => None,
    }
}

/// Runs a turn that may make so many objects, and tells what it used: the time it computed, without what it waited, be
/// it for somebody's answer or for a core.
pub(crate) fn within<T: Send + 'static>(
    room: usize,
    work: BoxFuture<'static, T>,
) -> impl Future<Output = (T, Duration)> + Send {
    Metered { work: Box::pin(ROOM.scope(room, work)), spent: Duration::ZERO }
}

struct Metered<T> {
    work: BoxFuture<'static, T>,
    spent: Duration,
}

impl<T> Future for Metered<T> {
    type Output = (T, Duration);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<(T, Duration)> {
        let begun = thread_time();
        let polled = self.work.as_mut().poll(context);
        self.spent += thread_time().saturating_sub(begun);
        polled.map(|done| (done, self.spent))
    }
}

/// How long this thread has computed.
pub fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::MANY;

    #[tokio::test]
    async fn a_turn_makes_what_there_is_room_for() {
        let check = async |room: usize, wanted: usize, expected: Option<usize>| {
            let (made, _) = within(room, Box::pin(async move { may_make(wanted) })).await;
            assert_eq!(made, expected, "{wanted} of {room}");
        };
        check(FEW, 0, Some(0)).await;
        check(FEW, FEW, Some(FEW)).await;
        check(FEW, FEW + 1, None).await;
        check(MANY, FEW + 1, Some(FEW + 1)).await;
        check(MANY, MANY + 1, Some(MANY)).await;
        assert_eq!(may_make(1_000), Some(1_000), "outside of turns nobody counts");
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_is_not_work() {
        let work = async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            std::thread::sleep(Duration::from_millis(200));
        };
        let ((), spent) = within(FEW, Box::pin(work)).await;
        assert!(spent < Duration::from_millis(200), "{spent:?}");
    }
}
