//! Pods: how they print, what the server fills in, what may change later.

use polder_model::{FieldError, FieldPath, Value, json};

use super::{cells, deprecations, pod_rules, pod_spec, pod_warnings, resource_amounts, status_rules};
use crate::behavior::{Behavior, Column, Print, Selectable};

pub(super) const PODS: Behavior = Behavior {
    resource: "pods",
    generation: true,
    delete_returns_object: true,
    selectable: &[
        Selectable { label: "spec.nodeName", paths: &[&["spec", "nodeName"]], missing: "" },
        Selectable { label: "spec.host", paths: &[&["spec", "nodeName"]], missing: "" },
        Selectable { label: "spec.restartPolicy", paths: &[&["spec", "restartPolicy"]], missing: "" },
        Selectable { label: "spec.schedulerName", paths: &[&["spec", "schedulerName"]], missing: "" },
        Selectable {
            label: "spec.serviceAccountName",
            paths: &[&["spec", "serviceAccountName"]],
            missing: "",
        },
        Selectable { label: "spec.hostNetwork", paths: &[&["spec", "hostNetwork"]], missing: "false" },
        Selectable { label: "status.phase", paths: &[&["status", "phase"]], missing: "" },
        Selectable { label: "status.podIP", paths: &[&["status", "podIP"]], missing: "" },
        Selectable { label: "status.podIPs", paths: &[&["status", "podIP"]], missing: "" },
        Selectable {
            label: "status.nominatedNodeName",
            paths: &[&["status", "nominatedNodeName"]],
            missing: "",
        },
    ],
    columns: &[
        Column::NAME,
        Column::text("Ready"),
        Column::text("Status"),
        Column::text("Restarts"),
        Column::AGE,
        Column::text("IP").wide(),
        Column::text("Node").wide(),
        Column::text("Nominated Node").wide(),
        Column::text("Readiness Gates").wide(),
    ],
    cells,
    row_conditions,
    default,
    prepare_create,
    validate_status: status_rules::pod,
    validate,
    validate_part,
    warnings,
    ..Behavior::PLAIN
};

/// Clients show finished pods apart from others.
fn row_conditions(pod: &Value) -> Vec<Value> {
    let (reason, message) = match pod.str_at(&["status", "phase"]) {
        Some("Succeeded") => ("Succeeded", "The pod has completed successfully."),
        Some("Failed") => ("Failed", "The pod failed."),
        _ => return Vec::new(),
    };
    vec![json!({"type": "Completed", "status": "True", "reason": reason, "message": message})]
}

fn default(pod: &mut Value) {
    pod_spec::default_pod(pod);
    // The single address and the first of the list are the same thing; older kubelets send only the former.
    let first =
        pod.array_at(&["status", "podIPs"]).first().and_then(|ip| ip.str_at(&["ip"])).map(str::to_owned);
    match (pod.str_at(&["status", "podIP"]).filter(|ip| !ip.is_empty()).map(str::to_owned), first) {
        (Some(ip), first) if first.as_ref() != Some(&ip) => {
            pod.set_at(&["status", "podIPs"], vec![json!({"ip": ip})]);
        }
        (None, Some(first)) if !first.is_empty() => pod.set_at(&["status", "podIP"], first),
        _ => {}
    }
}

fn prepare_create(pod: &mut Value) {
    if pod.as_object().is_none() {
        return;
    }
    merge_label_keys(pod);
    deprecations::copy_app_armor(pod);
    let mut status = json!({"phase": "Pending", "qosClass": (qos_class(pod))});
    if !pod.array_at(&["spec", "schedulingGates"]).is_empty() {
        let now = pod.at(&["metadata", "creationTimestamp"]).cloned().unwrap_or_default();
        status.set_at(
            &["conditions"],
            vec![json!({
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": null,
                "lastTransitionTime": now,
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            })],
        );
    }
    pod.set_at(&["status"], status);
}

/// Keys of labels become requirements with the values that this pod has.
fn merge_label_keys(pod: &mut Value) {
    let Some(labels) = pod.at(&["metadata", "labels"]).and_then(Value::as_object).cloned() else { return };
    let merge = |term: &mut Value| {
        let requirements: Vec<Value> = [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")]
            .iter()
            .flat_map(|(list, operator)| term.array_at(&[list]).iter().map(move |key| (key, *operator)))
            .filter_map(|(key, operator)| {
                let key = key.as_str()?;
                let value = labels.get(key)?.clone();
                Some(json!({"key": key, "operator": operator, "values": [value]}))
            })
            .collect();
        if !requirements.is_empty()
            && let Some(selector) =
                term.at_mut(&["labelSelector"]).filter(|selector| selector.as_object().is_some())
        {
            let mut all = selector.array_at(&["matchExpressions"]).to_vec();
            all.extend(requirements);
            selector.set_at(&["matchExpressions"], all);
        }
    };
    let mut each = |path: &[&str], inner: &[&str]| {
        for term in pod.at_mut(path).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(term) = term.at_mut(inner) {
                merge(term);
            }
        }
    };
    for kind in ["podAffinity", "podAntiAffinity"] {
        let affinity = ["spec", "affinity", kind];
        each(&[&affinity[..], &["requiredDuringSchedulingIgnoredDuringExecution"]].concat(), &[]);
        each(
            &[&affinity[..], &["preferredDuringSchedulingIgnoredDuringExecution"]].concat(),
            &["podAffinityTerm"],
        );
    }
    each(&["spec", "topologySpreadConstraints"], &[]);
}

/// How well the pod is protected from eviction.
fn qos_class(pod: &Value) -> &'static str {
    let spec_resources = pod.at(&["spec", "resources"]).filter(|resources| resources.as_object().is_some());
    let resources: Vec<&Value> = match spec_resources {
        Some(resources) => vec![resources],
        None => ["containers", "initContainers"]
            .iter()
            .flat_map(|list| pod.array_at(&["spec", list]))
            .map(|container| container.get("resources").unwrap_or(&Value::Null))
            .collect(),
    };
    let amount = |resources: &Value, list: &str, name: &str| {
        resource_amounts::amount(resources.at(&[list, name])).filter(|amount| !amount.is_zero())
    };
    let (mut any, mut guaranteed) = (false, !resources.is_empty());
    for resources in resources {
        for name in ["cpu", "memory"] {
            let (limit, request) = (amount(resources, "limits", name), amount(resources, "requests", name));
            any |= limit.is_some() || request.is_some();
            guaranteed &= limit.is_some() && (request.is_none() || request == limit);
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    pod_rules::validate(new, errors);
    match old {
        Some(old) => pod_rules::validate_update(new, old, errors),
        None => pod_rules::validate_create(new, &FieldPath::root("spec"), errors),
    }
}

fn validate_part(part: &str, new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    if part == "ephemeralcontainers" {
        pod_rules::validate(new, errors);
        pod_rules::validate_ephemeral(new, old, errors);
    }
}

fn warnings(pod: &Value) -> Vec<String> {
    let mut warnings = super::name_warning(pod, "this is used in the Pod's hostname");
    warnings.extend(pod_warnings::of(pod, ""));
    warnings
}

/// A time of the last restart, and how often.
#[derive(Default)]
struct Restarts {
    count: i64,
    last: Option<i64>,
}

impl Restarts {
    fn add(&mut self, status: &Value) {
        self.count = self.count.saturating_add(cells::count(status, &["restartCount"]));
        let finished = status.str_at(&["lastState", "terminated", "finishedAt"]).and_then(cells::seconds);
        self.last = self.last.max(finished);
    }
}

fn cells(pod: &Value, print: &Print) -> Vec<Value> {
    let phase = pod.str_at(&["status", "phase"]).unwrap_or_default();
    let mut reason = cells::text_or(pod, &["status", "reason"], phase).to_owned();
    let gated = pod.array_at(&["status", "conditions"]).iter().any(|condition| {
        condition.str_at(&["type"]) == Some("PodScheduled")
            && condition.str_at(&["reason"]) == Some("SchedulingGated")
    });
    if gated {
        reason = "SchedulingGated".into();
    }

    let init = pod.array_at(&["spec", "initContainers"]);
    let sidecars: std::collections::HashSet<&str> = init
        .iter()
        .filter(|container| container.str_at(&["restartPolicy"]) == Some("Always"))
        .map(|container| container.str_at(&["name"]).unwrap_or_default())
        .collect();
    let sidecars_total =
        init.iter().filter(|container| container.str_at(&["restartPolicy"]) == Some("Always")).count();
    let total = pod.array_at(&["spec", "containers"]).len() + sidecars_total;
    let mut ready = 0;

    let (mut restarts, mut sidecar_restarts) = (Restarts::default(), Restarts::default());
    let mut initializing = false;
    for (index, status) in pod.array_at(&["status", "initContainerStatuses"]).iter().enumerate() {
        restarts.add(status);
        let sidecar = sidecars.contains(status.str_at(&["name"]).unwrap_or_default());
        if sidecar {
            sidecar_restarts.add(status);
        }
        let terminated = status.at(&["state", "terminated"]).filter(|terminated| !terminated.is_null());
        if terminated.is_some_and(|terminated| cells::count(terminated, &["exitCode"]) == 0) {
            continue;
        }
        if sidecar && is_true(status, "started") {
            ready += usize::from(is_true(status, "ready"));
            continue;
        }
        let waiting = cells::text_or(status, &["state", "waiting", "reason"], "PodInitializing");
        reason = match terminated {
            Some(terminated) => format!("Init:{}", ended(terminated)),
            None if waiting != "PodInitializing" => format!("Init:{waiting}"),
            None => format!("Init:{index}/{}", init.len()),
        };
        initializing = true;
        break;
    }

    if !initializing || cells::condition(pod, "Initialized") == Some("True") {
        restarts = sidecar_restarts;
        let mut running = false;
        let mut failed = None;
        for status in pod.array_at(&["status", "containerStatuses"]).iter().rev() {
            restarts.add(status);
            let waiting = cells::text_or(status, &["state", "waiting", "reason"], "");
            if !waiting.is_empty() {
                reason = waiting.to_owned();
            } else if let Some(terminated) =
                status.at(&["state", "terminated"]).filter(|terminated| !terminated.is_null())
            {
                reason = ended(terminated);
                if cells::count(terminated, &["exitCode"]) != 0 {
                    failed = Some(reason.clone());
                }
            } else if is_true(status, "ready") && status.at(&["state", "running"]).is_some() {
                running = true;
                ready += 1;
            }
        }
        if reason == "Completed" {
            if running && cells::condition(pod, "Ready") == Some("True") {
                reason = "Running".into();
            } else if let Some(failed) = failed {
                reason = failed;
            } else if running {
                reason = "NotReady".into();
            }
        }
    }

    if cells::is_terminating(pod) {
        if pod.str_at(&["status", "reason"]) == Some("NodeLost") {
            reason = "Unknown".into();
        } else if !matches!(phase, "Succeeded" | "Failed") {
            reason = "Terminating".into();
        }
    }
    let restarts = match (restarts.count, restarts.last) {
        (count, Some(last)) if count != 0 => {
            let ago = polder_machinery::age::human_duration(print.now.saturating_sub(last));
            format!("{count} ({ago} ago)")
        }
        (count, _) => count.to_string(),
    };
    let ip = pod
        .array_at(&["status", "podIPs"])
        .first()
        .map_or("<none>", |ip| cells::text_or(ip, &["ip"], "<none>"));
    vec![
        cells::name(pod),
        format!("{ready}/{total}").into(),
        reason.into(),
        restarts.into(),
        cells::age(pod, print),
        ip.into(),
        cells::text_or(pod, &["spec", "nodeName"], "<none>").into(),
        cells::text_or(pod, &["status", "nominatedNodeName"], "<none>").into(),
        readiness_gates(pod).into(),
    ]
}

fn is_true(status: &Value, key: &str) -> bool {
    status.get(key).and_then(Value::as_bool) == Some(true)
}

/// Why a container ended.
fn ended(terminated: &Value) -> String {
    match (cells::text_or(terminated, &["reason"], ""), cells::count(terminated, &["signal"])) {
        ("", 0) => format!("ExitCode:{}", cells::count(terminated, &["exitCode"])),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn readiness_gates(pod: &Value) -> String {
    let gates = pod.array_at(&["spec", "readinessGates"]);
    if gates.is_empty() {
        return "<none>".into();
    }
    let open = gates
        .iter()
        .filter(|gate| {
            let kind = gate.str_at(&["conditionType"]).unwrap_or_default();
            cells::condition(pod, kind) == Some("True")
        })
        .count();
    format!("{open}/{}", gates.len())
}

#[cfg(test)]
mod tests {
    use super::super::rows::{creates, defaults, parse, prints};
    use super::PODS;

    #[test]
    fn finished_pods_say_so() {
        let rows: [(&str, &[&str]); 3] = [
            ("Running", &[]),
            (
                "Succeeded",
                &[
                    r#"{"message":"The pod has completed successfully.","reason":"Succeeded","status":"True","type":"Completed"}"#,
                ],
            ),
            (
                "Failed",
                &[r#"{"message":"The pod failed.","reason":"Failed","status":"True","type":"Completed"}"#],
            ),
        ];
        for (phase, expected) in rows {
            let found = super::row_conditions(&parse(&format!(r#"{{"status":{{"phase":"{phase}"}}}}"#)));
            assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), expected, "{phase}");
        }
    }

    #[test]
    fn cells() {
        let rows = [
            (r#"{}"#, "|0/0||0|<unknown>|<none>|<none>|<none>|<none>"),
            (
                r#"{"metadata":{"name":"p","creationTimestamp":"2025-12-31T23:00:00Z"},
                    "spec":{"containers":[{"name":"a"},{"name":"b"}],"nodeName":"n","readinessGates":[{"conditionType":"x"}]},
                    "status":{"phase":"Running","podIPs":[{"ip":"10.0.0.1"}],"conditions":[{"type":"x","status":"True"}],
                    "containerStatuses":[
                      {"ready":true,"restartCount":3,"state":{"running":{}},"lastState":{"terminated":{"finishedAt":"2025-12-31T23:55:00Z"}}},
                      {"ready":false,"restartCount":0,"state":{"running":{}}}]}}"#,
                "p|1/2|Running|3 (5m ago)|60m|10.0.0.1|n|<none>|1/1",
            ),
            (
                r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"a"}]},
                    "status":{"phase":"Running","containerStatuses":[{"restartCount":6,"state":{"waiting":{"reason":"CrashLoopBackOff"}}}]}}"#,
                "p|0/1|CrashLoopBackOff|6|<unknown>|<none>|<none>|<none>|<none>",
            ),
            (
                r#"{"metadata":{"name":"p","deletionTimestamp":"2026-01-01T00:00:00Z"},"status":{"phase":"Running"}}"#,
                "p|0/0|Terminating|0|<unknown>|<none>|<none>|<none>|<none>",
            ),
            (
                r#"{"metadata":{"name":"p"},"spec":{"initContainers":[{"name":"i"},{"name":"j"}],"containers":[{"name":"a"}]},
                    "status":{"phase":"Pending","initContainerStatuses":[
                      {"name":"i","state":{"terminated":{"exitCode":0}}},{"name":"j","state":{"waiting":{"reason":"PodInitializing"}}}]}}"#,
                "p|0/1|Init:1/2|0|<unknown>|<none>|<none>|<none>|<none>",
            ),
            (
                r#"{"metadata":{"name":"p"},"spec":{"initContainers":[{"name":"i"}],"containers":[{"name":"a"}]},
                    "status":{"phase":"Pending","initContainerStatuses":[{"name":"i","restartCount":2,"state":{"terminated":{"exitCode":3}}}]}}"#,
                "p|0/1|Init:ExitCode:3|2|<unknown>|<none>|<none>|<none>|<none>",
            ),
            (
                r#"{"metadata":{"name":"p"},"spec":{"initContainers":[{"name":"s","restartPolicy":"Always"}],"containers":[{"name":"a"}]},
                    "status":{"phase":"Running","initContainerStatuses":[{"name":"s","started":true,"ready":true,"restartCount":1,"state":{"running":{}}}],
                    "containerStatuses":[{"ready":true,"state":{"running":{}}}]}}"#,
                "p|2/2|Running|1|<unknown>|<none>|<none>|<none>|<none>",
            ),
            (
                r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"a"},{"name":"b"}]},
                    "status":{"phase":"Running","containerStatuses":[
                      {"state":{"terminated":{"exitCode":0,"reason":"Completed"}}},{"ready":true,"state":{"running":{}}}]}}"#,
                "p|1/2|NotReady|0|<unknown>|<none>|<none>|<none>|<none>",
            ),
            (
                r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"a"}]},
                    "status":{"phase":"Failed","reason":"Evicted"}}"#,
                "p|0/1|Evicted|0|<unknown>|<none>|<none>|<none>|<none>",
            ),
        ];
        for (object, expected) in rows {
            prints(&PODS, object, expected);
        }
    }

    #[test]
    fn default() {
        defaults(
            &PODS,
            r#"{"spec":{"hostNetwork":true,"serviceAccount":"sa","volumes":[{"name":"v"}],"containers":[
                {"image":"nginx","ports":[{"containerPort":80}],"resources":{"limits":{"cpu":"1"}},"livenessProbe":{"httpGet":{"port":1}}},
                {"image":"nginx:1","imagePullPolicy":"","resources":{"limits":{"cpu":"1"},"requests":{"cpu":"2"}}}]},"status":{"podIP":"1.2.3.4"}}"#,
            r#"{"spec":{"hostNetwork":true,"serviceAccount":"sa","serviceAccountName":"sa","volumes":[{"name":"v","emptyDir":{}}],"containers":[
                {"image":"nginx","imagePullPolicy":"Always","ports":[{"containerPort":80,"hostPort":80}],
                 "resources":{"limits":{"cpu":"1"},"requests":{"cpu":"1"}},"livenessProbe":{"httpGet":{"path":"/","port":1,"scheme":"HTTP"}}},
                {"image":"nginx:1","imagePullPolicy":"IfNotPresent","resources":{"limits":{"cpu":"1"},"requests":{"cpu":"2"}}}]},
              "status":{"podIP":"1.2.3.4","podIPs":[{"ip":"1.2.3.4"}]}}"#,
        );
    }

    #[test]
    fn created_pods_are_pending() {
        let rows = [
            ("", "BestEffort"),
            (r#""limits":{"cpu":"1","memory":"1"},"requests":{"cpu":"1","memory":"1"}"#, "Guaranteed"),
            (r#""limits":{"cpu":"1"}"#, "Burstable"),
            (r#""requests":{"cpu":"0"}"#, "BestEffort"),
            (r#""requests":{"example.com/gpu":"1"}"#, "BestEffort"),
        ];
        for (resources, class) in rows {
            let spec = format!(r#""spec":{{"containers":[{{"resources":{{{resources}}}}}]}}"#);
            creates(
                &PODS,
                &format!(r#"{{{spec},"status":{{"phase":"Running"}}}}"#),
                &format!(r#"{{{spec},"status":{{"phase":"Pending","qosClass":"{class}"}}}}"#),
            );
        }
        creates(
            &PODS,
            r#"{"metadata":{"creationTimestamp":"T"},"spec":{"schedulingGates":[{"name":"g"}]}}"#,
            r#"{"metadata":{"creationTimestamp":"T"},"spec":{"schedulingGates":[{"name":"g"}]},"status":{"phase":"Pending","qosClass":"BestEffort",
                "conditions":[{"type":"PodScheduled","status":"False","reason":"SchedulingGated","lastProbeTime":null,"lastTransitionTime":"T",
                "message":"Scheduling is blocked due to non-empty scheduling gates"}]}}"#,
        );
    }
}
