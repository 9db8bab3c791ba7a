//! PodTopologyLabels: a pod knows zone and region of the node it is on, as its own labels.

use polder_model::{GroupResource, Status, Value};

use crate::attributes::{Attributes, Operations};
use crate::notes::Notes;
use crate::plugin::{Interest, Kind, Plugin, Verdict, done};
use crate::world::World;

pub(super) struct PodTopologyLabels;

const COPIED: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

impl Plugin for PodTopologyLabels {
    fn name(&self) -> &'static str {
        "PodTopologyLabels"
    }

    fn interest(&self, kind: Kind<'_>) -> Interest {
        Interest::admit(Operations::CREATE).when(kind.is("", "pods"))
    }

    fn admit<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: &'a mut Value,
        world: &'a dyn World,
        _notes: &'a mut Notes,
    ) -> Verdict<'a> {
        let node = match request.subresource {
            "" => object.str_at(&["spec", "nodeName"]),
            "binding" if object.str_at(&["target", "kind"]) == Some("Node") => {
                object.str_at(&["target", "name"])
            }
            _ => None,
        };
        match node.filter(|node| !node.is_empty()).map(str::to_owned) {
            Some(node) => Box::pin(copy(node, object, world)),
            None => done(),
        }
    }
}

/// A node that is not there has no labels.
async fn copy(node: String, object: &mut Value, world: &dyn World) -> Result<(), Status> {
    let Some(found) = world.get(&GroupResource::new("", "nodes"), "", &node).await? else { return Ok(()) };
    for label in COPIED {
        if let Some(value) = found.value.at(&["metadata", "labels", label]) {
            object.set_at(&["metadata", "labels", label], value.clone());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Operation;
    use crate::fake::{Fake, Request, parse};

    #[test]
    fn zone_and_region_come_from_the_node() {
        let world = Fake::of(&[(
            "nodes",
            r#"{"metadata":{"name":"n","labels":{"topology.kubernetes.io/zone":"a","other":"b"}}}"#,
        )]);
        // Nodes are in no namespace.
        let check = |path: &str, object: &str, expected: &str| {
            let request =
                Request { plugin: &PodTopologyLabels, world: &world, path, operation: Operation::Create };
            assert_eq!(request.admit(object, None), Ok(parse(expected)), "{path} {object}");
        };
        let bound = r#"{"target":{"kind":"Node","name":"n"}}"#;
        let labeled = r#","metadata":{"labels":{"topology.kubernetes.io/zone":"a"}}}"#;
        check("pods/binding", bound, &format!("{}{labeled}", &bound[..bound.len() - 1]));
        check("pods/binding", r#"{"target":{"name":"n"}}"#, r#"{"target":{"name":"n"}}"#);
        check(
            "pods",
            r#"{"metadata":{"labels":{"topology.kubernetes.io/zone":"z"}},"spec":{"nodeName":"n"}}"#,
            r#"{"metadata":{"labels":{"topology.kubernetes.io/zone":"a"}},"spec":{"nodeName":"n"}}"#,
        );
        check("pods", r#"{"spec":{"nodeName":"gone"}}"#, r#"{"spec":{"nodeName":"gone"}}"#);
        check("pods", r#"{"spec":{}}"#, r#"{"spec":{}}"#);
    }
}
