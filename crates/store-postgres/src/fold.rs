//! Carries entries that are old from the log into the tables of what there is.
//!
//! One transaction each: it says up to where the tables are, and whoever reads them sees all of it or nothing. An object that was
//! written many times is written once. Two who do this at a time wait for each other, so it does not matter who believes to
//! lead.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use polder_model::GroupResource;
use polder_store::engine::{Batch, FilledVersion, PlaneWrite, SpaceState, Version};
use polder_store::journal::{Leading, codec, names};
use polder_store::replica::{Act, Entry};
use polder_store::{Record, ResourceId, SpaceId};
use tokio::time::Instant;

use crate::error::PostgresError;
use crate::following::PAGE_BYTES;
use crate::leading::Old;
use crate::server::{Server, Session};
use crate::sql::Sql;

/// How long one statement may take: a space that goes may have been large.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long to wait after a failure, or for others who read the log.
const PAUSE: Duration = Duration::from_secs(5);

/// What a carrying came to.
#[derive(Debug, PartialEq, Eq)]
enum Folded {
    /// The tables are up to here now.
    To(u64),
    /// Somebody reads the log and wants to find it.
    Held,
}

/// Carries what the leader says is old, for ever.
pub(crate) async fn run(server: Arc<Server>, leading: Leading, old: Arc<Old>) {
    let mut session: Option<Session> = None;
    let mut folded = 0;
    loop {
        let (target, forced) =
            (old.position.load(Ordering::Acquire), old.position_forced.load(Ordering::Acquire));
        if !leading.leads() || target <= folded {
            session = None;
            old.changed.notified().await;
            continue;
        }
        match step(&server, &mut session, target, folded < forced).await {
            Ok(Folded::To(position)) => folded = position,
            Ok(Folded::Held) => tokio::time::sleep(PAUSE).await,
            Err(error) => {
                session = None;
                tracing::warn!(error = &*error, "cannot carry old entries out of the log");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

type FoldError = Box<dyn std::error::Error + Send + Sync>;

async fn step(
    server: &Server,
    session: &mut Option<Session>,
    target: u64,
    is_forced: bool,
) -> Result<Folded, FoldError> {
    let open = match session.take().filter(|session| !session.client.is_closed()) {
        Some(open) => open,
        None => server.connect(None, PATIENCE, Instant::now() + server.options.timeout).await?,
    };
    let open = session.insert(open);
    tokio::time::timeout(PATIENCE, fold(open, &server.sql, target, is_forced))
        .await
        .unwrap_or_else(|_| Err(PostgresError::late().into()))
}

async fn fold(session: &mut Session, sql: &Sql, target: u64, is_forced: bool) -> Result<Folded, FoldError> {
    let (schema, page) = (&sql.schema, session.page.clone());
    let transaction = session.client.transaction().await?;
    let held = format!("SELECT pg_try_advisory_xact_lock(hashtext('polder-begin'), hashtext('{schema}'))");
    if !is_forced && !transaction.query_one(&held, &[]).await?.get::<_, bool>(0) {
        return Ok(Folded::Held);
    }
    let state = format!("SELECT position FROM {schema}.state FOR UPDATE");
    let mut position: i64 = transaction.query_one(&state, &[]).await?.get(0);
    let rows = transaction.query(&page, &[&position, &PAGE_BYTES]).await?;
    if rows.first().is_none_or(|row| row.get::<_, i64>(0) != position) {
        return Err(format!("entry {position} is gone from the journal in PostgreSQL").into());
    }
    let (mut changes, mut revision) = (Changes::default(), None);
    for row in rows.iter().skip(1).take_while(|row| row.get::<_, i64>(0).cast_unsigned() <= target) {
        let next: i64 = row.get(0);
        let entry: Option<&[u8]> = row.get(3);
        let entry = entry.and_then(|entry| codec::decode_entry(entry, &|_, _, _, _| None));
        let taken = entry.filter(|_| next == position + 1).and_then(|entry| changes.take(entry));
        taken.ok_or_else(|| format!("entry {next} of the journal in PostgreSQL cannot be read"))?;
        (position, revision) = (next, Some(row.get::<_, i64>(2)));
    }
    let Some(revision) = revision else { return Ok(Folded::To(target)) };
    changes.write(&transaction, schema).await?;
    let state = format!("UPDATE {schema}.state SET position = $1, revision = $2");
    transaction.execute(&state, &[&position, &revision]).await?;
    // The last one stays: the next is added behind it.
    transaction.execute(&format!("DELETE FROM {schema}.log WHERE position < $1"), &[&position]).await?;
    transaction.commit().await?;
    Ok(Folded::To(position.cast_unsigned()))
}

/// What entries do to the tables.
#[derive(Debug, Default)]
struct Changes {
    /// Spaces that lose all they had before.
    emptied: BTreeSet<SpaceId>,
    objects: BTreeMap<(SpaceId, String), Object>,
    rows: BTreeMap<(&'static str, String), Option<Vec<u8>>>,
}

#[derive(Debug, Default)]
struct Object {
    written: Option<Written>,
    /// Other bytes for versions that were there before.
    rewritten: BTreeMap<u64, Option<Record>>,
}

#[derive(Debug)]
enum Written {
    Put(Version),
    Removed,
}

impl Changes {
    /// Takes one entry; `None` when it does not say what its resources are.
    fn take(&mut self, entry: Entry) -> Option<()> {
        let names: BTreeMap<ResourceId, GroupResource> = entry.names.into_iter().collect();
        match entry.act {
            Act::Apply(batch) => self.take_batch(batch, &entry.bare, &names),
            Act::Fill(space, versions) => versions.into_iter().try_for_each(|filled| {
                let FilledVersion { resource, name, version } = filled;
                let own = self.object(space, names.get(&resource)?, &name);
                // Of several versions of one object, the newest is kept.
                match &own.written {
                    Some(Written::Put(known)) if known.revision > version.revision => {}
                    _ => own.put(version),
                }
                Some(())
            }),
            Act::Rewrite(space, versions) => versions.into_iter().try_for_each(|filled| {
                let FilledVersion { resource, name, version } = filled;
                let own = self.object(space, names.get(&resource)?, &name);
                match &mut own.written {
                    Some(Written::Put(known)) if known.revision == version.revision => {
                        known.record = version.record;
                    }
                    Some(_) => {}
                    None => drop(own.rewritten.insert(version.revision.0, version.record)),
                }
                Some(())
            }),
        }
    }

    fn take_batch(
        &mut self,
        batch: Batch,
        bare: &[usize],
        names: &BTreeMap<ResourceId, GroupResource>,
    ) -> Option<()> {
        for (index, write) in batch.objects.into_iter().enumerate() {
            let version = Version { revision: write.entry.revision, record: write.record };
            let own = self.object(write.entry.space, names.get(&write.entry.resource)?, &write.entry.name);
            match bare.binary_search(&index) {
                Ok(_) => *own = Object { written: Some(Written::Removed), ..Object::default() },
                Err(_) => own.put(version),
            }
        }
        for write in batch.planes {
            match write {
                PlaneWrite::Put(row) => self.row("p", row.id.0, Some(codec::encode_plane(&row))),
                PlaneWrite::Remove(plane) => self.row("p", plane.0, None),
            }
        }
        for key in batch.keys {
            self.row("k", key.space.0, Some(codec::encode_bytes(&key.wrapped)));
        }
        for row in batch.spaces {
            if row.state == SpaceState::Dropped {
                self.drop_space(row.id);
            } else {
                self.row("s", row.id.0, Some(codec::encode_space(&row)));
            }
        }
        for (name, value) in batch.notes {
            let mut key = String::new();
            names::escape(&name, &mut key);
            self.rows.insert(("n", key), value.as_deref().map(codec::encode_bytes));
        }
        Some(())
    }

    fn object(
        &mut self,
        space: SpaceId,
        resource: &GroupResource,
        name: &polder_store::ObjectName,
    ) -> &mut Object {
        let mut key = String::new();
        names::put_object(resource, name, &mut key);
        self.objects.entry((space, key)).or_default()
    }

    fn row(&mut self, kind: &'static str, id: u64, value: Option<Vec<u8>>) {
        self.rows.insert((kind, format!("{id:016x}")), value);
    }

    /// What belongs to a space goes with it, also what was written in the same batch.
    fn drop_space(&mut self, space: SpaceId) {
        self.objects.retain(|(own, _), _| *own != space);
        self.emptied.insert(space);
        self.row("s", space.0, None);
        self.row("k", space.0, None);
    }

    async fn write(
        &self,
        transaction: &tokio_postgres::Transaction<'_>,
        schema: &str,
    ) -> Result<(), tokio_postgres::Error> {
        let emptied: Vec<i64> = self.emptied.iter().map(|space| space.0.cast_signed()).collect();
        if !emptied.is_empty() {
            let delete = format!("DELETE FROM {schema}.object WHERE space = ANY ($1::bigint[])");
            transaction.execute(&delete, &[&emptied]).await?;
        }
        let (mut put, mut removed, mut again) = (Columns::default(), Columns::default(), Columns::default());
        for ((space, key), object) in &self.objects {
            match &object.written {
                Some(Written::Put(version)) => {
                    put.push(*space, key, version.revision.0, version.record.as_ref());
                }
                Some(Written::Removed) => removed.push(*space, key, 0, None),
                None => object
                    .rewritten
                    .iter()
                    .for_each(|(revision, record)| again.push(*space, key, *revision, record.as_ref())),
            }
        }
        let four = "unnest($1::bigint[], $2::text[], $3::bigint[], $4::bytea[]) AS own (space, key, revision, record)";
        let put_objects = format!(
            "INSERT INTO {schema}.object AS known SELECT * FROM {four} \
             ON CONFLICT (space, key) DO UPDATE SET revision = excluded.revision, record = excluded.record \
             WHERE known.revision <= excluded.revision"
        );
        let remove_objects = format!(
            "DELETE FROM {schema}.object AS known USING {four} \
             WHERE known.space = own.space AND known.key = own.key"
        );
        let rewrite = format!(
            "UPDATE {schema}.object AS known SET record = own.record FROM {four} \
             WHERE known.space = own.space AND known.key = own.key AND known.revision = own.revision"
        );
        for (columns, statement) in [(&removed, remove_objects), (&put, put_objects), (&again, rewrite)] {
            let Columns { spaces, keys, revisions, records } = columns;
            if !spaces.is_empty() {
                transaction.execute(&statement, &[spaces, keys, revisions, records]).await?;
            }
        }
        let (mut kinds, mut keys, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for ((kind, key), value) in &self.rows {
            kinds.push(*kind);
            keys.push(key.as_str());
            values.push(value.as_deref());
        }
        if !kinds.is_empty() {
            let three = "unnest($1::text[], $2::text[], $3::bytea[]) AS own (kind, key, value)";
            let put = format!(
                "INSERT INTO {schema}.row SELECT * FROM {three} WHERE value IS NOT NULL \
                 ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value"
            );
            let remove = format!(
                "DELETE FROM {schema}.row AS known USING {three} \
                 WHERE own.value IS NULL AND known.kind = own.kind AND known.key = own.key"
            );
            for statement in [put, remove] {
                transaction.execute(&statement, &[&kinds, &keys, &values]).await?;
            }
        }
        Ok(())
    }
}

impl Object {
    fn put(&mut self, version: Version) {
        *self = Object { written: Some(Written::Put(version)), rewritten: BTreeMap::new() };
    }
}

/// Objects as a statement takes them.
#[derive(Debug, Default)]
struct Columns<'a> {
    spaces: Vec<i64>,
    keys: Vec<&'a str>,
    revisions: Vec<i64>,
    records: Vec<Option<&'a [u8]>>,
}

impl<'a> Columns<'a> {
    fn push(&mut self, space: SpaceId, key: &'a str, revision: u64, record: Option<&'a Record>) {
        self.spaces.push(space.0.cast_signed());
        self.keys.push(key);
        self.revisions.push(revision.cast_signed());
        self.records.push(record.map(Record::as_bytes));
    }
}

#[cfg(test)]
mod tests {
    use polder_model::{PlaneId, json};
    use polder_store::engine::{LogEntry, ObjectWrite, SpaceRow};
    use polder_store::{ObjectName, Revision};

    use super::*;

    const SPACE: SpaceId = SpaceId(7);

    fn record(text: &str) -> Record {
        Record::encode(&json!({"metadata": {"name": "x"}, "data": {"text": text}}))
    }

    fn take(changes: &mut Changes, act: Act, bare: &[usize]) {
        let names = vec![(ResourceId(1), GroupResource::new("", "pods"))];
        let entry = Entry { act, revision: Revision(9), names, bare: bare.to_vec() };
        changes.take(entry).unwrap();
    }

    fn written(objects: &[(&str, u64, Option<&str>)], spaces: Vec<SpaceRow>) -> Act {
        let write = |(name, revision, text): &(&str, u64, Option<&str>)| ObjectWrite {
            entry: LogEntry {
                revision: Revision(*revision),
                plane: PlaneId(2),
                space: SPACE,
                resource: ResourceId(1),
                name: ObjectName::cluster(*name),
                deleted: text.is_none(),
                previous: None,
                before: None,
            },
            record: text.map(record),
        };
        Act::Apply(Batch { objects: objects.iter().map(write).collect(), spaces, ..Batch::default() })
    }

    fn versions(versions: &[(&str, u64, &str)]) -> Vec<FilledVersion> {
        let version = |(name, revision, text): &(&str, u64, &str)| FilledVersion {
            resource: ResourceId(1),
            name: ObjectName::cluster(*name),
            version: Version { revision: Revision(*revision), record: Some(record(text)) },
        };
        versions.iter().map(version).collect()
    }

    /// What would be written, a line for each object.
    fn told(changes: &Changes) -> Vec<String> {
        let text = |record: &Option<Record>| match record {
            Some(record) => String::from_utf8_lossy(record.body()).split('"').nth_back(1).unwrap().to_owned(),
            None => "deleted".to_owned(),
        };
        let line = |((_, key), object): (&(SpaceId, String), &Object)| match &object.written {
            Some(Written::Put(version)) => format!("{key} {} {}", version.revision, text(&version.record)),
            Some(Written::Removed) => format!("{key} removed"),
            None => {
                let again =
                    object.rewritten.iter().map(|(revision, record)| format!(" {revision}:{}", text(record)));
                format!("{key} again{}", again.collect::<String>())
            }
        };
        changes.objects.iter().map(line).collect()
    }

    #[test]
    fn only_what_is_newest_is_written() {
        let mut changes = Changes::default();
        let act =
            written(&[("a", 1, Some("one")), ("b", 2, Some("two")), ("c", 3, None), ("d", 4, None)], vec![]);
        take(&mut changes, act, &[3]);
        take(&mut changes, written(&[("a", 5, Some("five"))], vec![]), &[]);
        let again = versions(&[("a", 1, "too old"), ("b", 2, "sealed"), ("e", 1, "sealed"), ("e", 2, "too")]);
        take(&mut changes, Act::Rewrite(SPACE, again), &[]);
        take(&mut changes, Act::Fill(SPACE, versions(&[("f", 7, "new"), ("f", 6, "old")])), &[]);
        let (a, b) = ("pods///a 5 five", "pods///b 2 sealed");
        let (c, d) = ("pods///c 3 deleted", "pods///d removed");
        assert_eq!(told(&changes), [a, b, c, d, "pods///e again 1:sealed 2:too", "pods///f 7 new"]);
        // An object that is written after it was sealed again is what was written.
        take(&mut changes, written(&[("e", 8, Some("eight"))], vec![]), &[]);
        assert_eq!(told(&changes)[4], "pods///e 8 eight");
    }

    #[test]
    fn what_is_in_a_space_goes_with_it() {
        let mut changes = Changes::default();
        take(&mut changes, written(&[("a", 1, Some("one"))], vec![]), &[]);
        take(&mut changes, written(&[("b", 2, Some("two"))], vec![SpaceRow::dropped(SPACE)]), &[]);
        assert_eq!(told(&changes), [""; 0]);
        assert!(changes.emptied.contains(&SPACE));
        let gone = |kind| changes.rows.get(&(kind, format!("{:016x}", SPACE.0))) == Some(&None);
        assert!(gone("s") && gone("k"));
    }

    #[test]
    fn resources_without_a_name_are_damage() {
        let act = written(&[("a", 1, Some("one"))], vec![]);
        let entry = Entry { act, revision: Revision(1), names: Vec::new(), bare: Vec::new() };
        assert!(Changes::default().take(entry).is_none());
    }
}
