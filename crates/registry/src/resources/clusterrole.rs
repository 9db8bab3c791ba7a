//! Cluster roles: what may be done everywhere, or in the namespaces of the bindings that name them.

use polder_model::{FieldError, FieldPath, Value};

use super::checks::{Errors, each, some};
use super::label_selector;
use super::role::{ROLE, validate_rules};
use crate::behavior::Behavior;

pub(super) const CLUSTER_ROLE: Behavior =
    Behavior { resource: "clusterroles", validate: |new, _, errors| validate(new, errors), ..ROLE };

fn validate(role: &Value, errors: &mut Errors) {
    validate_rules(role, false, errors);
    let Some(aggregation) = some(role, "aggregationRule") else { return };
    let path = FieldPath::root("aggregationRule");
    if aggregation.array_at(&["clusterRoleSelectors"]).is_empty() {
        errors.push(FieldError::required(
            path.member("clusterRoleSelectors"),
            "at least one clusterRoleSelector required if aggregationRule is non-nil",
        ));
    }
    each(aggregation, "clusterRoleSelectors", &path, errors, |selector, path, errors| {
        label_selector::validate(Some(selector), path, errors);
    });
}

#[cfg(test)]
mod tests {
    use super::super::rows::check;
    use super::*;

    #[test]
    fn rules_and_aggregation() {
        check(
            &CLUSTER_ROLE,
            &[
                (r#"{"rules":[{"verbs":["get"],"nonResourceURLs":["/x"]}]}"#, &[]),
                (r#"{"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"a":"b"}}]}}"#, &[]),
                (
                    r#"{"aggregationRule":{}}"#,
                    &[
                        "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil",
                    ],
                ),
                (
                    r#"{"aggregationRule":{"clusterRoleSelectors":[{"matchExpressions":[{"key":"a","operator":"In"}]}]}}"#,
                    &[
                        "aggregationRule.clusterRoleSelectors[0].matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
                    ],
                ),
            ],
        );
    }
}
