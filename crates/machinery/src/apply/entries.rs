//! The entries of `metadata.managedFields`: who owns which fields, since when, and as which version saw them.
//!
//! Invariant: an entry that this program wrote is read without looking at its fields. Entries of clients are read with
//! suspicion: see [`Origin`].

use std::fmt;

use polder_model::value::write_string;
use polder_model::{Object, SmolStr, Value};

use super::fields_v1::{self, FieldsError};
use super::set::FieldSet;
use crate::schema::go_text;

/// More entries of updates than this are folded into one.
pub const UPDATES_MAX: usize = 10;
/// Who owns what was folded.
const FOLDED: &str = "ancient-changes";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Apply,
    Update,
}

impl Operation {
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// One entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub manager: SmolStr,
    pub operation: Operation,
    pub api_version: SmolStr,
    /// RFC 3339 in UTC with seconds, so that texts sort as times do.
    pub time: Option<SmolStr>,
    pub subresource: SmolStr,
    pub fields: FieldSet,
}

/// Where entries come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This program wrote them.
    Stored,
    /// A client sent them.
    Sent,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntriesError {
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    #[error("apiVersion must not be empty")]
    ApiVersion,
    #[error("missing fieldsType in managed fields entry {0}")]
    NoFieldsType(usize),
    #[error("invalid fieldsType {} in managed fields entry {at}", go_text::quoted(.given))]
    FieldsType { given: SmolStr, at: usize },
    #[error("managed fields entry {0} is no object")]
    NoObject(usize),
    #[error("error decoding set: {0}")]
    Fields(#[from] FieldsError),
}

/// Reads the entries of an object. Of two entries of one owner the last one counts.
pub fn decode(entries: Vec<Value>, origin: Origin) -> Result<Vec<Entry>, EntriesError> {
    let mut decoded: Vec<Entry> = Vec::with_capacity(entries.len() + 1);
    for (at, entry) in entries.into_iter().enumerate() {
        let Value::Object(entry) = entry else { return Err(EntriesError::NoObject(at)) };
        let entry = Entry::decode(entry, at, origin)?;
        match decoded.iter_mut().find(|other| origin == Origin::Sent && other.has_owner_of(&entry)) {
            Some(earlier) => *earlier = entry,
            None => decoded.push(entry),
        }
    }
    Ok(decoded)
}

/// The entries as an object holds them, sorted; `None` when there are none.
pub fn encode(mut entries: Vec<Entry>) -> Option<Value> {
    if entries.is_empty() {
        return None;
    }
    entries.sort_by(|left, right| left.sort_key().cmp(&right.sort_key()));
    Some(Value::Array(entries.into_iter().map(Entry::encode).collect()))
}

/// Folds the oldest updates of a version into one entry while there are too many.
pub fn fold_old_updates(entries: &mut Vec<Entry>, updates_max: usize) {
    let mut updates: Vec<Entry> = Vec::new();
    if entries.iter().filter(|entry| entry.operation == Operation::Update).count() <= updates_max {
        return;
    }
    entries.retain_mut(|entry| {
        let stays = entry.operation == Operation::Apply;
        if !stays {
            updates.push(entry.take());
        }
        stays
    });
    updates.sort_by_cached_key(|entry| (entry.time.clone(), entry.owner()));
    let mut excess = updates.len() - updates_max;
    let mut at = 1;
    while excess > 0 && at < updates.len() {
        let is_of_version = |entry: &Entry| entry.api_version == updates[at].api_version;
        let is_bucket = |entry: &Entry| entry.manager == FOLDED && entry.subresource.is_empty();
        let first = updates[..at].iter().position(is_of_version);
        let bucket = updates.iter().position(|entry| is_bucket(entry) && is_of_version(entry));
        match (first, bucket.or(first)) {
            (Some(_), Some(bucket)) if bucket != at => {
                let Entry { fields, time, .. } = updates.remove(at);
                let bucket = &mut updates[if bucket > at { bucket - 1 } else { bucket }];
                bucket.fields.add(fields);
                bucket.time = time;
                bucket.manager = SmolStr::new_static(FOLDED);
                bucket.subresource = SmolStr::default();
                excess -= 1;
            }
            // The first of its version: what others are folded into.
            _ => at += 1,
        }
    }
    entries.append(&mut updates);
}

impl Entry {
    /// Whether both are of one owner. Appliers are the same whatever version they use.
    pub fn has_owner_of(&self, other: &Entry) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// The owner as a text that sorts as upstream sorts owners.
    pub fn owner(&self) -> String {
        let api_version = match self.operation {
            Operation::Apply => "",
            Operation::Update => &self.api_version,
        };
        let members = [
            ("manager", self.manager.as_str()),
            ("operation", self.operation.as_str()),
            ("apiVersion", api_version),
            ("subresource", self.subresource.as_str()),
        ];
        let mut out = Vec::with_capacity(96);
        for (name, value) in members.into_iter().filter(|(_, value)| !value.is_empty()) {
            out.push(if out.is_empty() { b'{' } else { b',' });
            write_string(name, &mut out);
            out.push(b':');
            write_string(value, &mut out);
        }
        out.push(b'}');
        String::from_utf8_lossy(&out).into_owned()
    }

    fn sort_key(&self) -> (Operation, &Option<SmolStr>, &str, &str, &str) {
        (self.operation, &self.time, &self.manager, &self.api_version, &self.subresource)
    }

    fn take(&mut self) -> Entry {
        Entry {
            manager: std::mem::take(&mut self.manager),
            operation: self.operation,
            api_version: std::mem::take(&mut self.api_version),
            time: self.time.take(),
            subresource: std::mem::take(&mut self.subresource),
            fields: std::mem::take(&mut self.fields),
        }
    }

    fn decode(mut entry: Object, at: usize, origin: Origin) -> Result<Entry, EntriesError> {
        let mut text = |name: &str| match entry.remove(name) {
            Some(Value::String(text)) => text,
            _ => SmolStr::default(),
        };
        let operation = match text("operation").as_str() {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err(EntriesError::Operation),
        };
        let api_version = text("apiVersion");
        if api_version.is_empty() {
            return Err(EntriesError::ApiVersion);
        }
        match text("fieldsType").as_str() {
            "FieldsV1" => {}
            "" => return Err(EntriesError::NoFieldsType(at)),
            given => return Err(EntriesError::FieldsType { given: given.into(), at }),
        }
        let (manager, subresource, time) = (text("manager"), text("subresource"), text("time"));
        let fields = match (entry.remove("fieldsV1"), origin) {
            (None, _) => FieldSet::new(),
            (Some(Value::Object(tree)), Origin::Stored) => FieldSet::from_tree(tree),
            (Some(fields), _) => fields_v1::read(&fields)?,
        };
        let time = Some(time).filter(|time| !time.is_empty());
        Ok(Entry { manager, operation, api_version, time, subresource, fields })
    }

    fn encode(self) -> Value {
        let text = |name: &'static str, value: SmolStr| {
            (!value.is_empty()).then(|| (SmolStr::new_static(name), Value::String(value)))
        };
        let members = [
            text("apiVersion", self.api_version),
            text("fieldsType", SmolStr::new_static("FieldsV1")),
            Some((SmolStr::new_static("fieldsV1"), self.fields.into_value())),
            text("manager", self.manager),
            text("operation", SmolStr::new_static(self.operation.as_str())),
            text("subresource", self.subresource),
            self.time.and_then(|time| text("time", time)),
        ];
        Value::Object(members.into_iter().flatten().collect())
    }
}

/// The owner as conflicts name it.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&go_text::quoted(&self.manager))?;
        if !self.subresource.is_empty() {
            write!(f, " with subresource {}", go_text::quoted(&self.subresource))?;
        }
        match self.operation {
            Operation::Apply => Ok(()),
            Operation::Update => write!(f, " using {}", self.api_version),
        }
    }
}
