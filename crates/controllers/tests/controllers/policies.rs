//! Budgets and roles: what is written for those who decide.

use crate::world::{eventually, make_ready, namespace, pod};
use polder_test_support::{Client, TestServer, json};

#[test]
fn budgets_tell_how_many_may_go() {
    let server = TestServer::start();
    let plane = server.plane("acme");
    namespace(&plane, "shop");
    let budgets = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets";
    let budget = json!({
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    plane.post(budgets, &budget).expect(201);
    let status = || plane.get(&format!("{budgets}/web")).json()["status"].clone();
    eventually("it is counted", || {
        status()["observedGeneration"] == 1 && status()["conditions"][0]["reason"] == "InsufficientPods"
    });
    let pods = "/api/v1/namespaces/shop/pods";
    for name in ["a", "b"] {
        plane.post(pods, &pod(name, "node-1")).expect(201);
        make_ready(&plane, &format!("{pods}/{name}"));
    }
    eventually("one may go", || {
        let status = status();
        status["disruptionsAllowed"] == 1
            && status["currentHealthy"] == 2
            && status["expectedPods"] == 2
            && status["conditions"][0]["status"] == "True"
    });
    let told =
        json!([{"type": "DisruptionTarget", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}]);
    let told = json!({"status": {"conditions": told}});
    plane.patch(&format!("{pods}/b/status"), "strategic-merge", &told).expect(200);
    eventually("a pod that stays is told so", || {
        let pod = plane.get(&format!("{pods}/b")).json();
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "DisruptionTarget" && one["status"] == "False")
    });
    let eviction = json!({"metadata": {"name": "a"}});
    plane.post(&format!("{pods}/a/eviction"), &eviction).expect(201);
    eventually("none may go", || status()["disruptionsAllowed"] == 0);
    plane.post(&format!("{pods}/b/eviction"), &json!({"metadata": {"name": "b"}})).expect(429);
}

#[test]
fn roles_gather_rules() {
    let server = TestServer::start();
    let plane = server.plane("acme");
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let rule = json!([{"apiGroups": ["example.com"], "resources": ["shops"], "verbs": ["get"]}]);
    let shops = json!({
        "metadata": {"name": "shops", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": rule,
    });
    plane.post(roles, &shops).expect(201);
    let gathers = |name: &str| {
        let role = plane.get(&format!("{roles}/{name}")).json();
        role["rules"].as_array().is_some_and(|rules| rules.contains(&rule[0]))
    };
    // Through each other: the view's rules are the editor's, and those are the administrator's.
    for name in ["view", "edit", "admin"] {
        eventually(name, || gathers(name));
    }
    plane.delete(&format!("{roles}/shops")).expect(200);
    for name in ["view", "edit", "admin"] {
        eventually(name, || !gathers(name));
    }
}

#[test]
fn quotas_are_counted() {
    let server = TestServer::start();
    let plane = server.plane("acme");
    namespace(&plane, "shop");
    let maps = "/api/v1/namespaces/shop/configmaps";
    let path = format!("{maps}/kube-root-ca.crt");
    eventually("it is there", || plane.get(&path).code == 200);
    plane.post(maps, &json!({"metadata": {"name": "a"}})).expect(201);
    plane.post("/api/v1/namespaces/shop/pods", &pod("p", "")).expect(201);
    let quotas = "/api/v1/namespaces/shop/resourcequotas";
    let hard =
        json!({"configmaps": "10", "pods": "5", "count/deployments.apps": "1", "count/x.example.com": "1"});
    plane.post(quotas, &json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).expect(201);
    let status = || plane.get(&format!("{quotas}/q")).json()["status"].clone();
    let used =
        json!({"configmaps": "2", "pods": "1", "count/deployments.apps": "0", "count/x.example.com": "0"});
    eventually("what is there is counted", || status()["used"] == used && status()["hard"] == hard);

    let wrong = json!({"status": {"hard": {"configmaps": "99"}}});
    plane.patch(&format!("{quotas}/q/status"), "merge", &wrong).expect(200);
    eventually("a wrong status is set right", || status()["used"] == used && status()["hard"] == hard);

    let more = json!({"spec": {"hard": {"configmaps": "20", "secrets": "3"}}});
    plane.patch(&format!("{quotas}/q"), "merge", &more).expect(200);
    eventually("another line is counted", || {
        status()["hard"]["configmaps"] == "20" && status()["used"]["secrets"] == "0"
    });
    plane.delete(&format!("{maps}/a")).expect(200);
    eventually("what goes is not counted", || status()["used"]["configmaps"] == "1");
}

#[test]
fn flow_schemas_classify_requests_and_tell_whether_they_dangle() {
    let server = TestServer::start();
    let (plane, other) = (server.plane("acme"), server.plane("globex"));
    let api = "/apis/flowcontrol.apiserver.k8s.io/v1";
    let (schemas, levels) = (format!("{api}/flowschemas"), format!("{api}/prioritylevelconfigurations"));
    let uid = |plane: &Client, path: String| {
        plane.get(&path).json()["metadata"]["uid"].as_str().unwrap().to_owned()
    };
    let told = |plane: &Client, path: &str| {
        let reply = plane.get(path);
        let header = |name: &str| reply.header(name).unwrap_or_default().to_owned();
        (header("x-kubernetes-pf-flowschema-uid"), header("x-kubernetes-pf-prioritylevel-uid"))
    };
    let exempt = (uid(&plane, format!("{schemas}/exempt")), uid(&plane, format!("{levels}/exempt")));
    assert_eq!(told(&plane, "/api/v1/pods"), exempt);
    assert_eq!(told(&plane, "/api/v1/namespaces/none/pods/none"), exempt, "failures too");

    let schema = json!({"metadata": {"name": "jane"}, "spec": {
        "matchingPrecedence": 1000, "priorityLevelConfiguration": {"name": "calm"},
        "rules": [{
            "subjects": [{"kind": "User", "user": {"name": "jane"}}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        }],
    }});
    plane.post(&schemas, &schema).expect(201);
    let dangling = || {
        let schema = plane.get(&format!("{schemas}/jane")).json();
        schema["status"]["conditions"][0]["status"].clone()
    };
    eventually("it dangles", || dangling() == "True");
    let jane = plane.clone().with_header("Impersonate-User", "jane");
    let default =
        (uid(&plane, format!("{schemas}/global-default")), uid(&plane, format!("{levels}/global-default")));
    assert_eq!(told(&jane, "/version"), default, "a schema without its level says nothing");
    let level = json!({"metadata": {"name": "calm"}, "spec": {
        "type": "Limited", "limited": {"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}},
    }});
    plane.post(&levels, &level).expect(201);
    let own = (uid(&plane, format!("{schemas}/jane")), uid(&plane, format!("{levels}/calm")));
    assert_eq!(told(&jane, "/version"), own, "from the moment it is stored");
    assert_eq!(told(&jane, "/api/v1/namespaces/default/pods"), default);
    assert_eq!(told(&plane, "/version"), exempt);
    let stranger = other.clone().with_header("Impersonate-User", "jane");
    assert_eq!(told(&stranger, "/version"), default, "another plane has its own");
    eventually("it does not dangle", || dangling() == "False");
    let shown = plane.get("/metrics").text();
    assert!(
        shown.contains("apiserver_flowcontrol_nominal_limit_seats{priority_level=\"calm\"} 3\n"),
        "{shown}"
    );
    plane.delete(&format!("{levels}/calm")).expect(200);
    eventually("it dangles again", || dangling() == "True");
    assert_eq!(told(&jane, "/version"), default);
}
