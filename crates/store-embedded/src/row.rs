//! Planes, spaces and resources as rows: an id, and bytes with a checksum.

use std::sync::Arc;

use crc32fast::Hasher;
use polder_model::{GroupResource, PlaneId};
use polder_store::engine::{EngineError, PlaneRow, SpaceRow, SpaceState};
use polder_store::{Limits, ResourceId, Revision, SpaceId};

use polder_store::bytes::{Input, put_number, put_text};

/// The tables of this shape: `(id INTEGER PRIMARY KEY, row BLOB)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    Planes,
    Spaces,
    Resources,
    Keys,
}

impl Table {
    fn name(self) -> &'static str {
        match self {
            Table::Planes => "plane",
            Table::Spaces => "space",
            Table::Resources => "resource",
            Table::Keys => "key of space",
        }
    }

    fn checksum(self, id: u64, payload: &[u8]) -> u32 {
        let mut hasher = Hasher::new();
        hasher.update(self.name().as_bytes());
        hasher.update(&id.to_be_bytes());
        hasher.update(payload);
        hasher.finalize()
    }

    fn seal(self, id: u64, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = vec![0; 4];
        write(&mut out);
        let checksum = self.checksum(id, &out[4..]);
        out[..4].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    fn open<T>(
        self,
        id: u64,
        row: &[u8],
        read: impl FnOnce(&mut Input<'_>) -> Option<T>,
    ) -> Result<T, EngineError> {
        let mut input = Input(row);
        let found = input.fixed_u32();
        if found != Some(self.checksum(id, input.0)) {
            return Err(EngineError::Damaged(format!("{} {id}: the checksum does not match", self.name())));
        }
        read(&mut input)
            .filter(|_| input.end().is_some())
            .ok_or_else(|| EngineError::Damaged(format!("{} {id}: cannot be decoded", self.name())))
    }
}

pub(crate) fn encode_plane(row: &PlaneRow) -> Vec<u8> {
    Table::Planes.seal(row.id.0, |out| {
        put_text(&row.name, out);
        for number in [
            row.space.0,
            row.floor.0,
            row.version_offset,
            row.limits.objects,
            row.limits.bytes,
            row.limits.object_bytes,
            row.limits.watches,
            row.limits.requests_in_flight,
            row.limits.requests_per_second,
            row.objects,
            row.bytes,
        ] {
            put_number(number, out);
        }
        let weight = row.limits.weight;
        if let Some(revision) = row.last_change.or((weight > 0).then_some(row.floor)) {
            put_number(revision.0, out);
        }
        if weight > 0 {
            put_number(weight, out);
        }
    })
}

pub(crate) fn decode_plane(id: u64, row: &[u8]) -> Result<PlaneRow, EngineError> {
    Table::Planes.open(id, row, |input| {
        let mut row = PlaneRow {
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
                weight: 0,
            },
            objects: input.number()?,
            bytes: input.number()?,
            last_change: None,
        };
        // Format 1 did not write it.
        if input.end().is_none() {
            row.last_change = Some(Revision(input.number()?));
        }
        // Most planes have none of their own.
        if input.end().is_none() {
            row.limits.weight = input.number()?;
        }
        Some(row)
    })
}

pub(crate) fn encode_space(row: &SpaceRow) -> Vec<u8> {
    Table::Spaces.seal(row.id.0, |out| {
        let state = match row.state {
            SpaceState::Open => 0,
            SpaceState::Sealed => 1,
            SpaceState::Dropped => 2,
            SpaceState::Filling => 3,
        };
        put_number(state, out);
        put_number(u64::from(row.parent.is_some()), out);
        put_number(row.parent.map_or(0, |parent| parent.0), out);
        put_text(&row.digest, out);
        put_text(&row.layer, out);
        put_number(row.objects, out);
        put_number(row.bytes, out);
    })
}

pub(crate) fn decode_space(id: u64, row: &[u8]) -> Result<SpaceRow, EngineError> {
    Table::Spaces.open(id, row, |input| {
        Some(SpaceRow {
            id: SpaceId(id),
            state: match input.number()? {
                0 => SpaceState::Open,
                1 => SpaceState::Sealed,
                2 => SpaceState::Dropped,
                3 => SpaceState::Filling,
                _ => return None,
            },
            parent: {
                let there = input.number()? == 1;
                let parent = SpaceId(input.number()?);
                there.then_some(parent)
            },
            digest: input.text()?,
            layer: input.text()?,
            objects: input.number()?,
            bytes: input.number()?,
        })
    })
}

pub(crate) fn encode_resource(id: ResourceId, resource: &GroupResource) -> Vec<u8> {
    Table::Resources.seal(u64::from(id.0), |out| {
        put_text(&resource.group, out);
        put_text(&resource.resource, out);
    })
}

pub(crate) fn decode_resource(id: u64, row: &[u8]) -> Result<(ResourceId, GroupResource), EngineError> {
    Table::Resources.open(id, row, |input| {
        let resource = ResourceId(u32::try_from(id).ok()?);
        Some((resource, GroupResource::new(input.text()?, input.text()?)))
    })
}

/// The key of a space. As long as its row, whatever is in it.
pub(crate) fn encode_key(space: SpaceId, wrapped: &[u8]) -> Vec<u8> {
    Table::Keys.seal(space.0, |out| out.extend_from_slice(wrapped))
}

pub(crate) fn decode_key(space: SpaceId, row: &[u8]) -> Result<Arc<[u8]>, EngineError> {
    Table::Keys.open(space.0, row, |input| Some(std::mem::take(&mut input.0).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_only_under_their_own_id() {
        let plane = PlaneRow {
            id: PlaneId(7),
            name: "blue".into(),
            space: SpaceId(9),
            floor: Revision(3),
            version_offset: u64::MAX,
            limits: Limits { objects: 1, bytes: 2, watches: 3, ..Limits::default() },
            objects: 3,
            bytes: 4,
            last_change: None,
        };
        let changed = PlaneRow { last_change: Some(Revision(300)), ..plane.clone() };
        assert_eq!(decode_plane(7, &encode_plane(&changed)).unwrap(), changed);
        let weighty = PlaneRow { limits: Limits { weight: 300, ..changed.limits }, ..changed };
        assert_eq!(decode_plane(7, &encode_plane(&weighty)).unwrap(), weighty);
        let bytes = encode_plane(&plane);
        assert_eq!(decode_plane(7, &bytes).unwrap(), plane);
        assert!(decode_plane(8, &bytes).is_err());
        assert!(decode_space(7, &bytes).is_err());
        assert!(decode_plane(7, &bytes[..bytes.len() - 1]).is_err());

        for (state, parent) in [
            (SpaceState::Open, None),
            (SpaceState::Sealed, Some(SpaceId(0))),
            (SpaceState::Dropped, Some(SpaceId(4))),
        ] {
            let space = SpaceRow {
                id: SpaceId(1),
                parent,
                state,
                digest: "sha256:0".into(),
                layer: "base".into(),
                objects: 5,
                bytes: 6,
            };
            assert_eq!(decode_space(1, &encode_space(&space)).unwrap(), space);
        }

        let resource = GroupResource::new("apps", "deployments");
        let bytes = encode_resource(ResourceId(2), &resource);
        assert_eq!(decode_resource(2, &bytes).unwrap(), (ResourceId(2), resource));
    }
}
