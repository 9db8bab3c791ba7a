//! Entries on their way from the server to the committer.
//!
//! One session listens. What it hears is that there is something; entries are then read by position, behind the last that is
//! known here. A notification that gets lost costs no more than the time until somebody asks, or until it is asked anyway.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use polder_store::journal::{Arrivals, EntryId, Leading, Missing};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_postgres::Row;

use crate::error::PostgresError;
use crate::server::{Hear, Server, Session};

/// Waits between sessions that end, from and to.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How heavy one answer may be, beside its last entry.
pub(crate) const PAGE_BYTES: i64 = 8 << 20;
/// What is told about leaders instead of an entry.
pub(crate) const LEADER: &str = "leader";

/// An entry as it was written.
pub(crate) type Sent = Arc<[u8]>;

/// The last entry that this replica has, or is about to be given; who wrote it, if that was ever seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Anchor {
    pub(crate) position: u64,
    pub(crate) name: Option<EntryId>,
}

/// What the journal and whoever follows know together.
pub(crate) struct Progress {
    pub(crate) arrivals: Arrivals<Sent>,
    pub(crate) anchor: Mutex<Anchor>,
    /// There may be news.
    pub(crate) wake: Notify,
    /// Keeps the log as it is, until all of it has been read that was there in the beginning.
    pub(crate) hold: Mutex<Option<Arc<Session>>>,
    /// Whose entries are our own. Another one after an entry of which it is not known whether it was added: if it turns up, it is
    /// as news to us as to others.
    writer: Mutex<[u8; 8]>,
}

impl Progress {
    pub(crate) fn new(arrivals: Arrivals<Sent>) -> Progress {
        let (anchor, hold, writer) = (Mutex::default(), Mutex::new(None), Mutex::new(random()));
        Progress { arrivals, anchor, wake: Notify::new(), hold, writer }
    }

    pub(crate) fn writer(&self) -> [u8; 8] {
        *self.writer.lock()
    }

    /// An entry of ours may be there, or not.
    pub(crate) fn doubt(&self) {
        *self.writer.lock() = random();
        self.wake.notify_one();
    }

    /// Whether the entry behind a position was passed over, because this replica wrote it.
    pub(crate) fn has_passed(&self, after: u64) -> bool {
        self.anchor.lock().position > after && self.arrivals.first_position(after) != Some(after + 1)
    }

    /// There is an entry of this name, and all before it are known.
    pub(crate) fn reach(&self, position: u64, name: EntryId) {
        let mut anchor = self.anchor.lock();
        if position > anchor.position {
            *anchor = Anchor { position, name: Some(name) };
        }
    }

    /// There is an entry at this position; if that is news, it is fetched.
    pub(crate) fn expect(&self, position: u64) {
        if self.arrivals.expect(position) {
            self.wake.notify_one();
        }
    }
}

enum Ended {
    /// The session; another may do.
    Session(PostgresError),
    /// What this replica needs is not there.
    Journal(Missing),
}

impl From<PostgresError> for Ended {
    fn from(error: PostgresError) -> Ended {
        Ended::Session(error)
    }
}

/// Reads for ever what comes behind the anchor.
pub(crate) async fn follow(server: Arc<Server>, progress: Arc<Progress>, leading: Leading) {
    let mut pause = PAUSE_MIN;
    loop {
        let before = progress.anchor.lock().position;
        match listen(&server, &progress, &leading).await {
            Ended::Journal(why) => {
                tracing::error!(?why, position = before, "this replica cannot follow the journal any more");
                progress.arrivals.finish(why);
                return;
            }
            Ended::Session(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the session that listens to PostgreSQL has ended, and begins again"
            ),
        }
        let has_moved = progress.anchor.lock().position > before;
        pause = if has_moved { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
        tokio::time::sleep(pause).await;
    }
}

async fn listen(server: &Server, progress: &Arc<Progress>, leading: &Leading) -> Ended {
    match listen_until(server, progress, leading).await {
        Ok(never) => match never {},
        Err(ended) => ended,
    }
}

async fn listen_until(
    server: &Server,
    progress: &Arc<Progress>,
    leading: &Leading,
) -> Result<std::convert::Infallible, Ended> {
    let (heard, told) = (progress.clone(), leading.clone());
    let hear: Hear = Arc::new(move |said| match said {
        Some(LEADER) => told.wake(),
        // Its own are no news.
        Some(said) if said.split(' ').nth(1) == Some(hex(&heard.writer()).as_str()) => {}
        _ => heard.wake.notify_one(),
    });
    let options = &server.options;
    let deadline = || Instant::now() + options.call_timeout;
    let session = server.connect(Some(hear), options.call_timeout, Instant::now() + options.timeout).await?;
    let listen = format!("LISTEN {}", server.sql.channel);
    let listening = tokio::time::timeout_at(deadline(), session.client.batch_execute(&listen)).await;
    listening.map_err(|_| PostgresError::late())?.map_err(PostgresError::of_statement)?;
    // A leader that left before anybody listened has told nobody.
    leading.wake();
    loop {
        while fetch(&session, progress, deadline()).await? {}
        progress.hold.lock().take();
        tokio::time::timeout(options.poll, progress.wake.notified()).await.ok();
        if session.client.is_closed() {
            return Err(Ended::Session(PostgresError::Unreachable("the session has ended".into())));
        }
    }
}

/// Takes what comes next; false when there is nothing.
async fn fetch(session: &Session, progress: &Progress, deadline: Instant) -> Result<bool, Ended> {
    let anchor = *progress.anchor.lock();
    let from = anchor.position.cast_signed();
    let params: crate::server::Params<'_> = &[&from, &PAGE_BYTES];
    let answered = tokio::time::timeout_at(deadline, session.client.query(&session.page, params)).await;
    let rows = answered.map_err(|_| PostgresError::late())?.map_err(PostgresError::of_statement)?;
    let mut rows = rows.iter();
    let Some(first) = rows.next() else {
        let what = format!("the journal in PostgreSQL ends before entry {from}, which this replica has");
        return Err(Ended::Journal(Missing::Damaged(what)));
    };
    if first.get::<_, i64>(0) != from {
        return Err(Ended::Journal(Missing::Compacted));
    }
    if anchor.name.is_some() && anchor.name != name_of(first) {
        let what = format!("entry {from} of the journal in PostgreSQL is not the one that this replica has");
        return Err(Ended::Journal(Missing::Damaged(what)));
    }
    let (mut last, mut count) = (anchor.position, 0);
    for row in rows {
        last += 1;
        count += 1;
        let damaged = || format!("entry {last} of the journal in PostgreSQL cannot be read");
        let position = row.get::<_, i64>(0).cast_unsigned();
        let (Some(name), Some(entry), true) =
            (name_of(row), row.get::<_, Option<&[u8]>>(3), position == last)
        else {
            return Err(Ended::Journal(Missing::Damaged(damaged())));
        };
        let is_own = name.starts_with(&progress.writer());
        progress.arrivals.push(position, entry.into(), entry.len(), is_own).await;
        // Afterwards: what is before the anchor has arrived, or is our own.
        progress.reach(position, name);
    }
    Ok(count > 0)
}

pub(crate) fn name_of(row: &Row) -> Option<EntryId> {
    row.get::<_, &[u8]>(1).try_into().ok()
}

/// Tells this replica from all others, for as long as it runs.
pub(crate) fn random() -> [u8; 8] {
    let mut random = [0; 8];
    random.copy_from_slice(&uuid::Uuid::new_v4().as_bytes()[..8]);
    random
}

pub(crate) fn hex(writer: &[u8; 8]) -> String {
    format!("{:016x}", u64::from_be_bytes(*writer))
}
