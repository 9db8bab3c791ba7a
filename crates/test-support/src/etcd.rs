//! etcd for tests, and a way to it that can be cut.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{fs, thread};

pub use polder_store::conformance::way::{Way, free_port};

/// Ends etcd and removes what it wrote when the tests end, however they do: then nobody holds the other end of its input.
const KEEPER: &str = r#"directory=$1; shift; "$@" >"$directory/log" 2>&1 & pid=$!; cat >/dev/null; kill -9 $pid; rm -rf "$directory""#;

/// A member of its own cluster, and its address. It ends with the child's input. Nothing where there is no etcd.
pub fn start(arguments: &[&str]) -> Option<(Child, String)> {
    start_with("http", arguments)
}

/// The same, with TLS or without.
pub fn start_with(scheme: &str, arguments: &[&str]) -> Option<(Child, String)> {
    let program = std::env::var_os("POLDER_TEST_ETCD").filter(|path| fs::exists(path).unwrap_or(false));
    let Some(program) = program else {
        // Not `eprintln!`: the line must be seen although the test passes.
        writeln!(std::io::stderr(), "left out: no etcd (POLDER_TEST_ETCD is not set)").ok();
        return None;
    };
    let health = free_port();
    let client = format!("{scheme}://127.0.0.1:{}", free_port());
    let peer = format!("http://127.0.0.1:{}", free_port());
    let directory =
        tempfile::Builder::new().prefix("etcd").tempdir().expect("a directory can be made").keep();
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
        .expect("there is a shell");
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

/// The one that all tests share.
pub fn shared() -> Option<&'static str> {
    static SHARED: OnceLock<Option<(Child, String)>> = OnceLock::new();
    SHARED.get_or_init(|| start(&[])).as_ref().map(|(_, url)| url.as_str())
}
