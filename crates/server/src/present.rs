//! Objects, lists and watch events in the form a client asked for: whole, as table rows, or metadata only.

use std::sync::Arc;

use bytes::Bytes;
use polder_model::value::write_string;
use polder_model::{Object, Status, Value, json};
use polder_registry::behavior::Print;
use polder_registry::list::ListAnswer;
use polder_registry::watch::ObjectChange;
use polder_registry::{Answered, Registry, RequestContext, Target};
use polder_store::{Event, StoredObject};

use crate::negotiate::Form;
use crate::table::{self, IncludeObject};

/// What presenting needs to know about a request.
pub(crate) struct Presenter<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) context: &'a RequestContext,
    pub(crate) target: &'a Target,
    pub(crate) form: Form,
    pub(crate) include: IncludeObject,
}

impl Presenter<'_> {
    /// One object.
    pub(crate) fn object(&self, body: Answered) -> Result<Vec<u8>, Status> {
        let mut out = Vec::new();
        match (self.form, body) {
            (Form::Whole | Form::Discovery, Answered::Stored(stored)) => {
                let version = self.context.plane.resource_version(stored.revision);
                stored.record.splice(&self.target.served().type_meta, version, &mut out);
            }
            (Form::Whole | Form::Discovery, Answered::Made(value)) => value.write(&mut out),
            (form, body) => {
                let value = match body {
                    Answered::Stored(stored) => {
                        self.registry.to_client(self.context, self.target, &stored)?
                    }
                    Answered::Made(value) => value,
                };
                match form {
                    Form::Table { v1beta1 } => {
                        let mut meta = Object::new();
                        if let Some(version) = value.at(&["metadata", "resourceVersion"]) {
                            meta.insert("resourceVersion", version.clone());
                        }
                        self.table(&[value], meta, v1beta1, true)?.write(&mut out);
                    }
                    _ => self.metadata(&value).write(&mut out),
                }
            }
        }
        Ok(out)
    }

    pub(crate) fn list(&self, list: &ListAnswer) -> Result<Vec<u8>, Status> {
        let meta = list_meta(list);
        match self.form {
            Form::Table { v1beta1 } => {
                let objects = self.values(&list.objects)?;
                Ok(self.table(&objects, meta, v1beta1, true)?.to_vec())
            }
            Form::Metadata { v1beta1 } => {
                let objects = self.values(&list.objects)?;
                let items: Vec<Value> = objects.iter().map(|object| self.metadata(object)).collect();
                let version = if v1beta1 { "meta.k8s.io/v1beta1" } else { "meta.k8s.io/v1" };
                let list = json!({
                    "kind": "PartialObjectMetadataList", "apiVersion": version, "metadata": meta, "items": items,
                });
                Ok(list.to_vec())
            }
            Form::Whole | Form::Discovery => self.whole_list(&list.objects, &meta),
        }
    }

    /// Copies stored bytes; only kinds that must be converted are parsed.
    fn whole_list(&self, objects: &[Arc<StoredObject>], meta: &Object) -> Result<Vec<u8>, Status> {
        let bytes: usize = objects.iter().map(|object| object.record.len() + 96).sum();
        let mut out = Vec::with_capacity(bytes + 256);
        list_head(self.target, meta, &mut out);
        let custom = self.target.definition.is_custom();
        let type_meta = item_type_meta(self.target);
        for (index, stored) in objects.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            match self.registry.answer(self.context, self.target, stored.clone())? {
                Answered::Stored(stored) => {
                    let version = self.context.plane.resource_version(stored.revision);
                    stored.record.splice(type_meta, version, &mut out);
                }
                Answered::Made(mut value) => {
                    if !custom {
                        value.remove_at(&["kind"]);
                        value.remove_at(&["apiVersion"]);
                    }
                    value.write(&mut out);
                }
            }
        }
        out.extend_from_slice(b"]}");
        Ok(out)
    }

    /// One line of a watch. Plain events are encoded once for all watchers of the same version.
    pub(crate) fn event(
        &self,
        change: ObjectChange,
        object: &Arc<StoredObject>,
        version: u64,
        event: Option<&Event>,
        first: bool,
    ) -> Result<Bytes, Status> {
        let kind = match change {
            ObjectChange::Added => "ADDED",
            ObjectChange::Modified => "MODIFIED",
            ObjectChange::Deleted => "DELETED",
        };
        if self.form == Form::Whole
            && let Answered::Stored(_) = self.registry.answer(self.context, self.target, object.clone())?
        {
            let encode = || {
                let mut out = Vec::with_capacity(object.record.len() + 128);
                out.extend_from_slice(b"{\"type\":\"");
                out.extend_from_slice(kind.as_bytes());
                out.extend_from_slice(b"\",\"object\":");
                object.record.splice(&self.target.served().type_meta, version, &mut out);
                out.extend_from_slice(b"}\n");
                Bytes::from(out)
            };
            return Ok(match event {
                Some(event) => event.frame(self.representation(change), encode),
                None => encode(),
            });
        }
        let mut value = self.registry.to_client(self.context, self.target, object)?;
        value.set_at(&["metadata", "resourceVersion"], version.to_string());
        let shown = match self.form {
            Form::Table { v1beta1 } => {
                let mut meta = Object::new();
                meta.insert("resourceVersion", version.to_string());
                self.table(&[value], meta, v1beta1, first)?
            }
            Form::Metadata { .. } => self.metadata(&value),
            Form::Whole | Form::Discovery => value,
        };
        Ok(line(kind, &shown))
    }

    pub(crate) fn bookmark(&self, version: u64, initial_end: bool) -> Bytes {
        let mut object = json!({
            "kind": (self.target.definition.kind.clone()), "apiVersion": (self.target.api_version()),
            "metadata": {"resourceVersion": (version.to_string())},
        });
        if initial_end {
            object.set_at(&["metadata", "annotations", "k8s.io/initial-events-end"], "true");
        }
        match self.form {
            Form::Table { v1beta1 } => {
                let mut meta = Object::new();
                meta.insert("resourceVersion", version.to_string());
                line("BOOKMARK", &table::empty(meta, v1beta1))
            }
            Form::Metadata { .. } => line("BOOKMARK", &self.metadata(&object)),
            Form::Whole | Form::Discovery => line("BOOKMARK", &object),
        }
    }

    fn representation(&self, change: ObjectChange) -> u64 {
        use std::hash::{Hash as _, Hasher as _};
        let mut hasher = std::hash::DefaultHasher::new();
        self.target.served().type_meta.hash(&mut hasher);
        self.context.plane.id.hash(&mut hasher);
        change.hash(&mut hasher);
        hasher.finish()
    }

    fn values(&self, objects: &[Arc<StoredObject>]) -> Result<Vec<Value>, Status> {
        objects.iter().map(|stored| self.registry.to_client(self.context, self.target, stored)).collect()
    }

    fn table(&self, objects: &[Value], meta: Object, v1beta1: bool, columns: bool) -> Result<Value, Status> {
        let print = Print { now: (self.registry.options.clock)() };
        Ok(table::table(self.target, objects, meta, v1beta1, columns, self.include, &print))
    }

    fn metadata(&self, object: &Value) -> Value {
        let v1beta1 = matches!(self.form, Form::Metadata { v1beta1: true });
        table::partial(object, v1beta1)
    }
}

pub(crate) fn list_meta(list: &ListAnswer) -> Object {
    let mut meta = Object::new();
    meta.insert("resourceVersion", list.resource_version.to_string());
    if let Some(token) = &list.continue_token {
        meta.insert("continue", token.as_str());
    }
    if let Some(remaining) = list.remaining {
        meta.insert("remainingItemCount", i64::try_from(remaining).unwrap_or(i64::MAX));
    }
    meta
}

/// Everything of a list in front of its first item.
pub(crate) fn list_head(target: &Target, meta: &Object, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"kind\":");
    write_string(&target.definition.list_kind, out);
    out.extend_from_slice(b",\"apiVersion\":");
    write_string(&target.api_version(), out);
    out.extend_from_slice(b",\"metadata\":");
    meta.write(out);
    out.extend_from_slice(b",\"items\":[");
}

/// Items of a typed list do not repeat their kind; those of a custom resource do.
pub(crate) fn item_type_meta(target: &Target) -> &[u8] {
    if target.definition.is_custom() { &target.served().type_meta } else { b"" }
}

pub(crate) fn line(kind: &str, object: &Value) -> Bytes {
    let mut out = Vec::with_capacity(256);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    object.write(&mut out);
    out.extend_from_slice(b"}\n");
    Bytes::from(out)
}
