//! Role bindings: who has a role in a namespace. Cluster role bindings follow the same rules, more narrowly.

use polder_model::{FieldError, FieldPath, Value, json};

use super::cells;
use super::checks::{Errors, default_at, dns_subdomain, each, path_segment, text};
use crate::behavior::{Behavior, Column, NameRule, Print};

const RBAC: &str = "rbac.authorization.k8s.io";

pub(super) const ROLE_BINDING: Behavior = Behavior {
    group: RBAC,
    resource: "rolebindings",
    names: NameRule::PathSegment,
    create_on_update: true,
    columns: &[
        Column::NAME,
        Column::text("Role"),
        Column::AGE,
        Column::text("Users").wide(),
        Column::text("Groups").wide(),
        Column::text("ServiceAccounts").wide(),
    ],
    cells,
    default,
    validate: |new, old, errors| validate_binding(new, old, true, errors),
    ..Behavior::PLAIN
};

fn cells(object: &Value, print: &Print) -> Vec<Value> {
    let named = |kind: &str| {
        let subjects = object.array_at(&["subjects"]).iter().filter(|subject| text(subject, "kind") == kind);
        let names: Vec<String> = subjects
            .map(|subject| match kind {
                "ServiceAccount" => format!("{}/{}", text(subject, "namespace"), text(subject, "name")),
                _ => text(subject, "name").to_owned(),
            })
            .collect();
        Value::from(names.join(", "))
    };
    let part = |key: &str| object.str_at(&["roleRef", key]).unwrap_or_default();
    vec![
        cells::name(object),
        format!("{}/{}", part("kind"), part("name")).into(),
        cells::age(object, print),
        named("User"),
        named("Group"),
        named("ServiceAccount"),
    ]
}

fn default(object: &mut Value) {
    if object.str_at(&["roleRef", "apiGroup"]).is_none_or(str::is_empty) {
        object.set_at(&["roleRef", "apiGroup"], RBAC);
    }
    for subject in object.at_mut(&["subjects"]).and_then(Value::as_array_mut).into_iter().flatten() {
        if matches!(text(subject, "kind"), "User" | "Group") {
            if text(subject, "apiGroup").is_empty() {
                subject.remove_at(&["apiGroup"]);
            }
            default_at(subject, &["apiGroup"], RBAC);
        }
    }
}

pub(super) fn validate_binding(new: &Value, old: Option<&Value>, namespaced: bool, errors: &mut Errors) {
    let path = FieldPath::root("roleRef");
    let part = |key: &str| new.str_at(&["roleRef", key]).unwrap_or_default();
    if part("apiGroup") != RBAC {
        errors.push(FieldError::not_supported(path.member("apiGroup"), part("apiGroup"), [RBAC]));
    }
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&part("kind")) {
        errors.push(FieldError::not_supported(path.member("kind"), part("kind"), kinds));
    }
    match part("name") {
        "" => errors.push(FieldError::required(path.member("name"), "")),
        name => path_segment(name, &path.member("name"), errors),
    }
    each(new, "subjects", &FieldPath::ROOT, errors, |subject, path, errors| {
        validate_subject(subject, namespaced, path, errors);
    });
    let same = |old: &Value| {
        ["apiGroup", "kind", "name"].iter().all(|key| old.str_at(&["roleRef", key]) == Some(part(key)))
    };
    if old.is_some_and(|old| !same(old)) {
        // Upstream shows its inner type, whose members have Go names.
        let shown = json!({"APIGroup": (part("apiGroup")), "Kind": (part("kind")), "Name": (part("name"))});
        errors.push(FieldError::invalid(path, shown, "cannot change roleRef"));
    }
}

fn validate_subject(subject: &Value, namespaced: bool, path: &FieldPath<'_>, errors: &mut Errors) {
    let (kind, name, group) = (text(subject, "kind"), text(subject, "name"), text(subject, "apiGroup"));
    if name.is_empty() {
        errors.push(FieldError::required(path.member("name"), ""));
    }
    let mut group_must_be = |expected: &str| {
        if group != expected {
            errors.push(FieldError::not_supported(path.member("apiGroup"), group, [expected]));
        }
    };
    match kind {
        "ServiceAccount" => {
            group_must_be("");
            if !name.is_empty() {
                dns_subdomain(name, &path.member("name"), errors);
            }
            if !namespaced && text(subject, "namespace").is_empty() {
                errors.push(FieldError::required(path.member("namespace"), ""));
            }
        }
        "User" | "Group" => group_must_be(RBAC),
        _ => errors.push(FieldError::not_supported(
            path.member("kind"),
            kind,
            ["ServiceAccount", "User", "Group"],
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells, check_default, check_update};
    use super::*;

    #[test]
    fn subjects_and_roles() {
        check(
            &ROLE_BINDING,
            &[
                (
                    r#"{"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"r"},
                        "subjects":[{"kind":"ServiceAccount","name":"a"}]}"#,
                    &[],
                ),
                (
                    r#"{"roleRef":{"apiGroup":"x","kind":"R"},"subjects":[{"kind":"Robot"},{"kind":"User","name":"u","apiGroup":"y"}]}"#,
                    &[
                        r#"roleRef.apiGroup: Unsupported value: "x": supported values: "rbac.authorization.k8s.io""#,
                        r#"roleRef.kind: Unsupported value: "R": supported values: "Role", "ClusterRole""#,
                        "roleRef.name: Required value",
                        "subjects[0].name: Required value",
                        r#"subjects[0].kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group""#,
                        r#"subjects[1].apiGroup: Unsupported value: "y": supported values: "rbac.authorization.k8s.io""#,
                    ],
                ),
            ],
        );
    }

    #[test]
    fn the_role_stays() {
        let old = r#"{"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"a"}}"#;
        check_update(
            &ROLE_BINDING,
            &[
                (old, old, &[]),
                (
                    old,
                    r#"{"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"b"}}"#,
                    &[
                        r#"roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"Role","Name":"b"}: cannot change roleRef"#,
                    ],
                ),
            ],
        );
    }

    #[test]
    fn groups_are_filled_in() {
        check_default(
            &ROLE_BINDING,
            &[(
                r#"{"roleRef":{"kind":"Role","name":"r"},"subjects":[{"kind":"User","name":"u","apiGroup":""},{"kind":"ServiceAccount","name":"s"}]}"#,
                r#"{"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"r"},
                    "subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"u"},{"kind":"ServiceAccount","name":"s"}]}"#,
            )],
        );
    }

    #[test]
    fn cells() {
        check_cells(
            &ROLE_BINDING,
            &[(
                r#"{"metadata":{"name":"b","creationTimestamp":"2026-01-01T00:00:00Z"},"roleRef":{"kind":"Role","name":"r"},
                    "subjects":[{"kind":"User","name":"u"},{"kind":"User","name":"v"},{"kind":"ServiceAccount","namespace":"n","name":"s"}]}"#,
                r#"["b","Role/r","100s","u, v","","n/s"]"#,
            )],
        );
    }
}
