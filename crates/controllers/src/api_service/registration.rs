//! An `APIService` for each group version that a CRD of the plane serves, as upstream has them. Made with the first such CRD,
//! removed with the last; one that somebody else made is left alone.
//!
//! Keys are names of `APIService` objects, and behind a slash the resource whose CRD has changed: what a plane is known to serve may
//! lag behind that.

use std::collections::BTreeSet;
use std::sync::Arc;

use polder_client::resource::{API_SERVICES, CRDS};
use polder_client::{
    Answer, Change, Controller, Delete, InPlane, Interest, Next, ResourceFacts, Snapshot, Wake,
};
use polder_model::{SmolStr, Status, Value, format_smolstr, json};

use crate::meta;

const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

pub(crate) struct Registration;

/// What is to be done about one name.
#[derive(Debug, PartialEq)]
enum Action {
    Nothing,
    Create,
    Update(Value),
    Delete,
}

fn plan(group: &str, version: &str, served: bool, found: Option<&Value>) -> Action {
    let Some(found) = found else {
        return if served { Action::Create } else { Action::Nothing };
    };
    if found.str_at(&["metadata", "labels", MANAGED]) != Some("true") || meta::is_deleting(found) {
        return Action::Nothing;
    }
    if !served {
        return Action::Delete;
    }
    let spec = spec(group, version);
    if found.get("spec") == Some(&spec) {
        return Action::Nothing;
    }
    let mut new = found.clone();
    new.set_at(&["spec"], spec);
    Action::Update(new)
}

/// Low among groups; versions as Kubernetes orders them.
fn spec(group: &str, version: &str) -> Value {
    json!({"group": group, "version": version, "groupPriorityMinimum": 1000, "versionPriority": 100})
}

/// The keys of what a CRD serves.
fn served(crd: Option<&Snapshot>) -> BTreeSet<SmolStr> {
    let Some(crd) = crd.map(Snapshot::value) else { return BTreeSet::new() };
    let group = crd.str_at(&["spec", "group"]).unwrap_or_default();
    let plural = crd.str_at(&["spec", "names", "plural"]).unwrap_or_default();
    served_versions(crd).map(|version| format_smolstr!("{version}.{group}/{plural}")).collect()
}

fn served_versions(crd: &Value) -> impl Iterator<Item = &str> {
    let versions = crd.array_at(&["spec", "versions"]).iter();
    let served = versions.filter(|version| version.get("served").and_then(Value::as_bool) == Some(true));
    served.filter_map(|version| version.str_at(&["name"]))
}

/// Whether some CRD serves a group version: the one that has changed, or another one of the group.
async fn is_served(plane: &InPlane, group: &str, version: &str, changed: &str) -> Result<bool, Status> {
    let facts = plane.client.resources(plane.plane).await?;
    let serves =
        |one: &&ResourceFacts| one.name.group == group && one.versions.iter().any(|own| own == version);
    let others = facts.iter().filter(serves).map(|one| one.name.resource.as_str());
    let all = [changed].into_iter().filter(|one| !one.is_empty()).chain(others.filter(|one| *one != changed));
    for plural in all {
        let crd = plane.get(&CRDS, "", &format!("{plural}.{group}")).await?;
        if crd.is_some_and(|crd| served_versions(&crd).any(|own| own == version)) {
            return Ok(true);
        }
    }
    if !changed.is_empty() {
        return Ok(false);
    }
    // What a plane serves is noted after a CRD is stored: one that is not noted yet must not lose what it was just given.
    let all = plane.list(&CRDS, "").await?;
    let serves = |crd: &Arc<Value>| {
        crd.str_at(&["spec", "group"]) == Some(group) && served_versions(crd).any(|own| own == version)
    };
    Ok(all.iter().any(serves))
}

impl Controller for Registration {
    fn name(&self) -> &'static str {
        "crd-autoregister-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&CRDS, &API_SERVICES])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        if change.is(&CRDS) {
            let (old, new) = (served(change.old.as_ref()), served(change.new.as_ref()));
            old.symmetric_difference(&new).cloned().for_each(&mut *wake);
            // One that goes away is served until it is gone, one that comes is served once its names are accepted.
            let status = |one: &Option<Snapshot>| one.as_ref().map(|one| one.value().get("status").cloned());
            if status(&change.old) != status(&change.new) {
                old.intersection(&new).cloned().for_each(wake);
            }
        } else if change
            .last()
            .is_some_and(|last| last.may_contain("\"kube-aggregator.kubernetes.io/automanaged\":\"true\""))
        {
            let spec = |version: &Option<Snapshot>| {
                version.as_ref().and_then(|one| one.value().get("spec").cloned())
            };
            if spec(&change.old) != spec(&change.new) {
                wake(change.name.clone());
            }
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let (name, changed) = key.split_once('/').unwrap_or((key, ""));
            let (version, group) = name.split_once('.').unwrap_or((name, ""));
            let serves = is_served(plane, group, version, changed).await?;
            let found = plane.get(&API_SERVICES, "", name).await?;
            let outcome = match plan(group, version, serves, found.as_deref()) {
                Action::Nothing => Ok(()),
                Action::Create => {
                    let object = json!({
                        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                        "metadata": {"name": name, "labels": {"kube-aggregator.kubernetes.io/automanaged": "true"}},
                        "spec": (spec(group, version)),
                    });
                    meta::created(plane.create(&API_SERVICES, "", object).await)
                }
                Action::Update(new) => plane.update(&API_SERVICES, new).await.map(drop),
                Action::Delete => {
                    let uid = found.as_deref().map(meta::uid).map(SmolStr::new);
                    plane.delete(&API_SERVICES, "", name, Delete { uid, ..Delete::default() }).await
                }
            };
            settled(outcome)
        })
    }
}

/// A plane that is full, or whose rules refuse this, does without.
fn settled(outcome: Result<(), Status>) -> Result<Next, Status> {
    match outcome {
        Err(status) if matches!(status.code, 403 | 429 | 507) => Ok(Next::Later),
        outcome => outcome.map(|()| Next::Done),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans() {
        let own = |spec: Value| json!({"metadata": {"labels": {"kube-aggregator.kubernetes.io/automanaged": "true"}}, "spec": spec});
        let right = own(spec("a.example", "v1"));
        let wrong = own(json!({"group": "a.example", "version": "v1", "versionPriority": 1}));
        let others = json!({"metadata": {}, "spec": {"service": {"name": "s"}}});
        let rows = [
            (false, None, Action::Nothing),
            (true, None, Action::Create),
            (true, Some(&right), Action::Nothing),
            (true, Some(&wrong), Action::Update(right.clone())),
            (false, Some(&right), Action::Delete),
            (true, Some(&others), Action::Nothing),
            (false, Some(&others), Action::Nothing),
        ];
        for (served, found, expected) in rows {
            assert_eq!(plan("a.example", "v1", served, found), expected);
        }
    }
}
