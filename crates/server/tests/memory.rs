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
            assert_eq!(other.get(MAPS).expect(200).json()["items"].as_array().unwrap().len(), 4, "{path}");
            other.get(&format!("{MAPS}/m-1")).expect(200);
            other.put(&format!("{MAPS}/m-1"), &map("m-1", MIB)).expect(200);
            let held = bounded(&server);
            assert!(held > (10 * MIB) as f64, "{path}: nobody was slow: {held}");
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
                assert_eq!(list["items"].as_array().unwrap().len(), 24);
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
    let ended = std::iter::from_fn(|| stalled.frame().ok())
        .find(|frame| frame.kind == RST_STREAM || frame.kind == GOAWAY);
    assert!(ended.is_some());
    // Whoever takes them gets them all.
    let mut patient = Http2::open(&nobody, 1 << 20).unwrap();
    let asked: Vec<u32> = (0..200).map(|_| patient.get("127.0.0.1", MAPS, &[]).unwrap()).collect();
    let answered = std::iter::from_fn(|| patient.frame().ok()).filter(|frame| frame.kind == HEADERS);
    assert_eq!(answered.take(asked.len()).count(), 200);
}
