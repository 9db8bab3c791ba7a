//! Extension servers: requests for group versions that an `APIService` of the plane gives to another server go there, as
//! HTTPS, with this server's word for who is asking.
//!
//! `forward` hands on what clients ask, `documents` asks for what discovery tells, `headers` and `resources` say what may
//! pass in either direction. Who connects, and to where, is the business of whoever starts the server ([`ExtensionClient`]).
//!
//! Invariant: what a plane's extension servers do, or do not do, is felt in that plane alone: calls are counted by plane,
//! every answer that is kept here is bounded, and no credential of a client leaves this server.

mod documents;
mod forward;
mod headers;
mod merge;
mod resources;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use http::header::{self, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use parking_lot::Mutex;
use polder_auth::{MASTERS, UserInfo};
use polder_client::extension::ExtensionProbe;
use polder_model::{PlaneId, SmolStr, Value};
use polder_registry::Registry;
use polder_registry::extensions::{Extension, Trust};
use polder_store::Plane;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::front_proxy::{FrontProxy, FrontProxyCertificate};

pub(crate) use documents::RemoteVersion;
pub(crate) use merge::{MergedGroup, MergedVersion, merge};

/// Ordinary calls under way, of one plane and of all; the next one waits, and its time runs.
const PLANE_CALLS_MAX: usize = 64;
const CALLS_MAX: usize = 8192;
/// Watches and other streams, of one plane and of all; the next one is refused.
const PLANE_STREAMS_MAX: usize = 128;
const STREAMS_MAX: usize = 16_384;
/// Planes without a call are forgotten when there are more than this.
const IDLE_LEN_MAX: usize = 256;
/// What this server asks on its own account is answered in so much time, or not at all.
const ASK_PATIENCE: Duration = Duration::from_secs(5);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A body in pieces, in either direction.
pub type ExtensionBody = UnsyncBoxBody<Bytes, BoxError>;

/// Sends requests to extension servers.
pub trait ExtensionClient: Send + Sync {
    /// The answer with whatever code, or why there is none. Dropping either ends the call.
    fn send<'a>(&'a self, call: ExtensionCall<'a>) -> Sending<'a>;
}

pub type Sending<'a> = BoxFuture<'a, Result<Response<ExtensionBody>, String>>;

/// One request.
pub struct ExtensionCall<'a> {
    pub plane: PlaneId,
    /// The name the server's certificate has.
    pub host: &'a str,
    /// Where it is.
    pub dial: (&'a str, u16),
    pub trust: &'a Trust,
    /// Who this side says it is.
    pub certificate: &'a FrontProxyCertificate,
    /// Its URI is path and query.
    pub request: Request<ExtensionBody>,
}

/// The way to extension servers.
pub struct Aggregator {
    registry: Arc<Registry>,
    client: Arc<dyn ExtensionClient>,
    front_proxy: Arc<FrontProxy>,
    planes: Mutex<HashMap<PlaneId, Arc<Gate>>>,
    calls: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    documents: documents::Documents,
}

/// What one plane has under way.
struct Gate {
    calls: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    /// Whoever asks for documents while they are fetched waits for them.
    fetching: tokio::sync::Mutex<()>,
}

/// A place among the calls of a plane and of all.
pub(crate) struct Under {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Aggregator {
    pub fn new(
        registry: Arc<Registry>,
        client: Arc<dyn ExtensionClient>,
        front_proxy: Arc<FrontProxy>,
    ) -> Aggregator {
        Aggregator {
            registry,
            client,
            front_proxy,
            planes: Mutex::default(),
            calls: Arc::new(Semaphore::new(CALLS_MAX)),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            documents: documents::Documents::default(),
        }
    }

    fn gate(&self, plane: PlaneId) -> Arc<Gate> {
        let mut planes = self.planes.lock();
        if planes.len() > IDLE_LEN_MAX {
            planes.retain(|_, gate| {
                Arc::strong_count(gate) > 1
                    || gate.calls.available_permits() < PLANE_CALLS_MAX
                    || gate.streams.available_permits() < PLANE_STREAMS_MAX
            });
        }
        let new = || {
            Arc::new(Gate {
                calls: Arc::new(Semaphore::new(PLANE_CALLS_MAX)),
                streams: Arc::new(Semaphore::new(PLANE_STREAMS_MAX)),
                fetching: tokio::sync::Mutex::default(),
            })
        };
        planes.entry(plane).or_insert_with(new).clone()
    }

    /// Waits for a place for an ordinary call.
    async fn enter(&self, plane: PlaneId) -> Option<Under> {
        let own = self.gate(plane).calls.clone().acquire_owned().await.ok()?;
        let all = self.calls.clone().acquire_owned().await.ok()?;
        Some(Under { _own: own, _all: all })
    }

    /// A place for a stream, if there is one.
    fn enter_stream(&self, plane: PlaneId) -> Option<Under> {
        let own = self.gate(plane).streams.clone().try_acquire_owned().ok()?;
        let all = self.streams.clone().try_acquire_owned().ok()?;
        Some(Under { _own: own, _all: all })
    }

    /// Sends a request to a ready endpoint of an extension service.
    async fn send(
        &self,
        plane: PlaneId,
        extension: &Extension,
        (host, port): (&str, u16),
        trust: &Trust,
        request: Request<ExtensionBody>,
    ) -> Result<Response<ExtensionBody>, String> {
        let certificate = self.front_proxy.certificate(plane).map_err(|error| error.to_string())?;
        let call = ExtensionCall {
            plane,
            host: &extension.host(),
            dial: (host, port),
            trust,
            certificate: &certificate,
            request,
        };
        self.client.send(call).await
    }

    /// Asks for a document on this server's own account. It is no longer than this.
    async fn ask(
        &self,
        plane: &Arc<Plane>,
        extension: &Extension,
        path: &str,
        bytes_max: usize,
    ) -> Result<Bytes, String> {
        let asking = async {
            let _under = self.enter(plane.id).await.ok_or("the server stops")?;
            let (host, port) = self.registry.extension_endpoint(plane, extension).await?;
            let request = own_request(path, &extension.host())?;
            let answer = self.send(plane.id, extension, (&host, port), &extension.trust, request).await?;
            if answer.status() != StatusCode::OK {
                return Err(format!("bad status: {}", answer.status().as_u16()));
            }
            let mut body = answer.into_body();
            let mut whole = BytesMut::new();
            while let Some(frame) = body.frame().await {
                let Ok(piece) = frame.map_err(|error| error.to_string())?.into_data() else { continue };
                if whole.len() + piece.len() > bytes_max {
                    return Err(format!("the answer is longer than {bytes_max} bytes"));
                }
                whole.extend_from_slice(&piece);
            }
            Ok(whole.freeze())
        };
        match tokio::time::timeout(ASK_PATIENCE, asking).await {
            Ok(outcome) => outcome,
            Err(_) => Err("context deadline exceeded".to_owned()),
        }
    }

    /// Whether the server behind a service answers: any success will do, and whoever answers is believed.
    async fn check(&self, plane: &Arc<Plane>, extension: &Extension) -> Result<(), String> {
        let (host, port) = self.registry.extension_endpoint(plane, extension).await?;
        let path = format!("/apis/{}/{}", extension.group, extension.version);
        let shown = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let url = format!("https://{shown}:{port}{path}");
        let asking = async {
            let _under = self.enter(plane.id).await.ok_or("the server stops")?;
            let request = own_request(&path, &extension.host())?;
            let answer = self.send(plane.id, extension, (&host, port), &Trust::Anybody, request).await;
            let answer = answer.map_err(|why| format!("Get {url:?}: {why}"))?;
            match answer.status() {
                status if status.is_success() => Ok(()),
                status => Err(format!("bad status from {url}: {}", status.as_u16())),
            }
        };
        let outcome = tokio::time::timeout(ASK_PATIENCE, asking).await;
        let outcome = outcome.unwrap_or_else(|_| Err(format!("Get {url:?}: context deadline exceeded")));
        outcome.map_err(|why: String| format!("failing or missing response from {url}: {why}"))
    }
}

impl ExtensionProbe for Aggregator {
    fn probe<'a>(&'a self, plane: PlaneId, api_service: &'a Value) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let plane = self.registry.store.plane_by_id(plane).ok_or("the plane is gone")?;
            // As it is now: what is kept for requests may lag behind its own write.
            let extension = Extension::read(api_service).ok_or("it names no service")?;
            self.check(&plane, &extension).await
        })
    }
}

/// A request of this server's own, as somebody who may read everything.
fn own_request(path: &str, host: &str) -> Result<Request<ExtensionBody>, String> {
    let empty = http_body_util::Empty::new().map_err(|never| match never {});
    let mut request = Request::new(UnsyncBoxBody::new(empty));
    *request.uri_mut() = path.parse().map_err(|_| "invalid URL".to_owned())?;
    let user = UserInfo {
        name: SmolStr::new_static("system:kube-aggregator"),
        groups: vec![SmolStr::new_static(MASTERS)],
        ..UserInfo::anonymous()
    };
    let headers = request.headers_mut();
    headers.insert(header::HOST, HeaderValue::from_str(host).map_err(|_| "invalid host".to_owned())?);
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static("kube-aggregator"));
    headers::identify(headers, &user)?;
    Ok(request)
}
