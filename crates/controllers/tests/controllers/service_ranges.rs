//! Ranges of cluster addresses and the addresses in use, when people change them by hand.

use polder_test_support::{TestServer, json};

use crate::world::eventually;

const RANGES: &str = "/apis/networking.k8s.io/v1/servicecidrs";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";
const SERVICES: &str = "/api/v1/namespaces/default/services";

#[test]
fn ranges_are_ready_and_protected() {
    let server = TestServer::start();
    let plane = server.plane("acme");
    let range = json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["203.0.113.0/24"]}});
    plane.post(RANGES, &range).expect(201);
    let path = format!("{RANGES}/more");
    let ready = |status: &str| plane.get(&path).json()["status"]["conditions"][0]["status"] == status;
    eventually("it is ready", || ready("True"));
    let finalizers = plane.get(&path).json()["metadata"]["finalizers"].clone();
    assert_eq!(finalizers, json!(["networking.k8s.io/service-cidr-finalizer"]));

    let service = json!({
        "metadata": {"name": "s"}, "spec": {"clusterIP": "203.0.113.10", "ports": [{"port": 80}]},
    });
    plane.post(SERVICES, &service).expect(201);
    plane.delete(&path).expect(200);
    eventually("it stays", || ready("False"));
    let condition = plane.get(&path).json()["status"]["conditions"][0].clone();
    assert_eq!(condition["reason"], "Terminating");
    let late = json!({
        "metadata": {"name": "t"}, "spec": {"clusterIP": "203.0.113.11", "ports": [{"port": 80}]},
    });
    plane.post(SERVICES, &late).expect(422);
    plane.delete(&format!("{SERVICES}/s")).expect(200);
    eventually("it goes", || plane.get(&path).code == 404);
}

#[test]
fn addresses_of_services_come_back() {
    let server = TestServer::start();
    let plane = server.plane("acme");
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    let service = plane.post(SERVICES, &service).expect(201).json();
    let address = service["spec"]["clusterIP"].as_str().unwrap().to_string();
    let path = format!("{ADDRESSES}/{address}");
    let old = plane.get(&path).expect(200).json();
    plane.delete(&path).expect(200);
    eventually("it is made again", || plane.get(&path).code == 200);
    let new = plane.get(&path).json();
    assert_ne!(new["metadata"]["uid"], old["metadata"]["uid"]);
    assert_eq!(new["spec"], old["spec"]);
    assert_eq!(new["metadata"]["labels"], old["metadata"]["labels"]);

    // One that says it is the allocator's, and names nothing that has an address.
    let forged = json!({
        "metadata": {
            "name": "10.96.7.7", "labels": {"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"},
        },
        "spec": {"parentRef": {"group": "", "resource": "gateways", "namespace": "default", "name": "g"}},
    });
    plane.post(ADDRESSES, &forged).expect(201);
    eventually("it goes", || plane.get(&format!("{ADDRESSES}/10.96.7.7")).code == 404);
    // Somebody else's is left alone.
    let other = json!({
        "metadata": {"name": "10.96.7.8"},
        "spec": {"parentRef": {"group": "example.com", "resource": "gateways", "name": "g"}},
    });
    plane.post(ADDRESSES, &other).expect(201);
}
