//! Objects that every plane starts with come back when somebody deletes them.

use polder_test_support::{TestServer, json};

use crate::world::eventually;

#[test]
fn what_a_plane_cannot_do_without_comes_back() {
    let server = TestServer::start();
    let acme = server.plane("acme");
    let flow = "/apis/flowcontrol.apiserver.k8s.io/v1";
    let kept = [
        "/api/v1/namespaces/default/services/kubernetes".to_string(),
        "/api/v1/namespaces/default/endpoints/kubernetes".into(),
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes".into(),
        "/api/v1/namespaces/kube-node-lease".into(),
        format!("{flow}/flowschemas/exempt"),
        format!("{flow}/flowschemas/service-accounts"),
        format!("{flow}/prioritylevelconfigurations/catch-all"),
        "/apis/apiregistration.k8s.io/v1/apiservices/v1.apps".into(),
    ];
    for path in &kept {
        // The end of a service is that of its endpoints too.
        eventually(path, || acme.get(path).code == 200);
        let old = acme.get(path).expect(200).json();
        acme.delete(path).expect(200);
        // The first thing to see may be one that goes away.
        let back = || {
            let found = acme.get(path);
            let new = found.json();
            (found.code == 200 && new["metadata"]["uid"] != old["metadata"]["uid"]).then_some(new)
        };
        eventually(path, || back().is_some());
        let new = back().unwrap();
        assert_eq!(new["metadata"]["labels"], old["metadata"]["labels"], "{path}");
        for field in ["spec", "subsets", "endpoints", "ports"] {
            assert_eq!(new[field], old[field], "{path}");
        }
    }
    let account = "/api/v1/namespaces/kube-node-lease/serviceaccounts/default";
    eventually("the namespace has its account", || acme.get(account).code == 200);
    // A plane of another kind is not given what it does not have.
    let generic = json!({"metadata": {"name": "bare"}, "spec": {"profile": "generic"}});
    server.admin.post("/apis/polder.dev/v1alpha1/planes", &generic).expect(201);
    let bare = server.admin.in_plane("bare");
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let apps = json!({"metadata": {"name": "v1.apps"},
        "spec": {"group": "apps", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}});
    bare.post(services, &apps).expect(201);
    bare.delete(&format!("{services}/v1.apps")).expect(200);
    bare.delete(&format!("{services}/v1.authentication.k8s.io")).expect(200);
    eventually("what it serves comes back", || {
        bare.get(&format!("{services}/v1.authentication.k8s.io")).code == 200
    });
    bare.get(&format!("{services}/v1.apps")).expect(404);
}

#[test]
fn system_priority_classes_stay() {
    let server = TestServer::start();
    let acme = server.plane("acme");
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let refused = acme.delete(&format!("{classes}/system-node-critical")).expect(403).json();
    assert_eq!(
        refused["message"],
        "priorityclasses.scheduling.k8s.io \"system-node-critical\" is forbidden: this is a system priority class and cannot be deleted"
    );
    acme.get(&format!("{classes}/system-node-critical")).expect(200);
    acme.post(classes, &json!({"metadata": {"name": "own"}, "value": 7})).expect(201);
    acme.delete(&format!("{classes}/own")).expect(200);
}

#[test]
fn components_are_healthy() {
    let server = TestServer::start();
    let acme = server.plane("acme");
    let all = acme.get("/api/v1/componentstatuses").expect(200).json();
    let names: Vec<&str> = all["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["controller-manager", "etcd-0", "scheduler"]);
    let one = acme.get("/api/v1/componentstatuses/etcd-0").expect(200).json();
    assert_eq!(one["conditions"], json!([{"type": "Healthy", "status": "True", "message": "ok"}]));
    acme.delete("/api/v1/componentstatuses/etcd-0").expect(405);
}

/// Whoever deletes a job and does not say what becomes of its pods is told.
#[test]
fn deleting_a_job_warns_of_its_pods() {
    let server = TestServer::start();
    let acme = server.plane("acme");
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let job = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
        }}}})
    };
    let delete =
        |path: &str| acme.send("DELETE", path, &[], b"").unwrap().header("warning").map(String::from);
    for (name, query, warned) in [
        ("a", "", true),
        ("b", "?propagationPolicy=Background", false),
        ("c", "?orphanDependents=true", false),
    ] {
        acme.post(jobs, &job(name)).expect(201);
        let warning = delete(&format!("{jobs}/{name}{query}"));
        assert_eq!(warning.is_some(), warned, "{name}");
        if let Some(warning) = warning {
            let text = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove \
                them or set propagationPolicy=Orphan to suppress this warning";
            assert_eq!(warning, format!("299 - \"{text}\""));
        }
    }
    assert!(delete(jobs).is_some(), "all at once too");
}
