//! etcd for tests, and a way to it that can be cut.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use std::{fs, thread};

use parking_lot::Mutex;
use polder_store_etcd::JournalOptions;
use polder_store_etcd::client::ClientOptions;

/// Ends etcd and removes what it wrote when the tests end, however they do: then nobody holds the other end of its input.
const KEEPER: &str = r#"directory=$1; shift; "$@" >"$directory/log" 2>&1 & pid=$!; cat >/dev/null; kill -9 $pid; rm -rf "$directory""#;

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

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

/// A way to a server that can be cut: then nobody listens, and what is open ends.
pub(crate) struct Way {
    port: u16,
    to: String,
    cut: Mutex<Option<Arc<Cut>>>,
    /// What the server says goes nowhere.
    is_mute: Arc<AtomicBool>,
    /// Milliseconds that everything takes, in both directions.
    delay: Arc<AtomicU32>,
}

#[derive(Default)]
struct Cut {
    is_cut: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Way {
    pub(crate) fn to(url: &str) -> Way {
        let way = Way {
            port: free_port(),
            to: url.strip_prefix("http://").unwrap().to_owned(),
            cut: Mutex::new(None),
            is_mute: Arc::default(),
            delay: Arc::default(),
        };
        way.open();
        way
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn open(&self) {
        let mut own = self.cut.lock();
        if own.is_some() {
            return;
        }
        let listener = TcpListener::bind(("127.0.0.1", self.port)).unwrap();
        let cut = Arc::new(Cut::default());
        *own = Some(cut.clone());
        let (to, is_mute, is_heard) = (self.to.clone(), self.is_mute.clone(), Arc::default());
        let delay = self.delay.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                if cut.is_cut.load(Ordering::Acquire) {
                    return;
                }
                let (Ok(stream), Ok(server)) = (stream, TcpStream::connect(&to)) else { continue };
                stream.set_nodelay(true).ok();
                server.set_nodelay(true).ok();
                cut.open.lock().extend([stream.try_clone().unwrap(), server.try_clone().unwrap()]);
                pass_on(stream.try_clone().unwrap(), server.try_clone().unwrap(), &is_heard, &delay);
                pass_on(server, stream, &is_mute, &delay);
            }
        });
    }

    /// Lets nobody hear what the server says, or lets them again.
    pub(crate) fn mute(&self, is_mute: bool) {
        self.is_mute.store(is_mute, Ordering::Release);
    }

    /// Makes everything take longer.
    pub(crate) fn delay(&self, delay: Duration) {
        self.delay.store(u32::try_from(delay.as_millis()).unwrap(), Ordering::Release);
    }

    pub(crate) fn cut(&self) {
        let Some(cut) = self.cut.lock().take() else { return };
        cut.is_cut.store(true, Ordering::Release);
        // Wakes the listener, which then goes.
        TcpStream::connect(("127.0.0.1", self.port)).ok();
        while TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
            thread::sleep(Duration::from_millis(1));
        }
        for stream in cut.open.lock().drain(..) {
            stream.shutdown(Shutdown::Both).ok();
        }
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.cut();
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, is_mute: &Arc<AtomicBool>, delay: &Arc<AtomicU32>) {
    let (is_mute, delay) = (is_mute.clone(), delay.clone());
    thread::spawn(move || {
        let mut buffer = [0; 16 << 10];
        while let Ok(len @ 1..) = from.read(&mut buffer) {
            // A stream that has lost something is of no use any more: it says nothing until it ends.
            if is_mute.load(Ordering::Acquire) {
                while matches!(from.read(&mut buffer), Ok(1..)) {}
                break;
            }
            thread::sleep(Duration::from_millis(delay.load(Ordering::Acquire).into()));
            if to.write_all(&buffer[..len]).is_err() {
                break;
            }
        }
        to.shutdown(Shutdown::Both).ok();
        from.shutdown(Shutdown::Both).ok();
    });
}
