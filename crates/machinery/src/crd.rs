//! Custom resource definitions as objects: what is wrong with one, and what is filled in.
//!
//! Paths in errors follow the server's inner form, as users know them: what is the same in all versions is named once
//! (`spec.validation`, `spec.subresources`), the rest per version. Generic metadata is checked by whoever stores
//! the object; of it only the name matters here.

mod conversion;
mod selectable;
mod versions;

use std::collections::HashSet;

use polder_model::{FieldError, FieldPath, Value, names};

pub use self::conversion::bundle_problem;
use crate::schema::formats::{self, is_absolute_uri};
use crate::schema::structural::structural_problems;
use crate::schema::validate::{ERRORS_MAX, shown};

const APPROVED: &str = "api-approved.kubernetes.io";

/// Fills in what a definition leaves out.
pub fn set_crd_defaults(crd: &mut Value) {
    let kind = crd.str_at(&["spec", "names", "kind"]).unwrap_or_default().to_owned();
    let is_unset = |crd: &Value, path: &[&str]| crd.str_at(path).is_none_or(str::is_empty);
    if !kind.is_empty() {
        if is_unset(crd, &["spec", "names", "singular"]) {
            crd.set_at(&["spec", "names", "singular"], kind.to_lowercase());
        }
        if is_unset(crd, &["spec", "names", "listKind"]) {
            crd.set_at(&["spec", "names", "listKind"], format!("{kind}List"));
        }
    }
    if crd.at(&["spec"]).is_some_and(|spec| spec.as_object().is_some())
        && crd.at(&["spec", "conversion"]).is_none_or(Value::is_null)
    {
        crd.set_at(&["spec", "conversion", "strategy"], "None");
    }
    let service = crd.at_mut(&["spec", "conversion", "webhook", "clientConfig", "service"]);
    if let Some(service) = service.and_then(Value::as_object_mut)
        && service.get("port").is_none_or(Value::is_null)
    {
        service.insert("port", 443_i64);
    }
    if crd.array_at(&["status", "storedVersions"]).is_empty() {
        note_storage_version(crd);
    }
}

/// Remembers in the status that objects may be stored in the current storage version.
pub fn note_storage_version(crd: &mut Value) {
    let versions = crd.array_at(&["spec", "versions"]);
    let storage = versions.iter().find(|version| version.get("storage") == Some(&Value::Bool(true)));
    let Some(name) = storage.and_then(|version| version.str_at(&["name"])).map(Value::from) else { return };
    let mut stored = crd.array_at(&["status", "storedVersions"]).to_vec();
    if !stored.contains(&name) {
        stored.push(name);
        crd.set_at(&["status", "storedVersions"], stored);
    }
}

/// Formats of texts that nothing checks, in the order of the document.
pub fn unknown_formats(crd: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for version in crd.array_at(&["spec", "versions"]) {
        if let Some(schema) = version.at(&["schema", "openAPIV3Schema"]) {
            collect_formats(schema, &mut found);
        }
    }
    found
}

fn collect_formats(schema: &Value, found: &mut Vec<String>) {
    let Some(members) = schema.as_object() else { return };
    if let (Some(format), Some("string")) = (schema.str_at(&["format"]), schema.str_at(&["type"]))
        && !format.is_empty()
        && formats::format(format).is_none()
        && found.len() < ERRORS_MAX
        && !found.iter().any(|own| own == format)
    {
        found.push(format.into());
    }
    for (key, value) in members.iter() {
        match (key.as_str(), value) {
            ("properties", Value::Object(below)) => {
                below.iter().for_each(|(_, schema)| collect_formats(schema, found));
            }
            ("items" | "additionalProperties" | "not", schema) => collect_formats(schema, found),
            ("allOf" | "anyOf" | "oneOf", Value::Array(all)) => {
                all.iter().for_each(|schema| collect_formats(schema, found));
            }
            _ => {}
        }
    }
}

/// Says what is wrong with the JSON of an `openAPIV3Schema` that stands at a path.
pub type CheckSchema<'c> = &'c dyn Fn(&Value, &FieldPath<'_>) -> Vec<FieldError>;

/// Everything that is wrong with a definition; `old` is what stood there before an update.
pub fn crd_problems(crd: &Value, old: Option<&Value>) -> Vec<FieldError> {
    crd_problems_with(crd, old, &structural_problems)
}

/// The same for somebody who knows some schemas already: checking them is most of the work.
pub fn crd_problems_with(crd: &Value, old: Option<&Value>, check: CheckSchema<'_>) -> Vec<FieldError> {
    let mut problems = Vec::new();
    if old.is_none() {
        name_problems(crd, &mut problems);
    }
    spec_problems(crd, check, &mut problems);
    if let Some(old) = old {
        conversion::bundle_problems(crd, old, &mut problems);
        update_problems(crd, old, &mut problems);
    }
    let accepted = crd.at(&["status", "acceptedNames"]).unwrap_or(&Value::Null);
    names_problems(accepted, &FieldPath::root("status").member("acceptedNames"), &mut problems);
    stored_versions_problems(crd, &mut problems);
    approval_problems(crd, old, &mut problems);
    preserve_problems(crd, old, &mut problems);
    problems.truncate(ERRORS_MAX);
    problems
}

/// What is wrong with the status of a definition, for somebody who writes only that. Which versions
/// objects are stored in is theirs to say: a program that has rewritten all objects says so.
pub fn crd_status_problems(crd: &Value) -> Vec<FieldError> {
    let mut problems = Vec::new();
    let accepted = crd.at(&["status", "acceptedNames"]).unwrap_or(&Value::Null);
    names_problems(accepted, &FieldPath::root("status").member("acceptedNames"), &mut problems);
    problems.truncate(ERRORS_MAX);
    problems
}

fn name_problems(crd: &Value, problems: &mut Vec<FieldError>) {
    let metadata = FieldPath::root("metadata");
    let path = metadata.member("name");
    let name = crd.str_at(&["metadata", "name"]).unwrap_or_default();
    if name.is_empty() {
        if crd.str_at(&["metadata", "generateName"]).is_none_or(str::is_empty) {
            problems.push(FieldError::required(path, "name or generateName is required"));
        }
        return;
    }
    if let Some(problem) = names::dns_subdomain_problem(name) {
        problems.push(FieldError::invalid(path, name, problem));
    }
    let plural = crd.str_at(&["spec", "names", "plural"]).unwrap_or_default();
    let group = crd.str_at(&["spec", "group"]).unwrap_or_default();
    if name.strip_prefix(plural).and_then(|rest| rest.strip_prefix('.')) != Some(group) {
        problems.push(FieldError::invalid(path, name, r#"must be spec.names.plural+"."+spec.group"#));
    }
}

fn spec_problems(crd: &Value, check: CheckSchema<'_>, problems: &mut Vec<FieldError>) {
    let empty = Value::Null;
    let spec = crd.get("spec").unwrap_or(&empty);
    let path = FieldPath::root("spec");
    let group = spec.str_at(&["group"]).unwrap_or_default();
    let at_group = path.member("group");
    if group.is_empty() {
        problems.push(FieldError::required(at_group, ""));
    } else if let Some(problem) = names::dns_subdomain_problem(group) {
        problems.push(FieldError::invalid(at_group, group, problem));
    } else if !group.contains('.') {
        problems.push(FieldError::invalid(at_group, group, "should be a domain with at least one dot"));
    }
    enum_problems(spec.str_at(&["scope"]), &["Cluster", "Namespaced"], path.member("scope"), problems);
    let shared = versions::version_problems(spec, &path, check, problems);
    let at_names = path.member("names");
    for name in ["plural", "singular", "kind", "listKind"] {
        if spec.str_at(&["names", name]).is_none_or(str::is_empty) {
            problems.push(FieldError::required(at_names.member(name), ""));
        }
    }
    names_problems(spec.get("names").unwrap_or(&empty), &at_names, problems);
    versions::shared_problems(spec, &shared, &path, check, problems);
    conversion::conversion_problems(spec, &path.member("conversion"), problems);
}

fn enum_problems(value: Option<&str>, allowed: &[&str], path: FieldPath<'_>, problems: &mut Vec<FieldError>) {
    match value.unwrap_or_default() {
        "" => problems.push(FieldError::required(path, "")),
        value if !allowed.contains(&value) => {
            problems.push(FieldError::not_supported(path, value, allowed));
        }
        _ => {}
    }
}

/// Names are DNS labels that start with a letter; kinds may have capitals.
fn names_problems(names: &Value, path: &FieldPath<'_>, problems: &mut Vec<FieldError>) {
    for key in ["plural", "singular"] {
        let name = names.str_at(&[key]).unwrap_or_default();
        if let Some(problem) = names::dns_1035_label_problem(name).filter(|_| !name.is_empty()) {
            problems.push(FieldError::invalid(path.member(key), name, problem));
        }
    }
    for key in ["kind", "listKind"] {
        let name = names.str_at(&[key]).unwrap_or_default();
        if let Some(problem) =
            names::dns_1035_label_problem(&name.to_lowercase()).filter(|_| !name.is_empty())
        {
            let detail = format!("may have mixed case, but should otherwise match: {problem}");
            problems.push(FieldError::invalid(path.member(key), name, detail));
        }
    }
    let label_list = |key: &str, problems: &mut Vec<FieldError>| {
        for (index, name) in names.array_at(&[key]).iter().enumerate() {
            if problems.len() >= ERRORS_MAX {
                break;
            }
            let name = name.as_str().unwrap_or_default();
            if let Some(problem) = names::dns_1035_label_problem(name) {
                problems.push(FieldError::invalid(path.member(key).index(index), name, problem));
            }
        }
    };
    label_list("shortNames", problems);
    let kind = names.str_at(&["kind"]).unwrap_or_default();
    if !kind.is_empty() && names.str_at(&["listKind"]) == Some(kind) {
        let detail = "kind and listKind may not be the same";
        problems.push(FieldError::invalid(path.member("listKind"), kind, detail));
    }
    label_list("categories", problems);
}

fn update_problems(crd: &Value, old: &Value, problems: &mut Vec<FieldError>) {
    let mut immutable = |path: &[&str]| {
        let (new, old) = (crd.str_at(path).unwrap_or_default(), old.str_at(path).unwrap_or_default());
        if new != old {
            problems.push(FieldError::invalid(path.join("."), new, "field is immutable"));
        }
    };
    let is_established = |condition: &Value| {
        condition.str_at(&["type"]) == Some("Established") && condition.str_at(&["status"]) == Some("True")
    };
    // What is stored depends on these once there can be objects.
    if old.array_at(&["status", "conditions"]).iter().any(is_established) {
        immutable(&["spec", "scope"]);
        immutable(&["spec", "names", "kind"]);
    }
    immutable(&["spec", "group"]);
    immutable(&["spec", "names", "plural"]);
}

fn stored_versions_problems(crd: &Value, problems: &mut Vec<FieldError>) {
    let status = FieldPath::root("status");
    let path = status.member("storedVersions");
    let stored = crd.array_at(&["status", "storedVersions"]);
    if stored.is_empty() {
        let detail = "must have at least one stored version";
        problems.push(FieldError::invalid(path, Value::Null, detail));
        return;
    }
    let versions = crd.array_at(&["spec", "versions"]);
    let stored_names: HashSet<&str> = stored.iter().filter_map(Value::as_str).collect();
    let is_storage = |version: &&Value| version.get("storage") == Some(&Value::Bool(true));
    for version in versions.iter().filter(is_storage).take(ERRORS_MAX) {
        let name = version.str_at(&["name"]).unwrap_or_default();
        if !stored_names.contains(name) {
            let detail = format!("must have the storage version {name}");
            problems.push(FieldError::invalid(path, shown(&Value::Array(stored.to_vec())), detail));
        }
    }
    let known: HashSet<&str> = versions.iter().filter_map(|version| version.str_at(&["name"])).collect();
    for (index, name) in stored.iter().enumerate() {
        let name = name.as_str().unwrap_or_default();
        if !known.contains(name) && problems.len() < ERRORS_MAX {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in \
                 spec.versions until a storage migration ensures no data remains persisted in {name} and removes \
                 {name} from status.storedVersions"
            );
            problems.push(FieldError::invalid(path.index(index), name, detail));
        }
    }
}

/// How a definition in a community group says that it may be there.
#[derive(PartialEq, Eq)]
enum Approval {
    Missing,
    Invalid,
    Approved,
    Bypassed,
}

fn approval(crd: &Value) -> Approval {
    match crd.str_at(&["metadata", "annotations", APPROVED]).unwrap_or_default() {
        "" => Approval::Missing,
        text if text.starts_with("unapproved") => Approval::Bypassed,
        text if is_absolute_uri(text) => Approval::Approved,
        _ => Approval::Invalid,
    }
}

fn is_protected(crd: &Value) -> bool {
    let group = crd.str_at(&["spec", "group"]).unwrap_or_default();
    ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

fn approval_text(crd: &Value) -> String {
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let value = crd.str_at(&["metadata", "annotations", APPROVED]).unwrap_or_default();
    match approval(crd) {
        Approval::Approved => format!("approved in {value}"),
        Approval::Bypassed => format!("not approved: {value:?}"),
        Approval::Missing => format!("protected groups must have approval annotation {APPROVED:?}, {SEE}"),
        Approval::Invalid => format!(
            "protected groups must have approval annotation {APPROVED:?} with either a URL or a reason \
             starting with \"unapproved\", {SEE}"
        ),
    }
}

/// Status, reason and message of the condition `KubernetesAPIApprovalPolicyConformant`, for groups that need it.
pub fn approval_condition(crd: &Value) -> Option<(&'static str, &'static str, String)> {
    let (status, reason) = match approval(crd) {
        Approval::Approved => ("True", "ApprovedAnnotation"),
        Approval::Bypassed => ("False", "UnapprovedAnnotation"),
        Approval::Missing => ("False", "MissingAnnotation"),
        Approval::Invalid => ("False", "InvalidAnnotation"),
    };
    is_protected(crd).then(|| (status, reason, approval_text(crd)))
}

/// Groups of the Kubernetes community need an approval.
fn approval_problems(crd: &Value, old: Option<&Value>, problems: &mut Vec<FieldError>) {
    let state = approval(crd);
    if !is_protected(crd) || old.is_some_and(|old| approval(old) == state) {
        return;
    }
    let metadata = FieldPath::root("metadata");
    let annotations = metadata.member("annotations");
    let path = annotations.key(APPROVED);
    match state {
        Approval::Approved | Approval::Bypassed => {}
        Approval::Missing => problems.push(FieldError::required(path, approval_text(crd))),
        Approval::Invalid => {
            let value = crd.str_at(&["metadata", "annotations", APPROVED]).unwrap_or_default();
            problems.push(FieldError::invalid(path, value, approval_text(crd)));
        }
    }
}

fn preserve_problems(crd: &Value, old: Option<&Value>, problems: &mut Vec<FieldError>) {
    let preserves =
        |crd: &Value| crd.at(&["spec", "preserveUnknownFields"]).and_then(Value::as_bool).unwrap_or_default();
    if preserves(crd) && !old.is_some_and(preserves) {
        let spec = FieldPath::root("spec");
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
             spec.versions[*].schema instead";
        problems.push(FieldError::invalid(spec.member("preserveUnknownFields"), true, detail));
    }
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    fn good() -> Value {
        let mut crd = json!({
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [{
                    "name": "v1",
                    "served": true,
                    "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": {"type": "object", "properties": {"color": {"type": "string"}}}
                    }}}
                }]
            }
        });
        set_crd_defaults(&mut crd);
        crd
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut Value), expected: &[&str]) {
        let mut crd = good();
        change(&mut crd);
        let problems = crd_problems(&crd, None);
        assert_eq!(problems.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    }

    fn version(crd: &mut Value) -> &mut Value {
        &mut crd.at_mut(&["spec", "versions"]).unwrap().as_array_mut().unwrap()[0]
    }

    #[test]
    fn defaults() {
        let crd = good();
        assert_eq!(crd.str_at(&["spec", "names", "singular"]), Some("widget"));
        assert_eq!(crd.str_at(&["spec", "names", "listKind"]), Some("WidgetList"));
        assert_eq!(crd.str_at(&["spec", "conversion", "strategy"]), Some("None"));
        assert_eq!(crd.array_at(&["status", "storedVersions"]), [Value::from("v1")]);
        let mut empty = Value::Null;
        set_crd_defaults(&mut empty);
        assert!(empty.is_null());
        check(|_| {}, &[]);
    }

    #[test]
    fn names_and_groups() {
        check(
            |crd| crd.set_at(&["metadata", "name"], "foo"),
            &[r#"metadata.name: Invalid value: "foo": must be spec.names.plural+"."+spec.group"#],
        );
        check(
            |crd| {
                crd.set_at(&["spec", "group"], "example");
                crd.set_at(&["metadata", "name"], "widgets.example");
            },
            &[r#"spec.group: Invalid value: "example": should be a domain with at least one dot"#],
        );
        check(
            |crd| crd.set_at(&["spec", "scope"], "World"),
            &[r#"spec.scope: Unsupported value: "World": supported values: "Cluster", "Namespaced""#],
        );
        check(
            |crd| crd.set_at(&["spec", "names", "listKind"], "Widget"),
            &[r#"spec.names.listKind: Invalid value: "Widget": kind and listKind may not be the same"#],
        );
        check(
            |crd| {
                crd.set_at(&["spec", "group"], "foo.k8s.io");
                crd.set_at(&["metadata", "name"], "widgets.foo.k8s.io");
            },
            &[
                r#"metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation "api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111"#,
            ],
        );
        check(
            |crd| crd.set_at(&["spec", "preserveUnknownFields"], true),
            &[
                "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
            ],
        );
    }

    #[test]
    fn versions() {
        check(
            |crd| version(crd).set_at(&["storage"], false),
            &[
                r#"spec.versions: Invalid value: [{"name":"v1","served":true,"storage":false}]: must have exactly one version marked as storage version"#,
            ],
        );
        check(
            |crd| {
                let twin = version(crd).clone();
                crd.at_mut(&["spec", "versions"]).unwrap().as_array_mut().unwrap().push(twin);
                version(crd).set_at(&["storage"], false);
            },
            &[
                r#"spec.versions: Invalid value: [{"name":"v1","served":true,"storage":false},{"name":"v1","served":true,"storage":true}]: must contain unique version names"#,
            ],
        );
        check(
            |crd| drop(version(crd).remove_at(&["schema"])),
            &["spec.versions[0].schema.openAPIV3Schema: Required value"],
        );
        check(
            |crd| version(crd).set_at(&["schema", "openAPIV3Schema", "properties", "spec"], json!({})),
            &[
                "spec.validation.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields",
            ],
        );
        check(
            |crd| version(crd).set_at(&["deprecationWarning"], "x"),
            &[
                r#"spec.versions[0].deprecationWarning: Invalid value: "x": can only be set for deprecated versions"#,
            ],
        );
        check(
            |crd| {
                version(crd).set_at(&["subresources", "status"], json!({}));
                version(crd).set_at(&["schema", "openAPIV3Schema", "nullable"], true);
            },
            &[
                r#"spec.validation.openAPIV3Schema: Invalid value: {"nullable":true,"properties":{"spec":{"properties":{"color":{"type":"string"}},"type":"object"}},"type":"object"}: only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations] fields are allowed at the root of the schema if the status subresource is enabled"#,
                "spec.validation.openAPIV3Schema.nullable: Forbidden: nullable cannot be true at the root",
            ],
        );
    }

    #[test]
    fn columns_and_subresources() {
        check(
            |crd| {
                version(crd).set_at(
                    &["additionalPrinterColumns"],
                    json!([{"name": "a", "type": "foo", "jsonPath": "x"}, {"name": "b", "type": "date"}]),
                );
            },
            &[
                r#"spec.additionalPrinterColumns[0].type: Invalid value: "foo": must be one of boolean,date,integer,number,string"#,
                r#"spec.additionalPrinterColumns[0].JSONPath: Invalid value: "x": must be a simple json path starting with ."#,
                "spec.additionalPrinterColumns[1].JSONPath: Required value",
            ],
        );
        check(
            |crd| {
                let scale = json!({"specReplicasPath": ".status.r", "labelSelectorPath": "x"});
                version(crd).set_at(&["subresources", "scale"], scale);
            },
            &[
                r#"spec.subresources.scale.specReplicasPath: Invalid value: ".status.r": should be a json path under .spec"#,
                "spec.subresources.scale.statusReplicasPath: Required value",
                r#"spec.subresources.scale.labelSelectorPath: Invalid value: "x": must be a simple json path starting with ."#,
            ],
        );
        check(
            |crd| {
                let scale = json!({
                    "specReplicasPath": ".spec.sizes[0].replicas", "statusReplicasPath": ".status..replicas",
                    "labelSelectorPath": ".status.a-b.selector"
                });
                version(crd).set_at(&["subresources", "scale"], scale);
            },
            // Taken at their word, as members of these names.
            &[],
        );
    }

    #[test]
    fn selectable_fields() {
        let set = |paths: &[&str]| {
            let list: Vec<Value> = paths.iter().map(|path| json!({"jsonPath": (*path)})).collect();
            move |crd: &mut Value| version(crd).set_at(&["selectableFields"], list)
        };
        check(set(&[".spec.color"]), &[]);
        check(
            set(&[".spec.shape", ".spec", ".spec.color", ".spec.color"]),
            &[
                r#"spec.selectableFields[0].jsonPath: Invalid value: ".spec.shape": is an invalid path: does not refer to a valid field"#,
                r#"spec.selectableFields[1].jsonPath: Invalid value: ".spec": must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."#,
                r#"spec.selectableFields[3].jsonPath: Duplicate value: ".spec.color""#,
            ],
        );
    }

    #[test]
    fn conversion() {
        check(
            |crd| crd.set_at(&["spec", "conversion"], json!({"strategy": "Magic"})),
            &[r#"spec.conversion.strategy: Unsupported value: "Magic": supported values: "None", "Webhook""#],
        );
        check(
            |crd| crd.set_at(&["spec", "conversion"], json!({"strategy": "Webhook"})),
            &[
                "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
                "spec.conversion.conversionReviewVersions: Required value",
            ],
        );
        check(
            |crd| {
                let webhook = json!({
                    "clientConfig": {"url": "http://u@x/y?z#f"},
                    "conversionReviewVersions": ["v2", "v2"]
                });
                crd.set_at(&["spec", "conversion"], json!({"strategy": "Webhook", "webhook": webhook}));
            },
            &[
                r#"spec.conversion.webhookClientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]"#,
                r#"spec.conversion.webhookClientConfig.url: Invalid value: "u": user information is not permitted in the URL"#,
                r#"spec.conversion.webhookClientConfig.url: Invalid value: "f": fragments are not permitted in the URL"#,
                r#"spec.conversion.webhookClientConfig.url: Invalid value: "z": query parameters are not permitted in the URL"#,
                r#"spec.conversion.conversionReviewVersions[1]: Invalid value: "v2": duplicate version"#,
                r#"spec.conversion.conversionReviewVersions: Invalid value: ["v2","v2"]: must include at least one of v1, v1beta1"#,
            ],
        );
    }

    #[test]
    fn updates() {
        let mut old = good();
        let mut new = good();
        new.set_at(&["spec", "scope"], "Cluster");
        assert!(crd_problems(&new, Some(&old)).is_empty());
        old.set_at(&["status", "conditions"], json!([{"type": "Established", "status": "True"}]));
        new.set_at(&["spec", "names", "plural"], "gadgets");
        let texts: Vec<String> = crd_problems(&new, Some(&old)).iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                r#"spec.scope: Invalid value: "Cluster": field is immutable"#,
                r#"spec.names.plural: Invalid value: "gadgets": field is immutable"#,
            ]
        );
    }

    #[test]
    fn stored_versions() {
        check(
            |crd| crd.set_at(&["status", "storedVersions"], json!(["v0"])),
            &[
                r#"status.storedVersions: Invalid value: ["v0"]: must have the storage version v1"#,
                r#"status.storedVersions[0]: Invalid value: "v0": missing from spec.versions; v0 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v0 and removes v0 from status.storedVersions"#,
            ],
        );
        let mut crd = good();
        crd.set_at(&["status", "storedVersions"], json!(["v0"]));
        note_storage_version(&mut crd);
        assert_eq!(crd.array_at(&["status", "storedVersions"]).len(), 2);
    }

    #[test]
    fn nonsense_does_not_panic() {
        for text in [
            "null",
            "5",
            r#"{"spec":[]}"#,
            r#"{"spec":{"versions":[1,{"schema":5}],"names":7,"conversion":[]}}"#,
        ] {
            let mut crd = Value::parse(text.as_bytes()).unwrap();
            assert!(!crd_problems(&crd, None).is_empty());
            set_crd_defaults(&mut crd);
            assert!(!crd_problems(&crd, Some(&crd)).is_empty());
        }
    }
}
