//! The keys of spaces, so that one that is destroyed is gone from the files.
//!
//! SQLite moves rows when it splits and joins pages, and may leave what it moved behind in the free part of a page. So this table
//! is made so that no row ever moves: a key is written to a slot, at the end of the table or one that is free, and stays there. All
//! rows are equally long; SQLite then writes a changed one over the old one. Destroying a key fills its slot with zeros. (The index by
//! space moves, and has no keys in it.)
//!
//! **Invariant.** A row of `space_keys` is never deleted, and never changes its length. What the WAL still has of it goes when the
//! WAL is emptied ([`crate::engine`], soon after).

use std::sync::Arc;

use polder_store::SpaceId;
use polder_store::engine::{EngineError, SpaceKey};
use rusqlite::{Connection, OptionalExtension};

use crate::error::engine_error;
use crate::reader::blob;
use crate::row;

/// The space of a free slot; no space has this number.
const FREE: [u8; 8] = [0; 8];

/// Keeps a key with its space; true when it took the place of another of that space.
pub(crate) fn write(connection: &Connection, key: &SpaceKey) -> rusqlite::Result<bool> {
    let (space, row) = (key.space.0.to_be_bytes(), row::encode_key(key.space, &key.wrapped));
    let own = slot(connection, &space)?;
    let taken = match own {
        Some(own) => Some(own),
        None => slot(connection, &FREE)?,
    };
    match taken {
        Some(slot) => connection
            .prepare_cached("UPDATE space_keys SET space = ?2, row = ?3 WHERE slot = ?1")?
            .execute((slot, &space[..], row))?,
        None => connection
            .prepare_cached("INSERT INTO space_keys (space, row) VALUES (?1, ?2)")?
            .execute((&space[..], row))?,
    };
    Ok(own.is_some())
}

/// Destroys the key of a space; true when there was one.
pub(crate) fn destroy(connection: &Connection, space: SpaceId) -> rusqlite::Result<bool> {
    let destroyed = connection
        .prepare_cached("UPDATE space_keys SET space = ?2, row = zeroblob(length(row)) WHERE space = ?1")?
        .execute((&space.0.to_be_bytes()[..], &FREE[..]))?;
    Ok(destroyed > 0)
}

pub(crate) fn read(connection: &Connection, space: SpaceId) -> Result<Option<Arc<[u8]>>, EngineError> {
    let mut statement =
        connection.prepare_cached("SELECT row FROM space_keys WHERE space = ?1").map_err(engine_error)?;
    let mut rows = statement.query([&space.0.to_be_bytes()[..]]).map_err(engine_error)?;
    match rows.next().map_err(engine_error)? {
        Some(found) => row::decode_key(space, blob(found, 0)?).map(Some),
        None => Ok(None),
    }
}

pub(crate) fn read_after(
    connection: &Connection,
    after: Option<SpaceId>,
    limit: usize,
) -> Result<Vec<SpaceKey>, EngineError> {
    let after = after.map_or(FREE, |space| space.0.to_be_bytes());
    let mut statement = connection
        .prepare_cached("SELECT space, row FROM space_keys WHERE space > ?1 ORDER BY space LIMIT ?2")
        .map_err(engine_error)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = statement.query((&after[..], limit)).map_err(engine_error)?;
    let mut keys = Vec::new();
    while let Some(found) = rows.next().map_err(engine_error)? {
        let space = <[u8; 8]>::try_from(blob(found, 0)?)
            .map_err(|_| EngineError::Damaged("a key belongs to no space".to_owned()))?;
        let space = SpaceId(u64::from_be_bytes(space));
        keys.push(SpaceKey { space, wrapped: row::decode_key(space, blob(found, 1)?)? });
    }
    Ok(keys)
}

/// Whose key comes next.
pub(crate) fn next(connection: &Connection, after: Option<SpaceId>) -> Result<Option<SpaceId>, EngineError> {
    let after = after.map_or(FREE, |space| space.0.to_be_bytes());
    let mut statement = connection
        .prepare_cached("SELECT space FROM space_keys WHERE space > ?1 ORDER BY space LIMIT 1")
        .map_err(engine_error)?;
    let mut rows = statement.query([&after[..]]).map_err(engine_error)?;
    let Some(found) = rows.next().map_err(engine_error)? else { return Ok(None) };
    let space = <[u8; 8]>::try_from(blob(found, 0)?)
        .map_err(|_| EngineError::Damaged("a key belongs to no space".to_owned()))?;
    Ok(Some(SpaceId(u64::from_be_bytes(space))))
}

fn slot(connection: &Connection, space: &[u8; 8]) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached("SELECT slot FROM space_keys WHERE space = ?1 LIMIT 1")?
        .query_row([&space[..]], |row| row.get(0))
        .optional()
}
