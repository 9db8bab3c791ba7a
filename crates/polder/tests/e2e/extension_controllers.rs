//! Controllers and extension servers: autoscalers that read metrics from them, namespaces that are emptied there, owners that
//! live there. Over real HTTPS.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use polder_test_support::extension::{Asked, ExtensionServer, Handler, answer, answer_json};
use polder_test_support::{Client, Value, eventually, json};

use crate::aggregation::{authority, networks};
use crate::process::{PLANES, Polder};

const AUTOSCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const GROUP: &str = "wardle.example.com";

/// Leads a plane to a server for several group versions.
#[track_caller]
pub(crate) fn register(plane: &Client, server: &ExtensionServer, served: &[(&str, &str)]) {
    for (group, version) in served {
        for (path, object) in server.objects("default", "api", group, version) {
            let reply = plane.post(&path, &object);
            assert!(matches!(reply.code, 201 | 409), "{}", reply.text());
        }
    }
}

/// Answers whether a server is there, with resources of this description.
pub(crate) fn discover(asked: &Asked, out: &mut dyn Write, resources: &Value) -> Option<std::io::Result<()>> {
    let (group, version) = asked.path.strip_prefix("/apis/")?.split_once('/')?;
    (!version.contains('/')).then(|| {
        let list = json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{group}/{version}"),
            "resources": resources,
        });
        answer_json(out, 200, &list)
    })
}

fn condition(object: &Value, kind: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|one| one["type"] == kind).unwrap_or_default()
}

/// Autoscalers follow what extension servers measure: of pods, of objects, and of things elsewhere.
#[test]
fn autoscalers_read_metrics_of_extension_servers() {
    let polder = Polder::start_with(&networks());
    let pods: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard: Arc<Mutex<BTreeSet<(String, String)>>> = Arc::default();
    let broken = Arc::new(AtomicBool::new(false));
    let (known, noted, fails) = (pods.clone(), heard.clone(), broken.clone());
    let handler: Handler = Arc::new(move |asked, out| {
        if let Some(done) = discover(asked, out, &json!([])) {
            return done;
        }
        if fails.load(Ordering::SeqCst) {
            return answer(out, 500, "text/plain", b"broken");
        }
        let user = asked.all("x-remote-user").join(",");
        noted.lock().unwrap().insert((user, asked.path.clone()));
        let later = "2099-01-01T00:00:00Z";
        let of_pods = |one: &dyn Fn(&str) -> Value| {
            let items: Vec<Value> = known.lock().unwrap().iter().map(|name| one(name)).collect();
            json!({"kind": "List", "items": items})
        };
        let path = asked.path.split('?').next().unwrap_or_default();
        let body = match path.rsplit('/').next().unwrap_or_default() {
            "pods" => of_pods(&|name| {
                json!({
                    "metadata": {"name": name}, "timestamp": later, "window": "30s",
                    "containers": [{"name": "c", "usage": {"cpu": "100m"}}],
                })
            }),
            "hits" => of_pods(
                &|name| json!({"describedObject": {"kind": "Pod", "name": name}, "timestamp": later, "value": "10"}),
            ),
            "qps" => {
                json!({"items": [{"describedObject": {"kind": "Service", "name": "main"}, "value": "300"}]})
            }
            "queue" => json!({"items": [{"value": "3"}, {"value": "4"}]}),
            _ => return answer_json(out, 404, &json!({"kind": "Status", "message": "what?"})),
        };
        answer_json(out, 200, &body)
    });
    let server = ExtensionServer::start("api.default.svc", &authority(&polder), handler).unwrap();
    let plane = json!({"metadata": {"name": "acme"}, "spec": {"simulatedNodes": 1}});
    polder.admin.post(PLANES, &plane).expect(201);
    let plane = polder.admin.in_plane("acme");
    register(
        &plane,
        &server,
        &[
            ("metrics.k8s.io", "v1beta1"),
            ("custom.metrics.k8s.io", "v1beta1"),
            ("external.metrics.k8s.io", "v1beta1"),
        ],
    );
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}});
    let deployment = json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}},
        },
    });
    plane.post(DEPLOYMENTS, &deployment).expect(201);
    let read = || plane.get(&format!("{DEPLOYMENTS}/web")).json();
    eventually("it runs", || read()["status"]["readyReplicas"] == 2);
    let all = plane.get("/api/v1/namespaces/default/pods").expect(200).json();
    let names = all["items"].as_array().unwrap().iter().map(|pod| pod["metadata"]["name"].as_str().unwrap());
    *pods.lock().unwrap() = names.map(str::to_owned).collect();
    let target = |kind: &str, field: &str, value: Value| {
        let mut target = json!({"type": kind});
        target[field] = value;
        target
    };
    let autoscaler = json!({
        "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 4,
            "metrics": [
                {"type": "Resource", "resource": {
                    "name": "cpu", "target": target("Utilization", "averageUtilization", json!(50)),
                }},
                {"type": "Pods", "pods": {
                    "metric": {"name": "hits"}, "target": target("AverageValue", "averageValue", json!("10")),
                }},
                {"type": "Object", "object": {
                    "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "main"},
                    "metric": {"name": "qps", "selector": {"matchLabels": {"verb": "GET"}}},
                    "target": target("Value", "value", json!("100")),
                }},
                {"type": "External", "external": {
                    "metric": {"name": "queue"}, "target": target("AverageValue", "averageValue", json!("5")),
                }},
            ],
        },
    });
    plane.post(AUTOSCALERS, &autoscaler).expect(201);
    let path = format!("{AUTOSCALERS}/web");
    eventually("it scales", || read()["spec"]["replicas"] == 4);
    eventually("it says so", || plane.get(&path).json()["status"]["desiredReplicas"] == 4);
    let found = plane.get(&path).json();
    let metrics = &found["status"]["currentMetrics"];
    let current = |index: usize, kind: &str| metrics[index][kind]["current"].clone();
    assert_eq!(current(0, "resource"), json!({"averageUtilization": 100, "averageValue": "100m"}), "{found}");
    assert_eq!(current(1, "pods"), json!({"averageValue": "10"}));
    assert_eq!(current(2, "object"), json!({"value": "300"}));
    assert_eq!(metrics[2]["object"]["describedObject"]["name"], "main");
    assert_eq!(current(3, "external"), json!({"averageValue": "3500m"}));
    let said = condition(&found, "ScalingActive");
    assert_eq!(
        said["message"],
        "the HPA was able to successfully calculate a replica count from Service metric qps"
    );
    let account = "system:serviceaccount:kube-system:horizontal-pod-autoscaler";
    let custom = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/default";
    let asked = heard.lock().unwrap().clone();
    for path in [
        "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods?labelSelector=app%3Dweb".to_owned(),
        format!("{custom}/pods/%2A/hits?labelSelector=app%3Dweb"),
        format!("{custom}/services/main/qps?metricLabelSelector=verb%3DGET"),
        "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue".to_owned(),
    ] {
        assert!(asked.contains(&(account.to_owned(), path.clone())), "{path}: {asked:?}");
    }
    broken.store(true, Ordering::SeqCst);
    plane.patch(&path, "merge", &json!({"spec": {"maxReplicas": 6}})).expect(200);
    let failed = || condition(&plane.get(&path).json(), "ScalingActive");
    eventually("it tells what it lacks", || failed()["status"] == "False");
    assert_eq!(
        failed()["message"],
        "the HPA was unable to compute the replica count: failed to get cpu utilization: unable to get metrics for \
         resource cpu: unable to fetch metrics from resource metrics API: an error on the server (\"broken\") has \
         prevented the request from succeeding (get pods.metrics.k8s.io)"
    );
}

/// A server with flunders, which may be away.
struct Flunders {
    /// By path.
    there: Mutex<BTreeSet<String>>,
    away: AtomicBool,
    deleters: Mutex<BTreeSet<String>>,
}

fn flunders(polder: &Polder, verbs: &'static [&'static str]) -> (Arc<Flunders>, ExtensionServer) {
    let all = Arc::new(Flunders { there: Mutex::default(), away: true.into(), deleters: Mutex::default() });
    let own = all.clone();
    let handler: Handler = Arc::new(move |asked, out| {
        if own.away.load(Ordering::SeqCst) {
            return answer(out, 503, "text/plain", b"away");
        }
        let resources = json!([{"name": "flunders", "namespaced": true, "kind": "Flunder", "verbs": verbs}]);
        if let Some(done) = discover(asked, out, &resources) {
            return done;
        }
        let path = asked.path.split('?').next().unwrap_or_default().to_owned();
        let mut there = own.there.lock().unwrap();
        let under: Vec<String> =
            there.iter().filter(|one| one.starts_with(&format!("{path}/"))).cloned().collect();
        let is_list = path.ends_with("/flunders");
        if asked.method == "DELETE" {
            own.deleters.lock().unwrap().insert(asked.all("x-remote-user").join(","));
            if is_list && !verbs.contains(&"deletecollection") {
                return answer(out, 405, "text/plain", b"");
            }
            for one in under.iter().chain([&path]) {
                there.remove(one);
            }
            return answer_json(out, 200, &json!({"kind": "Status", "status": "Success"}));
        }
        let object = |path: &str| {
            let name = path.rsplit('/').next().unwrap_or_default();
            json!({"kind": "Flunder", "metadata": {"name": name, "uid": format!("uid-{name}")}})
        };
        if is_list {
            let items: Vec<Value> = under.iter().map(|one| object(one)).collect();
            return answer_json(out, 200, &json!({"kind": "FlunderList", "metadata": {}, "items": items}));
        }
        match there.contains(&path) {
            true => answer_json(out, 200, &object(&path)),
            false => answer_json(
                out,
                404,
                &json!({"kind": "Status", "reason": "NotFound", "message": "not found"}),
            ),
        }
    });
    let server = ExtensionServer::start("api.default.svc", &authority(polder), handler).unwrap();
    (all, server)
}

fn path(namespace: &str, name: &str) -> String {
    format!("/apis/{GROUP}/v1alpha1/namespaces/{namespace}/flunders/{name}")
}

/// What an extension server has in a namespace goes with it, and a namespace does not go before that is known.
#[test]
fn namespaces_are_emptied_in_extension_servers() {
    for verbs in [&["delete", "deletecollection", "list"][..], &["delete", "list"]] {
        let polder = Polder::start_with(&networks());
        let (all, server) = flunders(&polder, verbs);
        for name in ["a", "b"] {
            all.there.lock().unwrap().extend([path("shop", name), path("other", name)]);
        }
        let acme = polder.plane("acme");
        register(&acme, &server, &[(GROUP, "v1alpha1")]);
        acme.post("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).expect(201);
        acme.delete("/api/v1/namespaces/shop").expect(200);
        let told =
            || condition(&acme.get("/api/v1/namespaces/shop").json(), "NamespaceDeletionDiscoveryFailure");
        eventually("it waits", || told()["status"] == "True");
        assert_eq!(told()["reason"], "DiscoveryFailed");
        assert_eq!(
            told()["message"],
            "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: \
             wardle.example.com/v1alpha1: stale GroupVersion discovery: wardle.example.com/v1alpha1"
        );
        // Another plane's namespace goes meanwhile.
        let globex = polder.plane("globex");
        globex.post("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).expect(201);
        globex.delete("/api/v1/namespaces/shop").expect(200);
        eventually("the other's goes", || globex.get("/api/v1/namespaces/shop").code == 404);
        all.away.store(false, Ordering::SeqCst);
        eventually("it goes", || acme.get("/api/v1/namespaces/shop").code == 404);
        let left: Vec<String> = all.there.lock().unwrap().iter().cloned().collect();
        assert_eq!(left, [path("other", "a"), path("other", "b")]);
        let account = "system:serviceaccount:kube-system:namespace-controller".to_owned();
        assert_eq!(*all.deleters.lock().unwrap(), BTreeSet::from([account]));
    }
}

/// An object whose owner an extension server keeps stays while the owner does, or cannot be asked about, and goes with it.
#[test]
fn owners_in_extension_servers() {
    let polder = Polder::start_with(&networks());
    let (all, server) = flunders(&polder, &["delete", "list"]);
    all.there.lock().unwrap().insert(path("default", "a"));
    let acme = polder.plane("acme");
    register(&acme, &server, &[(GROUP, "v1alpha1")]);
    let map = |name: &str, owner: &str| {
        let owner = json!({
            "apiVersion": "wardle.example.com/v1alpha1", "kind": "Flunder", "name": owner, "uid": format!("uid-{owner}"),
        });
        json!({"metadata": {"name": name, "ownerReferences": [owner]}})
    };
    let maps = "/api/v1/namespaces/default/configmaps";
    for (name, owner) in [("kept", "a"), ("lost", "b")] {
        acme.post(maps, &map(name, owner)).expect(201);
    }
    let unavailable = || {
        let path = format!("/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.{GROUP}");
        condition(&acme.get(&path).json(), "Available")["status"] == "False"
    };
    eventually("it is away", unavailable);
    acme.get(&format!("{maps}/lost")).expect(200);
    all.away.store(false, Ordering::SeqCst);
    eventually("it goes with its owner", || acme.get(&format!("{maps}/lost")).code == 404);
    acme.get(&format!("{maps}/kept")).expect(200);
}
