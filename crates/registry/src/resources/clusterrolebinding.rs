//! Cluster role bindings: who has a cluster role everywhere.

use super::rolebinding::{ROLE_BINDING, validate_binding};
use crate::behavior::Behavior;

pub(super) const CLUSTER_ROLE_BINDING: Behavior = Behavior {
    resource: "clusterrolebindings",
    validate: |new, old, errors| validate_binding(new, old, false, errors),
    ..ROLE_BINDING
};

#[cfg(test)]
mod tests {
    use super::super::rows::check;
    use super::*;

    #[test]
    fn service_accounts_need_a_namespace() {
        check(
            &CLUSTER_ROLE_BINDING,
            &[(
                r#"{"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"r"},
                    "subjects":[{"kind":"ServiceAccount","name":"a"}]}"#,
                &[
                    r#"roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole""#,
                    "subjects[0].namespace: Required value",
                ],
            )],
        );
    }
}
