//! What a deployment does next with its sets: find or make the newest, grow and shrink, forget old ones. Pure.

use std::sync::Arc;

use polder_model::{SmolStr, Value, json};

use super::annotations::{self, DESIRED, noted};
use super::progress;
use super::proportions::{Sizes, shares};
use super::set::{HASH_LABEL, Set, same_template, sum};
use crate::workload::condition::{self, Condition};
use crate::workload::kind::DEPLOYMENT;
use crate::workload::percent::{Round, share};
use crate::workload::{Meta as _, hash};

/// Names may be this long.
const NAME_LEN_MAX: usize = 253;

/// What is seen of a deployment's world.
pub(super) struct World<'a> {
    pub(super) deployment: &'a Value,
    pub(super) sets: Vec<Arc<Value>>,
    /// Pods of sets, by the UID of the set: those that run or may still run. Only asked for when pods must
    /// be gone before others come.
    pub(super) running: Vec<SmolStr>,
    pub(super) now: i64,
}

/// What is to be written.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Sets to be made or changed, in this order.
    pub(super) sets: Vec<Set>,
    /// Sets nobody needs any longer.
    pub(super) forgotten: Vec<Arc<Value>>,
    /// The deployment with its new status, if that differs.
    pub(super) deployment: Option<Value>,
    /// When progress is to be looked at again, in seconds.
    pub(super) check_in: Option<i64>,
}

/// The numbers of a rollout.
pub(super) struct Bounds {
    pub(super) desired: i64,
    pub(super) surge_max: i64,
    pub(super) unavailable_max: i64,
    pub(super) rolling: bool,
}

impl Bounds {
    pub(super) fn of(deployment: &Value) -> Bounds {
        let desired = deployment.value().i64_at(&["spec", "replicas"]).unwrap_or(1);
        let rolling = deployment.str_at(&["spec", "strategy", "type"]) != Some("Recreate");
        if !rolling {
            return Bounds { desired, surge_max: 0, unavailable_max: 0, rolling };
        }
        let number = |field, round| {
            let value = deployment.at(&["spec", "strategy", "rollingUpdate", field]);
            share(value, desired, round).unwrap_or_default()
        };
        let surge_max = number("maxSurge", Round::Up);
        let mut unavailable_max = number("maxUnavailable", Round::Down);
        if surge_max == 0 && unavailable_max == 0 {
            // Rounding has left no way to go on.
            unavailable_max = 1;
        }
        Bounds { desired, surge_max, unavailable_max: unavailable_max.min(desired), rolling }
    }
}

pub(super) fn plan(world: World<'_>) -> Plan {
    let deployment = world.deployment;
    let bounds = Bounds::of(deployment);
    let mut status = deployment.get("status").cloned().unwrap_or_default();
    let mut conditions = condition::of(deployment).to_vec();
    let mut sets: Vec<Set> = world.sets.into_iter().map(Set::found).collect();
    sets.sort_by_key(Set::age_key);
    let template = deployment.at(&["spec", "template"]).cloned().unwrap_or_default();
    let is_new =
        |set: &Set| set.new.at(&["spec", "template"]).is_some_and(|one| same_template(one, &template));
    let mut newest = sets.iter().position(is_new).map(|number| sets.remove(number));
    let mut olds = sets;
    let next_revision = olds.iter().filter_map(Set::revision).max().unwrap_or_default() + 1;
    let deadline = progress::has_deadline(deployment);
    let is_terminating = deployment.is_terminating();
    let paused = deployment.at(&["spec", "paused"]).and_then(Value::as_bool) == Some(true);
    if !is_terminating {
        progress::pause(deployment, &mut conditions, paused, world.now);
    }
    if let Some(set) = newest.as_mut().filter(|_| !is_terminating) {
        annotations::sync(deployment, set, next_revision);
        match deployment.at(&["spec", "minReadySeconds"]) {
            Some(seconds) => set.new.set_at(&["spec", "minReadySeconds"], seconds.clone()),
            None => drop(set.new.remove_at(&["spec", "minReadySeconds"])),
        }
        if deadline && condition::find(&conditions, "Progressing").is_none() {
            let message = format!("Found new replica set {:?}", set.new.name());
            progress::set(&mut conditions, "True", "FoundNewReplicaSet", message, world.now);
        }
    }

    let is_resized = olds
        .iter()
        .chain(&newest)
        .filter(|set| set.size() > 0)
        .any(|set| noted(set, DESIRED).is_some_and(|desired| desired != bounds.desired));
    let mut rollout = false;
    if is_terminating {
        // Only the status is kept up to date.
    } else if paused || is_resized {
        resize(&mut newest, &mut olds, &bounds, status.count_at(&["replicas"]));
    } else {
        rollout = true;
        roll(deployment, &bounds, &world.running, &mut newest, &mut olds, next_revision);
        if let Some(set) = newest.as_ref().filter(|set| set.old.is_none() && deadline) {
            let message = format!("Created new replica set {:?}", set.new.name());
            progress::set(&mut conditions, "True", "NewReplicaSetCreated", message, world.now);
        }
    }

    let revision =
        newest.as_ref().and_then(|set| set.new.annotation(annotations::REVISION).map(SmolStr::new));
    let mut all: Vec<Set> = olds;
    let old_len = all.len();
    all.extend(newest);
    progress::count(
        deployment,
        &bounds,
        &all[..old_len],
        all.get(old_len),
        &mut status,
        &mut conditions,
        world.now,
    );
    let mut plan = Plan::default();
    if rollout {
        let newest = all.get(old_len);
        progress::judge(deployment, &all, newest, &status, &mut conditions, world.now);
        plan.check_in = progress::check_in(deployment, &status, &conditions, world.now);
    }
    if (rollout && progress::is_complete(deployment, &status)) || (paused && !is_terminating) {
        plan.forgotten = forgotten(deployment, &all[..old_len]);
    }
    if conditions.is_empty() {
        status.remove_at(&["conditions"]);
    } else {
        status.set_at(&["conditions"], conditions);
    }
    let mut new_deployment = deployment.clone();
    new_deployment.set_at(&["status"], status);
    if let Some(revision) = revision.filter(|_| !is_terminating) {
        new_deployment.set_at(&["metadata", "annotations", annotations::REVISION], revision);
    }
    plan.deployment = (new_deployment != *deployment).then_some(new_deployment);
    all.retain(Set::is_changed);
    plan.sets = all;
    plan
}

/// One more step of a rollout.
fn roll(
    deployment: &Value,
    bounds: &Bounds,
    running: &[SmolStr],
    newest: &mut Option<Set>,
    olds: &mut [Set],
    revision: i64,
) {
    if !bounds.rolling {
        let shrinks = olds.iter().any(|set| set.size() > 0);
        olds.iter_mut().filter(|set| set.size() > 0).for_each(|set| scale(set, 0, bounds));
        let own = newest.as_ref().map(|set| SmolStr::new(set.new.uid()));
        let others = running.iter().any(|uid| Some(uid) != own.as_ref());
        if shrinks || others || sum(&*olds, Set::pods) > 0 {
            return;
        }
        let set = newest.get_or_insert_with(|| make(deployment, revision));
        if set.size() != bounds.desired || set.old.is_none() {
            scale(set, bounds.desired, bounds);
        }
        return;
    }
    let is_made = newest.is_none();
    let set = newest.get_or_insert_with(|| make(deployment, revision));
    let total = sum(&*olds, Set::size) + set.size();
    let grown = if set.size() > bounds.desired {
        bounds.desired
    } else {
        let room = bounds.desired + bounds.surge_max - total;
        set.size() + room.clamp(0, bounds.desired - set.size())
    };
    if grown != set.size() || is_made {
        scale(set, grown, bounds);
        if !is_made {
            return;
        }
    }
    shrink(bounds, set, olds);
}

/// Takes pods from old sets as far as enough are available: first those that are not available anyway.
fn shrink(bounds: &Bounds, newest: &Set, olds: &mut [Set]) {
    let total = sum(&*olds, Set::size) + newest.size();
    let available_min = bounds.desired - bounds.unavailable_max;
    let mut spare = total - available_min - (newest.size() - newest.available());
    if spare <= 0 {
        return;
    }
    for set in olds.iter_mut().filter(|set| set.size() > 0) {
        let sick = (set.size() - set.available()).clamp(0, spare);
        if sick > 0 {
            let size = set.size() - sick;
            scale(set, size, bounds);
            spare -= sick;
        }
    }
    let mut spare = sum(&*olds, Set::available) + newest.available() - available_min;
    for set in olds.iter_mut().filter(|set| set.size() > 0) {
        let less = set.size().min(spare.max(0));
        if less > 0 {
            let size = set.size() - less;
            scale(set, size, bounds);
            spare -= less;
        }
    }
}

/// The deployment has another size than before, or is paused: sets are scaled, and templates stay as they are.
fn resize(newest: &mut Option<Set>, olds: &mut [Set], bounds: &Bounds, pods_before: i64) {
    let mut all: Vec<&mut Set> = olds.iter_mut().chain(newest.as_mut()).collect();
    let active: Vec<usize> = (0..all.len()).filter(|number| all[*number].size() > 0).collect();
    // One set has all pods, or none has any and the newest gets them.
    let only = match active[..] {
        [] => all.len().checked_sub(1),
        [only] => Some(only),
        _ => None,
    };
    if let Some(only) = only {
        if all[only].size() != bounds.desired {
            scale(all[only], bounds.desired, bounds);
        } else if noted(all[only], DESIRED).is_some_and(|desired| desired != bounds.desired) {
            annotations::note_size(all[only], bounds.desired, bounds.desired + bounds.surge_max);
        }
        return;
    }
    let has_new = newest.is_some();
    let mut all: Vec<&mut Set> =
        olds.iter_mut().chain(newest.as_mut()).filter(|set| set.size() > 0).collect();
    let is_saturated = has_new
        && all.last().is_some_and(|set| {
            set.size() == bounds.desired
                && noted(set, DESIRED) == Some(bounds.desired)
                && set.available() == bounds.desired
        });
    if is_saturated {
        let len = all.len() - 1;
        all[..len].iter_mut().for_each(|set| scale(set, 0, bounds));
    } else if bounds.rolling {
        let sizes = Sizes { desired: bounds.desired, surge_max: bounds.surge_max, pods_before };
        let views: Vec<&Set> = all.iter().map(|set| &**set).collect();
        let shares = shares(&views, &sizes);
        for (set, size) in all.into_iter().zip(shares) {
            scale(set, size, bounds);
        }
    }
}

fn scale(set: &mut Set, size: i64, bounds: &Bounds) {
    set.new.set_at(&["spec", "replicas"], size);
    annotations::note_size(set, bounds.desired, bounds.desired + bounds.surge_max);
}

/// A set for the template of a deployment, without pods yet.
fn make(deployment: &Value, revision: i64) -> Set {
    let mut template = deployment.at(&["spec", "template"]).cloned().unwrap_or_default();
    let hash = hash::of(&template, deployment.value().i64_at(&["status", "collisionCount"]));
    template.set_at(&["metadata", "labels", HASH_LABEL], hash.as_str());
    let mut selector = deployment.at(&["spec", "selector"]).cloned().unwrap_or_default();
    selector.set_at(&["matchLabels", HASH_LABEL], hash.as_str());
    let name = deployment.name();
    let name = &name[..name.floor_char_boundary(NAME_LEN_MAX - 1 - hash.len())];
    let mut new = json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": (format!("{name}-{hash}")),
            "namespace": (deployment.namespace()),
            "labels": (template.at(&["metadata", "labels"]).cloned().unwrap_or_default()),
            "ownerReferences": [(DEPLOYMENT.controller_reference(deployment))],
        },
        "spec": {"replicas": 0, "selector": selector, "template": template},
    });
    if let Some(seconds) = deployment.at(&["spec", "minReadySeconds"]) {
        new.set_at(&["spec", "minReadySeconds"], seconds.clone());
    }
    let mut set = Set { old: None, new };
    annotations::sync(deployment, &mut set, revision);
    set
}

/// Old sets without pods that are more than the deployment wants to remember, the oldest first.
fn forgotten(deployment: &Value, olds: &[Set]) -> Vec<Arc<Value>> {
    let Some(limit) = deployment.value().i64_at(&["spec", "revisionHistoryLimit"]) else { return Vec::new() };
    let mut olds: Vec<&Set> = olds.iter().filter(|set| !set.new.is_terminating()).collect();
    olds.sort_by_key(|set| (set.revision().unwrap_or_default(), set.age_key()));
    let surplus = olds.len().saturating_sub(usize::try_from(limit).unwrap_or_default());
    let empty = |set: &&&Set| {
        set.size() == 0
            && set.size_before() == 0
            && set.pods() == 0
            && set.new.generation() <= set.new.observed_generation()
    };
    olds[..surplus].iter().filter(empty).filter_map(|set| set.old.clone()).collect()
}

/// A condition for a deployment whose newest set cannot be made.
pub(super) fn cannot_make(deployment: &Value, name: &str, why: &str, now: i64) -> Option<Value> {
    if !progress::has_deadline(deployment) {
        return None;
    }
    let mut conditions = condition::of(deployment).to_vec();
    let message = format!("Failed to create new replica set {name:?}: {why}");
    let failed = Condition { kind: "Progressing", status: "False", reason: "ReplicaSetCreateError", message };
    condition::set(&mut conditions, &failed, now, &["lastUpdateTime"]);
    let mut new = deployment.clone();
    new.set_at(&["status", "conditions"], conditions);
    (new != *deployment).then_some(new)
}
