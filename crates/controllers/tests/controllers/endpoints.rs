//! Services and where their requests go.

use crate::world::{self, eventually, namespace};
use polder_test_support::{Client, TestServer, Value, json};

const SHOP: &str = "/api/v1/namespaces/shop";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices";

fn slices(plane: &Client, service: &str) -> Vec<Value> {
    let path = format!("{SLICES}?labelSelector=kubernetes.io%2Fservice-name%3D{service}");
    plane.get(&path).expect(200).json()["items"].as_array().cloned().unwrap_or_default()
}

fn web(selector: Value) -> Value {
    json!({"metadata": {"name": "web"}, "spec": {"selector": selector, "ports": [{"port": 80}]}})
}

#[test]
fn a_service_has_the_addresses_of_its_pods() {
    let server = TestServer::start();
    let plane = server.plane("acme");
    namespace(&plane, "shop");
    plane.post(&format!("{SHOP}/services"), &web(json!({"app": "web"}))).expect(201);
    let endpoints = format!("{SHOP}/endpoints/web");
    eventually("empty ones are there", || {
        plane.get(&endpoints).code == 200 && slices(&plane, "web").len() == 1
    });

    let pod = json!({
        "metadata": {"name": "web-0", "labels": {"app": "web"}},
        "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "i"}]},
    });
    plane.post(&format!("{SHOP}/pods"), &pod).expect(201);
    let status = json!({"status": {
        "phase": "Running", "podIP": "10.1.0.5", "podIPs": [{"ip": "10.1.0.5"}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }});
    plane.patch(&format!("{SHOP}/pods/web-0/status"), "strategic-merge", &status).expect(200);
    eventually("the pod is in both", || {
        let old_form = plane.get(&endpoints).json();
        let slices = slices(&plane, "web");
        old_form["subsets"][0]["addresses"][0]["ip"] == "10.1.0.5"
            && slices.len() == 1
            && slices[0]["endpoints"][0]["addresses"][0] == "10.1.0.5"
            && slices[0]["endpoints"][0]["conditions"]["ready"] == true
            && slices[0]["ports"][0]["port"] == 80
    });

    let removed = json!({"metadata": {"labels": {"app": "other"}}});
    plane.patch(&format!("{SHOP}/pods/web-0"), "merge", &removed).expect(200);
    eventually("the pod is in neither", || {
        let slices = slices(&plane, "web");
        plane.get(&endpoints).json()["subsets"].is_null()
            && slices.iter().all(|slice| slice["endpoints"].as_array().is_none_or(Vec::is_empty))
    });

    plane.delete(&format!("{SHOP}/services/web")).expect(200);
    eventually("both go", || plane.get(&endpoints).code == 404 && slices(&plane, "web").is_empty());
}

#[test]
fn endpoints_without_a_selector_are_copied() {
    let server = TestServer::start();
    let plane = server.plane("acme");
    namespace(&plane, "shop");
    // Endpoints of no service are nobody's but their maker's.
    let lonely = json!({"metadata": {"name": "lonely"}, "subsets": [{"addresses": [{"ip": "10.9.0.1"}]}]});
    plane.post(&format!("{SHOP}/endpoints"), &lonely).expect(201);
    plane.post(&format!("{SHOP}/services"), &web(Value::Null)).expect(201);
    let address = |ip: &str| json!([{"addresses": [{"ip": ip}], "ports": [{"name": "p", "port": 80}]}]);
    let made = json!({"metadata": {"name": "web"}, "subsets": (address("10.1.2.3"))});
    plane.post(&format!("{SHOP}/endpoints"), &made).expect(201);
    let shows = |ip: &str| {
        let slices = slices(&plane, "web");
        slices.len() == 1 && slices[0]["endpoints"][0]["addresses"][0] == ip
    };
    eventually("they are copied", || shows("10.1.2.3"));
    let changed = json!({"subsets": (address("10.1.2.4"))});
    plane.patch(&format!("{SHOP}/endpoints/web"), "merge", &changed).expect(200);
    eventually("changes too", || shows("10.1.2.4"));
    plane.delete(&format!("{SHOP}/endpoints/web")).expect(200);
    eventually("and their end", || slices(&plane, "web").is_empty());
    plane.get(&format!("{SHOP}/endpoints/lonely")).expect(200);
}

#[test]
fn the_api_itself_has_endpoints() {
    let server = TestServer::start();
    let plane = server.plane("acme");
    let endpoints = plane.get("/api/v1/namespaces/default/endpoints/kubernetes").expect(200).json();
    let slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
    let slice = plane.get(slice).expect(200).json();
    assert_eq!(endpoints["subsets"][0]["ports"][0]["port"], slice["ports"][0]["port"]);
    assert_eq!(endpoints["subsets"][0]["addresses"][0]["ip"], slice["endpoints"][0]["addresses"][0]);
}

#[test]
fn many_services_of_one_pod() {
    let server = TestServer::start();
    let plane = server.plane("acme");
    namespace(&plane, "shop");
    for number in 0..40 {
        let mut service = web(json!({"app": "web"}));
        service["metadata"]["name"] = json!(format!("web-{number}"));
        plane.post(&format!("{SHOP}/services"), &service).expect(201);
    }
    plane.post(&format!("{SHOP}/pods"), &world::pod("web-0", "node-1")).expect(201);
    world::make_ready(&plane, &format!("{SHOP}/pods/web-0"));
    eventually("it is behind all of them", || {
        let list = plane.get(SLICES).expect(200).json();
        let slices = list["items"].as_array().cloned().unwrap_or_default();
        let ready = |slice: &&Value| slice["endpoints"][0]["conditions"]["ready"] == true;
        slices.len() == 40 && slices.iter().filter(ready).count() == 40
    });
}
