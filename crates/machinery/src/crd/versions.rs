//! The versions of a definition: schemas, subresources, printer columns.

use std::collections::HashSet;

use polder_model::{FieldError, FieldPath, Object, Value, names};

use super::{CheckSchema, selectable};
use crate::schema::validate::{ERRORS_MAX, shown};

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] =
    ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

/// Which parts are the same in every version, and therefore named once.
pub(super) struct Shared {
    schema: bool,
    subresources: bool,
    columns: bool,
    selectable: bool,
}

impl Shared {
    fn of(versions: &[Value]) -> Shared {
        let same = |key: &str| {
            let mut values = versions.iter().map(|version| version.get(key).filter(|value| !value.is_null()));
            let first = values.next().flatten();
            values.all(|value| value == first)
        };
        Shared {
            schema: same("schema"),
            subresources: same("subresources"),
            columns: same("additionalPrinterColumns"),
            selectable: same("selectableFields"),
        }
    }
}

/// What is wrong with single versions and with them together.
pub(super) fn version_problems(
    spec: &Value,
    path: &FieldPath<'_>,
    check: CheckSchema<'_>,
    problems: &mut Vec<FieldError>,
) -> Shared {
    let versions = spec.array_at(&["versions"]);
    let shared = Shared::of(versions);
    let at_versions = path.member("versions");
    for (index, version) in versions.iter().enumerate().take(ERRORS_MAX) {
        if schema_of(version).is_none() {
            let at = at_versions.index(index);
            problems.push(FieldError::required(at.member("schema").member("openAPIV3Schema"), ""));
        }
    }
    let mut seen = HashSet::new();
    let mut unique = true;
    for (index, version) in versions.iter().enumerate() {
        if problems.len() >= ERRORS_MAX {
            break;
        }
        let at = at_versions.index(index);
        let name = version.str_at(&["name"]).unwrap_or_default();
        unique &= seen.insert(name);
        if let Some(problem) = names::dns_1035_label_problem(name) {
            problems.push(FieldError::invalid(at.member("name"), name, problem));
        }
        deprecation_problems(version, &at.member("deprecationWarning"), problems);
        if !shared.schema {
            schema_problems(version, &at.member("schema"), has_status(version), check, problems);
        }
        if !shared.subresources {
            scale_problems(version, &at.member("subresources"), problems);
        }
        if !shared.columns {
            column_problems(version, &at.member("additionalPrinterColumns"), problems);
        }
        if !shared.selectable {
            selectable::problems(version, &at.member("selectableFields"), problems);
        }
    }
    let is_storage = |version: &&Value| version.get("storage") == Some(&Value::Bool(true));
    if !unique {
        let detail = "must contain unique version names";
        problems.push(FieldError::invalid(at_versions, outline(versions), detail));
    }
    if versions.iter().filter(is_storage).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        let shown = if spec.get("versions").is_some() { outline(versions) } else { Value::Null };
        problems.push(FieldError::invalid(at_versions, shown, detail));
    }
    // The inner form has the first version's name a second time.
    let first = versions.first().and_then(|version| version.str_at(&["name"])).unwrap_or_default();
    if let Some(problem) = names::dns_1035_label_problem(first).filter(|_| !first.is_empty()) {
        problems.push(FieldError::invalid(path.member("version"), first, problem));
    }
    shared
}

/// What is wrong with the parts that all versions share.
pub(super) fn shared_problems(
    spec: &Value,
    shared: &Shared,
    path: &FieldPath<'_>,
    check: CheckSchema<'_>,
    problems: &mut Vec<FieldError>,
) {
    let versions = spec.array_at(&["versions"]);
    let Some(first) = versions.first() else { return };
    if shared.schema {
        let any_status = versions.iter().any(has_status);
        schema_problems(first, &path.member("validation"), any_status, check, problems);
    }
    if shared.subresources {
        scale_problems(first, &path.member("subresources"), problems);
    }
    if shared.columns {
        column_problems(first, &path.member("additionalPrinterColumns"), problems);
    }
    if shared.selectable {
        selectable::problems(first, &path.member("selectableFields"), problems);
    }
}

pub(super) fn schema_of(version: &Value) -> Option<&Value> {
    version.at(&["schema", "openAPIV3Schema"]).filter(|schema| !schema.is_null())
}

fn has_status(version: &Value) -> bool {
    version.at(&["subresources", "status"]).is_some_and(|status| !status.is_null())
}

/// The versions without their schemas: errors show them.
fn outline(versions: &[Value]) -> Value {
    let keys = ["name", "served", "storage"];
    let short = versions.iter().map(|version| {
        let members = keys.iter().filter_map(|key| Some(((*key).into(), version.get(key)?.clone())));
        Value::Object(members.collect::<Object>())
    });
    shown(&Value::Array(short.collect()))
}

fn deprecation_problems(version: &Value, path: &FieldPath<'_>, problems: &mut Vec<FieldError>) {
    let Some(warning) = version.str_at(&["deprecationWarning"]) else { return };
    let mut report = |detail: &str| {
        problems.push(FieldError::invalid(path, shown(&Value::from(warning)), detail));
    };
    if version.get("deprecated") != Some(&Value::Bool(true)) {
        return report("can only be set for deprecated versions");
    }
    if warning.len() > 256 {
        report("must be <= 256 characters long");
    }
    if warning.is_empty() {
        report("must not be an empty string");
    }
    let is_odd = |char: char| char.is_control() || (char.is_whitespace() && char != ' ');
    if let Some(index) = warning.find(is_odd) {
        report(&format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {index}"
        ));
    }
}

fn schema_problems(
    version: &Value,
    path: &FieldPath<'_>,
    has_status: bool,
    check: CheckSchema<'_>,
    problems: &mut Vec<FieldError>,
) {
    let Some(schema) = schema_of(version) else { return };
    let at = path.member("openAPIV3Schema");
    if has_status {
        root_problems(schema, &at, problems);
    }
    if schema.get("nullable") == Some(&Value::Bool(true)) {
        problems.push(FieldError::forbidden(at.member("nullable"), "nullable cannot be true at the root"));
    }
    problems.extend(check(schema, &at));
}

/// With a status subresource, the schema of the status must not depend on what stands at the root.
fn root_problems(schema: &Value, path: &FieldPath<'_>, problems: &mut Vec<FieldError>) {
    const ALLOWED: [&str; 21] = [
        "description",
        "format",
        "title",
        "maximum",
        "exclusiveMaximum",
        "minimum",
        "exclusiveMinimum",
        "maxLength",
        "minLength",
        "pattern",
        "maxItems",
        "minItems",
        "uniqueItems",
        "multipleOf",
        "required",
        "items",
        "properties",
        "externalDocs",
        "example",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-validations",
    ];
    const DETAIL: &str = "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum \
         MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs \
         Example XPreserveUnknownFields XValidations] fields are allowed at the root of the schema if the status \
         subresource is enabled";
    let kind = schema.str_at(&["type"]).unwrap_or_default();
    if !kind.is_empty() && kind != "object" {
        let detail = r#"only "object" is allowed as the type at the root of the schema if the status subresource is enabled"#;
        problems.push(FieldError::invalid(path.member("type"), shown(&Value::from(kind)), detail));
    }
    let is_set = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    };
    let members = schema.as_object().into_iter().flat_map(Object::iter);
    if members
        .filter(|(_, value)| is_set(value))
        .any(|(key, _)| key != "type" && !ALLOWED.contains(&key.as_str()))
    {
        problems.push(FieldError::invalid(path, shown(schema), DETAIL));
    }
}

fn scale_problems(version: &Value, path: &FieldPath<'_>, problems: &mut Vec<FieldError>) {
    let Some(scale) = version.at(&["subresources", "scale"]).filter(|scale| !scale.is_null()) else { return };
    let at_scale = path.member("scale");
    let rows: [(&str, bool, &[&str], &str); 3] = [
        ("specReplicasPath", true, &[".spec."], "should be a json path under .spec"),
        ("statusReplicasPath", true, &[".status."], "should be a json path under .status"),
        (
            "labelSelectorPath",
            false,
            &[".spec.", ".status."],
            "should be a json path under either .spec or .status",
        ),
    ];
    for (key, is_required, prefixes, detail) in rows {
        let at = at_scale.member(key);
        match scale.str_at(&[key]).unwrap_or_default() {
            "" if is_required => problems.push(FieldError::required(at, "")),
            "" => {}
            text if !text.starts_with('.') => problems.push(not_simple(at, text)),
            text if !prefixes.iter().any(|prefix| text.starts_with(prefix)) => {
                problems.push(FieldError::invalid(at, shown(&Value::from(text)), detail));
            }
            _ => {}
        }
    }
}

fn not_simple(path: FieldPath<'_>, text: &str) -> FieldError {
    FieldError::invalid(path, shown(&Value::from(text)), "must be a simple json path starting with .")
}

fn column_problems(version: &Value, path: &FieldPath<'_>, problems: &mut Vec<FieldError>) {
    for (index, column) in version.array_at(&["additionalPrinterColumns"]).iter().enumerate() {
        if problems.len() >= ERRORS_MAX {
            break;
        }
        let at = path.index(index);
        let text = |key| column.str_at(&[key]).unwrap_or_default();
        if text("name").is_empty() {
            problems.push(FieldError::required(at.member("name"), ""));
        }
        let detail = format!("must be one of {}", COLUMN_TYPES.join(","));
        match text("type") {
            "" => problems.push(FieldError::required(at.member("type"), detail)),
            kind if !COLUMN_TYPES.contains(&kind) => {
                problems.push(FieldError::invalid(at.member("type"), kind, detail));
            }
            _ => {}
        }
        let format = text("format");
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
            problems.push(FieldError::invalid(at.member("format"), format, detail));
        }
        match text("jsonPath") {
            "" => problems.push(FieldError::required(at.member("JSONPath"), "")),
            path if !path.starts_with('.') => problems.push(not_simple(at.member("JSONPath"), path)),
            _ => {}
        }
    }
}
