//! What a node that joins finds: `cluster-info`, open to everybody and signed with the secret of its token.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use polder_test_support::{Client, TestServer, Value, json};

use crate::world::eventually;

const MAPS: &str = "/api/v1/namespaces/kube-public/configmaps";
const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";

/// Makes a bootstrap token that signs.
fn token(plane: &Client, id: &str, secret: &str) {
    let data = json!({"token-id": id, "token-secret": secret, "usage-bootstrap-signing": "true"});
    let metadata = json!({"name": format!("bootstrap-token-{id}")});
    let secret = json!({"metadata": metadata, "type": "bootstrap.kubernetes.io/token", "stringData": data});
    plane.post(SECRETS, &secret).expect(201);
}

/// Whether a token has signed what stands in the map, as kubeadm finds out.
fn is_signed(map: &Value, id: &str, secret: &str) -> bool {
    let Some(signature) = map["data"][format!("jws-kubeconfig-{id}")].as_str() else { return false };
    let [head, "", tag] = signature.split('.').collect::<Vec<_>>()[..] else { panic!("{signature}") };
    let said = URL_SAFE_NO_PAD.decode(head).expect("base64");
    assert_eq!(said, format!(r#"{{"alg":"HS256","kid":"{id}"}}"#).as_bytes());
    let content = URL_SAFE_NO_PAD.encode(map["data"]["kubeconfig"].as_str().expect("there is one"));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = URL_SAFE_NO_PAD.decode(tag).expect("base64");
    hmac::verify(&key, format!("{head}.{content}").as_bytes(), &tag).is_ok()
}

/// As `kubeadm init` and `kubeadm join` have it: nobody in particular reads the map, and knows by the token that it is right.
#[test]
fn cluster_info_is_signed() {
    let server = TestServer::start();
    let (acme, globex) = (server.plane("acme"), server.plane("globex"));
    token(&acme, "abcdef", "0123456789abcdef");
    token(&acme, "zzzzzz", "zzzzzzzzzzzzzzzz");
    for plane in [&acme, &globex] {
        let data = json!({"kubeconfig": "apiVersion: v1\n", "own": "stays"});
        plane.post(MAPS, &json!({"metadata": {"name": "cluster-info"}, "data": data})).expect(201);
    }
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["cluster-info"], "verbs": ["get"]}]);
    let name = json!({"name": "kubeadm:bootstrap-signer-clusterinfo"});
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-public";
    acme.post(&format!("{rbac}/roles"), &json!({"metadata": name, "rules": rules})).expect(201);
    let binding = json!({
        "metadata": name, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name["name"]},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:anonymous"}],
    });
    acme.post(&format!("{rbac}/rolebindings"), &binding).expect(201);

    let nobody = acme.anonymous().unwrap();
    let info = format!("{MAPS}/cluster-info");
    let signed = |id: &str, secret: &str| {
        let reply = nobody.get(&info);
        reply.code == 200 && is_signed(&reply.json(), id, secret)
    };
    eventually("the first token has signed", || signed("abcdef", "0123456789abcdef"));
    eventually("the other one has, too", || signed("zzzzzz", "zzzzzzzzzzzzzzzz"));
    assert!(!signed("abcdef", "0123456789abcdeg"));

    let other = json!({"data": {"kubeconfig": "another text", "jws-kubeconfig-abcdef": "forged", "jws-kubeconfig-aaaaaa": "x"}});
    let old = acme.get(&info).json()["data"]["jws-kubeconfig-zzzzzz"].clone();
    acme.patch(&info, "merge", &other).expect(200);
    eventually("what is written is signed anew", || {
        let map = acme.get(&info).json();
        map["data"]["jws-kubeconfig-zzzzzz"] != old && map["data"].get("jws-kubeconfig-aaaaaa").is_none()
    });
    assert!(signed("abcdef", "0123456789abcdef") && signed("zzzzzz", "zzzzzzzzzzzzzzzz"));

    let no_more = json!({"stringData": {"usage-bootstrap-signing": "false"}});
    acme.patch(&format!("{SECRETS}/bootstrap-token-abcdef"), "merge", &no_more).expect(200);
    acme.delete(&format!("{SECRETS}/bootstrap-token-zzzzzz")).expect(200);
    let bare = json!({"kubeconfig": "another text", "own": "stays"});
    eventually("who signs no more has not signed", || acme.get(&info).json()["data"] == bare);
    assert_eq!(globex.get(&info).json()["data"]["own"], "stays");
    assert!(globex.get(&info).json()["data"].get("jws-kubeconfig-abcdef").is_none());
    // It was opened in one plane, and one map of it.
    let refused = nobody.in_plane("globex").get(&info).expect(403).text();
    assert_eq!(nobody.in_plane("none").get(&info).expect(403).text(), refused);
    nobody.get(MAPS).expect(403);
}
