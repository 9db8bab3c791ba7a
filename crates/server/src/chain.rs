//! The life of a request, in order. Each step either answers or hands on what it found out.

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::FutureExt as _;
use http::header::{self, HeaderValue};
use http::{HeaderMap, Method, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use polder_auth::UserInfo;
use polder_auth::authn::Anonymous;
use polder_auth::authz::{Attributes, Decision, Selectors, Target, is_public_path, refusal};
use polder_model::go_duration::parse_duration;
use polder_model::{GroupResource, PlaneId, Reason, SmolStr, Status};
use polder_registry::status::plane_not_found;
use polder_registry::tokens::{CredentialNotes, ISSUER_PATH, KEYS_PATH};
use polder_registry::{Query, RequestContext};
use polder_store::Plane;
use tokio::time::Instant;

use crate::State;
use crate::answer::{self, Answer, Style};
use crate::audit::{Arrival, Trace};
use crate::body::{self, Held, Unread};
use crate::finish::Finish;
use crate::flow::{self, Classified};
use crate::handler::{Call, api_verb, failure_style, is_long_running, verb};
use crate::impersonate::{impersonated, is_impersonation};
use crate::limits::Pass;
use crate::presented::{Identity, Presented};
use crate::quiet;
use crate::route::{Request, ResourcePath, Route, parse_query};
use crate::strangers::{Strangers, TooManyAnswers};
use crate::turns::Lane;
use crate::websocket;

/// An ordinary request takes no longer than this, as upstream has it.
const PATIENCE: Duration = Duration::from_secs(60);
/// No watch and no stream is longer than this.
const LONGEST: Duration = Duration::from_secs(25 * 60 * 60);

/// What the connection knows about its other end.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    /// The client's verified certificate.
    pub(crate) presented: Presented,
    /// The host name asked for in the TLS handshake.
    pub(crate) server_name: Option<String>,
    /// Where it comes from.
    pub(crate) address: Option<IpAddr>,
    /// Among whose work this connection's is counted.
    pub(crate) lane: Arc<Lane>,
    /// Its answers that no plane counts.
    pub(crate) strangers: Strangers,
}

/// Answers a request. Failures are answers too; only a client that takes none of them gets no more.
pub(crate) async fn serve(
    state: Arc<State>,
    peer: Arc<Peer>,
    request: http::Request<Incoming>,
) -> Result<Answer, TooManyAnswers> {
    let started = Instant::now();
    let (parts, body) = request.into_parts();
    // A read has no body; one that is sent all the same is not kept while the answer is on its way, but until it is known who
    // asks: were it dropped before it has arrived, the connection would end with the answer, sometimes.
    let (unread, useless) = match parts.method {
        Method::GET | Method::HEAD => (None, Some(body)),
        _ => (Some(Unread::new(body)), None),
    };
    let is_head = parts.method == Method::HEAD;
    let is_awaited = awaits_leave(&parts);
    let is_ambiguous = is_ambiguous(&parts);
    let request = http::Request::from_parts(parts, ());
    let audit_id = audit_id(request.headers());
    let style = failure_style(request.headers());
    let query = Query::new(parse_query(request.uri().query().unwrap_or_default()));
    let host = host(&request);
    let route = host.and_then(|host| {
        Route::parse(request.uri().path(), &host, &state.base_domains).map_err(|_| Status::path_not_found())
    });
    let label = route.as_ref().map_or("OTHER", |route| verb(request.method(), route, &query));
    let (mut held, mut end, mut trace) = (None, Some(started + PATIENCE), None);

    let outcome = async {
        drained(&state)?;
        if is_ambiguous {
            return Err(Status::bad_request("it is not clear where the body of this request ends"));
        }
        let route = route?;
        end = patience(&route, &query)?.map(|patience| started + patience);
        // What has no end has one for finding out who asks.
        let found_by = end.unwrap_or(started + PATIENCE);
        let identity = peer.presented.identity(&state);
        let mut notes = CredentialNotes::default();
        let asked = authenticated(&state, &identity, &route, request.headers(), &mut notes);
        let user = in_time(found_by, asked).await;
        let known = state.audit.as_ref().and_then(|_| user.as_ref().ok().cloned());
        let found = match user {
            Ok(user) => found(&state, &peer, &request, &route, &query, (user, found_by)).await,
            Err(status) => Err(status),
        };
        if found.is_err() && route.plane.is_some() {
            quiet::turn_away(started).await;
        }
        drop(useless);
        if let Some(audit) = &state.audit {
            let arrival = Arrival {
                audit_id: &audit_id,
                route: &route,
                method: request.method(),
                uri: request.uri(),
                headers: request.headers(),
                query: &query,
                address: peer.address,
                user: found.as_ref().ok().map(|found| &found.user).or(known.as_ref()),
                plane: found.as_ref().ok().map(|found| &found.plane),
            };
            trace = audit.begin(&state.registry, arrival).await;
            audit.check_room(trace.as_ref())?;
        }
        let Found { plane, user, is_counted } = found?;
        // What everybody may see is not the plane's to give, so nothing of a plane's share is spent on it.
        let pass = if is_counted { Some(entered(&state, &plane, &route)?) } else { None };
        if pass.is_some() {
            peer.lane.set(plane.id, plane.limits.weight);
        }
        held.clone_from(&pass);
        let user = impersonated(&state.registry, plane.id, user, request.headers());
        let user = in_time(found_by, user).await?;
        if let Some(trace) = trace.as_ref().filter(|_| is_impersonation(request.headers())) {
            trace.acts_as(&user);
        }
        // Of what has no end, only watches belong to a flow.
        let flow = if end.is_some() || label == "WATCH" {
            let (plane, user, method) = (&plane, &user, request.method());
            let asked = flow::Asked { plane, user, method, verb: label, route: &route, query: &query };
            Classified::new(&state.registry, &asked).await
        } else {
            None
        };
        let prefix = prefix(request.uri().path(), &route);
        let mut context = RequestContext::new(plane, user);
        context.audited = trace.is_some();
        noted(&state, notes, &context);
        let context = Arc::new(context);
        let (mut parts, ()) = request.into_parts();
        if identity.is_proxy {
            forget_proxied(&state, &mut parts.headers);
        }
        let call = Call {
            state: state.clone(),
            context: context.clone(),
            route,
            method: parts.method,
            headers: parts.headers,
            query,
            body: unread.clone(),
            body_room: None,
            pass,
            deadline: end.unwrap_or(started + LONGEST),
            prefix,
            uri: parts.uri.clone(),
            trace: trace.clone(),
        };
        let (deadline, is_write) = (call.deadline, call.is_write());
        let outcome = async {
            if let (Some(flow), Some(pass)) = (&flow, &call.pass) {
                let seats = state.gates.seats(&context.plane, &state.registry.options.default_limits);
                flow.seated(pass, &context.user.name, seats, (started, deadline)).await?;
            }
            if let Some(extension) = call.extension().await? {
                // The other server's work is its own: whoever hangs up ends the call.
                Box::pin(call.forward(extension)).await
            } else if is_write {
                // A write and what follows from it run to the end though the client hangs up or its time is over.
                Finish::new(call.answer(), &state.registry.tasks).await
            } else {
                call.answer().await
            }
        };
        let outcome = AssertUnwindSafe(outcome).catch_unwind();
        let outcome = match tokio::time::timeout_at(deadline, outcome).await {
            Ok(Ok(outcome)) => outcome.and_then(|answer| decided(&context, answer)),
            Ok(Err(_)) => {
                trace.iter().for_each(|trace| trace.panicked());
                Err(Status::internal("the request failed; the server's log says why"))
            }
            Err(_) => Err(late()),
        };
        // Other answers of this code are upstream's for mistakes of the client's.
        if let Err(status) = &outcome
            && status.reason == Some(Reason::InternalError)
        {
            let plane = context.plane.name.as_str();
            let (path, why) = (parts.uri.path(), &status.message);
            // Most of these are a webhook's doing, and whoever has a broken one may call it as often as they like.
            match state.complaints.is_due(context.plane.id) {
                true => tracing::error!(plane, path, ?audit_id, why, "a request failed"),
                false => tracing::debug!(plane, path, ?audit_id, why, "a request failed"),
            }
        }
        if let Some(trace) = &trace {
            trace.annotated(context.take_annotations());
        }
        let mut answer = outcome.unwrap_or_else(|status| failed(&status, style, trace.as_ref()));
        warn(&context, &mut answer);
        if let Some(flow) = &flow {
            flow.tell(answer.headers_mut());
        }
        Ok(answer)
    };
    let outcome = outcome.await;
    let mut answer = outcome.unwrap_or_else(|status: Status| failed(&status, style, trace.as_ref()));
    let headers = answer.headers_mut();
    headers.insert("Audit-Id", audit_id);
    if is_ambiguous {
        // Whatever follows may be a part of it.
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    state.metrics.answered(label, answer.status().as_u16(), started.elapsed());
    if let Some(trace) = trace {
        trace.answered(&mut answer, end.is_none());
    }
    let held = match held {
        Some(pass) => Held::Place(pass),
        None => Held::Stranger(Arc::new(peer.strangers.enter()?)),
    };
    let rest = unread.and_then(|unread| unread.take()).filter(|rest| !rest.is_end_stream() && !is_awaited);
    if let Some(rest) = rest {
        // Part of its request as long as it takes.
        let held = held.clone();
        state.registry.tasks.spawn(async move {
            body::discard(rest).await;
            drop(held);
        });
    }
    if is_head {
        let len = answer.body_mut().behead();
        // HTTP/2 knows nothing of heads without bodies: it would send what it is given.
        if let Some(len) = len {
            answer.headers_mut().entry(header::CONTENT_LENGTH).or_insert(HeaderValue::from(len));
        }
    }
    answer.body_mut().hold(held);
    answer.body_mut().end_at(end.unwrap_or(started + LONGEST));
    Ok(answer)
}

/// Who asks, and in which plane.
struct Found {
    plane: Arc<Plane>,
    user: UserInfo,
    /// Whether it is the plane's to answer, within its share.
    is_counted: bool,
}

async fn found(
    state: &State,
    peer: &Peer,
    request: &http::Request<()>,
    route: &Route,
    query: &Query,
    (user, found_by): (UserInfo, Instant),
) -> Result<Found, Status> {
    let found = if user.is_anonymous() {
        let asked = Asked::new(&user, route, request.method(), query);
        // Nobody is told by how long it takes that there is a plane.
        let open = tokio::time::timeout_at(found_by, open_to_all(state, &asked)).await;
        let (plane, is_counted) = open.ok().flatten().ok_or_else(|| stranger(&asked))?;
        Found { plane, user, is_counted }
    } else {
        let found = tokio::time::timeout_at(found_by, plane(state, route, user)).await;
        let (plane, user) = found.unwrap_or_else(|_| Err(plane_not_found(named_plane(state, route).0)))?;
        Found { plane, user, is_counted: true }
    };
    if found.is_counted {
        connected(state, peer, &found.plane)?;
    }
    Ok(found)
}

/// Nothing is given away that nobody was asked about: an endpoint that forgets to ask fails for everybody, so that its first
/// test finds it.
fn decided(context: &RequestContext, answer: Answer) -> Result<Answer, Status> {
    let code = answer.status();
    if context.is_allowed() || code.is_client_error() || code.is_server_error() {
        return Ok(answer);
    }
    Err(Status::internal("no authorizer was asked about this request, so it is not answered: report this"))
}

/// A failure as it is answered, and noted.
fn failed(status: &Status, style: Style, trace: Option<&Arc<Trace>>) -> Answer {
    if let Some(trace) = trace {
        trace.failed(status);
    }
    answer::failure(status, style)
}

fn late() -> Status {
    Status::timeout("Timeout: request did not complete within the allotted timeout")
}

async fn in_time<T>(end: Instant, work: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    tokio::time::timeout_at(end, work).await.unwrap_or_else(|_| Err(late()))
}

/// How long a request may take: what the client says, but not more than we say. `None` for watches and streams.
fn patience(route: &Route, query: &Query) -> Result<Option<Duration>, Status> {
    if is_long_running(route, query) {
        return Ok(None);
    }
    let Some(text) = query.get("timeout").filter(|text| !text.is_empty()) else { return Ok(Some(PATIENCE)) };
    let given = parse_duration(text).map_err(|error| {
        Status::bad_request(format!("invalid timeout specified in the request URL - {error}"))
    })?;
    // Nothing, or less, means no limit of the client's own.
    Ok(Some(given.filter(|given| !given.is_zero()).map_or(PATIENCE, |given| given.min(PATIENCE))))
}

/// A server that is going away takes nothing new.
fn drained(state: &State) -> Result<(), Status> {
    if state.stopping.is_cancelled() {
        return Err(Status::unavailable("the server is shutting down").with_retry_after(1));
    }
    Ok(())
}

/// Notes what is to be noted of the credential that was shown.
fn noted(state: &State, notes: CredentialNotes, context: &RequestContext) {
    for (key, text) in &notes.annotations {
        context.annotate((*key).into(), text.clone());
    }
    notes.warning.iter().for_each(|text| context.warn(*text));
    if notes.secret.is_some() {
        // Nobody waits for it.
        let registry = state.registry.clone();
        state.registry.tasks.spawn(async move { registry.note_token_use(notes).await });
    }
}

/// Who asks: nobody in particular without a credential.
async fn authenticated(
    state: &State,
    identity: &Identity,
    route: &Route,
    headers: &HeaderMap,
    notes: &mut CredentialNotes,
) -> Result<UserInfo, Status> {
    match credential(state, identity, route, headers, notes).await? {
        // Whoever proved something is somebody, whatever they are called: strangers are let in where others are not looked at.
        Some(user) if user.is_anonymous() => Err(Status::unauthorized()),
        Some(user) => Ok(user),
        None => {
            let is_welcome = match &state.registry.options.authenticators.sources().anonymous {
                Anonymous::Usual => true,
                Anonymous::Nobody => false,
                Anonymous::Paths(paths) => paths.is_empty() || paths.contains(&SmolStr::new(route.path())),
            };
            // A credential that is no good here makes nobody in particular of nobody.
            if is_welcome && !identity.is_only_proxy {
                Ok(UserInfo::anonymous())
            } else {
                Err(Status::unauthorized())
            }
        }
    }
}

/// Who proves to be somebody; `None` for who does not try.
async fn credential(
    state: &State,
    identity: &Identity,
    route: &Route,
    headers: &HeaderMap,
    notes: &mut CredentialNotes,
) -> Result<Option<UserInfo>, Status> {
    let authenticators = &state.registry.options.authenticators;
    if identity.is_proxy
        && let Some(proxies) = &authenticators.sources().proxies
    {
        let all = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let named = proxies.user(&all.collect::<Vec<_>>());
        if let Some(user) = named.map_err(|_| Status::unauthorized())? {
            return state.registry.confined(user, false).ok_or_else(Status::unauthorized).map(Some);
        }
    }
    if let Some(certificate) = &identity.certificate {
        let now = (state.registry.options.clock)();
        let user = certificate.as_ref().ok().and_then(|certificate| certificate.user(now).ok());
        return user.cloned().ok_or_else(Status::unauthorized).map(Some);
    }
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = bearer.and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    let in_protocols = if bearer.is_none() { protocol_token(headers)? } else { None };
    if let Some(token) = bearer.or(in_protocols.as_deref()) {
        let plane = named_plane(state, route).1;
        return state.registry.bearer_user(plane.as_ref(), token, notes).await.map(Some);
    }
    Ok(None)
}

/// A token among the protocols that are asked for in a web socket: browsers can send it nowhere else. As upstream, it is one, and
/// not the only protocol.
fn protocol_token(headers: &HeaderMap) -> Result<Option<String>, Status> {
    const PREFIX: &str = "base64url.bearer.authorization.k8s.io.";
    if !websocket::is_wanted(headers) {
        return Ok(None);
    }
    let values =
        headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let (tokens, others): (Vec<&str>, Vec<&str>) =
        values.flat_map(|value| value.split(',')).map(str::trim).partition(|one| one.starts_with(PREFIX));
    match (tokens.as_slice(), others.is_empty()) {
        ([], _) => Ok(None),
        ([token], false) => {
            let decoded = URL_SAFE_NO_PAD.decode(&token[PREFIX.len()..]).ok();
            let text = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
            text.filter(|text| !text.is_empty()).map(Some).ok_or_else(Status::unauthorized)
        }
        _ => Err(Status::unauthorized()),
    }
}

/// What a proxy says about others is for us, and for nobody behind us.
fn forget_proxied(state: &State, headers: &mut HeaderMap) {
    let sources = state.registry.options.authenticators.sources();
    let Some(proxies) = &sources.proxies else { return };
    let own = headers.keys().filter(|name| proxies.is_own(name.as_str())).cloned();
    for name in own.collect::<Vec<_>>() {
        headers.remove(name);
    }
}

/// What somebody who proved nothing asks for.
struct Asked<'a> {
    user: &'a UserInfo,
    route: &'a Route,
    method: &'a Method,
    verb: &'a str,
    path: String,
    resource: Option<(GroupResource, ResourcePath)>,
}

impl<'a> Asked<'a> {
    fn new(user: &'a UserInfo, route: &'a Route, method: &'a Method, query: &'a Query) -> Asked<'a> {
        let resource = match route.request() {
            Request::Resource(own) => {
                Some((GroupResource::new(own.group.clone(), own.resource.clone()), own))
            }
            _ => None,
        };
        Asked { user, route, method, verb: api_verb(method, route, query), path: route.path(), resource }
    }

    /// The question as authorizers see it.
    fn attributes(&self, plane: PlaneId) -> Attributes<'_> {
        let target = match &self.resource {
            None => Target::Path(&self.path),
            Some((resource, own)) => Target::Resource {
                resource,
                version: &own.version,
                subresource: &own.subresource,
                namespace: &own.namespace,
                name: &own.name,
            },
        };
        Attributes { user: self.user, plane, verb: self.verb, target, selectors: Selectors::default() }
    }
}

/// What somebody who proved nothing is told, before anything is looked up or read.
fn stranger(asked: &Asked<'_>) -> Status {
    let text = refusal(&asked.attributes(PlaneId::CORE), &Decision::NO_OPINION);
    match &asked.resource {
        Some((resource, own)) => Status::forbidden(resource, &own.name, &text),
        None => Status::forbidden(&GroupResource::new("", ""), "", &text),
    }
}

/// The plane whose answer nobody in particular gets, and whether that is counted among the plane's requests: health and version
/// are the server's own, and how tokens of a plane are verified is told where the plane lets everybody know. The rest is told where
/// the plane's bindings say so, or whoever else decides where the provider has opened planes. Else strangers hear the same about
/// planes that exist and planes that do not.
async fn open_to_all(state: &State, asked: &Asked<'_>) -> Option<(Arc<Plane>, bool)> {
    if is_public_path(&asked.path) {
        return state.registry.store.plane_by_id(PlaneId::CORE).map(|core| (core, false));
    }
    let is_told = asked.method == Method::GET && [ISSUER_PATH, KEYS_PATH].contains(&asked.path.as_str());
    let is_open = matches!(state.registry.options.authenticators.sources().anonymous, Anonymous::Paths(_));
    let plane = named_plane(state, asked.route).1?;
    if !is_told && !is_open {
        // Others than its roles are asked about strangers only where it lets them in.
        let attributes = asked.attributes(plane.id);
        state.registry.lets_in(&plane, &attributes).await.then_some(())?;
    }
    // Who cannot be asked does not tell strangers that there is a plane.
    let decision = state.registry.authorizer.authorize(&asked.attributes(plane.id)).await;
    decision.is_ok_and(|decision| decision.is_allow()).then_some((plane, !is_told))
}

fn named_plane<'a>(state: &State, route: &'a Route) -> (&'a str, Option<Arc<Plane>>) {
    let store = &state.registry.store;
    match &route.plane {
        None => ("core", store.plane_by_id(PlaneId::CORE)),
        Some(name) => (name.as_str(), store.plane(name.as_str())),
    }
}

/// The plane a request is for, and who asks there. To somebody who belongs to one plane, the others do not exist; to somebody who belongs to
/// none, those that do not know them.
async fn plane(state: &State, route: &Route, user: UserInfo) -> Result<(Arc<Plane>, UserInfo), Status> {
    let (name, mut found) = named_plane(state, route);
    if found.is_none() && state.registry.store.fresh().await.is_ok() {
        // Made on another replica just now.
        found = named_plane(state, route).1;
    }
    let plane = found.ok_or_else(|| plane_not_found(name))?;
    let user = state.registry.seen(&plane, user).await.ok_or_else(|| plane_not_found(name))?;
    Ok((plane, user))
}

/// A connection made for one plane's host name carries no requests for another's.
fn connected(state: &State, peer: &Peer, plane: &Plane) -> Result<(), Status> {
    let by_name =
        peer.server_name.as_deref().and_then(|name| crate::route::plane_of_host(name, &state.base_domains));
    if let Some(by_name) = by_name.filter(|name| *name != plane.name) {
        let text = format!(
            "this connection was made for the host name of plane {by_name}: open another one for plane {}",
            plane.name
        );
        return Err(Status::untyped(421, text));
    }
    Ok(())
}

/// Takes a place among the plane's requests and notes that the plane is in use.
fn entered(state: &State, plane: &Arc<Plane>, route: &Route) -> Result<Pass, Status> {
    let limits = &state.registry.options.default_limits;
    let pass = match crate::health::is_probe(route) {
        true => state.gates.enter_probe(plane, limits)?,
        false => state.gates.enter(plane, limits)?,
    };
    let now = u64::try_from((state.registry.options.clock)()).unwrap_or_default();
    if plane.usage.last_activity.swap(now, Ordering::Relaxed) == 0 {
        let (registry, id) = (state.registry.clone(), plane.id);
        state.registry.tasks.spawn(async move { registry.resume_chores(id).await });
    }
    Ok(pass)
}

/// What the client put in front of paths in its plane: nothing when it came by host name.
fn prefix(path: &str, route: &Route) -> String {
    match &route.plane {
        Some(plane) if path.starts_with("/clusters/") => format!("/clusters/{plane}"),
        _ => String::new(),
    }
}

/// Whoever said how much it is and waits to be told to go on is not told so, and sends nothing.
fn awaits_leave(parts: &http::request::Parts) -> bool {
    let says = |name| parts.headers.contains_key(name);
    parts.version < Version::HTTP_2 && says(header::EXPECT) && says(header::CONTENT_LENGTH)
}

/// Whether somebody in front of us may see the body end elsewhere: it comes in chunks, and in something else too. (A length beside
/// chunks is not seen here. hyper goes by the chunks, as RFC 9112 has it, and ends the connection after the answer.)
fn is_ambiguous(parts: &http::request::Parts) -> bool {
    let mut codings = parts.headers.get_all(header::TRANSFER_ENCODING).iter();
    let Some(first) = codings.next() else { return false };
    let is_chunked = first.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    !is_chunked || codings.next().is_some()
}

/// The one host name a request is for: what the request line or `:authority` says, and the `Host` header. Whoever
/// stands between us and the client may go by either, so they must not say two things.
fn host(request: &http::Request<()>) -> Result<String, Status> {
    let authority = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    let headers = request.headers().get_all(header::HOST).iter().map(HeaderValue::as_bytes);
    let mut names = authority.into_iter().chain(headers);
    let first = names.next().unwrap_or_default();
    if names.any(|name| !name.eq_ignore_ascii_case(first)) {
        return Err(Status::bad_request("the request names more than one host"));
    }
    let name = std::str::from_utf8(first).map_err(|_| Status::bad_request("the host name is no text"))?;
    if name.contains('@') {
        return Err(Status::bad_request("the host name has a user in it"));
    }
    Ok(name.to_ascii_lowercase())
}

/// The client's id for the request, or one of ours.
fn audit_id(headers: &HeaderMap) -> HeaderValue {
    let given = headers.get("Audit-ID").filter(|value| value.len() <= 64);
    given.cloned().unwrap_or_else(|| {
        let id = uuid::Uuid::new_v4().to_string();
        HeaderValue::from_str(&id).unwrap_or(HeaderValue::from_static(""))
    })
}

/// As many characters as all warnings may have; when they are more, each has at most so many.
const WARNINGS_LEN_MAX: usize = 4_096;
const WARNING_LEN_MAX: usize = 256;

/// Warnings as they are, or the beginnings of them when they are too long together.
fn shortened(mut warnings: Vec<String>) -> Vec<String> {
    let len: usize = warnings.iter().map(|text| text.chars().count()).sum();
    if len > WARNINGS_LEN_MAX {
        warnings.iter_mut().for_each(|text| *text = text.chars().take(WARNING_LEN_MAX).collect());
        warnings.truncate(WARNINGS_LEN_MAX / WARNING_LEN_MAX);
    }
    warnings
}

/// Tells the client what it should know although the request worked.
fn warn(context: &RequestContext, answer: &mut Answer) {
    for text in shortened(context.take_warnings()) {
        let clean: String = text.chars().filter(|char| !char.is_control()).collect();
        let quoted = clean.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            answer.headers_mut().append(header::WARNING, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_shortened_together() {
        let long = "x".repeat(1_000);
        assert_eq!(shortened(vec![long.clone(); 4]), vec![long.clone(); 4]);
        let short = shortened(vec![long; 30]);
        assert_eq!((short.len(), short[0].len()), (16, 256));
    }

    #[test]
    fn browsers_send_tokens_among_protocols() {
        let token = format!("base64url.bearer.authorization.k8s.io.{}", URL_SAFE_NO_PAD.encode("secret"));
        let found = |upgrade: &str, protocols: &[String]| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONNECTION, HeaderValue::from_static("keep-alive, Upgrade"));
            headers.insert(header::UPGRADE, HeaderValue::from_str(upgrade).unwrap());
            for protocol in protocols {
                headers.append(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_str(protocol).unwrap());
            }
            protocol_token(&headers).map_err(|status| status.code)
        };
        let with = |other: &str| format!("{token}, {other}");
        assert_eq!(found("websocket", &[with("v4.channel.k8s.io")]), Ok(Some("secret".into())));
        assert_eq!(found("WebSocket", &["v4".into(), token.clone()]), Ok(Some("secret".into())));
        assert_eq!(found("h2c", &[with("v4")]), Ok(None), "no web socket");
        assert_eq!(found("websocket", &["v4".into()]), Ok(None));
        assert_eq!(
            found("websocket", std::slice::from_ref(&token)),
            Err(401),
            "the answer must name another one"
        );
        assert_eq!(found("websocket", &[with("v4"), token.clone()]), Err(401), "two tokens");
        assert_eq!(found("websocket", &[format!("{token}!, v4")]), Err(401));
        assert_eq!(protocol_token(&HeaderMap::new()).map_err(|status| status.code), Ok(None));
    }
}
