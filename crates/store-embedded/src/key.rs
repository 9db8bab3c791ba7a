//! Version keys: bytes whose order is the order of lists.
//!
//! `space u64 BE | resource u32 BE | namespace | 0x00 | name`. The zero byte sorts before every byte a namespace can
//! contain, so that `a` comes before `a-b` whatever the names are. Neither part may contain a zero byte; [`encode`]
//! refuses it.

use polder_store::engine::EngineError;
use polder_store::{ObjectName, ResourceId, SpaceId};

/// Length of what stands before the namespace.
const HEAD_LEN: usize = 12;

/// The key of one object in one space.
pub(crate) fn encode(
    space: SpaceId,
    resource: ResourceId,
    name: &ObjectName,
    out: &mut Vec<u8>,
) -> Result<(), EngineError> {
    if name.namespace.contains('\0') || name.name.contains('\0') {
        return Err(EngineError::Failed(format!("{:?} cannot be stored: it has a zero byte", name).into()));
    }
    out.clear();
    head(space, resource, out);
    tail(name, out);
    Ok(())
}

/// Reads a key back; `None` when the bytes are none.
pub(crate) fn decode(key: &[u8]) -> Option<(SpaceId, ResourceId, ObjectName)> {
    let (space, rest) = key.split_first_chunk::<8>()?;
    let (resource, rest) = rest.split_first_chunk::<4>()?;
    let text = std::str::from_utf8(rest).ok()?;
    let (namespace, name) = text.split_once('\0')?;
    Some((
        SpaceId(u64::from_be_bytes(*space)),
        ResourceId(u32::from_be_bytes(*resource)),
        ObjectName::new(namespace, name),
    ))
}

/// The name in a key, when the rest of it is known already.
pub(crate) fn decode_name(key: &[u8]) -> Option<ObjectName> {
    let text = std::str::from_utf8(key.get(HEAD_LEN..)?).ok()?;
    let (namespace, name) = text.split_once('\0')?;
    Some(ObjectName::new(namespace, name))
}

/// How a key is called in messages.
pub(crate) fn describe(key: &[u8]) -> String {
    match decode(key) {
        Some((space, resource, name)) => format!("space {}, resource {}, {name}", space.0, resource.0),
        None => format!("key {key:02x?}"),
    }
}

/// Keys from `low`, inclusive, to `high`, exclusive.
pub(crate) struct KeyRange {
    pub(crate) low: Vec<u8>,
    pub(crate) high: Vec<u8>,
}

impl KeyRange {
    /// One resource of one space, or one namespace of it, after a name.
    pub(crate) fn resource(
        space: SpaceId,
        resource: ResourceId,
        namespace: Option<&str>,
        after: Option<&ObjectName>,
    ) -> KeyRange {
        let mut low = Vec::with_capacity(64);
        head(space, resource, &mut low);
        let mut high = low.clone();
        match namespace {
            Some(namespace) => {
                low.extend_from_slice(namespace.as_bytes());
                high.extend_from_slice(namespace.as_bytes());
                low.push(0);
                high.push(1);
            }
            // No UTF-8 text starts with this byte.
            None => high.push(0xff),
        }
        if let Some(after) = after {
            let mut next = low[..HEAD_LEN].to_vec();
            tail(after, &mut next);
            next.push(0);
            low = low.max(next);
        }
        KeyRange { low, high }
    }

    /// All of a space.
    pub(crate) fn space(space: SpaceId) -> KeyRange {
        let high = match space.0.checked_add(1) {
            Some(next) => next.to_be_bytes().to_vec(),
            None => vec![0xff; HEAD_LEN + 1],
        };
        KeyRange { low: space.0.to_be_bytes().to_vec(), high }
    }
}

fn head(space: SpaceId, resource: ResourceId, out: &mut Vec<u8>) {
    out.extend_from_slice(&space.0.to_be_bytes());
    out.extend_from_slice(&resource.0.to_be_bytes());
}

fn tail(name: &ObjectName, out: &mut Vec<u8>) {
    out.extend_from_slice(name.namespace.as_bytes());
    out.push(0);
    out.extend_from_slice(name.name.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(space: u64, resource: u32, namespace: &str, name: &str) -> Vec<u8> {
        let mut out = Vec::new();
        encode(SpaceId(space), ResourceId(resource), &ObjectName::new(namespace, name), &mut out).unwrap();
        out
    }

    #[test]
    fn keys_sort_as_names_do() {
        let mut names = vec![];
        for namespace in ["", "a", "a-b", "a.b", "ab", "b"] {
            for name in ["a", "a-b", "a.b", "a0", "ab", "z"] {
                names.push(ObjectName::new(namespace, name));
            }
        }
        for one in &names {
            assert_eq!(decode(&key(3, 4, &one.namespace, &one.name)).unwrap().2, *one);
            for other in &names {
                let keys = (key(3, 4, &one.namespace, &one.name), key(3, 4, &other.namespace, &other.name));
                assert_eq!(keys.0.cmp(&keys.1), one.cmp(other), "{one} {other}");
            }
        }
        assert!(key(1, 9, "z", "z") < key(2, 1, "", "a"));
        assert!(key(1, 1, "z", "z") < key(1, 2, "", "a"));
    }

    #[test]
    fn ranges_hold_what_they_say() {
        let inside = |range: &KeyRange, key: &[u8]| *range.low <= *key && *key < *range.high;
        let range = KeyRange::resource(SpaceId(1), ResourceId(2), Some("a"), None);
        assert!(inside(&range, &key(1, 2, "a", "\u{10ffff}")));
        assert!(!inside(&range, &key(1, 2, "a-b", "x")) && !inside(&range, &key(1, 2, "", "x")));
        let range = KeyRange::resource(SpaceId(1), ResourceId(2), None, Some(&ObjectName::new("a", "x")));
        assert!(!inside(&range, &key(1, 2, "a", "x")) && inside(&range, &key(1, 2, "a", "x.y")));
        assert!(inside(&range, &key(1, 2, "b", "a")) && !inside(&range, &key(1, 3, "b", "a")));
        let range =
            KeyRange::resource(SpaceId(1), ResourceId(2), Some("b"), Some(&ObjectName::new("a", "x")));
        assert!(inside(&range, &key(1, 2, "b", "a")) && !inside(&range, &key(1, 2, "a", "y")));
        for space in [0, 7, u64::MAX] {
            let range = KeyRange::space(SpaceId(space));
            assert!(
                inside(&range, &key(space, u32::MAX, "z", "z")) && inside(&range, &key(space, 0, "", "a"))
            );
        }
    }

    #[test]
    fn zero_bytes_are_refused() {
        let name = ObjectName::new("a\0b", "c");
        assert!(encode(SpaceId(1), ResourceId(1), &name, &mut Vec::new()).is_err());
    }
}
