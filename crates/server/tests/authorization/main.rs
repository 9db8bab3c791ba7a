//! Who may do what, asked of every route and verb there is.
//!
//! The list of what there is comes from the values the server routes by (`routes`): definitions of resources with their
//! verbs and subresources, the pages beside them, discovery, and what is handed on to extension servers. So nothing new can be
//! served without being asked about here. Each is driven through a real server by six people (`people`), one of whom has
//! exactly the right it needs, one that right in another namespace, and one every right but that. The outcome is `matrix.txt`,
//! which is there to be read; `UPDATE_EXPECT=1 cargo test -p polder-server --test authorization` writes it anew.
//!
//! What the server does for its own part: it gives no answer that no authorizer was asked about (`chain::decided`).

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod dead_webhook;
mod people;
mod routes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use http_body_util::{BodyExt as _, Full};
use polder_server::route::{PAGES, Request, Route};
use polder_server::{ExtensionBody, ExtensionCall, ExtensionClient, Sending};
use polder_test_support::{Client, TestServer, Value, eventually, json};

use people::{Outcome, People};
use routes::{Ask, EXTENSION, Right};

/// An extension server that has something for whoever gets that far.
struct Extensions;

impl ExtensionClient for Extensions {
    fn send<'a>(&'a self, call: ExtensionCall<'a>) -> Sending<'a> {
        let (group, version) = EXTENSION;
        let list = json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{group}/{version}"),
            "resources": [{"name": "flunders", "singularName": "flunder", "namespaced": true, "kind": "Flunder", "verbs": ["get"]}],
        });
        let body = match call.request.uri().path().contains("flunders") {
            true => json!({"kind": "Flunder", "from": "an extension server"}),
            false => list,
        };
        let body = Full::new(body.to_string().into()).map_err(|never| match never {});
        let mut answer = http::Response::new(ExtensionBody::new(body));
        answer.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
        Box::pin(async move { Ok(answer) })
    }
}

const CUSTOM: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A kind of the plane's own, with every subresource such a kind may have.
fn widgets() -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({
        "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
        "subresources": {
            "status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
    });
    json!({
        "metadata": {"name": "widgets.example.org"},
        "spec": {
            "group": "example.org", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        },
    })
}

/// A plane that has something of every sort.
fn furnished(server: &TestServer) -> Client {
    let acme = server.plane("acme");
    acme.post(CUSTOM, &widgets()).expect(201);
    let (group, version) = EXTENSION;
    for (path, object) in routes::extension_objects() {
        acme.post(&path, &object).expect(201);
    }
    let place = format!("/apis/{group}/{version}/namespaces/default/flunders");
    eventually("the extension server answers", || acme.get(&place).code == 200);
    eventually("the kind is served", || acme.get("/apis/example.org/v1/widgets").code == 200);
    acme
}

/// What becomes of everything that can be asked in a plane.
fn matrix(people: &mut People, asks: Vec<Ask>) -> String {
    let mut by_right: BTreeMap<Right, Vec<Ask>> = BTreeMap::new();
    for ask in asks {
        by_right.entry(ask.right.clone()).or_default().push(ask);
    }
    let rights: Vec<Right> = by_right.keys().cloned().collect();
    // What is open to many comes first.
    let mut lines: BTreeMap<(Vec<Outcome>, String), BTreeSet<String>> = BTreeMap::new();
    for (right, asks) in by_right {
        people.give(&right, &rights);
        for ask in asks {
            let outcomes = people.ask(&ask);
            let verbs = lines.entry((outcomes, right.thing())).or_default();
            verbs.insert(format!("{}{}", right.verb, ask.note));
        }
    }
    let mut text = String::new();
    for ((outcomes, thing), verbs) in lines {
        let outcomes: Vec<String> = outcomes.iter().map(|outcome| format!("{:<9}", outcome.word())).collect();
        let verbs: Vec<String> = verbs.into_iter().collect();
        text.push_str(&format!("{}  {thing}: {}\n", outcomes.join(" "), verbs.join(" ")));
    }
    text
}

/// Which part of the router a path takes. A new part of it has to be named here, and then to be asked about.
fn part(path: &str) -> &'static str {
    let path = path.split('?').next().unwrap();
    match Route::parse(path, "h", &[]).unwrap().request() {
        Request::Resource(_) => "resource",
        Request::Groups { core: true } => "core versions",
        Request::Groups { core: false } => "groups",
        Request::Group(_) => "group",
        Request::GroupVersion { .. } => "group version",
        Request::Other(_) => "page",
    }
}

#[test]
fn every_route_and_verb_has_a_decision() {
    let server = TestServer::start_whole(Arc::new(Extensions));
    let acme = furnished(&server);
    let globex = server.plane("globex");
    let asks = routes::of_plane(&server, "acme");
    let parts: BTreeSet<&str> = asks.iter().map(|ask| part(&ask.path)).collect();
    let all = ["core versions", "group", "group version", "groups", "page", "resource"];
    assert_eq!(parts, BTreeSet::from(all), "every part of the router is asked about");
    for (path, _) in PAGES {
        assert!(asks.iter().any(|ask| ask.path == *path), "{path}");
    }
    let served = asks.clone();
    let mut text = format!("{}\n", People::WORDS);
    text.push_str("\n# In a plane\n\n");
    text.push_str(&matrix(&mut People::new(&acme, &globex), asks));
    text.push_str("\n# In the core plane, what other planes do not have, and pages\n\n");
    text.push_str(&matrix(&mut People::new(&server.admin, &globex), routes::of_core(&server, &served)));
    nothing_else_is_served(&acme, &served);

    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/authorization/matrix.txt");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(file, &text).unwrap();
    }
    let expected = std::fs::read_to_string(file).unwrap_or_default();
    if expected != text {
        let old: BTreeSet<&str> = expected.lines().collect();
        let new: BTreeSet<&str> = text.lines().collect();
        panic!(
            "who may do what has changed. If that is meant, UPDATE_EXPECT=1 writes {file} anew.\nno longer: {:#?}\nnew: {:#?}",
            old.difference(&new).collect::<Vec<_>>(),
            new.difference(&old).collect::<Vec<_>>()
        );
    }
}

/// Methods that the table does not have for a path get nothing, even if somebody asks who may do everything.
fn nothing_else_is_served(admin: &Client, served: &[Ask]) {
    let mut known: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for ask in served {
        known.entry(ask.path.split('?').next().unwrap()).or_default().insert(ask.method);
    }
    let mut caller = people::Caller::new(admin.clone());
    for (path, methods) in known {
        let reads = methods.contains("GET");
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY", "get"] {
            if methods.contains(method) || (method == "HEAD" && reads) || is_handed_on(path) {
                continue;
            }
            let code = caller.code(method, &format!("{path}?dryRun=All"));
            assert!((400..500).contains(&code), "{method} {path} is not in the table, and answered {code}");
        }
    }
}

/// What extension servers do with methods is theirs to say.
fn is_handed_on(path: &str) -> bool {
    path.starts_with(&format!("/apis/{}/", EXTENSION.0))
}
