//! The messages of etcd's v3 interface that are used here, and only their fields that are. The same in etcd 3.4 to 3.6.

use bytes::Bytes;
use polder_client_http::grpc::protobuf::{Field, Fields, put, put_always, put_number};

/// A key with its value as etcd keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyValue {
    pub key: Bytes,
    pub value: Bytes,
    pub created: u64,
    /// The revision that wrote this value.
    pub modified: u64,
}

/// What is asked of a range. Without an end it is one key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Range<'a> {
    pub key: &'a [u8],
    pub end: &'a [u8],
    /// Zero: no limit.
    pub limit: u64,
    /// Zero: the newest.
    pub revision: u64,
    pub keys_only: bool,
}

/// A condition of a transaction.
#[derive(Clone, Copy, Debug)]
pub enum Compare<'a> {
    /// The key was last written by this revision.
    Modified(&'a [u8], u64),
    Absent(&'a [u8]),
    Present(&'a [u8]),
}

/// What a transaction does.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    Range(Range<'a>),
    Put {
        key: &'a [u8],
        value: &'a [u8],
        /// Zero: none.
        lease: u64,
    },
    /// Takes a key from its lease. It must be there.
    Keep {
        key: &'a [u8],
    },
    Delete {
        key: &'a [u8],
        end: &'a [u8],
    },
}

#[derive(Debug, Default)]
pub struct RangeAnswer {
    /// Where etcd is; not where the range was read.
    pub revision: u64,
    pub found: Vec<KeyValue>,
    pub more: bool,
}

#[derive(Debug, Default)]
pub struct TxnAnswer {
    pub revision: u64,
    pub succeeded: bool,
    /// What the ranges in it found.
    pub ranges: Vec<RangeAnswer>,
}

#[derive(Debug, Default)]
pub struct WatchAnswer {
    pub canceled: bool,
    /// Not zero: the watch was to begin before what is kept.
    pub compacted: u64,
    pub reason: String,
    /// More of the same is in the next answer.
    pub fragment: bool,
    /// What was put; deletions are not asked for.
    pub puts: Vec<KeyValue>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Lease {
    pub id: u64,
    /// Seconds; zero: it is gone.
    pub ttl: u64,
    /// Where etcd is.
    pub revision: u64,
}

fn range_fields(range: &Range<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    put(1, range.key, &mut out);
    put(2, range.end, &mut out);
    put_number(3, range.limit, &mut out);
    put_number(4, range.revision, &mut out);
    put_number(8, range.keys_only.into(), &mut out);
    out
}

pub(crate) fn range(range: &Range<'_>) -> Vec<u8> {
    range_fields(range)
}

fn compare(compare: &Compare<'_>) -> Vec<u8> {
    const GREATER: u64 = 1;
    const MODIFIED: u64 = 2;
    let mut out = Vec::new();
    // What is left out is zero: equal, version, version 0.
    match compare {
        Compare::Absent(key) => put(3, key, &mut out),
        Compare::Present(key) => {
            put_number(1, GREATER, &mut out);
            put(3, key, &mut out);
        }
        Compare::Modified(key, revision) => {
            put_number(2, MODIFIED, &mut out);
            put(3, key, &mut out);
            put_number(6, *revision, &mut out);
        }
    }
    out
}

fn operation(operation: &Operation<'_>) -> Vec<u8> {
    let (field, message) = match operation {
        Operation::Range(range) => (1, range_fields(range)),
        Operation::Put { key, value, lease } => {
            let mut message = Vec::with_capacity(key.len() + value.len() + 32);
            put(1, key, &mut message);
            put(2, value, &mut message);
            put_number(3, *lease, &mut message);
            (2, message)
        }
        Operation::Keep { key } => {
            const SAME_VALUE: u64 = 5;
            let mut message = Vec::new();
            put(1, key, &mut message);
            put_number(SAME_VALUE, 1, &mut message);
            (2, message)
        }
        Operation::Delete { key, end } => {
            let mut message = Vec::new();
            put(1, key, &mut message);
            put(2, end, &mut message);
            (3, message)
        }
    };
    let mut out = Vec::with_capacity(message.len() + 8);
    put_always(field, &message, &mut out);
    out
}

pub(crate) fn txn(compares: &[Compare<'_>], then: &[Operation<'_>], or_else: &[Operation<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    compares.iter().for_each(|one| put_always(1, &compare(one), &mut out));
    then.iter().for_each(|one| put_always(2, &operation(one), &mut out));
    or_else.iter().for_each(|one| put_always(3, &operation(one), &mut out));
    out
}

pub(crate) fn watch(key: &[u8], end: &[u8], from: u64) -> Vec<u8> {
    const NO_DELETIONS: u64 = 1;
    let mut create = Vec::new();
    put(1, key, &mut create);
    put(2, end, &mut create);
    put_number(3, from, &mut create);
    put_number(5, NO_DELETIONS, &mut create);
    put_number(8, 1, &mut create);
    let mut out = Vec::new();
    put_always(1, &create, &mut out);
    out
}

/// A message whose only field is a number: compaction, the end of a lease, its renewal.
pub(crate) fn number(number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_number(1, number, &mut out);
    out
}

pub(crate) fn authenticate(user: &str, password: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put(1, user.as_bytes(), &mut out);
    put(2, password.as_bytes(), &mut out);
    out
}

fn parse_header(field: Field<'_>) -> Option<u64> {
    let mut revision = 0;
    for field in Fields(field.bytes()?) {
        if let (3, value) = field? {
            revision = value.number()?;
        }
    }
    Some(revision)
}

/// `message` is what `bytes` are a part of.
fn parse_key_value(message: &Bytes, bytes: &[u8]) -> Option<KeyValue> {
    let mut found = KeyValue::default();
    for field in Fields(bytes) {
        match field? {
            (1, value) => found.key = message.slice_ref(value.bytes()?),
            (2, value) => found.created = value.number()?,
            (3, value) => found.modified = value.number()?,
            (5, value) => found.value = message.slice_ref(value.bytes()?),
            _ => {}
        }
    }
    Some(found)
}

pub(crate) fn parse_range(message: &Bytes) -> Option<RangeAnswer> {
    parse_range_in(message, message)
}

fn parse_range_in(message: &Bytes, bytes: &[u8]) -> Option<RangeAnswer> {
    let mut answer = RangeAnswer::default();
    for field in Fields(bytes) {
        match field? {
            (1, header) => answer.revision = parse_header(header)?,
            (2, found) => answer.found.push(parse_key_value(message, found.bytes()?)?),
            (3, more) => answer.more = more.number()? != 0,
            _ => {}
        }
    }
    Some(answer)
}

pub(crate) fn parse_txn(message: &Bytes) -> Option<TxnAnswer> {
    let mut answer = TxnAnswer::default();
    for field in Fields(message) {
        match field? {
            (1, header) => answer.revision = parse_header(header)?,
            (2, succeeded) => answer.succeeded = succeeded.number()? != 0,
            (3, response) => {
                for field in Fields(response.bytes()?) {
                    if let (1, range) = field? {
                        answer.ranges.push(parse_range_in(message, range.bytes()?)?);
                    }
                }
            }
            _ => {}
        }
    }
    Some(answer)
}

pub(crate) fn parse_watch(message: &Bytes) -> Option<WatchAnswer> {
    let mut answer = WatchAnswer::default();
    for field in Fields(message) {
        match field? {
            (4, canceled) => answer.canceled = canceled.number()? != 0,
            (5, compacted) => answer.compacted = compacted.number()?,
            (6, reason) => answer.reason = reason.text()?.chars().take(512).collect(),
            (7, fragment) => answer.fragment = fragment.number()? != 0,
            (11, event) => answer.puts.extend(parse_event(message, event.bytes()?)?),
            _ => {}
        }
    }
    Some(answer)
}

/// What an event put, if it did.
fn parse_event(message: &Bytes, event: &[u8]) -> Option<Option<KeyValue>> {
    let (mut is_put, mut found) = (true, KeyValue::default());
    for field in Fields(event) {
        match field? {
            (1, kind) => is_put = kind.number()? == 0,
            (2, value) => found = parse_key_value(message, value.bytes()?)?,
            _ => {}
        }
    }
    Some(is_put.then_some(found))
}

pub(crate) fn parse_lease(message: &[u8]) -> Option<Lease> {
    let mut lease = Lease::default();
    for field in Fields(message) {
        match field? {
            (1, header) => lease.revision = parse_header(header)?,
            (2, id) => lease.id = id.number()?,
            (3, ttl) => lease.ttl = ttl.number()?,
            _ => {}
        }
    }
    Some(lease)
}

pub(crate) fn parse_token(message: &[u8]) -> Option<String> {
    let mut token = None;
    for field in Fields(message) {
        if let (2, value) = field? {
            token = Some(value.text()?.to_owned());
        }
    }
    token
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message with every field of every answer, and another in the place of each of its bytes.
    #[test]
    fn what_is_no_message_is_refused_and_never_more() {
        let mut header = Vec::new();
        put_number(3, 77, &mut header);
        let mut kv = Vec::new();
        put(1, b"key", &mut kv);
        put_number(2, 5, &mut kv);
        put_number(3, 6, &mut kv);
        put(5, b"value", &mut kv);
        let mut range = Vec::new();
        put(1, &header, &mut range);
        put(2, &kv, &mut range);
        put_number(3, 1, &mut range);
        let mut event = Vec::new();
        put(2, &kv, &mut event);
        let mut watch = Vec::new();
        put_number(7, 1, &mut watch);
        put(11, &event, &mut watch);
        let mut response = Vec::new();
        put(1, &range, &mut response);
        let mut txn = Vec::new();
        put(1, &header, &mut txn);
        put_number(2, 1, &mut txn);
        put(3, &response, &mut txn);

        let expected =
            KeyValue { key: Bytes::from("key"), value: Bytes::from("value"), created: 5, modified: 6 };
        let answer = parse_range(&range.clone().into()).unwrap();
        assert_eq!((answer.revision, answer.more, &answer.found[..]), (77, true, &[expected.clone()][..]));
        let answer = parse_txn(&txn.clone().into()).unwrap();
        assert_eq!((answer.succeeded, &answer.ranges[0].found[..]), (true, &[expected.clone()][..]));
        let answer = parse_watch(&watch.clone().into()).unwrap();
        assert_eq!((answer.fragment, &answer.puts[..]), (true, &[expected][..]));

        for good in [range, txn, watch] {
            for index in 0..good.len() {
                for byte in [0, 0x7f, 0x80, 0xff] {
                    let mut bad = good.clone();
                    bad[index] = byte;
                    let bad = Bytes::from(bad);
                    parse_range(&bad);
                    parse_txn(&bad);
                    parse_watch(&bad);
                    parse_lease(&bad);
                    parse_token(&bad);
                }
                parse_txn(&Bytes::copy_from_slice(&good[..index]));
            }
        }
    }
}
