//! gRPC to servers that the operator names: calls with one message there and one back, and streams of both.
//!
//! Messages are bytes here; [`protobuf`] has what it takes to write and read them by hand. There is no connection pool and no
//! second try: a [`Channel`] is one connection, and whoever has several servers to choose from chooses.
//!
//! Invariants: everything but waiting for the next message of a stream ends in time, everything a server says is bounded, and an
//! error says whether the server can have heard of the call ([`GrpcError::is_unsent`]).

pub mod protobuf;

mod channel;
mod endpoint;
mod frames;

#[cfg(test)]
mod tests;

pub use channel::{Call, Channel, Messages, Outgoing};
pub use endpoint::{Endpoint, EndpointError, Identity};

type Source = Box<dyn std::error::Error + Send + Sync>;

/// So much of what a server says goes into a message for people.
const MESSAGE_LEN_MAX: usize = 512;

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum GrpcError {
    /// There is no connection.
    #[error("cannot connect")]
    Connect(#[source] std::io::Error),
    /// No connection could be made of what was connected to.
    #[error("does not speak gRPC")]
    Handshake(#[source] Source),
    /// The connection ended before the call was sent.
    #[error("the connection has ended")]
    Unsent(#[source] Source),
    #[error("does not answer in time")]
    Timeout,
    /// It ended in the middle, or what came back is no answer of gRPC.
    #[error("does not speak gRPC")]
    Protocol(#[source] Source),
    /// What it says is for people: it goes no further than messages and logs.
    #[error("refuses, with code {code}: {message}")]
    Status { code: u32, message: String },
}

impl GrpcError {
    /// Whether the server cannot have heard of the call.
    pub fn is_unsent(&self) -> bool {
        matches!(self, GrpcError::Connect(_) | GrpcError::Handshake(_) | GrpcError::Unsent(_))
    }

    fn protocol(source: impl Into<Source>) -> GrpcError {
        GrpcError::Protocol(source.into())
    }
}
