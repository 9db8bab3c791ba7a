//! Priority: the number behind a pod's priority class; and there is one default class.

use polder_model::{GroupResource, Status, Value};

use crate::attributes::{Attributes, Operations};
use crate::notes::Notes;
use crate::plugin::{Interest, Kind, Plugin, Verdict};
use crate::world::World;

pub(super) struct Priority;

impl Plugin for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn interest(&self, kind: Kind<'_>) -> Interest {
        match kind.is("", "pods") {
            true => Interest::admit(Operations::WRITE),
            false => {
                Interest::validate(Operations::WRITE).when(kind.is("scheduling.k8s.io", "priorityclasses"))
            }
        }
    }

    fn admit<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        pod: &'a mut Value,
        world: &'a dyn World,
        _notes: &'a mut Notes,
    ) -> Verdict<'a> {
        Box::pin(async move {
            match request.old {
                _ if !request.is_whole() => Ok(()),
                Some(old) => {
                    // A client that knows neither field does not take them away.
                    for field in ["priority", "preemptionPolicy"] {
                        if let Some(own) = old.at(&["spec", field]).filter(|_| is_unset(pod, field)) {
                            pod.set_at(&["spec", field], own.clone());
                        }
                    }
                    Ok(())
                }
                None => set(request, pod, world).await,
            }
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
            let Some(class) = object.filter(|class| request.is_whole() && is_default(class)) else {
                return Ok(());
            };
            let Some(other) = default_class(world).await? else { return Ok(()) };
            let (name, own) = (name(&other), name(class));
            if request.is_create() || name != own {
                let why =
                    format!("PriorityClass {name} is already marked as default. Only one default can exist");
                return Err(request.forbidden(why));
            }
            Ok(())
        })
    }
}

async fn set(request: &Attributes<'_>, pod: &mut Value, world: &dyn World) -> Result<(), Status> {
    let wanted = pod.str_at(&["spec", "priorityClassName"]).unwrap_or_default().to_owned();
    let class = match wanted.as_str() {
        "" => default_class(world).await?,
        wanted => match world.get(&classes(), "", wanted).await? {
            Some(found) => Some(found.value),
            None => {
                return Err(request.forbidden(format!("no PriorityClass with name {wanted} was found")));
            }
        },
    };
    let value = class.as_ref().map_or(0, |class| class.i64_at(&["value"]).unwrap_or(0));
    if let Some(given) = pod.i64_at(&["spec", "priority"]).filter(|given| *given != value) {
        return Err(request.forbidden(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {value} from the given PriorityClass name"
        )));
    }
    pod.set_at(&["spec", "priority"], value);
    let policy = match &class {
        Some(class) => class.str_at(&["preemptionPolicy"]),
        None => Some("PreemptLowerPriority"),
    };
    if let Some(policy) = policy {
        if let Some(given) = pod.str_at(&["spec", "preemptionPolicy"]).filter(|given| *given != policy) {
            return Err(request.forbidden(format!(
                "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
                 controller computed {policy} from the given PriorityClass name"
            )));
        }
        pod.set_at(&["spec", "preemptionPolicy"], policy);
    }
    if wanted.is_empty()
        && let Some(class) = &class
    {
        pod.set_at(&["spec", "priorityClassName"], name(class));
    }
    Ok(())
}

fn classes() -> GroupResource {
    GroupResource::new("scheduling.k8s.io", "priorityclasses")
}

/// The default class; the least of them, should there be several.
async fn default_class(world: &dyn World) -> Result<Option<Value>, Status> {
    let found = world.list(&classes(), "").await?;
    let defaults = found.into_iter().map(|found| found.value).filter(is_default);
    Ok(defaults.min_by_key(|class| class.i64_at(&["value"]).unwrap_or(0)))
}

fn is_default(class: &Value) -> bool {
    class.get("globalDefault").and_then(Value::as_bool) == Some(true)
}

fn is_unset(pod: &Value, field: &str) -> bool {
    pod.at(&["spec", field]).is_none_or(Value::is_null)
}

fn name(object: &Value) -> &str {
    object.str_at(&["metadata", "name"]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Operation;
    use crate::fake::{Fake, Request};

    const HIGH: (&str, &str) = (
        "priorityclasses.scheduling.k8s.io",
        r#"{"metadata":{"name":"high"},"value":1000,"preemptionPolicy":"Never"}"#,
    );
    const USUAL: (&str, &str) = (
        "priorityclasses.scheduling.k8s.io",
        r#"{"metadata":{"name":"usual"},"value":7,"globalDefault":true,"preemptionPolicy":"PreemptLowerPriority"}"#,
    );

    #[test]
    fn pods() {
        #[track_caller]
        fn check(world: &[(&'static str, &str)], pod: &str, expected: &str) {
            let request = Request {
                plugin: &Priority,
                world: &Fake::of(world),
                path: "pods",
                operation: Operation::Create,
            };
            let shown = request.admit(pod, None).map(|pod| pod.at(&["spec"]).unwrap().to_string());
            assert_eq!(shown.unwrap_or_else(|refusal| refusal), expected);
        }
        check(&[HIGH], r#"{"spec":{}}"#, r#"{"preemptionPolicy":"PreemptLowerPriority","priority":0}"#);
        check(
            &[HIGH, USUAL],
            r#"{"spec":{}}"#,
            r#"{"preemptionPolicy":"PreemptLowerPriority","priority":7,"priorityClassName":"usual"}"#,
        );
        check(
            &[HIGH, USUAL],
            r#"{"spec":{"priorityClassName":"high"}}"#,
            r#"{"preemptionPolicy":"Never","priority":1000,"priorityClassName":"high"}"#,
        );
        check(
            &[],
            r#"{"spec":{"priorityClassName":"high"}}"#,
            r#"pods "x" is forbidden: no PriorityClass with name high was found"#,
        );
        check(
            &[HIGH],
            r#"{"spec":{"priorityClassName":"high","priority":5}}"#,
            r#"pods "x" is forbidden: the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 1000 from the given PriorityClass name"#,
        );
        check(
            &[HIGH],
            r#"{"spec":{"priorityClassName":"high","preemptionPolicy":"PreemptLowerPriority"}}"#,
            r#"pods "x" is forbidden: the string value of PreemptionPolicy (PreemptLowerPriority) must not be provided in pod spec; priority admission controller computed Never from the given PriorityClass name"#,
        );
    }

    #[test]
    fn an_update_keeps_what_it_does_not_name() {
        let world = Fake::default();
        let request =
            Request { plugin: &Priority, world: &world, path: "pods", operation: Operation::Update };
        let pod = request.admit(r#"{"spec":{}}"#, Some(r#"{"spec":{"priority":5}}"#)).unwrap();
        assert_eq!(pod.to_string(), r#"{"spec":{"priority":5}}"#);
    }

    #[test]
    fn one_default() {
        let check = |operation, class: &str| {
            let world = Fake::of(&[USUAL]);
            let path = "priorityclasses.scheduling.k8s.io";
            Request { plugin: &Priority, world: &world, path, operation }.validate(class, Some(class)).err()
        };
        let other = r#"{"metadata":{"name":"other"},"globalDefault":true}"#;
        let refusal = r#"priorityclasses.scheduling.k8s.io "other" is forbidden: PriorityClass usual is already marked as default. Only one default can exist"#;
        assert_eq!(check(Operation::Create, other).as_deref(), Some(refusal));
        assert_eq!(check(Operation::Update, other).as_deref(), Some(refusal));
        assert_eq!(check(Operation::Update, r#"{"metadata":{"name":"usual"},"globalDefault":true}"#), None);
        assert_eq!(check(Operation::Create, r#"{"metadata":{"name":"other"}}"#), None);
    }
}
