//! Reading what is newest of all where several stores share a history: asking how far it is, and waiting until this store is
//! there.
//!
//! Whoever asks needs an answer to a question that was put after it came. So everybody who comes while one is under way waits
//! for the next, which is one question for all of them.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::engine::{EngineError, Horizon};
use crate::key::Revision;
use crate::read::ReadError;

/// How long a reader waits before it is told that nobody knows.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) struct Freshness {
    horizon: Option<Arc<dyn Horizon>>,
    /// Held while a question is under way, also when nobody waits for its answer any more.
    asking: Arc<tokio::sync::Mutex<()>>,
    answers: Arc<Mutex<Answers>>,
}

/// The questions that were put, and the answer to the last.
#[derive(Debug, Default)]
struct Answers {
    begun: u64,
    /// Which question it was: whoever asks may go away before it has an answer.
    last: Option<(u64, Result<Revision, Arc<EngineError>>)>,
}

impl Freshness {
    pub(crate) fn new(horizon: Option<Arc<dyn Horizon>>) -> Freshness {
        Freshness { horizon, asking: Arc::default(), answers: Arc::default() }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.horizon.is_some()
    }

    /// Whether the last question was answered.
    pub(crate) fn is_answered(&self) -> bool {
        self.answers.lock().last.as_ref().is_none_or(|(_, answer)| answer.is_ok())
    }

    /// How often somebody asked, and the last answer.
    pub(crate) fn asked(&self) -> (u64, Option<Revision>) {
        let answers = self.answers.lock();
        let last = answers.last.as_ref().and_then(|(_, answer)| answer.as_ref().ok().copied());
        (answers.begun, last)
    }

    /// A revision that covers all commits that anybody was told of before; `None` where this store makes all of them.
    pub(crate) async fn newest(&self) -> Result<Option<Revision>, ReadError> {
        let Some(horizon) = &self.horizon else { return Ok(None) };
        match tokio::time::timeout(PATIENCE, self.ask(horizon)).await {
            Ok(Ok(revision)) => Ok(Some(revision)),
            Ok(Err(error)) => Err(ReadError::Unreachable(error)),
            Err(_) => Err(ReadError::Behind),
        }
    }

    async fn ask(&self, horizon: &Arc<dyn Horizon>) -> Result<Revision, Arc<EngineError>> {
        let needed = self.answers.lock().begun + 1;
        let asking = self.asking.clone().lock_owned().await;
        let number = {
            let mut answers = self.answers.lock();
            match &answers.last {
                Some((number, answer)) if *number >= needed => return answer.clone(),
                _ => answers.begun += 1,
            }
            answers.begun
        };
        let (horizon, answers) = (horizon.clone(), self.answers.clone());
        let asked = tokio::task::spawn_blocking(move || {
            let answer = horizon.newest().map_err(Arc::new);
            answers.lock().last = Some((number, answer.clone()));
            drop(asking);
            answer
        });
        asked.await.unwrap_or_else(|_| Err(Arc::new(EngineError::Failed("nobody answers".into()))))
    }

    pub(crate) fn patience() -> Duration {
        PATIENCE
    }
}

impl std::fmt::Debug for Freshness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Freshness").field("answers", &*self.answers.lock()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Answers with how often it was asked, after a moment.
    #[derive(Default)]
    struct Slow(AtomicU64);

    impl Horizon for Slow {
        fn newest(&self) -> Result<Revision, EngineError> {
            let asked = self.0.fetch_add(1, Ordering::SeqCst) + 1;
            std::thread::sleep(Duration::from_millis(50));
            Ok(Revision(asked))
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn many_who_ask_at_once_are_one_question() {
        let horizon = Arc::new(Slow::default());
        let fresh = Arc::new(Freshness::new(Some(horizon.clone())));
        let mut tasks = tokio::task::JoinSet::new();
        let asking = |fresh: &Arc<Freshness>| {
            let fresh = fresh.clone();
            async move { fresh.newest().await.unwrap() }
        };
        tasks.spawn(asking(&fresh));
        while horizon.0.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        // The first question is under way: it may be from before what these want to see.
        let first = tasks.join_next();
        let mut later = tokio::task::JoinSet::new();
        (0..100).for_each(|_| drop(later.spawn(asking(&fresh))));
        assert_eq!(first.await.unwrap().unwrap(), Some(Revision(1)));
        while let Some(answer) = later.join_next().await {
            assert!(answer.unwrap() >= Some(Revision(2)));
        }
        assert!(horizon.0.load(Ordering::SeqCst) <= 4);
        assert_eq!(Freshness::new(None).newest().await.unwrap(), None);
    }
}
