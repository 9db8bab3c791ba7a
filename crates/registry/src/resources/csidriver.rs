//! CSI drivers: what a volume driver needs and can.

use std::collections::HashSet;

use polder_model::{FieldError, FieldPath, Value, json};

use super::cells;
use super::checks::{Errors, each, immutable, one_of, required, same, some, text};
use crate::behavior::{Behavior, Column, Print};

const MODES: [&str; 2] = ["Persistent", "Ephemeral"];

pub(super) const CSI_DRIVER: Behavior = Behavior {
    group: "storage.k8s.io",
    resource: "csidrivers",
    unconditional_update: false,
    delete_returns_object: true,
    columns: &[
        Column::NAME,
        Column::boolean("AttachRequired"),
        Column::boolean("PodInfoOnMount"),
        Column::boolean("StorageCapacity"),
        Column::text("TokenRequests"),
        Column::boolean("RequiresRepublish"),
        Column::text("Modes"),
        Column::AGE,
    ],
    cells,
    default: |object| {
        if object.array_at(&["spec", "volumeLifecycleModes"]).is_empty() {
            object.set_at(&["spec", "volumeLifecycleModes"], json!(["Persistent"]));
        }
    },
    // A new driver has no generation: the first change of its spec makes one.
    prepare_update: |new, old| {
        if !same(new.get("spec"), old.get("spec")) {
            let generation = old.i64_at(&["metadata", "generation"]).unwrap_or_default();
            new.set_at(&["metadata", "generation"], generation.saturating_add(1));
        }
    },
    validate,
    warnings,
    ..Behavior::PLAIN
};

fn cells(object: &Value, print: &Print) -> Vec<Value> {
    let tokens = match object.at(&["spec", "tokenRequests"]) {
        Some(Value::Array(requests)) => {
            let audiences: Vec<&str> = requests.iter().map(|request| text(request, "audience")).collect();
            audiences.join(",")
        }
        _ => "<unset>".into(),
    };
    let modes = match cells::joined(object, &["spec", "volumeLifecycleModes"], ",") {
        modes if modes.is_empty() => "<none>".into(),
        modes => modes,
    };
    vec![
        cells::name(object),
        cells::flag(object, &["spec", "attachRequired"], true),
        cells::flag(object, &["spec", "podInfoOnMount"], false),
        cells::flag(object, &["spec", "storageCapacity"], false),
        tokens.into(),
        cells::flag(object, &["spec", "requiresRepublish"], false),
        modes.into(),
        cells::age(object, print),
    ]
}

fn warnings(object: &Value) -> Vec<String> {
    let asks = !object.array_at(&["spec", "tokenRequests"]).is_empty();
    let unset = object.at(&["spec", "serviceAccountTokenInSecrets"]).is_none_or(Value::is_null);
    if asks && unset {
        vec![
            "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent \
             possible logging of tokens in volume attributes"
                .into(),
        ]
    } else {
        Vec::new()
    }
}

fn validate(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let empty = Value::Null;
    let path = FieldPath::root("spec");
    let spec = new.get("spec").unwrap_or(&empty);
    // Upstream misspells the path of attachRequired.
    if some(spec, "attachRequired").is_none() {
        errors.push(FieldError::required(path.member("attachedRequired"), ""));
    }
    for key in ["podInfoOnMount", "storageCapacity"] {
        required(spec, key, &path, errors);
    }
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    one_of(spec, "fsGroupPolicy", &policies, &path, errors);
    validate_tokens(spec, &path, errors);
    each(spec, "volumeLifecycleModes", &path, errors, |mode, _, errors| {
        let mode = mode.as_str().unwrap_or_default();
        if !MODES.contains(&mode) {
            errors.push(FieldError::not_supported(path.member("volumeLifecycleModes"), mode, MODES));
        }
    });
    let period = spec.i64_at(&["nodeAllocatableUpdatePeriodSeconds"]);
    if let Some(period) = period.filter(|period| *period < 10) {
        let path = path.member("nodeAllocatableUpdatePeriodSeconds");
        errors.push(FieldError::invalid(path, period, "must be greater than or equal to 10 seconds"));
    }
    if let Some(old) = old {
        let old = old.get("spec").unwrap_or(&empty);
        if !same(spec.get("attachRequired"), old.get("attachRequired")) {
            let value = spec.get("attachRequired").cloned().unwrap_or_default();
            errors.push(FieldError::invalid(path.member("attachedRequired"), value, "field is immutable"));
        }
        immutable(spec, old, "volumeLifecycleModes", &path, errors);
    }
}

fn validate_tokens(spec: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let mut audiences = HashSet::new();
    each(spec, "tokenRequests", path, errors, |request, path, errors| {
        let audience = text(request, "audience");
        if !audiences.insert(audience.to_owned()) {
            errors.push(FieldError::duplicate(path.member("audience"), audience));
            return;
        }
        let Some(seconds) = request.i64_at(&["expirationSeconds"]) else { return };
        let mut refuse =
            |why: &str| errors.push(FieldError::invalid(path.member("expirationSeconds"), seconds, why));
        if seconds < 600 {
            refuse("may not specify a duration less than 10 minutes");
        }
        if seconds > 1 << 32 {
            refuse("may not specify a duration larger than 2^32 seconds");
        }
    });
    if let Some(flag) = some(spec, "serviceAccountTokenInSecrets")
        && spec.array_at(&["tokenRequests"]).is_empty()
    {
        errors.push(FieldError::invalid(
            path.member("serviceAccountTokenInSecrets"),
            flag.clone(),
            "serviceAccountTokenInSecrets is set but no tokenRequests are specified",
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells, check_default, check_update, updates};
    use super::*;

    const GOOD: &str = r#"{"metadata":{"name":"d"},"spec":{"attachRequired":true,"podInfoOnMount":false,"storageCapacity":false,
        "volumeLifecycleModes":["Persistent"]}}"#;

    #[test]
    fn fields() {
        check(
            &CSI_DRIVER,
            &[
                (GOOD, &[]),
                (
                    r#"{"spec":{"volumeLifecycleModes":["X"],"tokenRequests":[{"expirationSeconds":1},{}]}}"#,
                    &[
                        "spec.attachedRequired: Required value",
                        "spec.podInfoOnMount: Required value",
                        "spec.storageCapacity: Required value",
                        "spec.tokenRequests[0].expirationSeconds: Invalid value: 1: may not specify a duration less than 10 minutes",
                        r#"spec.tokenRequests[1].audience: Duplicate value: """#,
                        r#"spec.volumeLifecycleModes: Unsupported value: "X": supported values: "Persistent", "Ephemeral""#,
                    ],
                ),
            ],
        );
        check_update(
            &CSI_DRIVER,
            &[(
                GOOD,
                r#"{"spec":{"attachRequired":false,"podInfoOnMount":false,"storageCapacity":false,"volumeLifecycleModes":["Ephemeral"]}}"#,
                &[
                    "spec.attachedRequired: Invalid value: false: field is immutable",
                    r#"spec.volumeLifecycleModes: Invalid value: ["Ephemeral"]: field is immutable"#,
                ],
            )],
        );
    }

    #[test]
    fn changes_are_counted_from_nothing() {
        let driver = |generation: &str, mount: bool| {
            format!(r#"{{"metadata":{{{generation}}},"spec":{{"podInfoOnMount":{mount}}}}}"#)
        };
        let (none, one, two) = ("", r#""generation":1"#, r#""generation":2"#);
        updates(&CSI_DRIVER, &driver(none, true), &driver(none, true), &driver(none, true));
        updates(&CSI_DRIVER, &driver(none, true), &driver(none, false), &driver(one, true));
        updates(&CSI_DRIVER, &driver(one, false), &driver(one, true), &driver(two, false));
    }

    #[test]
    fn defaults_and_cells() {
        check_default(
            &CSI_DRIVER,
            &[(r#"{"spec":{}}"#, r#"{"spec":{"volumeLifecycleModes":["Persistent"]}}"#)],
        );
        check_cells(
            &CSI_DRIVER,
            &[(GOOD, r#"["d",true,false,false,"<unset>",false,"Persistent","<unknown>"]"#)],
        );
    }
}
