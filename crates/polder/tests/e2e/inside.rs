//! Servers that tenants name are no way to what is around the server: webhooks that judge and that convert, extension servers,
//! issuers. Each is tried with every spelling of an address inside, and nobody must knock where a test listens.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use polder_test_support::extension::{ExtensionServer, Handler, answer_json, certificate};
use polder_test_support::issuer::TokenIssuer;
use polder_test_support::{Client, Value, eventually, json};

use crate::process::{MAPS, PLANES, Polder};

const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Somewhere inside, and how often somebody has knocked.
struct Inside {
    port: u16,
    knocks: Arc<AtomicUsize>,
}

impl Inside {
    fn listen(address: &str) -> Inside {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let knocks = Arc::new(AtomicUsize::new(0));
        let counted = knocks.clone();
        std::thread::spawn(move || {
            for _ in listener.incoming() {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        Inside { port, knocks }
    }

    fn knocks(&self) -> usize {
        self.knocks.load(Ordering::SeqCst)
    }
}

/// What leads to this machine, or to what clouds tell their machines. Resolvers understand more than parsers of addresses do.
const HOSTS: [&str; 30] = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "127.255.255.254",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0x7f.0x0.0x0.0x1",
    "017700000001",
    "0177.0.0.1",
    "0177.0.0.01",
    "0",
    "0.0.0.0",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "a.localhost",
    "[::1]",
    "[::]",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::127.0.0.1]",
    "[::ffff:0:127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[2002:7f00:1::]",
    "169.254.169.254",
    "[fd00:ec2::254]",
    "[::ffff:169.254.169.254]",
    "metadata.google.internal",
];

fn configuration(name: &str, url: &str) -> Value {
    json!({"metadata": {"name": name}, "webhooks": [{
        "name": format!("{name}.example.com"), "clientConfig": {"url": url}, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "timeoutSeconds": 3,
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
    }]})
}

/// By whichever spelling: a webhook that would judge is not asked, and the writer is told that, and nothing about where it leads.
#[test]
fn no_spelling_of_a_webhook_leads_inside() {
    let polder = Polder::start();
    let inside = Inside::listen("127.0.0.1");
    let own = polder.admin.address.port();
    let acme = polder.plane("acme");
    let urls = HOSTS
        .iter()
        .flat_map(|host| [format!("https://{host}:{}/x", inside.port), format!("https://{host}:{own}/x")]);
    let odd = [
        format!("https://user:word@127.0.0.1:{}/x", inside.port),
        format!("https://example.com@127.0.0.1:{}/x", inside.port),
        format!("https://127.0.0.1:{}#@example.com/", inside.port),
        format!("https://127.0.0.1:{}?x=.example.com", inside.port),
        format!("https://example.com:443@127.0.0.1:{}/", inside.port),
        format!("https://127.0.0.1:{}\\@example.com/", inside.port),
        format!("https://127.0.0.1%00.example.com:{}/", inside.port),
        format!("https://127。0。0。1:{}/", inside.port),
        format!("https://①②⑦.0.0.1:{}/", inside.port),
        format!("http://127.0.0.1:{}/x", inside.port),
        format!("HTTPS://127.0.0.1:{}/x", inside.port),
        "file:///etc/passwd".to_owned(),
        "unix:///run/docker.sock".to_owned(),
        format!("//127.0.0.1:{}/x", inside.port),
        "https://".to_owned(),
    ];
    for (index, url) in urls.chain(odd).enumerate() {
        let made = acme.post(VALIDATING, &configuration("inside", &url));
        assert!([201, 422].contains(&made.code), "{url}: {}", made.text());
        if made.code == 422 {
            continue;
        }
        let refused = acme.post(MAPS, &json!({"metadata": {"name": format!("m-{index}")}})).expect(500);
        let message = refused.json()["message"].as_str().unwrap().to_owned();
        let refusals = ["this server does not connect to", "no such host", "invalid URL"];
        assert!(refusals.iter().any(|refusal| message.contains(refusal)), "{url}: {message}");
        acme.delete(&format!("{VALIDATING}/inside")).expect(200);
    }
    assert_eq!(inside.knocks(), 0);
    acme.post(MAPS, &json!({"metadata": {"name": "last"}})).expect(201);
}

fn converted(url: &str) -> Value {
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        })
    };
    json!({"metadata": {"name": "cars.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "versions": [version("v1", true), version("v2", false)],
        "names": {"plural": "cars", "singular": "car", "kind": "Car", "listKind": "CarList"},
        "conversion": {"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"], "clientConfig": {"url": url},
        }},
    }})
}

/// Nor does one that would convert, nor an issuer of a plane.
#[test]
fn no_spelling_of_a_converter_or_issuer_leads_inside() {
    let polder = Polder::start();
    let inside = Inside::listen("127.0.0.1");
    let acme = polder.plane("acme");
    let cars = |version: &str| format!("/apis/example.com/{version}/namespaces/default/cars");
    let car = json!({"apiVersion": "example.com/v1", "kind": "Car", "metadata": {"name": "c"}});
    acme.post(CRDS, &converted(&format!("https://127.0.0.1:{}/x", inside.port))).expect(201);
    eventually("the kind is served", || acme.get(&cars("v1")).code == 200);
    acme.post(&cars("v1"), &car).expect(201);
    for host in HOSTS {
        let url = format!("https://{host}:{}/x", inside.port);
        let spec = json!({"spec": {"conversion": {"webhook": {"clientConfig": {"url": url}}}}});
        if acme.patch(&format!("{CRDS}/cars.example.com"), "merge", &spec).code == 200 {
            let reply = acme.get(&format!("{}/c", cars("v2")));
            assert_eq!(reply.code, 500, "{host}: {}", reply.text());
        }
        let issuer = json!({"spec": {"authentication": {"jwt": [{
            "issuer": {"url": format!("https://{host}:{}", inside.port), "audiences": ["polder"]},
            "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
        }]}}});
        polder.admin.patch(&format!("{PLANES}/acme"), "merge", &issuer);
        // {"alg":"ES256","kid":"k"} . {"iss": <the URL>, ...}
        let iss = format!("https://{host}:{}", inside.port);
        let token = TokenIssuer::start().unwrap().token(&json!({"iss": iss, "sub": "ann"})).unwrap();
        acme.with_token(&token).unwrap().get(MAPS).expect(401);
    }
    assert_eq!(inside.knocks(), 0);
}

/// An extension server is found by its service's endpoints: names of endpoints lead nowhere inside, however they are written.
#[test]
fn no_endpoint_of_an_extension_server_leads_inside() {
    let polder = Polder::start();
    let inside = Inside::listen("127.0.0.1");
    let acme = polder.plane("acme");
    let ca = certificate("api.default.svc").unwrap().0;
    let server = ExtensionServer {
        address: ([127, 0, 0, 1], inside.port).into(),
        ca_bundle: polder_test_support::extension::ca_bundle(&ca),
    };
    let slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    for (path, object) in server.objects("default", "api", "wardle.example.com", "v1alpha1") {
        acme.post(&path, &object).expect(201);
    }
    let flunders = "/apis/wardle.example.com/v1alpha1/namespaces/default/flunders";
    for host in HOSTS {
        let host = host.trim_matches(['[', ']']);
        acme.delete(&format!("{slice}/api-1"));
        for kind in ["FQDN", "IPv4", "IPv6"] {
            let object = json!({
                "metadata": {"name": "api-1", "labels": {"kubernetes.io/service-name": "api"}}, "addressType": kind,
                "ports": [{"name": "https", "port": inside.port, "protocol": "TCP"}],
                "endpoints": [{"addresses": [host], "conditions": {"ready": true}}],
            });
            if acme.post(slice, &object).code == 201 {
                acme.get(flunders).expect(503);
                acme.delete(&format!("{slice}/api-1")).expect(200);
            }
        }
    }
    // By another name for a name.
    acme.delete("/api/v1/namespaces/default/services/api");
    for host in ["localhost", "127.0.0.1", "2130706433"] {
        let service = json!({"metadata": {"name": "api"}, "spec": {
            "type": "ExternalName", "externalName": host, "ports": [{"name": "https", "port": inside.port}],
        }});
        if acme.post("/api/v1/namespaces/default/services", &service).code == 201 {
            acme.get(flunders).expect(503);
            acme.delete("/api/v1/namespaces/default/services/api").expect(200);
        }
    }
    assert_eq!(inside.knocks(), 0);
}

/// A server that answers whatever is asked with one thing.
fn answering(
    answer: impl Fn(&mut dyn std::io::Write) -> std::io::Result<()> + Send + Sync + 'static,
) -> ExtensionServer {
    let handler: Handler = Arc::new(move |_, out| answer(out));
    let ca = certificate("127.0.0.1").unwrap().0;
    ExtensionServer::start("127.0.0.1", &ca, handler).unwrap()
}

fn asks(acme: &Client, server: &ExtensionServer, name: &str) {
    let mut webhook = configuration("redirected", &format!("https://{}/x", server.address));
    webhook["webhooks"][0]["clientConfig"]["caBundle"] = json!(server.ca_bundle);
    acme.post(VALIDATING, &webhook).expect(201);
    acme.post(MAPS, &json!({"metadata": {"name": name}})).expect(500);
    acme.delete(&format!("{VALIDATING}/redirected")).expect(200);
}

/// Whoever may be asked does not lead on to whoever may not: no redirection is followed, and where an issuer says that its keys are
/// is judged like the issuer itself.
#[test]
fn nobody_who_is_asked_leads_on() {
    // One address of this machine is allowed, another is not.
    let polder = Polder::start_with("webhookNetworks: [127.0.0.1]\n");
    let acme = polder.plane("acme");
    let inside = Inside::listen("127.0.0.2");
    let next = format!("https://127.0.0.2:{}/x", inside.port);
    for code in [301, 302, 303, 307, 308] {
        let next = next.clone();
        let server = answering(move |out| {
            write!(out, "HTTP/1.1 {code} X\r\nLocation: {next}\r\nContent-Length: 0\r\n\r\n")
        });
        asks(&acme, &server, &format!("m-{code}"));
        let entry = |url: &str| {
            use base64::Engine as _;
            let ca = base64::engine::general_purpose::STANDARD.decode(&server.ca_bundle).unwrap();
            json!({"spec": {"authentication": {"jwt": [{
                "issuer": {"url": url, "audiences": ["polder"], "certificateAuthority": String::from_utf8(ca).unwrap()},
                "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
            }]}}})
        };
        let url = format!("https://{}", server.address);
        polder.admin.patch(&format!("{PLANES}/acme"), "merge", &entry(&url)).expect(200);
        let token = TokenIssuer::start().unwrap().token(&json!({"iss": url, "sub": "ann"})).unwrap();
        acme.with_token(&token).unwrap().get(MAPS).expect(401);
    }
    // An issuer whose keys are elsewhere.
    let keys = next.clone();
    let address = Arc::new(std::sync::OnceLock::<String>::new());
    let own = address.clone();
    let issuer = answering(move |out| {
        let issuer = own.get().cloned().unwrap_or_default();
        answer_json(out, 200, &json!({"issuer": issuer, "jwks_uri": keys}))
    });
    let url = format!("https://{}", issuer.address);
    address.set(url.clone()).unwrap();
    use base64::Engine as _;
    let ca = base64::engine::general_purpose::STANDARD.decode(&issuer.ca_bundle).unwrap();
    let entry = json!({"spec": {"authentication": {"jwt": [{
        "issuer": {"url": url, "audiences": ["polder"], "certificateAuthority": String::from_utf8(ca).unwrap()},
        "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
    }]}}});
    polder.admin.patch(&format!("{PLANES}/acme"), "merge", &entry).expect(200);
    let token = TokenIssuer::start().unwrap().token(&json!({"iss": url, "sub": "ann"})).unwrap();
    acme.with_token(&token).unwrap().get(MAPS).expect(401);
    assert_eq!(inside.knocks(), 0);
}
