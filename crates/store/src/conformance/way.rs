//! A way to a server, for tests of what becomes of whoever is cut off from it.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A port of this machine that nobody has.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A way to a server that can be cut: then nobody listens, and what is open ends.
pub struct Way {
    port: u16,
    to: String,
    /// What is cut, and who listens.
    cut: Mutex<Option<(Arc<Cut>, thread::JoinHandle<()>)>>,
    /// What the server says goes nowhere.
    is_mute: Arc<AtomicBool>,
    /// Milliseconds that everything takes, in both directions.
    delay: Arc<AtomicU32>,
}

#[derive(Default)]
struct Cut {
    is_cut: AtomicBool,
    open: Mutex<Vec<Weak<TcpStream>>>,
}

impl Way {
    /// To `http://host:port`, or `host:port`.
    pub fn to(url: &str) -> Way {
        let way = Way {
            port: free_port(),
            to: url.trim_start_matches("http://").to_owned(),
            cut: Mutex::new(None),
            is_mute: Arc::default(),
            delay: Arc::default(),
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
        // While it was cut somebody else may have had the port for a moment.
        let patience = Instant::now() + Duration::from_secs(60);
        let listener = loop {
            match TcpListener::bind(("127.0.0.1", self.port)) {
                Ok(listener) => break listener,
                Err(error) => assert!(Instant::now() < patience, "{error}"),
            }
            thread::sleep(Duration::from_millis(10));
        };
        let cut = Arc::new(Cut::default());
        let cutting = cut.clone();
        let (to, is_mute, is_heard) = (self.to.clone(), self.is_mute.clone(), Arc::default());
        let delay = self.delay.clone();
        let listening = thread::spawn(move || {
            for stream in listener.incoming() {
                if cut.is_cut.load(Ordering::Acquire) {
                    return;
                }
                let (Ok(stream), Ok(server)) = (stream, TcpStream::connect(&to)) else { continue };
                stream.set_nodelay(true).ok();
                server.set_nodelay(true).ok();
                let (stream, server) = (Arc::new(stream), Arc::new(server));
                {
                    let mut open = cut.open.lock();
                    open.retain(|stream| stream.strong_count() > 0);
                    open.extend([Arc::downgrade(&stream), Arc::downgrade(&server)]);
                }
                pass_on(stream.clone(), server.clone(), &is_heard, &delay);
                pass_on(server, stream, &is_mute, &delay);
            }
        });
        *own = Some((cutting, listening));
    }

    /// Lets nobody hear what the server says, or lets them again.
    pub fn mute(&self, is_mute: bool) {
        self.is_mute.store(is_mute, Ordering::Release);
    }

    /// Makes everything take longer.
    pub fn delay(&self, delay: Duration) {
        self.delay.store(u32::try_from(delay.as_millis()).unwrap(), Ordering::Release);
    }

    pub fn cut(&self) {
        let Some((cut, listening)) = self.cut.lock().take() else { return };
        cut.is_cut.store(true, Ordering::Release);
        // Wakes the listener, which then goes.
        TcpStream::connect(("127.0.0.1", self.port)).ok();
        listening.join().unwrap();
        for stream in cut.open.lock().drain(..).filter_map(|stream| stream.upgrade()) {
            stream.shutdown(Shutdown::Both).ok();
        }
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.cut();
    }
}

fn pass_on(from: Arc<TcpStream>, to: Arc<TcpStream>, is_mute: &Arc<AtomicBool>, delay: &Arc<AtomicU32>) {
    let (is_mute, delay) = (is_mute.clone(), delay.clone());
    thread::spawn(move || {
        let (mut from, mut to) = (&*from, &*to);
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
