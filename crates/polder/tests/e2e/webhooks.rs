//! Admission by what a plane's users write: webhooks over real HTTPS, and policies.

use polder_test_support::webhook::WebhookServer;
use polder_test_support::{Value, json};

use crate::process::{MAPS, Polder};

const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const LOOPBACK: &str = "webhookNetworks: [127.0.0.0/8]\n";

fn answer(path: &str, request: &Value) -> Result<Value, (u16, String)> {
    match path.split('?').next().unwrap_or_default() {
        "/deny" => Ok(json!({
            "allowed": request["object"]["data"]["a"] != "no", "warnings": ["watched"],
            "status": {"message": "the data says no", "code": 403, "reason": "Forbidden"},
        })),
        // [{"op":"add","path":"/data/b","value":"added"}]
        "/add" => Ok(json!({
            "allowed": true, "patchType": "JSONPatch",
            "patch": "W3sib3AiOiJhZGQiLCJwYXRoIjoiL2RhdGEvYiIsInZhbHVlIjoiYWRkZWQifV0=",
        })),
        "/slow" => {
            std::thread::sleep(std::time::Duration::from_secs(3));
            Ok(json!({"allowed": true}))
        }
        "/large" => Err((200, "x".repeat(20 << 20))),
        "/broken" => Err((500, "it broke".into())),
        _ => Err((404, String::new())),
    }
}

fn configuration(name: &str, client: Value, timeout: u32) -> Value {
    json!({
        "metadata": {"name": name},
        "webhooks": [{
            "name": format!("{name}.example.com"), "clientConfig": client, "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "timeoutSeconds": timeout,
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
        }],
    })
}

fn map(name: &str, a: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"a": a}})
}

/// Webhooks are asked over HTTPS, change and refuse, and only in their own plane.
#[test]
fn webhooks_are_asked() {
    let server = WebhookServer::start(answer).unwrap();
    let polder = Polder::start_with(LOOPBACK);
    let (acme, globex) = (polder.plane("acme"), polder.plane("globex"));
    acme.post(MUTATING, &configuration("add", server.client_config("/add"), 10)).expect(201);
    acme.post(VALIDATING, &configuration("deny", server.client_config("/deny"), 10)).expect(201);
    let made = acme.post(MAPS, &map("one", "yes")).expect(201);
    assert_eq!(made.json()["data"], json!({"a": "yes", "b": "added"}));
    assert!(made.header("warning").is_some_and(|warning| warning.contains("watched")), "{made:?}");
    let refused = acme.post(MAPS, &map("two", "no")).expect(403);
    let said = "admission webhook \"deny.example.com\" denied the request: the data says no";
    assert_eq!(refused.json()["message"], said);
    assert_eq!(refused.json()["reason"], "Forbidden");
    globex.post(MAPS, &map("two", "no")).expect(201);
    // Once more on a kept connection.
    acme.post(MAPS, &map("three", "yes")).expect(201);
    // A certificate that signs itself and is listed is believed, whatever it could sign besides.
    let authority = WebhookServer::start_as_authority(answer).unwrap();
    globex.post(VALIDATING, &configuration("deny", authority.client_config("/deny"), 10)).expect(201);
    globex.post(MAPS, &map("four", "no")).expect(403);
}

/// What goes wrong on the way is told as kube-apiserver tells it, in bounded time and memory.
#[test]
fn webhooks_that_fail() {
    let server = WebhookServer::start(answer).unwrap();
    let polder = Polder::start_with(LOOPBACK);
    let url = |path: &str| format!("https://{}{path}", server.address);
    let own = |path: &str| server.client_config(path);
    let refused = "https://127.0.0.1:1/x";
    let long = "\"https://nobody.invalid/x?timeout=10s\": dial tcp: lookup nobody.invalid: no such host";
    let rows = [
        (own("/none"), 10, "the server could not find the requested resource".to_owned()),
        (
            own("/broken"),
            10,
            "an error on the server (\"it broke\") has prevented the request from succeeding".to_owned(),
        ),
        (own("/slow"), 1, format!("Post \"{}?timeout=1s\": context deadline exceeded", url("/slow"))),
        (own("/large"), 10, format!("Post \"{}?timeout=10s\": the answer is longer than", url("/large"))),
        (
            json!({"url": url("/deny")}),
            10,
            format!(
                "Post \"{}?timeout=10s\": tls: failed to verify certificate: x509: certificate signed by unknown authority",
                url("/deny")
            ),
        ),
        (
            json!({"url": refused, "caBundle": server.ca_bundle}),
            10,
            format!("Post \"{refused}?timeout=10s\": dial tcp 127.0.0.1:1: connect: connection refused"),
        ),
        (
            json!({"url": "https://nobody.invalid/x", "caBundle": server.ca_bundle}),
            10,
            format!("Post {long}"),
        ),
    ];
    for (index, (client, timeout, expected)) in rows.into_iter().enumerate() {
        let plane = polder.plane(&format!("p{index}"));
        plane.post(VALIDATING, &configuration("v", client, timeout)).expect(201);
        let reply = plane.post(MAPS, &map("one", "yes")).expect(500);
        let start =
            "Internal error occurred: failed calling webhook \"v.example.com\": failed to call webhook: ";
        let message = reply.json()["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with(&format!("{start}{expected}")), "{message}");
    }
}

/// A tenant's webhook does not reach what is around the server, unless the provider says so.
#[test]
fn webhooks_do_not_reach_inside() {
    let server = WebhookServer::start(answer).unwrap();
    let polder = Polder::start();
    let acme = polder.plane("acme");
    acme.post(VALIDATING, &configuration("v", server.client_config("/deny"), 10)).expect(201);
    let reply = acme.post(MAPS, &map("one", "yes")).expect(500);
    let message = reply.json()["message"].as_str().unwrap().to_owned();
    assert!(message.ends_with("this server does not connect to 127.0.0.1"), "{message}");
}

/// One plane's dead webhook takes its own time and nobody else's.
#[test]
fn a_dead_webhook_hurts_its_plane_only() {
    let server = WebhookServer::start(answer).unwrap();
    let polder = Polder::start_with(LOOPBACK);
    let (acme, globex) = (polder.plane("acme"), polder.plane("globex"));
    acme.post(VALIDATING, &configuration("v", server.client_config("/slow"), 1)).expect(201);
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..50)
            .map(|index| {
                let acme = &acme;
                scope.spawn(move || acme.post(MAPS, &map(&format!("m-{index}"), "yes")).code)
            })
            .collect();
        for index in 0..50 {
            globex.post(MAPS, &map(&format!("m-{index}"), "yes")).expect(201);
        }
        // Reads of the same plane go on too.
        acme.get(MAPS).expect(200);
        for code in waiting {
            assert_eq!(code.join().unwrap(), 500);
        }
    });
}
