//! The same thing for many planes, several at a time, with a bar.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use polder_client_http::{Client, ClientError};
use tokio::task::JoinSet;

use crate::commands::output;

/// Requests at one time.
const IN_FLIGHT: usize = 64;
/// How often a request is sent again when the server says it has too much to do.
const ATTEMPTS_MAX: usize = 30;

/// How it went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) done: usize,
    /// Was so already.
    pub(crate) unchanged: usize,
}

/// Calls `act` for every name; it says whether it changed anything. Stops at the first failure, with what was done.
pub(crate) async fn for_each<F, R>(
    client: &Client,
    names: Vec<String>,
    what: &'static str,
    act: F,
) -> (Outcome, Result<(), ClientError>)
where
    F: Fn(Client, String) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<bool, ClientError>> + Send + 'static,
{
    let bar = output::bar(names.len() as u64, what);
    let names = Arc::new(names);
    let next = Arc::new(AtomicUsize::new(0));
    let counts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let mut workers = JoinSet::new();
    for _ in 0..IN_FLIGHT.min(names.len()) {
        let (client, names, next, counts) = (client.clone(), names.clone(), next.clone(), counts.clone());
        let (bar, act) = (bar.clone(), act.clone());
        workers.spawn(async move {
            while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                let changed = patiently(|| act(client.clone(), name.clone())).await?;
                counts[usize::from(!changed)].fetch_add(1, Ordering::Relaxed);
                bar.inc(1);
            }
            Ok(())
        });
    }
    let mut result = Ok(());
    while let Some(worker) = workers.join_next().await {
        if let Ok(Err(error)) = worker
            && result.is_ok()
        {
            // The others finish what they are at and find nothing more to do.
            next.store(names.len(), Ordering::Relaxed);
            result = Err(error);
        }
    }
    bar.finish_and_clear();
    let count = |index: usize| counts[index].load(Ordering::Relaxed);
    (Outcome { done: count(0), unchanged: count(1) }, result)
}

async fn patiently<R>(mut act: impl FnMut() -> R) -> Result<bool, ClientError>
where
    R: Future<Output = Result<bool, ClientError>>,
{
    let mut attempt = 0;
    loop {
        attempt += 1;
        match act().await {
            Err(error) if error.code() == 429 && attempt < ATTEMPTS_MAX => {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            outcome => return outcome,
        }
    }
}
