//! ResourceQuota: what a namespace may hold.
//!
//! Use is written into the status of each quota in the same commit as the object that uses it, so however many create
//! at once, a quota of 25 is used by 25. The registry lets writers that a quota counts go one after the other, in
//! their namespace.

use std::collections::{BTreeMap, BTreeSet};

use polder_model::{GroupResource, SmolStr, Status, Value};

use crate::amounts::{self, Amounts};
use crate::attributes::{Attributes, Operation, Operations};
use crate::notes::{Expected, Notes, ObjectWrite};
use crate::plugin::{Interest, Kind, Plugin, Verdict};
use crate::quota::{self, Counted, scopes};
use crate::world::World;

pub(super) struct ResourceQuota;

/// Each container must ask for these itself if a quota counts them.
const REQUIRED: [&str; 6] =
    ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];

impl Plugin for ResourceQuota {
    fn name(&self) -> &'static str {
        "ResourceQuota"
    }

    fn interest(&self, kind: Kind<'_>) -> Interest {
        let counted = Counted { group: kind.group, resource: kind.resource };
        let comes_and_goes = Operations::CREATE.and(Operations::DELETE);
        // A change of other objects does not change their number.
        let account = match counted.is_measured() {
            true => comes_and_goes.and(Operations::UPDATE),
            false => comes_and_goes,
        };
        Interest { account, ..Interest::NONE }.when(kind.namespaced && !counted.is_ignored())
    }

    fn account<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a Value>,
        world: &'a dyn World,
        notes: &'a mut Notes,
    ) -> Verdict<'a> {
        let counted = Counted { group: &request.resource.group, resource: &request.resource.resource };
        if let (Some(new), Some(old)) = (object, request.old)
            && is_same(counted, new, old)
        {
            return crate::plugin::done();
        }
        Box::pin(account(request, counted, object, world, notes))
    }
}

/// Whether no quota could see a difference. Most changes are of this kind, and cost no look at any quota.
fn is_same(counted: Counted<'_>, new: &Value, old: &Value) -> bool {
    scopes::is_terminating(new) == scopes::is_terminating(old)
        && scopes::attributes_classes(new) == scopes::attributes_classes(old)
        && quota::usage(counted, new) == quota::usage(counted, old)
}

async fn account(
    request: &Attributes<'_>,
    counted: Counted<'_>,
    object: Option<&Value>,
    world: &dyn World,
    notes: &mut Notes,
) -> Result<(), Status> {
    let quotas = world.list(&GroupResource::new("", "resourcequotas"), request.namespace).await?;
    if quotas.is_empty() {
        return Ok(());
    }
    let about = |quota: &Value| {
        let matching = |one: Option<&Value>| one.is_some_and(|one| quota::matches(quota, counted, one));
        matching(object) || matching(request.old)
    };
    for found in quotas {
        let mut quota = found.value;
        let name = SmolStr::new(quota.str_at(&["metadata", "name"]).unwrap_or_default());
        // A quota that goes is not brought back by what goes with it.
        let itself = request.is("", "resourcequotas") && name == request.name;
        if itself || !about(&quota) {
            continue;
        }
        if request.operation != Operation::Delete
            && request.subresource != "status"
            && let Some(object) = object.filter(|object| quota::matches(&quota, counted, object))
            && let Some(why) = missing(&quota, counted, object)
        {
            return Err(request.forbidden(format!("failed quota: {name}: {why}")));
        }
        let used = match quota::is_measured(&quota) {
            true => quota::used(&quota),
            false => quota::measure(&quota, request.namespace, world).await?,
        };
        let (before, after) =
            (quota::share(&quota, counted, request.old), quota::share(&quota, counted, object));
        let charged = match quota::charge(&quota, &used, &before, &after) {
            Ok(charged) => charged,
            // What is there already is reported, not asked for.
            Err(_) if request.subresource == "status" => {
                let mut total = used.clone();
                amounts::add(&mut total, &amounts::subtract(&after, &before));
                total
            }
            Err(why) => return Err(request.forbidden(why)),
        };
        if charged == quota::used(&quota) && quota::is_measured(&quota) {
            continue;
        }
        if request.operation == Operation::Delete && is_going(request.namespace, world).await? {
            return Ok(());
        }
        quota::set_status(&mut quota, &charged);
        notes.writes.push(ObjectWrite {
            resource: GroupResource::new("", "resourcequotas"),
            namespace: request.namespace.into(),
            name,
            value: quota,
            expected: Expected::At(found.revision),
        });
    }
    Ok(())
}

/// In a namespace that goes everything goes, quotas too: nobody counts.
async fn is_going(namespace: &str, world: &dyn World) -> Result<bool, Status> {
    let found = world.get(&GroupResource::new("", "namespaces"), "", namespace).await?;
    Ok(found.is_none_or(|found| found.value.at(&["metadata", "deletionTimestamp"]).is_some()))
}

/// What the containers of a pod must say because a quota counts it, and do not.
fn missing(quota: &Value, counted: Counted<'_>, object: &Value) -> Option<String> {
    if !counted.group.is_empty() || counted.resource != "pods" {
        return None;
    }
    let says = |side: &str| {
        let amounts = object.at(&["spec", "resources", side]).and_then(Value::as_object);
        amounts.is_some_and(|amounts| !amounts.is_empty())
    };
    if says("requests") || says("limits") {
        return None;
    }
    let hard = quota::hard(quota);
    let mut lacking: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let containers =
        ["containers", "initContainers"].iter().flat_map(|list| object.array_at(&["spec", list]));
    for container in containers {
        let side = |side: &str| -> Amounts { amounts::read(container.at(&["resources", side])) };
        let says = quota::usage::compute(&side("requests"), &side("limits"));
        let required = REQUIRED.iter().filter(|name| hard.contains_key(**name) && !says.contains_key(**name));
        for name in required {
            lacking.entry(name).or_default().insert(container.str_at(&["name"]).unwrap_or_default());
        }
    }
    let texts = lacking.iter().map(|(name, containers)| {
        let containers: Vec<&str> = containers.iter().copied().collect();
        format!("{name} for: {}", containers.join(","))
    });
    let texts: Vec<String> = texts.collect();
    (!texts.is_empty()).then(|| format!("must specify {}", texts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, Request};

    const NAMESPACE: (&str, &str) = ("namespaces", r#"{"metadata":{"name":"ns"}}"#);

    #[track_caller]
    fn check(
        world: &[(&'static str, &str)],
        path: &str,
        object: Option<&str>,
        old: Option<&str>,
        expected: &str,
    ) {
        let mut objects = vec![NAMESPACE];
        objects.extend(world);
        let operation = match (object, old) {
            (Some(_), None) => Operation::Create,
            (Some(_), Some(_)) => Operation::Update,
            _ => Operation::Delete,
        };
        let request = Request { plugin: &ResourceQuota, world: &Fake::of(&objects), path, operation };
        let shown = match request.account(object, old) {
            Err(text) => text,
            Ok(notes) => {
                let used = notes.writes.iter().map(|write| {
                    let used = write.value.at(&["status", "used"]).cloned().unwrap_or_default();
                    format!("{} {used}", write.name)
                });
                used.collect::<Vec<_>>().join("; ")
            }
        };
        assert_eq!(shown, expected);
    }

    fn quota(spec: &str, used: &str) -> String {
        format!(
            r#"{{"metadata":{{"name":"q","namespace":"ns"}},"spec":{{"hard":{spec}}},"status":{{"hard":{spec},"used":{used}}}}}"#
        )
    }

    #[test]
    fn numbers() {
        let two = quota(
            r#"{"configmaps":"2","count/deployments.apps":"1"}"#,
            r#"{"configmaps":"1","count/deployments.apps":"1"}"#,
        );
        let world = [("resourcequotas", two.as_str())];
        let object = Some(r#"{"metadata":{"name":"a","namespace":"ns"}}"#);
        check(&world, "configmaps", object, None, r#"q {"configmaps":"2","count/deployments.apps":"1"}"#);
        check(&world, "configmaps", None, object, r#"q {"configmaps":"0","count/deployments.apps":"1"}"#);
        check(&world, "secrets", object, None, "");
        check(
            &world,
            "deployments.apps",
            object,
            None,
            r#"deployments.apps "a" is forbidden: exceeded quota: q, requested: count/deployments.apps=1, used: count/deployments.apps=1, limited: count/deployments.apps=1"#,
        );
        check(&[], "configmaps", object, None, "");
    }

    #[test]
    fn a_quota_nobody_has_measured_is_measured() {
        let fresh = r#"{"metadata":{"name":"q","namespace":"ns"},"spec":{"hard":{"configmaps":"2","requests.cpu":"5","pods":"3"}}}"#;
        let world = [
            ("resourcequotas", fresh),
            ("configmaps", r#"{"metadata":{"name":"a","namespace":"ns"}}"#),
            ("configmaps", r#"{"metadata":{"name":"b","namespace":"other"}}"#),
            (
                "pods",
                r#"{"metadata":{"name":"a","namespace":"ns"},"spec":{"containers":[{"resources":{"requests":{"cpu":"2"}}}]}}"#,
            ),
        ];
        let object = Some(r#"{"metadata":{"name":"c","namespace":"ns"}}"#);
        check(&world, "configmaps", object, None, r#"q {"configmaps":"2","pods":"1","requests.cpu":"2"}"#);
    }

    #[test]
    fn compute() {
        let cpu = quota(
            r#"{"requests.cpu":"2","limits.memory":"1Gi"}"#,
            r#"{"requests.cpu":"1","limits.memory":"0"}"#,
        );
        let world = [("resourcequotas", cpu.as_str())];
        let pod = |requests: &str| {
            format!(
                r#"{{"metadata":{{"name":"p"}},"spec":{{"containers":[{{"name":"c","resources":{{"requests":{{"cpu":"{requests}"}},"limits":{{"memory":"1Mi"}}}}}}]}}}}"#
            )
        };
        check(&world, "pods", Some(&pod("1")), None, r#"q {"limits.memory":"1Mi","requests.cpu":"2"}"#);
        check(
            &world,
            "pods",
            Some(&pod("1500m")),
            None,
            r#"pods "p" is forbidden: exceeded quota: q, requested: requests.cpu=1500m, used: requests.cpu=1, limited: requests.cpu=2"#,
        );
        check(
            &world,
            "pods",
            Some(
                r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"a"},{"name":"b"}],"initContainers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}"#,
            ),
            None,
            r#"pods "p" is forbidden: failed quota: q: must specify limits.memory for: a,b,c; requests.cpu for: a,b"#,
        );
        // Growing is charged by the difference, an end gives everything back, and other changes cost nothing.
        check(
            &world,
            "pods/resize",
            Some(&pod("1500m")),
            Some(&pod("1")),
            r#"q {"limits.memory":"0","requests.cpu":"1500m"}"#,
        );
        let ended = pod("1").replacen('{', r#"{"status":{"phase":"Failed"},"#, 1);
        check(
            &world,
            "pods/status",
            Some(&ended),
            Some(&pod("1")),
            r#"q {"limits.memory":"0","requests.cpu":"0"}"#,
        );
        check(&world, "pods/status", Some(&pod("1")), Some(&pod("1")), "");
        check(&world, "pods", None, Some(&pod("1")), r#"q {"limits.memory":"0","requests.cpu":"0"}"#);
    }

    #[test]
    fn a_namespace_that_goes_is_not_counted() {
        let one = quota(r#"{"configmaps":"2"}"#, r#"{"configmaps":"1"}"#);
        let request = Request {
            plugin: &ResourceQuota,
            world: &Fake::of(&[
                ("namespaces", r#"{"metadata":{"name":"ns","deletionTimestamp":"T"}}"#),
                ("resourcequotas", &one),
            ]),
            path: "configmaps",
            operation: Operation::Delete,
        };
        let notes = request.account(None, Some(r#"{"metadata":{"name":"a"}}"#)).unwrap();
        assert!(notes.writes.is_empty());
    }
}
