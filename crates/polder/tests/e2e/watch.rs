//! Reference section 9.3 and on: watches.

use std::time::Duration;

use polder_test_support::http2::{DATA, HEADERS, Http2};
use polder_test_support::{Value, json};

use crate::process::{MAPS, Polder};

fn map(name: &str, tier: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"tier": tier}}})
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// From a version on, everything that happened since, in order, each with its own version.
#[test]
fn from_a_version_on() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let list = acme.get(MAPS).json();
    let from = version(&list);
    acme.post(MAPS, &map("a", "x")).expect(201);
    let changed = acme.patch(&format!("{MAPS}/a"), "merge", &json!({"data": {"k": "v"}})).expect(200).json();
    acme.delete(&format!("{MAPS}/a")).expect(200);
    let mut watch = acme.watch(&format!("{MAPS}?watch=true&resourceVersion={from}"));
    let events = [watch.must(), watch.must(), watch.must()];
    let types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["ADDED", "MODIFIED", "DELETED"]);
    assert_eq!(version(&events[1]["object"]), version(&changed));
    assert!(version(&events[2]["object"]) > version(&changed), "a deletion has its own version");
    assert_eq!(events[0]["object"]["kind"], "ConfigMap");
    acme.post(MAPS, &map("b", "x")).expect(201);
    assert_eq!(watch.next_name(), "ADDED b");
    let again = version(&events[0]["object"]);
    let mut resumed = acme.watch(&format!("{MAPS}?watch=true&resourceVersion={again}"));
    assert_eq!(
        [resumed.next_name(), resumed.next_name(), resumed.next_name()],
        ["MODIFIED a", "DELETED a", "ADDED b"]
    );
    acme.get(&format!("{MAPS}?watch=true&resourceVersion=x")).expect(500);
}

/// A selector turns changes into appearances and disappearances; the last seen state goes.
#[test]
fn selectors_turn_changes_around() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let from = version(&acme.get(MAPS).json());
    let mut watch = acme.watch(&format!("{MAPS}?watch=true&resourceVersion={from}&labelSelector=tier%3Dx"));
    let retier = |tier: &str| {
        let patch = json!({"metadata": {"labels": {"tier": tier}}});
        acme.patch(&format!("{MAPS}/a"), "merge", &patch).expect(200).json()
    };
    acme.post(MAPS, &map("a", "y")).expect(201);
    retier("x");
    let left = retier("y");
    assert_eq!(watch.next_name(), "ADDED a");
    let gone = watch.must();
    assert_eq!(
        (&gone["type"], &gone["object"]["metadata"]["labels"]["tier"]),
        (&json!("DELETED"), &json!("x"))
    );
    assert_eq!(version(&gone["object"]), version(&left));
    let mut one =
        acme.watch(&format!("{MAPS}?watch=true&fieldSelector=metadata.name%3Db&resourceVersion={from}"));
    acme.post(MAPS, &map("b", "y")).expect(201);
    assert_eq!(one.next_name(), "ADDED b");
}

/// Initial events end with a bookmark that says so; then comes what is new.
#[test]
fn initial_events() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    acme.post(MAPS, &map("a", "x")).expect(201);
    acme.post(MAPS, &map("b", "x")).expect(201);
    let query =
        "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = acme.watch(&format!("{MAPS}?{query}&labelSelector=tier"));
    assert_eq!([watch.next_name(), watch.next_name()], ["ADDED a", "ADDED b"]);
    let bookmark = watch.must();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["kind"], "ConfigMap");
    assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    acme.post(MAPS, &map("c", "x")).expect(201);
    assert_eq!(watch.next_name(), "ADDED c");
    acme.get(&format!("{MAPS}?watch=true&sendInitialEvents=true")).expect(422);
    let none = "watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let mut watch = acme.watch(&format!("{MAPS}?{none}"));
    acme.post(MAPS, &map("d", "x")).expect(201);
    assert_eq!(watch.next_name(), "ADDED d");
}

/// A watch with a time limit ends cleanly at it, after a last bookmark for those who want one.
#[test]
fn time_limit_and_bookmarks() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let from = version(&acme.get(MAPS).json());
    let query = format!("watch=true&resourceVersion={from}&timeoutSeconds=3");
    let mut marked = acme.watch(&format!("{MAPS}?{query}&allowWatchBookmarks=true"));
    let mut plain = acme.watch(&format!("{MAPS}?{query}"));
    polder.plane("globex").post(MAPS, &map("elsewhere", "x")).expect(201);
    let bookmark = marked.must();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert!(version(&bookmark["object"]) >= from);
    assert!(matches!(marked.next_event(), Ok(None)));
    assert!(matches!(plain.next_event(), Ok(None)), "no events and no bookmarks: only the end");
}

/// The old form, by path, still works; so do tables and metadata in streams.
#[test]
fn forms() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    acme.post(MAPS, &map("a", "x")).expect(201);
    let mut old = acme.watch("/api/v1/watch/namespaces/default/configmaps/a");
    assert_eq!(old.next_name(), "ADDED a");
    let table = acme.clone().with_header("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1");
    let mut watch = table.watch(&format!("{MAPS}?watch=true&fieldSelector=metadata.name%3Da"));
    let first = watch.must();
    assert_eq!(first["object"]["kind"], "Table");
    assert!(first["object"]["columnDefinitions"].is_array());
    acme.patch(&format!("{MAPS}/a"), "merge", &json!({"data": {"k": "v"}})).expect(200);
    assert_eq!(watch.must()["object"].get("columnDefinitions"), Some(&json!(null)), "said once");
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = table.watch(&format!("{MAPS}?watch=true&fieldSelector=metadata.name%3Da&{query}"));
    assert_eq!(watch.must()["type"], "ADDED");
    let bookmark = watch.must();
    assert_eq!((&bookmark["type"], &bookmark["object"]["kind"]), (&json!("BOOKMARK"), &json!("Table")));
    let marked = &bookmark["object"]["rows"][0]["object"]["metadata"]["annotations"];
    assert_eq!(*marked, json!({"k8s.io/initial-events-end": "true"}), "{bookmark}");
    let bare =
        acme.clone().with_header("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    let mut watch = bare.watch(&format!("{MAPS}?watch=true&fieldSelector=metadata.name%3Da"));
    let event = watch.must();
    assert_eq!(
        (&event["object"]["kind"], event["object"].get("data")),
        (&json!("PartialObjectMetadata"), None)
    );
}

/// Everybody who watches sees the same events in the same order.
#[test]
fn one_order_for_all() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let from = version(&acme.get(MAPS).json());
    let path = format!("{MAPS}?watch=true&resourceVersion={from}");
    let mut watches: Vec<_> = (0..4).map(|_| acme.watch(&path)).collect();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let acme = acme.clone();
            scope.spawn(move || {
                for index in 0..10 {
                    acme.post(MAPS, &map(&format!("w{writer}-{index}"), "x")).expect(201);
                }
            });
        }
    });
    let seen: Vec<Vec<u64>> =
        watches.iter_mut().map(|watch| (0..40).map(|_| version(&watch.must()["object"])).collect()).collect();
    assert!(seen[0].is_sorted_by(|left, right| left < right), "{:?}", seen[0]);
    assert!(seen.iter().all(|one| *one == seen[0]));
    assert!(watches[0].silent(Duration::from_millis(300)));
}

/// The head of the answer comes at once, and nothing empty follows it: clients leave a connection on which they see that too
/// often.
#[test]
fn a_watch_is_open_before_there_is_news() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let from = version(&acme.get(MAPS).json());
    let path = format!("/clusters/acme{MAPS}?watch=true&resourceVersion={from}");
    let mut connection = Http2::open(&acme, 1 << 20).unwrap();
    let stream = connection.get("127.0.0.1", &path, &[]).unwrap();
    let mut next = |kind: u8| loop {
        let frame = connection.frame().unwrap();
        if frame.stream == stream {
            assert_eq!(frame.kind, kind);
            return frame;
        }
    };
    next(HEADERS);
    acme.post(MAPS, &map("a", "x")).expect(201);
    assert!(!next(DATA).payload.is_empty());

    let mut connection = acme.connect().unwrap();
    let head =
        acme.head("GET", &format!("{MAPS}?watch=true&resourceVersion={from}&timeoutSeconds=1"), &[], b"");
    assert_eq!(connection.start(&head, b"").unwrap().code, 200);
}

/// Pages in browsers watch over web sockets: each event is a message, and the server says goodbye when the time is over.
#[test]
fn web_sockets() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    for name in ["a", "b"] {
        acme.post(MAPS, &map(name, "x")).expect(201);
    }
    let wish = [
        ("Connection", "keep-alive, Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Protocol", "base64.binary.k8s.io"),
    ];
    let said = |path: &str| {
        let mut connection = acme.connect().unwrap();
        connection.write(acme.head("GET", path, &wish, b"").as_bytes()).unwrap();
        // A ping, masked with zeros.
        connection.write(&[0x89, 0x82, 0, 0, 0, 0, b'h', b'i']).unwrap();
        connection.rest().unwrap()
    };
    let watched = said(&format!("{MAPS}?watch=true&labelSelector=tier%3Dx&timeoutSeconds=2"));
    let (head, messages) = watched.split_once("\r\n\r\n").unwrap();
    let head = head.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    assert!(head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
    assert!(head.contains("sec-websocket-protocol: base64.binary.k8s.io"), "{head}");
    let events: Vec<&str> = messages.split("{\"type\":\"").skip(1).collect();
    assert_eq!(events.len(), 2, "{messages}");
    assert!(events.iter().all(|event| event.starts_with("ADDED")), "{messages}");
    // Each behind a head of its own, in two bytes and two for its length.
    assert_eq!(messages.matches("\u{fffd}~").count(), 2, "{messages:?}");
    assert!(messages.contains("\u{2}hi"), "the ping is answered: {messages:?}");
    assert!(messages.ends_with("\u{2}\u{3}\u{fffd}"), "goodbye: {messages:?}");
    // What is no watch is answered as ever.
    let mut connection = acme.connect().unwrap();
    let reply = connection.send(&acme.head("GET", MAPS, &wish, b""), b"").unwrap();
    assert_eq!(reply.code, 200);
}
