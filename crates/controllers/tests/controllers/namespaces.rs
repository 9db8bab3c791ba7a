//! What every namespace has: an account, and the authority to trust.

use crate::world::{eventually, namespace};
use polder_test_support::{TestServer, json};

const MAP: &str = "configmaps/kube-root-ca.crt";
const ACCOUNT: &str = "serviceaccounts/default";

#[test]
fn a_namespace_has_an_account_and_the_authority() {
    let server = TestServer::start();
    let plane = server.plane("acme");
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        // From the start: nobody has to write it.
        let map = plane.get(&format!("/api/v1/namespaces/{name}/{MAP}")).expect(200).json();
        assert!(map["data"]["ca.crt"].as_str().unwrap().starts_with("-----BEGIN CERTIFICATE-----"), "{map}");
    }
    let trusted = plane.get(&format!("/api/v1/namespaces/default/{MAP}")).json()["data"].clone();
    namespace(&plane, "shop");
    let (map, account) =
        (format!("/api/v1/namespaces/shop/{MAP}"), format!("/api/v1/namespaces/shop/{ACCOUNT}"));
    eventually("both are there", || plane.get(&map).code == 200 && plane.get(&account).code == 200);

    plane.delete(&map).expect(200);
    plane.delete(&account).expect(200);
    eventually("both are back", || plane.get(&map).code == 200 && plane.get(&account).code == 200);

    let changed = json!({"data": {"ca.crt": "mine", "more": "too"}});
    plane.patch(&map, "merge", &changed).expect(200);
    eventually("it says what it said", || plane.get(&map).json()["data"] == trusted);

    plane.delete("/api/v1/namespaces/shop").expect(200);
    eventually("it goes", || plane.get("/api/v1/namespaces/shop").code == 404);
    plane.get(&map).expect(404);
}
