//! How long the server waits for whom, through real sockets: each test sees the connection or the stream end, and would
//! wait in vain if the server did not end it. No test says how fast.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use polder_test_support::http2::{DATA, END_STREAM, GOAWAY, HEADERS, Http2, RST_STREAM};
use polder_test_support::{Bounds, Client, TestServer, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SHORT: Duration = Duration::from_millis(300);
/// Longer than anything that is patient here.
const LONG: Duration = Duration::from_secs(600);

/// Nothing ends by itself.
fn patient() -> Bounds {
    Bounds {
        handshake_patience: LONG,
        head_patience: LONG,
        send_patience: LONG,
        idle_check_every: LONG,
        drain_patience: SHORT,
        ..Bounds::default()
    }
}

/// A plane with something to list that no socket buffers whole.
fn filled(server: &TestServer, objects: usize, bytes: usize) -> Client {
    let acme = server.plane("acme");
    let text = "x".repeat(bytes);
    for index in 0..objects {
        acme.post(MAPS, &json!({"metadata": {"name": (format!("m-{index}"))}, "data": {"a": text}}))
            .expect(201);
    }
    acme
}

/// Frames until one of this kind, on this stream; whether it came.
fn comes(connection: &mut Http2, kind: u8, stream: u32) -> bool {
    std::iter::from_fn(|| connection.frame().ok()).any(|frame| (frame.kind, frame.stream) == (kind, stream))
}

#[test]
fn idle_connections_are_closed() {
    let server = TestServer::start_with(Bounds { idle_check_every: SHORT, ..patient() });
    let mut idle = Http2::open(&server.admin, 1 << 20).unwrap();
    let stream = idle.get("127.0.0.1", "/version", &[]).unwrap();
    idle.body(stream).unwrap();
    assert!(comes(&mut idle, GOAWAY, 0));
    // One with a watch is not idle, though nothing is said on it.
    let mut watching = Http2::open(&server.admin, 1 << 20).unwrap();
    let watch = watching.get("127.0.0.1", &format!("{MAPS}?watch=true"), &[]).unwrap();
    assert!(comes(&mut watching, HEADERS, watch));
    let mut idle = Http2::open(&server.admin, 1 << 20).unwrap();
    assert!(comes(&mut idle, GOAWAY, 0), "what came later has been closed");
    server.admin.post(MAPS, &json!({"metadata": {"name": "news"}})).expect(201);
    let told = std::iter::from_fn(|| watching.frame().ok()).take_while(|frame| frame.kind != GOAWAY);
    assert!(told.into_iter().any(|frame| frame.kind == DATA && !frame.payload.is_empty()));
}

#[test]
fn idle_http1_connections_are_closed() {
    let server = TestServer::start_with(Bounds { head_patience: SHORT, ..patient() });
    let mut idle = server.admin.connect().unwrap();
    idle.send(&server.admin.head("GET", "/version", &[], b""), b"").unwrap();
    idle.is_ended().unwrap();
    // A head that comes a little at a time is no better.
    let mut slow = server.admin.connect().unwrap();
    slow.write(b"GET /version HTTP/1.1\r\nHost: ").unwrap();
    slow.is_ended().unwrap();
}

#[test]
fn handshakes_end() {
    let server = TestServer::start_with(Bounds { handshake_patience: SHORT, ..patient() });
    for said in [&b""[..], &[22, 3, 1, 2, 0, 1], b"GET / HTTP/1.1\r\n\r\n"] {
        let mut stranger = TcpStream::connect(server.admin.address).unwrap();
        stranger.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stranger.write_all(said).unwrap();
        // The end, or a reset; not the end of our patience.
        let mut rest = Vec::new();
        let outcome = stranger.read_to_end(&mut rest);
        let waited = outcome.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!waited, "{said:?}");
    }
}

#[test]
fn connections_are_capped() {
    let server = TestServer::start_with(Bounds { connections_max: 3, ..patient() });
    let asks = |client: &Client| {
        let mut connection = client.connect()?;
        connection.send(&client.head("GET", "/version", &[], b""), b"").map(|_| connection)
    };
    let open: Vec<_> = (0..3).map(|_| asks(&server.admin).unwrap()).collect();
    assert!(asks(&server.admin).is_err(), "more than three");
    drop(open);
    let started = Instant::now();
    while asks(&server.admin).is_err() {
        assert!(started.elapsed() < Duration::from_secs(30), "closed connections still have their places");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A client that opens no window sees its stream reset when the request's time is over, and its place is free.
#[test]
fn stalled_streams_are_reset() {
    let server = TestServer::start_with(patient());
    let acme = filled(&server, 3, 100_000);
    let mut stalled = Http2::open(&acme, 0).unwrap();
    let long = stalled.get("127.0.0.1", &format!("{}{MAPS}?timeout=1s", acme.prefix), &[]).unwrap();
    let short = stalled.get("127.0.0.1", &format!("{}{MAPS}/m-1?timeout=1s", acme.prefix), &[]).unwrap();
    let mut reset = std::iter::from_fn(|| stalled.frame().ok())
        .take_while(|frame| frame.kind != GOAWAY)
        .filter(|frame| frame.kind == RST_STREAM)
        .map(|frame| frame.stream);
    let mut both = [reset.next().unwrap(), reset.next().unwrap()];
    both.sort_unstable();
    assert_eq!(both, [long, short]);
    // The connection lives on.
    let after = stalled.get("127.0.0.1", "/version", &[]).unwrap();
    assert!(comes(&mut stalled, HEADERS, after));
}

/// The same on HTTP/1.1, where the connection ends: though bytes are taken now and then.
#[test]
fn slow_http1_clients_are_left() {
    let server = TestServer::start_with(patient());
    let acme = filled(&server, 30, 1_000_000);
    for path in [format!("{MAPS}?timeout=1s"), format!("{MAPS}/m-1?timeout=1s")] {
        let mut slow: Vec<_> = (0..8).map(|_| acme.connect().unwrap()).collect();
        for connection in &mut slow {
            connection.write(acme.head("GET", &path, &[], b"").as_bytes()).unwrap();
        }
        let started = Instant::now();
        while server.metric("polder_body_bytes") > 0.0 {
            assert!(started.elapsed() < Duration::from_secs(30), "{path} is still being sent");
            for connection in &mut slow {
                connection.take(10).ok();
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A client that takes nothing at all is dropped, whatever time its watch has.
#[test]
fn stalled_connections_are_dropped() {
    let server = TestServer::start_with(Bounds { send_patience: SHORT, ..patient() });
    let acme = filled(&server, 30, 1_000_000);
    let mut stalled = acme.connect().unwrap();
    stalled.write(acme.head("GET", &format!("{MAPS}?watch=true"), &[], b"").as_bytes()).unwrap();
    let started = Instant::now();
    while server.metric("apiserver_longrunning_requests") < 1.0 {
        assert!(started.elapsed() < Duration::from_secs(30), "no watch");
    }
    while server.metric("apiserver_longrunning_requests") > 0.0 {
        assert!(started.elapsed() < Duration::from_secs(30), "the watch is still there");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// At the end, only what was asked and not answered is unfinished.
#[test]
fn idle_connections_are_nothing_unfinished() {
    let server = TestServer::start_with(patient());
    let acme = filled(&server, 1, 1);
    // Neither reads nor answers pings.
    let mut idle = Http2::open(&acme, 1 << 20).unwrap();
    let asked = idle.get("127.0.0.1", "/version", &[]).unwrap();
    idle.body(asked).unwrap();
    assert_eq!(server.stop().unwrap(), 0);

    let server = TestServer::start_with(patient());
    let acme = filled(&server, 1, 1);
    let mut stalled = Http2::open(&acme, 0).unwrap();
    let asked = stalled.get("127.0.0.1", &format!("{}{MAPS}", acme.prefix), &[]).unwrap();
    assert!(comes(&mut stalled, HEADERS, asked));
    assert_eq!(server.stop().unwrap(), 1);
}

/// A head that does not come to its end is no request: a connection with nothing else is idle.
#[test]
fn half_heads_are_left() {
    let server = TestServer::start_with(Bounds { idle_check_every: SHORT, ..patient() });
    let mut attacker = Http2::open(&server.admin, 1 << 20).unwrap();
    let usual = [(":method", "GET"), (":scheme", "https"), (":authority", "x"), (":path", "/version")];
    attacker.begin(&usual, END_STREAM).unwrap();
    let ended = std::iter::from_fn(|| attacker.frame().ok()).any(|frame| frame.kind == GOAWAY);
    assert!(ended || attacker.frame().is_err());
}
