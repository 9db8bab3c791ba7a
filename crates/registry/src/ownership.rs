//! Who owns which fields: what the registry tells [`polder_machinery::apply`] about a write.
//!
//! Every write that a client asks for is noted, in the name it gives (`fieldManager`) or that of its program. What the
//! registry does by itself (marking, finalizing, allocating) is nobody's. Where a webhook converts, it is asked for the views of
//! the versions in which others own something.

use std::borrow::Cow;
use std::sync::LazyLock;

use polder_machinery::apply::{self, ApplyError, Force, Untracked, Versions, View, Writer};
use polder_machinery::schema::table::builtin;
use polder_model::{GroupVersion, Object, Reason, SmolStr, Status, Value};

use crate::context::{RequestContext, WriteOptions};
use crate::conversion::Views;
use crate::definition::{ResourceDefinition, Target};
use crate::registry::Registry;

static NOTHING: Value = Value::Object(Object::new());

impl Registry {
    /// Notes that a client made this object.
    pub(crate) async fn note_created(
        &self,
        context: &RequestContext,
        target: &Target,
        new: &mut Value,
        options: &WriteOptions,
    ) {
        self.note(context, target, new, |views, new| {
            let now = self.now();
            with_writer(target, options, &now, views, |writer| apply::created(writer, blank(target), new));
        })
        .await;
    }

    /// Notes what a client changed. `new` is what the client wants, before anything is put back.
    pub(crate) async fn note_updated(
        &self,
        context: &RequestContext,
        target: &Target,
        old: &Value,
        new: &mut Value,
        options: &WriteOptions,
    ) {
        self.note_updated_at(context, target, (old, new), options, &self.now()).await;
    }

    async fn note_updated_at(
        &self,
        context: &RequestContext,
        target: &Target,
        (old, new): (&Value, &mut Value),
        options: &WriteOptions,
        now: &str,
    ) {
        self.note(context, target, new, |views, new| {
            with_writer(target, options, now, views, |writer| apply::updated(writer, old, new));
        })
        .await;
    }

    /// Notes that a client changed the number behind the scale of an object. As upstream does it: only where somebody owns that
    /// number, and without a time.
    pub(crate) async fn note_scaled(
        &self,
        context: &RequestContext,
        target: &Target,
        path: &[SmolStr],
        (old, new): (&Value, &mut Value),
        options: &WriteOptions,
    ) {
        if apply::is_owned(old, path) {
            self.note_updated_at(context, target, (old, new), options, "").await;
        }
    }

    /// The object with what a client applies, and who owns it. `live` is `None` for an object that is not there.
    pub(crate) async fn applied(
        &self,
        context: &RequestContext,
        target: &Target,
        live: Option<&Value>,
        intent: &Value,
        force: Force,
        options: &WriteOptions,
    ) -> Result<Value, Status> {
        let (live, blank) = match live {
            Some(live) => (live, blank(target)),
            None => (&NOTHING, &NOTHING),
        };
        let now = self.now();
        let merge = |views: &Views| {
            with_writer(target, options, &now, views, |writer| {
                apply::apply(writer, live, blank, intent, force)
            })
        };
        self.with_views(context, target, merge).await?.map_err(refused)
    }

    /// As upstream has it: if other versions cannot be looked at, nobody owns anything.
    async fn note(
        &self,
        context: &RequestContext,
        target: &Target,
        new: &mut Value,
        note: impl Fn(&Views, &mut Value),
    ) {
        if self.converter(context, target).is_none() {
            return note(&Views::default(), new);
        }
        let noted = |views: &Views| {
            let mut noted = new.clone();
            note(views, &mut noted);
            noted
        };
        match self.with_views(context, target, noted).await {
            Ok(noted) => *new = noted,
            Err(_) => drop(new.remove_at(&["metadata", "managedFields"])),
        }
    }
}

fn refused(error: ApplyError) -> Status {
    let text = error.to_string();
    match error {
        ApplyError::Kind(_) | ApplyError::ManagedFields => Status::bad_request(text),
        ApplyError::Entries(_) | ApplyError::Unfit { .. } => Status::untyped(500, text),
        ApplyError::Conflicts(conflicts) => {
            let mut status = Status::untyped(409, text);
            status.reason = Some(Reason::Conflict);
            conflicts.causes().into_iter().fold(status, |status, cause| {
                status.with_cause("FieldManagerConflict", cause.message, cause.field)
            })
        }
    }
}

fn with_writer<T>(
    target: &Target,
    options: &WriteOptions,
    now: &str,
    views: &Views,
    write: impl FnOnce(&Writer<'_>) -> T,
) -> T {
    write(&Writer {
        manager: options.field_manager.as_deref().unwrap_or_default(),
        subresource: &target.subresource,
        api_version: &target.api_version(),
        kind: &target.definition.kind,
        schema: target.served().schema.node(),
        now,
        untracked: untracked(target),
        schema_may_change: target.definition.is_custom(),
        versions: &KindVersions { definition: &target.definition, views },
    })
}

/// What an object of the kind looks like before anybody sets a field.
fn blank(target: &Target) -> &'static Value {
    if target.definition.is_custom() {
        return &NOTHING;
    }
    builtin().blank(&target.served().type_name).unwrap_or(&NOTHING)
}

/// Kinds whose endpoints ignore other fields than most: a kind, an endpoint, fields.
const IGNORED: [(&str, &str, &[&[&str]]); 14] = [
    ("CertificateSigningRequest", "", &[&["spec"], &["status"]]),
    ("CertificateSigningRequest", "status", &[&["spec"], &["status", "conditions"]]),
    ("CertificateSigningRequest", "approval", &[&["spec"], &["status", "certificate"]]),
    ("Deployment", "status", &[&["spec"], &["metadata", "labels"]]),
    ("Pod", "status", &[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]]),
    ("APIService", "status", &[&["spec"], &["metadata"]]),
    ("CustomResourceDefinition", "status", &[&["spec"], &["metadata"]]),
    ("FlowSchema", "status", &[&["spec"], &["metadata"]]),
    ("PriorityLevelConfiguration", "status", &[&["spec"], &["metadata"]]),
    ("ResourceClaim", "status", &[&["spec"], &["metadata"]]),
    ("ValidatingAdmissionPolicy", "status", &[&["spec"], &["metadata"]]),
    ("VolumeAttachment", "status", &[&["spec"], &["metadata"]]),
    // Everybody else: a status endpoint ignores the spec, the object itself the status.
    ("", "status", &[&["spec"]]),
    ("", "", &[&["status"]]),
];

/// What this endpoint ignores is nobody's.
fn untracked(target: &Target) -> &'static Untracked {
    static SETS: LazyLock<Vec<Untracked>> =
        LazyLock::new(|| IGNORED.iter().map(|(_, _, fields)| Untracked::new(fields)).collect());
    static NOTHING_IGNORED: LazyLock<Untracked> = LazyLock::new(|| Untracked::new(&[]));
    let definition = &target.definition;
    if target.subresource == "scale" || target.served().subresource("status").is_none() {
        return &NOTHING_IGNORED;
    }
    let endpoint = match target.subresource.as_str() {
        part @ ("status" | "approval") => part,
        _ => "",
    };
    let kind = if definition.is_custom() { "" } else { definition.kind.as_str() };
    let own = IGNORED.iter().position(|(of, at, _)| *of == kind && *at == endpoint);
    let of_all = || IGNORED.iter().position(|(of, at, _)| of.is_empty() && *at == endpoint);
    own.or_else(of_all).map_or(&NOTHING_IGNORED, |at| &SETS[at])
}

struct KindVersions<'a> {
    definition: &'a ResourceDefinition,
    views: &'a Views,
}

impl Versions for KindVersions<'_> {
    fn view<'v>(&'v self, object: &'v Value, api_version: &str) -> Option<View<'v>> {
        let definition = self.definition;
        let to = GroupVersion::parse(api_version).filter(|version| version.group == definition.group)?;
        let schema = definition.versions[definition.version(&to.version)?].schema.node();
        let from = object.str_at(&["apiVersion"]).unwrap_or_default();
        if from != api_version && self.views.asks() {
            let object = self.views.view(object, &to.version)?;
            return Some(View { schema, object: Cow::Owned(object) });
        }
        // Versions of a custom resource differ only in their apiVersion, and that nobody owns.
        if from == api_version || definition.is_custom() {
            return Some(View { schema, object: Cow::Borrowed(object) });
        }
        let mut converted = object.clone();
        (definition.behavior.convert)(&mut converted, from, api_version);
        converted.set_at(&["apiVersion"], SmolStr::new(api_version));
        Some(View { schema, object: Cow::Owned(converted) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_ignore_other_fields_exist() {
        for (kind, endpoint, _) in IGNORED.iter().filter(|(kind, ..)| !kind.is_empty()) {
            let resource = builtin().resources.iter().find(|resource| resource.kind == *kind);
            let resource = resource.unwrap_or_else(|| panic!("{kind} is no kind"));
            let parts = &resource.subresources;
            assert!(
                endpoint.is_empty() || parts.iter().any(|part| part.name == *endpoint),
                "{kind} {endpoint}"
            );
        }
    }
}
