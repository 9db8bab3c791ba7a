//! The journal itself: what the committer asks for, answered by tasks on a runtime of its own.
//!
//! # When nobody knows whether an entry was added
//!
//! A statement whose answer got lost may have been made, or still be under way. It is sent again: both add at the same place, so
//! one of them at most is made, and each entry has a name of its own. If one is answered with success, that is it. If one is
//! answered with "somebody was first", the entry that is there says by its name whether it is ours. Only when time runs out in
//! between does nobody know ([`EngineError::Unknown`]).

use std::sync::Arc;
use std::time::Duration;

use polder_store::Revision;
use polder_store::engine::{Bell, Bounds, EngineError, Horizon};
use polder_store::journal::{Arrivals, EntryId, Leading, Missing, codec, wait};
use polder_store::replica::{Act, Entry, IDENTITY, Journal, Kept, Position, Snapshot};
use tokio::runtime::{Handle, Runtime};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::error::PostgresError;
use crate::following::{self, Progress, hex, random};
use crate::leading::{self, Campaign, Old};
use crate::options::{JournalOptions, OptionsError};
use crate::server::{Link, PAUSE, Server, Session, What};
use crate::{fold, snapshot};

/// How long one that leaves tells others that it does not lead.
const FAREWELL: Duration = Duration::from_secs(2);
/// What is longer than this is no entry.
const ENTRY_LEN_MAX: usize = 256 << 20;
/// Of groups of changes: longer ones cost others time.
const BATCH_LEN: usize = 4_096;
const BATCH_BYTES: usize = 8 << 20;

/// One replica's end of a journal on PostgreSQL.
pub struct PostgresJournal {
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    inner: Arc<Inner>,
    leading: Leading,
    /// What it is called when it leads.
    name: String,
    /// What reads the entries of others.
    following: Option<AbortHandle>,
    entries: u64,
}

struct Inner {
    server: Arc<Server>,
    /// Adds entries. Others need not wait for them.
    writing: Arc<Link>,
    /// Asks where the journal ends, and says who leads.
    asking: Arc<Link>,
    progress: Arc<Progress>,
}

/// The last entry.
struct End {
    position: u64,
    current: Revision,
}

impl PostgresJournal {
    /// Asks the server nothing yet.
    pub fn open(options: JournalOptions) -> Result<PostgresJournal, OptionsError> {
        let server = Arc::new(Server::new(options)?);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("polder-postgres")
            .enable_all()
            .build()
            .map_err(OptionsError::Thread)?;
        let leading = Leading::new(server.options.is_candidate);
        let asking = Arc::new(Link::new(server.clone()));
        let old = Arc::new(Old::default());
        runtime.spawn(fold::run(server.clone(), leading.clone(), old.clone()));
        let (link, name) = (asking.clone(), hex(&random()));
        runtime.spawn(Campaign { link, leading: leading.clone(), name: name.clone(), old }.run());
        let arrivals = Arrivals::new(server.options.queued_bytes_max);
        let progress = Arc::new(Progress::new(arrivals));
        let writing = Arc::new(Link::new(server.clone()));
        let inner = Arc::new(Inner { server, writing, asking, progress });
        Ok(PostgresJournal { runtime: Some(runtime), inner, leading, name, following: None, entries: 0 })
    }

    /// Whether this replica leads, and may.
    pub fn leading(&self) -> Leading {
        self.leading.clone()
    }

    fn wait<T: Send + 'static>(
        &self,
        task: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> Result<T, EngineError> {
        let Some(runtime) = &self.runtime else { return Err(late()) };
        let waited = wait(runtime.handle(), self.inner.server.options.timeout, task);
        waited.unwrap_or_else(|| Err(late()))
    }

    /// Asks for the last entry.
    fn last(&self) -> Result<End, EngineError> {
        let inner = self.inner.clone();
        self.wait(async move { inner.end().await })
    }

    /// Begins to listen, behind the first position that is asked about.
    fn follow(&mut self, after: Position) -> Result<(), EngineError> {
        if self.following.is_some() {
            return Ok(());
        }
        let end = self.last()?;
        if end.position < after.0 {
            return Err(EngineError::Damaged(format!(
                "the journal in PostgreSQL ends at {}, but this replica has read up to {}",
                end.position, after.0
            )));
        }
        let Inner { server, progress, .. } = &*self.inner;
        progress.arrivals.expect(end.position);
        progress.anchor.lock().position = after.0;
        if let Some(runtime) = &self.runtime {
            let following = following::follow(server.clone(), progress.clone(), self.leading.clone());
            self.following = Some(runtime.spawn(following).abort_handle());
        }
        Ok(())
    }

    /// Whoever asks next begins anew, behind what it asks about. `hold` keeps the log as it is until then.
    fn unfollow(&mut self, hold: Option<Arc<Session>>) {
        if let Some(following) = self.following.take() {
            following.abort();
        }
        let Inner { server, writing, asking, progress } = &*self.inner;
        let progress = Arc::new(Progress::new(progress.arrivals.anew()));
        *progress.hold.lock() = hold;
        let (server, writing, asking) = (server.clone(), writing.clone(), asking.clone());
        self.inner = Arc::new(Inner { server, writing, asking, progress });
    }
}

/// Asks where a journal ends.
struct Ask {
    runtime: Option<Handle>,
    inner: Arc<Inner>,
}

impl Horizon for Ask {
    fn newest(&self) -> Result<Revision, EngineError> {
        let inner = self.inner.clone();
        let runtime = self.runtime.as_ref().ok_or_else(late)?;
        let end = wait(runtime, self.inner.server.options.timeout, async move { inner.end().await });
        let end = end.unwrap_or_else(|| Err(late()))?;
        // Whoever asks waits for it: it is not left to a notification that may be lost.
        self.inner.progress.expect(end.position);
        Ok(end.current)
    }
}

impl Journal for PostgresJournal {
    fn append(&mut self, after: Position, entry: &Entry) -> Result<Option<Position>, EngineError> {
        self.follow(after)?;
        self.entries += 1;
        let mut id = EntryId::default();
        id[..8].copy_from_slice(&self.inner.progress.writer());
        id[8..].copy_from_slice(&self.entries.to_be_bytes());
        let bytes = codec::encode_entry(entry, &|_| false);
        if bytes.len() > ENTRY_LEN_MAX {
            let what = format!(
                "an entry of {} bytes is longer than the journal takes ({ENTRY_LEN_MAX})",
                bytes.len()
            );
            return Err(EngineError::Failed(what.into()));
        }
        let (inner, revision) = (self.inner.clone(), entry.revision);
        let added = self.wait(async move { Ok(inner.append(after.0, id, revision, bytes).await) });
        // It is not known whether it was even sent.
        let added = added.unwrap_or_else(|error| Err(EngineError::Unknown(Box::new(error))));
        if matches!(added, Err(EngineError::Unknown(_))) {
            self.inner.progress.doubt();
        }
        Ok(added?.map(Position))
    }

    fn next(&mut self, after: Position) -> Result<Option<(Position, Arc<Entry>)>, EngineError> {
        self.follow(after)?;
        if self.inner.progress.has_passed(after.0) {
            self.unfollow(None);
            self.follow(after)?;
        }
        let arrived = match self.inner.progress.arrivals.first(after.0, self.inner.server.options.timeout) {
            Ok(Some(arrived)) => arrived,
            Ok(None) => return Ok(None),
            Err(Missing::Compacted) => return Err(EngineError::Compacted),
            Err(Missing::Damaged(what)) => return Err(EngineError::Damaged(what)),
            Err(Missing::Late) => {
                return Err(EngineError::Unavailable(
                    "what others have done does not arrive from PostgreSQL".into(),
                ));
            }
        };
        let position = arrived.position;
        let entry = codec::decode_entry(&arrived.entry, &|_, _, _, _| None).ok_or_else(|| {
            EngineError::Damaged(format!("entry {position} of the journal in PostgreSQL cannot be read"))
        })?;
        Ok(Some((Position(position), Arc::new(entry))))
    }

    fn end(&mut self) -> Result<Position, EngineError> {
        let end = self.last()?;
        self.inner.progress.expect(end.position);
        Ok(Position(end.position))
    }

    fn horizon(&self) -> Arc<dyn Horizon> {
        let runtime = self.runtime.as_ref().map(|runtime| runtime.handle().clone());
        Arc::new(Ask { runtime, inner: self.inner.clone() })
    }

    fn set_bell(&mut self, bell: Bell) {
        self.inner.progress.arrivals.set_bell(bell);
    }

    fn snapshot(
        &mut self,
        take: &mut dyn FnMut(Vec<Kept>) -> Result<(), EngineError>,
    ) -> Result<Snapshot, EngineError> {
        let server = self.inner.server.clone();
        let begun = self.wait(async move { snapshot::begin(&server).await.map_err(PostgresError::failed) });
        let (session, snapshot) = begun?;
        let mut place = Some(snapshot::Place::Rows(String::new(), String::new()));
        while let Some(from) = place {
            let (session, schema) = (session.clone(), self.inner.server.sql.schema.clone());
            let (part, next) = self.wait(async move { snapshot::page(&session, &schema, from).await })?;
            take(part)?;
            place = next;
        }
        let own = session.clone();
        self.wait(async move { snapshot::end(&own).await })?;
        self.unfollow(Some(session));
        Ok(snapshot)
    }

    fn leads(&self) -> bool {
        self.leading.leads()
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            batch_len: BATCH_LEN,
            batch_bytes: BATCH_BYTES,
            record_bytes_max: ENTRY_LEN_MAX / 4,
            change_bytes_max: ENTRY_LEN_MAX / 2,
        }
    }

    fn identity(&mut self) -> Result<Option<Arc<[u8]>>, EngineError> {
        let inner = self.inner.clone();
        self.wait(async move { inner.identity().await })
    }
}

impl Drop for PostgresJournal {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            let led = self.leading.leads();
            self.leading.stand(false);
            if led {
                // Others need not wait until the lease ends.
                let (inner, name) = (self.inner.clone(), std::mem::take(&mut self.name));
                wait(runtime.handle(), FAREWELL, async move {
                    leading::release(&inner.asking, &name, Instant::now() + FAREWELL).await;
                });
            }
            runtime.shutdown_background();
        }
    }
}

fn late() -> EngineError {
    EngineError::Unavailable("the tasks that speak with PostgreSQL do not answer".into())
}

impl Inner {
    fn deadline(&self) -> Instant {
        Instant::now() + self.server.options.timeout
    }

    async fn end(&self) -> Result<End, EngineError> {
        let rows =
            self.asking.patiently(&What::End, &[], self.deadline()).await.map_err(PostgresError::failed)?;
        let row = rows.first().ok_or_else(|| {
            EngineError::Damaged(
                "the journal in PostgreSQL is empty: its table was changed by somebody else".into(),
            )
        })?;
        let (position, revision): (i64, i64) = (row.get(0), row.get(1));
        Ok(End { position: position.cast_unsigned(), current: Revision(revision.cast_unsigned()) })
    }

    /// The note by which the journal is known: among the notes, or in the first entry as long as that is in the log.
    async fn identity(&self) -> Result<Option<Arc<[u8]>>, EngineError> {
        let schema = &self.server.sql.schema;
        let asked = format!(
            "SELECT 0, value FROM {schema}.row WHERE kind = 'n' AND key = $1 \
             UNION ALL SELECT 1, entry FROM {schema}.log WHERE position = 1 ORDER BY 1 LIMIT 1"
        );
        let rows = self.asking.patiently(&What::Text(&asked), &[&IDENTITY], self.deadline()).await;
        let rows = rows.map_err(PostgresError::failed)?;
        let Some(row) = rows.first() else { return Ok(None) };
        let damaged =
            || EngineError::Damaged("the identity of the journal in PostgreSQL cannot be read".into());
        let (from, bytes): (i32, &[u8]) = (row.get(0), row.get(1));
        if from == 0 {
            return Ok(Some(codec::decode_bytes(bytes).ok_or_else(damaged)?));
        }
        let first = codec::decode_entry(bytes, &|_, _, _, _| None).ok_or_else(damaged)?;
        let Act::Apply(batch) = first.act else { return Ok(None) };
        Ok(batch.notes.into_iter().find(|(name, _)| name == IDENTITY).and_then(|(_, value)| value))
    }

    /// Says that an entry is to be added until it is known what became of it.
    async fn append(
        &self,
        after: u64,
        id: EntryId,
        revision: Revision,
        entry: Vec<u8>,
    ) -> Result<Option<u64>, EngineError> {
        let deadline = self.deadline();
        let anchor = *self.progress.anchor.lock();
        // What this replica has seen last must be what is there, and not only at the same place.
        let last = anchor.name.filter(|_| anchor.position == after);
        let (position, revision) = (after.cast_signed(), revision.0.cast_signed());
        let (name, last) = (&id[..], last.as_ref().map(|name| &name[..]));
        let (channel, writer) = (&self.server.sql.channel, hex(&self.progress.writer()));
        let params: crate::server::Params<'_> =
            &[&position, &name, &revision, &entry, &last, channel, &writer];
        // Whether an earlier try may have been made, or may still be.
        let mut is_doubtful = false;
        loop {
            let error = match self.writing.once(&What::Append, params, deadline).await {
                Ok(rows) if rows.is_empty() => {
                    self.progress.expect(after + 1);
                    return if is_doubtful { self.settle(after + 1, &id, deadline).await } else { Ok(None) };
                }
                Ok(_) => {
                    self.progress.reach(after + 1, id);
                    return Ok(Some(after + 1));
                }
                Err(error) => error,
            };
            is_doubtful |= error.is_unknown();
            if !error.is_passing() || Instant::now() + PAUSE >= deadline {
                return Err(if is_doubtful { error.unknown() } else { error.failed() });
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Nothing can be added at `position` any more: is what is there ours?
    async fn settle(
        &self,
        position: u64,
        id: &EntryId,
        deadline: Instant,
    ) -> Result<Option<u64>, EngineError> {
        let name = format!("SELECT position, name FROM {}.log WHERE position = $1", self.server.sql.schema);
        let params: crate::server::Params<'_> = &[&position.cast_signed()];
        let rows = self.writing.patiently(&What::Text(&name), params, deadline).await;
        let rows = rows.map_err(PostgresError::unknown)?;
        let found = rows.first().ok_or_else(|| {
            EngineError::Unknown(format!("entry {position} is gone from the journal in PostgreSQL").into())
        })?;
        let is_ours = following::name_of(found) == Some(*id);
        if is_ours {
            self.progress.reach(position, *id);
        }
        Ok(is_ours.then_some(position))
    }
}
