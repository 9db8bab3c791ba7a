use std::collections::HashMap;
use std::sync::Arc;

use polder_model::{SmolStr, Value, json};

use super::pod::PodView;
use super::slices::{self, Plan};
use super::{frame, mirror, service, subsets};

fn web(more: Value) -> Value {
    let mut service = json!({
        "metadata": {"name": "web", "namespace": "n", "uid": "s", "labels": {"team": "a"}},
        "spec": {
            "clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"], "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}],
        },
    });
    for (key, value) in more.as_object().unwrap().iter() {
        service.set_at(&["spec", key], value.clone());
    }
    service
}

/// A pod, told by a few words: `ready`, `going`, `done`, `v6`, `named`, `host`.
fn pod(number: usize, words: &str) -> PodView {
    let has = |word: &str| words.split(' ').any(|one| one == word);
    let mut pod = json!({
        "metadata": {"name": (format!("web-{number}")), "uid": (format!("u{number}"))},
        "spec": {"nodeName": "node-1", "containers": [{}]},
        "status": {
            "phase": (if has("done") { "Succeeded" } else { "Running" }),
            "podIP": (format!("10.1.{}.{}", number / 250, number % 250)),
            "conditions": [{"type": "Ready", "status": (if has("ready") { "True" } else { "False" })}],
        },
    });
    if has("going") {
        pod.set_at(&["metadata", "deletionTimestamp"], "2026-01-01T00:00:00Z");
    }
    if has("v6") {
        let ip = pod.str_at(&["status", "podIP"]).unwrap().to_owned();
        pod.set_at(&["status", "podIPs"], json!([{"ip": ip}, {"ip": (format!("fd00::{number:x}"))}]));
    }
    if has("named") {
        let port = json!({"name": "web", "containerPort": 9000, "protocol": "TCP"});
        pod.set_at(&["spec", "containers"], json!([{"ports": [port]}]));
    }
    if has("host") {
        pod.set_at(&["spec", "hostname"], "h");
        pod.set_at(&["spec", "subdomain"], "web");
    }
    if has("none") {
        pod.remove_at(&["status", "podIP"]);
    }
    PodView::of(&pod)
}

fn texts(value: &Value, path: &[&str]) -> Vec<String> {
    value.array_at(path).iter().map(|one| one.str_at(&["ip"]).unwrap_or_default().into()).collect()
}

#[track_caller]
fn check_subsets(more: Value, pods: &[&str], ready: &[&str], waiting: &[&str]) {
    let pods: Vec<PodView> = pods.iter().enumerate().map(|(number, words)| pod(number, words)).collect();
    let endpoints = subsets::endpoints(&web(more), &pods, None);
    let subset = endpoints.array_at(&["subsets"]).first().cloned().unwrap_or_default();
    assert_eq!(texts(&subset, &["addresses"]), ready, "{endpoints}");
    assert_eq!(texts(&subset, &["notReadyAddresses"]), waiting, "{endpoints}");
}

#[test]
fn addresses_of_pods() {
    check_subsets(json!({}), &[], &[], &[]);
    check_subsets(json!({}), &["ready", ""], &["10.1.0.0"], &["10.1.0.1"]);
    check_subsets(json!({}), &["ready going", "ready done", "ready none"], &[], &[]);
    check_subsets(
        json!({"publishNotReadyAddresses": true}),
        &["", "going", "ready done"],
        &["10.1.0.0", "10.1.0.1"],
        &[],
    );
    check_subsets(json!({"ipFamilies": ["IPv6"]}), &["ready v6", "ready"], &["fd00::0"], &[]);
    let named = json!([{"port": 80, "targetPort": "web", "protocol": "TCP"}]);
    check_subsets(json!({"ports": named}), &["ready", "ready named"], &["10.1.0.1"], &[]);
    check_subsets(json!({"clusterIP": "None", "ports": null}), &["ready"], &["10.1.0.0"], &[]);
}

#[test]
fn endpoints_say_whose_they_are_and_stay_as_they_are() {
    let service = web(json!({"clusterIP": "None"}));
    let pods = [pod(0, "ready host")];
    let endpoints = subsets::endpoints(&service, &pods, None);
    let expected = json!({
        "team": "a", "service.kubernetes.io/headless": "",
        "endpoints.kubernetes.io/managed-by": "endpoint-controller",
    });
    assert_eq!(endpoints.at(&["metadata", "labels"]), Some(&expected));
    let expected = json!([{
        "addresses": [{
            "ip": "10.1.0.0", "nodeName": "node-1", "hostname": "h",
            "targetRef": {"kind": "Pod", "namespace": "n", "name": "web-0", "uid": "u0"},
        }],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    }]);
    assert_eq!(endpoints.get("subsets"), Some(&expected));
    assert_eq!(subsets::endpoints(&service, &pods, Some(&endpoints)), endpoints);
    let none = subsets::endpoints(&service, &[], Some(&endpoints));
    assert_eq!(none.get("subsets"), None);
    let many: Vec<PodView> = (0..1001).map(|number| pod(number, "ready")).collect();
    let many = subsets::endpoints(&service, &many, None);
    assert_eq!(many.array_at(&["subsets"])[0].array_at(&["addresses"]).len(), 1000);
    let note = many.str_at(&["metadata", "annotations", "endpoints.kubernetes.io/over-capacity"]);
    assert_eq!(note, Some("truncated"));
}

#[track_caller]
fn check_conditions(more: Value, words: &str, expected: &str) {
    let wanted = slices::wanted(&web(more), &[pod(0, words)], &HashMap::new());
    let endpoint = wanted.values().flat_map(|group| &group.endpoints).map(|(_, endpoint)| endpoint).next();
    let shown = endpoint.map(|endpoint| {
        let is = |name| endpoint.at(&["conditions", name]).and_then(Value::as_bool) == Some(true);
        let flags = ["ready", "serving", "terminating"].into_iter().filter(|name| is(name));
        flags.collect::<Vec<_>>().join(" ")
    });
    assert_eq!(shown.as_deref().unwrap_or("none"), expected);
}

#[test]
fn conditions_of_endpoints() {
    check_conditions(json!({}), "ready", "ready serving");
    check_conditions(json!({}), "", "");
    check_conditions(json!({}), "ready going", "serving terminating");
    check_conditions(json!({}), "going", "terminating");
    check_conditions(json!({}), "ready done", "none");
    check_conditions(json!({}), "ready none", "none");
    check_conditions(json!({"publishNotReadyAddresses": true}), "", "ready");
    check_conditions(json!({"publishNotReadyAddresses": true}), "ready going", "ready serving terminating");
}

fn plan(service: &Value, pods: &[PodView], there: &[Arc<Value>]) -> Plan {
    let wanted = slices::wanted(service, pods, &HashMap::from([("node-1".into(), SmolStr::new("z"))]));
    slices::plan(&frame(service), &service::families(service), wanted, there)
}

/// The slices after a plan was carried out.
fn done(plan: Plan, there: &[Arc<Value>]) -> Vec<Arc<Value>> {
    let name = |slice: &Value| slice.str_at(&["metadata", "name"]).unwrap_or_default().to_owned();
    let mut after: Vec<Arc<Value>> = there.to_vec();
    after.retain(|slice| !plan.delete.iter().any(|gone| name(gone) == name(slice)));
    for slice in &mut after {
        if let Some(new) = plan.update.iter().find(|new| name(new) == name(slice)) {
            *slice = Arc::new(new.clone());
        }
    }
    for (number, mut new) in plan.create.into_iter().enumerate() {
        new.set_at(&["metadata", "name"], format!("web-{}", there.len() + number));
        after.push(Arc::new(new));
    }
    after
}

fn lens(slices: &[Arc<Value>]) -> Vec<usize> {
    slices.iter().map(|slice| slice.array_at(&["endpoints"]).len()).collect()
}

#[test]
fn slices_are_filled_and_change_little() {
    let service = web(json!({}));
    let empty = done(plan(&service, &[], &[]), &[]);
    assert_eq!(lens(&empty), [0], "a service without pods has an empty slice");
    assert_eq!(plan(&service, &[], &empty), Plan::default());
    let many: Vec<PodView> = (0..250).map(|number| pod(number, "ready")).collect();
    let full = done(plan(&service, &many, &empty), &empty);
    assert_eq!(lens(&full), [100, 100, 50], "the empty slice is used");
    assert_eq!(full[0].array_at(&["ports"]).len(), 1);
    assert_eq!(plan(&service, &many, &full), Plan::default());
    let mut fewer = many.clone();
    fewer.remove(120);
    fewer.push(pod(300, "ready"));
    let next = plan(&service, &fewer, &full);
    assert_eq!((next.create.len(), next.update.len(), next.delete.len()), (0, 1, 0), "one for another");
    let none = plan(&service, &[], &full);
    assert_eq!((none.create.len(), none.update.len(), none.delete.len()), (0, 1, 2));
    assert_eq!(lens(&done(none, &full)), [0]);
}

#[test]
fn slices_say_whose_they_are() {
    let service = web(json!({"ipFamilies": ["IPv4", "IPv6"], "trafficDistribution": "PreferClose"}));
    let slices = done(plan(&service, &[pod(7, "ready v6")], &[]), &[]);
    let slice = &slices[0];
    assert_eq!(slice.str_at(&["metadata", "generateName"]), Some("web-"));
    let labels = json!({
        "team": "a", "kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    });
    assert_eq!(slice.at(&["metadata", "labels"]), Some(&labels));
    let owner = json!([{
        "apiVersion": "v1", "kind": "Service", "name": "web", "uid": "s", "controller": true,
        "blockOwnerDeletion": true,
    }]);
    assert_eq!(slice.at(&["metadata", "ownerReferences"]), Some(&owner));
    assert_eq!(slice.array_at(&["endpoints"])[0].str_at(&["zone"]), Some("z"));
    let hints = json!({"forZones": [{"name": "z"}]});
    assert_eq!(slice.array_at(&["endpoints"])[0].get("hints"), Some(&hints));
    let families: Vec<_> = slices.iter().map(|slice| slice.str_at(&["addressType"]).unwrap()).collect();
    assert_eq!(families, ["IPv4", "IPv6"]);
    assert_eq!(slices[1].array_at(&["endpoints"])[0].array_at(&["addresses"])[0].as_str(), Some("fd00::7"));
}

#[test]
fn endpoints_of_others_are_copied() {
    let endpoints = json!({
        "metadata": {"name": "db", "namespace": "n", "uid": "e", "labels": {"a": "b"}, "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "x",
        }},
        "subsets": [{
            "addresses": [{"ip": "10.2.0.1"}, {"ip": "fd00::2"}],
            "notReadyAddresses": [{"ip": "10.2.0.3", "hostname": "h"}],
            "ports": [{"port": 5432, "protocol": "TCP"}],
        }],
    });
    let plan = slices::plan(&mirror::frame(&endpoints), &[], mirror::wanted(&endpoints), &[]);
    assert_eq!(plan.create.len(), 2);
    let slice = &plan.create[0];
    assert_eq!(slice.at(&["metadata", "annotations"]), Some(&json!({"note": "x"})));
    assert_eq!(slice.array_at(&["ports"]), [json!({"name": "", "port": 5432, "protocol": "TCP"})]);
    let expected = json!([
        {"addresses": ["10.2.0.1"], "conditions": {"ready": true}},
        {"addresses": ["10.2.0.3"], "conditions": {"ready": false}, "hostname": "h"},
    ]);
    assert_eq!(slice.get("endpoints"), Some(&expected));
    let labels = slice.at(&["metadata", "labels"]).unwrap();
    assert_eq!(labels.as_object().unwrap().len(), 3);
}
