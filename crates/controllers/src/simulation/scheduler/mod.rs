//! Assigns pods to simulated nodes. One key a plane: all its pods that wait are assigned in one turn, in the order of
//! their priority, against one picture of the nodes, which is kept up as pods are placed.
//!
//! What keeps a pod off a node is a list of filters ([`filter`]), what makes one node better than another a score
//! ([`score`]), and who has to go for a pod of higher priority a pure function ([`preempt`]).

mod claims;
mod filter;
mod picture;
mod preempt;
mod rounds;
mod score;

use std::sync::Arc;
use std::time::Duration;

use polder_client::resource::{DISRUPTION_BUDGETS, NODES, PODS, RESOURCE_CLAIMS, VOLUME_CLAIMS};
use polder_client::{Answer, At, Change, Controller, Delete, InPlane, Interest, Next, Snapshot, Wake};
use polder_model::{PlaneId, SmolStr, Status, Value, json};

use self::claims::{Claims, Readiness, selected_node};
use self::picture::Picture;
use self::rounds::{Place, Rounds};
use crate::batch;
use crate::recorder::Recorder;
use crate::timestamp;
use crate::volume_binder::SELECTED_NODE;

const KEY: SmolStr = SmolStr::new_static("pods");
/// The only one there is.
const NAME: &str = "default-scheduler";
/// How long a pod that fits nowhere waits when nothing happens that may help it, as upstream has it.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(300);

pub(crate) struct Scheduler {
    recorder: Recorder,
    rounds: Rounds,
}

impl Default for Scheduler {
    fn default() -> Scheduler {
        Scheduler { recorder: Recorder::new(NAME), rounds: Rounds::default() }
    }
}

impl Controller for Scheduler {
    fn name(&self) -> &'static str {
        "simulated-scheduler"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&PODS, &NODES, &VOLUME_CLAIMS, &RESOURCE_CLAIMS])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        if may_help(change) {
            self.rounds.note(change.plane);
            wake(KEY);
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, _: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let passed = self.rounds.turn(plane.plane);
            let nodes = super::simulated(plane).await?;
            let pods = match nodes.is_empty() {
                true => Vec::new(),
                false => plane.list(&PODS, "").await?,
            };
            let mut waiting: Vec<(Place, Arc<Value>)> =
                pods.iter().filter(|pod| is_ours(pod)).map(|pod| (Place::of(pod), pod.clone())).collect();
            if waiting.is_empty() {
                self.rounds.end(plane.plane);
                return Ok(Next::Done);
            }
            waiting.sort_by(|(one, _), (other, _)| one.cmp(other));
            let namespaces = plane.list(&polder_client::resource::NAMESPACES, "").await?;
            let mut picture = Picture::new(nodes, &pods, &namespaces);
            // Only whoever is more important than others can make them go.
            if waiting.iter().any(|(_, pod)| picture::priority(pod) > 0) {
                let budgets = plane.list(&DISRUPTION_BUDGETS, "").await?;
                picture.budgets = budgets.iter().map(|budget| picture::Budget::of(budget)).collect();
            }
            let begin =
                waiting.partition_point(|(place, _)| passed.as_ref().is_some_and(|passed| place <= passed));
            // What earlier turns of the round have promised stays so.
            for (_, pod) in &waiting[..begin] {
                if awaits_room(&picture, pod) {
                    picture.put(nominated(pod), pod);
                }
            }
            let turn: Vec<(Place, Arc<Value>)> =
                waiting[begin..].iter().take(batch::TURN_LEN_MAX).cloned().collect();
            let last = turn.last().map(|(place, _)| place.clone());
            let more = waiting.len() - begin > turn.len();
            let claims = Claims::of(plane, turn.iter().map(|(_, pod)| &**pod)).await?;
            let steps: Vec<Step> =
                turn.into_iter().map(|(_, pod)| place(&mut picture, &claims, pod)).collect();
            let found = steps.iter().any(|step| matches!(step, Step::Bind(..)));
            let misfits = steps.iter().filter(|step| !matches!(step, Step::Bind(..)));
            let rest = misfits.map(|step| {
                if found && step.follows_others() { Next::Again } else { Next::After(TRY_AGAIN_AFTER) }
            });
            let rest =
                rest.reduce(|one, other| if one == Next::Again { one } else { other }).unwrap_or(Next::Done);
            batch::all(steps.into_iter().map(|step| act(plane, &self.recorder, step))).await?;
            if let Some(last) = last.filter(|_| more) {
                self.rounds.pause(plane.plane, last);
                return Ok(Next::Again);
            }
            Ok(match self.rounds.end(plane.plane) {
                true => Next::Again,
                false => rest,
            })
        })
    }

    fn forget(&self, is_gone: &dyn Fn(PlaneId) -> bool) {
        self.rounds.forget(is_gone);
    }

    fn look(&self, _: PlaneId, wake: Wake<'_>) {
        wake(KEY);
    }
}

/// What becomes of a pod.
enum Step {
    Bind(Arc<Value>, SmolStr),
    /// It gets a node when these of its volumes are bound there.
    Select {
        node: SmolStr,
        claims: Vec<Arc<Value>>,
    },
    /// It fits nowhere, and why.
    Wait(Arc<Value>, &'static str, String),
    /// It gets a node when these have gone.
    Preempt {
        pod: Arc<Value>,
        node: SmolStr,
        victims: Vec<Arc<Value>>,
        why: String,
    },
}

impl Step {
    /// Whether a pod that waits wants to be where others are: it may have a place once they have.
    fn follows_others(&self) -> bool {
        matches!(self, Step::Wait(pod, ..) if pod.at(&["spec", "affinity", "podAffinity"]).is_some())
    }
}

/// Whether a change may give a place to a pod that waits.
fn may_help(change: &Change) -> bool {
    if change.is(&NODES) {
        return true;
    }
    if change.is(&VOLUME_CLAIMS) || change.is(&RESOURCE_CLAIMS) {
        return change.new.is_some();
    }
    match (&change.old, &change.new) {
        // It has a node, and so nothing has become possible, unless it is over or is one that others want to be near.
        (old, Some(new)) if new.may_contain("\"nodeName\":\"") => {
            let ends = ["\"phase\":\"Succeeded\"", "\"phase\":\"Failed\"", "\"deletionTimestamp\""];
            let ended = |snapshot: &Snapshot| ends.iter().any(|end| snapshot.may_contain(end));
            ended(new) && !old.as_ref().is_some_and(ended)
        }
        // What is only told of it, by us for instance, does not help it.
        (Some(old), Some(new)) => match (old.json().and_then(wishes), new.json().and_then(wishes)) {
            (Some(old), Some(new)) => old != new,
            _ => true,
        },
        _ => true,
    }
}

/// What a stored pod says of where it may be: whether it goes, its labels, its spec, and what claims were made for it. It is not
/// parsed for that: every change of every plane comes by here. Texts in it have their quotes escaped, so nobody's text is taken for
/// a member; what looks different and is not costs a look at the plane.
fn wishes(json: &[u8]) -> Option<[&str; 4]> {
    let json = std::str::from_utf8(json).ok()?;
    let (metadata, rest) = json.split_at(json.find(",\"spec\":{")?);
    let (spec, status) = rest.split_at(rest.rfind(",\"status\":{").unwrap_or(rest.len()));
    let claims = up_to(status, "\"resourceClaimStatuses\":[", ']');
    Some([up_to(metadata, "\"deletionTimestamp\":", ','), up_to(metadata, "\"labels\":{", '}'), spec, claims])
}

/// From where a part begins with something to an end of it.
fn up_to<'a>(part: &'a str, begin: &str, end: char) -> &'a str {
    let own = part.find(begin).map_or("", |begin| &part[begin..]);
    own.find(end).map_or(own, |end| &own[..end])
}

/// A pod that waits for a node, and for us to find it.
fn is_ours(pod: &Value) -> bool {
    let is_over = matches!(pod.str_at(&["status", "phase"]), Some("Succeeded" | "Failed"));
    pod.str_at(&["spec", "nodeName"]).is_none_or(str::is_empty)
        && pod.at(&["metadata", "deletionTimestamp"]).is_none()
        && pod.str_at(&["spec", "schedulerName"]).is_none_or(|name| name == NAME)
        && !is_over
}

fn place(picture: &mut Picture, claims: &Claims, pod: Arc<Value>) -> Step {
    if !pod.array_at(&["spec", "schedulingGates"]).is_empty() {
        return Step::Wait(
            pod,
            "SchedulingGated",
            "Scheduling is blocked due to non-empty scheduling gates".into(),
        );
    }
    let delayed = match claims.readiness(&pod) {
        Readiness::Ready(delayed) => delayed,
        Readiness::Waits(why) => {
            let why = format!("0/{} nodes are available: {why}.", picture.nodes.len());
            return Step::Wait(pod, "Unschedulable", why);
        }
    };
    let volumes = claims.bound(&pod);
    let (mut fitting, mut why) = filter::nodes(picture, &volumes, &pod);
    // Where a volume is on its way the pod goes too, or waits. Only a node that is gone is chosen anew.
    let chosen = delayed.iter().find_map(|claim| selected_node(claim));
    if let Some(node) = chosen.filter(|node| picture.nodes.iter().any(|view| view.name == *node)) {
        if !fitting.iter().any(|fitting| fitting == node) {
            let len = picture.nodes.len();
            let why = format!(
                "0/{len} nodes are available: {len} node(s) didn't find available persistent volumes to bind."
            );
            return Step::Wait(pod, "Unschedulable", why);
        }
        fitting.retain(|fitting| fitting == node);
    }
    if let Some(node) = score::best(picture, &pod, &fitting) {
        picture.put(&node, &pod);
        return match delayed.is_empty() {
            true => Step::Bind(pod, node),
            false => Step::Select { node, claims: delayed },
        };
    }
    if awaits_room(picture, &pod) {
        picture.put(nominated(&pod), &pod);
        return Step::Wait(pod, "Unschedulable", why);
    }
    let never = pod.str_at(&["spec", "preemptionPolicy"]) == Some("Never");
    if never {
        why.push_str(" preemption: not eligible due to preemptionPolicy=Never.");
    } else if let Some((node, victims)) = preempt::find(picture, &volumes, &pod) {
        victims.iter().for_each(|victim| picture.take(&node, victim));
        picture.put(&node, &pod);
        return Step::Preempt { pod, node, victims, why };
    } else {
        let len = picture.nodes.len();
        why.push_str(&format!(
            " preemption: 0/{len} nodes are available: {len} No preemption victims found for incoming pod."
        ));
    }
    Step::Wait(pod, "Unschedulable", why)
}

/// Whether others are on their way out to make room for a pod.
fn awaits_room(picture: &Picture, pod: &Value) -> bool {
    let node = nominated(pod);
    let view = picture.nodes.iter().find(|view| view.name == node);
    view.is_some_and(|view| {
        let goes = |own: &&Arc<Value>| own.at(&["metadata", "deletionTimestamp"]).is_some();
        view.pods.iter().filter(goes).any(|own| picture::priority(own) < picture::priority(pod))
    })
}

/// The node that is made free for a pod.
fn nominated(pod: &Value) -> &str {
    pod.str_at(&["status", "nominatedNodeName"]).unwrap_or_default()
}

async fn act(plane: &InPlane, recorder: &Recorder, step: Step) -> Result<(), Status> {
    match step {
        Step::Bind(pod, node) => {
            if bind(plane, &pod, &node).await? {
                let (namespace, name) = (text(&pod, "namespace"), text(&pod, "name"));
                let message = format!("Successfully assigned {namespace}/{name} to {node}");
                recorder.normal(plane, &pod, "Scheduled", &message).await;
            }
            Ok(())
        }
        Step::Select { node, claims } => {
            for claim in claims.iter().filter(|claim| selected_node(claim) != Some(node.as_str())) {
                let mut claim = Value::clone(claim);
                claim.set_at(&["metadata", "annotations", SELECTED_NODE], node.as_str());
                match plane.update(&VOLUME_CLAIMS, claim).await {
                    Err(status) if !matches!(status.code, 404 | 409) => return Err(status),
                    _ => {}
                }
            }
            Ok(())
        }
        Step::Wait(pod, reason, message) => {
            if tell(plane, &pod, reason, &message, None).await? {
                recorder.warning(plane, &pod, "FailedScheduling", &message).await;
            }
            Ok(())
        }
        Step::Preempt { pod, node, victims, why } => {
            tell(plane, &pod, "Unschedulable", &why, Some(&node)).await?;
            for victim in victims {
                evict(plane, &victim, &pod).await?;
                let message = format!("Preempted by pod {} on node {node}", text(&pod, "uid"));
                recorder.normal(plane, &victim, "Preempted", &message).await;
            }
            Ok(())
        }
    }
}

/// Whether a pod has got its node.
async fn bind(plane: &InPlane, pod: &Value, node: &str) -> Result<bool, Status> {
    let at = At { subresource: "binding", ..at(plane, pod) };
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": {"name": (at.name.clone()), "namespace": (at.namespace.clone()), "uid": (text(pod, "uid"))},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    match plane.client.create(&at, binding).await {
        Err(status) if matches!(status.code, 404 | 409) => Ok(false),
        outcome => outcome.map(|_| true),
    }
}

/// Says why a pod waits, if it does not say so already; whether it did not.
async fn tell(
    plane: &InPlane,
    pod: &Value,
    reason: &str,
    message: &str,
    node: Option<&str>,
) -> Result<bool, Status> {
    let mut told = pod.clone();
    let mut conditions = pod.array_at(&["status", "conditions"]).to_vec();
    let own = conditions.iter_mut().find(|own| own.str_at(&["type"]) == Some("PodScheduled"));
    let mut condition = json!({
        "type": "PodScheduled", "status": "False", "reason": reason, "message": message,
        "lastTransitionTime": (timestamp::text(plane.client.now())),
    });
    match own {
        Some(own) => {
            if let Some(since) =
                own.get("lastTransitionTime").filter(|_| own.str_at(&["status"]) == Some("False"))
            {
                condition.set_at(&["lastTransitionTime"], since.clone());
            }
            if let Some(seen) = own.get("observedGeneration") {
                condition.set_at(&["observedGeneration"], seen.clone());
            }
            *own = condition;
        }
        None => conditions.push(condition),
    }
    told.set_at(&["status", "conditions"], conditions);
    if let Some(node) = node {
        told.set_at(&["status", "nominatedNodeName"], node);
    }
    if told == *pod {
        return Ok(false);
    }
    match plane.update_status(&PODS, told).await {
        Err(status) if matches!(status.code, 404 | 409) => Ok(false),
        outcome => outcome.map(|_| true),
    }
}

async fn evict(plane: &InPlane, victim: &Value, pod: &Value) -> Result<(), Status> {
    let message = format!("{NAME}: preempting to accommodate a higher priority pod");
    let mut told = victim.clone();
    let mut conditions = victim.array_at(&["status", "conditions"]).to_vec();
    conditions.retain(|own| own.str_at(&["type"]) != Some("DisruptionTarget"));
    conditions.push(json!({
        "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": message,
        "lastTransitionTime": (timestamp::text(plane.client.now())),
    }));
    told.set_at(&["status", "conditions"], conditions);
    match plane.update_status(&PODS, told).await {
        Err(status) if !matches!(status.code, 404 | 409) => return Err(status),
        _ => {}
    }
    tracing::debug!(plane = %plane.plane, pod = text(pod, "name"), victim = text(victim, "name"), "a pod makes room");
    let options = Delete { uid: Some(SmolStr::new(text(victim, "uid"))), ..Delete::default() };
    match plane.client.delete(&at(plane, victim), options).await {
        Err(status) if matches!(status.code, 404 | 409) => Ok(()),
        outcome => outcome,
    }
}

fn at(plane: &InPlane, pod: &Value) -> At {
    plane.at(&PODS, text(pod, "namespace"), text(pod, "name"))
}

fn text<'v>(pod: &'v Value, field: &str) -> &'v str {
    pod.str_at(&["metadata", field]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_client::Stored;

    /// A pod that nobody may parse.
    struct Unread(&'static str);

    impl Stored for Unread {
        fn contains(&self, text: &str) -> bool {
            self.0.contains(text)
        }

        fn json(&self) -> &[u8] {
            self.0.as_bytes()
        }

        fn parse(&self) -> Arc<Value> {
            panic!("a pod is parsed while all planes wait")
        }
    }

    #[test]
    fn only_what_may_help_wakes() {
        const OLD: &str =
            r#"{"metadata":{"labels":{"a":"b"},"name":"p"},"spec":{"x":1},"status":{"phase":"Pending"}}"#;
        #[track_caller]
        fn check(new: &'static str, expected: bool) {
            let snapshot = |text| Some(Snapshot::new(Unread(text)));
            let change = Change {
                revision: 2,
                resource_version: 2,
                plane: PlaneId(7),
                is_copy: false,
                resource: PODS.group_resource(),
                namespace: "default".into(),
                name: "p".into(),
                old: snapshot(OLD),
                new: snapshot(new),
            };
            assert_eq!(may_help(&change), expected, "{new}");
        }
        check(OLD, false);
        check(
            r#"{"metadata":{"annotations":{"x":",\"spec\":{"},"labels":{"a":"b"},"name":"p"},"spec":{"x":1},"status":{"conditions":[{"message":",\"status\":{"}],"phase":"Pending"}}"#,
            false,
        );
        check(
            r#"{"metadata":{"labels":{"a":"c"},"name":"p"},"spec":{"x":1},"status":{"phase":"Pending"}}"#,
            true,
        );
        check(r#"{"metadata":{"name":"p"},"spec":{"x":1},"status":{"phase":"Pending"}}"#, true);
        check(
            r#"{"metadata":{"labels":{"a":"b"},"name":"p"},"spec":{"x":2},"status":{"phase":"Pending"}}"#,
            true,
        );
        check(
            r#"{"metadata":{"deletionTimestamp":"2026","labels":{"a":"b"},"name":"p"},"spec":{"x":1},"status":{}}"#,
            true,
        );
        check(
            r#"{"metadata":{"labels":{"a":"b"},"name":"p"},"spec":{"nodeName":"n","x":1},"status":{}}"#,
            false,
        );
    }
}
