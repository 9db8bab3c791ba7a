//! etcd for tests, and an empty history in it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use polder_store_etcd::JournalOptions;
use polder_store_etcd::client::ClientOptions;

// By its path: the crate it is in has whole servers, which would take long to build here.
#[path = "../../../test-support/src/etcd.rs"]
#[expect(unreachable_pub, reason = "it is of a crate where it is reachable")]
mod etcd;

pub(crate) use etcd::{Way, free_port, shared, start, start_with};

/// Asks etcd through its gateway for what the client does not do.
pub(crate) fn post(url: &str, path: &str, body: &str) -> String {
    post_as(url, path, body, "")
}

pub(crate) fn post_as(url: &str, path: &str, body: &str, token: &str) -> String {
    let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    let len = body.len();
    let token = if token.is_empty() { String::new() } else { format!("Authorization: {token}\r\n") };
    write!(stream, "POST {path} HTTP/1.0\r\n{token}Content-Length: {len}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200") || answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    answer
}

/// An empty history.
pub(crate) fn history(url: &str) -> JournalOptions {
    static PREFIXES: AtomicU32 = AtomicU32::new(0);
    let prefix = format!("/test-{}", PREFIXES.fetch_add(1, Ordering::Relaxed));
    let client = ClientOptions { endpoints: vec![url.to_owned()], ..ClientOptions::default() };
    JournalOptions {
        client,
        prefix,
        history: None,
        lease: Duration::from_secs(5),
        ..JournalOptions::default()
    }
}
