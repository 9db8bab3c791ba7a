//! Who asks, in which plane, and with which options.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use polder_auth::UserInfo;
use polder_auth::authz::Decision;
use polder_model::{FieldError, GroupKind, SmolStr, Status, Value};
use polder_store::Plane;

/// One request on its way through the registry.
pub struct RequestContext {
    pub plane: Arc<Plane>,
    pub user: UserInfo,
    /// Somebody notes what was decided about the request.
    pub audited: bool,
    pub(crate) reading: Reading,
    /// It is a controller's, and goes through only where the store leads.
    pub(crate) needs_lead: bool,
    /// Somebody has decided that the request may do something.
    allowed: AtomicBool,
    /// What the client should know although the request worked; sent as `Warning` headers.
    warnings: Mutex<Vec<String>>,
    /// What the audit log should know.
    annotations: Mutex<Vec<(String, String)>>,
    /// Whose turn this is, if it needs one.
    pace: Mutex<Option<Arc<dyn Pace>>>,
    /// Why the request cannot go on, whatever else is said.
    refusal: Mutex<Option<Status>>,
}

/// In which version a request sees objects that a webhook of the plane converts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// In the one it asks for.
    Converted,
    /// In the one they are stored in, and nothing but their metadata may change: for our own programs, which look at no more of
    /// other people's kinds and must go on when the webhook does not answer.
    AsStored,
}

impl std::fmt::Debug for RequestContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let user = &self.user;
        f.debug_struct("RequestContext")
            .field("plane", &self.plane.id)
            .field("user", user)
            .finish_non_exhaustive()
    }
}

/// Whoever gave a request its turn, and must know when it does not use it.
pub trait Pace: Send + Sync {
    /// The request is about to wait for somebody outside; an error if there are too many of those.
    fn waits(&self) -> Result<(), Status>;
}

/// More warnings than this are not sent.
const WARNINGS_MAX: usize = 64;

impl RequestContext {
    pub fn new(plane: Arc<Plane>, user: UserInfo) -> RequestContext {
        RequestContext {
            plane,
            user,
            audited: false,
            reading: Reading::Converted,
            needs_lead: false,
            allowed: AtomicBool::new(false),
            warnings: Mutex::default(),
            annotations: Mutex::default(),
            pace: Mutex::default(),
            refusal: Mutex::default(),
        }
    }

    /// The same request without the help of webhooks that convert.
    pub(crate) fn without_conversion(self) -> RequestContext {
        RequestContext { reading: Reading::AsStored, ..self }
    }

    /// The same request by a controller.
    pub(crate) fn of_controller(self) -> RequestContext {
        RequestContext { needs_lead: true, ..self }
    }

    /// Says whose turn this is, or that it is over.
    pub fn set_pace(&self, pace: Option<Arc<dyn Pace>>) {
        *self.pace.lock() = pace;
    }

    /// Called before the request waits for a webhook. If it may not, it is refused, whatever the webhook is for.
    pub(crate) fn about_to_wait(&self) -> Result<(), String> {
        let Some(pace) = self.pace.lock().clone() else { return Ok(()) };
        pace.waits().map_err(|status| {
            let text = status.message.clone();
            self.refusal.lock().get_or_insert(status);
            text
        })
    }

    /// The same for whoever can say so at once.
    pub(crate) fn may_wait(&self) -> Result<(), Status> {
        let pace = self.pace.lock().clone();
        pace.map_or(Ok(()), |pace| pace.waits())
    }

    pub(crate) fn check_refusal(&self) -> Result<(), Status> {
        self.refusal.lock().take().map_or(Ok(()), Err)
    }

    pub fn warn(&self, text: impl Into<String>) {
        let text = text.into();
        let mut warnings = self.warnings.lock();
        if warnings.len() < WARNINGS_MAX && !warnings.contains(&text) {
            warnings.push(text);
        }
    }

    /// Notes something for the audit log; the last word about a key counts.
    pub fn annotate(&self, key: String, text: String) {
        let mut annotations = self.annotations.lock();
        annotations.retain(|(own, _)| *own != key);
        if annotations.len() < WARNINGS_MAX {
            annotations.push((key, text));
        }
    }

    /// Notes that an authorizer let the request pass.
    pub(crate) fn allow(&self) {
        self.allowed.store(true, Ordering::Relaxed);
    }

    /// Whether an authorizer has let the request pass. One that none was asked about must be given nothing.
    pub fn is_allowed(&self) -> bool {
        self.allowed.load(Ordering::Relaxed)
    }

    /// Notes who let the request pass, or that nobody did. What was decided first stays, unless somebody refuses later.
    pub(crate) fn decided(&self, decision: &Decision) {
        const DECISION: &str = "authorization.k8s.io/decision";
        let known = self.annotations.lock().iter().any(|(key, _)| key == DECISION);
        if known && decision.is_allow() {
            return;
        }
        let word = if decision.is_allow() { "allow" } else { "forbid" };
        self.annotate(DECISION.into(), word.into());
        self.annotate("authorization.k8s.io/reason".into(), decision.reason().to_string());
    }

    pub fn take_annotations(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.annotations.lock())
    }

    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.warnings.lock())
    }
}

/// What to do about fields nobody knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

/// What Kubernetes allows.
const FIELD_MANAGER_LEN_MAX: usize = 128;

/// Options of create, update and patch.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    pub dry_run: bool,
    pub field_validation: FieldValidation,
    /// The name under which the fields this write sets are owned.
    pub field_manager: Option<SmolStr>,
}

impl WriteOptions {
    /// Reads the query of a write; `kind` names the options in error messages: `CreateOptions`.
    pub fn from_query(query: &Query, kind: &'static str) -> Result<WriteOptions, Status> {
        let mut errors = Vec::new();
        let dry_run = dry_run(query.all("dryRun"), &mut errors);
        let field_validation = match query.get("fieldValidation").unwrap_or_default() {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                errors.push(FieldError::not_supported(
                    "fieldValidation",
                    other,
                    ["", "Ignore", "Strict", "Warn"],
                ));
                FieldValidation::Warn
            }
        };
        let field_manager = query.get("fieldManager").filter(|manager| !manager.is_empty());
        if let Some(manager) = field_manager {
            if manager.len() > FIELD_MANAGER_LEN_MAX {
                errors.push(FieldError::too_long("fieldManager", FIELD_MANAGER_LEN_MAX));
            } else if let Some((at, odd)) = manager.char_indices().find(|(_, odd)| odd.is_control()) {
                let why = format!("invalid character U+{:04X} (at position {at})", u32::from(odd));
                errors.push(FieldError::invalid("fieldManager", manager, why));
            }
        }
        invalid_options(kind, &errors)?;
        Ok(WriteOptions { dry_run, field_validation, field_manager: field_manager.map(SmolStr::new) })
    }
}

/// The name under which a program writes when it gives none: the first word of its `User-Agent`.
pub fn manager_of(user_agent: &str) -> Option<SmolStr> {
    let program = user_agent.split('/').next().unwrap_or_default();
    let mut name = String::new();
    for char in program.chars().filter(|char| !char.is_control()) {
        if name.len() + char.len_utf8() > FIELD_MANAGER_LEN_MAX {
            break;
        }
        name.push(char);
    }
    (!name.is_empty()).then(|| SmolStr::from(name))
}

/// `dryRun=All`, or nothing.
pub(crate) fn dry_run<'a>(values: impl Iterator<Item = &'a str>, errors: &mut Vec<FieldError>) -> bool {
    let values: Vec<&str> = values.collect();
    if values.iter().any(|value| *value != "All") {
        let given: Vec<Value> = values.iter().map(|value| Value::from(*value)).collect();
        errors.push(FieldError::not_supported("dryRun", given, ["All"]));
    }
    !values.is_empty()
}

pub(crate) fn invalid_options(kind: &'static str, errors: &[FieldError]) -> Result<(), Status> {
    if errors.is_empty() {
        return Ok(());
    }
    let kind = GroupKind { group: SmolStr::new_static("meta.k8s.io"), kind: SmolStr::new_static(kind) };
    Err(Status::invalid(&kind, "", errors))
}

/// A decoded query string.
#[derive(Clone, Debug, Default)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    pub fn new(pairs: Vec<(String, String)>) -> Query {
        Query { pairs }
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(own, _)| own == key).map(|(_, value)| value.as_str())
    }

    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(own, _)| own == key).map(|(_, value)| value.as_str())
    }

    /// `?watch`, `?watch=1`, `?watch=true` are true; `0` and `false` are not.
    pub fn flag(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }
}
