//! The keys of a history in etcd. All begin with its prefix.
//!
//! | key | what |
//! |---|---|
//! | `c/{entry}/{number}` | a piece of an entry that is too long for one transaction |
//! | `head` | the last entry, without the objects that have keys of their own |
//! | `leader` | who does what only one may do; goes with its lease |
//! | `mark` | the last entry stands in pieces, and not all keys say yet what it did: nothing is added until they do |
//! | `o/{space}/{resource}/{namespace}/{name}` | the newest version of an object in a space, also when that is its deletion |
//! | `r/p/{plane}`, `r/s/{space}`, `r/k/{space}`, `r/n/{note}` | rows |
//!
//! Numbers have 16 digits of hexadecimal, so that their order is that of the keys; names are
//! written as [`names`] says.

use polder_model::{GroupResource, SmolStr};
use polder_store::journal::names;
use polder_store::{ObjectName, SpaceId};

#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
    pub(crate) head: Vec<u8>,
    pub(crate) leader: Vec<u8>,
    pub(crate) mark: Vec<u8>,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Keys {
        let prefix = prefix.trim_end_matches('/').to_owned();
        Keys {
            head: format!("{prefix}/head").into_bytes(),
            leader: format!("{prefix}/leader").into_bytes(),
            mark: format!("{prefix}/mark").into_bytes(),
            prefix,
        }
    }

    /// What is watched: the head, and the objects that come with it.
    pub(crate) fn watched(&self) -> (Vec<u8>, Vec<u8>) {
        (self.head.clone(), format!("{}/p", self.prefix).into_bytes())
    }

    pub(crate) fn objects(&self) -> (Vec<u8>, Vec<u8>) {
        self.under("o")
    }

    pub(crate) fn rows(&self) -> (Vec<u8>, Vec<u8>) {
        self.under("r")
    }

    fn under(&self, folder: &str) -> (Vec<u8>, Vec<u8>) {
        let start = format!("{}/{folder}/", self.prefix).into_bytes();
        let end = end_of(&start);
        (start, end)
    }

    pub(crate) fn space(&self, space: SpaceId) -> (Vec<u8>, Vec<u8>) {
        self.under(&format!("o/{:016x}", space.0))
    }

    pub(crate) fn object(&self, space: SpaceId, resource: &GroupResource, name: &ObjectName) -> Vec<u8> {
        let mut out = format!("{}/o/{:016x}/", self.prefix, space.0);
        names::put_object(resource, name, &mut out);
        out.into_bytes()
    }

    /// What an object's key says.
    pub(crate) fn parse_object(&self, key: &[u8]) -> Option<(SpaceId, GroupResource, ObjectName)> {
        let (space, object) = self.rest(key, "o")?.split_once('/')?;
        let (resource, name) = names::parse_object(object)?;
        Some((SpaceId(number(space)?), resource, name))
    }

    pub(crate) fn row(&self, kind: char, id: u64) -> Vec<u8> {
        format!("{}/r/{kind}/{id:016x}", self.prefix).into_bytes()
    }

    pub(crate) fn note(&self, name: &str) -> Vec<u8> {
        let mut out = format!("{}/r/n/", self.prefix);
        names::escape(name, &mut out);
        out.into_bytes()
    }

    /// The kind of a row, and its number; of a note, its name.
    pub(crate) fn parse_row<'a>(&self, key: &'a [u8]) -> Option<(&'a str, Result<u64, SmolStr>)> {
        let (kind, rest) = self.rest(key, "r")?.split_once('/')?;
        let id = match kind {
            "n" => Err(names::unescape(rest)?),
            _ => Ok(number(rest)?),
        };
        Some((kind, id))
    }

    pub(crate) fn piece(&self, entry: &[u8; 16], number: u64) -> Vec<u8> {
        format!("{}/c/{}/{number:016x}", self.prefix, hex(entry)).into_bytes()
    }

    pub(crate) fn pieces(&self, entry: &[u8; 16]) -> (Vec<u8>, Vec<u8>) {
        self.under(&format!("c/{}", hex(entry)))
    }

    fn rest<'a>(&self, key: &'a [u8], folder: &str) -> Option<&'a str> {
        let key = std::str::from_utf8(key).ok()?;
        key.strip_prefix(self.prefix.as_str())?.strip_prefix('/')?.strip_prefix(folder)?.strip_prefix('/')
    }
}

/// The first key behind all that begin with this one.
pub(crate) fn end_of(start: &[u8]) -> Vec<u8> {
    let mut end = start.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

fn hex(bytes: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*bytes))
}

fn number(digits: &str) -> Option<u64> {
    let is_plain = digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_plain.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_comes_back_and_stays_where_it_belongs() {
        let keys = Keys::new("/polder/");
        let (start, end) = keys.space(SpaceId(7));
        let resource = GroupResource::new("example.com", "widgets");
        for (namespace, name) in [
            ("", "a"),
            ("n", "a/b"),
            ("n/a", "b"),
            ("%2f", "%"),
            ("ü", "\u{ffff}\n"),
            ("..", ""),
            ("", "o/p:q"),
        ] {
            let name = ObjectName::new(namespace, name);
            let key = keys.object(SpaceId(7), &resource, &name);
            assert!(start <= key && key < end, "{name}");
            assert_eq!(keys.parse_object(&key), Some((SpaceId(7), resource.clone(), name)));
        }
        for bad in ["/polder/o/7/a/b/c/d", "/polder/o/0000000000000007/a/b/c", "/other/o/", "/polder/o/%/%"] {
            assert_eq!(keys.parse_object(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(keys.parse_row(&keys.row('p', 9)), Some(("p", Ok(9))));
        assert_eq!(keys.parse_row(&keys.note("a/b")), Some(("n", Err("a/b".into()))));
        let (from, to) = keys.watched();
        assert!(from <= keys.head && keys.head < to);
        assert!(from <= start && end < to && keys.piece(&[9; 16], 1) < from && keys.row('p', 1) > to);
        assert_eq!(end_of(&[1, 255]), [2]);
    }
}
