//! etcd for tests, and a way to it that can be cut.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

pub(crate) use polder_store::conformance::way::{Way, free_port};
use polder_store_etcd::JournalOptions;
use polder_store_etcd::client::ClientOptions;

/// Ends etcd and removes what it wrote when the tests end, however they do: then nobody holds the other end of its input.
const KEEPER: &str = r#"directory=$1; shift; "$@" >"$directory/log" 2>&1 & pid=$!; cat >/dev/null; kill -9 $pid; rm -rf "$directory""#;

/// A member of its own cluster, and its address. It ends with the child's input.
pub(crate) fn start(arguments: &[&str]) -> Option<(Child, String)> {
    start_with("http", arguments)
}

/// Where the program is.
pub(crate) fn program() -> Option<OsString> {
    let program = std::env::var_os(crate::PROGRAM).filter(|path| fs::exists(path).unwrap_or(false));
    if program.is_none() {
        // Not `eprintln!`: the line must be seen although the test passes.
        writeln!(std::io::stderr(), "left out: no etcd ({} is not set)", crate::PROGRAM).ok();
    }
    program
}

/// The same, with TLS or without.
pub(crate) fn start_with(scheme: &str, arguments: &[&str]) -> Option<(Child, String)> {
    let program = program()?;
    let health = free_port();
    let client = format!("{scheme}://127.0.0.1:{}", free_port());
    let peer = format!("http://127.0.0.1:{}", free_port());
    let directory = tempfile::Builder::new().prefix("etcd").tempdir().unwrap().keep();
    let child = Command::new("sh")
        .args(["-c", KEEPER, "sh"])
        .arg(&directory)
        .arg(program)
        .arg("--data-dir")
        .arg(directory.join("data"))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}")])
        .args(["--listen-metrics-urls", &format!("http://127.0.0.1:{health}")])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let patience = Instant::now() + Duration::from_secs(60);
    while !is_healthy(health) {
        assert!(Instant::now() < patience, "etcd does not start: {}", directory.display());
        thread::sleep(Duration::from_millis(50));
    }
    Some((child, client))
}

fn is_healthy(port: u16) -> bool {
    let asked = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    asked().is_ok_and(|answer| answer.contains("true"))
}

/// Asks etcd through its gateway for what the client does not do.
pub(crate) fn post(url: &str, path: &str, body: &str) -> String {
    post_as(url, path, body, "")
}

/// The same, of somebody who may not be there.
pub(crate) fn try_post(url: &str, path: &str, body: &str, token: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap())?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let len = body.len();
    let token = if token.is_empty() { String::new() } else { format!("Authorization: {token}\r\n") };
    write!(stream, "POST {path} HTTP/1.0\r\n{token}Content-Length: {len}\r\n\r\n{body}")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

pub(crate) fn post_as(url: &str, path: &str, body: &str, token: &str) -> String {
    let answer = try_post(url, path, body, token).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200") || answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    answer
}

/// The one that all tests share.
pub(crate) fn shared() -> Option<&'static str> {
    static SHARED: OnceLock<Option<(Child, String)>> = OnceLock::new();
    SHARED.get_or_init(|| start(&[])).as_ref().map(|(_, url)| url.as_str())
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
