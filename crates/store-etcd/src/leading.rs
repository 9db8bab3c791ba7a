//! Which replica does what only one may do: whoever made the key `leader`, as long as its lease is renewed.
//!
//! A leader stops by its own clock, well before etcd lets the lease end: renewals count from when they were asked for. It also
//! lets etcd forget what replicas have had time to read.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::client::Client;
use crate::error::EtcdError;
use crate::keys::Keys;
use crate::wire::{Compare, Operation, Range};

/// Whether a replica leads, and whether it wants to. Clones are the same.
#[derive(Clone)]
pub struct Leading(Arc<Inner>);

struct Inner {
    is_candidate: AtomicBool,
    changed: Notify,
    until: Mutex<Option<Instant>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) ttl: Duration,
    pub(crate) history: Option<Duration>,
}

impl Leading {
    pub(crate) fn new(is_candidate: bool) -> Leading {
        let is_candidate = AtomicBool::new(is_candidate);
        Leading(Arc::new(Inner { is_candidate, changed: Notify::new(), until: Mutex::new(None) }))
    }

    /// Whether this replica leads now.
    pub fn leads(&self) -> bool {
        self.0.until.lock().is_some_and(|until| Instant::now() < until)
    }

    /// Says whether this replica may lead. One that leads and may no longer lets others.
    pub fn stand(&self, is_candidate: bool) {
        if !is_candidate {
            *self.0.until.lock() = None;
        }
        self.0.is_candidate.store(is_candidate, Ordering::Release);
        self.0.changed.notify_one();
    }

    fn is_candidate(&self) -> bool {
        self.0.is_candidate.load(Ordering::Acquire)
    }

    /// Waits a while, or until somebody says something else.
    async fn pause(&self, pause: Duration) {
        tokio::time::timeout(pause, self.0.changed.notified()).await.ok();
    }
}

/// Stands for election for ever.
pub(crate) async fn campaign(client: Arc<Client>, keys: Keys, leading: Leading, terms: Terms, name: String) {
    loop {
        if leading.is_candidate() {
            match lead(&client, &keys, &leading, terms, &name).await {
                Ok(()) => {}
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "cannot stand for leader");
                }
            }
        }
        *leading.0.until.lock() = None;
        leading.pause(terms.ttl / 4).await;
    }
}

/// Leads from when there is no other leader until this one is no longer.
async fn lead(
    client: &Client,
    keys: &Keys,
    leading: &Leading,
    terms: Terms,
    name: &str,
) -> Result<(), EtcdError> {
    let deadline = || Instant::now() + terms.ttl / 2;
    let leader = Range { key: &keys.leader, ..Range::default() };
    if !client.range(&leader, deadline()).await?.found.is_empty() {
        return Ok(());
    }
    let asked = Instant::now();
    let lease = client.grant(terms.ttl.as_secs().max(1), deadline()).await?;
    let create = Operation::Put { key: &keys.leader, value: name.as_bytes(), lease: lease.id };
    let outcome = client.txn(&[Compare::Absent(&keys.leader)], &[create], &[], deadline()).await;
    if matches!(&outcome, Ok(answer) if answer.succeeded) {
        tracing::info!("this replica leads");
        renew(client, leading, terms, (lease.id, lease.ttl), asked).await;
        tracing::info!("this replica does not lead any more");
    }
    *leading.0.until.lock() = None;
    // Also when nobody knows whether it was made: what it was made with goes.
    client.revoke(lease.id, deadline()).await.ok();
    outcome.map(drop)
}

/// Renews a lease until it is lost, or this replica does not want to lead any more.
async fn renew(client: &Client, leading: &Leading, terms: Terms, (lease, ttl): (u64, u64), asked: Instant) {
    let margin = terms.ttl / 4;
    let mut until = asked + Duration::from_secs(ttl).saturating_sub(margin);
    let mut marks: VecDeque<(Instant, u64)> = VecDeque::new();
    while leading.is_candidate() && Instant::now() < until {
        {
            let mut own = leading.0.until.lock();
            // Whoever said in between that it does not stand has been heard.
            *own = leading.is_candidate().then_some(until);
        }
        leading.pause(terms.ttl / 4).await;
        if !leading.is_candidate() {
            return;
        }
        let asked = Instant::now();
        match client.keep_alive(lease, until.min(asked + terms.ttl / 2)).await {
            Ok(renewed) if renewed.ttl > 0 => {
                until = asked + Duration::from_secs(renewed.ttl).saturating_sub(margin);
                if let Some(history) = terms.history {
                    forget(client, &mut marks, (asked, renewed.revision), history, until).await;
                }
            }
            Ok(_) => return,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "cannot renew the lease of the leader"
                );
            }
        }
    }
}

/// Lets etcd forget what is older than `history`. `marks` has where etcd was at which time.
async fn forget(
    client: &Client,
    marks: &mut VecDeque<(Instant, u64)>,
    (now, revision): (Instant, u64),
    history: Duration,
    deadline: Instant,
) {
    // A few marks are enough to forget in steps.
    if marks.back().is_none_or(|(at, _)| now.duration_since(*at) >= history / 10) {
        marks.push_back((now, revision));
    }
    let old = marks.iter().take_while(|(at, _)| now.duration_since(*at) >= history).last();
    let Some((_, revision)) = old.copied() else { return };
    match client.compact(revision, deadline).await {
        Ok(()) => marks.retain(|(_, own)| *own > revision),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot let etcd forget old entries");
        }
    }
}
