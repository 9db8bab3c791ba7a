//! Objects in other versions than the one they are stored in, where only a webhook of the plane knows how.
//!
//! A converted object is a record like a stored one, in the version of whoever asked: what follows (copying it out, tables,
//! selectors) knows nothing of conversion. It is made where objects leave the store, a page at a time, and never stored.
//!
//! Invariant: nothing leaves the registry in a version it does not say. Nobody holds a lock or a turn, and nothing waits to be
//! committed, while a webhook is asked; questions and answers are bounded in time and size, and a plane's webhook that does
//! not answer holds up only those of that plane who need it.

mod shared;
mod views;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use polder_machinery::conversion::{ConversionError, Question, ask, read};
use polder_model::{Status, Value};
use polder_store::{Plane, Record, StoredObject};

pub(crate) use self::shared::{Key, Shared};
pub(crate) use self::views::Views;
use crate::context::{Reading, RequestContext};
use crate::definition::{ResourceDefinition, Target};
use crate::registry::Registry;
use crate::webhooks::{Purpose, Webhooks};

/// What upstream gives a webhook.
const TIMEOUT: Duration = Duration::from_secs(30);
/// So much is asked about at once: objects, and bytes as they are stored. A single object may be larger.
const PIECE_LEN_MAX: usize = 256;
const PIECE_BYTES_MAX: usize = 256 * 1024;
/// What is converted for one page: it ends with the object that makes it this heavy.
const PAGE_BYTES: usize = 512 * 1024;
/// What a plane may store that has no limit of its own: the body of a request.
const OBJECT_BYTES: u64 = 3 << 20;
/// What an answer may be longer than its question, and what it may be in any case: what is longer is let go of at once.
const ANSWER_TIMES_MAX: usize = 8;
const ANSWER_BYTES_MIN: usize = 256 * 1024;
/// Longer answers are read where that holds up nobody.
const INLINE_BYTES_MAX: usize = 256 * 1024;

/// Brings objects of one resource of a plane into one of its versions.
#[derive(Clone)]
pub(crate) struct Converter {
    webhooks: Arc<Webhooks>,
    plane: Arc<Plane>,
    definition: Arc<ResourceDefinition>,
    version: usize,
    /// What a converted object may weigh, if it did not weigh more before.
    bytes_max: usize,
}

impl Converter {
    fn version(&self) -> &str {
        &self.definition.versions[self.version].name
    }

    /// Whether an object must be converted.
    pub(crate) fn needs(&self, stored: &StoredObject) -> bool {
        self.definition.needs_webhook(self.version(), &stored.record)
    }

    pub(crate) async fn one(&self, stored: Arc<StoredObject>) -> Result<Arc<StoredObject>, Status> {
        if !self.needs(&stored) {
            return Ok(stored);
        }
        let mut page = self.page(vec![stored]).await?;
        page.pop().ok_or_else(|| Status::internal("the object was not converted"))
    }

    /// What many want at the same time, because they watch it: the webhook is asked once.
    pub(crate) async fn shared(&self, stored: Arc<StoredObject>) -> Result<Arc<StoredObject>, Status> {
        let Some(key) = self.key(&stored) else { return Ok(stored) };
        let make = || {
            let (converter, stored) = (self.clone(), stored.clone());
            async move { converter.one(stored).await }.boxed()
        };
        self.webhooks.shared.get(key, make).await
    }

    /// The same for several that will be wanted one after the other: the webhook is asked about all of them, and what it makes
    /// is there when it is wanted. If it makes nothing, that is told then.
    pub(crate) async fn prepare(&self, objects: impl Iterator<Item = Arc<StoredObject>>) {
        let mut known = HashSet::new();
        let keyed = objects.filter_map(|stored| Some((self.key(&stored)?, stored)));
        let wanted = keyed.filter(|(key, _)| known.insert(key.clone())).collect();
        let make = |objects| {
            let converter = self.clone();
            async move { converter.page(objects).await }.boxed()
        };
        self.webhooks.shared.prepare(wanted, make).await;
    }

    /// How an object that must be converted is known to others who want it.
    fn key(&self, stored: &StoredObject) -> Option<Key> {
        let conversion = self.definition.conversion.as_ref().filter(|_| self.needs(stored))?;
        Some(Key {
            conversion: conversion.id,
            plane: self.plane.id,
            resource: self.definition.resource_id,
            version: self.version().into(),
            name: stored.name.clone(),
            revision: stored.revision,
        })
    }

    /// The first objects of a page, those that need it converted, in their order: all, unless they have become too heavy
    /// for one page. Of one or more at least one.
    pub(crate) async fn page(
        &self,
        mut objects: Vec<Arc<StoredObject>>,
    ) -> Result<Vec<Arc<StoredObject>>, Status> {
        let (mut at, mut made) = (0, 0);
        while at < objects.len() {
            let (mut places, mut bytes) = (Vec::new(), 0);
            while at < objects.len() && places.len() < PIECE_LEN_MAX && bytes < PIECE_BYTES_MAX {
                if self.needs(&objects[at]) {
                    bytes += objects[at].record.len();
                    places.push(at);
                }
                at += 1;
            }
            if places.is_empty() {
                continue;
            }
            let piece: Vec<&Arc<StoredObject>> = places.iter().map(|place| &objects[*place]).collect();
            let converted = self.records(&piece, PAGE_BYTES - made).await?;
            made += weight(&converted);
            if made >= PAGE_BYTES {
                at = places.get(converted.len()).copied().unwrap_or(at);
                objects.truncate(at);
            }
            for (place, record) in places.into_iter().zip(converted) {
                let StoredObject { name, revision, space, .. } = &*objects[place];
                let (name, revision, space) = (name.clone(), *revision, *space);
                objects[place] = Arc::new(StoredObject { name, revision, space, record });
            }
        }
        Ok(objects)
    }

    /// The records of the first objects: of all, or until they weigh as much as there is room for.
    async fn records(&self, objects: &[&Arc<StoredObject>], room: usize) -> Result<Vec<Record>, Status> {
        let (version, maker) = (self.version(), self.record_maker(objects, room));
        let converted = match self.ask(version, || self.to_convert(objects), maker).await {
            // Upstream asks about one object at a time: whoever can answer that is good enough.
            Err(refusal) if refusal.is_about_objects() && objects.len() > 1 => {
                let (mut converted, mut made) = (Vec::new(), 0);
                for object in objects {
                    if made >= room {
                        break;
                    }
                    let maker = self.record_maker(&[object], room - made);
                    let one = self.ask(version, || self.to_convert(&[object]), maker).await?;
                    made += weight(&one);
                    converted.extend(one);
                }
                converted
            }
            outcome => outcome?,
        };
        Ok(converted)
    }

    fn record_maker(
        &self,
        objects: &[&Arc<StoredObject>],
        room: usize,
    ) -> impl FnOnce(Vec<Value>) -> Result<Vec<Record>, Status> + Send + use<> {
        let (definition, version) = (self.definition.clone(), self.version);
        let bytes_max = objects.iter().map(|object| object.record.len()).fold(self.bytes_max, usize::max);
        move |values| {
            let version = &definition.versions[version].name;
            let (mut records, mut made) = (Vec::new(), 0);
            for value in values {
                if made >= room {
                    break;
                }
                let record = definition.converted_record(version, value)?;
                check_weight(&definition, record.len(), bytes_max)?;
                made += record.len();
                records.push(record);
            }
            Ok(records)
        }
    }

    fn to_convert(&self, objects: &[&Arc<StoredObject>]) -> Result<Vec<Value>, Status> {
        let value = |stored: &&Arc<StoredObject>| {
            let version = self.plane.resource_version(stored.revision);
            self.definition.to_convert(&stored.record, version)
        };
        objects.iter().map(value).collect()
    }

    /// One object, in any version, as any other version has it.
    pub(crate) async fn value(&self, object: Value, version: &str) -> Result<Value, Status> {
        let (definition, to) = (self.definition.clone(), version.to_owned());
        let bytes_max = self.bytes_max.max(object.to_vec().len());
        let narrow = move |mut converted: Vec<Value>| {
            let mut object = converted.pop().unwrap_or_default();
            definition.narrow_converted(&to, &mut object)?;
            check_weight(&definition, object.to_vec().len(), bytes_max)?;
            Ok(object)
        };
        Ok(self.ask(version, || Ok(vec![object]), narrow).await?)
    }

    /// Asks the webhook, and makes something of its answer. Objects are made when it can be asked, and what is answered is read
    /// before another may be: so many who wait hold little.
    async fn ask<T: Send + 'static>(
        &self,
        version: &str,
        objects: impl FnOnce() -> Result<Vec<Value>, Status>,
        finish: impl FnOnce(Vec<Value>) -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Refusal> {
        let Some(conversion) = &self.definition.conversion else { return Ok(finish(objects()?)?) };
        let review = conversion.review.ok_or(ConversionError::NoReview)?;
        let begun =
            self.webhooks.begin(&self.plane, Purpose::Conversion, &conversion.endpoint, TIMEOUT).await;
        let objects = Arc::new(objects()?);
        let failed = |why: String| ConversionError::failed(objects.first().unwrap_or(&Value::Null), why);
        let call = begun.map_err(failed)?;
        let uid = uuid::Uuid::new_v4().to_string();
        let desired = format!("{}/{version}", self.definition.group);
        let body = ask(Question { version: review, uid: &uid, desired: &desired }, &objects);
        let answer_max = ANSWER_BYTES_MIN + body.len().saturating_mul(ANSWER_TIMES_MAX);
        let answer = call.post(body).await.map_err(failed)?;
        if answer.len() > answer_max {
            let why = format!("the answer is longer than {answer_max} bytes");
            return Err(Refusal::TooLong(failed(why)));
        }
        if answer.len() <= INLINE_BYTES_MAX {
            let question = Question { version: review, uid: &uid, desired: &desired };
            return Ok(finish(read(question, &objects, &answer)?)?);
        }
        let _turn = self.webhooks.reading.take(self.plane.id).await;
        let originals = objects.clone();
        let work = move || {
            let question = Question { version: review, uid: &uid, desired: &desired };
            Ok(finish(read(question, &originals, &answer)?)?)
        };
        let read = tokio::task::spawn_blocking(work).await;
        read.map_err(|_| failed("the answer cannot be read".into()))?
    }
}

fn weight(records: &[Record]) -> usize {
    records.iter().map(Record::len).sum()
}

fn check_weight(definition: &ResourceDefinition, len: usize, bytes_max: usize) -> Result<(), Status> {
    if len <= bytes_max {
        return Ok(());
    }
    let (group, kind) = (&definition.group, &definition.kind);
    let text = format!(
        "conversion webhook for {kind}.{group} returned an object that is too large: {len} bytes, at most {bytes_max} are taken"
    );
    Err(Status::untyped(500, text))
}

/// Why there are no objects.
enum Refusal {
    Answer(ConversionError),
    TooLong(ConversionError),
    Status(Box<Status>),
}

impl Refusal {
    /// Whether there may be objects if fewer are asked for.
    fn is_about_objects(&self) -> bool {
        match self {
            Refusal::Answer(error) => error.is_about_objects(),
            Refusal::TooLong(_) => true,
            Refusal::Status(_) => false,
        }
    }
}

impl From<ConversionError> for Refusal {
    fn from(error: ConversionError) -> Refusal {
        Refusal::Answer(error)
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Refusal {
        Refusal::Status(Box::new(status))
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Status {
        match refusal {
            Refusal::Answer(error) | Refusal::TooLong(error) => Status::untyped(500, error.to_string()),
            Refusal::Status(status) => *status,
        }
    }
}

impl Registry {
    /// Whoever brings objects into the version of a request; `None` where no webhook is needed for that.
    pub(crate) fn converter(&self, context: &RequestContext, target: &Target) -> Option<Converter> {
        if target.definition.conversion.is_none() || context.reading == Reading::AsStored {
            return None;
        }
        Some(self.converter_of(context, target))
    }

    fn converter_of(&self, context: &RequestContext, target: &Target) -> Converter {
        Converter {
            webhooks: self.webhooks.clone(),
            plane: context.plane.clone(),
            definition: target.definition.clone(),
            version: target.version,
            bytes_max: self.converted_bytes_max(context),
        }
    }

    /// Twice what may be stored: whatever fits in one version fits in the others, if they say the same.
    fn converted_bytes_max(&self, context: &RequestContext) -> usize {
        let limit = match self.object_limit(context) {
            0 => OBJECT_BYTES,
            limit => limit.min(OBJECT_BYTES),
        };
        usize::try_from(2 * limit).unwrap_or(usize::MAX)
    }

    /// A stored object in the version of the request.
    pub(crate) async fn in_version(
        &self,
        context: &RequestContext,
        target: &Target,
        stored: Arc<StoredObject>,
    ) -> Result<Arc<StoredObject>, Status> {
        match self.converter(context, target).filter(|converter| converter.needs(&stored)) {
            Some(converter) => {
                self.may_wait(context)?;
                converter.one(stored).await
            }
            None => Ok(stored),
        }
    }

    /// The same, parsed, with kind and apiVersion.
    pub(crate) async fn read_client(
        &self,
        context: &RequestContext,
        target: &Target,
        stored: &Arc<StoredObject>,
    ) -> Result<Value, Status> {
        let stored = self.in_version(context, target, stored.clone()).await?;
        self.to_client(context, target, &stored)
    }

    /// An object in another version than it says, where a webhook converts.
    pub(crate) async fn convert(
        &self,
        context: &RequestContext,
        target: &Target,
        value: Value,
        version: &str,
    ) -> Result<Value, Status> {
        self.may_wait(context)?;
        self.converter_of(context, target).value(value, version).await
    }

    fn may_wait(&self, context: &RequestContext) -> Result<(), Status> {
        context.about_to_wait().or_else(|why| context.check_refusal().and(Err(Status::internal(why))))
    }

    /// The target in the version an object is stored in, for whoever must not depend on a webhook.
    pub(crate) fn stored_target<'t>(
        &self,
        context: &RequestContext,
        target: &'t Target,
        stored: &StoredObject,
    ) -> Cow<'t, Target> {
        let definition = &target.definition;
        if context.reading == Reading::Converted || definition.conversion.is_none() {
            return Cow::Borrowed(target);
        }
        let version = definition.version(definition.stored_version(&stored.record));
        Cow::Owned(Target { version: version.unwrap_or(target.version), ..target.clone() })
    }
}
