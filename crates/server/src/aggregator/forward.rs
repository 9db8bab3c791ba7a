//! Requests of clients that another server answers: authorized here, handed on with this server's word for who is asking,
//! and the answer given back piece by piece as it comes.
//!
//! Invariant: a call lasts no longer than either side. A client that hangs up ends it, also in the middle of a write: what the
//! other server does then is its own affair. Nothing is held of a body but the piece that is under way.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use polder_model::Status;
use polder_registry::extensions::Extension;
use polder_store::Watch;

use super::{Aggregator, ExtensionBody, Under, headers};
use crate::answer::{self, Answer};
use crate::body::{AnswerBody, BrokenOff};
use crate::handler::{Call, is_long_running};
use crate::route;

/// A stream that has not begun after this does not begin.
const STREAM_BEGIN_MAX: Duration = Duration::from_secs(60);

impl Call {
    /// The extension service this request is for, if it is for one. Most are not, and pay next to nothing for the question.
    pub(crate) async fn extension(&self) -> Result<Option<Arc<Extension>>, Status> {
        let (registry, plane) = (&self.state.registry, &self.context.plane);
        match self.route.segments.as_slice() {
            [apis, group, version, ..] if apis == "apis" && self.state.aggregator.is_some() => {
                if registry.is_not_extended(plane.id, group, version) {
                    return Ok(None);
                }
                Box::pin(registry.extension(plane, group, version)).await
            }
            _ => Ok(None),
        }
    }

    /// Answers with what the extension server answers, if this client may ask.
    pub(crate) async fn forward(self, extension: Arc<Extension>) -> Result<Answer, Status> {
        let methods = [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
        if !methods.contains(&self.method) {
            return Err(Status::method_not_allowed());
        }
        match self.route.request() {
            route::Request::Resource(path) => self.authorize_unknown(&path).await?,
            _ => self.authorize_path().await?,
        }
        self.hand_on(&extension).await
    }

    /// The same for somebody who has been found to be allowed to.
    pub(crate) async fn hand_on(mut self, extension: &Extension) -> Result<Answer, Status> {
        let unavailable = || answer::text(StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n");
        let Some(aggregator) = self.state.aggregator.clone() else { return Ok(unavailable()) };
        if self.headers.contains_key(header::UPGRADE) {
            let text = "connections are not upgraded on the way to an extension server";
            return Err(Status::untyped(501, text));
        }
        if extension.available == Some(false) {
            return Ok(unavailable());
        }
        let plane = self.context.plane.clone();
        let streams = is_long_running(&self.route, &self.query);
        let Ok(lifeline) = streams.then(|| self.state.registry.store.lifeline(plane.id)).transpose() else {
            return Ok(unavailable());
        };
        if streams && let Some(pass) = &self.pass {
            pass.become_watch(&plane, &self.state.registry.options.default_limits)?;
        }
        let under = match streams {
            true => aggregator.gates.enter_stream(plane.id).ok_or_else(|| {
                let text = format!("plane {} has too many open watches of extension servers", plane.name);
                Status::too_many_requests(text, 1)
            })?,
            false => aggregator.gates.enter(plane.id).await,
        };
        let Ok((host, port)) = self.state.registry.extension_endpoint(&plane, extension).await else {
            return Ok(unavailable());
        };
        let request = self.request(extension)?;
        let sending = aggregator.send(plane.id, extension, (&host, port), &extension.trust, request);
        let sent = match streams {
            false => sending.await,
            true => match tokio::time::timeout(STREAM_BEGIN_MAX, sending).await {
                Ok(sent) => sent,
                Err(_) => Err("context deadline exceeded".to_owned()),
            },
        };
        match sent {
            // A client would follow with the credentials it has for this server, to another plane for instance.
            Ok(response) if is_redirection(&response) => {
                let text = "the backend attempted to redirect this request, which is not permitted\n";
                Ok(answer::text(StatusCode::BAD_GATEWAY, text.to_owned()))
            }
            Ok(response) if response.status() != StatusCode::SWITCHING_PROTOCOLS => {
                Ok(self.answered(response, (under, aggregator), lifeline))
            }
            Ok(_) => Ok(unreachable("it switches protocols")),
            Err(why) => Ok(unreachable(&why)),
        }
    }

    /// The request as the extension server sees it.
    fn request(&mut self, extension: &Extension) -> Result<Request<ExtensionBody>, Status> {
        let body: ExtensionBody = match self.body.take().and_then(|body| body.take()) {
            Some(body) => UnsyncBoxBody::new(body.map_err(Into::into)),
            None => UnsyncBoxBody::new(http_body_util::Empty::new().map_err(|never| match never {})),
        };
        let whole = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let path = whole.strip_prefix(&self.prefix).unwrap_or(whole);
        let bad = |_| Status::bad_request("the URL cannot be handed on");
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = path.parse().map_err(|error: http::uri::InvalidUri| bad(error.to_string()))?;
        let mut own = headers::to_server(&self.headers);
        if matches!(self.method, Method::GET | Method::HEAD) {
            // Its body is not handed on.
            own.remove(header::CONTENT_LENGTH);
        }
        headers::identify(&mut own, &self.context.user).map_err(Status::internal)?;
        let text = |text: &str| HeaderValue::from_str(text).map_err(|error| bad(error.to_string()));
        own.insert(header::HOST, text(&extension.host())?);
        own.insert("x-forwarded-uri", text(self.uri.path())?);
        own.insert("x-forwarded-proto", HeaderValue::from_static("https"));
        let host = self.headers.get(header::HOST).cloned();
        let host = host.or_else(|| self.uri.authority().and_then(|name| text(name.as_str()).ok()));
        if let Some(host) = host {
            own.insert("x-forwarded-host", host);
        }
        *request.headers_mut() = own;
        Ok(request)
    }

    fn answered(
        self,
        response: Response<ExtensionBody>,
        held: (Under, Arc<Aggregator>),
        mut lifeline: Option<Watch>,
    ) -> Answer {
        let (parts, mut body) = response.into_parts();
        let stopping = self.state.stopping.clone();
        let has_none = self.method == Method::HEAD
            || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let content = match has_none {
            true => AnswerBody::empty(),
            false => AnswerBody::stream(|pieces| async move {
                // Held until the last piece has been given away.
                let _held = held;
                loop {
                    let frame = tokio::select! {
                        frame = body.frame() => frame,
                        // What has an end is waited for.
                        () = stopping.cancelled(), if lifeline.is_some() => return Ok(()),
                        () = ended(lifeline.as_mut()) => return Ok(()),
                    };
                    match frame {
                        None => return Ok(()),
                        Some(Err(_)) => return Err(BrokenOff),
                        Some(Ok(frame)) => {
                            let piece: Bytes = frame.into_data().unwrap_or_default();
                            if !piece.is_empty() {
                                pieces.send(piece).await;
                            }
                        }
                    }
                }
            }),
        };
        let mut answer = Response::new(content);
        *answer.status_mut() = parts.status;
        *answer.headers_mut() = headers::to_client(&parts.headers);
        answer
    }
}

/// Until streams of clients end: with their plane, or because a key is dropped.
async fn ended(lifeline: Option<&mut Watch>) {
    match lifeline {
        Some(lifeline) => while lifeline.next().await.is_ok() {},
        None => std::future::pending().await,
    }
}

fn is_redirection<B>(response: &http::Response<B>) -> bool {
    response.status().is_redirection() && response.headers().contains_key(header::LOCATION)
}

/// The server is not there, or does not answer as servers do.
fn unreachable(why: &str) -> Answer {
    let text = format!("error trying to reach service: {why}\n");
    answer::text(StatusCode::SERVICE_UNAVAILABLE, text)
}
