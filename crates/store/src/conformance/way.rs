//! A way to a server, for tests of what becomes of whoever is cut off from it.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

/// A port of this machine that nobody has.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
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
    /// To `http://host:port`, or `host:port`.
    pub fn to(url: &str) -> Way {
        let way = Way {
            port: free_port(),
            to: url.trim_start_matches("http://").to_owned(),
            cut: Mutex::new(None),
            is_mute: Arc::default(),
        };
        way.open();
        way
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn open(&self) {
        let mut own = self.cut.lock();
        if own.is_some() {
            return;
        }
        let listener = TcpListener::bind(("127.0.0.1", self.port)).unwrap();
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
                cut.open.lock().extend([stream.try_clone().unwrap(), server.try_clone().unwrap()]);
                pass_on(stream.try_clone().unwrap(), server.try_clone().unwrap(), &is_heard);
                pass_on(server, stream, &is_mute);
            }
        });
    }

    /// Lets nobody hear what the server says, or lets them again.
    pub fn mute(&self, is_mute: bool) {
        self.is_mute.store(is_mute, Ordering::Release);
    }

    pub fn cut(&self) {
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
