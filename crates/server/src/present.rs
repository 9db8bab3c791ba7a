//! Objects, lists and watch events in the form a client asked for: whole, as table rows, or metadata only.

use std::sync::Arc;

use bytes::Bytes;
use polder_machinery::protobuf::envelope::{
    ListMessage, encode_envelope, encode_event, encode_event_with, envelope_part,
};
use polder_model::value::write_string;
use polder_model::{Object, Status, Value, json};
use polder_registry::behavior::Print;
use polder_registry::listing::Listing;
use polder_registry::watch::ObjectChange;
use polder_registry::{Answered, RequestContext, Target};
use polder_store::{Event, StoredObject};

use crate::State;
use crate::negotiate::{Form, Media};
use crate::protobuf;
use crate::table::{self, IncludeObject};

/// What presenting needs to know about a request.
pub(crate) struct Presenter<'a> {
    pub(crate) state: &'a State,
    pub(crate) context: &'a RequestContext,
    pub(crate) target: &'a Target,
    pub(crate) form: Form,
    pub(crate) media: Media,
    pub(crate) include: IncludeObject,
}

impl Presenter<'_> {
    /// One object.
    pub(crate) fn object(&self, body: Answered) -> Result<Vec<u8>, Status> {
        if self.media == Media::Protobuf {
            return self.object_message(body);
        }
        let mut out = Vec::new();
        match (self.form, body) {
            (Form::Whole | Form::Discovery, Answered::Stored(stored)) => {
                let version = self.context.plane.resource_version(stored.revision);
                let type_meta = &self.target.served().type_meta;
                // What is counted is what is there, with the line break that follows.
                out.reserve_exact(stored.record.len() + type_meta.len() + 64);
                stored.record.splice(type_meta, version, &mut out);
            }
            (Form::Whole | Form::Discovery, Answered::Made(value)) => value.write(&mut out),
            (form, body) => {
                let value = match body {
                    Answered::Stored(stored) => {
                        self.state.registry.to_client(self.context, self.target, &stored)?
                    }
                    Answered::Made(value) => value,
                };
                match form {
                    Form::Table { v1beta1 } => {
                        let mut meta = Object::new();
                        if let Some(version) = value.at(&["metadata", "resourceVersion"]) {
                            meta.insert("resourceVersion", version.clone());
                        }
                        self.table(&value, meta, v1beta1, true).write(&mut out);
                    }
                    _ => self.metadata(&value).write(&mut out),
                }
            }
        }
        Ok(out)
    }

    fn object_message(&self, body: Answered) -> Result<Vec<u8>, Status> {
        let mut out = Vec::new();
        let mut value = match body {
            Answered::Stored(stored) if self.is_whole_message() => {
                self.envelope(&self.part(&stored)?, &mut out);
                return Ok(out);
            }
            Answered::Stored(stored) => self.state.registry.to_client(self.context, self.target, &stored)?,
            Answered::Made(value) => value,
        };
        if matches!(self.form, Form::Metadata { .. }) {
            value = self.metadata(&value);
        }
        let message = protobuf::message(&value).ok_or_else(protobuf::no_message)?;
        encode_envelope(&value, message, &mut out);
        Ok(out)
    }

    /// Whether what is asked for is what stands in a message that was kept. Events are one thing in two groups, with a message in
    /// each, and are seldom read twice.
    fn is_whole_message(&self) -> bool {
        self.media == Media::Protobuf
            && matches!(self.form, Form::Whole)
            && !self.target.definition.is_custom()
            && self.target.definition.kind != "Event"
    }

    fn part(&self, stored: &StoredObject) -> Result<Bytes, Status> {
        self.state.messages.part(&self.state.registry, self.context, self.target, stored)
    }

    fn envelope(&self, part: &[u8], out: &mut Vec<u8>) {
        out.reserve(part.len() + 64);
        envelope_part(&self.target.api_version(), &self.target.definition.kind, part, out);
    }

    /// One item of a list, as JSON. Stored bytes are copied; only what must be converted or cut is parsed.
    pub(crate) fn item(
        &self,
        stored: &Arc<StoredObject>,
        print: &Print,
        out: &mut Vec<u8>,
    ) -> Result<(), Status> {
        let value = match self.form {
            Form::Table { v1beta1 } => {
                let object = self.state.registry.to_client(self.context, self.target, stored)?;
                table::row(self.target, &object, v1beta1, self.include, print)
            }
            Form::Metadata { .. } => {
                self.metadata(&self.state.registry.to_client(self.context, self.target, stored)?)
            }
            Form::Whole | Form::Discovery => {
                match self.state.registry.answer(self.context, self.target, stored.clone())? {
                    Answered::Stored(stored) => {
                        let version = self.context.plane.resource_version(stored.revision);
                        stored.record.splice(item_type_meta(self.target), version, out);
                        return Ok(());
                    }
                    Answered::Made(mut value) => {
                        if !self.target.definition.is_custom() {
                            value.remove_at(&["kind"]);
                            value.remove_at(&["apiVersion"]);
                        }
                        value
                    }
                }
            }
        };
        value.write(out);
        Ok(())
    }

    /// One item of a list in protobuf.
    pub(crate) fn item_message(
        &self,
        stored: &Arc<StoredObject>,
        list: ListMessage<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Status> {
        if self.is_whole_message() {
            out.extend_from_slice(&self.part(stored)?);
            return Ok(());
        }
        list.item(&self.state.registry.to_client(self.context, self.target, stored)?, out);
        Ok(())
    }

    /// A list without its items, as JSON: the name of the member where they belong, and the document with that
    /// member empty.
    pub(crate) fn list_frame(&self, meta: Object) -> (&'static str, Vec<u8>) {
        match self.form {
            Form::Table { v1beta1 } => ("rows", table::frame(self.target, meta, v1beta1).to_vec()),
            Form::Metadata { .. } => {
                let mut list = self.list_type();
                list.set_at(&["metadata"], meta);
                list.set_at(&["items"], Vec::<Value>::new());
                ("items", list.to_vec())
            }
            Form::Whole | Form::Discovery => {
                let mut meta = meta;
                if self.target.definition.is_custom() && !meta.contains_key("continue") {
                    // As upstream has it: lists of custom objects always say how to go on.
                    meta.insert("continue", "");
                }
                let mut out = Vec::with_capacity(256);
                out.extend_from_slice(b"{\"kind\":");
                write_string(&self.target.definition.list_kind, &mut out);
                out.extend_from_slice(b",\"apiVersion\":");
                write_string(&self.target.api_version(), &mut out);
                out.extend_from_slice(b",\"metadata\":");
                meta.write(&mut out);
                out.extend_from_slice(b",\"items\":[]}");
                ("items", out)
            }
        }
    }

    /// A list without its items, as it becomes a message.
    pub(crate) fn list_message(&self, meta: Object) -> Result<(Value, ListMessage<'static>), Status> {
        let mut list = self.list_type();
        list.set_at(&["metadata"], meta);
        let message = protobuf::message(&list).and_then(ListMessage::new).ok_or_else(protobuf::no_message)?;
        Ok((list, message))
    }

    fn list_type(&self) -> Value {
        match self.form {
            Form::Metadata { v1beta1 } => {
                let version = if v1beta1 { "meta.k8s.io/v1beta1" } else { "meta.k8s.io/v1" };
                json!({"apiVersion": version, "kind": "PartialObjectMetadataList"})
            }
            _ => {
                let (version, kind) = (self.target.api_version(), self.target.definition.list_kind.clone());
                json!({"apiVersion": version, "kind": kind})
            }
        }
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
        let answered = match (self.form, self.media) {
            (_, Media::Protobuf) => return self.event_message(kind, change, object, version, event),
            (Form::Whole, _) => self.state.registry.answer(self.context, self.target, object.clone())?,
            _ => Answered::Made(self.state.registry.to_client(self.context, self.target, object)?),
        };
        let Answered::Made(mut value) = answered else {
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
        };
        value.set_at(&["metadata", "resourceVersion"], version.to_string());
        let shown = match self.form {
            Form::Table { v1beta1 } => {
                let mut meta = Object::new();
                meta.insert("resourceVersion", version.to_string());
                self.table(&value, meta, v1beta1, first)
            }
            Form::Metadata { .. } => self.metadata(&value),
            Form::Whole | Form::Discovery => value,
        };
        Ok(frame(self.media, kind, &shown))
    }

    /// One frame of a watch in protobuf; encoded once for all, too.
    fn event_message(
        &self,
        kind: &str,
        change: ObjectChange,
        object: &Arc<StoredObject>,
        version: u64,
        event: Option<&Event>,
    ) -> Result<Bytes, Status> {
        let mut failure = None;
        // What was deleted tells when, which is not when it was written.
        let is_kept =
            self.is_whole_message() && version == self.context.plane.resource_version(object.revision);
        if event.is_none() && is_kept {
            let (part, mut out) = (self.part(object)?, Vec::new());
            encode_event_with(kind, &mut out, |out| self.envelope(&part, out));
            return Ok(Bytes::from(out));
        }
        let mut encode = || match self.state.registry.to_client(self.context, self.target, object) {
            Ok(mut value) => {
                value.set_at(&["metadata", "resourceVersion"], version.to_string());
                match self.form {
                    Form::Metadata { .. } => frame(self.media, kind, &self.metadata(&value)),
                    _ => frame(self.media, kind, &value),
                }
            }
            // What cannot be read here cannot be read for the others either: they may share this.
            Err(status) => {
                let bytes = frame(self.media, "ERROR", &status.to_value());
                failure = Some(status);
                bytes
            }
        };
        let bytes = match event {
            Some(event) => event.frame(self.representation(change), encode),
            None => encode(),
        };
        failure.map_or(Ok(bytes), Err)
    }

    /// `columns` with the first event of a stream only.
    pub(crate) fn bookmark(&self, version: u64, initial_end: bool, columns: bool) -> Bytes {
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
                // As upstream has it: a row of an object that is nothing but its metadata.
                frame(self.media, "BOOKMARK", &self.table(&object, meta, v1beta1, columns))
            }
            Form::Metadata { .. } => frame(self.media, "BOOKMARK", &self.metadata(&object)),
            Form::Whole | Form::Discovery => frame(self.media, "BOOKMARK", &object),
        }
    }

    fn representation(&self, change: ObjectChange) -> u64 {
        use std::hash::{Hash as _, Hasher as _};
        let mut hasher = std::hash::DefaultHasher::new();
        self.target.served().type_meta.hash(&mut hasher);
        self.context.plane.id.hash(&mut hasher);
        change.hash(&mut hasher);
        self.media.hash(&mut hasher);
        self.form.hash(&mut hasher);
        hasher.finish()
    }

    fn table(&self, object: &Value, meta: Object, v1beta1: bool, columns: bool) -> Value {
        let row = table::row(self.target, object, v1beta1, self.include, &self.print());
        let mut table =
            if columns { table::frame(self.target, meta, v1beta1) } else { table::empty(meta, v1beta1) };
        table.set_at(&["rows"], vec![row]);
        table
    }

    /// What cells need to know. One for a whole list, so that its ages are of one moment.
    pub(crate) fn print(&self) -> Print {
        Print { now: (self.state.registry.options.clock)() }
    }

    fn metadata(&self, object: &Value) -> Value {
        let v1beta1 = matches!(self.form, Form::Metadata { v1beta1: true });
        table::partial(object, v1beta1)
    }
}

pub(crate) fn list_meta(list: &Listing) -> Object {
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

/// Items of a typed list do not repeat their kind; those of a custom resource do.
fn item_type_meta(target: &Target) -> &[u8] {
    if target.definition.is_custom() { &target.served().type_meta } else { b"" }
}

/// One event of a watch: a line of JSON or a framed message.
pub(crate) fn frame(media: Media, kind: &str, object: &Value) -> Bytes {
    let mut out = Vec::with_capacity(256);
    if media == Media::Protobuf
        && let Some(message) = protobuf::message(object)
    {
        encode_event(kind, object, message, &mut out);
        return Bytes::from(out);
    }
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    object.write(&mut out);
    out.extend_from_slice(b"}\n");
    Bytes::from(out)
}
