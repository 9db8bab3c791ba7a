//! What pods and accounts have for themselves: claims of devices, secrets.

use crate::world::{eventually, make_ready, namespace, pod};
use polder_test_support::{TestServer, json};

#[test]
fn pods_get_claims_and_give_them_back() {
    let server = TestServer::start();
    let plane = server.plane("acme");
    namespace(&plane, "shop");
    let group = "/apis/resource.k8s.io/v1/namespaces/shop";
    let request = json!({"name": "gpu", "exactly": {"deviceClassName": "gpu"}});
    let spec = json!({"devices": {"requests": [request]}});
    let template = json!({"metadata": {"name": "gpus"}, "spec": {"spec": spec}});
    let mut user = pod("user", "node-1");
    user["spec"]["resourceClaims"] = json!([{"name": "mine", "resourceClaimTemplateName": "gpus"}]);
    plane.post("/api/v1/namespaces/shop/pods", &user).expect(201);
    // The template may come later.
    plane.post(&format!("{group}/resourceclaimtemplates"), &template).expect(201);
    let path = "/api/v1/namespaces/shop/pods/user";
    let name = || {
        let pod = plane.get(path).json();
        pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"].as_str().map(str::to_owned)
    };
    eventually("the pod knows its claim", || name().is_some());
    let claim = format!("{group}/resourceclaims/{}", name().unwrap());
    let made = plane.get(&claim).expect(200).json();
    assert_eq!(made["metadata"]["annotations"]["resource.kubernetes.io/pod-claim-name"], "mine", "{made}");
    make_ready(&plane, path);
    let over = json!({"status": {"phase": "Succeeded"}});
    plane.patch(&format!("{path}/status"), "merge", &over).expect(200);
    eventually("it goes when the pod is done", || plane.get(&claim).code == 404);
}

#[test]
fn secrets_go_with_their_account() {
    let server = TestServer::start();
    let plane = server.plane("acme");
    namespace(&plane, "shop");
    let (accounts, secrets) = ("/api/v1/namespaces/shop/serviceaccounts", "/api/v1/namespaces/shop/secrets");
    let made = plane.post(accounts, &json!({"metadata": {"name": "robot"}})).expect(201).json();
    let secret = |name: &str, account: &str| {
        json!({
            "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": account}},
            "type": "kubernetes.io/service-account-token",
        })
    };
    plane.post(secrets, &secret("robot", "robot")).expect(201);
    plane.post(secrets, &secret("stray", "nobody")).expect(201);
    let robot = format!("{secrets}/robot");
    eventually("it knows its account", || {
        let secret = plane.get(&robot).json();
        secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"] == made["metadata"]["uid"]
            && secret["data"]["ca.crt"].is_string()
            && secret["data"]["namespace"] == "c2hvcA=="
    });
    eventually("nobody's goes", || plane.get(&format!("{secrets}/stray")).code == 404);
    plane.delete(&format!("{accounts}/robot")).expect(200);
    eventually("it goes", || plane.get(&robot).code == 404);
}
