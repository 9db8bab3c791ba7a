//! The few descriptions we publish for built-in types: what every object has. Upstream's texts are not ours to
//! copy; `kubectl explain` shows the rest without prose. The conformance suite looks for the opening words of
//! `apiVersion`, `metadata` and `creationTimestamp`.

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Members of every object.
pub(super) const API_VERSION: &str =
    "APIVersion defines which version of the schema this object follows, as group/version.";
pub(super) const KIND: &str = "Kind names the sort of object this is, in CamelCase.";
pub(super) const METADATA: &str = "Standard object's metadata.";
pub(super) const LIST_METADATA: &str = "Standard list metadata.";

const OBJECT_META_FIELDS: [(&str, &str); 15] = [
    ("annotations", "Notes that tools and people keep with the object. They cannot be selected by."),
    ("creationTimestamp", "CreationTimestamp is a timestamp the server sets when it creates the object."),
    ("deletionGracePeriodSeconds", "Seconds the object may take to go away. Set by the server on deletion."),
    ("deletionTimestamp", "When the object is to be gone. Set by the server once deletion was asked for."),
    ("finalizers", "Who must finish work before the object is removed. Each removes its own entry."),
    ("generateName", "Prefix from which the server makes a unique name when no name is given."),
    ("generation", "Counts changes of the desired state. Set by the server."),
    ("labels", "Names and values by which objects are grouped and selected."),
    ("managedFields", "Which manager owns which fields. Kept by the server for server-side apply."),
    ("name", "Name, unique among objects of the resource in one namespace. Cannot be changed."),
    ("namespace", "Namespace the object lives in; empty for cluster-scoped objects. Cannot be changed."),
    ("ownerReferences", "Objects this one belongs to. When all of them are gone it is deleted."),
    ("resourceVersion", "Opaque version of the object, for optimistic concurrency and watches."),
    ("selfLink", "No longer set."),
    ("uid", "Identity of this very object, never used again. Set by the server."),
];

/// Our text for a field, if there is one.
pub(super) fn field(type_name: &str, name: &str) -> Option<&'static str> {
    if type_name != OBJECT_META {
        return None;
    }
    OBJECT_META_FIELDS.iter().find(|(own, _)| *own == name).map(|(_, text)| *text)
}
