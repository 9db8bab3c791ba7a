//! Requests that two readers would read differently: whoever stands in front of the server and whoever it is must not see two
//! different requests. What can be read in two ways is refused, and the connection ends.

use polder_test_support::http2::{DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, Http2, RST_STREAM};
use polder_test_support::{Client, json};

use crate::process::{MAPS, Polder};

/// Sends bytes as they are and reads until the server ends the connection: the codes of its answers, and all it said.
fn answers(client: &Client, bytes: &str) -> (Vec<u16>, String) {
    let mut connection = client.connect().unwrap();
    connection.write(bytes.as_bytes()).ok();
    let said = connection.rest().unwrap_or_else(|error| panic!("{bytes:?}: no end: {error}"));
    let codes = said.split("HTTP/1.1 ").skip(1).filter_map(|answer| answer.get(..3)?.parse().ok());
    (codes.collect(), said)
}

/// Heads that say two things about where the body ends, or that only some readers take for heads.
#[test]
fn ambiguous_requests_are_refused() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    acme.post(MAPS, &json!({"metadata": {"name": "hidden"}, "data": {"a": "treasure"}})).expect(201);
    let maps = format!("/clusters/acme{MAPS}");
    // What would be asked if the first request ended sooner than it does.
    let inner = format!("GET {maps}/hidden HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let len = inner.len();
    let chunked = format!("{len:x}\r\n{inner}\r\n0\r\n\r\n");
    let post = |headers: &str, body: &str| {
        format!(
            "POST {maps} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n{headers}\r\n\r\n{body}"
        )
    };
    let get = |line: &str, headers: &str| format!("{line}\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
    let rows = [
        ("two lengths", post("Content-Length: 0\r\nContent-Length: 5", &inner)),
        ("two lengths in one", post("Content-Length: 0, 5", &inner)),
        ("a length with a sign", post("Content-Length: +0", &inner)),
        ("a length below nothing", post("Content-Length: -1", &inner)),
        ("a length in hexadecimal", post("Content-Length: 0x0", &inner)),
        ("a length without end", post("Content-Length: 99999999999999999999999", &inner)),
        ("no length in a length", post("Content-Length: ", &inner)),
        (
            "a length and chunks",
            post(&format!("Content-Length: {len}\r\nTransfer-Encoding: chunked"), "0\r\n\r\n"),
        ),
        ("chunks and a length", post("Transfer-Encoding: chunked\r\nContent-Length: 5", &chunked)),
        ("chunks, then something else", post("Transfer-Encoding: chunked, identity", &inner)),
        ("something like chunks", post("Transfer-Encoding: xchunked", &inner)),
        ("chunks on a line that goes on", post("Transfer-Encoding:\r\n chunked", &chunked)),
        ("a header that goes on", post("X-A: b\r\n Content-Length: 5", &inner)),
        ("a space before the colon", post("Content-Length : 0", &inner)),
        ("a space before the name", post(" Transfer-Encoding: chunked", &chunked)),
        ("a tab in a name", post("Transfer-Encoding\t: chunked", &chunked)),
        ("no colon", post("Transfer-Encoding", &inner)),
        ("a null", post("X-A: \0\r\nContent-Length: 0", &inner)),
        ("chunks of too many bytes", post("Transfer-Encoding: chunked", "fffffffffffffffff\r\nx")),
        ("chunks of no bytes", post("Transfer-Encoding: chunked", "\r\nx\r\n")),
        ("chunks of a negative size", post("Transfer-Encoding: chunked", "-1\r\nx\r\n")),
        ("chunks with a sign", post("Transfer-Encoding: chunked", &format!("+{chunked}"))),
        ("chunks with a prefix", post("Transfer-Encoding: chunked", &format!("0x{chunked}"))),
        ("a chunk that is longer than it says", post("Transfer-Encoding: chunked", "1\r\nxy\r\n0\r\n\r\n")),
        (
            "chunks in HTTP/1.0",
            post("Transfer-Encoding: chunked", &chunked).replace("HTTP/1.1\r\nHost", "HTTP/1.0\r\nHost"),
        ),
        ("two spaces", get(&format!("GET  {maps}/hidden HTTP/1.1"), "")),
        ("a tab", get(&format!("GET\t{maps}/hidden HTTP/1.1"), "")),
        ("a space in the path", get(&format!("GET {maps}/hidden x HTTP/1.1"), "")),
        ("no version", format!("GET {maps}/hidden\r\n\r\n")),
        ("another version", get(&format!("GET {maps}/hidden HTTP/2.0"), "")),
        ("a version in small letters", get(&format!("GET {maps}/hidden http/1.1"), "")),
        ("the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned()),
        ("another protocol", "EHLO example.com\r\n\r\n".to_owned()),
        ("two hosts", get(&format!("GET {maps}/hidden HTTP/1.1"), "Host: globex.localhost\r\n")),
        (
            "a tunnel",
            "CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1:22\r\nConnection: close\r\n\r\n".to_owned(),
        ),
        (
            "a tunnel to itself",
            format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\nConnection: close\r\n\r\n", acme.host),
        ),
    ];
    for (what, bytes) in rows {
        let (codes, said) = answers(&acme, &bytes);
        assert!(codes.iter().all(|code| *code >= 400), "{what}: {said}");
        assert!(codes.len() <= 1, "{what}: a second request was found: {said}");
        assert!(!said.contains("treasure"), "{what}: {said}");
    }
    // The same with bodies that would be taken: it is their ends that are not.
    let object = |name: &str| format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
    let chunks = |name: &str| format!("{:x}\r\n{}\r\n0\r\n\r\n", object(name).len(), object(name));
    for (name, headers) in [
        ("gzip-chunks", "Transfer-Encoding: gzip, chunked"),
        ("twice-chunks", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
        ("identity-chunks", "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked"),
        ("gzip-length-chunks", "Transfer-Encoding: gzip, chunked\r\nContent-Length: 5"),
    ] {
        let bytes = post(headers, &chunks(name)).replace("Connection: close\r\n", "") + &inner;
        let (codes, said) = answers(&acme, &bytes);
        assert_eq!(codes, [400], "{name}: {said}");
        acme.get(&format!("{MAPS}/{name}")).expect(404);
    }
    // Beside chunks a length does not count (RFC 9112, 6.3), and nothing comes after such a request.
    for headers in
        ["Transfer-Encoding: chunked\r\nContent-Length: 5", "Content-Length: 5\r\nTransfer-Encoding: chunked"]
    {
        let bytes = post(headers, &chunks("chunks-length")).replace("Connection: close\r\n", "") + &inner;
        let (codes, said) = answers(&acme, &bytes);
        assert_eq!(codes.len(), 1, "{headers}: {said}");
        assert!(!said.contains("treasure"), "{headers}: {said}");
    }
    acme.get(MAPS).expect(200);
}

/// What is inside a body stays there, however the request is answered; the next request on the connection is the next one.
#[test]
fn bodies_are_not_requests() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    acme.post(MAPS, &json!({"metadata": {"name": "hidden"}, "data": {"a": "treasure"}})).expect(201);
    let maps = format!("/clusters/acme{MAPS}");
    let inner = format!("GET {maps}/hidden HTTP/1.1\r\nHost: x\r\n\r\n");
    let len = inner.len();
    let last = format!("GET {maps}/last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    for first in [
        // Reads do not look at their bodies; refusals come before bodies are read.
        format!("GET {maps}/none HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\n\r\n{inner}"),
        format!(
            "GET {maps}/none HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{len:x}\r\n{inner}\r\n0\r\n\r\n"
        ),
        format!("OPTIONS {maps} HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\n\r\n{inner}"),
        format!("POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\n\r\n{inner}"),
        format!("POST /clusters/globex{MAPS} HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\n\r\n{inner}"),
        format!("POST {maps} HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\n\r\n{inner}"),
        // What no server here speaks is not switched to.
        format!(
            "GET {maps}/none HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
             HTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: {len}\r\n\r\n{inner}"
        ),
        format!(
            "GET {maps}/none HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: {len}\r\n\r\n{inner}"
        ),
    ] {
        let (codes, said) = answers(&acme, &format!("{first}{last}"));
        assert!(codes.len() <= 2 && codes.iter().all(|code| *code >= 400), "{first:?}: {said}");
        assert!(!said.contains("treasure"), "{first:?}: {said}");
        assert!(codes.len() < 2 || said.contains("\\\"last\\\" not found"), "{first:?}: {said}");
    }
}

/// HTTP/2 has no room for such tricks, and what would become one when it is translated is refused.
#[test]
fn http2_heads_are_strict() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    acme.post(MAPS, &json!({"metadata": {"name": "hidden"}, "data": {"a": "treasure"}})).expect(201);
    let path = format!("/clusters/acme{MAPS}/hidden");
    let usual = [(":method", "GET"), (":scheme", "https"), (":authority", "x"), (":path", path.as_str())];
    let with = |more: &[(&'static str, &'static str)]| [&usual[..], more].concat();
    let without = |name: &str| usual.into_iter().filter(|(own, _)| *own != name).collect::<Vec<_>>();
    let instead = |name: &'static str, value: &'static str| [without(name), vec![(name, value)]].concat();
    let (inner, behind) =
        ("/clusters/acme/api HTTP/1.1\r\nHost: x\r\n\r\nGET /", format!("{path} HTTP/1.1\r\nX: y"));
    let rows: Vec<(&str, Vec<(&str, &str)>)> = vec![
        ("transfer-encoding", with(&[("transfer-encoding", "chunked")])),
        ("connection", with(&[("connection", "close")])),
        ("upgrade", with(&[("upgrade", "h2c")])),
        ("keep-alive", with(&[("keep-alive", "5")])),
        ("proxy-connection", with(&[("proxy-connection", "x")])),
        ("te", with(&[("te", "gzip")])),
        ("a name in capitals", with(&[("X-Capital", "a")])),
        ("a name with a colon", with(&[("x:y", "a")])),
        ("a name with a line", with(&[("x\r\nhost", "a")])),
        ("an empty name", with(&[("", "a")])),
        ("a value with a line", with(&[("x-a", "b\r\ntransfer-encoding: chunked")])),
        ("a value with a null", with(&[("x-a", "b\0")])),
        ("no method", without(":method")),
        ("no path", without(":path")),
        ("no scheme", without(":scheme")),
        ("an empty path", instead(":path", "")),
        ("a path with a line", instead(":path", inner)),
        ("a path with a version", [without(":path"), vec![(":path", behind.as_str())]].concat()),
        ("a path without a slash", instead(":path", "clusters/acme/api")),
        ("two paths", with(&[(":path", "/api")])),
        ("two methods", with(&[(":method", "POST")])),
        ("two authorities", with(&[(":authority", "globex.localhost")])),
        ("a method with a line", instead(":method", "GET / HTTP/1.1\r\nX: y")),
        ("an unknown field", with(&[(":plane", "globex")])),
        ("a status", with(&[(":status", "200")])),
        ("fields behind headers", [vec![("x-a", "b")], usual.to_vec()].concat()),
        ("a body shorter than it says", with(&[("content-length", "10")])),
        ("two lengths", with(&[("content-length", "0"), ("content-length", "10")])),
        ("an authority with a user", instead(":authority", "acme@globex.localhost")),
        ("a tunnel", vec![(":method", "CONNECT"), (":authority", "127.0.0.1:22")]),
        ("a tunnel for a protocol", with(&[(":protocol", "websocket")])),
    ];
    for (what, headers) in rows {
        let mut connection = Http2::open(&acme, 1 << 20).unwrap();
        let stream = connection.begin(&headers, END_STREAM | END_HEADERS).unwrap();
        let (mut refused, mut body) = (false, Vec::new());
        // The end of the connection is a refusal too.
        while let Ok(frame) = connection.frame() {
            match frame.kind {
                GOAWAY => refused = true,
                RST_STREAM if frame.stream == stream => refused = true,
                DATA if frame.stream == stream => body.extend(frame.payload),
                // `:status` in the static table: 8 is 200, 12 to 14 are 400, 404 and 500; others are written out.
                HEADERS if frame.stream == stream => refused |= frame.payload.first() != Some(&0x88),
                _ => {}
            }
            if refused || frame.flags & END_STREAM != 0 && frame.stream == stream {
                break;
            }
        }
        let body = String::from_utf8_lossy(&body);
        assert!(!body.contains("treasure"), "{what}: {body}");
    }
    acme.get(MAPS).expect(200);
}
