//! Entries, rows and versions as bytes.
//!
//! Each value begins with the number of its format. Reading never panics and never allocates more than a small multiple of what
//! is read; `None` means that these bytes are none of ours, or of a newer polder.

use std::sync::Arc;

use polder_model::{GroupResource, PlaneId};

use crate::bytes::{Input, put_bytes, put_number, put_text};
use crate::engine::{
    Batch, FilledVersion, LogEntry, ObjectWrite, PlaneRow, PlaneWrite, SpaceKey, SpaceRow, SpaceState,
    Version,
};
use crate::key::{ObjectName, ResourceId, Revision, SpaceId};
use crate::object::Record;
use crate::plane::Limits;
use crate::replica::{Act, Entry, Kept};

pub const FORMAT: u8 = 1;

pub fn formatted(bytes: &[u8]) -> Option<&[u8]> {
    let (format, rest) = bytes.split_first()?;
    (*format == FORMAT).then_some(rest)
}

pub fn byte(input: &mut Input<'_>) -> Option<u8> {
    let (byte, rest) = input.0.split_first()?;
    input.0 = rest;
    Some(*byte)
}

/// What an object's key holds.
pub fn encode_version(version: &Version) -> Vec<u8> {
    let mut out = vec![FORMAT];
    put_version(version.revision, version.record.as_ref(), &mut out);
    out
}

pub fn decode_version(bytes: &[u8]) -> Option<Version> {
    let mut input = Input(formatted(bytes)?);
    let revision = Revision(input.number()?);
    let record = match byte(&mut input)? {
        0 => None,
        1 => Some(Record::from_bytes(std::mem::take(&mut input.0).into()).ok()?),
        _ => return None,
    };
    input.end()?;
    Some(Version { revision, record })
}

fn put_version(revision: Revision, record: Option<&Record>, out: &mut Vec<u8>) {
    put_number(revision.0, out);
    out.push(record.is_some().into());
    out.extend_from_slice(record.map(Record::as_bytes).unwrap_or_default());
}

/// Where the record of a version of an entry is.
const NO_RECORD: u8 = 0;
const RECORD_HERE: u8 = 1;
const RECORD_AT_KEY: u8 = 2;

/// Writes an entry. `is_apart` says of a version, by its place in the entry, that its record stands in a key of its own.
pub fn encode_entry(entry: &Entry, is_apart: &dyn Fn(usize) -> bool) -> Vec<u8> {
    let mut out = Vec::new();
    put_number(entry.revision.0, &mut out);
    put_names(&entry.names, &mut out);
    let put_record = |index: usize, record: Option<&Record>, out: &mut Vec<u8>| match record {
        None => out.push(NO_RECORD),
        Some(_) if is_apart(index) => out.push(RECORD_AT_KEY),
        Some(record) => {
            out.push(RECORD_HERE);
            put_bytes(record.as_bytes(), out);
        }
    };
    match &entry.act {
        Act::Apply(batch) => {
            out.push(0);
            put_batch(batch, &entry.bare, &put_record, &mut out);
        }
        Act::Fill(space, versions) | Act::Rewrite(space, versions) => {
            out.push(if matches!(entry.act, Act::Fill(..)) { 1 } else { 2 });
            put_number(space.0, &mut out);
            put_number(versions.len() as u64, &mut out);
            for (index, FilledVersion { resource, name, version }) in versions.iter().enumerate() {
                put_number(resource.0.into(), &mut out);
                put_name(name, &mut out);
                put_number(version.revision.0, &mut out);
                put_record(index, version.record.as_ref(), &mut out);
            }
        }
    }
    out
}

type PutRecord<'a> = &'a dyn Fn(usize, Option<&Record>, &mut Vec<u8>);

fn put_batch(batch: &Batch, bare: &[usize], put_record: PutRecord<'_>, out: &mut Vec<u8>) {
    let Batch { first, last, objects, planes, spaces, resources, keys, floor, notes } = batch;
    [first, last, floor].into_iter().for_each(|revision| put_number(revision.0, out));
    put_number(objects.len() as u64, out);
    for (index, ObjectWrite { entry, record }) in objects.iter().enumerate() {
        let flags = u8::from(entry.deleted)
            | u8::from(entry.previous.is_some()) << 1
            | u8::from(entry.before.is_some()) << 2
            | u8::from(bare.binary_search(&index).is_ok()) << 3;
        out.push(flags);
        put_number(entry.revision.0, out);
        put_number(entry.plane.0, out);
        put_number(entry.space.0, out);
        put_number(entry.resource.0.into(), out);
        put_name(&entry.name, out);
        if let Some((space, revision)) = entry.previous {
            put_number(space.0, out);
            put_number(revision.0, out);
        }
        if let Some(before) = entry.before {
            put_number(before.0, out);
        }
        put_record(index, record.as_ref(), out);
    }
    put_number(planes.len() as u64, out);
    for write in planes {
        match write {
            PlaneWrite::Put(row) => {
                out.push(0);
                put_number(row.id.0, out);
                put_plane(row, out);
            }
            PlaneWrite::Remove(plane) => {
                out.push(1);
                put_number(plane.0, out);
            }
        }
    }
    put_number(spaces.len() as u64, out);
    for row in spaces {
        put_number(row.id.0, out);
        put_space(row, out);
    }
    put_names(resources, out);
    put_number(keys.len() as u64, out);
    for SpaceKey { space, wrapped } in keys {
        put_number(space.0, out);
        put_bytes(wrapped, out);
    }
    put_number(notes.len() as u64, out);
    for (name, value) in notes {
        put_text(name, out);
        out.push(value.is_some().into());
        put_bytes(value.as_deref().unwrap_or_default(), out);
    }
}

/// Reads an entry; `apart` finds the record of a version that stands in a key of its own.
pub fn decode_entry(
    bytes: &[u8],
    apart: &dyn Fn(SpaceId, &GroupResource, &ObjectName, Revision) -> Option<Record>,
) -> Option<Entry> {
    let mut input = Input(bytes);
    let revision = Revision(input.number()?);
    let names = names(&mut input)?;
    let name_of = |id: ResourceId| names.iter().find(|(own, _)| *own == id).map(|(_, name)| name);
    let record = |input: &mut Input<'_>, space, resource, name: &ObjectName, revision| match byte(input)? {
        NO_RECORD => Some(None),
        RECORD_HERE => Record::from_bytes(input.bytes()?.into()).ok().map(Some),
        RECORD_AT_KEY => apart(space, name_of(resource)?, name, revision).map(Some),
        _ => None,
    };
    let kind = byte(&mut input)?;
    let mut bare = Vec::new();
    let act = match kind {
        0 => Act::Apply(batch(&mut input, &record, &mut bare)?),
        1 | 2 => {
            let space = SpaceId(input.number()?);
            let versions = list(&mut input, |input| {
                let resource = ResourceId(input.number_u32()?);
                let name = name(input)?;
                let revision = Revision(input.number()?);
                let record = record(input, space, resource, &name, revision)?;
                Some(FilledVersion { resource, name, version: Version { revision, record } })
            })?;
            if kind == 1 { Act::Fill(space, versions) } else { Act::Rewrite(space, versions) }
        }
        _ => return None,
    };
    input.end()?;
    Some(Entry { act, revision, names, bare })
}

type GetRecord<'a> =
    &'a dyn Fn(&mut Input<'_>, SpaceId, ResourceId, &ObjectName, Revision) -> Option<Option<Record>>;

fn batch(input: &mut Input<'_>, record: GetRecord<'_>, bare: &mut Vec<usize>) -> Option<Batch> {
    let (first, last) = (Revision(input.number()?), Revision(input.number()?));
    let floor = Revision(input.number()?);
    let mut index = 0;
    let objects = list(input, |input| {
        let flags = byte(input)?;
        if flags & 8 != 0 {
            bare.push(index);
        }
        index += 1;
        let revision = Revision(input.number()?);
        let plane = PlaneId(input.number()?);
        let space = SpaceId(input.number()?);
        let resource = ResourceId(input.number_u32()?);
        let name = name(input)?;
        let previous = match flags & 2 {
            0 => None,
            _ => Some((SpaceId(input.number()?), Revision(input.number()?))),
        };
        let before = match flags & 4 {
            0 => None,
            _ => Some(Revision(input.number()?)),
        };
        let record = record(input, space, resource, &name, revision)?;
        let deleted = flags & 1 != 0;
        let entry = LogEntry { revision, plane, space, resource, name, deleted, previous, before };
        Some(ObjectWrite { entry, record })
    })?;
    let planes = list(input, |input| {
        let kind = byte(input)?;
        let id = input.number()?;
        match kind {
            0 => plane(id, input).map(PlaneWrite::Put),
            1 => Some(PlaneWrite::Remove(PlaneId(id))),
            _ => None,
        }
    })?;
    let spaces = list(input, |input| {
        let id = input.number()?;
        space(id, input)
    })?;
    let resources = names(input)?;
    let keys = list(input, |input| {
        Some(SpaceKey { space: SpaceId(input.number()?), wrapped: input.bytes()?.into() })
    })?;
    let notes = list(input, |input| {
        let name = input.text()?;
        let is_there = byte(input)? != 0;
        let value: Arc<[u8]> = input.bytes()?.into();
        Some((name, is_there.then_some(value)))
    })?;
    Some(Batch { first, last, objects, planes, spaces, resources, keys, floor, notes })
}

/// A counted list. Each item takes a byte at least, so a count beyond what is left is none.
fn list<T>(input: &mut Input<'_>, mut item: impl FnMut(&mut Input<'_>) -> Option<T>) -> Option<Vec<T>> {
    let len = usize::try_from(input.number()?).ok().filter(|len| *len <= input.0.len())?;
    let mut found = Vec::new();
    for _ in 0..len {
        found.push(item(input)?);
    }
    Some(found)
}

fn put_names(names: &[(ResourceId, GroupResource)], out: &mut Vec<u8>) {
    put_number(names.len() as u64, out);
    for (id, name) in names {
        put_number(id.0.into(), out);
        put_text(&name.group, out);
        put_text(&name.resource, out);
    }
}

fn names(input: &mut Input<'_>) -> Option<Vec<(ResourceId, GroupResource)>> {
    list(input, |input| {
        Some((ResourceId(input.number_u32()?), GroupResource::new(input.text()?, input.text()?)))
    })
}

fn put_name(name: &ObjectName, out: &mut Vec<u8>) {
    put_text(&name.namespace, out);
    put_text(&name.name, out);
}

fn name(input: &mut Input<'_>) -> Option<ObjectName> {
    Some(ObjectName::new(input.text()?, input.text()?))
}

/// A row in a key of its own, whose number the key says.
pub fn encode_plane(row: &PlaneRow) -> Vec<u8> {
    let mut out = vec![FORMAT];
    put_plane(row, &mut out);
    out
}

pub fn decode_plane(id: u64, bytes: &[u8]) -> Option<PlaneRow> {
    let mut input = Input(formatted(bytes)?);
    let row = plane(id, &mut input)?;
    input.end().map(|()| row)
}

pub fn encode_space(row: &SpaceRow) -> Vec<u8> {
    let mut out = vec![FORMAT];
    put_space(row, &mut out);
    out
}

pub fn decode_space(id: u64, bytes: &[u8]) -> Option<SpaceRow> {
    let mut input = Input(formatted(bytes)?);
    let row = space(id, &mut input)?;
    input.end().map(|()| row)
}

fn put_plane(row: &PlaneRow, out: &mut Vec<u8>) {
    let PlaneRow { id: _, name, space, floor, version_offset, limits, objects, bytes, last_change } = row;
    put_text(name, out);
    for number in [
        space.0,
        floor.0,
        *version_offset,
        limits.objects,
        limits.bytes,
        limits.object_bytes,
        limits.watches,
        limits.requests_in_flight,
        limits.requests_per_second,
        limits.weight,
        *objects,
        *bytes,
    ] {
        put_number(number, out);
    }
    out.push(last_change.is_some().into());
    put_number(last_change.unwrap_or_default().0, out);
}

fn plane(id: u64, input: &mut Input<'_>) -> Option<PlaneRow> {
    Some(PlaneRow {
        id: PlaneId(id),
        name: input.text()?,
        space: SpaceId(input.number()?),
        floor: Revision(input.number()?),
        version_offset: input.number()?,
        limits: Limits {
            objects: input.number()?,
            bytes: input.number()?,
            object_bytes: input.number()?,
            watches: input.number()?,
            requests_in_flight: input.number()?,
            requests_per_second: input.number()?,
            weight: input.number()?,
        },
        objects: input.number()?,
        bytes: input.number()?,
        last_change: {
            let is_there = byte(input)? != 0;
            let revision = Revision(input.number()?);
            is_there.then_some(revision)
        },
    })
}

fn put_space(row: &SpaceRow, out: &mut Vec<u8>) {
    let SpaceRow { id: _, parent, state, digest, layer, objects, bytes } = row;
    out.push(match state {
        SpaceState::Open => 0,
        SpaceState::Sealed => 1,
        SpaceState::Dropped => 2,
        SpaceState::Filling => 3,
    });
    out.push(parent.is_some().into());
    put_number(parent.map_or(0, |parent| parent.0), out);
    put_text(digest, out);
    put_text(layer, out);
    put_number(*objects, out);
    put_number(*bytes, out);
}

fn space(id: u64, input: &mut Input<'_>) -> Option<SpaceRow> {
    Some(SpaceRow {
        id: SpaceId(id),
        state: match byte(input)? {
            0 => SpaceState::Open,
            1 => SpaceState::Sealed,
            2 => SpaceState::Dropped,
            3 => SpaceState::Filling,
            _ => return None,
        },
        parent: {
            let is_there = byte(input)? != 0;
            let parent = SpaceId(input.number()?);
            is_there.then_some(parent)
        },
        digest: input.text()?,
        layer: input.text()?,
        objects: input.number()?,
        bytes: input.number()?,
    })
}

/// Something that is kept, without a key that says what it is.
pub fn put_kept(kept: &Kept, out: &mut Vec<u8>) {
    match kept {
        Kept::Object { space, resource, name, version } => {
            out.push(b'o');
            put_number(space.0, out);
            put_text(&resource.group, out);
            put_text(&resource.resource, out);
            put_name(name, out);
            put_bytes(&encode_version(version), out);
        }
        Kept::Plane(row) => {
            out.push(b'p');
            put_number(row.id.0, out);
            put_plane(row, out);
        }
        Kept::Space(row) => {
            out.push(b's');
            put_number(row.id.0, out);
            put_space(row, out);
        }
        Kept::Key(key) => {
            out.push(b'k');
            put_number(key.space.0, out);
            put_bytes(&key.wrapped, out);
        }
        Kept::Note((name, value)) => {
            out.push(b'n');
            put_text(name, out);
            put_bytes(value, out);
        }
    }
}

pub fn kept(input: &mut Input<'_>) -> Option<Kept> {
    Some(match byte(input)? {
        b'o' => {
            let space = SpaceId(input.number()?);
            let resource = GroupResource { group: input.text()?, resource: input.text()? };
            Kept::Object { space, resource, name: name(input)?, version: decode_version(input.bytes()?)? }
        }
        b'p' => Kept::Plane(plane(input.number()?, input)?),
        b's' => Kept::Space(space(input.number()?, input)?),
        b'k' => Kept::Key(SpaceKey { space: SpaceId(input.number()?), wrapped: input.bytes()?.into() }),
        b'n' => Kept::Note((input.text()?, input.bytes()?.into())),
        _ => return None,
    })
}

/// A small value in a key of its own.
pub fn encode_bytes(bytes: &[u8]) -> Vec<u8> {
    [&[FORMAT][..], bytes].concat()
}

pub fn decode_bytes(bytes: &[u8]) -> Option<Arc<[u8]>> {
    formatted(bytes).map(Into::into)
}

#[cfg(test)]
mod tests {
    use polder_model::{SmolStr, json};

    use super::*;

    /// Numbers that nobody has chosen, the same in each run.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mixed = (self.0 >> 33) ^ self.0;
            // Short and long ones.
            mixed >> (mixed % 64)
        }

        fn chance(&mut self) -> bool {
            self.next().is_multiple_of(2)
        }

        fn text(&mut self) -> SmolStr {
            let len = self.next() % 40;
            (0..len)
                .map(|_| char::from_u32(u32::try_from(self.next() % 0x2000).unwrap()).unwrap_or('x'))
                .collect()
        }

        fn list<T>(&mut self, mut item: impl FnMut(&mut Random) -> T) -> Vec<T> {
            let len = self.next() % 6;
            (0..len).map(|_| item(self)).collect()
        }

        fn record(&mut self) -> Option<Record> {
            let text = self.text();
            let text = text.as_str();
            let record = Record::encode(&json!({"metadata": {"name": "x"}, "data": {"text": text}}));
            self.chance().then_some(record)
        }

        fn resource(&mut self) -> ResourceId {
            ResourceId(u32::try_from(self.next() % 5).unwrap())
        }

        fn name(&mut self) -> ObjectName {
            ObjectName::new(self.text(), self.text())
        }

        fn plane(&mut self) -> PlaneWrite {
            if self.chance() {
                return PlaneWrite::Remove(PlaneId(self.next()));
            }
            PlaneWrite::Put(PlaneRow {
                id: PlaneId(self.next()),
                name: self.text(),
                space: SpaceId(self.next()),
                floor: Revision(self.next()),
                version_offset: self.next(),
                limits: Limits { objects: self.next(), weight: self.next(), ..Limits::default() },
                objects: self.next(),
                bytes: self.next(),
                last_change: self.chance().then(|| Revision(self.next())),
            })
        }

        fn space(&mut self) -> SpaceRow {
            let states = [SpaceState::Open, SpaceState::Sealed, SpaceState::Dropped, SpaceState::Filling];
            SpaceRow {
                id: SpaceId(self.next()),
                parent: self.chance().then(|| SpaceId(self.next())),
                state: states[usize::try_from(self.next() % 4).unwrap()],
                digest: self.text(),
                layer: self.text(),
                objects: self.next(),
                bytes: self.next(),
            }
        }

        fn object(&mut self) -> ObjectWrite {
            let entry = LogEntry {
                revision: Revision(self.next()),
                plane: PlaneId(self.next()),
                space: SpaceId(self.next()),
                resource: self.resource(),
                name: self.name(),
                deleted: self.chance(),
                previous: self.chance().then(|| (SpaceId(self.next()), Revision(self.next()))),
                before: self.chance().then(|| Revision(self.next())),
            };
            ObjectWrite { entry, record: self.record() }
        }

        fn entry(&mut self) -> Entry {
            let versions = |random: &mut Random| {
                random.list(|random| FilledVersion {
                    resource: random.resource(),
                    name: random.name(),
                    version: Version { revision: Revision(random.next()), record: random.record() },
                })
            };
            let act = match self.next() % 3 {
                0 => Act::Fill(SpaceId(self.next()), versions(self)),
                1 => Act::Rewrite(SpaceId(self.next()), versions(self)),
                _ => Act::Apply(Batch {
                    first: Revision(self.next()),
                    last: Revision(self.next()),
                    floor: Revision(self.next()),
                    objects: self.list(Random::object),
                    planes: self.list(Random::plane),
                    spaces: self.list(Random::space),
                    resources: self
                        .list(|random| (random.resource(), GroupResource::new(random.text(), "r"))),
                    keys: self.list(|random| SpaceKey {
                        space: SpaceId(random.next()),
                        wrapped: random.text().as_bytes().into(),
                    }),
                    notes: self.list(|random| {
                        let value = random.chance().then(|| random.text().as_bytes().into());
                        (random.text(), value)
                    }),
                }),
            };
            let names =
                (0..5).map(|id| (ResourceId(id), GroupResource::new("g", format!("r{id}")))).collect();
            let objects_len = if let Act::Apply(batch) = &act { batch.objects.len() } else { 0 };
            let bare = (0..objects_len).filter(|_| self.chance()).collect();
            Entry { act, revision: Revision(self.next()), names, bare }
        }
    }

    #[test]
    fn entries_come_back_and_pieces_of_them_do_not() {
        let mut random = Random(7);
        for round in 0..60 {
            let entry = random.entry();
            let bytes = encode_entry(&entry, &|_| false);
            let back = decode_entry(&bytes, &|_, _, _, _| None);
            assert_eq!(format!("{:?}", back.unwrap()), format!("{entry:?}"), "round {round}");
            for len in 0..bytes.len() {
                assert!(decode_entry(&bytes[..len], &|_, _, _, _| None).is_none(), "{len} bytes");
            }
            for _ in 0..50 {
                let mut bad = bytes.clone();
                let at = usize::try_from(random.next()).unwrap_or_default() % bad.len();
                bad[at] = random.next().to_le_bytes()[0];
                decode_entry(&bad, &|_, _, _, _| None);
            }
        }
    }

    #[test]
    fn records_that_stand_apart_are_asked_for() {
        let record = Record::encode(&json!({"metadata": {"name": "x"}}));
        let version = Version { revision: Revision(300), record: Some(record.clone()) };
        assert_eq!(decode_version(&encode_version(&version)), Some(version.clone()));
        let gone = Version { record: None, ..version.clone() };
        assert_eq!(decode_version(&encode_version(&gone)), Some(gone));
        let filled = FilledVersion { resource: ResourceId(3), name: ObjectName::new("n", "x"), version };
        let names = vec![(ResourceId(3), GroupResource::new("", "pods"))];
        let (act, revision) = (Act::Fill(SpaceId(9), vec![filled]), Revision(3));
        let entry = Entry { act, revision, names, bare: Vec::new() };
        let bytes = encode_entry(&entry, &|_| true);
        assert!(bytes.len() < record.as_bytes().len());
        let back = decode_entry(&bytes, &|space, resource, name, revision| {
            assert_eq!(
                (space, &*resource.resource, &*name.name, revision),
                (SpaceId(9), "pods", "x", Revision(300))
            );
            Some(record.clone())
        });
        assert_eq!(format!("{:?}", back.unwrap()), format!("{entry:?}"));
        assert!(decode_entry(&bytes, &|_, _, _, _| None).is_none());
    }

    #[test]
    fn rows_come_back() {
        let mut random = Random(11);
        for _ in 0..50 {
            let space = random.space();
            assert_eq!(decode_space(space.id.0, &encode_space(&space)), Some(space));
            if let PlaneWrite::Put(plane) = random.plane() {
                assert_eq!(decode_plane(plane.id.0, &encode_plane(&plane)), Some(plane));
            }
        }
    }
}
