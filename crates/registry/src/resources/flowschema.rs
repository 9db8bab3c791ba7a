//! Flow schemas: which requests belong to which priority level.

use polder_model::names::dns_label_problem;
use polder_model::{FieldError, FieldPath, Value, json};

use super::blank_status;
use super::cells;
use super::checks::{Errors, dns_label, dns_subdomain, each, required, same, some, text, texts};
use crate::behavior::{Behavior, Column, Print};
use crate::bootstrap;

const PRECEDENCE_DEFAULT: i64 = 1000;
const PRECEDENCE_MAX: i64 = 10_000;
const METHODS: [&str; 2] = ["ByNamespace", "ByUser"];
const VERBS: [&str; 9] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

pub(super) const FLOW_SCHEMA: Behavior = Behavior {
    group: "flowcontrol.apiserver.k8s.io",
    resource: "flowschemas",
    generation: true,
    columns: &[
        Column::NAME,
        Column::text("PriorityLevel"),
        Column::text("MatchingPrecedence"),
        Column::text("DistinguisherMethod"),
        Column::AGE,
        Column::text("MissingPL"),
    ],
    cells,
    default: |object| {
        if object.i64_at(&["spec", "matchingPrecedence"]).unwrap_or(0) == 0 {
            object.set_at(&["spec", "matchingPrecedence"], PRECEDENCE_DEFAULT);
        }
    },
    prepare_create: |object| blank_status::set(object, json!({})),
    validate: |new, _, errors| validate(new, errors),
    ..Behavior::PLAIN
};

fn cells(object: &Value, print: &Print) -> Vec<Value> {
    let conditions = object.array_at(&["status", "conditions"]).iter();
    let dangling = conditions
        .filter(|condition| text(condition, "type") == "Dangling")
        .map(|condition| text(condition, "status"))
        .next();
    vec![
        cells::name(object),
        cells::text(object, &["spec", "priorityLevelConfiguration", "name"]),
        object.i64_at(&["spec", "matchingPrecedence"]).unwrap_or(0).into(),
        cells::text_or(object, &["spec", "distinguisherMethod", "type"], "<none>").into(),
        cells::age(object, print),
        dangling.unwrap_or("?").into(),
    ]
}

fn validate(schema: &Value, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = schema.get("spec").unwrap_or(&empty);
    let path = FieldPath::root("spec");
    let name = schema.str_at(&["metadata", "name"]).unwrap_or_default();
    let precedence = spec.i64_at(&["matchingPrecedence"]).unwrap_or(0);
    let mut refuse =
        |why: String| errors.push(FieldError::invalid(path.member("matchingPrecedence"), precedence, why));
    if precedence <= 0 {
        refuse("must be a positive value".into());
    }
    if precedence > PRECEDENCE_MAX {
        refuse(format!("must not be greater than {PRECEDENCE_MAX}"));
    }
    if precedence == 1 && name != "exempt" {
        refuse("only the schema named 'exempt' may have matchingPrecedence 1".into());
    }
    if let Some(method) = some(spec, "distinguisherMethod")
        && !METHODS.contains(&text(method, "type"))
    {
        let path = path.member("distinguisherMethod");
        errors.push(FieldError::not_supported(path.member("type"), method.clone(), METHODS));
    }
    let level_path = path.member("priorityLevelConfiguration");
    match spec.str_at(&["priorityLevelConfiguration", "name"]).unwrap_or_default() {
        "" => errors.push(FieldError::required(level_path.member("name"), "must reference a priority level")),
        level => dns_subdomain(level, &level_path.member("name"), errors),
    }
    each(spec, "rules", &path, errors, validate_rule);
    let fixed = bootstrap::flow_schema_spec(name, bootstrap::Importance::Mandatory);
    if fixed.is_some_and(|fixed| !same(Some(&fixed), Some(spec))) {
        let why = format!("spec of '{name}' must equal the fixed value");
        errors.push(FieldError::invalid(path, spec.clone(), why));
    }
}

fn validate_rule(rule: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    if rule.array_at(&["subjects"]).is_empty() {
        let why = "subjects must contain at least one value";
        errors.push(FieldError::required(path.member("subjects"), why));
    }
    each(rule, "subjects", path, errors, validate_subject);
    if rule.array_at(&["resourceRules"]).is_empty() && rule.array_at(&["nonResourceRules"]).is_empty() {
        let why = "at least one of resourceRules and nonResourceRules has to be non-empty";
        errors.push(FieldError::required(path, why));
    }
    each(rule, "resourceRules", path, errors, validate_resource_rule);
    each(rule, "nonResourceRules", path, errors, validate_url_rule);
}

fn validate_subject(subject: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let kind = text(subject, "kind");
    let members = [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];
    let Some((_, own)) = members.iter().find(|(name, _)| *name == kind) else {
        let kinds = ["Group", "ServiceAccount", "User"];
        errors.push(FieldError::not_supported(path.member("kind"), kind, kinds));
        return;
    };
    let own_path = path.member(own);
    match some(subject, own) {
        None => {
            let why = format!("{own} is required when subject kind is '{kind}'");
            errors.push(FieldError::required(own_path, why));
        }
        Some(member) => {
            let named = required(member, "name", &own_path, errors);
            if kind == "ServiceAccount" {
                let (name, namespace) = (text(member, "name"), text(member, "namespace"));
                if named && name != "*" {
                    dns_subdomain(name, &own_path.member("name"), errors);
                }
                match namespace {
                    "" => {
                        let why = "must specify namespace for service account";
                        errors.push(FieldError::required(own_path.member("namespace"), why));
                    }
                    namespace => dns_label(namespace, &own_path.member("namespace"), errors),
                }
            }
        }
    }
    for (other, member) in members.iter().filter(|(other, _)| *other != kind) {
        if some(subject, member).is_some() {
            let why = format!("{member} is forbidden when subject kind is not '{other}'");
            errors.push(FieldError::forbidden(path.member(member), why));
        }
    }
}

/// `*` stands alone.
fn validate_sole(
    rule: &Value,
    key: &str,
    missing: &str,
    others: &str,
    path: &FieldPath<'_>,
    errors: &mut Errors,
) {
    let values = texts(rule, key);
    if values.is_empty() {
        errors.push(FieldError::required(path.member(key), missing));
    } else if values.len() > 1 && values.contains(&"*") {
        let why = format!("if '*' is present, must not specify other {others}");
        errors.push(FieldError::invalid(path.member(key), rule.get(key).cloned().unwrap_or_default(), why));
    }
}

fn validate_verbs(rule: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    validate_sole(rule, "verbs", "verbs must contain at least one value", "verbs", path, errors);
    let verbs = texts(rule, "verbs");
    if !verbs.contains(&"*") && !verbs.iter().all(|verb| VERBS.contains(verb)) {
        let value = rule.get("verbs").cloned().unwrap_or_default();
        errors.push(FieldError::not_supported(path.member("verbs"), value, VERBS));
    }
}

fn validate_resource_rule(rule: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    validate_verbs(rule, path, errors);
    let missing = "resource rules must supply at least one api group";
    validate_sole(rule, "apiGroups", missing, "api groups", path, errors);
    let missing = "resource rules must supply at least one resource";
    validate_sole(rule, "resources", missing, "resources", path, errors);
    let namespaces = texts(rule, "namespaces");
    if namespaces.is_empty() && rule.get("clusterScope").and_then(Value::as_bool) == Some(true) {
        return;
    }
    let missing = "resource rules that are not cluster scoped must supply at least one namespace";
    validate_sole(rule, "namespaces", missing, "namespaces", path, errors);
    if namespaces.contains(&"*") {
        return;
    }
    each(rule, "namespaces", path, errors, |namespace, path, errors| {
        let namespace = namespace.as_str().unwrap_or_default();
        if let Some(problem) = dns_label_problem(namespace) {
            let why = format!("each member of this list must be '*' or a DNS-1123 label; {problem}");
            errors.push(FieldError::invalid(path, namespace, why));
        }
    });
}

fn validate_url_rule(rule: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    validate_verbs(rule, path, errors);
    let missing = "nonResourceURLs must contain at least one value";
    validate_sole(rule, "nonResourceURLs", missing, "non-resource URLs", path, errors);
    if texts(rule, "nonResourceURLs").contains(&"*") {
        return;
    }
    each(rule, "nonResourceURLs", path, errors, |url, path, errors| {
        let url = url.as_str().unwrap_or_default();
        let stars = url.matches('*').count();
        let problem = match url {
            "" => "must not be empty",
            "/" => return,
            _ if !url.starts_with('/') => "must start with slash",
            _ if url.contains(' ') => "must not contain white-space",
            _ if url.contains("//") => "must not contain double slash",
            _ if stars > 1 || (stars == 1 && !url.ends_with("/*")) => "wildcard can only do suffix matching",
            _ => return,
        };
        errors.push(FieldError::invalid(path, url, problem));
    });
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells, check_default};
    use super::*;

    #[test]
    fn rules() {
        check(
            &FLOW_SCHEMA,
            &[
                (
                    r#"{"metadata":{"name":"f"},"spec":{"matchingPrecedence":5,"priorityLevelConfiguration":{"name":"p"},"rules":[{
                        "subjects":[{"kind":"Group","group":{"name":"g"}}],
                        "resourceRules":[{"verbs":["get"],"apiGroups":["*"],"resources":["*"],"clusterScope":true}]}]}}"#,
                    &[],
                ),
                (
                    r#"{"metadata":{"name":"f"},"spec":{"matchingPrecedence":1,"distinguisherMethod":{"type":"x"},"rules":[{}]}}"#,
                    &[
                        "spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1",
                        r#"spec.distinguisherMethod.type: Unsupported value: {"type":"x"}: supported values: "ByNamespace", "ByUser""#,
                        "spec.priorityLevelConfiguration.name: Required value: must reference a priority level",
                        "spec.rules[0].subjects: Required value: subjects must contain at least one value",
                        "spec.rules[0]: Required value: at least one of resourceRules and nonResourceRules has to be non-empty",
                    ],
                ),
                (
                    r#"{"metadata":{"name":"f"},"spec":{"matchingPrecedence":10001,"priorityLevelConfiguration":{"name":"p"},"rules":[{
                        "subjects":[{"kind":"User","group":{"name":"g"}},{"kind":"ServiceAccount","serviceAccount":{"name":"*"}}],
                        "resourceRules":[{"verbs":["look"],"apiGroups":["*","a"],"namespaces":["*"]}],
                        "nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["x","/a*/b"]}]}]}}"#,
                    &[
                        "spec.matchingPrecedence: Invalid value: 10001: must not be greater than 10000",
                        "spec.rules[0].subjects[0].user: Required value: user is required when subject kind is 'User'",
                        "spec.rules[0].subjects[0].group: Forbidden: group is forbidden when subject kind is not 'Group'",
                        "spec.rules[0].subjects[1].serviceAccount.namespace: Required value: must specify namespace for service account",
                        r#"spec.rules[0].resourceRules[0].verbs: Unsupported value: ["look"]: supported values: "create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch""#,
                        r#"spec.rules[0].resourceRules[0].apiGroups: Invalid value: ["*","a"]: if '*' is present, must not specify other api groups"#,
                        "spec.rules[0].resourceRules[0].resources: Required value: resource rules must supply at least one resource",
                        r#"spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: "x": must start with slash"#,
                        r#"spec.rules[0].nonResourceRules[0].nonResourceURLs[1]: Invalid value: "/a*/b": wildcard can only do suffix matching"#,
                    ],
                ),
            ],
        );
    }

    #[test]
    fn mandatory_schemas_are_fixed() {
        let fixed = bootstrap::flow_schema_spec("exempt", bootstrap::Importance::Mandatory).unwrap();
        check(&FLOW_SCHEMA, &[(&format!(r#"{{"metadata":{{"name":"exempt"}},"spec":{fixed}}}"#), &[])]);
        check(
            &FLOW_SCHEMA,
            &[(
                r#"{"metadata":{"name":"exempt"},"spec":{"matchingPrecedence":1,"priorityLevelConfiguration":{"name":"exempt"}}}"#,
                &[
                    r#"spec: Invalid value: {"matchingPrecedence":1,"priorityLevelConfiguration":{"name":"exempt"}}: spec of 'exempt' must equal the fixed value"#,
                ],
            )],
        );
    }

    #[test]
    fn defaults_and_cells() {
        check_default(&FLOW_SCHEMA, &[(r#"{"spec":{}}"#, r#"{"spec":{"matchingPrecedence":1000}}"#)]);
        check_cells(
            &FLOW_SCHEMA,
            &[(
                r#"{"metadata":{"name":"f"},"spec":{"matchingPrecedence":5,"priorityLevelConfiguration":{"name":"p"}},"status":{"conditions":[{"type":"Dangling","status":"False"}]}}"#,
                r#"["f","p",5,"<none>","<unknown>","False"]"#,
            )],
        );
    }
}
