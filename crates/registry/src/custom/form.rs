//! Custom objects that were stored under another schema than today's are read as today's would have them: without
//! members it no longer has, with defaults it has since. Everything else is copied out as it is stored.
//!
//! Every record of a custom object carries its *form*: the version it was stored in, and a digest of what that
//! version's schema did to what it read.
//!
//! **Invariant.** A record's body is what its form's schema makes of it (pruning and defaulting again change
//! nothing). So where the form is that of today's schema, and the reader's version keeps the same members, the bytes are
//! the answer, and knowing that costs one comparison. The form says what the writer did, so this holds whatever
//! happened to the CRD between the write's decision and its commit, and moves with the record into forks.
//!
//! Where a webhook converts (`crate::conversion`), objects come here as records of the reader's version already.
//!
//! As upstream does, an object is completed by the version it was stored in, and after that only loses what the reader's
//! version does not know. Every record says its version; one that names a version that is gone is taken to be of the storage
//! version, and so is one of an earlier build that says nothing, until it is written.

use polder_machinery::schema::Schema;
use polder_machinery::schema::embedded::coerce_embedded;
use polder_machinery::schema::reading::{Extent, complete, complete_for_reading, narrow, reading};
use polder_model::{FieldPath, SmolStr, Status, Value, format_smolstr};
use polder_store::Record;
use sha2::{Digest as _, Sha256};

use crate::definition::{ResourceDefinition, Target};

/// Sixteen hexadecimal digits' worth: only a tenant's own schemas are told apart by it.
const DIGEST_LEN: usize = 8;
/// The digest of no schema.
const UNFIT: [u8; DIGEST_LEN] = [0; DIGEST_LEN];

/// What a schema does to what it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digests {
    /// Which members stay.
    members: [u8; DIGEST_LEN],
    /// Which members stay and which defaults come.
    whole: [u8; DIGEST_LEN],
}

/// One version of a custom resource, served or not: objects may be stored in it.
#[derive(Debug)]
pub(crate) struct StoredForm {
    version: SmolStr,
    schema: Schema,
    digests: Digests,
    /// As records carry it: the digest, then the version.
    mark: Box<[u8]>,
    /// The same for what does not fit in with its defaults: it is of the version, and everybody who reads it looks at it again.
    unfit_mark: Box<[u8]>,
}

/// What must be done to a stored object before a reader sees it.
#[derive(Debug)]
pub(crate) struct Rereading<'d> {
    /// Prune and default as this version does.
    complete: Option<&'d StoredForm>,
    /// Drop what this version does not know.
    narrow: Option<&'d StoredForm>,
}

impl Digests {
    pub(super) fn of(schema: &Schema) -> Digests {
        let digest = |extent| {
            let mut hash = Sha256::new();
            reading(schema, extent, &mut |piece| hash.update(piece));
            let mut short = [0; DIGEST_LEN];
            short.copy_from_slice(&hash.finalize()[..DIGEST_LEN]);
            short
        };
        Digests { members: digest(Extent::Members), whole: digest(Extent::Whole) }
    }
}

impl StoredForm {
    pub(super) fn new(version: SmolStr, schema: Schema, digests: Digests) -> StoredForm {
        let mark = [&digests.whole[..], version.as_bytes()].concat().into();
        let unfit_mark = [&UNFIT[..], version.as_bytes()].concat().into();
        StoredForm { version, schema, digests, mark, unfit_mark }
    }

    /// A record of an object of this version. It always says so: the storage version may be another one tomorrow.
    fn record(&self, value: &Value, is_complete: bool) -> Record {
        if is_complete {
            return Record::encode_as(value, &self.mark);
        }
        let mut completed = value.clone();
        match complete(&self.schema, &mut completed) {
            Ok(()) => Record::encode_as(&completed, &self.mark),
            Err(_) => Record::encode_as(value, &self.unfit_mark),
        }
    }
}

impl Rereading<'_> {
    pub(crate) fn apply(&self, value: &mut Value) {
        if let Some(form) = self.complete {
            complete_for_reading(&form.schema, value);
        }
        if let Some(form) = self.narrow {
            narrow(&form.schema, value);
        }
    }
}

impl ResourceDefinition {
    fn form(&self, version: &str) -> Option<&StoredForm> {
        self.forms.iter().find(|form| form.version == version)
    }

    /// What must be done to a stored object before a reader of a version sees it; `None` when its bytes are right.
    pub(crate) fn rereading(&self, version: &str, record: &Record) -> Option<Rereading<'_>> {
        if self.forms.is_empty() {
            return None;
        }
        let (digest, name) = split(record.form());
        let named = self.forms.iter().find(|form| form.version.as_bytes() == name);
        let stored = named.or_else(|| self.form(&self.storage.version))?;
        let complete = (stored.digests.whole != digest || named.is_none()).then_some(stored);
        let narrow = self.form(version);
        let narrow = narrow.filter(|reader| reader.digests.members != stored.digests.members);
        (complete.is_some() || narrow.is_some()).then_some(Rereading { complete, narrow })
    }

    /// Brings an object that was changed without a look at its schema back into the form of its version.
    pub(crate) fn complete(&self, version: &str, value: &mut Value) -> Result<(), Status> {
        let completed = self.form(version).map_or(Ok(()), |form| complete(&form.schema, value));
        completed.map_err(|error| Status::too_large(error.to_string()))
    }

    /// An object as it is to be stored. It is complete in the version it comes in; the empty one stands for none.
    pub(crate) fn to_stored(&self, version: &str, value: &Value) -> Record {
        let Some(storage) = self.form(&self.storage.version) else { return Record::encode(value) };
        let is_alike = self.form(version).is_some_and(|form| form.digests == storage.digests);
        storage.record(value, is_alike)
    }
}

impl ResourceDefinition {
    /// The version an object is stored in.
    pub(crate) fn stored_version<'r>(&'r self, record: &'r Record) -> &'r str {
        let (_, name) = split(record.form());
        let named = self.forms.iter().find(|form| form.version.as_bytes() == name);
        named.map_or(&self.storage.version, |form| &form.version)
    }

    /// Whether objects of a version stay in it until somebody writes them: only a webhook could say what else they are.
    pub(crate) fn keeps(&self, version: &str) -> bool {
        self.conversion.is_some() && self.form(version).is_some()
    }

    /// An object as it is stored in a version that it comes in, and which is kept.
    pub(crate) fn to_kept(&self, version: &str, value: &Value) -> Record {
        self.form(version).map_or_else(|| Record::encode(value), |form| form.record(value, false))
    }

    /// Whether only the plane's webhook can say what a stored object is in a version.
    pub(crate) fn needs_webhook(&self, version: &str, record: &Record) -> bool {
        self.conversion.is_some() && self.stored_version(record) != version
    }

    /// An object as a webhook gets it: complete in the version it is stored in.
    pub(crate) fn to_convert(&self, record: &Record, resource_version: u64) -> Result<Value, Status> {
        let value = record.to_value(resource_version);
        let mut value = value.map_err(|error| Status::internal(error.to_string()))?;
        let version = self.stored_version(record);
        if let Some(rereading) = self.rereading(version, record) {
            rereading.apply(&mut value);
        }
        value.set_at(&["kind"], self.kind.clone());
        value.set_at(&["apiVersion"], format_smolstr!("{}/{version}", self.group));
        Ok(value)
    }

    /// What a webhook made of an object, as a record of the version it is in now. That version's schema takes away from it,
    /// and adds nothing; the record says that this is how it reads.
    pub(crate) fn converted_record(&self, version: &str, mut value: Value) -> Result<Record, Status> {
        let Some(form) = self.form(version) else { return Ok(Record::encode(&value)) };
        self.narrow_converted(version, &mut value)?;
        Ok(Record::encode_as(&value, &form.mark))
    }

    /// Takes away from a converted object what its version does not know.
    pub(crate) fn narrow_converted(&self, version: &str, value: &mut Value) -> Result<(), Status> {
        let Some(form) = self.form(version) else { return Ok(()) };
        let coerced = coerce_embedded(form.schema.node(), value, &FieldPath::ROOT);
        coerced.map_err(|error| Status::untyped(500, error.to_string()))?;
        narrow(&form.schema, value);
        Ok(())
    }
}

/// Whether a write would change nothing: the same object, stored in the same version.
pub(crate) fn is_unchanged(target: &Target, new: &Record, stored: &Record) -> bool {
    let same_version = || {
        let ((_, new), (_, stored)) = (split(new.form()), split(stored.form()));
        new == stored
    };
    new.body() == stored.body() && (!target.definition.is_custom() || same_version())
}

fn split(form: &[u8]) -> (&[u8], &[u8]) {
    form.split_at_checked(DIGEST_LEN).unwrap_or_default()
}
