//! StorageObjectInUseProtection: volumes, claims and classes of volume attributes are not gone while somebody uses them.
//!
//! A finalizer holds each from its creation on; whoever knows that nobody uses it any more takes the finalizer away.

use polder_model::Value;

use crate::attributes::{Attributes, Operations};
use crate::notes::Notes;
use crate::plugin::{Interest, Kind, Plugin, Verdict, done};
use crate::world::World;

pub(super) struct StorageObjectInUseProtection;

const HELD: [(&str, &str, &str); 3] = [
    ("", "persistentvolumes", "kubernetes.io/pv-protection"),
    ("", "persistentvolumeclaims", "kubernetes.io/pvc-protection"),
    ("storage.k8s.io", "volumeattributesclasses", "kubernetes.io/vac-protection"),
];

impl Plugin for StorageObjectInUseProtection {
    fn name(&self) -> &'static str {
        "StorageObjectInUseProtection"
    }

    fn interest(&self, kind: Kind<'_>) -> Interest {
        let held = HELD.iter().any(|(group, resource, _)| kind.is(group, resource));
        Interest::admit(Operations::CREATE).when(held)
    }

    fn admit<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: &'a mut Value,
        _world: &'a dyn World,
        _notes: &'a mut Notes,
    ) -> Verdict<'a> {
        let held = HELD.iter().find(|(group, resource, _)| request.is(group, resource));
        if let Some((_, _, finalizer)) = held.filter(|_| request.is_whole()) {
            let mut finalizers = object.array_at(&["metadata", "finalizers"]).to_vec();
            if !finalizers.iter().any(|own| own.as_str() == Some(finalizer)) {
                finalizers.push((*finalizer).into());
                object.set_at(&["metadata", "finalizers"], finalizers);
            }
        }
        done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Operation;
    use crate::fake::{Fake, Request, parse};

    #[test]
    fn what_may_be_used_is_held_once() {
        #[track_caller]
        fn check(path: &str, object: &str, expected: &str) {
            let world = Fake::default();
            let plugin = &StorageObjectInUseProtection;
            let request = Request { plugin, world: &world, path, operation: Operation::Create };
            assert_eq!(request.admit(object, None), Ok(parse(expected)), "{path}");
        }
        let pv = r#"{"metadata":{"finalizers":["kubernetes.io/pv-protection"]}}"#;
        check("persistentvolumes", "{}", pv);
        check("persistentvolumes", pv, pv);
        check(
            "persistentvolumeclaims",
            r#"{"metadata":{"finalizers":["a/b"]}}"#,
            r#"{"metadata":{"finalizers":["a/b","kubernetes.io/pvc-protection"]}}"#,
        );
        check(
            "volumeattributesclasses.storage.k8s.io",
            "{}",
            r#"{"metadata":{"finalizers":["kubernetes.io/vac-protection"]}}"#,
        );
        check("persistentvolumeclaims/status", "{}", "{}");
    }
}
