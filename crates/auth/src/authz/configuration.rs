//! `AuthorizationConfiguration` of `apiserver.config.k8s.io`: who is asked what somebody may do, in which order.
//!
//! Read strictly (`crate::document`); what is wrong is told in upstream's words. `AlwaysAllow`, `AlwaysDeny` and `ABAC` are not
//! there: the first would open every tenant's plane to whoever is known in it.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use polder_model::go_duration::parse_duration;
use polder_model::{FieldError, FieldPath, SmolStr, Value, field, names};

pub use super::conditions::Conditions;
use super::webhook::ReviewVersion;
use crate::document::{self, ConfigurationError, Form};

const TYPES: [&str; 3] = ["Node", "RBAC", "Webhook"];
const TIMEOUT_MAX: Duration = Duration::from_secs(30);
const AUTHORIZED: Duration = Duration::from_secs(5 * 60);
const UNAUTHORIZED: Duration = Duration::from_secs(30);

/// What the file says.
#[derive(Debug)]
pub struct AuthorizationConfiguration {
    pub authorizers: Vec<AuthorizerEntry>,
}

#[derive(Debug)]
pub struct AuthorizerEntry {
    pub name: SmolStr,
    pub kind: AuthorizerKind,
}

#[derive(Debug)]
pub enum AuthorizerKind {
    Node,
    Rbac,
    Webhook(WebhookSettings),
}

impl AuthorizerKind {
    /// As the file has it.
    pub fn name(&self) -> &'static str {
        match self {
            AuthorizerKind::Node => "Node",
            AuthorizerKind::Rbac => "RBAC",
            AuthorizerKind::Webhook(_) => "Webhook",
        }
    }
}

/// How a webhook is asked.
#[derive(Debug)]
pub struct WebhookSettings {
    /// For an answer, with the wait for a place.
    pub timeout: Duration,
    /// How long a yes is remembered.
    pub authorized: Duration,
    /// How long everything else is.
    pub unauthorized: Duration,
    pub version: ReviewVersion,
    pub failure: FailurePolicy,
    pub kubeconfig: PathBuf,
    pub conditions: Conditions,
    /// What was read: what is the same need not be made again.
    pub source: Value,
}

/// What it means that the webhook could not be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// Others are asked.
    NoOpinion,
    /// No.
    Deny,
}

impl AuthorizationConfiguration {
    /// Reads a document.
    pub fn read(document: &Value) -> Result<AuthorizationConfiguration, ConfigurationError> {
        document::check(document, "AuthorizationConfiguration", &FILE)?;
        let mut errors = Vec::new();
        let authorizers = read_authorizers(document.array_at(&["authorizers"]), &mut errors);
        if !errors.is_empty() {
            return Err(ConfigurationError::Invalid(field::join(&errors)));
        }
        Ok(AuthorizationConfiguration { authorizers })
    }
}

fn read_authorizers(all: &[Value], errors: &mut Vec<FieldError>) -> Vec<AuthorizerEntry> {
    let path = FieldPath::root("authorizers");
    if all.is_empty() {
        errors.push(FieldError::required(path, "at least one authorization mode must be defined"));
    }
    let (mut types, mut known_names) = (HashSet::new(), HashSet::new());
    let mut entries = Vec::new();
    for (index, value) in all.iter().enumerate() {
        let path = path.index(index);
        let text = |name: &str| value.str_at(&[name]).unwrap_or_default();
        let (kind, name) = (text("type"), text("name"));
        if kind.is_empty() {
            errors.push(FieldError::required(path.member("type"), ""));
            continue;
        }
        if !TYPES.contains(&kind) {
            errors.push(FieldError::not_supported(path.member("type"), kind, TYPES));
            continue;
        }
        if !types.insert(kind) && kind != "Webhook" {
            errors.push(FieldError::duplicate(path.member("type"), kind));
            continue;
        }
        if name.is_empty() {
            errors.push(FieldError::required(path.member("name"), ""));
        } else if known_names.contains(name) {
            errors.push(FieldError::duplicate(path.member("name"), name));
        } else {
            let problems: Vec<&str> = names::dns_subdomain_problems(name).collect();
            if !problems.is_empty() {
                let why = format!("authorizer name is invalid: {}", problems.join(", "));
                errors.push(FieldError::invalid(path.member("name"), name, why));
            }
        }
        known_names.insert(name);
        let own = value.get("webhook").filter(|own| !own.is_null());
        let kind = match (kind, own) {
            ("Webhook", None) => {
                errors.push(FieldError::required(path.member("webhook"), "required when type=Webhook"));
                continue;
            }
            ("Webhook", Some(own)) => match webhook(own, &path, errors) {
                Some(settings) => AuthorizerKind::Webhook(settings),
                None => continue,
            },
            (_, Some(_)) => {
                let why = "may only be specified when type=Webhook";
                errors.push(FieldError::invalid(path.member("webhook"), "non-null", why));
                continue;
            }
            ("Node", None) => AuthorizerKind::Node,
            (_, None) => AuthorizerKind::Rbac,
        };
        entries.push(AuthorizerEntry { name: name.into(), kind });
    }
    entries
}

/// Fields are named without the `webhook` they are in, as upstream names them.
fn webhook(own: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) -> Option<WebhookSettings> {
    let before = errors.len();
    let text = |name: &str| own.str_at(&[name]).unwrap_or_default();
    let timeout = duration(own, "timeout", None, Some(TIMEOUT_MAX), path, errors);
    let authorized = duration(own, "authorizedTTL", Some(AUTHORIZED), None, path, errors);
    let unauthorized = duration(own, "unauthorizedTTL", Some(UNAUTHORIZED), None, path, errors);
    // What is not to be remembered is remembered for no time.
    let cached = |flag: &str, ttl: Option<Duration>| match own.get(flag) {
        Some(Value::Bool(false)) => ttl.map(|_| Duration::ZERO),
        _ => ttl,
    };
    let (authorized, unauthorized) =
        (cached("cacheAuthorizedRequests", authorized), cached("cacheUnauthorizedRequests", unauthorized));
    let version = chosen(
        text("subjectAccessReviewVersion"),
        [("v1", ReviewVersion::V1), ("v1beta1", ReviewVersion::V1Beta1)],
        &path.member("subjectAccessReviewVersion"),
        errors,
    );
    let of_conditions = "matchConditionSubjectAccessReviewVersion";
    chosen(text(of_conditions), [("v1", ())], &path.member(of_conditions), errors);
    let failure = chosen(
        text("failurePolicy"),
        [("NoOpinion", FailurePolicy::NoOpinion), ("Deny", FailurePolicy::Deny)],
        &path.member("failurePolicy"),
        errors,
    );
    let kubeconfig = connection(own, &path.member("connectionInfo"), errors);
    let conditions = Conditions::read(own.array_at(&["matchConditions"]), path, errors);
    if errors.len() > before {
        return None;
    }
    Some(WebhookSettings {
        timeout: timeout?,
        authorized: authorized?,
        unauthorized: unauthorized?,
        version: version?,
        failure: failure?,
        kubeconfig: kubeconfig?,
        conditions,
        source: own.clone(),
    })
}

/// One of a few words.
fn chosen<T, const N: usize>(
    text: &str,
    all: [(&'static str, T); N],
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) -> Option<T> {
    if text.is_empty() {
        errors.push(FieldError::required(path, ""));
        return None;
    }
    let words = all.each_ref().map(|(word, _)| *word);
    let found = all.into_iter().find(|(word, _)| *word == text).map(|(_, value)| value);
    if found.is_none() {
        errors.push(FieldError::not_supported(path, text, words));
    }
    found
}

fn duration(
    own: &Value,
    name: &'static str,
    default: Option<Duration>,
    most: Option<Duration>,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) -> Option<Duration> {
    let path = path.member(name);
    let text = own.str_at(&[name]).unwrap_or_default();
    let read = match text {
        "" => Ok(Some(default.unwrap_or_default())),
        text => parse_duration(text),
    };
    let mut wrong = |why: &str| errors.push(FieldError::invalid(path, text, why));
    match read {
        Err(error) => wrong(&error.to_string()),
        Ok(Some(Duration::ZERO)) => errors.push(FieldError::required(path, "")),
        Ok(found) => match found.filter(|found| most.is_none_or(|most| *found <= most)) {
            Some(found) => return Some(found),
            None if most.is_some() => wrong("must be > 0s and <= 30s"),
            None => wrong("must be > 0s"),
        },
    }
    None
}

/// Where the webhook is.
fn connection(own: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) -> Option<PathBuf> {
    let text = |name: &str| own.str_at(&["connectionInfo", name]).unwrap_or_default();
    let (kind, file) = (text("type"), text("kubeConfigFile"));
    let file_path = path.member("kubeConfigFile");
    match kind {
        "" => errors.push(FieldError::required(path.member("type"), "")),
        "KubeConfigFile" if file.is_empty() => errors.push(FieldError::required(file_path, "")),
        "KubeConfigFile" if !Path::new(file).is_absolute() => {
            errors.push(FieldError::invalid(file_path, file, "must be an absolute path"));
        }
        "KubeConfigFile" => return Some(PathBuf::from(file)),
        // There is no cluster this server runs in.
        _ => errors.push(FieldError::not_supported(path.member("type"), kind, ["KubeConfigFile"])),
    }
    None
}

const FILE: Form =
    Form::Members(&[("apiVersion", Form::Text), ("kind", Form::Text), ("authorizers", Form::List(&ENTRY))]);
static ENTRY: Form = Form::Members(&[
    ("type", Form::Text),
    ("name", Form::Text),
    (
        "webhook",
        Form::Members(&[
            ("authorizedTTL", Form::Text),
            ("cacheAuthorizedRequests", Form::Flag),
            ("unauthorizedTTL", Form::Text),
            ("cacheUnauthorizedRequests", Form::Flag),
            ("timeout", Form::Text),
            ("subjectAccessReviewVersion", Form::Text),
            ("matchConditionSubjectAccessReviewVersion", Form::Text),
            ("failurePolicy", Form::Text),
            ("connectionInfo", Form::Members(&[("type", Form::Text), ("kubeConfigFile", Form::Text)])),
            ("matchConditions", Form::List(&Form::Members(&[("expression", Form::Text)]))),
        ]),
    ),
]);

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    fn read(authorizers: Value) -> Result<AuthorizationConfiguration, ConfigurationError> {
        AuthorizationConfiguration::read(&json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration", "authorizers": authorizers,
        }))
    }

    fn entry(changes: &[(&[&str], Value)]) -> Value {
        let mut entry = json!({"type": "Webhook", "name": "iam", "webhook": {
            "timeout": "3s", "subjectAccessReviewVersion": "v1", "matchConditionSubjectAccessReviewVersion": "v1",
            "failurePolicy": "Deny", "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": "/etc/iam.kubeconfig"},
        }});
        for (path, value) in changes {
            entry.set_at(path, value.clone());
        }
        entry
    }

    #[track_caller]
    fn refused(authorizers: Value, expected: &str) {
        let said = read(authorizers).unwrap_err().to_string();
        assert!(said.contains(expected), "{said}\nlacks {expected}");
    }

    #[test]
    fn authorizers_in_order() {
        let all = json!([{"type": "Node", "name": "nodes"}, (entry(&[])), {"type": "RBAC", "name": "roles"}]);
        let read = read(all).unwrap();
        let shown: Vec<_> = read.authorizers.iter().map(|one| (one.kind.name(), one.name.as_str())).collect();
        assert_eq!(shown, [("Node", "nodes"), ("Webhook", "iam"), ("RBAC", "roles")]);
        let AuthorizerKind::Webhook(own) = &read.authorizers[1].kind else { panic!("no webhook") };
        assert_eq!(
            (own.timeout, own.authorized, own.unauthorized),
            (Duration::from_secs(3), AUTHORIZED, UNAUTHORIZED)
        );
        assert_eq!((own.failure, own.version), (FailurePolicy::Deny, ReviewVersion::V1));
        assert_eq!(own.kubeconfig, PathBuf::from("/etc/iam.kubeconfig"));
    }

    #[test]
    fn what_is_not_to_be_remembered() {
        let own = entry(&[
            (&["webhook", "cacheAuthorizedRequests"], json!(false)),
            (&["webhook", "unauthorizedTTL"], json!("1m30s")),
        ]);
        let read = read(json!([own])).unwrap();
        let AuthorizerKind::Webhook(own) = &read.authorizers[0].kind else { panic!("no webhook") };
        assert_eq!((own.authorized, own.unauthorized), (Duration::ZERO, Duration::from_secs(90)));
    }

    #[test]
    fn what_is_wrong_is_told() {
        refused(json!([]), "authorizers: Required value: at least one authorization mode must be defined");
        refused(json!([{"name": "a"}]), "authorizers[0].type: Required value");
        let known = r#"supported values: "Node", "RBAC", "Webhook""#;
        for kind in ["AlwaysAllow", "ABAC", "rbac"] {
            let expected = format!("authorizers[0].type: Unsupported value: {kind:?}: {known}");
            refused(json!([{"type": kind, "name": "a"}]), &expected);
        }
        let rbac = |name: &str| json!({"type": "RBAC", "name": name});
        refused(json!([(rbac("a")), (rbac("b"))]), r#"authorizers[1].type: Duplicate value: "RBAC""#);
        refused(json!([(entry(&[])), (entry(&[]))]), r#"authorizers[1].name: Duplicate value: "iam""#);
        refused(json!([(rbac(""))]), "authorizers[0].name: Required value");
        refused(
            json!([(rbac("A_b"))]),
            r#"authorizers[0].name: Invalid value: "A_b": authorizer name is invalid: "#,
        );
        refused(
            json!([{"type": "Webhook", "name": "a"}]),
            "authorizers[0].webhook: Required value: required when type=Webhook",
        );
        refused(
            json!([{"type": "RBAC", "name": "a", "webhook": {}}]),
            r#"authorizers[0].webhook: Invalid value: "non-null": may only be specified when type=Webhook"#,
        );
        let rows: [(&[&str], Value, &str); 19] = [
            (&["timeout"], json!(null), "timeout: Required value"),
            (&["timeout"], json!("31s"), r#"timeout: Invalid value: "31s": must be > 0s and <= 30s"#),
            (&["timeout"], json!("-1s"), r#"timeout: Invalid value: "-1s": must be > 0s and <= 30s"#),
            (&["timeout"], json!("3"), r#"timeout: Invalid value: "3": time: missing unit in duration "3""#),
            (&["authorizedTTL"], json!("-1s"), r#"authorizedTTL: Invalid value: "-1s": must be > 0s"#),
            (&["unauthorizedTTL"], json!("0s"), "unauthorizedTTL: Required value"),
            (&["subjectAccessReviewVersion"], json!(""), "subjectAccessReviewVersion: Required value"),
            (
                &["subjectAccessReviewVersion"],
                json!("v2"),
                r#"subjectAccessReviewVersion: Unsupported value: "v2": supported values: "v1", "v1beta1""#,
            ),
            (
                &["matchConditionSubjectAccessReviewVersion"],
                json!("v1beta1"),
                r#"matchConditionSubjectAccessReviewVersion: Unsupported value: "v1beta1": supported values: "v1""#,
            ),
            (&["failurePolicy"], json!(""), "failurePolicy: Required value"),
            (
                &["failurePolicy"],
                json!("Allow"),
                r#"failurePolicy: Unsupported value: "Allow": supported values: "#,
            ),
            (&["connectionInfo", "type"], json!(""), "connectionInfo.type: Required value"),
            (
                &["connectionInfo", "type"],
                json!("InClusterConfig"),
                r#"connectionInfo.type: Unsupported value: "InClusterConfig": supported values: "KubeConfigFile""#,
            ),
            (
                &["connectionInfo", "kubeConfigFile"],
                json!(""),
                "connectionInfo.kubeConfigFile: Required value",
            ),
            (&["connectionInfo", "kubeConfigFile"], json!("a/b"), "must be an absolute path"),
            (
                &["matchConditions"],
                json!([{"expression": "request.user"}]),
                "matchConditions[0].expression: Invalid value: \"request.user\": must evaluate to bool",
            ),
            (&["matchConditions"], json!([{"expression": "x"}]), "compilation failed: "),
            (
                &["cacheAuthorizedRequests"],
                json!("no"),
                "authorizers[0].webhook.cacheAuthorizedRequests must be true or false",
            ),
            (
                &["retries"],
                json!(3),
                r#"strict decoding error: unknown field "authorizers[0].webhook.retries""#,
            ),
        ];
        for (path, value, expected) in rows {
            let path: Vec<&str> = ["webhook"].iter().chain(path).copied().collect();
            refused(json!([(entry(&[(&path, value)]))]), expected);
        }
        let other =
            json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration"});
        let said = AuthorizationConfiguration::read(&other).unwrap_err().to_string();
        assert_eq!(
            said,
            r#"no kind "AuthenticationConfiguration" is registered for version "apiserver.config.k8s.io/v1""#
        );
    }
}
