//! Kubernetes `Status`: how every failure reaches a client, with upstream's reasons, codes and texts.

use smol_str::SmolStr;

use crate::field::{self, FieldError};
use crate::{GroupKind, GroupResource, Object, Value, json};

/// The machine-readable reason of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    NotFound,
    AlreadyExists,
    Conflict,
    Invalid,
    BadRequest,
    Unauthorized,
    Forbidden,
    MethodNotAllowed,
    NotAcceptable,
    UnsupportedMediaType,
    RequestEntityTooLarge,
    Expired,
    TooManyRequests,
    InternalError,
    ServiceUnavailable,
    Timeout,
}

impl Reason {
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::NotFound => "NotFound",
            Reason::AlreadyExists => "AlreadyExists",
            Reason::Conflict => "Conflict",
            Reason::Invalid => "Invalid",
            Reason::BadRequest => "BadRequest",
            Reason::Unauthorized => "Unauthorized",
            Reason::Forbidden => "Forbidden",
            Reason::MethodNotAllowed => "MethodNotAllowed",
            Reason::NotAcceptable => "NotAcceptable",
            Reason::UnsupportedMediaType => "UnsupportedMediaType",
            Reason::RequestEntityTooLarge => "RequestEntityTooLarge",
            Reason::Expired => "Expired",
            Reason::TooManyRequests => "TooManyRequests",
            Reason::InternalError => "InternalError",
            Reason::ServiceUnavailable => "ServiceUnavailable",
            Reason::Timeout => "Timeout",
        }
    }
}

/// A failure on its way to a client.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    pub code: u16,
    /// Absent for failures upstream leaves untyped.
    pub reason: Option<Reason>,
    pub message: String,
    pub details: Option<Box<Details>>,
    /// A fresh continue token, on an expired list.
    pub continue_token: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    pub name: SmolStr,
    pub group: SmolStr,
    /// The resource for most failures, the kind for invalid objects: upstream's habit.
    pub kind: SmolStr,
    pub uid: SmolStr,
    pub causes: Vec<Cause>,
    pub retry_after_seconds: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    pub reason: SmolStr,
    pub message: String,
    pub field: String,
}

impl Status {
    fn new(code: u16, reason: Reason, message: impl Into<String>) -> Status {
        Status { code, reason: Some(reason), message: message.into(), details: None, continue_token: None }
    }

    /// A failure with a code and a text but no reason, as upstream answers for a few odd cases.
    pub fn untyped(code: u16, message: impl Into<String>) -> Status {
        Status { code, reason: None, message: message.into(), details: None, continue_token: None }
    }

    fn about(mut self, resource: &GroupResource, name: &str) -> Status {
        let details = self.details_mut();
        details.name = SmolStr::new(name);
        details.group = resource.group.clone();
        details.kind = resource.resource.clone();
        self
    }

    fn details_mut(&mut self) -> &mut Details {
        self.details.get_or_insert_default()
    }

    pub fn with_cause(
        mut self,
        reason: &str,
        message: impl Into<String>,
        field: impl Into<String>,
    ) -> Status {
        self.details_mut().causes.push(Cause {
            reason: SmolStr::new(reason),
            message: message.into(),
            field: field.into(),
        });
        self
    }

    pub fn with_retry_after(mut self, seconds: u32) -> Status {
        self.details_mut().retry_after_seconds = seconds;
        self
    }

    pub fn not_found(resource: &GroupResource, name: &str) -> Status {
        Status::new(404, Reason::NotFound, format!("{resource} {name:?} not found")).about(resource, name)
    }

    /// The path names nothing that is served.
    pub fn path_not_found() -> Status {
        let mut status =
            Status::new(404, Reason::NotFound, "the server could not find the requested resource");
        status.details = Some(Box::default());
        status
    }

    pub fn already_exists(resource: &GroupResource, name: &str) -> Status {
        Status::new(409, Reason::AlreadyExists, format!("{resource} {name:?} already exists"))
            .about(resource, name)
    }

    pub fn conflict(resource: &GroupResource, name: &str, why: &str) -> Status {
        Status::new(
            409,
            Reason::Conflict,
            format!("Operation cannot be fulfilled on {resource} {name:?}: {why}"),
        )
        .about(resource, name)
    }

    /// The object changed since the client read it.
    pub fn modified(resource: &GroupResource, name: &str) -> Status {
        Status::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub fn invalid(kind: &GroupKind, name: &str, errors: &[FieldError]) -> Status {
        let mut status =
            Status::new(422, Reason::Invalid, format!("{kind} {name:?} is invalid: {}", field::join(errors)));
        let details = status.details_mut();
        details.name = SmolStr::new(name);
        details.group = kind.group.clone();
        details.kind = kind.kind.clone();
        details.causes = errors
            .iter()
            .map(|error| Cause {
                reason: SmolStr::new_static(error.kind.reason()),
                message: error.body(),
                field: error.path.clone(),
            })
            .collect();
        status
    }

    pub fn bad_request(message: impl Into<String>) -> Status {
        Status::new(400, Reason::BadRequest, message)
    }

    pub fn unauthorized() -> Status {
        Status::new(401, Reason::Unauthorized, "Unauthorized")
    }

    pub fn forbidden(resource: &GroupResource, name: &str, why: &str) -> Status {
        let subject = match (resource.resource.is_empty(), name.is_empty()) {
            (true, _) => "forbidden".to_string(),
            (false, true) => format!("{resource} is forbidden"),
            (false, false) => format!("{resource} {name:?} is forbidden"),
        };
        Status::new(403, Reason::Forbidden, format!("{subject}: {why}")).about(resource, name)
    }

    pub fn method_not_allowed() -> Status {
        let mut status = Status::new(
            405,
            Reason::MethodNotAllowed,
            "the server does not allow this method on the requested resource",
        );
        status.details = Some(Box::default());
        status
    }

    pub fn not_acceptable(accepted: &[&str]) -> Status {
        Status::new(
            406,
            Reason::NotAcceptable,
            format!("only the following media types are accepted: {}", accepted.join(", ")),
        )
    }

    pub fn unsupported_media_type(accepted: &[&str]) -> Status {
        Status::new(
            415,
            Reason::UnsupportedMediaType,
            format!(
                "the body of the request was in an unknown format - accepted media types include: {}",
                accepted.join(", ")
            ),
        )
    }

    pub fn too_large(message: impl Into<String>) -> Status {
        Status::new(413, Reason::RequestEntityTooLarge, message)
    }

    pub fn expired(message: impl Into<String>) -> Status {
        Status::new(410, Reason::Expired, message)
    }

    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Status {
        Status::new(429, Reason::TooManyRequests, message).with_retry_after(retry_after_seconds)
    }

    pub fn internal(message: impl Into<String>) -> Status {
        Status::new(500, Reason::InternalError, format!("Internal error occurred: {}", message.into()))
    }

    pub fn unavailable(message: impl Into<String>) -> Status {
        Status::new(503, Reason::ServiceUnavailable, message)
    }

    pub fn timeout(message: impl Into<String>) -> Status {
        Status::new(504, Reason::Timeout, message)
    }

    /// The disk is full: reads go on, writes wait for room.
    pub fn insufficient_storage(message: impl Into<String>) -> Status {
        Status::new(507, Reason::InternalError, message)
    }

    /// A resource version from the future: the client may try again in a moment.
    pub fn version_too_large(wanted: u64, current: u64) -> Status {
        Status::timeout(format!("Too large resource version: {wanted}, current: {current}"))
            .with_cause("ResourceVersionTooLarge", "Too large resource version", "")
            .with_retry_after(1)
    }

    /// The wire form.
    pub fn to_value(&self) -> Value {
        let mut metadata = Object::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue", token.as_str());
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure",
            "message": (self.message.as_str()), "code": (self.code),
        });
        if let Some(reason) = self.reason {
            status.set_at(&["reason"], reason.as_str());
        }
        if let Some(details) = &self.details {
            status.set_at(&["details"], details.to_value());
        }
        status
    }
}

impl Details {
    pub fn to_value(&self) -> Value {
        let mut out = Object::new();
        for (key, text) in
            [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)]
        {
            if !text.is_empty() {
                out.insert(key, text);
            }
        }
        if !self.causes.is_empty() {
            let causes = self.causes.iter().map(|cause| {
                let mut one = Object::new();
                for (key, text) in
                    [("reason", cause.reason.as_str()), ("message", &cause.message), ("field", &cause.field)]
                {
                    if !text.is_empty() {
                        one.insert(key, text);
                    }
                }
                Value::Object(one)
            });
            out.insert("causes", causes.collect::<Vec<_>>());
        }
        if self.retry_after_seconds > 0 {
            out.insert("retryAfterSeconds", self.retry_after_seconds);
        }
        Value::Object(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_read_like_upstream() {
        let pods = GroupResource::new("", "pods");
        let deployments = GroupResource::new("apps", "deployments");
        assert_eq!(Status::not_found(&pods, "x").message, r#"pods "x" not found"#);
        assert_eq!(Status::not_found(&deployments, "x").message, r#"deployments.apps "x" not found"#);
        assert_eq!(Status::forbidden(&pods, "x", "no").message, r#"pods "x" is forbidden: no"#);
        let invalid = Status::invalid(
            &GroupKind { group: "apps".into(), kind: "Deployment".into() },
            "x",
            &[FieldError::required("spec.selector", "")],
        );
        assert_eq!(invalid.message, r#"Deployment.apps "x" is invalid: spec.selector: Required value"#);
        assert_eq!(
            invalid.to_value().get("details").unwrap().to_string(),
            r#"{"causes":[{"field":"spec.selector","message":"Required value","reason":"FieldValueRequired"}],"group":"apps","kind":"Deployment","name":"x"}"#
        );
    }
}
