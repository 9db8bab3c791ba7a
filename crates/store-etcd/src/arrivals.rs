//! Entries on their way from etcd to the committer.
//!
//! One watch reads them as they are written; what has arrived waits here until it is asked for. When much waits, the watch stops
//! reading, and etcd keeps the rest. A watch that ends begins again behind the last entry it saw, with another member.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use polder_store::engine::Bell;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::client::Client;
use crate::codec::Head;
use crate::error::EtcdError;
use crate::keys::Keys;
use crate::wire::{KeyValue, Range};

/// Waits between watches that end, from and to.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long it may take to begin a watch.
const BEGIN_PATIENCE: Duration = Duration::from_secs(5);

/// An entry as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    pub(crate) position: u64,
    pub(crate) head: Bytes,
    /// What was put at the same time.
    pub(crate) objects: Arc<[KeyValue]>,
    len: usize,
}

/// Why the next entry is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It has been forgotten.
    Compacted,
    /// It does not arrive.
    Late,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Arrived>,
    queued_bytes: usize,
    bell: Option<Bell>,
    is_compacted: bool,
    /// The newest entry that is known to be there.
    known: u64,
}

pub(crate) struct Arrivals {
    state: Mutex<State>,
    arrived: Condvar,
    room: Notify,
    queued_bytes_max: usize,
    /// Whose entries are our own.
    writer: [u8; 8],
}

impl Arrivals {
    pub(crate) fn new(queued_bytes_max: usize, writer: [u8; 8]) -> Arrivals {
        Arrivals {
            state: Mutex::default(),
            arrived: Condvar::new(),
            room: Notify::new(),
            queued_bytes_max,
            writer,
        }
    }

    pub(crate) fn set_bell(&self, bell: Bell) {
        self.state.lock().bell = Some(bell);
    }

    pub(crate) fn bell(&self) -> Option<Bell> {
        self.state.lock().bell.clone()
    }

    /// There is an entry at this position: whoever asks for what is before it waits until that arrives.
    pub(crate) fn expect(&self, position: u64) {
        let mut state = self.state.lock();
        state.known = state.known.max(position);
    }

    /// The first entry behind a position. Waits for one that is known to be there.
    pub(crate) fn first(&self, after: u64, patience: Duration) -> Result<Option<Arrived>, Missing> {
        let deadline = std::time::Instant::now() + patience;
        let mut state = self.state.lock();
        loop {
            while state.queue.front().is_some_and(|arrived| arrived.position <= after) {
                let gone = state.queue.pop_front();
                state.queued_bytes -= gone.map_or(0, |gone| gone.len);
                self.room.notify_one();
            }
            if let Some(arrived) = state.queue.front() {
                return Ok(Some(arrived.clone()));
            }
            if state.is_compacted {
                return Err(Missing::Compacted);
            }
            if state.known <= after {
                return Ok(None);
            }
            if self.arrived.wait_until(&mut state, deadline).timed_out() {
                return Err(Missing::Late);
            }
        }
    }

    async fn push(&self, position: u64, head: Bytes, objects: Vec<KeyValue>) {
        let is_own = Head::decode(&head).is_some_and(|head| head.id.starts_with(&self.writer));
        let len = head.len() + objects.iter().map(|one| one.key.len() + one.value.len()).sum::<usize>();
        let bell = {
            let mut state = self.state.lock();
            state.known = state.known.max(position);
            state.queued_bytes += len;
            state.queue.push_back(Arrived { position, head, objects: objects.into(), len });
            // Of our own nobody needs to be told, but where the answer got lost: then it is found before the next one, or within
            // a second.
            state.bell.clone().filter(|_| !is_own)
        };
        self.arrived.notify_all();
        if let Some(bell) = bell {
            bell();
        }
        while self.state.lock().queued_bytes > self.queued_bytes_max {
            self.room.notified().await;
        }
    }

    fn set_compacted(&self) {
        let bell = {
            let mut state = self.state.lock();
            state.is_compacted = true;
            state.bell.clone()
        };
        self.arrived.notify_all();
        if let Some(bell) = bell {
            bell();
        }
    }
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
    arrivals: Arc<Arrivals>,
    mut last: u64,
    mut from: u64,
) {
    let mut pause = PAUSE_MIN;
    loop {
        let before = from;
        match watch(&client, &keys, &arrivals, &mut last, &mut from).await {
            EtcdError::Compacted => {
                // What has been forgotten may hold nothing of ours.
                let deadline = Instant::now() + BEGIN_PATIENCE;
                let range = Range { key: &keys.head, ..Range::default() };
                if let Ok(answer) = client.range(&range, deadline).await {
                    if answer.found.first().is_some_and(|head| head.modified > last) {
                        tracing::error!(last, "etcd has forgotten entries that this replica has not seen");
                        arrivals.set_compacted();
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
    arrivals: &Arrivals,
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
            arrivals.push(position, head, objects).await;
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
