//! Whole servers and plain clients for tests. Only ever a dev-dependency.
//!
//! [`TestServer`] is a server in this process, on a memory store and a free port. [`Client`] talks HTTP/1.1 to any
//! Polder server and sends exactly the bytes it is told to: paths are not tidied up and names are not checked, for
//! the tests are about what the server does with untidy ones.

pub mod etcd;
pub mod extension;
pub mod http2;
pub mod issuer;
pub mod webhook;

mod client;
mod http;
mod server;

pub use client::{Client, WatchStream};
pub use http::{Connection, Reply};
pub use polder_server::Bounds;
pub use serde_json::{Value, json};
pub use server::{TestServer, plane};

/// Waits for something that happens by itself. Panics if it does not within half a minute.
#[track_caller]
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..1_500 {
        if is_so() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("this did not come true: {what}");
}
