//! Entries on their way from etcd to the committer.
//!
//! One watch reads them as they are written; what has arrived waits here until it is asked for. When much waits, the watch stops
//! reading, and etcd keeps the rest. A watch that ends begins again behind the last entry it saw, with another member.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use polder_store::journal::{Arrivals, Missing};
use tokio::time::Instant;

use crate::client::Client;
use crate::error::EtcdError;
use crate::head::Head;
use crate::keys::Keys;
use crate::wire::{KeyValue, Range};

/// Waits between watches that end, from and to.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long it may take to begin a watch.
const BEGIN_PATIENCE: Duration = Duration::from_secs(5);

/// An entry as etcd sent it.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) head: Bytes,
    /// What was put at the same time.
    pub(crate) objects: Arc<[KeyValue]>,
}

/// Puts events of one revision together.
struct Gathering {
    keys: Keys,
    revision: u64,
    head: Option<Bytes>,
    objects: Vec<KeyValue>,
}

impl Gathering {
    /// Takes an event; gives what was gathered of the revision before it.
    fn take(&mut self, put: KeyValue) -> Option<(u64, Bytes, Vec<KeyValue>)> {
        let whole = if put.modified == self.revision { None } else { self.whole() };
        self.revision = put.modified;
        if *put.key == self.keys.head {
            self.head = Some(put.value);
        } else {
            self.objects.push(put);
        }
        whole
    }

    /// What there is of a revision that is over, if it was one of an entry.
    fn whole(&mut self) -> Option<(u64, Bytes, Vec<KeyValue>)> {
        let objects = std::mem::take(&mut self.objects);
        Some((self.revision, self.head.take()?, objects))
    }
}

/// Watches for ever: all entries behind `last`, of which there is none before the revision `from` of etcd.
pub(crate) async fn follow(
    client: Arc<Client>,
    keys: Keys,
    arrivals: Arc<Arrivals<Sent>>,
    writer: [u8; 8],
    mut last: u64,
    mut from: u64,
) {
    let mut pause = PAUSE_MIN;
    loop {
        let before = from;
        match watch(&client, &keys, &arrivals, writer, &mut last, &mut from).await {
            EtcdError::Compacted => {
                // What has been forgotten may hold nothing of ours.
                let deadline = Instant::now() + BEGIN_PATIENCE;
                let range = Range { key: &keys.head, ..Range::default() };
                if let Ok(answer) = client.range(&range, deadline).await {
                    if answer.found.first().is_some_and(|head| head.modified > last) {
                        tracing::error!(last, "etcd has forgotten entries that this replica has not seen");
                        arrivals.finish(Missing::Compacted);
                        return;
                    }
                    from = answer.revision + 1;
                }
            }
            error => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the watch on etcd has ended, and begins again"
                );
            }
        }
        pause = if from > before { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
        tokio::time::sleep(pause).await;
    }
}

async fn watch(
    client: &Client,
    keys: &Keys,
    arrivals: &Arrivals<Sent>,
    writer: [u8; 8],
    last: &mut u64,
    from: &mut u64,
) -> EtcdError {
    let (start, end) = keys.watched();
    let mut watching = match client.watch(&start, &end, *from, Instant::now() + BEGIN_PATIENCE).await {
        Ok(watching) => watching,
        Err(error) => return error,
    };
    let mut gathering = Gathering { keys: keys.clone(), revision: 0, head: None, objects: Vec::new() };
    loop {
        let answer = match watching.next().await {
            Ok(answer) => answer,
            Err(error) => return error,
        };
        if answer.compacted > 0 {
            return EtcdError::Compacted;
        }
        if answer.canceled {
            // It does not say so, but perhaps our token has ended.
            client.forget_token();
            return EtcdError::Refused { code: 0, message: answer.reason };
        }
        let mut whole = Vec::new();
        for put in answer.puts {
            whole.extend(gathering.take(put));
        }
        if !answer.fragment {
            whole.extend(gathering.whole());
        }
        for (position, head, objects) in whole {
            if position <= *last {
                continue;
            }
            *last = position;
            *from = position + 1;
            let is_own = Head::decode(&head).is_some_and(|head| head.id.starts_with(&writer));
            let len = head.len() + objects.iter().map(|one| one.key.len() + one.value.len()).sum::<usize>();
            arrivals.push(position, Sent { head, objects: objects.into() }, len, is_own).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_revision_are_one_entry() {
        let keys = Keys::new("/p");
        let put = |key: &[u8], modified| KeyValue {
            key: Bytes::copy_from_slice(key),
            value: Bytes::from(format!("{modified}")),
            created: 1,
            modified,
        };
        let mut gathering = Gathering { keys: keys.clone(), revision: 0, head: None, objects: Vec::new() };
        let mut found = Vec::new();
        for (key, modified) in [
            (&keys.head[..], 5),
            (b"/p/o/1", 5),
            (b"/p/leader", 6),
            (b"/p/o/1", 8),
            (&keys.head, 8),
            (b"/p/o/2", 8),
        ] {
            found.extend(gathering.take(put(key, modified)));
        }
        found.extend(gathering.whole());
        let told: Vec<(u64, usize)> =
            found.iter().map(|(revision, _, objects)| (*revision, objects.len())).collect();
        assert_eq!(told, [(5, 1), (8, 2)]);
        assert!(gathering.whole().is_none());
    }
}
