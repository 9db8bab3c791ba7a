//! Closed-loop load: a number of clients, each sending its next call when the last is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::connection::Call;
use crate::subject::Subject;

/// What to send. Calls are taken in order; those left when time is up are not sent.
pub(crate) struct Load {
    pub(crate) clients: usize,
    pub(crate) calls: Vec<Call>,
    /// Calls that one client makes in a row and that are timed as one.
    pub(crate) steps: usize,
    pub(crate) patience: Duration,
}

/// What it cost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    pub(crate) clients: usize,
    /// Calls, or groups of steps, that were answered.
    pub(crate) done: usize,
    pub(crate) elapsed: Duration,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    /// CPU time of the server for all of it.
    pub(crate) cpu: Duration,
    /// Resident memory of the server afterwards, in bytes.
    pub(crate) resident: u64,
}

impl Load {
    pub(crate) fn new(clients: usize, calls: Vec<Call>) -> Load {
        Load { clients, calls, steps: 1, patience: Duration::from_secs(30) }
    }

    /// Runs the load. An answer that is no success ends it with an error.
    pub(crate) async fn run(self, subject: &Subject<'_>) -> anyhow::Result<Measured> {
        let connections = subject.connect(self.clients).await?;
        let calls = Arc::new(self.calls);
        let next = Arc::new(AtomicUsize::new(0));
        let cpu = subject.process.cpu()?;
        let started = Instant::now();
        let (steps, deadline) = (self.steps, started + self.patience);
        let mut clients = JoinSet::new();
        for client in 0..self.clients {
            let mut connection = connections[client % connections.len()].clone();
            let (calls, next) = (calls.clone(), next.clone());
            clients.spawn(async move {
                let mut took = Vec::new();
                while Instant::now() < deadline {
                    let at = next.fetch_add(1, Ordering::Relaxed) * steps;
                    let Some(calls) = calls.get(at..at + steps) else { break };
                    let sent = Instant::now();
                    for call in calls {
                        connection.send(call.clone()).await?;
                    }
                    took.push(sent.elapsed());
                }
                anyhow::Ok(took)
            });
        }
        let mut took = Vec::with_capacity(calls.len() / steps);
        while let Some(client) = clients.join_next().await {
            took.extend(client??);
        }
        let elapsed = started.elapsed();
        let cpu = subject.process.cpu()?.saturating_sub(cpu);
        Ok(Measured::new(self.clients, took, elapsed, cpu, subject.process.resident()?))
    }
}

impl Measured {
    pub(crate) fn new(
        clients: usize,
        mut took: Vec<Duration>,
        elapsed: Duration,
        cpu: Duration,
        resident: u64,
    ) -> Measured {
        took.sort_unstable();
        let (p50, p99) = (percentile(&took, 50), percentile(&took, 99));
        Measured { clients, done: took.len(), elapsed, p50, p99, cpu, resident }
    }
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        let check = |len: u64, percent, expected| {
            let sorted: Vec<Duration> = (1..=len).map(Duration::from_millis).collect();
            assert_eq!(percentile(&sorted, percent), Duration::from_millis(expected), "{percent} of {len}");
        };
        check(0, 50, 0);
        check(1, 99, 1);
        check(2, 50, 1);
        check(100, 99, 99);
        check(1000, 50, 500);
    }
}
