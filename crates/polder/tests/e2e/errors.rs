//! Reference sections 1 and 5: how requests that go nowhere are answered.

use polder_test_support::{Reply, json};

use crate::process::{MAPS, Polder};

#[track_caller]
fn check(reply: &Reply, code: u16, reason: &str, message: &str) {
    let status = reply.json();
    let found = (reply.code, status["reason"].as_str().unwrap_or_default(), status["message"].as_str());
    assert_eq!(found, (code, reason, Some(message)));
    assert_eq!((&status["kind"], &status["apiVersion"]), (&json!("Status"), &json!("v1")));
    assert_eq!((&status["status"], &status["code"]), (&json!("Failure"), &json!(code)));
}

/// Errors are `Status` objects with upstream's reasons and texts.
#[test]
fn texts() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let nothing = "the server could not find the requested resource";
    check(&acme.get(&format!("{MAPS}/x")), 404, "NotFound", "configmaps \"x\" not found");
    check(
        &acme.get("/apis/apps/v1/namespaces/default/deployments/x"),
        404,
        "NotFound",
        "deployments.apps \"x\" not found",
    );
    check(&acme.get("/api/v1/namespaces/default/nothings"), 404, "NotFound", nothing);
    check(&acme.get("/apis/apps/v9/deployments"), 404, "NotFound", nothing);
    acme.post(MAPS, &json!({"metadata": {"name": "a"}})).expect(201);
    check(
        &acme.post(MAPS, &json!({"metadata": {"name": "a"}})),
        409,
        "AlreadyExists",
        "configmaps \"a\" already exists",
    );
    check(
        &acme.put(&format!("{MAPS}/a"), &json!({"metadata": {"name": "a", "resourceVersion": "1"}})),
        409,
        "Conflict",
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your \
         changes to the latest version and try again",
    );
    check(
        &acme.post("/api/v1/namespaces/missing/configmaps", &json!({"metadata": {"name": "a"}})),
        404,
        "NotFound",
        "namespaces \"missing\" not found",
    );
    check(
        &acme.must("PUT", MAPS, &[], b"{}"),
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    );
    let invalid = acme.post(MAPS, &json!({"metadata": {"name": "A_"}}));
    let status = invalid.json();
    assert_eq!((invalid.code, status["reason"].as_str()), (422, Some("Invalid")));
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .starts_with("ConfigMap \"A_\" is invalid: metadata.name: Invalid value: \"A_\"")
    );
    assert_eq!(status["details"]["kind"], "ConfigMap");
    assert_eq!(status["details"]["causes"][0]["reason"], "FieldValueInvalid");
    assert_eq!(status["details"]["causes"][0]["field"], "metadata.name");
}

/// Bodies that are no JSON, of an unknown type, or too large.
#[test]
fn bodies() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let send = |media: &str, body: &[u8]| acme.must("POST", MAPS, &[("Content-Type", media)], body);
    let broken = send("application/json", b"{\"metadata\":").expect(400).json();
    assert_eq!(broken["reason"], "BadRequest");
    assert_eq!(send("text/plain", b"{}").expect(415).json()["reason"], "UnsupportedMediaType");
    send("application/yaml", b"metadata:\n  name: from-yaml\n").expect(201);
    // Refused for what it announces, before it is sent.
    let mut connection = acme.connect().unwrap();
    let announced = [("Content-Type", "application/json"), ("Content-Length", "3145729")];
    let refused =
        connection.send(&acme.head("POST", MAPS, &announced, b"").replace("Content-Length: 0\r\n", ""), b"{");
    let refused = refused.unwrap();
    assert_eq!((refused.code, refused.json()["reason"].as_str()), (413, Some("RequestEntityTooLarge")));
    assert!(refused.text().contains("limit is 3145728"), "{}", refused.text());
    let unacceptable = acme.must("GET", MAPS, &[("Accept", "image/png")], b"").expect(406).json();
    assert_eq!(unacceptable["reason"], "NotAcceptable");
}

/// Every answer names its audit id, the client's own if it sent one, and may not be cached.
#[test]
fn headers() {
    let polder = Polder::start();
    let reply = polder.admin.must("GET", "/api/v1/namespaces", &[("Audit-ID", "mine")], b"").expect(200);
    assert_eq!(reply.header("audit-id"), Some("mine"));
    assert_eq!(reply.header("cache-control"), Some("no-cache, private"));
    assert!(polder.admin.get("/nothing").header("audit-id").is_some_and(|id| id.len() == 36));
    let pretty = polder.admin.get("/api/v1/namespaces/default?pretty=true").text();
    assert!(pretty.starts_with("{\n  \"") && pretty.ends_with("}\n"), "{pretty}");
    let plain = polder.admin.get("/api/v1/namespaces/default").text();
    assert_eq!(plain.find('\n'), Some(plain.len() - 1));
}

/// Nobody in particular gets 403, a wrong token 401, and neither learns more.
#[test]
fn anonymous() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let anonymous = acme.anonymous().unwrap();
    check(
        &anonymous.get("/api/v1/namespaces/default/secrets/s"),
        403,
        "Forbidden",
        "secrets \"s\" is forbidden: User \"system:anonymous\" cannot get resource \"secrets\" in API group \"\" \
         in the namespace \"default\"",
    );
    assert_eq!(anonymous.get("/api").code, 403);
    assert_eq!(anonymous.get("/apis/apps/v1").code, 403);
    assert_eq!(anonymous.get("/openapi/v2").code, 403);
    let wrong = acme.with_token("guess").unwrap();
    check(&wrong.get("/api/v1/namespaces"), 401, "Unauthorized", "Unauthorized");
    check(&wrong.get("/version"), 401, "Unauthorized", "Unauthorized");
}

/// A request may say how long it may take: as Go writes durations, and never longer than the server allows.
#[test]
fn timeouts() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    for (text, message) in [
        ("x", "time: invalid duration \"x\""),
        ("10", "time: missing unit in duration \"10\""),
        ("1d", "time: unknown unit \"d\" in duration \"1d\""),
    ] {
        let refused = acme.get(&format!("{MAPS}?timeout={text}"));
        let message = format!("invalid timeout specified in the request URL - {message}");
        check(&refused, 400, "BadRequest", &message);
    }
    for text in ["", "0", "5s", "-1s", "1h0m0.5s", "9999h"] {
        acme.get(&format!("{MAPS}?timeout={text}")).expect(200);
    }
    // A version that does not come is waited for longer than this.
    let late = acme.get(&format!("{MAPS}?resourceVersion=999999999&timeout=50ms"));
    check(&late, 504, "Timeout", "Timeout: request did not complete within the allotted timeout");
    // Watches have a time limit of their own.
    acme.watch(&format!("{MAPS}?watch=true&timeout=x&timeoutSeconds=1"));
}
