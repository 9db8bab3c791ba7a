//! The journal itself: what the committer asks for, answered by tasks on a runtime of its own.
//!
//! # When nobody knows whether an entry was added
//!
//! A transaction whose answer got lost may have been made, or still be under way. It is sent again: both say that the head must
//! be what it was, so one of them at most is made, and each entry has a name of its own. If one is answered with success, that
//! is it. If one is answered with "somebody was first", no other can be made any more, and the first entry behind the old head,
//! which etcd still has, says whether it is ours. Only when time runs out in between does nobody know
//! ([`EngineError::Unknown`]). Whoever adds another entry behind the same head then keeps the doubtful one away, or is told that
//! somebody was first; and the watch brings our own entries whole, like those of others.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use polder_model::GroupResource;
use polder_store::engine::{Bell, Bounds, EngineError, Horizon};
use polder_store::journal::{Arrivals, EntryId, Leading, Missing, wait};
use polder_store::replica::{Act, Entry, IDENTITY, Journal, Kept, Position, Snapshot};
use polder_store::{ObjectName, Record, Revision, SpaceId};
use tokio::runtime::{Handle, Runtime};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::arrivals::{self, Sent};
use crate::client::{ANSWER_LEN_MAX, Client, ClientOptions, OptionsError};
use crate::codec;
use crate::error::EtcdError;
use crate::head::{Head, HeadBody};
use crate::keys::Keys;
use crate::layout::{self, Layout};
use crate::leading::{self, Terms};
use crate::snapshot;
use crate::wire::{self, Compare, KeyValue, Operation, Range};

/// Between tries to add an entry, and between looks at what has arrived.
const PAUSE: Duration = Duration::from_millis(50);
/// How long one that leaves tells others that it does not lead.
const FAREWELL: Duration = Duration::from_secs(2);
/// Seconds after which pieces go that no head came to name.
const PIECES_TTL: u64 = 600;
/// An entry in pieces that says it is longer than this is damaged.
const ENTRY_BYTES_MAX: usize = 256 << 20;
/// Operations of the transaction that adds an entry, beside those for its pieces.
const PIECES_MARGIN: usize = 8;
/// What a record takes in a transaction beside itself: its key, with names as long as they may be.
const KEY_MARGIN: usize = 16 << 10;

#[derive(Clone)]
pub struct JournalOptions {
    pub client: ClientOptions,
    /// What all keys begin with. Whoever has the same has the same history.
    pub prefix: String,
    /// How long adding an entry may take, and waiting for one that is known to be there.
    pub timeout: Duration,
    /// etcd's `--max-txn-ops`: what needs more goes in pieces, which takes longer.
    pub txn_ops_max: usize,
    /// A little less than etcd's `--max-request-bytes`.
    pub request_bytes_max: usize,
    /// Memory for entries that have arrived and wait.
    pub queued_bytes_max: usize,
    /// Whether this replica may lead.
    pub is_candidate: bool,
    /// When a leader that is gone is replaced.
    pub lease: Duration,
    /// How long entries are kept in etcd; without, etcd is left to forget by itself (`--auto-compaction-retention`).
    pub history: Option<Duration>,
}

impl Default for JournalOptions {
    fn default() -> JournalOptions {
        JournalOptions {
            client: ClientOptions::default(),
            prefix: "/polder".to_owned(),
            timeout: Duration::from_secs(10),
            txn_ops_max: 128,
            request_bytes_max: 1_400_000,
            queued_bytes_max: 64 << 20,
            is_candidate: true,
            lease: Duration::from_secs(10),
            history: Some(Duration::from_secs(300)),
        }
    }
}

/// One replica's end of a journal on etcd.
pub struct EtcdJournal {
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    inner: Arc<Inner>,
    leading: Leading,
    /// What reads the entries of others.
    following: Option<AbortHandle>,
    entries: u64,
}

struct Inner {
    client: Arc<Client>,
    keys: Keys,
    arrivals: Arc<Arrivals<Sent>>,
    options: JournalOptions,
    writer: [u8; 8],
}

/// What the key `head` says.
struct Found {
    /// Zero: there is none.
    position: u64,
    created: u64,
    current: Revision,
    /// Where etcd is.
    revision: u64,
}

impl EtcdJournal {
    /// Asks etcd nothing yet.
    pub fn open(options: JournalOptions) -> Result<EtcdJournal, OptionsError> {
        let client = Arc::new(Client::new(options.client.clone())?);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("polder-etcd")
            .enable_all()
            .build()
            .map_err(OptionsError::Thread)?;
        let keys = Keys::new(&options.prefix);
        let unique = uuid::Uuid::new_v4();
        let mut writer = [0; 8];
        writer.copy_from_slice(&unique.as_bytes()[..8]);
        let arrivals = Arc::new(Arrivals::new(options.queued_bytes_max));
        let leading = Leading::new(options.is_candidate);
        let terms = Terms { ttl: options.lease, history: options.history };
        runtime.spawn(leading::campaign(
            client.clone(),
            keys.clone(),
            leading.clone(),
            terms,
            unique.simple().to_string(),
        ));
        let inner = Arc::new(Inner { client, keys, arrivals, options, writer });
        Ok(EtcdJournal { runtime: Some(runtime), inner, leading, following: None, entries: 0 })
    }

    /// Whether this replica leads, and may.
    pub fn leading(&self) -> Leading {
        self.leading.clone()
    }

    fn wait<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> Option<T> {
        wait(self.runtime.as_ref()?.handle(), self.inner.options.timeout, task)
    }

    /// Asks what the key `head` says.
    fn head(&self) -> Result<Found, EngineError> {
        let (inner, deadline) = (self.inner.clone(), self.inner.deadline());
        self.wait(async move { inner.head(deadline).await }).unwrap_or_else(|| Err(late()))
    }

    /// Begins to watch, behind the first position that is asked about.
    fn follow(&mut self, after: Position) -> Result<(), EngineError> {
        if self.following.is_some() {
            return Ok(());
        }
        let found = self.head()?;
        if found.position < after.0 {
            return Err(EngineError::Damaged(format!(
                "the journal in etcd ends at {}, but this replica has read up to {}",
                found.position, after.0
            )));
        }
        self.inner.arrivals.expect(found.position);
        let from = match (found.position, after.0) {
            // Nothing of ours is between the head and where etcd is.
            (head, after) if head == after => found.revision + 1,
            (_, 0) => found.created,
            (_, after) => after + 1,
        };
        if let Some(runtime) = &self.runtime {
            let Inner { client, keys, arrivals, writer, .. } = &*self.inner;
            let following =
                arrivals::follow(client.clone(), keys.clone(), arrivals.clone(), *writer, after.0, from);
            self.following = Some(runtime.spawn(following).abort_handle());
        }
        Ok(())
    }

    /// Whoever asks next begins anew.
    fn unfollow(&mut self) {
        if let Some(following) = self.following.take() {
            following.abort();
        }
        self.inner = Arc::new(self.inner.with_no_arrivals());
    }
}

/// Asks where a journal ends.
struct End {
    runtime: Option<Handle>,
    inner: Arc<Inner>,
}

impl Horizon for End {
    fn newest(&self) -> Result<Revision, EngineError> {
        let (inner, deadline) = (self.inner.clone(), self.inner.deadline());
        let runtime = self.runtime.as_ref().ok_or_else(late)?;
        let found = wait(runtime, inner.options.timeout, async move { inner.head(deadline).await });
        Ok(found.unwrap_or_else(|| Err(late()))?.current)
    }
}

impl Journal for EtcdJournal {
    fn append(&mut self, after: Position, entry: &Entry) -> Result<Option<Position>, EngineError> {
        self.follow(after)?;
        self.entries += 1;
        let mut id = EntryId::default();
        id[..8].copy_from_slice(&self.inner.writer);
        id[8..].copy_from_slice(&self.entries.to_be_bytes());
        let (inner, deadline, entry) = (self.inner.clone(), self.inner.deadline(), entry.clone());
        let added = self.wait(async move { inner.append(after.0, id, &entry, deadline).await });
        let added =
            added.unwrap_or_else(|| Err(EngineError::Unknown("etcd's tasks do not answer".into())))?;
        Ok(added.map(Position))
    }

    fn next(&mut self, after: Position) -> Result<Option<(Position, Arc<Entry>)>, EngineError> {
        self.follow(after)?;
        let arrived = match self.inner.arrivals.first(after.0, self.inner.options.timeout) {
            Ok(Some(arrived)) => arrived,
            Ok(None) => return Ok(None),
            Err(Missing::Compacted) => return Err(EngineError::Compacted),
            Err(Missing::Damaged(what)) => return Err(EngineError::Damaged(what)),
            Err(Missing::Late) => {
                return Err(EngineError::Unavailable(
                    "what others have done does not arrive from etcd".into(),
                ));
            }
        };
        let position = arrived.position;
        let damaged =
            || EngineError::Damaged(format!("entry {position} of the journal in etcd cannot be read"));
        let head = Head::decode(&arrived.entry.head).ok_or_else(damaged)?;
        let entry = match head.body {
            HeadBody::Entry(bytes) => self.inner.decode(bytes, &arrived.entry),
            HeadBody::Pieces { count, len } => {
                let (inner, deadline, id) = (self.inner.clone(), self.inner.deadline(), head.id);
                let whole = self.wait(async move { inner.pieces(position, &id, count, len, deadline).await });
                codec::decode_entry(&whole.unwrap_or_else(|| Err(late()))?, &|_, _, _, _| None)
            }
        };
        Ok(Some((Position(position), Arc::new(entry.ok_or_else(damaged)?))))
    }

    fn end(&mut self) -> Result<Position, EngineError> {
        let found = self.head()?;
        self.inner.arrivals.expect(found.position);
        Ok(Position(found.position))
    }

    fn horizon(&self) -> Arc<dyn Horizon> {
        let runtime = self.runtime.as_ref().map(|runtime| runtime.handle().clone());
        Arc::new(End { runtime, inner: self.inner.clone() })
    }

    fn set_bell(&mut self, bell: Bell) {
        self.inner.arrivals.set_bell(bell);
    }

    fn snapshot(
        &mut self,
        take: &mut dyn FnMut(Vec<Kept>) -> Result<(), EngineError>,
    ) -> Result<Snapshot, EngineError> {
        let (inner, deadline) = (self.inner.clone(), self.inner.deadline());
        let found = self.wait(async move { inner.unmarked_head(deadline).await });
        let found = found.unwrap_or_else(|| Err(late()))?;
        let mut place = Some(snapshot::Place::first(&self.inner.keys));
        while let Some(from) = place {
            let (inner, deadline) = (self.inner.clone(), self.inner.deadline());
            let limit = inner.page_len_max();
            let page = self.wait(async move {
                snapshot::page(&inner.client, &inner.keys, from, found.revision, limit, deadline).await
            });
            let (part, next) = page.unwrap_or_else(|| Err(late()))?;
            take(part)?;
            place = next;
        }
        self.unfollow();
        Ok(Snapshot { position: Position(found.position), current: found.current })
    }

    fn leads(&self) -> bool {
        self.leading.leads()
    }

    fn bounds(&self) -> Bounds {
        let JournalOptions { txn_ops_max, request_bytes_max, .. } = self.inner.options;
        // Each piece is looked at in one transaction.
        let pieces_max = txn_ops_max.saturating_sub(PIECES_MARGIN).max(1);
        let pieces_bytes = pieces_max.saturating_mul(request_bytes_max);
        Bounds {
            // The last change of a group may be a little longer than others.
            batch_len: txn_ops_max * 3 / 4,
            batch_bytes: request_bytes_max / 2,
            record_bytes_max: request_bytes_max.saturating_sub(KEY_MARGIN),
            change_bytes_max: pieces_bytes.min(ENTRY_BYTES_MAX) / 2,
        }
    }

    fn identity(&mut self) -> Result<Option<Arc<[u8]>>, EngineError> {
        let (inner, deadline) = (self.inner.clone(), self.inner.deadline());
        let found = self.wait(async move {
            let key = inner.keys.note(IDENTITY);
            inner.client.range(&Range { key: &key, ..Range::default() }, deadline).await.map_err(failed)
        });
        let found = found.unwrap_or_else(|| Err(late()))?.found;
        let Some(note) = found.first() else { return Ok(None) };
        let damaged = || EngineError::Damaged("the identity of the journal in etcd cannot be read".into());
        codec::decode_bytes(&note.value).map(Some).ok_or_else(damaged)
    }
}

impl Drop for EtcdJournal {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            let led = self.leading.leads();
            self.leading.stand(false);
            if led {
                // Others need not wait until the lease ends.
                let inner = self.inner.clone();
                let (tell, told) = mpsc::sync_channel(1);
                runtime.spawn(async move {
                    let deadline = Instant::now() + FAREWELL;
                    let leader = Range { key: &inner.keys.leader, ..Range::default() };
                    while let Ok(answer) = inner.client.range(&leader, deadline).await
                        && !answer.found.is_empty()
                        && Instant::now() < deadline
                    {
                        tokio::time::sleep(PAUSE).await;
                    }
                    tell.send(()).ok();
                });
                told.recv_timeout(FAREWELL).ok();
            }
            runtime.shutdown_background();
        }
    }
}

fn found_head(head: Option<KeyValue>, revision: u64) -> Result<Found, EngineError> {
    let Some(head) = head else {
        return Ok(Found { position: 0, created: 0, current: Revision(0), revision });
    };
    let current = Head::decode(&head.value).map(|head| head.current);
    let current = current.ok_or_else(|| {
        EngineError::Damaged("the journal in etcd cannot be read: was it written by a newer polder?".into())
    })?;
    Ok(Found { position: head.modified, created: head.created, current, revision })
}

fn late() -> EngineError {
    EngineError::Unavailable("etcd's tasks do not answer".into())
}

/// What failed in such a way did nothing.
pub(crate) fn failed(error: EtcdError) -> EngineError {
    match error {
        EtcdError::NoSpace { .. } => EngineError::Full(Box::new(error)),
        EtcdError::Compacted => EngineError::Compacted,
        // Who was asked a question and did not answer has changed nothing.
        EtcdError::Unreachable { .. } | EtcdError::Unknown { .. } | EtcdError::Answer { .. } => {
            EngineError::Unavailable(Box::new(error))
        }
        EtcdError::Auth { .. } | EtcdError::Refused { .. } => EngineError::Failed(Box::new(error)),
    }
}

fn unknown(error: EtcdError) -> EngineError {
    EngineError::Unknown(Box::new(error))
}

impl Inner {
    fn deadline(&self) -> Instant {
        Instant::now() + self.options.timeout
    }

    /// The same for one who begins anew.
    fn with_no_arrivals(&self) -> Inner {
        let Inner { client, keys, arrivals, options, writer } = self;
        let anew = arrivals.anew();
        let (client, keys, options) = (client.clone(), keys.clone(), options.clone());
        Inner { client, keys, arrivals: Arc::new(anew), options, writer: *writer }
    }

    /// How many keys may be asked for at one time, however long they are.
    fn page_len_max(&self) -> u64 {
        (ANSWER_LEN_MAX / 2 / self.options.request_bytes_max.max(1)).clamp(1, 1_000) as u64
    }

    /// The head, when all keys say what its entry did.
    async fn unmarked_head(&self, deadline: Instant) -> Result<Found, EngineError> {
        loop {
            let ranges = [&self.keys.mark, &self.keys.head]
                .map(|key| Operation::Range(Range { key, ..Range::default() }));
            let answer = self.client.txn(&[], &ranges, &[], deadline).await.map_err(failed)?;
            let mut found = answer.ranges.into_iter().map(|range| range.found.into_iter().next());
            match found.next().flatten() {
                Some(mark) => self.spread(&mark, deadline).await?,
                None => return found_head(found.next().flatten(), answer.revision),
            }
        }
    }

    async fn head(&self, deadline: Instant) -> Result<Found, EngineError> {
        let range = Range { key: &self.keys.head, ..Range::default() };
        let answer = self.client.range(&range, deadline).await.map_err(failed)?;
        found_head(answer.found.into_iter().next(), answer.revision)
    }

    async fn append(
        &self,
        after: u64,
        id: EntryId,
        entry: &Entry,
        deadline: Instant,
    ) -> Result<Option<u64>, EngineError> {
        if matches!(entry.act, Act::Rewrite(..)) {
            // While the last entry stands in pieces the keys say what was before it: whoever believed them would put that back.
            self.unmarked_head(deadline).await?;
        }
        let newest = self.newest_of_rewritten(entry, deadline).await?;
        let is_newest = |key: &[u8], revision| newest.get(key) == Some(&revision);
        let layout = layout::layout(&self.keys, entry, &is_newest)?;
        let (operations, bytes) = layout.size();
        if operations <= self.options.txn_ops_max && bytes <= self.options.request_bytes_max {
            let head = Head { id, current: entry.revision, body: HeadBody::Entry(&layout.entry) }.encode();
            let message = self.transaction(after, &head, &layout, None);
            return self.commit(after, &id, message, deadline).await;
        }
        layout.check(self.options.request_bytes_max)?;
        let whole = codec::encode_entry(entry, &|_| false);
        let count = self.put_pieces(&id, &whole, deadline).await?;
        let body = HeadBody::Pieces { count, len: whole.len() as u64 };
        let head = Head { id, current: entry.revision, body }.encode();
        let message = self.transaction(after, &head, &Layout::default(), Some((&id, count)));
        let added = self.commit(after, &id, message, deadline).await?;
        match added {
            Some(position) => {
                // It is there. If this fails, whoever adds the next entry does it.
                let mark = KeyValue { value: head.into(), modified: position, ..KeyValue::default() };
                if let Err(error) = self.spread(&mark, deadline).await {
                    tracing::warn!(error = &error as &dyn std::error::Error, "a long entry stays in pieces");
                }
            }
            None => {
                let (key, end) = self.keys.pieces(&id);
                self.client.txn(&[], &[Operation::Delete { key: &key, end: &end }], &[], deadline).await.ok();
            }
        }
        Ok(added)
    }

    /// Writes into the keys what an entry in pieces did. Until that is done nothing is added, so it does not matter who does it,
    /// how often, or how many at a time.
    async fn spread(&self, mark: &KeyValue, deadline: Instant) -> Result<(), EngineError> {
        let position = mark.modified;
        let damaged =
            || EngineError::Damaged(format!("entry {position} of the journal in etcd cannot be read"));
        let head = Head::decode(&mark.value).ok_or_else(damaged)?;
        let HeadBody::Pieces { count, len } = head.body else { return Err(damaged()) };
        let whole = match self.pieces(0, &head.id, count, len, deadline).await {
            // They go with the mark: somebody else was faster.
            Err(EngineError::Damaged(_)) if !self.is_marked(position, deadline).await? => return Ok(()),
            whole => whole?,
        };
        let entry = codec::decode_entry(&whole, &|_, _, _, _| None).ok_or_else(damaged)?;
        let newest = self.newest_of_rewritten(&entry, deadline).await?;
        let is_newest = |key: &[u8], revision| newest.get(key) == Some(&revision);
        let layout = layout::layout(&self.keys, &entry, &is_newest)?;
        let is_marked = [Compare::Modified(&self.keys.mark, position)];
        for operations in layout.portions(self.options.txn_ops_max, self.options.request_bytes_max) {
            let answer = self.client.txn(&is_marked, &operations, &[], deadline).await.map_err(failed)?;
            if !answer.succeeded {
                return Ok(());
            }
        }
        let (key, end) = self.keys.pieces(&head.id);
        let done = [
            Operation::Delete { key: &self.keys.mark, end: &[] },
            Operation::Delete { key: &key, end: &end },
        ];
        self.client.txn(&is_marked, &done, &[], deadline).await.map_err(failed)?;
        Ok(())
    }

    async fn is_marked(&self, position: u64, deadline: Instant) -> Result<bool, EngineError> {
        let range = Range { key: &self.keys.mark, ..Range::default() };
        let found = self.client.range(&range, deadline).await.map_err(failed)?.found;
        Ok(found.first().is_some_and(|mark| mark.modified == position))
    }

    /// The one transaction that adds an entry. `pieces`: it stands in so many of this name, which stay from then on.
    fn transaction(
        &self,
        after: u64,
        head: &[u8],
        layout: &Layout,
        pieces: Option<(&EntryId, u64)>,
    ) -> Vec<u8> {
        let keys = &self.keys;
        let is_last = match after {
            0 => Compare::Absent(&keys.head),
            _ => Compare::Modified(&keys.head, after),
        };
        let mut compares = vec![is_last, Compare::Absent(&keys.mark)];
        let mut then = vec![Operation::Put { key: &keys.head, value: head, lease: 0 }];
        then.extend(layout.operations().map(|(operation, _)| operation));
        let pieces: Vec<Vec<u8>> = match pieces {
            Some((id, count)) => (0..count).map(|number| keys.piece(id, number)).collect(),
            None => Vec::new(),
        };
        if !pieces.is_empty() {
            compares.extend(pieces.iter().map(|piece| Compare::Present(piece)));
            then.push(Operation::Put { key: &keys.mark, value: head, lease: 0 });
            then.extend(pieces.iter().map(|key| Operation::Keep { key }));
        }
        let or_else = [&keys.head, &keys.mark].map(|key| Operation::Range(Range { key, ..Range::default() }));
        wire::txn(&compares, &then, &or_else)
    }

    /// Sends the transaction until it is known what became of it.
    async fn commit(
        &self,
        after: u64,
        id: &EntryId,
        message: Vec<u8>,
        deadline: Instant,
    ) -> Result<Option<u64>, EngineError> {
        // Whether an earlier try may have been made, or may still be.
        let mut is_doubtful = false;
        loop {
            let error = match self.client.txn_message(&message, deadline).await {
                Ok(answer) if answer.succeeded => return Ok(Some(answer.revision)),
                Ok(answer) => {
                    let mut found = answer.ranges.into_iter().map(|range| range.found.into_iter().next());
                    let head = found.next().flatten().unwrap_or_default();
                    let mark = found.next().flatten();
                    self.arrivals.expect(head.modified);
                    return match head.modified {
                        at if at == after => match mark {
                            Some(mark) => {
                                let spread = self.spread(&mark, deadline).await;
                                spread.map_err(|error| match is_doubtful {
                                    true => EngineError::Unknown(Box::new(error)),
                                    false => error,
                                })?;
                                continue;
                            }
                            None => {
                                Err(EngineError::Failed("the pieces of an entry are gone from etcd".into()))
                            }
                        },
                        at if at < after => {
                            Err(EngineError::Damaged(format!("the journal in etcd goes back to {at}")))
                        }
                        _ if is_doubtful => self.settle(after, id, head, deadline).await,
                        _ => Ok(None),
                    };
                }
                Err(error) => error,
            };
            match error {
                EtcdError::NoSpace { .. } => {
                    // This try is over, but may have been made.
                    let range = Range { key: &self.keys.head, ..Range::default() };
                    let found = self.client.range(&range, deadline).await.map_err(unknown)?.found;
                    let head = found.into_iter().next().unwrap_or_default();
                    self.arrivals.expect(head.modified);
                    return match head.modified == after {
                        true if is_doubtful => Err(unknown(error)),
                        true => Err(failed(error)),
                        false => self.settle(after, id, head, deadline).await,
                    };
                }
                _ if error.is_unknown() => is_doubtful = true,
                EtcdError::Unreachable { .. } => {}
                _ if is_doubtful => return Err(unknown(error)),
                _ => return Err(failed(error)),
            }
            if Instant::now() + PAUSE >= deadline {
                return Err(if is_doubtful { unknown(error) } else { failed(error) });
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Nothing can be added behind `after` any more: was what was added ours? Goes back from a head that came later.
    async fn settle(
        &self,
        after: u64,
        id: &EntryId,
        mut head: KeyValue,
        deadline: Instant,
    ) -> Result<Option<u64>, EngineError> {
        loop {
            let range = Range { key: &self.keys.head, revision: head.modified - 1, ..Range::default() };
            let mut before = self.client.range(&range, deadline).await.map_err(unknown)?.found;
            match before.pop() {
                Some(before) if before.modified > after => head = before,
                _ => break,
            }
        }
        let is_ours = Head::decode(&head.value).is_some_and(|head| head.id == *id);
        Ok(is_ours.then_some(head.modified))
    }

    /// Which versions stand in the keys of what an entry rewrites. While the head is what it was, so are they.
    async fn newest_of_rewritten(
        &self,
        entry: &Entry,
        deadline: Instant,
    ) -> Result<HashMap<Vec<u8>, Revision>, EngineError> {
        let mut newest = HashMap::new();
        for keys in layout::rewritten(&self.keys, entry)?.chunks(self.options.txn_ops_max.max(1)) {
            let ranges: Vec<Operation<'_>> =
                keys.iter().map(|key| Operation::Range(Range { key, ..Range::default() })).collect();
            let answer = self.client.txn(&[], &ranges, &[], deadline).await.map_err(failed)?;
            for found in answer.ranges.into_iter().flat_map(|range| range.found) {
                if let Some(version) = codec::decode_version(&found.value) {
                    newest.insert(found.key.to_vec(), version.revision);
                }
            }
        }
        Ok(newest)
    }

    /// Writes what is too long for one transaction. Nobody sees it until a head names it, and without one it goes by itself.
    async fn put_pieces(&self, id: &EntryId, whole: &[u8], deadline: Instant) -> Result<u64, EngineError> {
        let lease = self.client.grant(PIECES_TTL, deadline).await.map_err(failed)?.id;
        let mut count = 0;
        for piece in whole.chunks(self.options.request_bytes_max.max(1)) {
            let key = self.keys.piece(id, count);
            loop {
                let put = Operation::Put { key: &key, value: piece, lease };
                match self.client.txn(&[], &[put], &[], deadline).await {
                    Ok(_) => break,
                    // The same again says the same.
                    Err(EtcdError::Unreachable { .. } | EtcdError::Unknown { .. })
                        if Instant::now() + PAUSE < deadline =>
                    {
                        tokio::time::sleep(PAUSE).await;
                    }
                    Err(error) => return Err(failed(error)),
                }
            }
            count += 1;
        }
        Ok(count)
    }

    /// An entry that stands in pieces, as it was when its head was written; or as it is now, at zero.
    async fn pieces(
        &self,
        position: u64,
        id: &EntryId,
        count: u64,
        len: u64,
        deadline: Instant,
    ) -> Result<Vec<u8>, EngineError> {
        let damaged =
            || EngineError::Damaged(format!("entry {position} of the journal in etcd is not whole"));
        if len > ENTRY_BYTES_MAX as u64 || count > len {
            return Err(damaged());
        }
        let mut whole = Vec::new();
        for number in 0..count {
            let key = self.keys.piece(id, number);
            let range = Range { key: &key, revision: position, ..Range::default() };
            let answer = self.client.range(&range, deadline).await.map_err(failed)?;
            whole.extend_from_slice(&answer.found.first().ok_or_else(damaged)?.value);
            if whole.len() as u64 > len {
                return Err(damaged());
            }
        }
        if whole.len() as u64 == len { Ok(whole) } else { Err(damaged()) }
    }

    /// An entry with what arrived beside it.
    fn decode(&self, bytes: &[u8], sent: &Sent) -> Option<Entry> {
        let objects: HashMap<&Bytes, &KeyValue> = sent.objects.iter().map(|one| (&one.key, one)).collect();
        let apart =
            |space: SpaceId, resource: &GroupResource, name: &ObjectName, revision| -> Option<Record> {
                let key = Bytes::from(self.keys.object(space, resource, name));
                let version = codec::decode_version(&objects.get(&key)?.value)?;
                version.record.filter(|_| version.revision == revision)
            };
        codec::decode_entry(bytes, &apart)
    }
}
