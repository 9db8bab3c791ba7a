//! Admission webhooks: what mutating and validating configurations share, which is all but reinvocation.

use std::collections::HashSet;

use polder_model::names::{dns_1035_label_problem, dns_subdomain_problem};
use polder_model::{FieldError, FieldPath, Value};

use super::admission_rules::{
    FAILURE_POLICIES, MATCH_POLICIES, default_rules, default_selectors, validate_match_conditions,
    validate_rule,
};
use super::cells;
use super::checks::{
    Errors, default_at, each, one_of, port_problem, problem, required, same, some, text, texts,
};
use super::label_selector;
use crate::behavior::{Behavior, Column};

const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];

/// A webhook configuration; each kind names itself.
pub(super) const CONFIGURATION: Behavior = Behavior {
    group: "admissionregistration.k8s.io",
    generation: true,
    unconditional_update: false,
    columns: &[Column::NAME, Column::integer("Webhooks"), Column::AGE],
    cells: |object, print| {
        vec![cells::name(object), cells::len(object.at(&["webhooks"])).into(), cells::age(object, print)]
    },
    default,
    validate,
    ..Behavior::PLAIN
};

pub(super) fn default(object: &mut Value) {
    for webhook in object.at_mut(&["webhooks"]).and_then(Value::as_array_mut).into_iter().flatten() {
        default_at(webhook, &["failurePolicy"], "Fail");
        default_at(webhook, &["timeoutSeconds"], 10);
        default_selectors(webhook);
        default_rules(webhook, "rules");
        if webhook.at(&["clientConfig", "service"]).is_some_and(|service| !service.is_null()) {
            default_at(webhook, &["clientConfig", "service", "port"], 443);
        }
    }
}

pub(super) fn validate(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let old_webhooks = old.map(|old| old.array_at(&["webhooks"]));
    // What was stored before a rule was made stays storable.
    let old_names = |webhooks: &[Value]| {
        let mut names = HashSet::new();
        webhooks.iter().all(|webhook| names.insert(text(webhook, "name")))
    };
    let names_unique = old_webhooks.is_none_or(old_names);
    let conditions_changed = old_webhooks.is_none_or(|old_webhooks| {
        let new_webhooks = new.array_at(&["webhooks"]);
        new_webhooks.len() != old_webhooks.len()
            || new_webhooks
                .iter()
                .zip(old_webhooks)
                .any(|(new, old)| !same(new.get("matchConditions"), old.get("matchConditions")))
    });
    let mut names = HashSet::new();
    each(new, "webhooks", &FieldPath::ROOT, errors, |webhook, path, errors| {
        validate_webhook(webhook, path, errors);
        if conditions_changed {
            validate_match_conditions(webhook, path, errors);
        }
        validate_review_versions(webhook, path, errors);
        let name = text(webhook, "name");
        if names_unique && !name.is_empty() && !names.insert(name.to_owned()) {
            errors.push(FieldError::duplicate(path.member("name"), name));
        }
    });
}

fn validate_webhook(webhook: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    validate_name(webhook, path, errors);
    each(webhook, "rules", path, errors, validate_rule);
    one_of(webhook, "failurePolicy", &FAILURE_POLICIES, path, errors);
    one_of(webhook, "matchPolicy", &MATCH_POLICIES, path, errors);
    if some(webhook, "sideEffects").is_none() {
        errors.push(FieldError::required(
            path.member("sideEffects"),
            format!("must specify one of {}", SIDE_EFFECTS.join(", ")),
        ));
    }
    one_of(webhook, "sideEffects", &SIDE_EFFECTS, path, errors);
    if let Some(seconds) = webhook.i64_at(&["timeoutSeconds"]).filter(|seconds| !(1..=30).contains(seconds)) {
        let text = "the timeout value must be between 1 and 30 seconds";
        errors.push(FieldError::invalid(path.member("timeoutSeconds"), seconds, text));
    }
    for key in ["namespaceSelector", "objectSelector"] {
        label_selector::validate(some(webhook, key), &path.member(key), errors);
    }
    one_of(webhook, "reinvocationPolicy", &["IfNeeded", "Never"], path, errors);
    let empty = Value::Null;
    validate_client(webhook.get("clientConfig").unwrap_or(&empty), &path.member("clientConfig"), errors);
}

/// At least three labels, so that names of different owners do not meet.
fn validate_name(webhook: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    if !required(webhook, "name", path, errors) {
        return;
    }
    let name = text(webhook, "name");
    let wrong = dns_subdomain_problem(name).or_else(|| {
        let short = "should be a domain with at least three segments separated by dots";
        (name.split('.').count() < 3).then_some(short)
    });
    problem(name, wrong, &path.member("name"), errors);
}

fn validate_review_versions(webhook: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let versions = texts(webhook, "admissionReviewVersions");
    let list = path.member("admissionReviewVersions");
    if versions.is_empty() {
        let text = format!("must specify one of {}", REVIEW_VERSIONS.join(", "));
        errors.push(FieldError::required(list, text));
        return;
    }
    let mut seen = HashSet::new();
    each(webhook, "admissionReviewVersions", path, errors, |version, path, errors| {
        let version = version.as_str().unwrap_or_default();
        let wrong = if seen.insert(version.to_owned()) {
            dns_1035_label_problem(version)
        } else {
            Some("duplicate version")
        };
        problem(version, wrong, path, errors);
    });
    if !versions.iter().any(|version| REVIEW_VERSIONS.contains(version)) {
        let value = webhook.get("admissionReviewVersions").cloned().unwrap_or_default();
        let text = format!("must include at least one of {}", REVIEW_VERSIONS.join(", "));
        errors.push(FieldError::invalid(list, value, text));
    }
}

fn validate_client(client: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    match (some(client, "url"), some(client, "service")) {
        (Some(url), None) => {
            validate_url(url.as_str().unwrap_or_default(), &path.member("url"), errors);
        }
        (None, Some(service)) => validate_service(service, &path.member("service"), errors),
        _ => errors.push(FieldError::required(path, "exactly one of url or service is required")),
    }
}

fn validate_url(url: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (url, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (url, query) = url.split_once('?').unwrap_or((url, ""));
    let (scheme, rest) = match url.split_once(':') {
        Some((scheme, rest)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => (scheme, rest),
        _ => ("", url),
    };
    let authority = rest.strip_prefix("//").map_or("", |rest| rest.split('/').next().unwrap_or_default());
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    if !scheme.eq_ignore_ascii_case("https") {
        let text = format!("'https' is the only allowed URL scheme{FORM}");
        errors.push(FieldError::invalid(path, scheme, text));
    }
    if host.is_empty() {
        errors.push(FieldError::invalid(path, host, format!("host must be specified{FORM}")));
    }
    if let Some(user) = user {
        errors.push(FieldError::invalid(path, user, "user information is not permitted in the URL"));
    }
    if !fragment.is_empty() {
        errors.push(FieldError::invalid(path, fragment, "fragments are not permitted in the URL"));
    }
    if !query.is_empty() {
        errors.push(FieldError::invalid(path, query, "query parameters are not permitted in the URL"));
    }
}

fn validate_service(service: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    required(service, "name", path, errors);
    required(service, "namespace", path, errors);
    let port = service.i64_at(&["port"]).unwrap_or(0);
    if let Some(problem) = port_problem(port) {
        errors.push(FieldError::invalid(path.member("port"), port, format!("port is not valid: {problem}")));
    }
    let route = text(service, "path");
    if matches!(route, "" | "/") {
        return;
    }
    let path = path.member("path");
    let mut refuse = |why: String| errors.push(FieldError::invalid(path, route, why));
    if route == "//" {
        return refuse("segment[0] may not be empty".into());
    }
    let segments = match route.strip_prefix('/') {
        Some(segments) => segments,
        None => {
            refuse("must start with a '/'".into());
            route
        }
    };
    let segments = segments.strip_suffix('/').unwrap_or(segments);
    for (index, segment) in segments.split('/').enumerate().take(super::checks::ERRORS_MAX) {
        if segment.is_empty() {
            refuse(format!("segment[{index}] may not be empty"));
        } else if let Some(problem) = dns_subdomain_problem(segment) {
            refuse(format!("segment[{index}]: {problem}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_default, check_update};
    use super::*;

    const GOOD: &str = r#"{"webhooks":[{"name":"a.b.c","sideEffects":"None","admissionReviewVersions":["v1"],
        "clientConfig":{"url":"https://h/p"}}]}"#;

    #[test]
    fn webhooks() {
        check(
            &CONFIGURATION,
            &[
                (GOOD, &[]),
                (
                    r#"{"webhooks":[{"name":"a.b","timeoutSeconds":31,"sideEffects":"Some","admissionReviewVersions":["v9","v9"],"clientConfig":{}}]}"#,
                    &[
                        r#"webhooks[0].name: Invalid value: "a.b": should be a domain with at least three segments separated by dots"#,
                        r#"webhooks[0].sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun""#,
                        "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
                        "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
                        r#"webhooks[0].admissionReviewVersions[1]: Invalid value: "v9": duplicate version"#,
                        r#"webhooks[0].admissionReviewVersions: Invalid value: ["v9","v9"]: must include at least one of v1, v1beta1"#,
                    ],
                ),
                (
                    r#"{"webhooks":[{"clientConfig":{"service":{"path":"a//","port":-1}}}]}"#,
                    &[
                        "webhooks[0].name: Required value",
                        "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
                        "webhooks[0].clientConfig.service.name: Required value",
                        "webhooks[0].clientConfig.service.namespace: Required value",
                        "webhooks[0].clientConfig.service.port: Invalid value: -1: port is not valid: must be between 1 and 65535, inclusive",
                        r#"webhooks[0].clientConfig.service.path: Invalid value: "a//": must start with a '/'"#,
                        r#"webhooks[0].clientConfig.service.path: Invalid value: "a//": segment[1] may not be empty"#,
                        "webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1",
                    ],
                ),
            ],
        );
    }

    #[test]
    fn urls() {
        let rows: [(&str, &[&str]); 5] = [
            ("https://host:8443/a/b", &[]),
            (
                "http://host",
                &[
                    r#"u: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]"#,
                ],
            ),
            (
                "https://",
                &[r#"u: Invalid value: "": host must be specified; desired format: https://host[/path]"#],
            ),
            (
                "https://me:secret@host",
                &[r#"u: Invalid value: "me:secret": user information is not permitted in the URL"#],
            ),
            (
                "https://h/p?q=1#f",
                &[
                    r#"u: Invalid value: "f": fragments are not permitted in the URL"#,
                    r#"u: Invalid value: "q=1": query parameters are not permitted in the URL"#,
                ],
            ),
        ];
        for (url, expected) in rows {
            let mut errors = Errors::new();
            validate_url(url, &FieldPath::root("u"), &mut errors);
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(errors, expected, "{url}");
        }
    }

    #[test]
    fn names_are_unique_unless_they_never_were() {
        let hook = r#"{"name":"a.b.c","sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":{"url":"https://h"}}"#;
        let twice = format!(r#"{{"webhooks":[{hook},{hook}]}}"#);
        let error = [r#"webhooks[1].name: Duplicate value: "a.b.c""#];
        check(&CONFIGURATION, &[(&twice, &error)]);
        check_update(&CONFIGURATION, &[(GOOD, &twice, &error), (&twice, &twice, &[])]);
    }

    #[test]
    fn defaults() {
        check_default(
            &CONFIGURATION,
            &[(
                r#"{"webhooks":[{"clientConfig":{"service":{"name":"s"}},"rules":[{}]},{"clientConfig":{"url":"u"},"timeoutSeconds":5}]}"#,
                r#"{"webhooks":[
                    {"clientConfig":{"service":{"name":"s","port":443}},"failurePolicy":"Fail","matchPolicy":"Equivalent","namespaceSelector":{},
                     "objectSelector":{},"rules":[{"scope":"*"}],"timeoutSeconds":10},
                    {"clientConfig":{"url":"u"},"failurePolicy":"Fail","matchPolicy":"Equivalent","namespaceSelector":{},"objectSelector":{},"timeoutSeconds":5}]}"#,
            )],
        );
    }
}
