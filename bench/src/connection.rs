//! One HTTP/2 connection over TLS, shared by several clients.

use std::net::ToSocketAddrs as _;

use anyhow::Context as _;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::kubeconfig::Kubeconfig;

/// Cloning shares the connection.
#[derive(Clone)]
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    base: String,
    authorization: Option<HeaderValue>,
}

const JSON: &str = "application/json";

/// What to send; built before the clock runs.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) method: Method,
    /// Path and query, from the root of the server.
    pub(crate) path: String,
    pub(crate) content_type: &'static str,
    pub(crate) accept: &'static str,
    pub(crate) body: Bytes,
    /// Whom to act as.
    pub(crate) user: Option<String>,
}

impl Call {
    pub(crate) fn get(path: impl Into<String>) -> Call {
        Call::new(Method::GET, path, Bytes::new())
    }

    pub(crate) fn post(path: impl Into<String>, body: impl Into<Bytes>) -> Call {
        Call::new(Method::POST, path, body.into())
    }

    pub(crate) fn put(path: impl Into<String>, body: impl Into<Bytes>) -> Call {
        Call::new(Method::PUT, path, body.into())
    }

    pub(crate) fn delete(path: impl Into<String>) -> Call {
        Call::new(Method::DELETE, path, Bytes::new())
    }

    pub(crate) fn merge_patch(path: impl Into<String>, body: impl Into<Bytes>) -> Call {
        let call = Call::new(Method::PATCH, path, body.into());
        Call { content_type: "application/merge-patch+json", ..call }
    }

    /// A server-side apply.
    pub(crate) fn apply(path: impl Into<String>, body: impl Into<Bytes>) -> Call {
        let call = Call::new(Method::PATCH, format!("{}?fieldManager=bench", path.into()), body.into());
        Call { content_type: "application/apply-patch+yaml", ..call }
    }

    /// The same as somebody else.
    pub(crate) fn by_user(self, user: String) -> Call {
        Call { user: Some(user), ..self }
    }

    fn new(method: Method, path: impl Into<String>, body: Bytes) -> Call {
        Call { method, path: path.into(), content_type: JSON, accept: JSON, body, user: None }
    }
}

impl Connection {
    pub(crate) async fn open(kubeconfig: &Kubeconfig) -> anyhow::Result<Connection> {
        let uri: Uri = kubeconfig.server.parse().context("the server's URL is malformed")?;
        let host = uri.host().context("the server's URL has no host")?.trim_matches(['[', ']']).to_string();
        let address = (host.as_str(), uri.port_u16().unwrap_or(443)).to_socket_addrs()?.next();
        let stream = TcpStream::connect(address.context("the server's host has no address")?).await?;
        stream.set_nodelay(true)?;
        let connector = TlsConnector::from(kubeconfig.tls.clone());
        let stream = connector.connect(ServerName::try_from(host)?, stream).await?;
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(64 << 20)
            .handshake(TokioIo::new(stream))
            .await?;
        // It ends with the last sender; nothing waits for it.
        #[expect(clippy::disallowed_methods, reason = "the connection owns its task")]
        tokio::spawn(connection);
        let authorization =
            kubeconfig.token.as_ref().map(|token| format!("Bearer {token}").parse()).transpose()?;
        Ok(Connection { sender, base: kubeconfig.server.clone(), authorization })
    }

    /// Sends a call and hands back the answer's head with a body still to be read.
    pub(crate) async fn start(&mut self, call: Call) -> anyhow::Result<Response<Incoming>> {
        let mut request = Request::builder().method(call.method).uri(format!("{}{}", self.base, call.path));
        request = request.header(http::header::ACCEPT, call.accept);
        if !call.body.is_empty() {
            request = request.header(http::header::CONTENT_TYPE, call.content_type);
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(http::header::AUTHORIZATION, authorization);
        }
        if let Some(user) = &call.user {
            request = request.header("Impersonate-User", user);
        }
        self.sender.ready().await?;
        Ok(self.sender.send_request(request.body(Full::new(call.body))?).await?)
    }

    /// Sends a call and reads the answer to its end without keeping it. Returns the number of bytes; an answer
    /// that is no success is an error.
    pub(crate) async fn send(&mut self, call: Call) -> anyhow::Result<usize> {
        let what = format!("{} {}", call.method, call.path);
        let answer = self.start(call).await?;
        let status = answer.status();
        let mut body = answer.into_body();
        if !status.is_success() {
            let text = body.collect().await?.to_bytes();
            anyhow::bail!("{what}: {status}: {}", String::from_utf8_lossy(&text));
        }
        let mut len = 0;
        while let Some(frame) = body.frame().await {
            len += frame?.data_ref().map_or(0, Bytes::len);
        }
        Ok(len)
    }

    /// Whether what a call asks for is there.
    pub(crate) async fn finds(&mut self, call: Call) -> anyhow::Result<bool> {
        let what = format!("{} {}", call.method, call.path);
        let answer = self.start(call).await?;
        let status = answer.status();
        let text = answer.into_body().collect().await?.to_bytes();
        let is_known = status.is_success() || status == StatusCode::NOT_FOUND;
        anyhow::ensure!(is_known, "{what}: {status}: {}", String::from_utf8_lossy(&text));
        Ok(status.is_success())
    }

    /// Sends a call and parses the answer.
    pub(crate) async fn json(&mut self, call: Call) -> anyhow::Result<serde_json::Value> {
        let what = format!("{} {}", call.method, call.path);
        let answer = self.start(call).await?;
        let status = answer.status();
        let text = answer.into_body().collect().await?.to_bytes();
        anyhow::ensure!(status.is_success(), "{what}: {status}: {}", String::from_utf8_lossy(&text));
        Ok(serde_json::from_slice(&text)?)
    }
}
