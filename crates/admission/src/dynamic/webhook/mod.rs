//! Admission webhooks: servers that a plane asks about its writes.

mod answer;
mod review;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polder_model::{FieldError, FieldPath, SmolStr, Value, format_smolstr};

use super::conditions::Conditions;
use super::expressions::Scope;
use super::matching::Matcher;

pub use answer::{Accepted, read};
pub(crate) use review::review;

/// Used where a webhook names none, and what upstream defaults to.
const TIMEOUT_SECONDS: i64 = 10;

/// One webhook of a configuration.
#[derive(Debug)]
pub struct Webhook {
    pub(crate) configuration: SmolStr,
    pub(crate) name: SmolStr,
    /// Unlike any other of the plane, also where names repeat.
    pub(crate) id: SmolStr,
    pub(crate) matcher: Matcher,
    pub(crate) conditions: Conditions,
    /// A call that fails refuses the request.
    pub(crate) fail: bool,
    /// It may be called for what is not to happen.
    pub(crate) dry_runs: bool,
    /// It wants to be asked again when others changed the object after it.
    pub(crate) again: bool,
    pub(crate) timeout: Duration,
    /// The form of review it understands, if we speak one of those.
    pub(crate) version: Option<ReviewVersion>,
    pub(crate) endpoint: Arc<Endpoint>,
}

/// The forms of review that we speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    V1,
    V1beta1,
}

impl ReviewVersion {
    pub(crate) fn api_version(self) -> &'static str {
        match self {
            ReviewVersion::V1 => "admission.k8s.io/v1",
            ReviewVersion::V1beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

/// Where a webhook listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    pub location: Location,
    /// The authorities its certificate may come from, as PEM; empty means those of the system.
    pub authorities: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// `https://host[:port]/path`.
    Url(SmolStr),
    /// A service of the plane.
    Service { namespace: SmolStr, name: SmolStr, path: SmolStr, port: u16 },
}

impl Endpoint {
    /// From a `clientConfig`.
    pub fn read(client: &Value) -> Endpoint {
        let text = |path: &[&str]| SmolStr::new(client.str_at(path).unwrap_or_default());
        let location = match client.get("service").filter(|service| !service.is_null()) {
            None => Location::Url(text(&["url"])),
            Some(_) => Location::Service {
                namespace: text(&["service", "namespace"]),
                name: text(&["service", "name"]),
                path: text(&["service", "path"]),
                port: client
                    .i64_at(&["service", "port"])
                    .and_then(|port| u16::try_from(port).ok())
                    .unwrap_or(443),
            },
        };
        let authorities = STANDARD.decode(client.str_at(&["caBundle"]).unwrap_or_default());
        Endpoint { location, authorities: authorities.unwrap_or_default() }
    }

    /// The address as errors show it, without a query.
    pub fn url(&self) -> String {
        match &self.location {
            Location::Url(url) => url.to_string(),
            Location::Service { namespace, name, path, port } => {
                format!("https://{name}.{namespace}.svc:{port}/{}", path.trim_start_matches('/'))
            }
        }
    }
}

impl Webhook {
    /// The webhooks of a configuration, in its order, and what is wrong with their expressions.
    pub fn read_all(configuration: &Value) -> (Vec<Webhook>, Vec<FieldError>) {
        let mut problems = Vec::new();
        let name = SmolStr::new(configuration.str_at(&["metadata", "name"]).unwrap_or_default());
        let all = configuration.array_at(&["webhooks"]).iter().enumerate();
        let scope = Scope { authorizer: true, ..Scope::default() };
        let webhooks =
            all.map(|(index, webhook)| Webhook::read(&name, index, webhook, &scope, &mut problems)).collect();
        (webhooks, problems)
    }

    fn read(
        configuration: &SmolStr,
        index: usize,
        webhook: &Value,
        scope: &Scope,
        problems: &mut Vec<FieldError>,
    ) -> Webhook {
        let text = |field: &str| webhook.str_at(&[field]).unwrap_or_default();
        let list = FieldPath::root("webhooks");
        let path = list.index(index);
        let versions = webhook.array_at(&["admissionReviewVersions"]).iter().filter_map(Value::as_str);
        let mut known = versions.filter_map(|version| match version {
            "v1" => Some(ReviewVersion::V1),
            "v1beta1" => Some(ReviewVersion::V1beta1),
            _ => None,
        });
        let seconds = webhook.i64_at(&["timeoutSeconds"]).unwrap_or(TIMEOUT_SECONDS).clamp(1, 30);
        let empty = Value::Null;
        Webhook {
            configuration: configuration.clone(),
            name: text("name").into(),
            id: format_smolstr!("{configuration}/{}/{index}", text("name")),
            matcher: Matcher::read(webhook, "rules"),
            conditions: Conditions::read(webhook, scope, &path, problems),
            fail: text("failurePolicy") != "Ignore",
            dry_runs: matches!(text("sideEffects"), "None" | "NoneOnDryRun"),
            again: text("reinvocationPolicy") == "IfNeeded",
            timeout: Duration::from_secs(seconds.unsigned_abs()),
            version: known.next(),
            endpoint: Arc::new(Endpoint::read(webhook.get("clientConfig").unwrap_or(&empty))),
        }
    }

    /// Stands for one that takes more memory than there is for it: calling it fails.
    pub fn without_room(self) -> Webhook {
        Webhook { conditions: Conditions::default(), version: None, ..self }
    }

    /// About how much memory it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Webhook>() + self.conditions.bytes() + self.endpoint.authorities.len()
    }
}
