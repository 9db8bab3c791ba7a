//! All keys as they stand at one revision of etcd, page by page.

use polder_store::SpaceId;
use polder_store::engine::{EngineError, SpaceKey};
use polder_store::replica::Kept;
use tokio::time::Instant;

use crate::client::Client;
use crate::codec;
use crate::journal::failed;
use crate::keys::Keys;
use crate::wire::{KeyValue, Range};

/// How far somebody has read.
#[derive(Debug)]
pub(crate) struct Place {
    is_of_rows: bool,
    key: Vec<u8>,
}

impl Place {
    /// Rows come first: objects are in spaces.
    pub(crate) fn first(keys: &Keys) -> Place {
        Place { is_of_rows: true, key: keys.rows().0 }
    }
}

/// What is at a place, and what comes next.
pub(crate) async fn page(
    client: &Client,
    keys: &Keys,
    from: Place,
    revision: u64,
    limit: u64,
    deadline: Instant,
) -> Result<(Vec<Kept>, Option<Place>), EngineError> {
    let (_, end) = if from.is_of_rows { keys.rows() } else { keys.objects() };
    let range = Range { key: &from.key, end: &end, limit, revision, ..Range::default() };
    let answer = client.range(&range, deadline).await.map_err(failed)?;
    let next = match answer.found.last() {
        Some(last) if answer.more => {
            // The first key behind it.
            let key = [&last.key[..], &[0]].concat();
            Some(Place { is_of_rows: from.is_of_rows, key })
        }
        _ if from.is_of_rows => Some(Place { is_of_rows: false, key: keys.objects().0 }),
        _ => None,
    };
    let part = answer.found.iter().map(|found| {
        let kept = if from.is_of_rows { row(keys, found) } else { object(keys, found) };
        kept.ok_or_else(|| {
            EngineError::Damaged(format!("{} in etcd cannot be read", String::from_utf8_lossy(&found.key)))
        })
    });
    Ok((part.collect::<Result<Vec<_>, _>>()?, next))
}

fn object(keys: &Keys, found: &KeyValue) -> Option<Kept> {
    let (space, resource, name) = keys.parse_object(&found.key)?;
    let version = codec::decode_version(&found.value)?;
    Some(Kept::Object { space, resource, name, version })
}

fn row(keys: &Keys, found: &KeyValue) -> Option<Kept> {
    Some(match keys.parse_row(&found.key)? {
        ("p", Ok(id)) => Kept::Plane(codec::decode_plane(id, &found.value)?),
        ("s", Ok(id)) => Kept::Space(codec::decode_space(id, &found.value)?),
        ("k", Ok(id)) => {
            Kept::Key(SpaceKey { space: SpaceId(id), wrapped: codec::decode_bytes(&found.value)? })
        }
        ("n", Err(name)) => Kept::Note((name, codec::decode_bytes(&found.value)?)),
        _ => return None,
    })
}
