//! Which pods of a set come, go or are mended next. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use polder_model::{SmolStr, Value, json};

use super::claims;
use crate::workload::kind::STATEFUL_SET;
use crate::workload::revision::REVISION_LABEL;
use crate::workload::{Meta as _, pod};

pub(super) const NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
const INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// What is seen of a set's world.
pub(super) struct World<'a> {
    pub(super) set: &'a Value,
    /// Its own pods.
    pub(super) pods: Vec<Arc<Value>>,
    /// The template most pods have until the update is over, and the one they get.
    pub(super) current: &'a Value,
    pub(super) update: &'a Value,
    pub(super) now: i64,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A pod, and its number.
    Create(Value, i64),
    /// Its name, label or volumes are not its own.
    Mend(Arc<Value>),
    Delete(Arc<Value>),
    /// The volumes of a pod that waits may be missing.
    Claims(Arc<Value>),
}

/// The numbers of a set's pods.
pub(super) fn range(set: &Value) -> std::ops::Range<i64> {
    let start = set.count_at(&["spec", "ordinals", "start"]);
    start..start + set.value().i64_at(&["spec", "replicas"]).unwrap_or(1).max(0)
}

/// The number of a pod, if it is one of a set by its name.
pub(super) fn ordinal(set: &Value, pod: &Value) -> Option<i64> {
    let text = pod.name().strip_prefix(set.name())?.strip_prefix('-')?;
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse::<i32>().ok().map(i64::from)).flatten()
}

pub(super) fn is_ready(one: &Value) -> bool {
    pod::phase(one) == "Running" && pod::is_ready(one)
}

pub(super) fn ready_seconds_min(set: &Value) -> i64 {
    set.count_at(&["spec", "minReadySeconds"])
}

impl World<'_> {
    fn is_unavailable(&self, one: &Value) -> bool {
        one.is_terminating() || !pod::is_available(one, ready_seconds_min(self.set), self.now)
    }

    /// Which template a pod that is made now gets.
    fn revision(&self, number: i64) -> &Value {
        let start = range(self.set).start;
        let strategy = self.set.at(&["spec", "updateStrategy"]);
        let partition = strategy.and_then(|one| one.at(&["rollingUpdate"]));
        let kept = match partition.filter(|one| !one.is_null()) {
            Some(rolling) => rolling.count_at(&["partition"]),
            None if strategy.and_then(|one| one.str_at(&["type"])) == Some("OnDelete") => 0,
            None => self.set.count_at(&["status", "currentReplicas"]),
        };
        if number < start + kept { self.current } else { self.update }
    }

    /// The pod of a number.
    fn pod(&self, number: i64) -> Value {
        let revision = self.revision(number);
        let mut template = revision.at(&["data", "spec", "template"]).cloned().unwrap_or_default();
        template.remove_at(&["$patch"]);
        let mut one = pod::from_template(&template, &STATEFUL_SET, self.set);
        let name = format!("{}-{number}", self.set.name());
        one.remove_at(&["metadata", "generateName"]);
        one.set_at(&["metadata", "name"], name.as_str());
        identify(&mut one, &name, number);
        one.set_at(&["metadata", "labels", REVISION_LABEL], revision.name());
        one.set_at(&["spec", "hostname"], name.as_str());
        if let Some(service) = self.set.str_at(&["spec", "serviceName"]).filter(|name| !name.is_empty()) {
            one.set_at(&["spec", "subdomain"], service);
        }
        claims::mount(self.set, &mut one, number);
        one
    }
}

/// Gives a pod the labels of its name.
pub(super) fn identify(pod: &mut Value, name: &str, number: i64) {
    pod.set_at(&["metadata", "labels", NAME_LABEL], name);
    pod.set_at(&["metadata", "labels", INDEX_LABEL], number.to_string());
}

pub(super) fn plan(world: &World<'_>) -> Vec<Step> {
    let set = world.set;
    let mut steps = Vec::new();
    if set.is_terminating() {
        return steps;
    }
    let ordered = set.str_at(&["spec", "podManagementPolicy"]) != Some("Parallel");
    let range = range(set);
    let mut members: BTreeMap<i64, &Arc<Value>> = BTreeMap::new();
    let mut condemned: BTreeMap<i64, &Arc<Value>> = BTreeMap::new();
    for one in &world.pods {
        if let Some(number) = ordinal(set, one) {
            let place = if range.contains(&number) { &mut members } else { &mut condemned };
            place.insert(number, one);
        }
    }
    let copies_max = crate::workload::batch::copies_max(set);
    for number in range.clone() {
        if steps.len() > copies_max {
            return steps;
        }
        let Some(one) = members.get(&number).copied() else {
            steps.push(Step::Create(world.pod(number), number));
            if ordered {
                return steps;
            }
            continue;
        };
        if pod::is_finished(one) {
            if !one.is_terminating() {
                steps.push(Step::Delete(one.clone()));
            }
            if ordered {
                return steps;
            }
            continue;
        }
        if pod::phase(one) == "Pending" && !set.array_at(&["spec", "volumeClaimTemplates"]).is_empty() {
            steps.push(Step::Claims(one.clone()));
        }
        if ordered && (!is_ready(one) || world.is_unavailable(one)) {
            return steps;
        }
        if one.label(NAME_LABEL) != Some(one.name()) || !claims::are_mounted(set, one, number) {
            steps.push(Step::Mend(one.clone()));
        }
    }
    let sick = range
        .clone()
        .find(|number| members.get(number).is_none_or(|one| world.is_unavailable(one)))
        .or_else(|| condemned.iter().find(|(_, one)| world.is_unavailable(one)).map(|(number, _)| *number));
    for (number, one) in condemned.iter().rev() {
        if one.is_terminating() {
            if ordered {
                return steps;
            }
            continue;
        }
        if ordered && (!is_ready(one) || world.is_unavailable(one)) && sick != Some(*number) {
            return steps;
        }
        steps.push(Step::Delete(Arc::clone(one)));
        if ordered {
            return steps;
        }
    }
    if set.str_at(&["spec", "updateStrategy", "type"]) == Some("OnDelete") {
        return steps;
    }
    // From the last to the first that may be updated, one at a time.
    let partition = set.count_at(&["spec", "updateStrategy", "rollingUpdate", "partition"]);
    for number in (range.start.saturating_add(partition)..range.end).rev() {
        let Some(one) = members.get(&number).copied() else { return steps };
        if one.label(REVISION_LABEL) != Some(world.update.name()) && !one.is_terminating() {
            steps.push(Step::Delete(one.clone()));
            return steps;
        }
        if world.is_unavailable(one) {
            return steps;
        }
    }
    steps
}

/// What a set says about its pods.
pub(super) fn status(world: &World<'_>) -> Value {
    let set = world.set;
    let mut status = set.get("status").cloned().unwrap_or_default();
    let count = |is: &dyn Fn(&Value) -> bool| {
        i64::try_from(world.pods.iter().filter(|pod| is(pod)).count()).unwrap_or(i64::MAX)
    };
    let of = |revision: &Value| {
        let name = SmolStr::new(revision.name());
        count(&|pod| !pod.is_terminating() && pod.label(REVISION_LABEL) == Some(name.as_str()))
    };
    let wanted = set.value().i64_at(&["spec", "replicas"]).unwrap_or(1);
    let total = count(&|one| !pod::phase(one).is_empty());
    let ready = count(&is_ready);
    let updated = of(world.update);
    let (mut current, mut current_name) = (of(world.current), world.current.name());
    if set.str_at(&["spec", "updateStrategy", "type"]) != Some("OnDelete")
        && [updated, ready, total] == [wanted; 3]
    {
        (current, current_name) = (updated, world.update.name());
    }
    status.set_at(&["replicas"], total);
    let available = count(&|one| is_ready(one) && pod::is_available(one, ready_seconds_min(set), world.now));
    status.set_at(&["availableReplicas"], available);
    for (field, count) in [
        ("readyReplicas", ready),
        ("currentReplicas", current),
        ("updatedReplicas", updated),
        ("observedGeneration", set.generation()),
    ] {
        if count == 0 {
            status.remove_at(&[field]);
        } else {
            status.set_at(&[field], count);
        }
    }
    status.set_at(&["currentRevision"], current_name);
    status.set_at(&["updateRevision"], world.update.name());
    if status.get("collisionCount").is_none_or(Value::is_null) {
        status.set_at(&["collisionCount"], json!(0));
    }
    status
}
