//! Clients that mean harm: each costs the server little, and nobody else notices.

use polder_test_support::http2::{DATA, GOAWAY, HEADERS, Http2, RST_STREAM};
use polder_test_support::{Reply, json};

use crate::process::{MAPS, Polder};

const CANCEL: [u8; 4] = [0, 0, 0, 8];

/// Streams opened and reset at once, thousands of them: the connection is ended, or its requests are answered.
#[test]
fn rapid_resets() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let mut attacker = Http2::open(&acme, 1 << 20).unwrap();
    let path = format!("/clusters/acme{MAPS}");
    for _ in 0..5_000 {
        let sent = attacker
            .get("127.0.0.1", &path, &[])
            .and_then(|stream| attacker.send(RST_STREAM, 0, stream, &CANCEL));
        if sent.is_err() {
            break;
        }
    }
    acme.get(MAPS).expect(200);
    polder.plane("globex").get(MAPS).expect(200);
}

/// `:status: 200`, as a header block begins with it.
const OK: u8 = 0x88;

/// A client that takes nothing of its answers holds its own plane's places, and gives them back when it goes.
#[test]
fn closed_windows() {
    let polder = Polder::start();
    let acme = polder.plane_with("acme", json!({"requestsInFlight": 3, "watches": 2}));
    let text = "x".repeat(1_000);
    for index in 0..20 {
        acme.post(MAPS, &json!({"metadata": {"name": (format!("m-{index}"))}, "data": {"a": text}}))
            .expect(201);
    }
    let mut attacker = Http2::open(&acme, 0).unwrap();
    let path = format!("/clusters/acme{MAPS}");
    let ask = |attacker: &mut Http2| {
        attacker.get("127.0.0.1", &path, &[]).unwrap();
    };
    (0..3).for_each(|_| ask(&mut attacker));
    let mut held = Vec::new();
    while held.len() < 3 {
        let frame = attacker.frame().unwrap();
        assert_ne!(frame.kind, DATA, "sent though the window is closed");
        match (frame.kind, frame.payload.first()) {
            (HEADERS, Some(&OK)) => held.push(frame.stream),
            // The last create gives its place back a moment after its answer was read.
            (HEADERS, _) => ask(&mut attacker),
            _ => {}
        }
    }
    // Small answers too: they were made, and are not sent.
    acme.get(MAPS).expect(429);
    polder.plane("globex").get(MAPS).expect(200);
    attacker.send(RST_STREAM, 0, held[0], &CANCEL).unwrap();
    let started = std::time::Instant::now();
    while acme.get(MAPS).code != 200 {
        assert!(started.elapsed().as_secs() < 20, "a reset stream still has its place");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    drop(attacker);
}

/// A plane's watches are counted before anything is read for them.
#[test]
fn watches_are_counted_first() {
    let polder = Polder::start();
    let acme = polder.plane_with("acme", json!({"watches": 1}));
    let _open = acme.watch(&format!("{MAPS}?watch=true"));
    // A version that does not come would be waited for, and then be a 504.
    acme.get(&format!("{MAPS}?watch=true&resourceVersion=999999999")).expect(429);
}

/// Many slow watchers of one large collection share it: the server does not hold a copy for each.
#[test]
fn slow_watchers_share() {
    let polder = Polder::start_with("defaultLimits:\n  watches: 1000\n");
    let acme = polder.plane("acme");
    let text = "x".repeat(100_000);
    for index in 0..100 {
        acme.post(MAPS, &json!({"metadata": {"name": (format!("m-{index}"))}, "data": {"a": text}}))
            .expect(201);
    }
    let before = polder.resident_bytes();
    let query =
        "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let watches: Vec<_> = (0..100).map(|_| acme.watch(&format!("{MAPS}?{query}"))).collect();
    let grown = polder.resident_bytes().saturating_sub(before);
    // A copy of ten megabytes for each would be a thousand. What is on its way to each is less than one.
    assert!(grown < 300 << 20, "{} MiB for {} watches", grown >> 20, watches.len());
}

#[track_caller]
fn refuses(outcome: Result<Reply, impl std::fmt::Debug>) {
    if let Ok(reply) = outcome {
        assert!(reply.code >= 400, "{} {}", reply.code, reply.text());
    }
}

/// Heads without end are refused, in bounded memory.
#[test]
fn huge_heads() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let long = "x".repeat(400_000);
    let refused = acme.send("GET", MAPS, &[("X-Long", &long)], b"");
    refuses(refused);
    let many: Vec<String> = (0..500).map(|index| format!("X-{index}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "y")).collect();
    let refused = acme.send("GET", MAPS, &many, b"");
    refuses(refused);
    let long_path = acme.send("GET", &format!("{MAPS}/{long}"), &[], b"");
    refuses(long_path);
    // A head in parts that never end: the connection is ended instead.
    let mut attacker = Http2::open(&acme, 1 << 20).unwrap();
    let part = [&[0u8, 3][..], b"x-a", &[127, 0x81, 0x3e], &[b'y'; 8064]].concat();
    attacker.send(HEADERS, 1, 1, &[]).unwrap();
    let ended = (0..1_000).any(|_| attacker.send(9, 0, 1, &part).is_err());
    let goodbye = ended || std::iter::from_fn(|| attacker.frame().ok()).any(|frame| frame.kind == GOAWAY);
    assert!(goodbye || attacker.frame().is_err());
    acme.get(MAPS).expect(200);
}
