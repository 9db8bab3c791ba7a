//! References from a pod to its own fields and resources: environment variables and downward API files.

use polder_model::quantity::Quantity;
use polder_model::{FieldError, FieldPath, Value};

use super::checks::{self, Errors, text};

/// Fields an environment variable may hold.
pub(super) const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Fields a file may hold.
pub(super) const FILE_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const HUGE_PAGES: [&str; 2] = ["requests.hugepages-", "limits.hugepages-"];
const BYTE_DIVISORS: [&str; 13] =
    ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

/// `metadata.labels['a']` is the labels' `a`.
fn subscript(field: &str) -> Option<(&str, &str)> {
    field.strip_suffix("']")?.split_once("['")
}

/// Checks a `fieldRef` against the fields that may stand here.
pub(super) fn validate_field(
    reference: &Value,
    supported: &[&str],
    path: &FieldPath<'_>,
    errors: &mut Errors,
) {
    let field = text(reference, "fieldPath");
    if field.is_empty() {
        errors.push(FieldError::required(path.member("fieldPath"), ""));
        return;
    }
    let version = checks::some(reference, "apiVersion").and_then(Value::as_str).unwrap_or("v1");
    let (base, key) = subscript(field).map_or((field, None), |(base, key)| (base, Some(key)));
    let maps = ["metadata.annotations", "metadata.labels"];
    let why = if version != "v1" {
        Some(format!("unsupported pod version: {version}"))
    } else if key.is_some() && !maps.contains(&base) {
        Some(format!("field label does not support subscript: {field}"))
    } else if ENV_FIELDS.contains(&base) || maps.contains(&base) {
        None
    } else {
        Some(format!("field label not supported: {field}"))
    };
    if let Some(why) = why {
        let text = format!("error converting fieldPath: {why}");
        errors.push(FieldError::invalid(path.member("fieldPath"), field, text));
        return;
    }
    match key {
        Some(key) if base == "metadata.annotations" => {
            checks::qualified_name(&key.to_lowercase(), path, errors);
        }
        Some(key) => checks::qualified_name(key, path, errors),
        None if supported.contains(&base) => {}
        None => errors.push(FieldError::not_supported(path.member("fieldPath"), base, supported)),
    }
}

/// Checks a `resourceFieldRef`; in a file it must name its container.
pub(super) fn validate_resource(reference: &Value, in_file: bool, path: &FieldPath<'_>, errors: &mut Errors) {
    let resource = text(reference, "resource");
    let huge = HUGE_PAGES.iter().any(|prefix| resource.starts_with(prefix));
    if in_file && text(reference, "containerName").is_empty() {
        errors.push(FieldError::required(path.member("containerName"), ""));
    } else if resource.is_empty() {
        errors.push(FieldError::required(path.member("resource"), ""));
    } else if !RESOURCES.contains(&resource) && !huge {
        errors.push(FieldError::not_supported(path.member("resource"), resource, RESOURCES));
    }
    let divisor = checks::some(reference, "divisor").and_then(|divisor| Quantity::from_value(divisor).ok());
    let Some(divisor) = divisor.filter(|divisor| !divisor.is_zero()) else { return };
    let (allowed, kind): (&[&str], &str) = match resource {
        "limits.cpu" | "requests.cpu" => {
            if !["1m", "1"].contains(&divisor.to_string().as_str()) {
                let text = "only divisor's values 1m and 1 are supported with the cpu resource";
                errors.push(FieldError::invalid(path.member("divisor"), resource, text));
            }
            return;
        }
        "limits.memory" | "requests.memory" => (&BYTE_DIVISORS, "memory"),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => {
            (&BYTE_DIVISORS, "local ephemeral storage")
        }
        _ if huge => (&BYTE_DIVISORS, "hugepages"),
        _ => return,
    };
    if !allowed.contains(&divisor.to_string().as_str()) {
        let text = format!(
            "only divisor's values {} are supported with the {kind} resource",
            BYTE_DIVISORS.join(", ")
        );
        errors.push(FieldError::invalid(path.member("divisor"), resource, text));
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::parse;
    use super::*;

    #[test]
    fn fields() {
        let rows = [
            (r#"{"fieldPath":"metadata.name"}"#, ""),
            (r#"{"fieldPath":"metadata.labels['a']"}"#, ""),
            (r#"{"fieldPath":"metadata.annotations['A.b/c']"}"#, ""),
            (r#"{}"#, "f.fieldPath: Required value"),
            (
                r#"{"fieldPath":"metadata.bogus"}"#,
                r#"f.fieldPath: Invalid value: "metadata.bogus": error converting fieldPath: field label not supported: metadata.bogus"#,
            ),
            (
                r#"{"apiVersion":"v2","fieldPath":"metadata.name"}"#,
                r#"f.fieldPath: Invalid value: "metadata.name": error converting fieldPath: unsupported pod version: v2"#,
            ),
            (
                r#"{"fieldPath":"metadata.labels"}"#,
                r#"f.fieldPath: Unsupported value: "metadata.labels": supported values: "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs""#,
            ),
        ];
        for (reference, expected) in rows {
            let mut errors = Errors::new();
            validate_field(&parse(reference), &ENV_FIELDS, &FieldPath::root("f"), &mut errors);
            assert_eq!(errors.first().map(ToString::to_string).unwrap_or_default(), expected);
        }
    }

    #[test]
    fn resources() {
        let rows = [
            (r#"{"resource":"limits.cpu","divisor":"1m"}"#, ""),
            (r#"{"resource":"limits.memory","divisor":"1Mi"}"#, ""),
            (r#"{"resource":"limits.hugepages-2Mi"}"#, ""),
            (r#"{}"#, "r.resource: Required value"),
            (
                r#"{"resource":"x"}"#,
                r#"r.resource: Unsupported value: "x": supported values: "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory""#,
            ),
            (
                r#"{"resource":"limits.cpu","divisor":"3"}"#,
                r#"r.divisor: Invalid value: "limits.cpu": only divisor's values 1m and 1 are supported with the cpu resource"#,
            ),
        ];
        for (reference, expected) in rows {
            let mut errors = Errors::new();
            validate_resource(&parse(reference), false, &FieldPath::root("r"), &mut errors);
            assert_eq!(errors.first().map(ToString::to_string).unwrap_or_default(), expected);
        }
    }
}
