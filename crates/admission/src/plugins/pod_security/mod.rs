//! PodSecurity: the pod security standards, as the labels of a namespace ask for them.
//!
//! Pods are refused, warned about and noted in the audit log; what makes pods later is only warned about and noted.

mod checks;
mod policy;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use polder_model::{GroupResource, Status, Value};

use self::checks::{detail, reasons, violations};
use self::policy::{Level, Policy, Rules};
use crate::attributes::{Attributes, Operations};
use crate::notes::Notes;
use crate::plugin::{Interest, Kind, Plugin, Verdict};
use crate::world::World;

pub(super) struct PodSecurity;

/// Pods of a namespace that are looked at when it becomes stricter.
const PODS_MAX: usize = 3_000;

/// What is made of pod templates, and where the template is.
const TEMPLATES: [(&str, &str, &[&str]); 8] = [
    ("", "podtemplates", &["template"]),
    ("", "replicationcontrollers", &["spec", "template"]),
    ("apps", "daemonsets", &["spec", "template"]),
    ("apps", "deployments", &["spec", "template"]),
    ("apps", "replicasets", &["spec", "template"]),
    ("apps", "statefulsets", &["spec", "template"]),
    ("batch", "cronjobs", &["spec", "jobTemplate", "spec", "template"]),
    ("batch", "jobs", &["spec", "template"]),
];

/// Parts of a pod that change nothing about its safety.
const HARMLESS: [&str; 8] =
    ["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];

impl Plugin for PodSecurity {
    fn name(&self) -> &'static str {
        "PodSecurity"
    }

    fn interest(&self, kind: Kind<'_>) -> Interest {
        let template = TEMPLATES.iter().any(|(group, resource, _)| kind.is(group, resource));
        Interest::validate(Operations::WRITE)
            .when(template || kind.is("", "pods") || kind.is("", "namespaces"))
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a Value>,
        world: &'a dyn World,
        notes: &'a mut Notes,
    ) -> Verdict<'a> {
        Box::pin(async move {
            let Some(object) = object else { return Ok(()) };
            if request.is("", "namespaces") {
                return namespace(request, object, world, notes).await;
            }
            if request.is("", "pods") {
                let harmless = HARMLESS.contains(&request.subresource)
                    || request.old.is_some_and(|old| !is_significant(object, old));
                return if harmless { Ok(()) } else { judge(request, object, true, world, notes).await };
            }
            let place = TEMPLATES.iter().find(|(group, resource, _)| request.is(group, resource));
            let template = place.and_then(|(_, _, path)| object.at(path));
            match template.filter(|_| request.is_whole()) {
                Some(template) => judge(request, template, false, world, notes).await,
                None => Ok(()),
            }
        })
    }
}

async fn judge(
    request: &Attributes<'_>,
    pod: &Value,
    enforced: bool,
    world: &dyn World,
    notes: &mut Notes,
) -> Result<(), Status> {
    let found = world.get(&GroupResource::new("", "namespaces"), "", request.namespace).await?;
    let Some(found) = found else {
        let why = format!("failed to lookup namespace {:?}", request.namespace);
        return if enforced { Err(Status::internal(why)) } else { Ok(()) };
    };
    let (policy, errors) = Policy::read(&found.value);
    if errors.is_empty() && policy.is_privileged() {
        return Ok(());
    }
    if !errors.is_empty() {
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let text = if let [one] = texts.as_slice() { one.clone() } else { format!("[{}]", texts.join(", ")) };
        notes.audit("pod-security.kubernetes.io/error", format!("Failed to parse policy: {text}"));
    }
    let would = |rules: Rules| {
        let violations = violations(rules, pod);
        (!violations.is_empty()).then(|| format!("violate PodSecurity \"{rules}\": {}", detail(&violations)))
    };
    if let Some(text) = would(policy.audit) {
        notes.audit("pod-security.kubernetes.io/audit-violations", format!("would {text}"));
    }
    if enforced {
        notes.audit("pod-security.kubernetes.io/enforce-policy", policy.enforce.to_string());
        let violations = violations(policy.enforce, pod);
        if !violations.is_empty() {
            let why = format!("violates PodSecurity \"{}\": {}", policy.enforce, detail(&violations));
            return Err(request.forbidden(why));
        }
    }
    if let Some(text) = would(policy.warn) {
        notes.warn(format!("would {text}"));
    }
    Ok(())
}

/// An image may be another one, and a container that is added for debugging is new; all else of a pod stays.
fn is_significant(pod: &Value, old: &Value) -> bool {
    fn images<'a>(pod: &'a Value, list: &str) -> Vec<Option<&'a str>> {
        pod.array_at(&["spec", list]).iter().map(|container| container.str_at(&["image"])).collect()
    }
    let debugs = |pod: &Value| -> BTreeMap<String, Option<String>> {
        let added = pod.array_at(&["spec", "ephemeralContainers"]).iter();
        let text = |one: &Value, field: &str| one.str_at(&[field]).map(str::to_owned);
        added.map(|one| (text(one, "name").unwrap_or_default(), text(one, "image"))).collect()
    };
    let before = debugs(old);
    ["containers", "initContainers"].iter().any(|list| images(pod, list) != images(old, list))
        || debugs(pod).iter().any(|(name, image)| before.get(name) != Some(image))
}

/// The labels must be readable, and whoever makes them stricter hears which pods would not be let in any more.
async fn namespace(
    request: &Attributes<'_>,
    object: &Value,
    world: &dyn World,
    notes: &mut Notes,
) -> Result<(), Status> {
    if !request.is_whole() {
        return Ok(());
    }
    let (policy, errors) = Policy::read(object);
    let (before, errors_before) = request.old.map(Policy::read).unwrap_or_default();
    if !errors.is_empty() && errors != errors_before {
        return Err(Status::invalid(&request.kind.group_kind(), request.name, &errors));
    }
    let (new, old) = (policy.enforce, before.enforce);
    let looser = new == old
        || new.level == Level::Privileged
        || (new.version == old.version && new.level <= old.level);
    if request.old.is_none() || looser {
        return Ok(());
    }
    // By what is wrong with them: the first pod by name, and how many there are.
    let mut seen: BTreeMap<String, (String, usize)> = BTreeMap::new();
    let mut total = 0;
    let mut visit = |found: crate::Found| {
        total += 1;
        if total > PODS_MAX {
            return;
        }
        let violations = violations(new, &found.value);
        if !violations.is_empty() {
            let name = found.value.str_at(&["metadata", "name"]).unwrap_or_default();
            let entry = seen.entry(reasons(&violations)).or_insert_with(|| (name.to_owned(), 0));
            entry.1 += 1;
        }
    };
    world.each(&GroupResource::new("", "pods"), request.name, &mut visit).await?;
    if total > PODS_MAX {
        notes.warn(format!(
            "new PodSecurity enforce level only checked against the first {PODS_MAX} of {total} existing pods"
        ));
    }
    if !seen.is_empty() {
        notes.warn(format!(
            "existing pods in namespace {:?} violate the new PodSecurity enforce level \"{new}\"",
            request.name
        ));
    }
    let mut warnings: Vec<String> = seen
        .into_iter()
        .map(|(reasons, (name, count))| match count {
            1 => format!("{name}: {reasons}"),
            2 => format!("{name} (and 1 other pod): {reasons}"),
            _ => format!("{name} (and {} other pods): {reasons}", count - 1),
        })
        .collect();
    warnings.sort();
    warnings.into_iter().for_each(|warning| notes.warn(warning));
    Ok(())
}
