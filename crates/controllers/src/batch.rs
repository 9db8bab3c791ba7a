//! Many writes at once: those in flight together share a commit. Bounded in number, and careful when they fail.

use std::future::Future;

use futures_util::future::join_all;
use polder_model::{Status, Value};

/// Writes in flight at a time. What they need is computed in one go, which others wait for.
const AT_ONCE: usize = 24;
/// Writes of one turn; what is left is done when others have had theirs.
pub(crate) const TURN_LEN_MAX: usize = 500;
/// What the objects made in one turn may weigh together, as text.
const TURN_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How many objects like this one a turn may make.
pub(crate) fn copies_max(like: &Value) -> usize {
    (TURN_BYTES_MAX / like.to_vec().len().max(1)).clamp(1, TURN_LEN_MAX)
}

/// What came of several writes: the results of those that worked, and the first failure.
pub(crate) struct Batch<T> {
    pub(crate) made: Vec<T>,
    pub(crate) failure: Option<Status>,
}

/// Does something a number of times, first once, then in ever larger groups, until one of a group fails: what
/// is refused for all, by a quota for instance, is asked for a few times and not hundreds.
pub(crate) async fn slow_start<T, F>(count: usize, mut make: impl FnMut(usize) -> F) -> Batch<T>
where
    F: Future<Output = Result<T, Status>>,
{
    let mut batch = Batch { made: Vec::new(), failure: None };
    let (mut done, mut len) = (0, 1);
    while done < count && batch.failure.is_none() {
        let group = len.min(count - done);
        for outcome in join_all((done..done + group).map(&mut make)).await {
            match outcome {
                Ok(made) => batch.made.push(made),
                Err(status) => batch.failure = batch.failure.or(Some(status)),
            }
        }
        done += group;
        len = (len * 2).min(AT_ONCE);
    }
    batch
}

/// Does something for each of many. All are tried.
pub(crate) async fn each<I, T, F>(items: &[I], act: impl Fn(usize) -> F) -> Batch<T>
where
    F: Future<Output = Result<T, Status>>,
{
    let mut batch = Batch { made: Vec::new(), failure: None };
    let mut start = 0;
    while start < items.len() {
        let end = (start + AT_ONCE).min(items.len());
        for outcome in join_all((start..end).map(&act)).await {
            match outcome {
                Ok(made) => batch.made.push(made),
                Err(status) => batch.failure = batch.failure.or(Some(status)),
            }
        }
        start = end;
    }
    batch
}

/// Does all of them, and tells the first error when all have been tried.
pub(crate) async fn all<F>(writes: impl IntoIterator<Item = F>) -> Result<(), Status>
where
    F: Future<Output = Result<(), Status>>,
{
    let mut outcome = Ok(());
    let mut writes = writes.into_iter().peekable();
    while writes.peek().is_some() {
        for one in join_all(writes.by_ref().take(AT_ONCE)).await {
            outcome = outcome.and(one);
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn what_is_refused_is_asked_for_a_few_times() {
        let check = async |count: usize, allowed: usize, asked: usize| {
            let (calls, left) = (Cell::new(0), Cell::new(allowed));
            let make = |_| {
                calls.set(calls.get() + 1);
                let outcome = match left.get() {
                    0 => Err(Status::untyped(403, "quota")),
                    more => {
                        left.set(more - 1);
                        Ok(())
                    }
                };
                std::future::ready(outcome)
            };
            let batch = slow_start(count, make).await;
            assert_eq!((batch.made.len(), calls.get()), (allowed.min(count), asked));
            assert_eq!(batch.failure.is_some(), allowed < count);
        };
        check(10, 10, 10).await;
        check(500, 0, 1).await;
        check(500, 1, 3).await;
        check(500, 5, 7).await;
        check(0, 0, 0).await;
    }
}
