//! What bodies take up in memory is bounded over all planes, and those who take their answers get them.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::{Duration, Instant};

use polder_test_support::http2::{GOAWAY, HEADERS, Http2, RST_STREAM};
use polder_test_support::{Bounds, Client, TestServer, Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MIB: usize = 1 << 20;
const TOTAL: usize = 48 * MIB;

fn server() -> TestServer {
    TestServer::start_with(Bounds { in_flight_bytes_max: TOTAL, ..Bounds::default() })
}

fn map(name: &str, bytes: usize) -> Value {
    json!({"metadata": {"name": name}, "data": {"a": ("x".repeat(bytes))}})
}

/// Asks for things without end and takes nothing.
fn stall(client: &Client, path: &str, times: usize) -> Http2 {
    let mut stalled = Http2::open(client, 0).unwrap();
    for _ in 0..times {
        stalled.get("127.0.0.1", &format!("{}{path}", client.prefix), &[]).unwrap();
    }
    stalled
}

fn bounded(server: &TestServer) -> f64 {
    let used = server.metric("polder_body_bytes");
    assert!(used <= TOTAL as f64, "{used}");
    used
}

/// Slow readers in many planes hold what there is, not more; a plane that has nothing is served meanwhile.
#[test]
fn slow_readers_in_many_planes() {
    for path in [MAPS, &format!("{MAPS}/m-0"), &format!("{MAPS}?watch=true")] {
        let server = server();
        let planes: Vec<Client> = (0..6).map(|index| server.plane(&format!("p-{index}"))).collect();
        let other = server.plane("other");
        for client in planes.iter().chain([&other]) {
            for index in 0..4 {
                client.post(MAPS, &map(&format!("m-{index}"), MIB)).expect(201);
            }
        }
        let stalled: Vec<Http2> = planes.iter().map(|client| stall(client, path, 40)).collect();
        // Until what could be held is held.
        let started = Instant::now();
        while bounded(&server) < (TOTAL / 2) as f64 && started.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(20));
        }
        for _ in 0..5 {
            assert_eq!(other.get(MAPS).expect(200).json()["items"].as_array().unwrap().len(), 5, "{path}");
            other.get(&format!("{MAPS}/m-1")).expect(200);
            other.put(&format!("{MAPS}/m-1"), &map("m-1", MIB)).expect(200);
            let held = bounded(&server);
            assert!(held > (4 * MIB) as f64, "{path}: nobody was slow: {held}");
        }
        drop(stalled);
        let started = Instant::now();
        while server.metric("polder_body_bytes") > 0.0 {
            assert!(started.elapsed() < Duration::from_secs(30), "{path}: something is still counted");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Lists that need many pages each, far more of them than fit at once, all come to their end.
#[test]
fn many_long_lists_end() {
    let server = server();
    let acme = server.plane("acme");
    for index in 0..24 {
        acme.post(MAPS, &map(&format!("m-{index}"), MIB / 2)).expect(201);
    }
    std::thread::scope(|scope| {
        for _ in 0..24 {
            scope.spawn(|| {
                let list = acme.get(&format!("{MAPS}?timeout=60s")).expect(200).json();
                // And the one every namespace has.
                assert_eq!(list["items"].as_array().unwrap().len(), 25);
            });
        }
    });
    assert!(server.metric("polder_body_bytes") < 1.0);
}

/// Bodies that are announced and do not come take up what their plane may have; others write on.
#[test]
fn bodies_that_do_not_come() {
    let server = server();
    let planes: Vec<Client> = (0..6).map(|index| server.plane(&format!("p-{index}"))).collect();
    let other = server.plane("other");
    let mut open = Vec::new();
    for client in planes.iter().cycle().take(60) {
        let mut connection = client.connect().unwrap();
        let json = ("Content-Type", "application/json");
        let head = client.head("POST", MAPS, &[json], &vec![b' '; 2 * MIB]);
        connection.write(format!("{head}{{").as_bytes()).unwrap();
        open.push(connection);
    }
    let started = Instant::now();
    while bounded(&server) < (16 * MIB) as f64 {
        assert!(started.elapsed() < Duration::from_secs(30), "no body is waited for");
        std::thread::sleep(Duration::from_millis(20));
    }
    for index in 0..5 {
        other.post(MAPS, &map(&format!("small-{index}"), 100)).expect(201);
        bounded(&server);
    }
    // One that waited in vain is told when to come again.
    let refused = open.iter_mut().rev().find_map(|connection| connection.start("", b"").ok()).unwrap();
    assert_eq!((refused.code, refused.header("retry-after")), (429, Some("1")));
}

/// Refusals are small, but whoever takes none of them gets no more.
#[test]
fn refusals_that_are_not_taken() {
    let server = TestServer::start();
    let nobody = server.admin.anonymous().unwrap();
    let mut stalled = stall(&nobody, MAPS, 500);
    // A goodbye would only say that nobody answers pings.
    let mut frames = std::iter::from_fn(|| stalled.frame().ok()).take_while(|frame| frame.kind != GOAWAY);
    assert!(frames.any(|frame| frame.kind == RST_STREAM));
    // Whoever takes them gets them all.
    let mut patient = Http2::open(&nobody, 1 << 20).unwrap();
    let asked: Vec<u32> = (0..200).map(|_| patient.get("127.0.0.1", MAPS, &[]).unwrap()).collect();
    let answered = std::iter::from_fn(|| patient.frame().ok()).filter(|frame| frame.kind == HEADERS);
    assert_eq!(answered.take(asked.len()).count(), 200);
}

/// A small object that is large when it is indented counts for what it is then, before it is made.
#[test]
fn indentation_is_counted() {
    let server = server();
    let acme = server.plane("acme");
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let names = json!({"plural": "deeps", "singular": "deep", "kind": "Deep", "listKind": "DeepList"});
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "deeps.example.org"},
        "spec": {"group": "example.org", "scope": "Namespaced", "names": names, "versions": [version]},
    });
    acme.post(crds, &crd).expect(201);
    let deeps = "/apis/example.org/v1/namespaces/default/deeps";
    let deep = |name: &str, len: usize| {
        let deep = (0..100).fold(json!(vec![1; len]), |inner, _| json!([inner]));
        let spec = json!({"a": deep});
        json!({"apiVersion": "example.org/v1", "kind": "Deep", "metadata": {"name": name}, "spec": spec})
    };
    // 36 KB, or 3.7 megabytes.
    acme.post(deeps, &deep("a", 18_000)).expect(201);
    for path in [format!("{deeps}/a?pretty=true"), format!("{deeps}?pretty=true")] {
        assert!(acme.get(&path).expect(200).body.len() > 3_600_000);
        let stalled = stall(&acme, &path, 100);
        let started = Instant::now();
        while bounded(&server) < (3 * MIB) as f64 {
            assert!(started.elapsed() < Duration::from_secs(30), "{path} is not counted");
            std::thread::sleep(Duration::from_millis(20));
        }
        server.admin.get(MAPS).expect(200);
        bounded(&server);
        drop(stalled);
        while server.metric("polder_body_bytes") > 0.0 {
            assert!(started.elapsed() < Duration::from_secs(60), "{path} is still counted");
        }
    }
    // 800 KB, or 81 megabytes: that is more than beauty is worth, whoever asks for it in whatever way.
    let b = format!("{deeps}/b");
    acme.post(&format!("{deeps}?pretty=true"), &deep("b", 400_000)).expect(201);
    for path in [format!("{b}?pretty=true"), format!("{deeps}?pretty=true")] {
        let whole = acme.get(&path).expect(200);
        assert!(whole.body.len() < 6_000_000, "{path}: {}", whole.body.len());
    }
    let yaml = [("Accept", "application/yaml")];
    assert!(acme.must("GET", &b, &yaml, b"").expect(200).body.len() < 1_000_000);
    // Nobody else notices those who ask for it and take nothing.
    let other = server.plane("other");
    let _stalled = stall(&acme, &format!("{b}?pretty=true"), 100);
    for _ in 0..20 {
        other.get("/api/v1/namespaces/default").expect(200);
        server.admin.get("/readyz").expect(200);
        bounded(&server);
    }
}

/// Long selectors of open watches are counted; selectors that would take long to look at are refused.
#[test]
fn long_selectors() {
    let server = server();
    let acme = server.plane("acme");
    let watch = |selector: String| format!("{MAPS}?watch=true&labelSelector={selector}");
    let values: Vec<String> = (0..10_000).map(|index| index.to_string()).collect();
    // Watches that wait for news hold nothing, whether there was something to tell them first or not.
    let mut idle =
        [acme.watch(&format!("{MAPS}?watch=true")), server.admin.watch("/api/v1/namespaces?watch=true")];
    idle[1].must();
    let started = Instant::now();
    while server.metric("polder_body_bytes") > 0.0 {
        assert!(started.elapsed() < Duration::from_secs(30), "idle watches hold memory");
    }
    let open = acme.watch(&watch(format!("a+in+({})", values.join(","))));
    // What was set aside for the state it begins with goes, what the selector takes stays.
    let mut held = server.metric("polder_body_bytes");
    while held > (2 * MIB) as f64 {
        assert!(started.elapsed() < Duration::from_secs(30), "a page is still held");
        held = server.metric("polder_body_bytes");
    }
    assert!(held > (10_000 * 24) as f64, "{held}");
    drop(open);
    let many: Vec<String> = (0..1_001).map(|index| format!("!k{index}")).collect();
    acme.get(&watch(many.join(","))).expect(400);
    // As many labels as fit in an object, and as many requirements as are taken.
    let labels: Vec<(String, Value)> = (0..30_000).map(|index| (format!("l{index}"), json!(""))).collect();
    let labels: Value = labels.into_iter().collect();
    acme.post(MAPS, &json!({"metadata": {"name": "labels", "labels": labels}})).expect(201);
    let items = |selector: String| {
        let list = acme.get(&format!("{MAPS}?labelSelector={selector}")).expect(200).json();
        list["items"].as_array().map(Vec::len)
    };
    // One more than was made: the one every namespace has.
    assert_eq!(items(many[1..].join(",")), Some(2));
    assert_eq!(items(format!("{},!l29999", many[2..].join(","))), Some(1));
}
