//! One request on its way, as far as somebody wants it noted: what is known from the beginning, what is learned on the way, and an
//! event at each stage.
//!
//! There is no trace of a request nobody wants noted. An ordinary answer is noted before it is sent; one that is sent in pieces
//! when its last piece has left, or its client.

use std::io::Read as _;
use std::net::IpAddr;
use std::sync::Arc;

use http::header::{self, HeaderValue};
use http::{HeaderMap, Uri};
use jiff::Timestamp;
use parking_lot::Mutex;
use polder_auth::UserInfo;
use polder_model::value::write_string;
use polder_model::{PlaneId, PlaneName, Status, Value};
use polder_registry::audit::policy::{AskedResource, Level, Stage, Verdict, holds_credentials};

use super::Audit;
use super::event::{self, end_object, write_member};
use super::sink::Outlets;
use crate::answer::Answer;
use crate::negotiate::Media;
use crate::protobuf;
use crate::route::ResourcePath;

/// More of a body is not noted.
const BODY_BYTES_MAX: usize = 100 * 1024;
/// As upstream has it.
const TRUNCATED: &str = "audit.k8s.io/truncated";

pub(crate) struct Trace {
    audit: Arc<Audit>,
    plane: Option<(PlaneId, PlaneName)>,
    /// What the provider wants noted, and what the plane does.
    verdicts: [Verdict; 2],
    audit_id: HeaderValue,
    resource: Option<ResourcePath>,
    received: Timestamp,
    /// Members that are the same at every stage.
    about: Vec<u8>,
    learned: Mutex<Learned>,
}

/// What is learned on the way.
#[derive(Default)]
struct Learned {
    name: String,
    uid: String,
    resource_version: String,
    impersonated: Option<UserInfo>,
    annotations: Vec<(String, String)>,
    request: Option<Value>,
    response: Option<Value>,
    truncated: bool,
    /// What was sent is a credential, wherever it was sent to.
    is_confidential: bool,
    code: u16,
    failure: Option<Status>,
    panicked: bool,
}

/// What is known at the beginning.
pub(super) struct Beginning<'a> {
    pub(super) plane: Option<(PlaneId, PlaneName)>,
    pub(super) verdicts: [Verdict; 2],
    pub(super) audit_id: &'a HeaderValue,
    pub(super) resource: Option<ResourcePath>,
    pub(super) user: Option<&'a UserInfo>,
    pub(super) verb: &'a str,
    pub(super) uri: &'a Uri,
    pub(super) headers: &'a HeaderMap,
    pub(super) address: Option<IpAddr>,
}

impl Trace {
    pub(super) fn begin(audit: &Arc<Audit>, beginning: Beginning<'_>) -> Arc<Trace> {
        let Beginning { plane, verdicts, audit_id, resource, user, verb, uri, headers, address } = beginning;
        let mut about = Vec::with_capacity(512);
        event::write_uri(uri, &mut about);
        write_member("verb", verb, &mut about);
        match user {
            Some(user) => event::write_user("user", user, &mut about),
            None => about.extend_from_slice(b"\"user\":{},"),
        }
        event::write_origin(headers, address, &mut about);
        let trace = Trace {
            audit: audit.clone(),
            plane,
            verdicts,
            audit_id: audit_id.clone(),
            resource,
            received: Timestamp::now(),
            about,
            learned: Mutex::default(),
        };
        trace.note(Stage::RequestReceived);
        Arc::new(trace)
    }

    fn level(&self) -> Level {
        self.verdicts[0].level.max(self.verdicts[1].level)
    }

    /// The plane, if the provider wants this noted.
    pub(super) fn of_provider(&self) -> Option<PlaneId> {
        (self.verdicts[0].level > Level::None).then(|| self.plane_id())
    }

    fn plane_id(&self) -> PlaneId {
        self.plane.as_ref().map_or(PlaneId::CORE, |(id, _)| *id)
    }

    fn asked(&self) -> Option<AskedResource<'_>> {
        self.resource.as_ref().map(asked)
    }

    fn is_confidential(&self, learned: &Learned) -> bool {
        learned.is_confidential || self.asked().as_ref().is_some_and(holds_credentials)
    }

    /// As whom the request acts.
    pub(crate) fn acts_as(&self, user: &UserInfo) {
        self.learned.lock().impersonated = Some(user.clone());
    }

    /// What the client sent.
    pub(crate) fn heard(&self, object: &Value) {
        let mut learned = self.learned.lock();
        let text = |path: &[&str]| object.str_at(path).unwrap_or_default().to_string();
        learned.name = text(&["metadata", "name"]);
        learned.uid = text(&["metadata", "uid"]);
        learned.resource_version = text(&["metadata", "resourceVersion"]);
        // Also where it does not belong: what is refused may be noted all the same.
        learned.is_confidential = is_credential(object);
        if self.level() < Level::Request || learned.is_confidential {
            return;
        }
        // What is far too long is not even written.
        let fits = object.heap_bytes() <= 16 * BODY_BYTES_MAX && object.to_vec().len() <= BODY_BYTES_MAX;
        match fits {
            true => learned.request = Some(object.clone()),
            false => learned.truncated = true,
        }
    }

    /// What the object is called, where the server chose the name.
    pub(crate) fn named(&self, name: &str) {
        let mut learned = self.learned.lock();
        if learned.name.is_empty() {
            learned.name = name.to_string();
        }
    }

    pub(crate) fn annotated(&self, annotations: Vec<(String, String)>) {
        self.learned.lock().annotations = annotations;
    }

    pub(crate) fn failed(&self, status: &Status) {
        self.learned.lock().failure = Some(status.clone());
    }

    pub(crate) fn panicked(&self) {
        self.learned.lock().panicked = true;
    }

    /// The answer is there, and about to be sent.
    pub(crate) fn answered(self: Arc<Self>, answer: &mut Answer, is_long_running: bool) {
        self.learned.lock().code = answer.status().as_u16();
        let wants = self.level() == Level::RequestResponse && !is_long_running;
        let writing = wants.then(|| Writing::of(answer.headers())).flatten();
        if wants && writing.is_none() {
            self.learned.lock().truncated = true;
        }
        if is_long_running && answer.status().is_success() {
            self.note(Stage::ResponseStarted);
            answer.body_mut().close_with(Closing { trace: self, kept: None });
            return;
        }
        match answer.body().whole_bytes() {
            Some(bytes) => {
                if let Some(writing) = writing {
                    self.told(bytes, writing);
                }
                self.complete();
            }
            None => {
                let kept = writing.map(|writing| (writing, Vec::new()));
                answer.body_mut().close_with(Closing { trace: self, kept });
            }
        }
    }

    fn told(&self, bytes: &[u8], writing: Writing) {
        // Before anybody waits for the lock.
        let read = (bytes.len() <= BODY_BYTES_MAX).then(|| writing.read(bytes)).flatten();
        let mut learned = self.learned.lock();
        match read {
            // What is answered to a credential may repeat it.
            Some(value) if learned.is_confidential || is_credential(&value) => {}
            Some(value) => learned.response = Some(value),
            None => learned.truncated = true,
        }
    }

    fn complete(&self) {
        let panicked = self.learned.lock().panicked;
        self.note(if panicked { Stage::Panic } else { Stage::ResponseComplete });
    }

    /// Writes the event of a stage for whoever wants it.
    fn note(&self, stage: Stage) {
        let [provider, plane] = self.verdicts;
        let id = self.plane_id();
        let alike =
            provider.level == plane.level && provider.omit_managed_fields == plane.omit_managed_fields;
        let wanted = [(provider, Outlets::Provider), (plane, Outlets::Plane)];
        if alike && provider.notes(stage) && plane.notes(stage) {
            return self.write(stage, &provider, id, Outlets::Both);
        }
        for (verdict, outlets) in wanted.iter().filter(|(verdict, _)| verdict.notes(stage)) {
            self.write(stage, verdict, id, *outlets);
        }
    }

    fn write(&self, stage: Stage, verdict: &Verdict, plane: PlaneId, outlets: Outlets) {
        let now = if stage == Stage::RequestReceived { self.received } else { Timestamp::now() };
        self.audit.with_buffer(|out| {
            self.write_tail(stage, verdict, now, out);
            self.audit.push(plane, outlets, now.as_second(), out);
        });
    }

    fn write_tail(&self, stage: Stage, verdict: &Verdict, now: Timestamp, out: &mut Vec<u8>) {
        let learned = self.learned.lock();
        write_member("level", verdict.level.name(), out);
        write_member("auditID", self.audit_id.to_str().unwrap_or_default(), out);
        write_member("stage", stage.name(), out);
        out.extend_from_slice(&self.about);
        if let Some(user) = &learned.impersonated {
            event::write_user("impersonatedUser", user, out);
        }
        if let Some(resource) = &self.resource {
            write_object(resource, &learned, out);
        }
        if stage != Stage::RequestReceived {
            self.write_status(&learned, out);
            let omits = verdict.omit_managed_fields;
            if verdict.level >= Level::Request
                && let Some(object) = &learned.request
            {
                write_body("requestObject", object, omits, out);
            }
            if verdict.level == Level::RequestResponse
                && let Some(object) = &learned.response
            {
                write_body("responseObject", object, omits, out);
            }
        }
        for (key, time) in [("requestReceivedTimestamp", self.received), ("stageTimestamp", now)] {
            out.push(b'"');
            out.extend_from_slice(key.as_bytes());
            out.extend_from_slice(b"\":\"");
            event::write_time(time, out);
            out.extend_from_slice(b"\",");
        }
        out.extend_from_slice(b"\"annotations\":{");
        if let Some((_, name)) = &self.plane {
            write_member("polder.dev/plane", name.as_str(), out);
        }
        let confidential = self.is_confidential(&learned);
        for (key, text) in &learned.annotations {
            if !confidential || is_our_own(key) {
                write_string(key, out);
                out.push(b':');
                write_string(text, out);
                out.push(b',');
            }
        }
        if learned.truncated && verdict.level >= Level::Request {
            write_member(TRUNCATED, "true", out);
        }
        end_object(out);
        out.push(b'}');
    }

    fn write_status(&self, learned: &Learned, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\"responseStatus\":{\"metadata\":{},");
        if let Some(status) = &learned.failure {
            write_member("status", "Failure", out);
            // Words about a credential may repeat it.
            if !self.is_confidential(learned) {
                write_member("message", &status.message, out);
            }
            if let Some(reason) = status.reason {
                write_member("reason", reason.as_str(), out);
            }
        }
        out.extend_from_slice(format!("\"code\":{}}},", learned.code).as_bytes());
    }
}

pub(super) fn asked(path: &ResourcePath) -> AskedResource<'_> {
    AskedResource {
        group: &path.group,
        resource: &path.resource,
        subresource: &path.subresource,
        namespace: &path.namespace,
        name: &path.name,
    }
}

/// Annotations whose texts are not made of what the client sent.
fn is_our_own(key: &str) -> bool {
    const OWN: [&str; 6] = [
        "authentication.k8s.io/",
        "authentication.kubernetes.io/",
        "authorization.k8s.io/",
        "mutation.webhook.admission.k8s.io/",
        "pod-security.kubernetes.io/",
        "k8s.io/",
    ];
    OWN.iter().any(|own| key.starts_with(own))
}

/// Whether an object is a credential by what it says it is, or has what only a secret has; or a list of such.
fn is_credential(object: &Value) -> bool {
    let is_one = |object: &Value| {
        let kind = object.str_at(&["kind"]).unwrap_or_default();
        matches!(kind, "Secret" | "SecretList" | "TokenRequest" | "TokenReview")
            || object.get("stringData").is_some()
    };
    is_one(object) || object.array_at(&["items"]).iter().any(is_one)
}

/// How an answer is written.
#[derive(Clone, Copy)]
struct Writing {
    media: Media,
    is_gzip: bool,
}

impl Writing {
    /// `None` for what cannot be read here.
    fn of(headers: &HeaderMap) -> Option<Writing> {
        let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
        let media = match kind.split(';').next().unwrap_or_default().trim() {
            "application/json" => Media::Json,
            "application/yaml" => Media::Yaml,
            "application/vnd.kubernetes.protobuf" => Media::Protobuf,
            _ => return None,
        };
        let is_gzip = match headers.get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes) {
            None => false,
            Some(b"gzip") => true,
            Some(_) => return None,
        };
        Some(Writing { media, is_gzip })
    }

    fn read(self, bytes: &[u8]) -> Option<Value> {
        let mut opened = Vec::new();
        let bytes = match self.is_gzip {
            false => bytes,
            true => {
                let limit = BODY_BYTES_MAX as u64 + 1;
                flate2::read::GzDecoder::new(bytes).take(limit).read_to_end(&mut opened).ok()?;
                (opened.len() <= BODY_BYTES_MAX).then_some(&opened[..])?
            }
        };
        match self.media {
            Media::Json => Value::parse(bytes).ok(),
            Media::Yaml => serde_saphyr::from_str(std::str::from_utf8(bytes).ok()?).ok(),
            Media::Protobuf => protobuf::value(bytes),
        }
    }
}

fn write_object(path: &ResourcePath, learned: &Learned, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\"objectRef\":{");
    let name = if path.name.is_empty() { learned.name.as_str() } else { path.name.as_str() };
    for (key, text) in [
        ("resource", path.resource.as_str()),
        ("namespace", path.namespace.as_str()),
        ("name", name),
        ("uid", learned.uid.as_str()),
        ("apiGroup", path.group.as_str()),
        ("apiVersion", path.version.as_str()),
        ("resourceVersion", learned.resource_version.as_str()),
        ("subresource", path.subresource.as_str()),
    ] {
        if !text.is_empty() {
            write_member(key, text, out);
        }
    }
    end_object(out);
    out.push(b',');
}

fn write_body(key: &str, object: &Value, omit_managed_fields: bool, out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
    if omit_managed_fields {
        let mut object = object.clone();
        object.remove_at(&["metadata", "managedFields"]);
        if let Some(items) = object.at_mut(&["items"]).and_then(Value::as_array_mut) {
            for item in items {
                item.remove_at(&["metadata", "managedFields"]);
            }
        }
        object.write(out);
    } else {
        object.write(out);
    }
    out.push(b',');
}

/// Notes the end of an answer that is sent in pieces, when it is dropped.
pub(crate) struct Closing {
    trace: Arc<Trace>,
    /// What was sent, if somebody wants it noted.
    kept: Option<(Writing, Vec<u8>)>,
}

impl Closing {
    pub(crate) fn sent(&mut self, piece: &[u8]) {
        if let Some((_, kept)) = &mut self.kept
            && kept.len() <= BODY_BYTES_MAX
        {
            kept.extend_from_slice(piece);
        }
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        if let Some((writing, kept)) = self.kept.take() {
            self.trace.told(&kept, writing);
        }
        self.trace.complete();
    }
}
