//! Too much of everything: frames without end, connections without end, bodies that grow when they are unpacked. Each costs the
//! attacker more than the server, and others are served meanwhile.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use polder_test_support::extension::{ExtensionServer, Handler, certificate};
use polder_test_support::http2::{
    CONTINUATION, DATA, END_HEADERS, HEADERS, Http2, PING, SETTINGS, WINDOW_UPDATE,
};
use polder_test_support::{Client, eventually, json};

use crate::process::{MAPS, PLANES, Polder};

const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MIB: u64 = 1 << 20;
const PRIORITY: u8 = 2;

/// Frames that ask for an answer, or for nothing at all, as fast as they can be sent and without reading what comes back.
#[test]
fn floods_of_frames() {
    let polder = Polder::start();
    let (acme, globex) = (polder.plane("acme"), polder.plane("globex"));
    let before = polder.resident_bytes();
    let rows: [(&str, u8, u8, u32, &[u8]); 8] = [
        ("pings", PING, 0, 0, &[0; 8]),
        ("settings", SETTINGS, 0, 0, &[]),
        ("settings of a window", SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1]),
        ("settings of a table", SETTINGS, 0, 0, &[0, 1, 0x7f, 0xff, 0xff, 0xff]),
        ("windows", WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
        ("priorities", PRIORITY, 0, 101, &[0, 0, 0, 0, 1]),
        ("empty data", DATA, 0, 1, &[]),
        ("padded data", DATA, 8, 1, &[0]),
    ];
    for (what, kind, flags, stream, payload) in rows {
        let mut attacker = Http2::open(&acme, 1 << 20).unwrap();
        attacker.set_patience(Duration::from_secs(2)).unwrap();
        if stream == 1 {
            let path = format!("/clusters/acme{MAPS}");
            let head =
                [(":method", "POST"), (":scheme", "https"), (":authority", "x"), (":path", path.as_str())];
            attacker.begin(&head, END_HEADERS).unwrap();
        }
        // Until the server has had enough of it, or takes no more before its answers are taken.
        let sent = (0..200_000).take_while(|_| attacker.send(kind, flags, stream, payload).is_ok()).count();
        globex.get(MAPS).expect(200);
        acme.get(MAPS).expect(200);
        let grown = polder.resident_bytes().saturating_sub(before);
        assert!(grown < 128 * MIB, "{what}: {} MiB for {sent} frames", grown / MIB);
    }
    // Parts of a head that add nothing to it, and so are never too long.
    let mut attacker = Http2::open(&acme, 1 << 20).unwrap();
    attacker.set_patience(Duration::from_secs(2)).unwrap();
    attacker.send(HEADERS, 1, 1, &[]).unwrap();
    let ended = (0..200_000).any(|_| attacker.send(CONTINUATION, 0, 1, &[]).is_err());
    assert!(ended, "empty parts of a head are taken without end");
    globex.get(MAPS).expect(200);
}

/// More connections than there are files for: those that are there go on, the store finds its files, the server is ready, nobody
/// fills the log, and when they are gone everybody is served.
#[test]
fn connections_without_end() {
    let polder = Polder::start_with_files(192);
    let acme = polder.plane("acme");
    let mut kept = acme.connect().unwrap();
    let ask = |connection: &mut polder_test_support::Connection, method: &str, path: &str, body: &str| {
        let json = [("Content-Type", "application/json")];
        connection.send(&acme.head(method, path, &json, body.as_bytes()), body.as_bytes()).unwrap()
    };
    ask(&mut kept, "GET", MAPS, "").expect(200);
    let mut watch = acme.watch(&format!("{MAPS}?watch=true&resourceVersion=0"));
    let mut admin = polder.admin.connect().unwrap();
    let mut flood: Vec<TcpStream> = Vec::new();
    for _ in 0..600 {
        flood.extend(TcpStream::connect(acme.address));
    }
    // What is new needs files too: journals, readers.
    for index in 0..20 {
        let map = json!({"metadata": {"name": format!("m-{index}")}}).to_string();
        ask(&mut kept, "POST", MAPS, &map).expect(201);
        let plane = json!({"metadata": {"name": format!("p-{index}")}}).to_string();
        let head =
            polder.admin.head("POST", PLANES, &[("Content-Type", "application/json")], plane.as_bytes());
        admin.send(&head, plane.as_bytes()).unwrap().expect(201);
        let path = format!("/clusters/p-{index}/api/v1/namespaces");
        admin.send(&polder.admin.head("GET", &path, &[], b""), b"").unwrap().expect(200);
    }
    while watch.next_name() != "ADDED m-19" {}
    admin.send(&polder.admin.head("GET", "/readyz", &[], b""), b"").unwrap().expect(200);
    let turned_away = flood.iter().filter(|stream| is_closed(stream)).count();
    assert!(turned_away >= 300, "only {turned_away} of {} were turned away", flood.len());
    assert!(polder.log().lines().count() < 20, "{}", polder.log());
    drop(flood);
    eventually("others are served", || {
        polder.admin.send("GET", "/readyz", &[], b"").is_ok_and(|reply| reply.code == 200)
    });
    acme.get(MAPS).expect(200);
}

/// Whether the other end has closed a connection.
fn is_closed(stream: &TcpStream) -> bool {
    use std::io::Read as _;
    let mut stream = stream;
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    match stream.read(&mut [0]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

/// A gigabyte of nothing, in a megabyte.
fn bomb() -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let zeros = vec![b' '; 1 << 20];
    (0..1024).for_each(|_| encoder.write_all(&zeros).unwrap());
    encoder.finish().unwrap()
}

/// Nobody's compressed body is unpacked: not a request's, not a webhook's answer, not an extension server's.
#[test]
fn compression_bombs() {
    let polder = Polder::start_with("webhookNetworks: [127.0.0.0/8]\n");
    let acme = polder.plane("acme");
    let bomb = bomb();
    assert!(bomb.len() < 2 << 20);
    let before = polder.resident_bytes();
    let json = ("Content-Type", "application/json");
    for encoding in ["gzip", "x-gzip", "deflate", "br", "zstd", "gzip, gzip"] {
        let reply = acme.must("POST", MAPS, &[json, ("Content-Encoding", encoding)], &bomb);
        assert!((400..500).contains(&reply.code), "{encoding}: {}", reply.text());
    }
    let chunked = format!(
        "{}Transfer-Encoding: gzip, chunked\r\n\r\n",
        acme.head("GET", MAPS, &[json], b"").trim_end_matches("\r\n").to_owned() + "\r\n"
    );
    acme.connect()
        .unwrap()
        .send(&chunked.replacen("GET", "POST", 1), b"0\r\n\r\n")
        .map(|reply| assert!(reply.code >= 400, "{}", reply.text()))
        .ok();
    // A webhook that answers with one, and an extension server.
    let packed = bomb.clone();
    let handler: Handler = Arc::new(move |_, out| {
        let len = packed.len();
        write!(
            out,
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: {len}\r\n\r\n"
        )?;
        out.write_all(&packed)
    });
    let ca = certificate("127.0.0.1").unwrap().0;
    let server = ExtensionServer::start("127.0.0.1", &ca, handler.clone()).unwrap();
    let webhook = json!({"metadata": {"name": "bomb"}, "webhooks": [{
        "name": "bomb.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": format!("https://{}/x", server.address), "caBundle": server.ca_bundle},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
    }]});
    acme.post(VALIDATING, &webhook).expect(201);
    acme.post(MAPS, &json!({"metadata": {"name": "one"}})).expect(500);
    let server = ExtensionServer::start("api.default.svc", &ca, handler).unwrap();
    for (path, object) in server.objects("default", "api", "wardle.example.com", "v1alpha1") {
        acme.post(&path, &object).expect(201);
    }
    for path in ["/apis", "/openapi/v2", "/openapi/v3"] {
        acme.get(path).expect(200);
    }
    for accept in ["application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", "application/json"]
    {
        acme.must("GET", "/apis", &[("Accept", accept)], b"").expect(200);
    }
    given_on(&acme);
    let grown = polder.resident_bytes().saturating_sub(before);
    assert!(grown < 256 * MIB, "{} MiB", grown / MIB);
}

/// What an extension server packed is given to whoever asked as it is, if the server takes it for one at all.
fn given_on(acme: &Client) {
    let reply = acme.must("GET", "/apis/wardle.example.com/v1alpha1/namespaces/default/flunders", &[], b"");
    assert!(reply.code == 503 || reply.header("content-encoding") == Some("gzip"), "{}", reply.code);
}
