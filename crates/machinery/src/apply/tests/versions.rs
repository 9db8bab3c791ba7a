//! Kinds of several versions, one of which calls a field by another name.

use super::*;

const V1: &str = r#"{"type":"object","properties":{"size":{"type":"integer"},"n":{"type":"integer"}}}"#;
const V2: &str = r#"{"type":"object","properties":{"count":{"type":"integer"},"n":{"type":"integer"}}}"#;

struct Two {
    v1: Schema,
    v2: Schema,
}

impl Versions for Two {
    fn view<'v>(&'v self, object: &'v Value, api_version: &str) -> Option<View<'v>> {
        let (schema, old_name, new_name) = match api_version {
            "test.dev/v1" => (&self.v1, "count", "size"),
            "test.dev/v2" => (&self.v2, "size", "count"),
            _ => return None,
        };
        if object.str_at(&["apiVersion"]) == Some(api_version) {
            return Some(View { schema: schema.node(), object: Cow::Borrowed(object) });
        }
        let mut converted = object.clone();
        converted.set_at(&["apiVersion"], api_version);
        if let Some(value) = converted.remove_at(&[old_name]) {
            converted.set_at(&[new_name], value);
        }
        Some(View { schema: schema.node(), object: Cow::Owned(converted) })
    }
}

/// An object of the kind, seen in whichever version is asked for.
struct TwoVersions {
    versions: Two,
    live: Value,
}

impl TwoVersions {
    fn new() -> TwoVersions {
        TwoVersions { versions: Two { v1: schema_of(V1), v2: schema_of(V2) }, live: blank() }
    }

    /// Writes in a version; `None` as force is an update.
    fn write(
        &mut self,
        manager: &str,
        version: &str,
        fields: &str,
        force: Option<Force>,
    ) -> Result<(), String> {
        let api_version = format!("test.dev/{version}");
        let untracked = Untracked::new(&[]);
        let view = self.versions.view(&self.live, &api_version).unwrap();
        let writer = Writer {
            manager,
            subresource: "",
            api_version: &api_version,
            kind: "Thing",
            schema: view.schema,
            now: "2026-01-01T00:00:00Z",
            untracked: &untracked,
            schema_may_change: true,
            versions: &self.versions,
        };
        let mut body = object(fields);
        body.set_at(&["apiVersion"], api_version.as_str());
        let new = match force {
            Some(force) => {
                apply(&writer, &view.object, &blank(), &body, force).map_err(|error| error.to_string())?
            }
            None => {
                updated(&writer, &view.object, &mut body);
                body
            }
        };
        keeps_invariants(&new);
        self.live = new;
        Ok(())
    }

    #[track_caller]
    fn check(&self, fields: &str, owners: &str) {
        let v1 = self.versions.view(&self.live, "test.dev/v1").unwrap();
        assert_eq!(shown(&v1.object), relaxed(fields).to_string());
        let entries =
            decode(self.live.array_at(&["metadata", "managedFields"]).to_vec(), Origin::Stored).unwrap();
        let entry = |entry: &Entry| format!("{} {}", entry.manager, entry.fields.paths().join(" "));
        assert_eq!(entries.iter().map(entry).collect::<Vec<_>>().join(", "), owners);
    }
}

#[test]
fn ownership_is_seen_through_versions() {
    let mut object = TwoVersions::new();
    object.write("bob", "v1", "{size: 1, n: 1}", Some(Force::Refuse)).unwrap();
    object.check("{n: 1, size: 1}", "bob .n .size");
    assert_eq!(
        object.write("amy", "v2", "{count: 2}", Some(Force::Refuse)).unwrap_err(),
        r#"Apply failed with 1 conflict: conflict with "bob": .size"#
    );
    object.write("amy", "v2", "{count: 1}", Some(Force::Refuse)).unwrap();
    object.check("{n: 1, size: 1}", "amy .count, bob .n .size");
    object.write("kube", "v2", "{count: 1, n: 2}", None).unwrap();
    object.check("{n: 2, size: 1}", "amy .count, bob .size, kube .n");
    // What bob said in one version and does not say in the other goes, when nobody else owns it.
    object.write("amy", "v2", "{}", Some(Force::Refuse)).unwrap();
    object.check("{n: 2, size: 1}", "bob .size, kube .n");
    object.write("bob", "v2", "{}", Some(Force::Refuse)).unwrap();
    object.check("{n: 2}", "kube .n");
}

#[test]
fn what_was_said_in_one_version_is_said_in_another() {
    let mut object = TwoVersions::new();
    object.write("bob", "v1", "{size: 1, n: 1}", Some(Force::Refuse)).unwrap();
    object.write("bob", "v2", "{count: 1}", Some(Force::Refuse)).unwrap();
    object.check("{size: 1}", "bob .count");
    object.write("amy", "v1", "{size: 3}", Some(Force::Take)).unwrap();
    object.check("{size: 3}", "amy .size");
}
