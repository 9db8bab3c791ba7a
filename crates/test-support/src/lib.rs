//! Whole servers and plain clients for tests. Only ever a dev-dependency.
//!
//! [`TestServer`] is a server in this process, on a memory store and a free port. [`Client`] talks HTTP/1.1 to any
//! Polder server and sends exactly the bytes it is told to: paths are not tidied up and names are not checked, for
//! the tests are about what the server does with untidy ones.

pub mod http2;
pub mod webhook;

mod client;
mod http;
mod server;

pub use client::{Client, WatchStream};
pub use http::{Connection, Reply};
pub use polder_server::Bounds;
pub use serde_json::{Value, json};
pub use server::{TestServer, plane};
