//! What happens to whoever needs room while there is none: reads look again, writes are told in a shorter way, and what a
//! write reads counts too.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::{Duration, Instant};

use polder_test_support::{Bounds, Client, Connection, TestServer, Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.org/v1/namespaces/default/widgets";
const MIB: usize = 1 << 20;

fn server() -> TestServer {
    TestServer::start_with(Bounds { in_flight_bytes_max: 48 * MIB, ..Bounds::default() })
}

fn widgets(properties: &Value) -> Value {
    let schema = json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": (properties.clone()),
    });
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.org"},
        "spec": {
            "group": "example.org", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        },
    })
}

fn widget(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": name}, "spec": (spec.clone()),
    })
}

/// So many numbers, a hundred lists deep.
fn deep(len: usize) -> Value {
    (0..100).fold(json!(vec![1; len]), |inner, _| json!([inner]))
}

/// The plane has all the room it may have until this is dropped: it is to send a large body, and does not.
fn hold(server: &TestServer, client: &Client) -> Connection {
    let mut connection = client.connect().unwrap();
    let json = ("Content-Type", "application/json");
    let head = client.head("POST", MAPS, &[json], &vec![b' '; 3 * MIB]);
    connection.write(format!("{head}{{").as_bytes()).unwrap();
    let started = Instant::now();
    while server.metric("polder_body_bytes") < (12 * MIB) as f64 {
        assert!(started.elapsed() < Duration::from_secs(30), "no body is waited for");
        std::thread::sleep(Duration::from_millis(10));
    }
    connection
}

/// A small patch of a large object takes what the object takes.
#[test]
fn what_a_write_reads_is_counted() {
    let server = server();
    let acme = server.plane("acme");
    acme.post(CRDS, &widgets(&json!({}))).expect(201);
    acme.post(WIDGETS, &widget("large", &json!({"a": (deep(100_000))}))).expect(201);
    acme.post(WIDGETS, &widget("small", &json!({"a": 1}))).expect(201);
    let held = hold(&server, &acme);
    let patch = json!({"metadata": {"annotations": {"a": "b"}}});
    acme.patch(&format!("{WIDGETS}/small?timeout=1s"), "merge", &patch).expect(200);
    for refused in [
        acme.patch(&format!("{WIDGETS}/large?timeout=1s"), "merge", &patch),
        acme.delete(&format!("{WIDGETS}/large?timeout=1s")),
    ] {
        assert!(matches!(refused.code, 429 | 504), "{}", refused.text());
    }
    drop(held);
    acme.patch(&format!("{WIDGETS}/large"), "merge", &patch).expect(200);
}

/// What has been done is told, though there is no room to tell it as was asked.
#[test]
fn writes_are_told_without_indentation() {
    let server = server();
    let acme = server.plane("acme");
    acme.post(CRDS, &widgets(&json!({}))).expect(201);
    let held = hold(&server, &acme);
    let made = acme.post(&format!("{WIDGETS}?pretty=true"), &widget("a", &json!({"a": (deep(4_000))})));
    let made = made.expect(201);
    assert!(made.body.len() < 20_000, "{}", made.body.len());
    assert_eq!(made.json()["metadata"]["name"], "a");
    drop(held);
    let path = format!("{WIDGETS}/a?pretty=true");
    assert!(acme.get(&path).expect(200).body.len() > 700_000);
    let patch = json!({"metadata": {"annotations": {"a": "b"}}});
    assert!(acme.patch(&path, "merge", &patch).expect(200).body.len() > 700_000);
}

/// A definition that changes while somebody waits for room is the one the answer is made with.
#[test]
fn definitions_are_looked_up_after_waiting() {
    let server = server();
    let acme = server.plane("acme");
    acme.post(CRDS, &widgets(&json!({}))).expect(201);
    acme.post(WIDGETS, &widget("a", &json!({"text": ("x".repeat(300_000))}))).expect(201);
    let held = hold(&server, &acme);
    let paths = [format!("{WIDGETS}/a"), WIDGETS.to_string()];
    let asking = paths.map(|path| {
        let acme = acme.clone();
        std::thread::spawn(move || acme.get(&path))
    });
    let watching = {
        let acme = acme.clone();
        std::thread::spawn(move || acme.watch(&format!("{WIDGETS}?watch=true")).must())
    };
    std::thread::sleep(Duration::from_millis(500));
    assert!(asking.iter().all(|asking| !asking.is_finished()) && !watching.is_finished(), "nobody waits");
    let crd = widgets(&json!({"size": {"type": "integer", "default": 3}}));
    acme.patch(&format!("{CRDS}/widgets.example.org"), "merge", &crd).expect(200);
    drop(held);
    let [one, list] = asking.map(|asking| asking.join().unwrap().expect(200).json());
    assert_eq!(one["size"], 3);
    assert_eq!(list["items"][0]["size"], 3);
    assert_eq!(watching.join().unwrap()["object"]["size"], 3);
}

/// A line that does not fit with those before it comes after them.
#[test]
fn lines_of_a_watch_that_do_not_go_together() {
    let server = TestServer::start();
    let acme = server.plane("acme");
    let map = |index: usize, bytes: usize| json!({"metadata": {"name": (format!("m-{index}"))}, "data": {"a": ("x".repeat(bytes))}});
    // Two of them are too much for one piece; small ones go along.
    let sizes = [40_000, 10, 40_000, 40_000, 10, 70_000, 10, 40_000];
    for (index, bytes) in sizes.iter().enumerate() {
        acme.post(MAPS, &map(index, *bytes)).expect(201);
    }
    let state = format!("{MAPS}?watch=true");
    for path in [state.clone(), format!("{state}&resourceVersion=0")] {
        let mut watch = acme.watch(&path);
        let names: Vec<String> = (0..sizes.len()).map(|_| watch.next_name()).collect();
        let expected: Vec<String> = (0..sizes.len()).map(|index| format!("ADDED m-{index}")).collect();
        assert_eq!(names, expected, "{path}");
        acme.patch(&format!("{MAPS}/m-1"), "merge", &json!({"data": {"b": path}})).expect(200);
        assert_eq!(watch.next_name(), "MODIFIED m-1");
    }
}
