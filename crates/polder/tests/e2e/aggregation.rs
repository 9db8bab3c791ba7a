//! API aggregation: group versions that another server serves for a plane, over real HTTPS.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use polder_test_support::extension::{Asked, ExtensionServer, Handler, LOCAL_NAME, answer, answer_json};
use polder_test_support::{Client, Value, eventually, json};

use crate::process::Polder;

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const GROUP: &str = "wardle.example.com";
const FLUNDERS: &str = "/apis/wardle.example.com/v1alpha1/namespaces/default/flunders";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// What a well-behaved server says about itself.
fn resource_list() -> Value {
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "wardle.example.com/v1alpha1",
        "resources": [{
            "name": "flunders", "singularName": "flunder", "namespaced": true, "kind": "Flunder",
            "shortNames": ["fl"], "verbs": ["create", "delete", "get", "list", "watch"],
        }],
    })
}

/// Lets planes reach servers of the tests.
pub(crate) fn networks() -> String {
    "webhookNetworks: [127.0.0.0/8]\n".into()
}

pub(crate) fn authority(polder: &Polder) -> String {
    std::fs::read_to_string(polder.data().join("pki/front-proxy-ca.crt")).unwrap()
}

fn start(polder: &Polder, handler: Handler) -> ExtensionServer {
    ExtensionServer::start("api.default.svc", &authority(polder), handler).unwrap()
}

/// Leads a plane to a server.
#[track_caller]
pub(crate) fn register(plane: &Client, server: &ExtensionServer) {
    for (path, object) in server.objects("default", "api", GROUP, "v1alpha1") {
        plane.post(&path, &object).expect(201);
    }
}

fn condition(plane: &Client) -> (String, String, String) {
    let found = plane.get(&format!("{SERVICES}/v1alpha1.{GROUP}")).expect(200).json();
    let text = |key: &str| found["status"]["conditions"][0][key].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}

#[track_caller]
fn expect_reason(plane: &Client, reason: &str) {
    eventually(reason, || condition(plane).1 == reason);
}

/// A server that answers discovery as it should, and everything else by a function.
pub(crate) fn polite(
    rest: impl Fn(&Asked, &mut dyn Write) -> std::io::Result<()> + Send + Sync + 'static,
) -> Handler {
    Arc::new(move |asked, out| match asked.path.split('?').next().unwrap_or_default() {
        "/apis/wardle.example.com/v1alpha1" => answer_json(out, 200, &resource_list()),
        "/openapi/v3" => {
            let url = "/openapi/v3/apis/wardle.example.com/v1alpha1?hash=ABC";
            let paths = json!({"apis/wardle.example.com/v1alpha1": {"serverRelativeURL": url}});
            answer_json(out, 200, &json!({"paths": paths}))
        }
        _ => rest(asked, out),
    })
}

/// The authority by which extension servers know this one is turned over: one that has heard of the old one only still believes
/// what it is sent, and the map it looks at names both.
#[test]
fn extension_servers_believe_across_a_rotation() {
    let polder = Polder::start_with(&networks());
    let server = start(&polder, polite(|_, out| answer_json(out, 200, &json!({"kind": "Flunder"}))));
    let acme = polder.plane("acme");
    register(&acme, &server);
    acme.get(FLUNDERS).expect(200);
    let rotate = crate::process::polder()
        .args(["keys", "rotate", "front-proxy", "--now", "--data-dir"])
        .arg(polder.data())
        .status();
    assert!(rotate.unwrap().success());
    let map = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    eventually("both are told", || {
        acme.get(FLUNDERS).expect(200);
        let data = acme.get(map).expect(200).json()["data"]["requestheader-client-ca-file"].clone();
        data.as_str().unwrap().matches("BEGIN CERTIFICATE").count() == 2
    });
    acme.get(FLUNDERS).expect(200);
}

/// Requests, answers and who is asking pass as they should, and nothing else does.
#[test]
fn extension_servers_answer() {
    let polder = Polder::start_with(&networks());
    let heard: Arc<Mutex<Vec<Asked>>> = Arc::default();
    let noted = heard.clone();
    let server = start(
        &polder,
        polite(move |asked, out| {
            // Controllers ask what is there on their own account.
            if !asked.all("x-remote-user").iter().any(|user| user.contains(":kube-system:")) {
                noted.lock().unwrap().push(asked.clone());
            }
            let body = json!({"path": asked.path, "body": String::from_utf8_lossy(&asked.body)}).to_string();
            write!(
                out,
                "HTTP/1.1 201 X\r\nContent-Length: {}\r\nContent-Type: application/json\r\nSet-Cookie: a=b\r\nX-Own: yes\r\n\r\n{body}",
                body.len()
            )?;
            out.flush()
        }),
    );
    let (acme, globex) = (polder.plane("acme"), polder.plane("globex"));
    acme.get(FLUNDERS).expect(404);
    register(&acme, &server);
    // Served from the first request on, before anybody has looked whether it is there.
    let headers = [
        ("Content-Type", "application/json"),
        ("X-Remote-User", "system:admin"),
        ("X-Remote-Group", "system:masters"),
        ("X-Remote-Extra-Scope", "all"),
        ("X-Forwarded-For", "192.0.2.1"),
        ("X-Own", "1"),
    ];
    let reply =
        acme.must("POST", &format!("{FLUNDERS}?a=b%20c&dryRun=All"), &headers, b"{\"x\":1}").expect(201);
    assert_eq!(reply.json(), json!({"path": format!("{FLUNDERS}?a=b%20c&dryRun=All"), "body": "{\"x\":1}"}));
    assert_eq!((reply.header("x-own"), reply.header("set-cookie")), (Some("yes"), None));
    let asked = heard.lock().unwrap().pop().unwrap();
    assert_eq!((asked.method.as_str(), asked.all("host")), ("POST", vec!["api.default.svc"]));
    assert_eq!(asked.all("x-remote-user"), ["plane-admin"]);
    assert_eq!(asked.all("x-remote-group"), ["system:masters", "system:authenticated"]);
    assert_eq!((asked.all("x-remote-extra-scope").len(), asked.all("x-forwarded-for").len()), (0, 0));
    assert_eq!(asked.all("x-own"), ["1"]);
    let number = polder.admin.get("/apis/polder.dev/v1alpha1/planes/acme").expect(200).json();
    let number = number["status"]["number"].to_string();
    let name = format!("front-proxy-client-plane-{}", number.trim_matches('"'));
    assert!(asked.certificate_says(&name), "{name}");
    // Who comes by a token is told, the token is not.
    let tokens = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let token = acme.post(tokens, &json!({"spec": {}})).expect(201).json();
    let token = token["status"]["token"].as_str().unwrap();
    let account = acme.with_token(token).unwrap();
    account.get(FLUNDERS).expect(403);
    let as_account = acme.clone().with_header("Impersonate-User", "system:serviceaccount:default:default");
    as_account.get(FLUNDERS).expect(403);
    assert!(heard.lock().unwrap().is_empty(), "whoever may not ask is not heard of");
    // Every method, in both directions.
    for method in ["GET", "PUT", "PATCH", "DELETE"] {
        acme.must(method, &format!("{FLUNDERS}/a"), &[], b"").expect(201);
        let asked = heard.lock().unwrap().pop().unwrap();
        assert_eq!((asked.method.as_str(), asked.all("authorization").len()), (method, 0));
    }
    assert_eq!(acme.must("HEAD", &format!("{FLUNDERS}/a"), &[], b"").code, 201);
    acme.must("OPTIONS", FLUNDERS, &[], b"").expect(405);
    let upgrade = [("Connection", "Upgrade"), ("Upgrade", "websocket")];
    acme.must("GET", &format!("{FLUNDERS}/a/exec"), &upgrade, b"").expect(501);
    // Nobody else's plane has it.
    globex.get(FLUNDERS).expect(404);
    assert!(!globex.get("/apis").expect(200).text().contains(GROUP));
    expect_reason(&acme, "Passed");
    assert_eq!(condition(&acme).2, "all checks passed");
}

/// Discovery has what other servers serve, in its place.
#[test]
fn extension_servers_are_discovered() {
    let polder = Polder::start_with(&networks());
    let server = start(&polder, polite(|asked, out| answer_json(out, 200, &json!({"path": asked.path}))));
    let acme = polder.plane("acme");
    register(&acme, &server);
    let groups = acme.get("/apis").expect(200).json();
    let names: Vec<&str> =
        groups["groups"].as_array().unwrap().iter().map(|group| group["name"].as_str().unwrap()).collect();
    assert_eq!((names[0], *names.last().unwrap()), ("apiregistration.k8s.io", GROUP));
    let group = acme.get(&format!("/apis/{GROUP}")).expect(200).json();
    assert_eq!(group["preferredVersion"]["groupVersion"], "wardle.example.com/v1alpha1");
    assert_eq!(acme.get(&format!("/apis/{GROUP}/v1alpha1")).expect(200).json(), resource_list());
    let aggregated = acme.clone().with_header("Accept", AGGREGATED);
    let reply = aggregated.get("/apis").expect(200);
    let found = reply.json();
    let found =
        found["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == GROUP).unwrap();
    let version = &found["versions"][0];
    assert_eq!((&version["version"], &version["freshness"]), (&json!("v1alpha1"), &json!("Current")));
    assert_eq!(version["resources"][0]["resource"], "flunders");
    assert_eq!(version["resources"][0]["responseKind"]["kind"], "Flunder");
    let tag = reply.header("etag").unwrap().to_owned();
    aggregated.must("GET", "/apis", &[("If-None-Match", &tag)], b"").expect(304);
    let index = acme.get("/openapi/v3").expect(200).json();
    let path = "/openapi/v3/apis/wardle.example.com/v1alpha1?hash=ABC";
    let url = &index["paths"]["apis/wardle.example.com/v1alpha1"]["serverRelativeURL"];
    assert_eq!(url, &format!("/clusters/acme{path}"));
    assert_eq!(acme.get(path).expect(200).json()["path"], path);
    // What the plane defines itself is its own.
    let versions = json!([{"name": "v1alpha1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object"}}}]);
    let names = json!({"plural": "flunders", "singular": "flunder", "kind": "Flunder"});
    let crd = json!({
        "metadata": {"name": format!("flunders.{GROUP}")},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": versions},
    });
    acme.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).expect(201);
    assert_eq!(acme.get(FLUNDERS).expect(200).json()["kind"], "FlunderList");
}

/// The OpenAPI v2 document of a plane has what its extension servers say about what they serve, in both forms.
#[test]
fn extension_servers_are_in_openapi_v2() {
    let polder = Polder::start_with(&networks());
    let (asked_for, good) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(true)));
    let (noted, is_good) = (asked_for.clone(), good.clone());
    let server = start(
        &polder,
        polite(move |asked, out| {
            if asked.path != "/openapi/v2" {
                return answer(out, 404, "text/plain", b"");
            }
            noted.lock().unwrap().push(asked.all("if-none-match").join(""));
            if !is_good.load(Ordering::SeqCst) {
                return answer(out, 200, "application/json", b"{\"swagger\": ");
            }
            let flunder = |name: &str| {
                json!({"get": {"responses": {"200": {
                    "description": "OK", "schema": {"$ref": format!("#/definitions/{name}")},
                }}}})
            };
            let gvk = json!([{"group": GROUP, "version": "v1alpha1", "kind": "Flunder"}]);
            let mut properties =
                json!({"reference": {"type": "string", "description": "What it refers to."}});
            properties["metadata"] =
                json!({"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"});
            let document = json!({
                "swagger": "2.0",
                "paths": {FLUNDERS: flunder("com.example.Flunder"), "/api/v1/evil": flunder("com.example.Evil")},
                "definitions": {
                    "com.example.Flunder": {
                        "type": "object", "properties": properties, "x-kubernetes-group-version-kind": gvk,
                    },
                    "com.example.Evil": {"type": "object"},
                    "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": {"type": "object", "description": "forged"},
                },
            });
            let body = document.to_string();
            write!(out, "HTTP/1.1 200 OK\r\nETag: \"one\"\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
            out.flush()
        }),
    );
    let (acme, globex) = (polder.plane("acme"), polder.plane("globex"));
    let plain = globex.get("/openapi/v2").expect(200);
    register(&acme, &server);
    let merged = acme.get("/openapi/v2").expect(200);
    let (own, found) = (plain.json(), merged.json());
    assert_eq!(found["definitions"]["com.example.Flunder"]["properties"]["reference"]["type"], "string");
    assert!(found["paths"].get(FLUNDERS).is_some() && found["paths"].get("/api/v1/evil").is_none());
    assert!(found["definitions"].get("com.example.Evil").is_none());
    let shared = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    assert_eq!(
        found["definitions"][shared], own["definitions"][shared],
        "what is defined here is defined here"
    );
    let count = |document: &Value, member: &str| document[member].as_object().unwrap().len();
    assert_eq!(count(&found, "paths"), count(&own, "paths") + 1);
    assert_eq!(count(&found, "definitions"), count(&own, "definitions") + 1);
    let (tag, own_tag) = (merged.header("etag").unwrap(), plain.header("etag").unwrap());
    assert_ne!(tag, own_tag);
    acme.must("GET", "/openapi/v2", &[("If-None-Match", tag)], b"").expect(304);
    let protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let form = |plane: &Client| {
        plane.must("GET", "/openapi/v2", &[("Accept", protobuf)], b"").expect(200).body.clone()
    };
    let (own, found) = (form(&globex), form(&acme));
    assert!(found.starts_with(&own) && found.len() > own.len());
    let has = |text: &str| found[own.len()..].windows(text.len()).any(|window| window == text.as_bytes());
    assert!(has("com.example.Flunder") && has(FLUNDERS) && !has("forged") && !has("com.example.Evil"));
    assert_eq!(*asked_for.lock().unwrap(), [""], "it was asked once");
    // A document that makes no sense is left out.
    good.store(false, Ordering::SeqCst);
    let other = polder.plane("other");
    register(&other, &server);
    assert_eq!(other.get("/openapi/v2").expect(200).header("etag"), Some(own_tag));
    if let Some(kubectl) = crate::tools::find("POLDER_TEST_KUBECTL_OLD", "kubectl") {
        let mut explain = std::process::Command::new(kubectl);
        explain.arg("--kubeconfig").arg(polder.plane_kubeconfig("acme")).env("HOME", polder.directory());
        let said = explain.args(["explain", "flunders.reference"]).output().unwrap();
        let text = String::from_utf8_lossy(&said.stdout);
        assert!(text.contains("What it refers to."), "{said:?}");
    }
}

/// A watch is given on as it comes, and ends with whoever ends it.
#[test]
fn extension_watches() {
    let polder = Polder::start_with(&networks());
    let (go, wait) = mpsc::channel::<()>();
    let (wait, gone) = (Mutex::new(wait), Arc::new(AtomicBool::new(false)));
    let noted = gone.clone();
    let server = start(
        &polder,
        polite(move |asked, out| {
            assert!(asked.path.ends_with("?watch=true"), "{}", asked.path);
            let head =
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
            out.write_all(head)?;
            event(out, "first")?;
            wait.lock().unwrap().recv().ok();
            event(out, "second")?;
            // Until the other side is gone.
            while event(out, "more").is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
            noted.store(true, Ordering::SeqCst);
            Err(std::io::ErrorKind::BrokenPipe.into())
        }),
    );
    let acme = polder.plane("acme");
    register(&acme, &server);
    let mut watch = acme.watch(&format!("{FLUNDERS}?watch=true"));
    assert_eq!(watch.next_name(), "ADDED first");
    go.send(()).unwrap();
    assert_eq!(watch.next_name(), "ADDED second");
    drop(watch);
    eventually("the call ends with its client", || gone.load(Ordering::SeqCst));
}

pub(crate) fn event(out: &mut dyn Write, name: &str) -> std::io::Result<()> {
    let event = json!({"type": "ADDED", "object": {"metadata": {"name": name}}}).to_string();
    write!(out, "{:x}\r\n{event}\n\r\n", event.len() + 1)?;
    out.flush()
}

/// Servers that answer badly harm nobody but those who ask for what they serve.
#[test]
fn hostile_extension_servers() {
    let polder = Polder::start_with(&networks());
    let slow: Handler = Arc::new(|_, _| {
        std::thread::sleep(Duration::from_secs(600));
        Ok(())
    });
    let endless: Handler = Arc::new(|_, out| {
        out.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n",
        )?;
        loop {
            out.write_all(&[b' '; 65536])?;
        }
    });
    let headers: Handler = Arc::new(|_, out| {
        out.write_all(b"HTTP/1.1 200 OK\r\n")?;
        loop {
            out.write_all(b"X-More: and more and more and more and more\r\n")?;
        }
    });
    let text: Handler = Arc::new(|_, out| answer(out, 200, "application/json", b"{\"kind\": ["));
    let other: Handler = Arc::new(|_, out| {
        let list = json!({"kind": "APIResourceList", "groupVersion": "apps/v1", "resources": []});
        answer_json(out, 200, &list)
    });
    let redirect: Handler = Arc::new(|_, out| {
        out.write_all(b"HTTP/1.1 302 X\r\nLocation: https://169.254.169.254/\r\nContent-Length: 0\r\n\r\n")?;
        out.flush()
    });
    let switch: Handler = Arc::new(|_, out| {
        out.write_all(b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")?;
        out.flush()
    });
    let rows: [(&str, Handler, u16); 7] = [
        ("slow", slow, 504),
        ("endless", endless, 200),
        ("headers", headers, 503),
        ("text", text, 200),
        ("other", other, 200),
        ("redirect", redirect, 502),
        ("switch", switch, 503),
    ];
    let healthy = polder.plane("healthy");
    let polder = &polder;
    std::thread::scope(|scope| {
        for (name, handler, code) in rows {
            scope.spawn(move || {
                let server = start(polder, handler);
                let plane = polder.plane(name);
                register(&plane, &server);
                let began = Instant::now();
                let aggregated = plane.clone().with_header("Accept", AGGREGATED);
                let found = aggregated.get("/apis").expect(200).json();
                let items = found["items"].as_array().unwrap();
                let own = items.iter().find(|item| item["metadata"]["name"] == GROUP).unwrap();
                assert_eq!(own["versions"][0]["freshness"], "Stale", "{name}");
                assert_eq!(own["versions"][0]["resources"], json!([]), "{name}");
                assert!(began.elapsed() < Duration::from_secs(20), "{name}");
                // The old form does not ask, and neither does the rest of the plane.
                assert!(plane.get("/apis").expect(200).text().contains(GROUP));
                plane.get("/api/v1/namespaces/default/configmaps").expect(200);
                let mut connection = plane.connect().unwrap();
                let path = format!("{FLUNDERS}?timeout=2s");
                let reply = connection.start(&plane.head("GET", &path, &[], b""), b"").unwrap();
                // What is known to be unavailable by now is not asked.
                assert!(reply.code == code || reply.code == 503, "{name}: {}", reply.code);
                assert_eq!(reply.header("location"), None);
            });
        }
        for _ in 0..50 {
            healthy.get("/apis").expect(200);
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    assert!(polder.resident_bytes() < 512 << 20, "{}", polder.resident_bytes());
}

/// One plane's dead extension server takes its own time and nobody else's.
#[test]
fn a_dead_extension_server_hurts_its_plane_only() {
    let polder = Polder::start_with(&networks());
    let dead = start(
        &polder,
        polite(|_, _| {
            std::thread::sleep(Duration::from_secs(600));
            Ok(())
        }),
    );
    let (acme, globex) = (polder.plane("acme"), polder.plane("globex"));
    register(&acme, &dead);
    register(&globex, &start(&polder, polite(|_, out| answer_json(out, 200, &json!({})))));
    std::thread::scope(|scope| {
        let asking = |path: String| {
            let acme = &acme;
            scope.spawn(move || acme.get(&path).code)
        };
        // More than a plane may have under way at a time.
        let waiting: Vec<_> = (0..100).map(|_| asking(format!("{FLUNDERS}?timeout=3s"))).collect();
        for _ in 0..50 {
            globex.get(FLUNDERS).expect(200);
            globex.get("/api/v1/namespaces").expect(200);
        }
        acme.get("/api/v1/namespaces").expect(200);
        for code in waiting {
            assert_eq!(code.join().unwrap(), 504);
        }
    });
}

/// What is missing is told in the status, and requests get upstream's 503.
#[test]
fn unavailable_extension_servers() {
    let polder = Polder::start_with(&networks());
    let works = Arc::new(AtomicBool::new(false));
    let asked = works.clone();
    let server = start(
        &polder,
        Arc::new(move |_, out| match asked.load(Ordering::SeqCst) {
            true => answer_json(out, 200, &resource_list()),
            false => answer(out, 500, "text/plain", b"broken"),
        }),
    );
    let acme = polder.plane("acme");
    let [service, slice, api_service] = server.objects("default", "api", GROUP, "v1alpha1");
    acme.post(&api_service.0, &api_service.1).expect(201);
    expect_reason(&acme, "ServiceNotFound");
    assert_eq!(condition(&acme).2, "service/api in \"default\" is not present");
    let refused = acme.get(FLUNDERS).expect(503);
    assert_eq!(refused.text(), "service unavailable\n");
    let mut other = service.1.clone();
    other["spec"]["ports"][0]["port"] = json!(80);
    acme.post(&service.0, &other).expect(201);
    expect_reason(&acme, "ServicePortError");
    let right = json!({"spec": service.1["spec"]});
    acme.patch(&format!("{}/api", service.0), "merge", &right).expect(200);
    expect_reason(&acme, "EndpointsNotFound");
    let mut unready = slice.1.clone();
    unready["endpoints"][0]["conditions"]["ready"] = json!(false);
    acme.post(&slice.0, &unready).expect(201);
    expect_reason(&acme, "MissingEndpoints");
    let ready = json!({"endpoints": slice.1["endpoints"]});
    acme.patch(&format!("{}/api-1", slice.0), "merge", &ready).expect(200);
    expect_reason(&acme, "FailedDiscoveryCheck");
    let url = format!("https://{LOCAL_NAME}:{}/apis/{GROUP}/v1alpha1", server.address.port());
    let said = format!("failing or missing response from {url}: bad status from {url}: 500");
    assert_eq!(condition(&acme).2, said);
    let shown = acme.clone().with_header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let cells = shown.get(&format!("{SERVICES}/v1alpha1.{GROUP}")).expect(200).json();
    assert_eq!(cells["rows"][0]["cells"][2], "False (FailedDiscoveryCheck)");
    works.store(true, Ordering::SeqCst);
    expect_reason(&acme, "Passed");
    acme.get(&format!("/apis/{GROUP}/v1alpha1")).expect(200);
    acme.delete(&format!("{SERVICES}/v1alpha1.{GROUP}")).expect(200);
    acme.get(&format!("/apis/{GROUP}/v1alpha1")).expect(404);
    assert!(!acme.get("/apis").expect(200).text().contains(GROUP));
}

/// A tenant's extension server is no way to what is around the server, nor to another tenant's extension server.
#[test]
fn extension_servers_do_not_reach_inside() {
    let polder = Polder::start();
    let server = start(&polder, polite(|_, out| answer_json(out, 200, &json!({}))));
    let acme = polder.plane("acme");
    register(&acme, &server);
    expect_reason(&acme, "FailedDiscoveryCheck");
    let said = condition(&acme).2;
    let expected =
        format!("dial tcp: lookup {LOCAL_NAME}: no such host, or none that this server connects to");
    assert!(said.ends_with(&expected), "{said}");
    acme.get(FLUNDERS).expect(503);
}

/// What an extension server is told to believe is the name of its own plane alone, in forks too.
#[test]
fn extension_servers_know_their_plane() {
    let polder = Polder::start_with(&networks());
    let server = start(&polder, polite(|_, out| answer_json(out, 200, &json!({}))));
    let acme = polder.plane("acme");
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let allowed = |plane: &Client| {
        let map = plane.get(path).expect(200).json();
        assert_eq!(map["data"]["requestheader-client-ca-file"], authority(&polder));
        assert_eq!(map["data"].get("client-ca-file"), None, "planes share that authority");
        map["data"]["requestheader-allowed-names"].as_str().unwrap().to_owned()
    };
    let nobody = r#"["front-proxy-client"]"#;
    assert_eq!(allowed(&acme), nobody, "no certificate has that name");
    register(&acme, &server);
    eventually("a name of its own", || allowed(&acme) != nobody);
    acme.delete(path).expect(200);
    eventually("it comes back", || acme.get(path).code == 200);
    let own = allowed(&acme);
    let fork = json!({"metadata": {"name": "fork"}, "spec": {"forkFrom": "acme"}});
    polder.admin.post("/apis/polder.dev/v1alpha1/planes", &fork).expect(201);
    let fork = polder.admin.in_plane("fork");
    eventually("a fork has its own", || ![nobody, &own].contains(&allowed(&fork).as_str()));
}
