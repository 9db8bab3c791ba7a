//! RuntimeClass: what a pod's runtime costs beside its containers, and which nodes have it.

use polder_model::{GroupResource, Status, Value};

use crate::amounts;
use crate::attributes::{Attributes, Operations};
use crate::notes::Notes;
use crate::plugin::{Interest, Kind, Plugin, Verdict};
use crate::world::World;

pub(super) struct RuntimeClass;

const OTHER_OVERHEAD: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

impl Plugin for RuntimeClass {
    fn name(&self) -> &'static str {
        "RuntimeClass"
    }

    fn interest(&self, kind: Kind<'_>) -> Interest {
        let create = Operations::CREATE;
        Interest { admit: create, validate: create, ..Interest::NONE }.when(kind.is("", "pods"))
    }

    fn admit<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        pod: &'a mut Value,
        world: &'a dyn World,
        _notes: &'a mut Notes,
    ) -> Verdict<'a> {
        Box::pin(async move {
            let Some(class) = class(request, pod, world).await? else { return Ok(()) };
            set_overhead(request, pod, &class)?;
            set_scheduling(request, pod, &class)
        })
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a Value>,
        world: &'a dyn World,
        _notes: &'a mut Notes,
    ) -> Verdict<'a> {
        Box::pin(async move {
            let Some(pod) = object.filter(|_| request.is_whole()) else { return Ok(()) };
            let class = class(request, pod, world).await?;
            let fixed = class.as_ref().and_then(|class| class.get("overhead")).map(|own| own.get("podFixed"));
            let own = pod.at(&["spec", "overhead"]);
            match fixed {
                Some(fixed) if amounts::read(fixed) != amounts::read(own) => {
                    Err(request.forbidden(OTHER_OVERHEAD))
                }
                None if own.is_some_and(|own| !own.is_null()) => Err(request.forbidden(
                    "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
                )),
                _ => Ok(()),
            }
        })
    }
}

async fn class(request: &Attributes<'_>, pod: &Value, world: &dyn World) -> Result<Option<Value>, Status> {
    let name = pod.str_at(&["spec", "runtimeClassName"]).filter(|_| request.is_whole());
    let Some(name) = name else { return Ok(None) };
    match world.get(&GroupResource::new("node.k8s.io", "runtimeclasses"), "", name).await? {
        Some(found) => Ok(Some(found.value)),
        None => Err(request.forbidden(format!("pod rejected: RuntimeClass {name:?} not found"))),
    }
}

fn set_overhead(request: &Attributes<'_>, pod: &mut Value, class: &Value) -> Result<(), Status> {
    let Some(overhead) = class.get("overhead").filter(|overhead| !overhead.is_null()) else { return Ok(()) };
    let fixed = overhead.get("podFixed").cloned().unwrap_or_default();
    let own = amounts::read(pod.at(&["spec", "overhead"]));
    if !own.is_empty() && own != amounts::read(Some(&fixed)) {
        return Err(request.forbidden(OTHER_OVERHEAD));
    }
    pod.set_at(&["spec", "overhead"], fixed);
    Ok(())
}

fn set_scheduling(request: &Attributes<'_>, pod: &mut Value, class: &Value) -> Result<(), Status> {
    let Some(scheduling) = class.get("scheduling") else { return Ok(()) };
    let selector = scheduling.get("nodeSelector").and_then(Value::as_object);
    for (key, value) in selector.into_iter().flat_map(|selector| selector.iter()) {
        let wanted = value.as_str().unwrap_or_default();
        if let Some(own) = pod.str_at(&["spec", "nodeSelector", key]).filter(|own| *own != wanted) {
            return Err(request.forbidden(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {wanted}; pod.spec.nodeSelector[{key}] = {own}"
            )));
        }
        pod.set_at(&["spec", "nodeSelector", key], value.clone());
    }
    let mut tolerations = pod.array_at(&["spec", "tolerations"]).to_vec();
    let len = tolerations.len();
    for more in scheduling.array_at(&["tolerations"]) {
        if !tolerations.contains(more) {
            tolerations.push(more.clone());
        }
    }
    if tolerations.len() > len {
        pod.set_at(&["spec", "tolerations"], tolerations);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Operation;
    use crate::fake::{Fake, Request};

    #[track_caller]
    fn check(pod: &str, expected: &str) {
        let class = r#"{"metadata":{"name":"kata"},"overhead":{"podFixed":{"cpu":"1"}},
            "scheduling":{"nodeSelector":{"runtime":"kata"},"tolerations":[{"key":"kata"}]}}"#;
        let world = Fake::of(&[("runtimeclasses.node.k8s.io", class)]);
        let request =
            Request { plugin: &RuntimeClass, world: &world, path: "pods", operation: Operation::Create };
        let shown = request.admit(pod, None).and_then(|pod| {
            request.validate(&pod.to_string(), None)?;
            Ok(pod.at(&["spec"]).cloned().unwrap_or_default().to_string())
        });
        assert_eq!(shown.unwrap_or_else(|refusal| refusal), expected);
    }

    #[test]
    fn rows() {
        check(r#"{"spec":{}}"#, "{}");
        check(
            r#"{"spec":{"runtimeClassName":"kata","tolerations":[{"key":"a"}]}}"#,
            r#"{"nodeSelector":{"runtime":"kata"},"overhead":{"cpu":"1"},"runtimeClassName":"kata","tolerations":[{"key":"a"},{"key":"kata"}]}"#,
        );
        check(
            r#"{"spec":{"runtimeClassName":"gvisor"}}"#,
            r#"pods "x" is forbidden: pod rejected: RuntimeClass "gvisor" not found"#,
        );
        check(
            r#"{"spec":{"runtimeClassName":"kata","overhead":{"cpu":"2"}}}"#,
            r#"pods "x" is forbidden: pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"#,
        );
        check(
            r#"{"spec":{"overhead":{"cpu":"2"}}}"#,
            r#"pods "x" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"#,
        );
        check(
            r#"{"spec":{"runtimeClassName":"kata","nodeSelector":{"runtime":"runc"}}}"#,
            r#"pods "x" is forbidden: conflict: runtimeClass.scheduling.nodeSelector[runtime] = kata; pod.spec.nodeSelector[runtime] = runc"#,
        );
    }
}
