//! PersistentVolumeClaimResize: a claim grows only where its class says that volumes can.

use polder_model::quantity::Quantity;
use polder_model::{GroupResource, Value};

use crate::attributes::{Attributes, Operations};
use crate::notes::Notes;
use crate::plugin::{Interest, Kind, Plugin, Verdict};
use crate::quota::usage::storage_class;
use crate::world::World;

pub(super) struct PersistentVolumeClaimResize;

impl Plugin for PersistentVolumeClaimResize {
    fn name(&self) -> &'static str {
        "PersistentVolumeClaimResize"
    }

    fn interest(&self, kind: Kind<'_>) -> Interest {
        Interest::validate(Operations::UPDATE).when(kind.is("", "persistentvolumeclaims"))
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a Value>,
        world: &'a dyn World,
        _notes: &'a mut Notes,
    ) -> Verdict<'a> {
        Box::pin(async move {
            let (Some(claim), Some(old), true) = (object, request.old, request.is_whole()) else {
                return Ok(());
            };
            if size(claim) <= size(old) {
                return Ok(());
            }
            if old.str_at(&["status", "phase"]) != Some("Bound") {
                return Err(request.forbidden("Only bound persistent volume claims can be expanded"));
            }
            let class = storage_class(claim);
            let classes = GroupResource::new("storage.k8s.io", "storageclasses");
            let found = match class == storage_class(old) && !class.is_empty() {
                true => world.get(&classes, "", class).await?,
                false => None,
            };
            let grows =
                |class: &Value| class.get("allowVolumeExpansion").and_then(Value::as_bool) == Some(true);
            if found.is_some_and(|found| grows(&found.value)) {
                return Ok(());
            }
            Err(request.forbidden(
                "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must \
                 support resize",
            ))
        })
    }
}

fn size(claim: &Value) -> Quantity {
    let size = claim.at(&["spec", "resources", "requests", "storage"]);
    size.and_then(|size| Quantity::from_value(size).ok()).unwrap_or_else(|| Quantity::from_i64(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Operation;
    use crate::fake::{Fake, Request};

    #[test]
    fn rows() {
        #[track_caller]
        fn check(class: &str, phase: &str, size: &str, expected: Option<&str>) {
            let world = Fake::of(&[
                (
                    "storageclasses.storage.k8s.io",
                    r#"{"metadata":{"name":"grows"},"allowVolumeExpansion":true}"#,
                ),
                ("storageclasses.storage.k8s.io", r#"{"metadata":{"name":"fixed"}}"#),
            ]);
            let (plugin, path) = (&PersistentVolumeClaimResize, "persistentvolumeclaims");
            let request = Request { plugin, world: &world, path, operation: Operation::Update };
            let claim = |size: &str| {
                format!(
                    r#"{{"metadata":{{"name":"c"}},"spec":{{"storageClassName":"{class}","resources":{{"requests":{{"storage":"{size}"}}}}}},"status":{{"phase":"{phase}"}}}}"#
                )
            };
            assert_eq!(request.validate(&claim(size), Some(&claim("2Gi"))).err().as_deref(), expected);
        }
        check("grows", "Bound", "3Gi", None);
        check("fixed", "Bound", "2Gi", None);
        check("fixed", "Bound", "1Gi", None);
        let refusal = r#"persistentvolumeclaims "c" is forbidden: only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"#;
        for class in ["fixed", "missing", ""] {
            check(class, "Bound", "3Gi", Some(refusal));
        }
        let unbound =
            r#"persistentvolumeclaims "c" is forbidden: Only bound persistent volume claims can be expanded"#;
        check("grows", "Pending", "3Gi", Some(unbound));
    }
}
