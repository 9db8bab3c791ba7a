//! The status a new object shows before anybody has reported one: what upstream's types print when they are empty.

use polder_model::Value;

/// Gives a new object its first status, if it has none.
pub(super) fn set(object: &mut Value, status: Value) {
    if object.as_object().is_some() && object.get("status").is_none_or(Value::is_null) {
        object.set_at(&["status"], status);
    }
}

#[cfg(test)]
mod tests {
    use super::super::ALL;

    #[test]
    fn new_objects_show_a_status() {
        let rows = [
            ("deployments", "{}"),
            ("statefulsets", r#"{"availableReplicas":0,"replicas":0}"#),
            ("replicasets", r#"{"replicas":0}"#),
            ("replicationcontrollers", r#"{"replicas":0}"#),
            ("jobs", "{}"),
            ("cronjobs", "{}"),
            ("services", r#"{"loadBalancer":{}}"#),
            ("ingresses", r#"{"loadBalancer":{}}"#),
            ("volumeattachments", r#"{"attached":false}"#),
            (
                "poddisruptionbudgets",
                r#"{"currentHealthy":0,"desiredHealthy":0,"disruptionsAllowed":0,"expectedPods":0}"#,
            ),
            ("resourcequotas", "{}"),
            ("certificatesigningrequests", "{}"),
            ("resourceclaims", "{}"),
        ];
        for (resource, expected) in rows {
            let behavior = ALL.iter().find(|behavior| behavior.resource == resource).unwrap();
            let mut object = super::super::rows::parse("{}");
            (behavior.prepare_create)(&mut object);
            let status = object.get("status").map(ToString::to_string).unwrap_or_default();
            assert_eq!(status, expected, "{resource}");
        }
    }
}
