//! Bodies and answers in protobuf: which message one is, and what a client hears when it is none.

use polder_machinery::protobuf::envelope::{Envelope, decode_envelope, decode_enveloped};
use polder_machinery::protobuf::{MessageRef, ProtobufError};
use polder_machinery::schema::table::builtin;
use polder_model::{GroupVersion, Status, Value};
use polder_registry::Target;
use polder_registry::decode::{Document, Duplicates};

use crate::negotiate::Messages;

const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const PARTIAL: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.PartialObjectMetadata";
const PARTIAL_LIST: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.PartialObjectMetadataList";

/// A request body. It says itself what it is; whether that fits the path is the registry's question.
pub(crate) fn document(bytes: &[u8], target: &Target) -> Result<Document, Status> {
    let kind = &target.definition.kind;
    let mut envelope = decode_envelope(bytes).map_err(|error| unrecognized(kind, &error))?;
    if envelope.kind.is_empty() && target.subresource.is_empty() {
        envelope.kind = kind.clone();
    }
    if envelope.api_version.is_empty() && target.subresource.is_empty() {
        envelope.api_version = target.api_version();
    }
    open(&envelope)
}

/// The body of a delete request.
pub(crate) fn delete_options(bytes: &[u8]) -> Result<Document, Status> {
    let mut envelope = decode_envelope(bytes).map_err(|error| unrecognized("DeleteOptions", &error))?;
    if envelope.kind.is_empty() {
        envelope.kind = "DeleteOptions".into();
    }
    open(&envelope)
}

fn open(envelope: &Envelope<'_>) -> Result<Document, Status> {
    let Envelope { api_version, kind, .. } = envelope;
    let message = message_of(api_version, kind).ok_or_else(|| {
        Status::bad_request(format!("no kind {kind:?} is registered for version {api_version:?}"))
    })?;
    let value = decode_enveloped(envelope, message).map_err(|error| {
        let version = api_version.rsplit('/').next().unwrap_or_default();
        Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {error}"))
    })?;
    Ok(Document { value, duplicates: Duplicates::default() })
}

/// What an answer says. `None` for what is none of ours.
pub(crate) fn value(bytes: &[u8]) -> Option<Value> {
    open(&decode_envelope(bytes).ok()?).ok().map(|document| document.value)
}

/// The message of an answer, by what it says it is. `None` for documents that are none.
pub(crate) fn message(value: &Value) -> Option<MessageRef<'static>> {
    message_of(value.str_at(&["apiVersion"])?, value.str_at(&["kind"])?)
}

/// What of a resource is there in protobuf.
pub(crate) fn messages(target: &Target) -> Messages {
    let found = message_of(&target.api_version(), &target.definition.kind);
    match found {
        Some(_) if !target.definition.is_custom() => Messages::All,
        _ => Messages::Metadata,
    }
}

fn message_of(api_version: &str, kind: &str) -> Option<MessageRef<'static>> {
    match (api_version, kind) {
        // A kind of every group version.
        (_, "DeleteOptions") => return builtin().message(DELETE_OPTIONS),
        // Kinds of answers, no types of the API.
        ("meta.k8s.io/v1" | "meta.k8s.io/v1beta1", "PartialObjectMetadata") => {
            return builtin().message(PARTIAL);
        }
        ("meta.k8s.io/v1" | "meta.k8s.io/v1beta1", "PartialObjectMetadataList") => {
            return builtin().message(PARTIAL_LIST);
        }
        _ => {}
    }
    let kind = GroupVersion::parse(api_version)?.kind(kind);
    builtin().message(builtin().type_name(&kind)?)
}

fn unrecognized(kind: &str, error: &ProtobufError) -> Status {
    Status::bad_request(format!("object provided is unrecognized (must be of type {kind}): {error}"))
}

/// Negotiation offers protobuf only where there are messages.
pub(crate) fn no_message() -> Status {
    Status::internal("the object has no protobuf form")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Magic bytes, type meta and a raw message.
    fn enveloped(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let field = |number: u8, bytes: &[u8]| {
            let length = u8::try_from(bytes.len()).unwrap();
            [&[number << 3 | 2, length], bytes].concat()
        };
        let type_meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [b"k8s\0".to_vec(), field(1, &type_meta), field(2, raw)].concat()
    }

    #[test]
    fn delete_options_of_any_group() {
        fn check(bytes: &[u8], expected: &str) {
            let found = match delete_options(bytes) {
                Ok(document) => document.value.to_string(),
                Err(status) => format!("{} {}", status.code, status.message),
            };
            assert_eq!(found, expected);
        }
        check(
            &enveloped("apps/v1", "DeleteOptions", b"\x08\x05"),
            r#"{"apiVersion":"apps/v1","gracePeriodSeconds":5,"kind":"DeleteOptions"}"#,
        );
        check(&enveloped("", "", b"\x08\x00"), r#"{"gracePeriodSeconds":0,"kind":"DeleteOptions"}"#);
        check(
            &enveloped("v1", "DeleteOptions", b"\x08"),
            "400 DeleteOptions in version \"v1\" cannot be handled as a DeleteOptions: unexpected EOF",
        );
        check(&enveloped("v1", "Dike", b""), "400 no kind \"Dike\" is registered for version \"v1\"");
        check(
            b"{}",
            "400 object provided is unrecognized (must be of type DeleteOptions): provided data does not appear to \
             be a protobuf message, expected prefix [107 56 115 0]",
        );
    }

    #[test]
    fn answers_that_are_messages() {
        for (api_version, kind, expected) in [
            ("v1", "Pod", true),
            ("apps/v1", "DeploymentList", true),
            ("v1", "Status", true),
            ("autoscaling/v1", "Scale", true),
            ("meta.k8s.io/v1", "PartialObjectMetadataList", true),
            ("meta.k8s.io/v1beta1", "PartialObjectMetadata", true),
            ("meta.k8s.io/v1", "Table", false),
            ("example.org/v1", "Dike", false),
        ] {
            assert_eq!(message_of(api_version, kind).is_some(), expected, "{api_version} {kind}");
        }
    }
}
