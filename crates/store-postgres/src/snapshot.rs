//! All there is up to where the tables are, page by page, in one transaction. What came later is in the log, which is kept as it is
//! as long as the session of whoever reads.

use std::sync::Arc;

use polder_store::engine::{EngineError, SpaceKey, Version};
use polder_store::journal::{codec, names};
use polder_store::replica::{Kept, Position, Snapshot};
use polder_store::{Record, Revision, SpaceId};
use tokio::time::Instant;
use tokio_postgres::Row;

use crate::error::PostgresError;
use crate::following::PAGE_BYTES;
use crate::server::{Params, Server, Session};

/// Objects or rows of one page.
const PAGE_LEN: usize = 4_096;
/// How long whoever reads may take between pages.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(300);

/// How far somebody has read. Rows come first: objects are in spaces.
#[derive(Debug)]
pub(crate) enum Place {
    Rows(String, String),
    Objects(Option<(i64, String)>),
}

/// Begins; says where the tables are.
pub(crate) async fn begin(server: &Server) -> Result<(Arc<Session>, Snapshot), PostgresError> {
    let session = server.connect(None, PATIENCE, Instant::now() + server.options.timeout).await?;
    let schema = &server.sql.schema;
    let hold = format!("SELECT pg_advisory_lock_shared(hashtext('polder-begin'), hashtext('{schema}'))");
    // Not in one message: statements of one message are one transaction, which would have begun with the first.
    for statement in [hold.as_str(), "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"] {
        session.client.batch_execute(statement).await.map_err(PostgresError::of_statement)?;
    }
    let state = format!("SELECT position, revision FROM {schema}.state");
    let row = session.client.query_one(&state, &[]).await.map_err(PostgresError::of_statement)?;
    let (position, revision): (i64, i64) = (row.get(0), row.get(1));
    let snapshot = Snapshot {
        position: Position(position.cast_unsigned()),
        current: Revision(revision.cast_unsigned()),
    };
    Ok((Arc::new(session), snapshot))
}

/// What is at a place, and what comes next.
pub(crate) async fn page(
    session: &Session,
    schema: &str,
    from: Place,
) -> Result<(Vec<Kept>, Option<Place>), EngineError> {
    let found = match &from {
        Place::Rows(kind, key) => {
            let rows = format!(
                "SELECT kind, key, value FROM {schema}.row WHERE (kind, key) > ($1, $2) \
                 ORDER BY kind, key LIMIT {PAGE_LEN}"
            );
            ask(session, &rows, &[kind, key]).await?
        }
        Place::Objects(after) => {
            let behind = if after.is_some() { "WHERE (space, key) > ($2, $3)" } else { "" };
            let objects = format!(
                "SELECT space, key, revision, record FROM (\
                   SELECT space, key, revision, record, \
                     sum(coalesce(octet_length(record), 0)) OVER (ORDER BY space, key) \
                       - coalesce(octet_length(record), 0) AS before \
                   FROM (SELECT * FROM {schema}.object {behind} ORDER BY space, key LIMIT {PAGE_LEN}) AS page\
                 ) AS paged WHERE before < $1::bigint ORDER BY space, key"
            );
            match after {
                Some((space, key)) => ask(session, &objects, &[&PAGE_BYTES, space, key]).await?,
                None => ask(session, &objects, &[&PAGE_BYTES]).await?,
            }
        }
    };
    let next = match (found.last(), &from) {
        (Some(last), Place::Rows(..)) => Some(Place::Rows(last.get(0), last.get(1))),
        (None, Place::Rows(..)) => Some(Place::Objects(None)),
        (Some(last), Place::Objects(_)) => Some(Place::Objects(Some((last.get(0), last.get(1))))),
        (None, Place::Objects(_)) => None,
    };
    let part = found.iter().map(|found| {
        let kept = if matches!(from, Place::Rows(..)) { row(found) } else { object(found) };
        kept.ok_or_else(|| {
            EngineError::Damaged(format!("{} in PostgreSQL cannot be read", found.get::<_, &str>(1)))
        })
    });
    Ok((part.collect::<Result<Vec<_>, _>>()?, next))
}

/// Ends the transaction; the session still keeps the log as it is.
pub(crate) async fn end(session: &Session) -> Result<(), EngineError> {
    session.client.batch_execute("COMMIT").await.map_err(|error| PostgresError::of_statement(error).failed())
}

async fn ask(session: &Session, text: &str, params: Params<'_>) -> Result<Vec<Row>, EngineError> {
    session.client.query(text, params).await.map_err(|error| PostgresError::of_statement(error).failed())
}

fn object(found: &Row) -> Option<Kept> {
    let space = SpaceId(found.get::<_, i64>(0).cast_unsigned());
    let (resource, name) = names::parse_object(found.get(1))?;
    let revision = Revision(found.get::<_, i64>(2).cast_unsigned());
    let record = match found.get::<_, Option<&[u8]>>(3) {
        Some(bytes) => Some(Record::from_bytes(bytes.into()).ok()?),
        None => None,
    };
    Some(Kept::Object { space, resource, name, version: Version { revision, record } })
}

fn row(found: &Row) -> Option<Kept> {
    let (kind, key, value): (&str, &str, &[u8]) = (found.get(0), found.get(1), found.get(2));
    let number = || u64::from_str_radix(key, 16).ok();
    Some(match kind {
        "p" => Kept::Plane(codec::decode_plane(number()?, value)?),
        "s" => Kept::Space(codec::decode_space(number()?, value)?),
        "k" => Kept::Key(SpaceKey { space: SpaceId(number()?), wrapped: codec::decode_bytes(value)? }),
        "n" => Kept::Note((names::unescape(key)?, codec::decode_bytes(value)?)),
        _ => return None,
    })
}
