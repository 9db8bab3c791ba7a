//! From old pods to those of the present template, node by node. Pure.

use polder_model::{SmolStr, Value};

use super::plan::{Plan, World, is_updated, judge};
use crate::workload::percent::{Round, share};
use crate::workload::{Meta as _, pod};

/// How many nodes may lack a pod, or have two.
pub(super) struct Bounds {
    pub(super) surge_max: i64,
    pub(super) unavailable_max: i64,
}

impl Bounds {
    pub(super) fn of(set: &Value, nodes: i64) -> Bounds {
        let number = |field: &str| {
            share(set.at(&["spec", "updateStrategy", "rollingUpdate", field]), nodes, Round::Up)
        };
        let surge_max = number("maxSurge").unwrap_or_default();
        let unavailable_max = number("maxUnavailable").unwrap_or(1);
        // There must be a way to go on.
        let unavailable_max = if surge_max == 0 { unavailable_max.max(1) } else { unavailable_max };
        Bounds { surge_max, unavailable_max }
    }
}

pub(super) fn ready_seconds_min(set: &Value) -> i64 {
    set.count_at(&["spec", "minReadySeconds"])
}

/// The pod of the present template and the older one on a node; nothing when there are more.
type Pair<'a> = Option<(Option<&'a Value>, Option<&'a Value>)>;

pub(super) fn plan(world: &World<'_>) -> Plan {
    let runs: Vec<&str> =
        world.nodes.iter().filter(|node| judge(world.set, node).may_run).map(|node| node.name()).collect();
    let wanted = i64::try_from(runs.len()).unwrap_or(i64::MAX);
    let bounds = Bounds::of(world.set, wanted);
    let with_pods = world.pods.keys().map(SmolStr::as_str);
    let without = runs.iter().copied().filter(|name| !world.pods.contains_key(*name));
    let nodes: Vec<(&str, Pair<'_>)> =
        with_pods.chain(without).map(|name| (name, pair(world, name))).collect();
    if bounds.surge_max == 0 {
        take_away(world, &nodes, &bounds)
    } else {
        add_first(world, &nodes, &runs, wanted, &bounds)
    }
}

fn pair<'a>(world: &'a World<'_>, node: &str) -> Pair<'a> {
    let (mut new, mut old) = (None, None);
    let pods = world.pods.get(node).map_or(&[][..], Vec::as_slice);
    for one in pods.iter().filter(|one| !one.is_terminating()) {
        let place = if is_updated(world.set, &world.hash, one) { &mut new } else { &mut old };
        if place.replace(&**one).is_some() {
            return None;
        }
    }
    Some((new, old))
}

fn is_available(world: &World<'_>, one: &Value) -> bool {
    pod::is_available(one, ready_seconds_min(world.set), world.now)
}

/// Old pods go, and their nodes get a new one when they are gone.
fn take_away(world: &World<'_>, nodes: &[(&str, Pair<'_>)], bounds: &Bounds) -> Plan {
    let (mut plan, mut unavailable, mut candidates) = (Plan::default(), 0, Vec::new());
    for (_, pair) in nodes {
        match *pair {
            None | Some((None, None) | (Some(_), Some(_))) => unavailable += 1,
            Some((Some(new), None)) => unavailable += i64::from(!is_available(world, new)),
            Some((None, Some(old))) if is_available(world, old) => candidates.push(old),
            // It is missed by nobody.
            Some((None, Some(old))) => {
                plan.delete.push(old.clone().into());
                unavailable += 1;
            }
        }
    }
    let room = usize::try_from(bounds.unavailable_max - unavailable).unwrap_or_default();
    plan.delete.extend(candidates.into_iter().take(room).map(|old| old.clone().into()));
    plan
}

/// New pods come beside the old ones, which go when the new are available.
fn add_first(
    world: &World<'_>,
    nodes: &[(&str, Pair<'_>)],
    runs: &[&str],
    wanted: i64,
    bounds: &Bounds,
) -> Plan {
    let mut plan = Plan::default();
    let (mut surge, mut available) = (0, 0);
    let (mut candidates, mut strays) = (Vec::new(), Vec::new());
    for (name, pair) in nodes {
        let Some((new, old)) = *pair else {
            surge += 1;
            continue;
        };
        available += i64::from(old.or(new).is_some_and(|one| is_available(world, one)));
        match (new, old) {
            (_, None) => {}
            (None, Some(old)) => match (runs.contains(name), is_available(world, old)) {
                (true, true) => candidates.push(SmolStr::new(*name)),
                (true, false) => plan.create.push(SmolStr::new(*name)),
                (false, true) => strays.push(old),
                (false, false) => plan.delete.push(old.clone().into()),
            },
            (Some(new), Some(old)) if is_available(world, new) => plan.delete.push(old.clone().into()),
            (Some(_), Some(_)) => surge += 1,
        }
    }
    let spare = usize::try_from(available - wanted).unwrap_or_default();
    plan.delete.extend(strays.into_iter().take(spare).map(|old| old.clone().into()));
    let room = usize::try_from(bounds.surge_max - surge).unwrap_or_default();
    plan.create.extend(candidates.into_iter().take(room));
    plan
}
