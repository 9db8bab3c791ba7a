//! What this server asks extension servers on its own account: documents for discovery, and what controllers want to know or
//! have done.
//!
//! Invariant: every question has a deadline, every answer a bound, and what is held of it is room that was asked for.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderValue};
use http::{Method, Request, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use polder_auth::{MASTERS, UserInfo};
use polder_client::Answer;
use polder_client::extension::{ExtensionCaller, ExtensionRequest, ExtensionVerb};
use polder_model::{PlaneId, Reason, SmolStr, Status, Value};
use polder_registry::extensions::{Extension, Trust};
use polder_store::Plane;

use super::room::Held;
use super::{Aggregator, ExtensionBody, headers};

/// A document is there in so much time, or not at all.
pub(super) const ASK_PATIENCE: Duration = Duration::from_secs(5);
/// What a controller asks for may take longer: a metric is computed, a collection is deleted.
const CALL_PATIENCE: Duration = Duration::from_secs(10);
/// What is read of an answer to a controller. It is parsed at once, and controllers keep only what they need of it.
const CALL_BYTES_MAX: usize = 2 << 20;

const JSON: &str = "application/json";
const METADATA: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;q=0.9";

/// One question.
pub(super) struct Question<'a> {
    pub(super) method: Method,
    /// With its query.
    pub(super) path: &'a str,
    /// What the asker has already.
    pub(super) tag: Option<&'a str>,
    pub(super) user: UserInfo,
    pub(super) accept: &'static str,
    /// JSON, and its media type.
    pub(super) body: Option<(Vec<u8>, &'static str)>,
}

impl<'a> Question<'a> {
    /// Asks for a document as somebody who may read everything.
    pub(super) fn document(path: &'a str) -> Question<'a> {
        let user = UserInfo {
            name: SmolStr::new_static("system:kube-aggregator"),
            groups: vec![SmolStr::new_static(MASTERS)],
            ..UserInfo::anonymous()
        };
        Question { method: Method::GET, path, tag: None, user, accept: JSON, body: None }
    }
}

/// What was answered, with the room it takes.
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) tag: Option<SmolStr>,
    /// Words for people, not an object.
    is_text: bool,
    pub(super) body: Bytes,
    _room: Held,
}

impl Aggregator {
    /// Asks for a document, no longer than this.
    pub(super) async fn ask(
        &self,
        plane: &Arc<Plane>,
        extension: &Extension,
        question: Question<'_>,
        bytes_max: usize,
    ) -> Result<Reply, String> {
        let reply = self.question(plane, extension, question, bytes_max);
        match tokio::time::timeout(ASK_PATIENCE, reply).await {
            Ok(Ok(reply)) if matches!(reply.status, StatusCode::OK | StatusCode::NOT_MODIFIED) => Ok(reply),
            Ok(Ok(reply)) => Err(format!("bad status: {}", reply.status.as_u16())),
            Ok(Err(why)) => Err(why),
            Err(_) => Err("context deadline exceeded".to_owned()),
        }
    }

    async fn question(
        &self,
        plane: &Arc<Plane>,
        extension: &Extension,
        question: Question<'_>,
        bytes_max: usize,
    ) -> Result<Reply, String> {
        let _under = self.gates.enter(plane.id).await;
        let (host, port) = self.registry.extension_endpoint(plane, extension).await?;
        let request = request(question, &extension.host())?;
        let answer = self.send(plane.id, extension, (&host, port), &extension.trust, request).await?;
        let (parts, mut body) = answer.into_parts();
        let told = |name| parts.headers.get(name).and_then(|told: &HeaderValue| told.to_str().ok());
        let tag = told(header::ETAG).map(SmolStr::new);
        let is_text = told(header::CONTENT_TYPE).is_some_and(|media| media.starts_with("text/"));
        let mut room = Held::new(&self.room, plane.id);
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(piece) = frame.map_err(|error| error.to_string())?.into_data() else { continue };
            let len = whole.len() + piece.len();
            if len > bytes_max {
                return Err(format!("the answer is longer than {bytes_max} bytes"));
            }
            if !room.grow(len) {
                return Err("there is no room for the answer now".into());
            }
            whole.extend_from_slice(&piece);
        }
        Ok(Reply { status: parts.status, tag, is_text, body: whole.freeze(), _room: room })
    }

    /// Whether the server behind a service answers: any success will do, and whoever answers is believed.
    pub(super) async fn check(&self, plane: &Arc<Plane>, extension: &Extension) -> Result<(), String> {
        let (host, port) = self.registry.extension_endpoint(plane, extension).await?;
        let path = format!("/apis/{}/{}", extension.group, extension.version);
        let shown = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let url = format!("https://{shown}:{port}{path}");
        let asking = async {
            let _under = self.gates.enter(plane.id).await;
            let request = request(Question::document(&path), &extension.host())?;
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

impl ExtensionCaller for Aggregator {
    fn call(&self, plane: PlaneId, request: ExtensionRequest) -> Answer<'_, Option<Value>> {
        Box::pin(async move {
            let gone = || Status::untyped(404, format!("plane {plane} is gone"));
            let plane = self.registry.store.plane_by_id(plane).ok_or_else(gone)?;
            let found = self.registry.extension(&plane, &request.group, &request.version).await?;
            let Some(extension) = found else { return Ok(None) };
            let (method, body) = match &request.verb {
                ExtensionVerb::Get => (Method::GET, None),
                ExtensionVerb::Delete(options) => (Method::DELETE, Some((options.to_vec(), JSON))),
                ExtensionVerb::Patch(patch) => {
                    (Method::PATCH, Some((patch.to_vec(), "application/merge-patch+json")))
                }
            };
            let verb = method.as_str().to_ascii_lowercase();
            let refused = |code: u16| refusal(code, "unknown", &verb, &request.about);
            if extension.available == Some(false) {
                return Err(refused(503));
            }
            let path = request.path();
            let accept = if request.metadata_only { METADATA } else { JSON };
            let user = account(request.account);
            let question = Question { method, path: &path, tag: None, user, accept, body };
            let asking = self.question(&plane, &extension, question, CALL_BYTES_MAX);
            let reply = match tokio::time::timeout(CALL_PATIENCE, asking).await {
                Ok(Ok(reply)) => reply,
                Ok(Err(why)) => {
                    let (group, version) = (extension.group.as_str(), extension.version.as_str());
                    tracing::debug!(plane = %plane.name, group, version, why, "a controller is not answered");
                    return Err(refused(503));
                }
                Err(_) => return Err(refused(504)),
            };
            let told = Value::parse(&reply.body).ok();
            match (reply.status.is_success(), told) {
                (true, Some(told)) => Ok(Some(told)),
                (true, None) => Err(Status::internal("the extension server answered with no JSON")),
                (false, told) => Err(refused_with(&reply, told.as_ref(), &verb, &request.about)),
            }
        })
    }
}

/// A refusal in the server's own words, if it has any.
fn refused_with(reply: &Reply, told: Option<&Value>, verb: &str, about: &str) -> Status {
    let code = reply.status.as_u16();
    let told = told.filter(|told| told.str_at(&["kind"]) == Some("Status"));
    if let Some((told, words)) = told.and_then(|told| Some((told, told.str_at(&["message"])?))) {
        let reason = told.str_at(&["reason"]).filter(|reason| *reason == Reason::NotFound.as_str());
        return Status {
            reason: reason.map(|_| Reason::NotFound),
            ..Status::untyped(code, shortened(words))
        };
    }
    let words = String::from_utf8_lossy(&reply.body);
    refusal(code, if reply.is_text { words.trim() } else { "unknown" }, verb, about)
}

/// More of what a server says is not repeated in anybody's status.
const WORDS_LEN_MAX: usize = 1024;

fn shortened(words: &str) -> String {
    words.chars().take(WORDS_LEN_MAX).collect()
}

/// An account of `kube-system`, as a controller of that name would have it.
fn account(name: &str) -> UserInfo {
    let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];
    UserInfo::authenticated(
        format!("system:serviceaccount:kube-system:{name}"),
        groups.into_iter().map(SmolStr::new_static),
    )
}

/// What client-go says about an answer that is no success and says nothing itself.
fn refusal(code: u16, said: &str, verb: &str, about: &str) -> Status {
    let unknown;
    let words = match code {
        401 => "the server has asked for the client to provide credentials",
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        409 => "the server reported a conflict",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        500.. => {
            let said = shortened(said);
            unknown = format!("an error on the server ({said:?}) has prevented the request from succeeding");
            &unknown
        }
        _ => "the server rejected our request for an unknown reason",
    };
    let about = if about.is_empty() { String::new() } else { format!(" ({verb} {about})") };
    Status::untyped(code, format!("{words}{about}"))
}

fn request(question: Question<'_>, host: &str) -> Result<Request<ExtensionBody>, String> {
    let Question { method, path, tag, user, accept, body } = question;
    let (body, media) = body.map_or((Vec::new(), None), |(body, media)| (body, Some(media)));
    let len = body.len();
    let body = Full::new(Bytes::from(body)).map_err(|never| match never {});
    let mut request = Request::new(UnsyncBoxBody::new(body));
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().map_err(|_| "invalid URL".to_owned())?;
    let headers = request.headers_mut();
    headers.insert(header::HOST, HeaderValue::from_str(host).map_err(|_| "invalid host".to_owned())?);
    headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
    headers.insert(header::USER_AGENT, HeaderValue::from_static("kube-aggregator"));
    if let Some(tag) = tag.and_then(|tag| HeaderValue::from_str(tag).ok()) {
        headers.insert(header::IF_NONE_MATCH, tag);
    }
    if let Some(media) = media {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(len));
    }
    headers::identify(headers, &user)?;
    Ok(request)
}
