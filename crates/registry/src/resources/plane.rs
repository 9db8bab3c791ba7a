//! Planes: the control planes of tenants, as objects of the core plane.
//!
//! `spec.forkFrom` is the name of a plane, or `layer/` and the name of a Layer. It says where a plane began and never
//! changes afterwards. `spec.profile` says what a new plane is for; a fork has that of its source.

use polder_model::names::dns_label_problem;
use polder_model::{FieldError, FieldPath, PlaneName, Value};
use polder_store::Profile;

use super::checks::{Errors, immutable, some, text};
use super::own_kinds::{self, parse_schema, validate_display_name};
use super::plane_authentication;
use crate::audit::policy::Policy;
use crate::behavior::{Behavior, NameRule};

const LAYER_PREFIX: &str = "layer/";

/// What a plane may use; a missing limit is the server's default.
pub(crate) const LIMITS: [&str; 7] =
    ["objects", "storedBytes", "objectBytes", "watches", "requestsInFlight", "requestsPerSecond", "weight"];
/// No plane is more important than this: a hundred times the usual.
const WEIGHT_MAX: i64 = 10_000;

pub(crate) const PLANE: Behavior = Behavior {
    group: own_kinds::GROUP,
    resource: "planes",
    names: NameRule::Label,
    generation: true,
    unconditional_update: false,
    columns: &own_kinds::columns("URL"),
    cells: |object, print| own_kinds::cells(object, &["status", "url"], print),
    validate,
    ..Behavior::PLAIN
};

/// Where a plane begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin<'a> {
    Plane(&'a str),
    Layer(&'a str),
}

/// Reads `spec.forkFrom`.
pub(crate) fn origin(fork_from: &str) -> Origin<'_> {
    match fork_from.strip_prefix(LAYER_PREFIX) {
        Some(layer) => Origin::Layer(layer),
        None => Origin::Plane(fork_from),
    }
}

/// What the core plane holds is the provider's, and every tenant's name is in it.
pub(super) const NO_COPY_OF_CORE: &str = "the provider's own plane cannot be copied";

/// The core plane is no tenant: it cannot be made, and its name cannot be taken.
pub(super) fn validate_not_core(object: &Value, errors: &mut Errors) {
    let name = object.str_at(&["metadata", "name"]).unwrap_or_default();
    if name == PlaneName::CORE.as_str() {
        errors.push(FieldError::invalid("metadata.name", name, "is reserved for the provider's own plane"));
    }
}

fn validate(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = new.get("spec").unwrap_or(&empty);
    let path = FieldPath::root("spec");
    validate_not_core(new, errors);
    validate_display_name(spec, &path, errors);
    if let Some(fork_from) = some(spec, "forkFrom").and_then(Value::as_str) {
        let name = match origin(fork_from) {
            Origin::Plane(name) | Origin::Layer(name) => name,
        };
        if let Some(problem) = dns_label_problem(name) {
            let why = format!("must be the name of a plane, or 'layer/' and the name of a layer: {problem}");
            errors.push(FieldError::invalid(path.member("forkFrom"), fork_from, why));
        }
        if fork_from == PlaneName::CORE.as_str() {
            errors.push(FieldError::invalid(path.member("forkFrom"), fork_from, NO_COPY_OF_CORE));
        }
    }
    if let Some(profile) = some(spec, "profile").and_then(Value::as_str) {
        validate_profile(spec, profile, &path, errors);
    }
    if let Some(policy) = some(spec, "auditPolicy")
        && let Err(mistakes) = Policy::read(policy, &path.member("auditPolicy"))
    {
        errors.extend(mistakes);
    }
    let limits_path = path.member("limits");
    for key in LIMITS {
        if let Some(number) = spec.i64_at(&["limits", key]).filter(|number| *number < 0) {
            let why = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(limits_path.member(key), number, why));
        }
    }
    if let Some(weight) = spec.i64_at(&["limits", "weight"]).filter(|weight| *weight > WEIGHT_MAX) {
        let why = format!("must be less than or equal to {WEIGHT_MAX}");
        errors.push(FieldError::invalid(limits_path.member("weight"), weight, why));
    }
    plane_authentication::validate(spec, old.and_then(|old| old.get("spec")), &path, errors);
    match old {
        Some(old) => {
            for key in ["forkFrom", "profile"] {
                immutable(spec, old.get("spec").unwrap_or(&empty), key, &path, errors);
            }
        }
        None => {
            let name = new.str_at(&["metadata", "name"]).unwrap_or_default();
            if text(spec, "forkFrom") == name && !name.is_empty() {
                errors.push(FieldError::invalid(path.member("forkFrom"), name, "must be another plane"));
            }
        }
    }
}

fn validate_profile(spec: &Value, profile: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    if !text(spec, "forkFrom").is_empty() {
        let why = "a fork has the profile of its source: leave it out";
        errors.push(FieldError::invalid(path.member("profile"), profile, why));
    }
    let nodes = spec.i64_at(&["simulatedNodes"]).unwrap_or_default();
    if profile == Profile::Generic.name() && nodes > 0 {
        let why = "a plane of profile generic has no nodes";
        errors.push(FieldError::invalid(path.member("simulatedNodes"), nodes, why));
    }
}

/// The structural schema, as a CRD of this kind would carry it.
pub(super) fn schema() -> Value {
    let text = r#"{
        "type": "object", "description": "A control plane of a tenant: a Kubernetes API of its own, apart from all others. Deleting it deletes everything inside.",
        "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
            "spec": {"type": "object", "description": "Where the plane begins, what it is called and what it may use.", "properties": {
                "forkFrom": {"type": "string", "description": "Where the plane begins: the name of a plane, or layer/ and the name of a Layer. Empty: a new plane. Cannot be changed."},
                "profile": {"type": "string", "enum": ["cluster", "generic"], "description": "What a new plane is for: cluster, the default, has every kind; generic has no pods, nodes, workloads, networking or storage. Cannot be changed. A fork has that of its source."},
                "displayName": {"type": "string", "maxLength": 256, "description": "What people call the plane."},
                "simulatedNodes": {"type": "integer", "format": "int64", "minimum": 0, "maximum": 1000, "description": "How many simulated nodes the plane has: pods are scheduled to them and run there as far as the API can tell, for development and tests. Nothing is executed."},
                "auditPolicy": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "description": "What is noted in the plane's own audit trail: rules, omitStages and omitManagedFields of an audit.k8s.io/v1 Policy. Empty: who changed what."},
                "limits": {"type": "object", "description": "What the plane may use; a limit that is missing or zero is the server's default.", "properties": {
                    "objects": {"type": "integer", "format": "int64", "minimum": 0, "description": "How many objects it may hold."},
                    "storedBytes": {"type": "integer", "format": "int64", "minimum": 0, "description": "How many bytes its objects may take."},
                    "objectBytes": {"type": "integer", "format": "int64", "minimum": 0, "description": "How large one object may be."},
                    "watches": {"type": "integer", "format": "int64", "minimum": 0, "description": "How many watches may be open."},
                    "requestsInFlight": {"type": "integer", "format": "int64", "minimum": 0, "description": "How many requests may run at once. More wait, by the plane's flow schemas and priority levels."},
                    "requestsPerSecond": {"type": "integer", "format": "int64", "minimum": 0, "description": "How many requests may start in a second."},
                    "weight": {"type": "integer", "format": "int64", "minimum": 0, "maximum": 10000, "description": "How much it gets, in relation to other planes, of what there is too little of: 100 if it is missing or zero."}
                }},
                "authentication": AUTHENTICATION
            }},
            "status": {"type": "object", "description": "How the plane is doing. Written by the server.", "properties": {
                "phase": {"type": "string", "description": "Pending, Ready or Deleting."},
                "conditions": CONDITIONS,
                "number": {"type": "integer", "format": "int64", "description": "The plane's own number, never given to another; a credential is confined to a plane by it."},
                "profile": {"type": "string", "description": "What the plane is for: cluster or generic."},
                "url": {"type": "string", "description": "Where the plane is served."},
                "objectCount": {"type": "integer", "format": "int64", "description": "How many objects it holds."},
                "storedBytes": {"type": "integer", "format": "int64", "description": "How many bytes its own objects take."},
                "limits": {"type": "object", "description": "What the plane may use as things are: its own limits, and defaults of the server where it has none. Zero: as much as there is.", "properties": {
                    "objects": {"type": "integer", "format": "int64", "description": "How many objects it may hold."},
                    "storedBytes": {"type": "integer", "format": "int64", "description": "How many bytes its objects may take."},
                    "objectBytes": {"type": "integer", "format": "int64", "description": "How large one object may be."},
                    "watches": {"type": "integer", "format": "int64", "description": "How many watches may be open."},
                    "requestsInFlight": {"type": "integer", "format": "int64", "description": "How many requests may run at once."},
                    "requestsPerSecond": {"type": "integer", "format": "int64", "description": "How many requests may start in a second."},
                    "weight": {"type": "integer", "format": "int64", "description": "How much it gets, in relation to other planes, of what there is too little of."}
                }},
                "defaultLimits": {"type": "array", "items": {"type": "string"}, "description": "Which of the limits are the server's defaults, because the spec does not name them."},
                "lastActivity": {"type": "string", "format": "date-time", "description": "When it last answered a request; empty after a restart until it does."}
            }}
        }
    }"#;
    parse_schema(&text.replace("AUTHENTICATION", plane_authentication::SCHEMA))
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells, check_update, errors};
    use super::*;

    #[test]
    fn every_field_is_described() {
        own_kinds::check_described(&schema(), "plane");
    }

    #[test]
    fn specs() {
        check(
            &PLANE,
            &[
                (r#"{"metadata":{"name":"acme"}}"#, &[]),
                (r#"{"metadata":{"name":"acme"},"spec":{"forkFrom":"corex","limits":{"objects":0}}}"#, &[]),
                (
                    r#"{"metadata":{"name":"acme"},"spec":{"forkFrom":"core"}}"#,
                    &[r#"spec.forkFrom: Invalid value: "core": the provider's own plane cannot be copied"#],
                ),
                (r#"{"metadata":{"name":"acme"},"spec":{"forkFrom":"layer/golden"}}"#, &[]),
                (
                    r#"{"metadata":{"name":"core"}}"#,
                    &[r#"metadata.name: Invalid value: "core": is reserved for the provider's own plane"#],
                ),
                (
                    r#"{"metadata":{"name":"a"},"spec":{"forkFrom":"a","limits":{"objects":-1,"watches":-2}}}"#,
                    &[
                        "spec.limits.objects: Invalid value: -1: must be greater than or equal to 0",
                        "spec.limits.watches: Invalid value: -2: must be greater than or equal to 0",
                        r#"spec.forkFrom: Invalid value: "a": must be another plane"#,
                    ],
                ),
            ],
        );
        check(
            &PLANE,
            &[
                (r#"{"metadata":{"name":"p"},"spec":{"profile":"generic"}}"#, &[]),
                (
                    r#"{"metadata":{"name":"p"},"spec":{"profile":"generic","forkFrom":"a"}}"#,
                    &[
                        r#"spec.profile: Invalid value: "generic": a fork has the profile of its source: leave it out"#,
                    ],
                ),
                (
                    r#"{"metadata":{"name":"p"},"spec":{"profile":"generic","simulatedNodes":1}}"#,
                    &["spec.simulatedNodes: Invalid value: 1: a plane of profile generic has no nodes"],
                ),
            ],
        );
        check(
            &PLANE,
            &[
                (r#"{"metadata":{"name":"p"},"spec":{"auditPolicy":{"rules":[{"level":"Metadata"}]}}}"#, &[]),
                (
                    r#"{"metadata":{"name":"p"},"spec":{"auditPolicy":{"rules":[{"level":"Much"}]}}}"#,
                    &[
                        r#"spec.auditPolicy.rules[0].level: Unsupported value: "Much": supported values: "None", "Metadata", "Request", "RequestResponse""#,
                    ],
                ),
            ],
        );
        for bad in ["layer/", "layers/x", "A", "layer/a/b", "a.b"] {
            let plane = format!(r#"{{"metadata":{{"name":"p"}},"spec":{{"forkFrom":"{bad}"}}}}"#);
            let errors = errors(&PLANE, &plane, None);
            assert!(errors[0].contains("must be the name of a plane, or 'layer/'"), "{bad}: {errors:?}");
        }
    }

    #[test]
    fn issuers_are_judged_when_they_are_written() {
        let plane = |url: &str| {
            format!(
                r#"{{"metadata":{{"name":"p"}},"spec":{{"authentication":{{"jwt":[{{"issuer":{{"url":"{url}","audiences":["a"]}},"claimMappings":{{"username":{{"claim":"sub","prefix":""}}}}}}]}}}}}}"#
            )
        };
        let why =
            r#"spec.authentication.jwt[0].issuer.url: Invalid value: "http://i": URL scheme must be https"#;
        check(&PLANE, &[(&plane("https://i"), &[]), (&plane("http://i"), &[why])]);
        let same = plane("http://i");
        check_update(&PLANE, &[(&same, &same, &[]), (&plane("https://i"), &same, &[why])]);
    }

    #[test]
    fn the_origin_stays() {
        check_update(
            &PLANE,
            &[
                (r#"{"spec":{"forkFrom":"a"}}"#, r#"{"spec":{"forkFrom":"a","displayName":"A"}}"#, &[]),
                (
                    r#"{"spec":{"forkFrom":"a"}}"#,
                    r#"{"spec":{"forkFrom":"b"}}"#,
                    &[r#"spec.forkFrom: Invalid value: "b": field is immutable"#],
                ),
                (
                    r#"{"spec":{"profile":"generic"}}"#,
                    r#"{"spec":{}}"#,
                    &["spec.profile: Invalid value: null: field is immutable"],
                ),
                (
                    r#"{"spec":{}}"#,
                    r#"{"spec":{"forkFrom":"b"}}"#,
                    &[r#"spec.forkFrom: Invalid value: "b": field is immutable"#],
                ),
            ],
        );
    }

    #[test]
    fn origins() {
        assert_eq!(origin("acme"), Origin::Plane("acme"));
        assert_eq!(origin("layer/golden"), Origin::Layer("golden"));
    }

    #[test]
    fn the_schema_names_every_limit() {
        let schema = schema();
        let limits = ["properties", "spec", "properties", "limits", "properties"];
        for limit in LIMITS {
            let kind = schema.at(&limits).and_then(|limits| limits.str_at(&[limit, "type"]));
            assert_eq!(kind, Some("integer"), "{limit}");
        }
        let conditions = ["properties", "status", "properties", "conditions", "items", "type"];
        assert_eq!(schema.str_at(&conditions), Some("object"));
    }

    #[test]
    fn cells() {
        check_cells(
            &PLANE,
            &[
                (r#"{"metadata":{"name":"p"}}"#, r#"["p","",null,null,"<unknown>","",""]"#),
                (
                    r#"{"metadata":{"name":"p"},"spec":{"displayName":"P"},"status":{"phase":"Ready","objectCount":3,"storedBytes":9,"url":"u"}}"#,
                    r#"["p","Ready",3,9,"<unknown>","u","P"]"#,
                ),
            ],
        );
    }
}
