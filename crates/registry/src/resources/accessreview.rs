//! Questions about somebody's rights: one thing is asked, about somebody, and the question is no object.

use polder_model::{FieldError, FieldPath, Value, json};

use super::checks::{Errors, each, some, text};
use super::label_selector;
use crate::behavior::Behavior;

pub(super) const SUBJECT_ACCESS_REVIEW: Behavior = Behavior {
    group: "authorization.k8s.io",
    resource: "subjectaccessreviews",
    validate: |new, _, errors| {
        validate_asked(new, Whom::Named, errors);
        validate_metadata(new, "must be empty", |_| false, errors);
    },
    ..Behavior::PLAIN
};

pub(super) const SELF_SUBJECT_ACCESS_REVIEW: Behavior = Behavior {
    resource: "selfsubjectaccessreviews",
    validate: |new, _, errors| {
        validate_asked(new, Whom::Asker, errors);
        validate_metadata(new, "must be empty", |_| false, errors);
    },
    ..SUBJECT_ACCESS_REVIEW
};

pub(super) const LOCAL_SUBJECT_ACCESS_REVIEW: Behavior = Behavior {
    resource: "localsubjectaccessreviews",
    validate: |new, _, errors| {
        validate_asked(new, Whom::Named, errors);
        validate_metadata(new, "must be empty except for namespace", |key| key == "namespace", errors);
        validate_place(new, errors);
    },
    ..SUBJECT_ACCESS_REVIEW
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Whom {
    Asker,
    Named,
}

fn attributes(question: &Value) -> (Option<&Value>, Option<Value>) {
    let spec = question.get("spec");
    let url = spec.and_then(|spec| some(spec, "nonResourceAttributes"));
    let url = url.map(|url| json!({"Path": (text(url, "path")), "Verb": (text(url, "verb"))}));
    (spec.and_then(|spec| some(spec, "resourceAttributes")), url)
}

fn validate_asked(question: &Value, whom: Whom, errors: &mut Errors) {
    let path = FieldPath::root("spec");
    let (of_resource, url) = attributes(question);
    match (of_resource, url) {
        (Some(_), Some(url)) => errors.push(FieldError::invalid(
            path.member("nonResourceAttributes"),
            url,
            "cannot be specified in combination with resourceAttributes",
        )),
        (None, None) => errors.push(FieldError::invalid(
            path.member("resourceAttributes"),
            Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )),
        _ => {}
    }
    let nobody = question.str_at(&["spec", "user"]).is_none_or(str::is_empty)
        && question.array_at(&["spec", "groups"]).is_empty();
    if whom == Whom::Named && nobody {
        let why = "at least one of user or group must be specified";
        errors.push(FieldError::invalid(path.member("user"), "", why));
    }
    let Some(attributes) = of_resource else { return };
    let path = path.member("resourceAttributes");
    for key in ["fieldSelector", "labelSelector"] {
        if let Some(selector) = some(attributes, key) {
            validate_selector(selector, key == "labelSelector", &path.member(key), errors);
        }
    }
}

/// Operators that nobody knows are let through: whoever asks may be newer than we are.
fn validate_selector(selector: &Value, of_labels: bool, path: &FieldPath<'_>, errors: &mut Errors) {
    let (raw, none) = (text(selector, "rawSelector"), selector.array_at(&["requirements"]).is_empty());
    if !raw.is_empty() && !none {
        let why = "may not specified at the same time as requirements";
        errors.push(FieldError::invalid(path.member("rawSelector"), raw, why));
    }
    if raw.is_empty() && none {
        let why = format!("when {path} is specified, requirements or rawSelector is required");
        errors.push(FieldError::required(path.member("requirements"), why));
    }
    each(selector, "requirements", path, errors, |one, path, errors| {
        if !of_labels && text(one, "key").is_empty() {
            errors.push(FieldError::required(path.member("key"), "must be specified"));
        }
        label_selector::validate_operator(one, path, errors);
        if of_labels {
            label_selector::validate_labels(one, path, errors);
        }
    });
}

fn validate_metadata(question: &Value, why: &'static str, may: fn(&str) -> bool, errors: &mut Errors) {
    let Some(metadata) = question.get("metadata") else { return };
    let is_set = |value: &Value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        _ => true,
    };
    let mut members = metadata.as_object().into_iter().flat_map(|members| members.iter());
    if members.any(|(key, value)| key != "managedFields" && !may(key) && is_set(value)) {
        errors.push(FieldError::invalid(FieldPath::root("metadata"), metadata.clone(), why));
    }
}

/// What is asked in a namespace is about that namespace.
fn validate_place(question: &Value, errors: &mut Errors) {
    let path = FieldPath::root("spec");
    let own = question.str_at(&["metadata", "namespace"]).unwrap_or_default();
    let (of_resource, url) = attributes(question);
    if let Some(namespace) = of_resource.map(|attributes| text(attributes, "namespace"))
        && namespace != own
    {
        let path = path.member("resourceAttributes");
        errors.push(FieldError::invalid(
            path.member("namespace"),
            namespace,
            "must match metadata.namespace",
        ));
    }
    if let Some(url) = url {
        let why = "disallowed on this kind of request";
        errors.push(FieldError::invalid(path.member("nonResourceAttributes"), url, why));
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::check;
    use super::*;

    #[test]
    fn one_thing_is_asked() {
        let neither = "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified";
        check(
            &SELF_SUBJECT_ACCESS_REVIEW,
            &[
                (r#"{"spec":{"resourceAttributes":{}}}"#, &[]),
                (r#"{"spec":{"nonResourceAttributes":{}}}"#, &[]),
                (r#"{"spec":{}}"#, &[neither]),
                (
                    r#"{"metadata":{"name":"x"},"spec":{"resourceAttributes":{},"nonResourceAttributes":{"path":"/x"}}}"#,
                    &[
                        r#"spec.nonResourceAttributes: Invalid value: {"Path":"/x","Verb":""}: cannot be specified in combination with resourceAttributes"#,
                        r#"metadata: Invalid value: {"name":"x"}: must be empty"#,
                    ],
                ),
                (
                    r#"{"spec":{"resourceAttributes":{"labelSelector":{"rawSelector":"a","requirements":[{"key":"-","operator":"Exists","values":["b"]}]},"fieldSelector":{}}}}"#,
                    &[
                        "spec.resourceAttributes.fieldSelector.requirements: Required value: when spec.resourceAttributes.fieldSelector is specified, requirements or rawSelector is required",
                        r#"spec.resourceAttributes.labelSelector.rawSelector: Invalid value: "a": may not specified at the same time as requirements"#,
                        "spec.resourceAttributes.labelSelector.requirements[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                        r#"spec.resourceAttributes.labelSelector.requirements[0].key: Invalid value: "-": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
                    ],
                ),
            ],
        );
    }

    #[test]
    fn about_somebody_somewhere() {
        let nobody = r#"spec.user: Invalid value: "": at least one of user or group must be specified"#;
        check(
            &SUBJECT_ACCESS_REVIEW,
            &[
                (r#"{"spec":{"groups":["g"],"resourceAttributes":{}}}"#, &[]),
                (r#"{"spec":{"resourceAttributes":{}}}"#, &[nobody]),
            ],
        );
        check(
            &LOCAL_SUBJECT_ACCESS_REVIEW,
            &[
                (
                    r#"{"metadata":{"namespace":"a"},"spec":{"user":"u","resourceAttributes":{"namespace":"a"}}}"#,
                    &[],
                ),
                (
                    r#"{"metadata":{"namespace":"a"},"spec":{"user":"u","resourceAttributes":{"namespace":"b"}}}"#,
                    &[
                        r#"spec.resourceAttributes.namespace: Invalid value: "b": must match metadata.namespace"#,
                    ],
                ),
                (
                    r#"{"metadata":{"namespace":"a"},"spec":{"user":"u","nonResourceAttributes":{}}}"#,
                    &[
                        r#"spec.nonResourceAttributes: Invalid value: {"Path":"","Verb":""}: disallowed on this kind of request"#,
                    ],
                ),
            ],
        );
    }
}
