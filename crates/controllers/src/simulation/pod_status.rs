//! What a kubelet would say about a pod: a pure function.

use polder_model::{Object, SmolStr, Value, format_smolstr, json};

use super::image::is_known;
use crate::{meta, timestamp};

const CONTAINER_STATUSES: [&str; 3] =
    ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"];
const NO_IMAGE: &str = "ErrImagePull";

/// The fields of a pod whose containers all came up, or wait for images that are not there.
pub(super) fn running(pod: &Value, node_address: &str, pod_address: &str, now: &str) -> Value {
    let mut status = pod.get("status").cloned().unwrap_or_default();
    let mut set = |field: &str, value: Value| status.set_at(&[field], value);
    let images = |field: &str| {
        let mut containers = pod.array_at(&["spec", field]).iter();
        containers.all(|container| is_known(container.str_at(&["image"]).unwrap_or_default()))
    };
    let (starts, runs) = (images("initContainers"), images("initContainers") && images("containers"));
    set("phase", if runs { "Running" } else { "Pending" }.into());
    set("hostIP", node_address.into());
    set("hostIPs", json!([{"ip": node_address}]));
    set("podIP", pod_address.into());
    set("podIPs", json!([{"ip": pod_address}]));
    set("startTime", now.into());
    if let Some(generation) = pod.i64_at(&["metadata", "generation"]) {
        set("observedGeneration", generation.into());
    }
    let uid = pod.str_at(&["metadata", "uid"]).unwrap_or_default();
    let states = |field: &str, are_started: bool, state: &dyn Fn(&Value, &str) -> Container| -> Vec<Value> {
        let containers = pod.array_at(&["spec", field]).iter();
        containers.map(|container| container_status(container, uid, are_started, state)).collect()
    };
    let begun = json!({"running": {"startedAt": now}});
    let ended = |id: &str| {
        json!({"terminated": {
            "exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now, "containerID": id,
        }})
    };
    let init = states("initContainers", true, &|container, id| match container.str_at(&["restartPolicy"]) {
        // It goes on beside the others.
        Some("Always") => Container { state: begun.clone(), ready: true, started: true },
        _ => Container { state: ended(id), ready: true, started: false },
    });
    if !init.is_empty() {
        set("initContainerStatuses", init.into());
    }
    let own =
        states("containers", starts, &|_, _| Container { state: begun.clone(), ready: true, started: true });
    set("containerStatuses", own.into());
    let guests = states("ephemeralContainers", true, &|_, _| Container {
        state: begun.clone(),
        ready: false,
        started: true,
    });
    if !guests.is_empty() {
        set("ephemeralContainerStatuses", guests.into());
    }
    let gates = pod.array_at(&["spec", "readinessGates"]).iter();
    let passes = |gate: &Value| {
        let kind = gate.str_at(&["conditionType"]).unwrap_or_default();
        let conditions = pod.array_at(&["status", "conditions"]).iter();
        conditions
            .into_iter()
            .any(|own| own.str_at(&["type"]) == Some(kind) && own.str_at(&["status"]) == Some("True"))
    };
    let gated = !gates.into_iter().all(passes);
    for (kind, is, reason) in [
        ("PodReadyToStartContainers", true, ""),
        ("Initialized", starts, "ContainersNotInitialized"),
        ("ContainersReady", runs, "ContainersNotReady"),
        ("Ready", runs && !gated, if runs { "ReadinessGatesNotReady" } else { "ContainersNotReady" }),
    ] {
        set_condition(&mut status, kind, is, if is { "" } else { reason }, pod, now);
    }
    status
}

/// Why images of a pod could not be had, for each of them.
pub(super) fn missing_images(pod: &Value) -> Vec<String> {
    let all = CONTAINER_STATUSES.iter().flat_map(|field| pod.array_at(&["status", field]));
    let waiting = all.filter_map(|one| one.at(&["state", "waiting"]));
    let missing = waiting.filter(|why| why.str_at(&["reason"]) == Some(NO_IMAGE));
    missing.filter_map(|why| why.str_at(&["message"])).map(String::from).collect()
}

struct Container {
    state: Value,
    ready: bool,
    started: bool,
}

fn container_status(
    container: &Value,
    uid: &str,
    is_started: bool,
    state: &dyn Fn(&Value, &str) -> Container,
) -> Value {
    let text = |field: &str| SmolStr::new(container.str_at(&[field]).unwrap_or_default());
    let (name, image) = (text("name"), text("image"));
    let id = format_smolstr!("simulated://{uid}-{name}");
    let mut status = Object::new();
    status.insert("name", name);
    status.insert("image", image.clone());
    status.insert("restartCount", 0);
    if is_known(&image) && is_started {
        let Container { state, ready, started } = state(container, &id);
        status.insert("imageID", format_smolstr!("simulated://{image}"));
        status.insert("containerID", id);
        status.insert("state", state);
        status.insert("ready", ready);
        status.insert("started", started);
    } else {
        let (reason, message) = match is_known(&image) {
            true => ("PodInitializing", String::new()),
            false => (NO_IMAGE, format!("simulated nodes do not have the image {image:?}")),
        };
        status.insert("imageID", "");
        let mut waiting = json!({"reason": reason});
        if !message.is_empty() {
            waiting.set_at(&["message"], message);
        }
        status.insert("state", json!({"waiting": waiting}));
        status.insert("ready", false);
        status.insert("started", false);
    }
    status.into()
}

/// The fields of a pod that was told to stop and has.
pub(super) fn stopped(pod: &Value, now: &str) -> Value {
    let mut status = pod.get("status").cloned().unwrap_or_default();
    if !matches!(status.str_at(&["phase"]), Some("Succeeded" | "Failed")) {
        status.set_at(&["phase"], "Succeeded");
    }
    for field in CONTAINER_STATUSES {
        for one in status.at_mut(&[field]).and_then(Value::as_array_mut).into_iter().flatten() {
            if one.at(&["state", "terminated"]).is_none() {
                let started = one.str_at(&["state", "running", "startedAt"]).unwrap_or(now).to_string();
                let id = one.str_at(&["containerID"]).unwrap_or_default().to_string();
                one.set_at(&["state"], json!({"terminated": {
                    "exitCode": 0, "reason": "Completed", "startedAt": started, "finishedAt": now, "containerID": id,
                }}));
            }
            one.set_at(&["ready"], false);
            one.set_at(&["started"], false);
        }
    }
    for kind in ["Ready", "ContainersReady"] {
        set_condition(&mut status, kind, false, "PodCompleted", pod, now);
    }
    status
}

/// How long a pod may still run, if somebody has said so and it has not ended.
pub(super) fn seconds_left(pod: &Value, now: i64) -> Option<i64> {
    let allowed = pod.i64_at(&["spec", "activeDeadlineSeconds"])?;
    let is_over = matches!(pod.str_at(&["status", "phase"]), Some("Succeeded" | "Failed"));
    let start = timestamp::seconds(pod.str_at(&["status", "startTime"])?)?;
    (!is_over).then(|| start.saturating_add(allowed).saturating_sub(now))
}

/// The fields of a pod that ran longer than it may.
pub(super) fn overdue(pod: &Value, now: &str) -> Value {
    let mut status = stopped(pod, now);
    status.set_at(&["phase"], "Failed");
    status.set_at(&["reason"], "DeadlineExceeded");
    status.set_at(&["message"], "Pod was active on the node longer than the specified deadline");
    status
}

fn set_condition(status: &mut Value, kind: &str, is: bool, reason: &str, pod: &Value, now: &str) {
    let mut condition = json!({"type": kind, "status": (if is { "True" } else { "False" })});
    if !reason.is_empty() {
        condition.set_at(&["reason"], reason);
    }
    if let Some(generation) = pod.i64_at(&["metadata", "generation"]) {
        condition.set_at(&["observedGeneration"], generation);
    }
    meta::put_condition(status, &["conditions"], condition, now);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(image: &str) -> Value {
        json!({
            "metadata": {"uid": "u", "generation": 2},
            "spec": {"initContainers": [{"name": "i", "image": "busybox"}], "containers": [{"name": "c", "image": image}]},
            "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]},
        })
    }

    fn condition<'v>(status: &'v Value, kind: &str) -> Option<&'v str> {
        let conditions = status.array_at(&["conditions"]).iter();
        conditions.into_iter().find(|own| own.str_at(&["type"]) == Some(kind))?.str_at(&["status"])
    }

    #[test]
    fn pods_run_when_their_images_are_there() {
        let good = running(&pod("nginx"), "10.0.0.1", "10.1.0.1", "2026-01-01T00:00:00Z");
        assert_eq!(good.str_at(&["phase"]), Some("Running"));
        assert_eq!(condition(&good, "Ready"), Some("True"));
        assert_eq!(condition(&good, "PodScheduled"), Some("True"), "what others said stays");
        assert!(good.array_at(&["initContainerStatuses"])[0].at(&["state", "terminated"]).is_some());
        assert_eq!(good.i64_at(&["observedGeneration"]), Some(2));

        let bad = running(&pod("nginx:404"), "10.0.0.1", "10.1.0.1", "2026-01-01T00:00:00Z");
        assert_eq!(bad.str_at(&["phase"]), Some("Pending"));
        assert_eq!(condition(&bad, "Ready"), Some("False"));
        assert_eq!(
            bad.array_at(&["containerStatuses"])[0].str_at(&["state", "waiting", "reason"]),
            Some("ErrImagePull")
        );
        assert!(missing_images(&json!({"status": good})).is_empty());
        assert_eq!(
            missing_images(&json!({"status": bad})),
            ["simulated nodes do not have the image \"nginx:404\""]
        );
    }

    #[test]
    fn who_comes_to_debug_a_pod_runs_beside_it() {
        let mut pod = pod("nginx");
        pod.set_at(&["spec", "ephemeralContainers"], json!([{"name": "debugger", "image": "busybox"}]));
        let status = running(&pod, "10.0.0.1", "10.1.0.1", "2026-01-01T00:00:00Z");
        let guest = &status.array_at(&["ephemeralContainerStatuses"])[0];
        assert_eq!(guest.str_at(&["name"]), Some("debugger"));
        assert!(guest.at(&["state", "running"]).is_some());
        assert_eq!(condition(&status, "Ready"), Some("True"));
    }

    #[test]
    fn pods_end_at_their_deadline() {
        let mut pod = pod("nginx");
        assert_eq!(seconds_left(&pod, 0), None);
        pod.set_at(&["spec", "activeDeadlineSeconds"], 5);
        assert_eq!(seconds_left(&pod, 0), None, "it has not begun");
        pod.set_at(&["status", "startTime"], "1970-01-01T00:00:10Z");
        assert_eq!(seconds_left(&pod, 12), Some(3));
        assert_eq!(seconds_left(&pod, 15), Some(0));
        let status = overdue(&pod, "1970-01-01T00:00:15Z");
        assert_eq!(
            (status.str_at(&["phase"]), status.str_at(&["reason"])),
            (Some("Failed"), Some("DeadlineExceeded"))
        );
        pod.set_at(&["status"], status);
        assert_eq!(seconds_left(&pod, 99), None, "once");
    }

    #[test]
    fn pods_stop() {
        let mut pod = pod("nginx");
        let status = running(&pod, "10.0.0.1", "10.1.0.1", "2026-01-01T00:00:00Z");
        pod.set_at(&["status"], status);
        let status = stopped(&pod, "2026-01-01T00:00:09Z");
        assert_eq!(status.str_at(&["phase"]), Some("Succeeded"));
        assert_eq!(condition(&status, "Ready"), Some("False"));
        let container = &status.array_at(&["containerStatuses"])[0];
        assert_eq!(container.str_at(&["state", "terminated", "startedAt"]), Some("2026-01-01T00:00:00Z"));
    }
}
