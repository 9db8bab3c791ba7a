//! Reads one document from a server that somebody else names: HTTPS only, from addresses that are allowed, in bounded time and
//! memory. For keys of issuers, which are read seldom: connections are not kept, and nobody is followed elsewhere.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio_util::task::TaskTracker;

use crate::dial::{Dial, Dialer};
use crate::egress::Egress;
use crate::tls::Trust;

/// The head of an answer.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// One question.
#[derive(Clone, Copy, Debug)]
pub struct Fetch<'a> {
    /// Look-ups of names are counted by tenant.
    pub tenant: u64,
    pub url: &'a str,
    /// PEM; empty means those of the system.
    pub authorities: &'a [u8],
    pub timeout: Duration,
    pub answer_bytes_max: usize,
    /// Any address is allowed.
    pub trusted: bool,
}

/// Reads documents.
pub struct Fetcher {
    dialer: Dialer,
    tasks: TaskTracker,
}

impl Fetcher {
    pub fn new(egress: Egress) -> Fetcher {
        Fetcher { dialer: Dialer::new(egress), tasks: TaskTracker::new() }
    }

    /// The body of a successful answer, or why there is none.
    pub async fn fetch(&self, fetch: Fetch<'_>) -> Result<Vec<u8>, String> {
        let failed = |why: String| format!("Get {:?}: {why}", fetch.url);
        match tokio::time::timeout(fetch.timeout, self.try_fetch(fetch)).await {
            Err(_) => Err(failed("context deadline exceeded".into())),
            Ok(outcome) => outcome.map_err(failed),
        }
    }

    async fn try_fetch(&self, fetch: Fetch<'_>) -> Result<Vec<u8>, String> {
        let uri: Uri = fetch.url.parse().map_err(|_| "invalid URL")?;
        if uri.scheme_str() != Some("https") {
            return Err("unsupported protocol scheme".into());
        }
        let host = uri.host().ok_or("no Host in request URL")?.trim_matches(['[', ']']);
        let dial = Dial {
            tenant: fetch.tenant,
            host,
            to: (host, uri.port_u16().unwrap_or(443)),
            trust: Trust::Authorities(fetch.authorities),
            identity: None,
            trusted: fetch.trusted,
        };
        let stream = self.dialer.connect(dial).await?;
        let mut builder = http1::Builder::new();
        let handshake = builder.max_buf_size(HEAD_BYTES_MAX).handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
        self.tasks.spawn(async move {
            // Whoever reads the answer learns of its end.
            connection.await.ok();
        });
        let request = Request::get(uri.path_and_query().map_or("/", |path| path.as_str()))
            .header(header::HOST, uri.authority().map_or("", |authority| authority.as_str()))
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, concat!("polder/", env!("CARGO_PKG_VERSION")))
            .body(Empty::<Bytes>::new())
            .map_err(|_| "invalid URL")?;
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        if !response.status().is_success() {
            return Err(response.status().to_string());
        }
        let mut incoming = response.into_body();
        let mut body = Vec::new();
        while let Some(frame) = incoming.frame().await {
            let frame = frame.map_err(|_| "unexpected EOF")?;
            let Ok(piece) = frame.into_data() else { continue };
            if body.len() + piece.len() > fetch.answer_bytes_max {
                return Err(format!("the answer is longer than {} bytes", fetch.answer_bytes_max));
            }
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }
}
