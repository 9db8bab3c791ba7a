//! DefaultStorageClass: a claim that names no class gets the default one.

use polder_model::{GroupResource, Status, Value};

use crate::attributes::{Attributes, Operations};
use crate::notes::Notes;
use crate::plugin::{Interest, Kind, Plugin, Verdict};
use crate::world::World;

pub(super) struct DefaultStorageClass;

const DEFAULT: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

impl Plugin for DefaultStorageClass {
    fn name(&self) -> &'static str {
        "DefaultStorageClass"
    }

    fn interest(&self, kind: Kind<'_>) -> Interest {
        Interest::admit(Operations::CREATE).when(kind.is("", "persistentvolumeclaims"))
    }

    fn admit<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        claim: &'a mut Value,
        world: &'a dyn World,
        _notes: &'a mut Notes,
    ) -> Verdict<'a> {
        Box::pin(async move {
            let annotated =
                claim.at(&["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"]).is_some();
            // An empty name is a choice too: none at all.
            let named = claim.at(&["spec", "storageClassName"]).is_some_and(|name| !name.is_null());
            if !request.is_whole() || annotated || named {
                return Ok(());
            }
            let classes = GroupResource::new("storage.k8s.io", "storageclasses");
            if let Some(name) = newest_default(&classes, &DEFAULT, world).await? {
                claim.set_at(&["spec", "storageClassName"], name);
            }
            Ok(())
        })
    }
}

/// The name of the class that an annotation marks as the default; of several, the one made last.
pub(super) async fn newest_default(
    classes: &GroupResource,
    marks: &[&str],
    world: &dyn World,
) -> Result<Option<String>, Status> {
    let text = |class: &Value, field: &str| class.str_at(&["metadata", field]).unwrap_or_default().to_owned();
    let mut newest: Option<(String, String)> = None;
    for found in world.list(classes, "").await? {
        let class = found.value;
        if !marks.iter().any(|mark| class.str_at(&["metadata", "annotations", mark]) == Some("true")) {
            continue;
        }
        // Times of one form sort as texts; of two made in the same second, the first by name.
        let (made, name) = (text(&class, "creationTimestamp"), text(&class, "name"));
        if newest.as_ref().is_none_or(|(other, first)| made > *other || (made == *other && name < *first)) {
            newest = Some((made, name));
        }
    }
    Ok(newest.map(|(_, name)| name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Operation;
    use crate::fake::{Fake, Request};

    #[test]
    fn rows() {
        #[track_caller]
        fn check(claim: &str, expected: &str) {
            let class = |name: &str, made: &str, default: &str| {
                format!(
                    r#"{{"metadata":{{"name":"{name}","creationTimestamp":"{made}","annotations":{{"storageclass.kubernetes.io/is-default-class":"{default}"}}}}}}"#
                )
            };
            let classes = [
                class("old", "2026-01-01T00:00:00Z", "true"),
                class("b", "2026-01-02T00:00:00Z", "true"),
                class("a", "2026-01-02T00:00:00Z", "true"),
                class("no", "2026-01-03T00:00:00Z", "false"),
            ];
            let world = classes.each_ref().map(|class| ("storageclasses.storage.k8s.io", class.as_str()));
            let (plugin, world) = (&DefaultStorageClass, Fake::of(&world));
            let path = "persistentvolumeclaims";
            let request = Request { plugin, world: &world, path, operation: Operation::Create };
            assert_eq!(request.admit(claim, None).unwrap().to_string(), expected);
        }
        check(r#"{"spec":{}}"#, r#"{"spec":{"storageClassName":"a"}}"#);
        check(r#"{"spec":{"storageClassName":""}}"#, r#"{"spec":{"storageClassName":""}}"#);
        let annotated = r#"{"metadata":{"annotations":{"volume.beta.kubernetes.io/storage-class":"x"}}}"#;
        check(annotated, annotated);
    }
}
