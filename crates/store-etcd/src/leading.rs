//! Which replica does what only one may do: whoever made the key `leader`, as long as its lease is renewed.
//!
//! A leader stops by its own clock, well before etcd lets the lease end: renewals count from when they were asked for. It also
//! lets etcd forget what replicas have had time to read.

use std::sync::Arc;
use std::time::Duration;

use polder_store::journal::{Leading, Marks};
use tokio::time::Instant;

use crate::client::Client;
use crate::error::EtcdError;
use crate::keys::Keys;
use crate::wire::{Compare, Operation, Range};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) ttl: Duration,
    pub(crate) history: Option<Duration>,
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
        leading.lead_no_more();
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
    leading.lead_no_more();
    // Also when nobody knows whether it was made: what it was made with goes.
    client.revoke(lease.id, deadline()).await.ok();
    outcome.map(drop)
}

/// Renews a lease until it is lost, or this replica does not want to lead any more.
async fn renew(client: &Client, leading: &Leading, terms: Terms, (lease, ttl): (u64, u64), asked: Instant) {
    let margin = terms.ttl / 4;
    let mut until = asked + Duration::from_secs(ttl).saturating_sub(margin);
    let mut marks = Marks::default();
    while leading.is_candidate() && Instant::now() < until {
        leading.lead_until(until);
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

/// Lets etcd forget what is older than `history`. `marks` knows where etcd was at which time.
async fn forget(
    client: &Client,
    marks: &mut Marks,
    (now, revision): (Instant, u64),
    history: Duration,
    deadline: Instant,
) {
    let Some(revision) = marks.pass(now, revision, history) else { return };
    match client.compact(revision, deadline).await {
        Ok(()) => marks.forgotten(revision),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot let etcd forget old entries");
        }
    }
}
