//! Roles: what may be done in one namespace. The rules here are those of cluster roles too.

use polder_model::{FieldError, FieldPath, Value};

use super::cells;
use super::checks::{Errors, each};
use crate::behavior::{Behavior, Column, NameRule};

pub(super) const ROLE: Behavior = Behavior {
    group: "rbac.authorization.k8s.io",
    resource: "roles",
    names: NameRule::PathSegment,
    create_on_update: true,
    columns: &[Column::NAME, cells::CREATED_AT],
    cells: |object, _| vec![cells::name(object), cells::created_at(object)],
    validate: |new, _, errors| validate_rules(new, true, errors),
    ..Behavior::PLAIN
};

pub(super) fn validate_rules(role: &Value, namespaced: bool, errors: &mut Errors) {
    each(role, "rules", &FieldPath::ROOT, errors, |rule, path, errors| {
        let is_empty = |key: &str| rule.array_at(&[key]).is_empty();
        let mut require = |key: &str, why: &str| {
            if is_empty(key) {
                errors.push(FieldError::required(path.member(key), why));
            }
        };
        require("verbs", "verbs must contain at least one value");
        if is_empty("nonResourceURLs") {
            require("apiGroups", "resource rules must supply at least one api group");
            require("resources", "resource rules must supply at least one resource");
            return;
        }
        let urls = rule.get("nonResourceURLs").cloned().unwrap_or_default();
        let mut refuse =
            |why: &str| errors.push(FieldError::invalid(path.member("nonResourceURLs"), urls.clone(), why));
        if namespaced {
            refuse("namespaced rules cannot apply to non-resource URLs");
        }
        if !(is_empty("apiGroups") && is_empty("resources") && is_empty("resourceNames")) {
            refuse("rules cannot apply to both regular resources and non-resource URLs");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells};
    use super::*;

    #[test]
    fn rules() {
        check(
            &ROLE,
            &[
                (r#"{"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]}"#, &[]),
                (
                    r#"{"rules":[{}]}"#,
                    &[
                        "rules[0].verbs: Required value: verbs must contain at least one value",
                        "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                        "rules[0].resources: Required value: resource rules must supply at least one resource",
                    ],
                ),
                (
                    r#"{"rules":[{"verbs":["get"],"nonResourceURLs":["/x"],"apiGroups":[""]}]}"#,
                    &[
                        r#"rules[0].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs"#,
                        r#"rules[0].nonResourceURLs: Invalid value: ["/x"]: rules cannot apply to both regular resources and non-resource URLs"#,
                    ],
                ),
            ],
        );
    }

    #[test]
    fn cells() {
        check_cells(
            &ROLE,
            &[(
                r#"{"metadata":{"name":"r","creationTimestamp":"2026-01-01T00:00:00Z"}}"#,
                r#"["r","2026-01-01T00:00:00Z"]"#,
            )],
        );
    }
}
