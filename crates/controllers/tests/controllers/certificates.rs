//! Certificates that planes give to whoever asks in them: signed when approved, and good there and nowhere else.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polder_test_support::{Client, TestServer, Value, json};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

use crate::world::eventually;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const PLANES: &str = "/apis/polder.dev/v1alpha1/planes";

struct Asked {
    key: KeyPair,
    path: String,
    code: u16,
}

/// Asks for a certificate; nobody has approved it yet.
fn ask(plane: &Client, name: &str, spec: Value, subject: &[(DnType, &str)], uri: Option<&str>) -> Asked {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for (kind, text) in subject {
        params.distinguished_name.push(kind.clone(), *text);
    }
    params.subject_alt_names.extend(uri.map(|uri| SanType::URI(uri.try_into().expect("a URI"))));
    let pem = params.serialize_request(&key).and_then(|request| request.pem()).expect("a request");
    let mut spec = spec;
    spec["request"] = json!(STANDARD.encode(pem));
    let code = plane.post(REQUESTS, &json!({"metadata": {"name": name}, "spec": spec})).code;
    Asked { key, path: format!("{REQUESTS}/{name}"), code }
}

fn approve(plane: &Client, asked: &Asked) {
    let conditions = json!([{"type": "Approved", "status": "True", "reason": "Test", "message": "yes"}]);
    let patch = json!({"status": {"conditions": conditions}});
    plane.patch(&format!("{}/approval", asked.path), "merge", &patch).expect(200);
}

fn certificate(plane: &Client, asked: &Asked) -> String {
    let found = || plane.get(&asked.path).json()["status"]["certificate"].as_str().map(String::from);
    eventually("it is signed", || found().is_some());
    let text = STANDARD.decode(found().unwrap_or_default()).unwrap_or_default();
    String::from_utf8_lossy(&text).into_owned()
}

fn client_spec() -> Value {
    json!({
        "signerName": "kubernetes.io/kube-apiserver-client", "expirationSeconds": 3600,
        "usages": ["digital signature", "key encipherment", "client auth"],
    })
}

#[test]
fn certificates_are_good_in_their_plane() {
    let server = TestServer::start();
    let plane = server.plane("acme");
    server.plane("globex");
    let asked = ask(&plane, "ann", client_spec(), &[(DnType::CommonName, "ann")], None);
    approve(&plane, &asked);
    let certificate = certificate(&plane, &asked);
    assert_eq!(certificate.matches("BEGIN CERTIFICATE").count(), 1, "alone, as upstream's");
    let ann = plane.with_certificate(&certificate, &asked.key.serialize_pem()).unwrap();
    let who = ann.post(REVIEWS, &json!({})).expect(201).json();
    assert_eq!(who["status"]["userInfo"]["username"], "ann");
    ann.get("/api/v1/namespaces/default/configmaps").expect(403);
    ann.in_plane("globex").post(REVIEWS, &json!({})).expect(404);
    assert_ne!(ann.at_root().post(REVIEWS, &json!({})).code, 201, "the core plane");

    server.admin.delete(&format!("{PLANES}/acme")).expect(200);
    server.plane("acme");
    ann.post(REVIEWS, &json!({})).expect(404);
}

#[test]
fn nobody_forges_a_certificate() {
    let server = TestServer::start();
    let plane = server.plane("acme");
    let masters = [(DnType::CommonName, "ann"), (DnType::OrganizationName, "system:masters")];
    assert_eq!(ask(&plane, "m", client_spec(), &masters, None).code, 403);

    let failed = |asked: &Asked| {
        let request = plane.get(&asked.path).json();
        let conditions = request["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().find(|one| one["type"] == "Failed").map(|one| one["message"].to_string())
    };
    let elsewhere = ask(&plane, "e", client_spec(), &[(DnType::CommonName, "ann")], Some("polder:plane:1"));
    approve(&plane, &elsewhere);
    eventually("it fails", || failed(&elsewhere).is_some_and(|why| why.contains("polder:")));
    let mut spec = client_spec();
    spec["usages"] = json!(["server auth"]);
    let serving = ask(&plane, "s", spec, &[(DnType::CommonName, "ann")], None);
    approve(&plane, &serving);
    let why = "invalid usage for client certificate: server auth";
    eventually("it fails", || failed(&serving).is_some_and(|text| text.contains(why)));
    assert!(plane.get(&serving.path).json()["status"]["certificate"].is_null());
}

#[test]
fn kubelets_are_approved() {
    let server = TestServer::start();
    let plane = server.plane("acme");
    let spec = json!({
        "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
        "usages": ["digital signature", "client auth"],
    });
    let subject = [(DnType::CommonName, "system:node:a"), (DnType::OrganizationName, "system:nodes")];
    let asked = ask(&plane, "node", spec, &subject, None);
    let node = plane.with_certificate(&certificate(&plane, &asked), &asked.key.serialize_pem()).unwrap();
    let who = node.post(REVIEWS, &json!({})).expect(201).json();
    assert_eq!(who["status"]["userInfo"]["username"], "system:node:a");
    let request = plane.get(&asked.path).json();
    assert_eq!(request["status"]["conditions"][0]["reason"], "AutoApproved");
}
