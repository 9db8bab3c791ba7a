//! Connections: dial, agree on HTTP/2 or HTTP/1.1, reuse.
//!
//! An HTTP/2 connection is shared by any number of requests; an HTTP/1.1 connection belongs to one request and goes
//! back when its answer has been read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::rt::{Read, Write};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::task::TaskTracker;

use crate::body::RequestBody;
use crate::client::ClientOptions;
use crate::error::ClientError;
use crate::kubeconfig::Access;
use crate::tls;

/// Idle HTTP/1.1 connections kept.
const IDLE_LEN_MAX: usize = 64;
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;

/// Where a server is, and the open connections to it.
pub(crate) struct Connections {
    /// As the kubeconfig has it, for messages.
    pub(crate) url: String,
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    options: ClientOptions,
    /// One shared connection each; requests take turns.
    shared: Box<[tokio::sync::Mutex<Option<http2::SendRequest<RequestBody>>>]>,
    turn: AtomicUsize,
    idle: Mutex<Vec<http1::SendRequest<RequestBody>>>,
    /// The tasks that drive connections; each ends with its connection.
    tasks: TaskTracker,
}

/// A way to send one request.
pub(crate) enum Sender {
    Http2(http2::SendRequest<RequestBody>),
    Http1(http1::SendRequest<RequestBody>),
}

impl Connections {
    pub(crate) fn new(access: &Access, options: ClientOptions) -> Result<Connections, ClientError> {
        let handshake = |source: Box<dyn std::error::Error + Send + Sync>| ClientError::Handshake {
            url: access.server.clone(),
            source,
        };
        let bad = || ClientError::BadPath(access.server.clone());
        let uri: http::Uri = access.server.parse().map_err(|_| bad())?;
        let secure = uri.scheme_str() == Some("https");
        let host = uri.host().ok_or_else(bad)?.trim_matches(['[', ']']).to_string();
        let tls = if secure {
            let config: ClientConfig = tls::config(access).map_err(|error| handshake(Box::new(error)))?;
            let name = access.tls_server_name.clone().unwrap_or_else(|| host.clone());
            let name = ServerName::try_from(name).map_err(|error| handshake(Box::new(error)))?;
            Some((TlsConnector::from(Arc::new(config)), name))
        } else {
            None
        };
        Ok(Connections {
            url: access.server.clone(),
            port: uri.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            host,
            tls,
            shared: (0..options.connections.max(1)).map(|_| tokio::sync::Mutex::new(None)).collect(),
            options,
            turn: AtomicUsize::new(0),
            idle: Mutex::default(),
            tasks: TaskTracker::new(),
        })
    }

    /// A connection that is open, as far as this side knows.
    pub(crate) async fn sender(&self) -> Result<Sender, ClientError> {
        while let Some(idle) = self.idle.lock().pop() {
            if idle.is_ready() {
                return Ok(Sender::Http1(idle));
            }
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.shared.len();
        // Held while dialing: a hundred first requests make one connection, not a hundred.
        let mut shared = self.shared[turn].lock().await;
        if let Some(open) = shared.as_ref().filter(|open| !open.is_closed()) {
            return Ok(Sender::Http2(open.clone()));
        }
        let patience = self.options.dial_patience;
        let dialed = tokio::time::timeout(patience, self.dial()).await;
        let sender = dialed.map_err(|_| ClientError::Unreachable {
            url: self.url.clone(),
            source: format!("no connection within {} s", patience.as_secs()).into(),
        })??;
        if let Sender::Http2(open) = &sender {
            *shared = Some(open.clone());
        }
        Ok(sender)
    }

    /// Takes an HTTP/1.1 connection back.
    pub(crate) fn give_back(&self, sender: http1::SendRequest<RequestBody>) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_LEN_MAX && !sender.is_closed() {
            idle.push(sender);
        }
    }

    async fn dial(&self) -> Result<Sender, ClientError> {
        let unreachable =
            |source| ClientError::Unreachable { url: self.url.clone(), source: Box::new(source) };
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(unreachable)?;
        stream.set_nodelay(true).ok();
        let Some((connector, name)) = &self.tls else {
            return self.speak(TokioIo::new(stream), false).await;
        };
        let stream = connector
            .connect(name.clone(), stream)
            .await
            .map_err(|source| ClientError::Handshake { url: self.url.clone(), source: Box::new(source) })?;
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        self.speak(TokioIo::new(stream), http2).await
    }

    async fn speak<I>(&self, io: I, http2: bool) -> Result<Sender, ClientError>
    where
        I: Read + Write + Unpin + Send + 'static,
    {
        let handshake =
            |source: hyper::Error| ClientError::Handshake { url: self.url.clone(), source: Box::new(source) };
        if http2 {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder
                .timer(TokioTimer::new())
                .initial_stream_window_size(STREAM_WINDOW_BYTES)
                .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
                .keep_alive_interval(self.options.dial_patience)
                .keep_alive_timeout(self.options.dial_patience);
            let (sender, connection) = builder.handshake(io).await.map_err(handshake)?;
            // What breaks a connection is reported by the requests on it.
            self.tasks.spawn(async move { connection.await.ok() });
            Ok(Sender::Http2(sender))
        } else {
            let (sender, connection) = http1::handshake(io).await.map_err(handshake)?;
            self.tasks.spawn(async move { connection.await.ok() });
            Ok(Sender::Http1(sender))
        }
    }
}

/// A request that did not get through.
pub(crate) struct Unsent {
    pub(crate) error: hyper::Error,
    /// Still whole, so it can be sent on another connection.
    pub(crate) request: Option<Box<Request<RequestBody>>>,
}

impl Sender {
    /// Sends a request and waits for the head of its answer.
    pub(crate) async fn send(&mut self, request: Request<RequestBody>) -> Result<Response<Incoming>, Unsent> {
        let unsent = |mut error: hyper::client::conn::TrySendError<Request<RequestBody>>| {
            let request = error.take_message().map(Box::new);
            Unsent { error: error.into_error(), request }
        };
        match self {
            Sender::Http2(sender) => sender.try_send_request(request).await.map_err(unsent),
            Sender::Http1(sender) => sender.try_send_request(request).await.map_err(unsent),
        }
    }
}
