//! etcd for tests, and a way to it that can be cut. Uses nothing else of this crate: the tests of the journal have it too.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// Ends etcd and removes what it wrote when the tests end, however they do: then nobody holds the other end of its input.
const KEEPER: &str = r#"directory=$1; shift; "$@" >"$directory/log" 2>&1 & pid=$!; cat >/dev/null; kill -9 $pid; rm -rf "$directory""#;

pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it listens").port()
}

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

/// A way to a server that can be cut: then nobody listens, and what is open ends.
pub struct Way {
    port: u16,
    to: String,
    cut: Mutex<Option<Arc<Cut>>>,
    /// What the server says goes nowhere.
    is_mute: Arc<AtomicBool>,
}

#[derive(Default)]
struct Cut {
    is_cut: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Way {
    pub fn to(url: &str) -> Way {
        let to = url.strip_prefix("http://").unwrap_or(url).to_owned();
        let way = Way { port: free_port(), to, cut: Mutex::new(None), is_mute: Arc::default() };
        way.open();
        way
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn open(&self) {
        let mut own = self.cut.lock().unwrap_or_else(PoisonError::into_inner);
        if own.is_some() {
            return;
        }
        let listener = TcpListener::bind(("127.0.0.1", self.port)).expect("the port is still free");
        let cut = Arc::new(Cut::default());
        *own = Some(cut.clone());
        let (to, is_mute, is_heard) = (self.to.clone(), self.is_mute.clone(), Arc::default());
        thread::spawn(move || {
            for stream in listener.incoming() {
                if cut.is_cut.load(Ordering::Acquire) {
                    return;
                }
                let (Ok(stream), Ok(server)) = (stream, TcpStream::connect(&to)) else { continue };
                stream.set_nodelay(true).ok();
                server.set_nodelay(true).ok();
                let clones = (stream.try_clone(), server.try_clone(), stream.try_clone(), server.try_clone());
                let (Ok(one), Ok(other), Ok(from), Ok(to)) = clones else { continue };
                cut.open.lock().unwrap_or_else(PoisonError::into_inner).extend([one, other]);
                pass_on(from, to, &is_heard);
                pass_on(server, stream, &is_mute);
            }
        });
    }

    /// Lets nobody hear what the server says, or lets them again.
    pub fn mute(&self, is_mute: bool) {
        self.is_mute.store(is_mute, Ordering::Release);
    }

    pub fn cut(&self) {
        let Some(cut) = self.cut.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        cut.is_cut.store(true, Ordering::Release);
        // Wakes the listener, which then goes.
        TcpStream::connect(("127.0.0.1", self.port)).ok();
        while TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
            thread::sleep(Duration::from_millis(1));
        }
        for stream in cut.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            stream.shutdown(Shutdown::Both).ok();
        }
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.cut();
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, is_mute: &Arc<AtomicBool>) {
    let is_mute = is_mute.clone();
    thread::spawn(move || {
        let mut buffer = [0; 16 << 10];
        while let Ok(len @ 1..) = from.read(&mut buffer) {
            // A stream that has lost something is of no use any more: it says nothing until it ends.
            if is_mute.load(Ordering::Acquire) {
                while matches!(from.read(&mut buffer), Ok(1..)) {}
                break;
            }
            if to.write_all(&buffer[..len]).is_err() {
                break;
            }
        }
        to.shutdown(Shutdown::Both).ok();
        from.shutdown(Shutdown::Both).ok();
    });
}
