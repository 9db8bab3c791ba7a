//! Extension servers: requests for group versions that an `APIService` of the plane gives to another server go there, as
//! HTTPS, with this server's word for who is asking.
//!
//! `forward` hands on what clients ask, `own` asks for this server itself and for controllers, `documents` asks for what
//! discovery and OpenAPI tell, `headers`, `resources` and `swagger` say what may pass in either direction. Who connects, and
//! to where, is the business of whoever starts the server ([`ExtensionClient`]).
//!
//! Invariant: what a plane's extension servers do, or do not do, is felt in that plane alone: calls are counted by plane,
//! every answer that is kept here is bounded, and no credential of a client leaves this server.

mod cache;
mod documents;
mod forward;
mod gates;
mod headers;
mod merge;
mod own;
mod resources;
mod room;
mod swagger;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use polder_client::extension::ExtensionProbe;
use polder_model::{PlaneId, Value};
use polder_registry::Registry;
use polder_registry::extensions::{Extension, Trust};

use crate::front_proxy::{FrontProxy, FrontProxyCertificate};

pub(crate) use documents::RemoteVersion;
pub(crate) use gates::Under;
pub(crate) use merge::{MergedGroup, MergedVersion, merge};
pub(crate) use swagger::{Piece, Swagger};

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
    gates: gates::Gates,
    room: Arc<room::Room>,
    documents: documents::Documents,
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
            gates: gates::Gates::default(),
            room: Arc::default(),
            documents: documents::Documents::default(),
        }
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
