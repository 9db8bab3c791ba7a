//! Reference sections 1 and 5: how requests that go nowhere are answered.

use polder_test_support::http2::{DATA, END_HEADERS, END_STREAM, Http2, PING, RST_STREAM};
use polder_test_support::{Client, Reply, json};

use crate::process::{MAPS, Polder};

#[track_caller]
fn check(reply: &Reply, code: u16, reason: &str, message: &str) {
    let status = reply.json();
    let found = (reply.code, status["reason"].as_str().unwrap_or_default(), status["message"].as_str());
    assert_eq!(found, (code, reason, Some(message)));
    assert_eq!((&status["kind"], &status["apiVersion"]), (&json!("Status"), &json!("v1")));
    assert_eq!((&status["status"], &status["code"]), (&json!("Failure"), &json!(code)));
}

/// What a proxy's name tells beside the object: scheme and port.
#[test]
fn proxies() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let services = "/api/v1/namespaces/default/services";
    for name in ["kubernetes", "kubernetes:443", "https:kubernetes:443", ":kubernetes:https"] {
        let nowhere = "service kubernetes has no node behind it: this plane runs no workloads";
        check(&acme.get(&format!("{services}/{name}/proxy/a/b")), 400, "BadRequest", nowhere);
    }
    check(&acme.get(&format!("{services}/web:80/proxy")), 404, "NotFound", "services \"web\" not found");
    let name = "ftp:kubernetes:443";
    let invalid = format!("invalid service request {name:?}");
    check(&acme.get(&format!("{services}/{name}/proxy")), 400, "BadRequest", &invalid);
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

/// Requests that ask for too much, or for what is not there, and what each is told.
#[test]
fn refusals() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    acme.post(MAPS, &json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).expect(201);
    let map = &format!("{MAPS}/a");
    let method = "the server does not allow this method on the requested resource";
    let unnamed = "the name of the object (a based on URL) was undeterminable: name must be provided";
    let version = |text: &str, why: &str| {
        format!("resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: {why}")
    };
    let (bad, far) = (version("x", "invalid syntax"), version("18446744073709551616", "value out of range"));
    let label = |label: &str| {
        format!("{label:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    };
    let options = "ListOptions.meta.k8s.io \"\" is invalid: ";
    let delete = "DeleteOptions.meta.k8s.io \"\" is invalid: ";
    let rows = [
        // Only reads are for all namespaces at once.
        ("DELETE", "/api/v1/configmaps", "", 405, method.into()),
        ("POST", "/api/v1/configmaps", r#"{"metadata":{"name":"b"}}"#, 405, method.into()),
        ("POST", "/api/v1/watch/namespaces/default/configmaps", r#"{"metadata":{"name":"b"}}"#, 405, method.into()),
        ("PUT", map, "{}", 400, unnamed.into()),
        ("PUT", map, r#"{"metadata":{"generateName":"a"}}"#, 400, unnamed.into()),
        ("PATCH", map, r#"{"metadata":{"name":null}}"#, 400, unnamed.into()),
        ("PUT", map, r#"{"metadata":{"name":"a","deletionGracePeriodSeconds":5}}"#, 422,
            "ConfigMap \"a\" is invalid: metadata.deletionGracePeriodSeconds: Invalid value: 5: field is immutable".into()),
        ("PATCH", map, r#"{"metadata":{"deletionTimestamp":"2020-01-01T00:00:00Z"}}"#, 422,
            "ConfigMap \"a\" is invalid: metadata.deletionTimestamp: Invalid value: \"2020-01-01T00:00:00Z\": field is immutable".into()),
        ("GET", &format!("{map}?resourceVersion=x"), "", 500, bad.clone()),
        ("GET", &format!("{MAPS}?watch=1&resourceVersion=x"), "", 500, bad.clone()),
        ("GET", &format!("{MAPS}?resourceVersion=x"), "", 400, format!("invalid resource version: {bad}")),
        ("GET", &format!("{MAPS}?resourceVersion=18446744073709551616"), "", 400, format!("invalid resource version: {far}")),
        ("GET", &format!("{MAPS}?limit="), "", 400, "strconv.ParseInt: parsing \"\": invalid syntax".into()),
        ("GET", &format!("{MAPS}?timeoutSeconds=x"), "", 400, "strconv.ParseInt: parsing \"x\": invalid syntax".into()),
        ("GET", &format!("{MAPS}?limit=9223372036854775808"), "", 400, "strconv.ParseInt: parsing \"9223372036854775808\": value out of range".into()),
        ("GET", &format!("{MAPS}?continue=!"), "", 400, "invalid continue token: continue key is not valid: illegal base64 data at input byte 0".into()),
        ("GET", &format!("{MAPS}?sendInitialEvents=1&resourceVersionMatch=NotOlderThan"), "", 422,
            format!("{options}[resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided, sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list]")),
        ("GET", &format!("{MAPS}?watch=1&resourceVersionMatch=Exact"), "", 422,
            format!("{options}[resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided, resourceVersionMatch: Unsupported value: \"Exact\": supported values: \"NotOlderThan\"]")),
        ("GET", &format!("{MAPS}?watch=1&continue=x"), "", 422, format!("{options}resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided")),
        ("GET", &format!("{MAPS}?fieldSelector=spec.x%3D1"), "", 400, label("spec.x")),
        ("GET", "/apis/batch/v1/jobs?fieldSelector=spec.x%3D1", "", 400, "field label \"spec.x\" not supported for Job".into()),
        ("GET", "/api/v1/pods?fieldSelector=spec.x%3D1", "", 400, "field label not supported: spec.x".into()),
        ("GET", "/apis/resource.k8s.io/v1/resourceslices?fieldSelector=a%3D1", "", 400, "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: a".into()),
        ("POST", &format!("{MAPS}?dryRun=Some"), r#"{"metadata":{"name":"b"}}"#, 422, "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\"".into()),
        ("POST", &format!("{MAPS}?fieldManager=a%0a"), r#"{"metadata":{"name":"b"}}"#, 422, "CreateOptions.meta.k8s.io \"\" is invalid: fieldManager: Invalid value: \"a\\n\": invalid character U+000A (at position 1)".into()),
        ("DELETE", &format!("{map}?dryRun="), "", 422, format!("{delete}dryRun: Unsupported value: [\"\"]: supported values: \"All\"")),
        ("DELETE", &format!("{map}?propagationPolicy="), "", 422, format!("{delete}propagationPolicy: Unsupported value: \"\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"")),
        ("DELETE", &format!("{map}?gracePeriodSeconds=x"), "", 400, "strconv.ParseInt: parsing \"x\": invalid syntax".into()),
        ("DELETE", map, r#"{"gracePeriodSeconds":"5"}"#, 400, "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64".into()),
        ("DELETE", map, r#"{"dryRun":"All"}"#, 400, "json: cannot unmarshal string into Go struct field DeleteOptions.dryRun of type []string".into()),
        ("DELETE", map, r#"{"preconditions":{"uid":5}}"#, 400, "json: cannot unmarshal number into Go struct field Preconditions.preconditions.uid of type types.UID".into()),
    ];
    for (verb, path, body, code, message) in rows {
        let media = if verb == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let reply = acme.must(verb, path, &[("Content-Type", media)], body.as_bytes());
        let found = (reply.code, reply.json()["message"].as_str().unwrap_or_default().to_string());
        assert_eq!(found, (code, message), "{verb} {path} {body}");
    }
    acme.get(map).expect(200);
    // What looks odd and is fine.
    for path in [
        "?watch=False",
        "/a?watch=true",
        "?resourceVersion=0&watch=FALSE",
        "?fieldSelector=metadata.namespace%3Ddefault",
    ] {
        acme.get(&format!("{MAPS}{path}")).expect(200).json();
    }
    acme.get("/api/v1/persistentvolumes?fieldSelector=metadata.namespace%3Dx").expect(200);
    let send = |media, body: &str| {
        acme.must("POST", &format!("{MAPS}?dryRun=All"), &[("Content-Type", media)], body.as_bytes())
    };
    send("Application/JSON", r#"{"metadata":{"name":"b"}}"#).expect(201);
    let first =
        send("application/yaml", "metadata: {name: b}\n---\nmetadata: {name: c}\n").expect(201).json();
    assert_eq!(first["metadata"]["name"], "b");
}

/// Patches whose result is no object of the kind, and those that only look so.
#[test]
fn patched_kinds() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    acme.post(MAPS, &json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "data": {"k": "v"}}))
        .expect(201);
    let path = format!("{MAPS}/a?dryRun=All");
    for (kind, patch, problem) in [
        (
            "merge",
            json!({"kind": "Secret"}),
            "the kind in the patched object (Secret) does not match that of the object (ConfigMap)",
        ),
        (
            "merge",
            json!({"data": {"k": 1}}),
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            "strategic-merge",
            json!({"data": {"k": 1}}),
            "\"map[data:map[k:1]]\": json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            "merge",
            json!({"metadata": []}),
            "json: cannot unmarshal array into Go struct field ConfigMap.metadata of type v1.ObjectMeta",
        ),
    ] {
        let refused = acme.patch(&path, kind, &patch).expect(422).json();
        let message = refused["message"].as_str().unwrap();
        assert!(
            message.starts_with(" \"\" is invalid: patch: Invalid value: ") && message.ends_with(problem),
            "{message}"
        );
        assert_eq!(refused["details"]["causes"][0]["field"], "patch");
    }
    for (kind, patch) in [
        ("merge", json!({"kind": null})),
        ("merge", json!({"metadata": {"namespace": null}})),
        ("strategic-merge", json!({"kind": "Secret", "apiVersion": "v2"})),
    ] {
        let same = acme.patch(&path, kind, &patch).expect(200).json();
        assert_eq!((&same["kind"], &same["metadata"]["namespace"]), (&json!("ConfigMap"), &json!("default")));
    }
    // Empty lists and maps are nothing, and writing nothing changes nothing.
    let made = acme.get(&format!("{MAPS}/a")).json();
    let empty = json!({"metadata": {"annotations": {}, "finalizers": []}, "binaryData": {}});
    let same = acme.patch(&format!("{MAPS}/a"), "merge", &empty).expect(200).json();
    assert_eq!(same, made);
    let bare = acme.patch(&path, "merge", &json!({"metadata": {"labels": {"x": null}}})).expect(200).json();
    assert!(bare["metadata"].get("labels").is_none(), "{bare:?}");
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
    refused_bodies_are_sent_on(&acme);
    let unacceptable = acme.must("GET", MAPS, &[("Accept", "image/png")], b"").expect(406).json();
    assert_eq!(unacceptable["reason"], "NotAcceptable");
}

/// Many clients look for the answer only when they have sent everything, and some lose it when their stream is reset.
fn refused_bodies_are_sent_on(acme: &Client) {
    let large = vec![b' '; 6 << 20];
    let chunks = [b"600000\r\n", large.as_slice(), b"\r\n0\r\n\r\n"].concat();
    let media = ("Content-Type", "application/json");
    for (length, body) in
        [("Content-Length: 6291456\r\n", &large), ("Transfer-Encoding: chunked\r\n", &chunks)]
    {
        let mut connection = acme.connect().unwrap();
        let head = acme.head("POST", MAPS, &[media], b"").replace("Content-Length: 0\r\n", length);
        connection.write(head.as_bytes()).unwrap();
        connection.write(body).unwrap_or_else(|error| panic!("{length}: {error}"));
        // The connection has survived it.
        assert_eq!(connection.send("", b"").unwrap().code, 413, "{length}");
        assert_eq!(connection.send(&acme.head("GET", MAPS, &[], b""), b"").unwrap().code, 200, "{length}");
    }
    // Whoever asks before sending is not told to go on.
    let mut connection = acme.connect().unwrap();
    let head = acme.head("POST", MAPS, &[media, ("Expect", "100-continue")], b"");
    connection.write(head.replace("Content-Length: 0", "Content-Length: 6291456").as_bytes()).unwrap();
    let said = connection.rest().unwrap();
    assert!(said.starts_with("HTTP/1.1 413 "), "{said}");

    let mut http2 = Http2::open(acme, 1 << 20).unwrap();
    let path = format!("/clusters/acme{MAPS}");
    let mut head = vec![(":method", "POST"), (":scheme", "https"), (":authority", "x"), (":path", &path)];
    head.extend([("content-type", "application/json"), ("content-length", "6291456")]);
    let stream = http2.begin(&head, END_HEADERS).unwrap();
    assert!(http2.body(stream).unwrap().contains("limit is 3145728"));
    http2.send(DATA, 0, stream, &large[..16 << 10]).unwrap();
    is_not_reset(&mut http2);
}

/// What was sent has been looked at, and nobody minded.
fn is_not_reset(http2: &mut Http2) {
    http2.send(PING, 0, 0, &[7; 8]).unwrap();
    loop {
        let frame = http2.frame().unwrap();
        assert!(frame.kind != RST_STREAM, "the stream was reset: {frame:?}");
        if frame.kind == PING && frame.payload == [7; 8] {
            break;
        }
    }
}

/// Whoever is refused before its body has been read hears why, and may finish what it was sending.
#[test]
fn refusals_are_heard_while_bodies_are_sent() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let stranger = acme.anonymous().unwrap();
    let maps = format!("/clusters/acme{MAPS}");
    let (mode, run) = (format!("{maps}?fieldValidation=Often"), format!("{maps}?dryRun=Some"));
    let lost = format!("/clusters/nobody{MAPS}");
    for (client, method, path, expected) in [
        (&acme, "POST", &mode, "Unsupported value: \\\"Often\\\""),
        (&acme, "POST", &run, "Unsupported value: [\\\"Some\\\"]"),
        (&acme, "PUT", &maps, "does not allow this method"),
        (&acme, "POST", &lost, "not found"),
        (&stranger, "POST", &maps, "system:anonymous"),
    ] {
        let mut http2 = Http2::open(client, 1 << 20).unwrap();
        let head = [
            (":method", method),
            (":scheme", "https"),
            (":authority", "x"),
            (":path", path),
            ("content-type", "application/json"),
        ];
        let stream = http2.begin(&head, END_HEADERS).unwrap();
        let said = http2.body(stream).unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        assert!(said.contains(expected), "{method} {path}: {said}");
        http2.send(DATA, END_STREAM, stream, b"{}").unwrap();
        is_not_reset(&mut http2);
    }
}

/// Whoever asks for the head of an answer gets that, and how long the rest would be.
#[test]
fn heads_have_no_bodies() {
    let polder = Polder::start();
    for path in ["/api/v1/namespaces/default", "/api/v1/namespaces", "/healthz", "/nothing"] {
        let mut http2 = Http2::open(&polder.admin, 1 << 20).unwrap();
        let head = [(":method", "HEAD"), (":scheme", "https"), (":authority", "x"), (":path", path)];
        let stream = http2.request(&head).unwrap();
        assert_eq!(http2.body(stream).unwrap(), "", "{path}");
    }
    let whole = polder.admin.get("/api/v1/namespaces/default").text();
    let mut connection = polder.admin.connect().unwrap();
    let head = polder.admin.head("HEAD", "/api/v1/namespaces/default", &[("Connection", "close")], b"");
    connection.write(head.as_bytes()).unwrap();
    let said = connection.rest().unwrap();
    assert!(said.contains(&format!("\r\ncontent-length: {}\r\n", whole.len())), "{said}");
    assert!(said.ends_with("\r\n\r\n"), "{said}");
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

/// A key that stands twice: the last counts, and a strict reader is told the line, in upstream's words.
#[test]
fn repeated_keys_in_yaml() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: first\n  k: last\n";
    let told = "line 7: key \"k\" already set in map";
    let apply = [("Content-Type", "application/apply-patch+yaml")];
    let create = [("Content-Type", "application/yaml")];
    let send = |method, path: &str, headers: &[(&str, &str)], directive| {
        let path = format!("{path}?fieldManager=m&fieldValidation={directive}");
        acme.must(method, &path, headers, text.as_bytes())
    };
    let one = format!("{MAPS}/a");
    let message = format!(
        "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {told}"
    );
    check(&send("PATCH", &one, &apply, "Strict"), 400, "BadRequest", &message);
    let message = format!(
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: yaml: unmarshal errors:\n  {told}"
    );
    check(&send("POST", MAPS, &create, "Strict"), 400, "BadRequest", &message);
    for (method, path, headers) in [("POST", MAPS, &create), ("PATCH", one.as_str(), &apply)] {
        let reply = send(method, path, headers, "Warn");
        let warning = reply.header("warning").unwrap_or_default().to_string();
        assert!(warning.contains("line 7: key"), "{method}: {warning}");
        assert_eq!(reply.json()["data"], json!({"k": "last"}));
        acme.delete(&one).expect(200);
        assert_eq!(send(method, path, headers, "Ignore").header("warning"), None);
        acme.delete(&one).expect(200);
    }
}
