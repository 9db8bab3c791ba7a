//! Which replica does what only one may do: whose name is in the table `leader`, as long as it says so again and again.
//!
//! Nobody's clock is compared with anybody else's. A leader stops a while after it asked for its last renewal; whoever wants to
//! be next has watched the row for longer than that, without a change. It also says up to where the log is old.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use polder_store::journal::{Leading, Marks};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_postgres::Row;

use crate::error::PostgresError;
use crate::following::LEADER;
use crate::server::{Link, What};

/// Up to where the log may be carried into the tables, and whether others are waited for who read it.
#[derive(Default)]
pub(crate) struct Old {
    pub(crate) position: AtomicU64,
    /// The same, but so old that nobody is waited for.
    pub(crate) position_forced: AtomicU64,
    pub(crate) changed: Notify,
}

/// How much longer than others somebody is waited for who begins.
const FORCED: u32 = 12;

pub(crate) struct Campaign {
    pub(crate) link: Arc<Link>,
    pub(crate) leading: Leading,
    pub(crate) name: String,
    pub(crate) old: Arc<Old>,
}

/// What stands in the row of the leader, and since when it is known to.
struct Seen {
    name: String,
    beat: i64,
    since: Instant,
}

impl Campaign {
    fn lease(&self) -> Duration {
        self.link.server.options.lease
    }

    /// Stands for election for ever.
    pub(crate) async fn run(self) {
        let mut seen = None;
        loop {
            if self.leading.is_candidate() {
                let outcome = self.stand(&mut seen).await;
                self.leading.lead_no_more();
                if let Err(error) = outcome {
                    tracing::warn!(error = &error as &dyn std::error::Error, "cannot stand for leader");
                }
            } else {
                seen = None;
            }
            self.leading.pause(self.lease() / 4).await;
        }
    }

    /// Leads, if nobody else does, until it does not any more.
    async fn stand(&self, seen: &mut Option<Seen>) -> Result<(), PostgresError> {
        let schema = &self.link.server.sql.schema;
        let deadline = || Instant::now() + self.lease() / 2;
        let rows = format!("SELECT name, beat FROM {schema}.leader");
        let rows = self.link.patiently(&What::Text(&rows), &[], deadline()).await?;
        let Some((name, beat)) = rows.first().map(|row| (row.get::<_, String>(0), row.get::<_, i64>(1)))
        else {
            return Err(PostgresError::Refused("the row of the leader is gone".into()));
        };
        let since = match seen {
            Some(seen) if seen.name == name && seen.beat == beat => seen.since,
            _ => Instant::now(),
        };
        // Its own name is there when the answer to its own statement got lost.
        let is_free = name.is_empty() || name == self.name || since.elapsed() >= self.lease();
        *seen = Some(Seen { name: name.clone(), beat, since });
        if !is_free {
            return Ok(());
        }
        let asked = Instant::now();
        let take = format!(
            "UPDATE {schema}.leader SET name = $1, beat = beat + 1 WHERE name = $2 AND beat = $3 RETURNING beat"
        );
        let taken = self.link.once(&What::Text(&take), &[&self.name, &name, &beat], deadline()).await;
        if matches!(&taken, Ok(rows) if !rows.is_empty()) {
            tracing::info!("this replica leads");
            self.renew(asked).await;
            tracing::info!("this replica does not lead any more");
            self.leading.lead_no_more();
            release(&self.link, &self.name, deadline()).await;
        }
        taken.map(drop)
    }

    /// Says that it leads until that fails, or it does not want to any more.
    async fn renew(&self, asked: Instant) {
        let schema = &self.link.server.sql.schema;
        let renew = format!(
            "UPDATE {schema}.leader SET beat = beat + 1 WHERE name = $1 \
             RETURNING (SELECT max(position) FROM {schema}.log)"
        );
        let term = self.lease() - self.lease() / 4;
        let mut until = asked + term;
        let (mut marks, mut marks_forced) = (Marks::default(), Marks::default());
        while self.leading.is_candidate() && Instant::now() < until {
            self.leading.lead_until(until);
            self.leading.pause(self.lease() / 4).await;
            if !self.leading.is_candidate() {
                return;
            }
            let asked = Instant::now();
            let deadline = until.min(asked + self.lease() / 2);
            match self.link.once(&What::Text(&renew), &[&self.name], deadline).await {
                Ok(rows) => {
                    let Some(row) = rows.first() else { return };
                    until = asked + term;
                    self.pass(row, asked, &mut marks, &mut marks_forced);
                }
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "cannot tell PostgreSQL that this replica leads"
                ),
            }
        }
    }

    /// Notes where the log is now, and says what of it is old.
    fn pass(&self, row: &Row, now: Instant, marks: &mut Marks, marks_forced: &mut Marks) {
        let Some(history) = self.link.server.options.history else { return };
        let end = row.get::<_, Option<i64>>(0).unwrap_or_default().cast_unsigned();
        let old = [
            (marks, history, &self.old.position),
            (marks_forced, history * FORCED, &self.old.position_forced),
        ];
        for (marks, history, position) in old {
            if let Some(old) = marks.pass(now, end, history) {
                marks.forgotten(old);
                position.fetch_max(old, Ordering::AcqRel);
                self.old.changed.notify_one();
            }
        }
    }
}

/// Says that somebody does not lead any more, and tells those who wait for it.
pub(crate) async fn release(link: &Link, name: &str, deadline: Instant) {
    let sql = &link.server.sql;
    let release = format!(
        "WITH released AS (UPDATE {}.leader SET name = '', beat = beat + 1 WHERE name = $1 RETURNING beat) \
         SELECT pg_notify($2, $3) FROM released",
        sql.schema
    );
    if let Err(error) = link.once(&What::Text(&release), &[&name, &sql.channel, &LEADER], deadline).await {
        tracing::debug!(error = &error as &dyn std::error::Error, "others wait until the lease ends");
    }
}
