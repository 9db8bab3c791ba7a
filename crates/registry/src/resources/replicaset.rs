//! Replica sets.

use polder_model::{FieldError, FieldPath, Value, json};

use super::blank_status;
use super::pod_spec_rules::Surroundings;
use super::status_rules::Counters;
use super::workload::INVALID_SELECTOR;
use super::{cells, checks, workload};
use crate::behavior::{Behavior, Column, Print, Selectable};

pub(super) const STATUS: Counters = Counters {
    not_negative: &[
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ],
    at_most: &[
        ("fullyLabeledReplicas", "replicas", "status.replicas"),
        ("readyReplicas", "replicas", "status.replicas"),
        ("availableReplicas", "replicas", "status.replicas"),
        ("availableReplicas", "readyReplicas", "readyReplicas"),
    ],
};

pub(super) const REPLICASETS: Behavior = Behavior {
    group: "apps",
    resource: "replicasets",
    generation: true,
    selectable: &[Selectable { label: "status.replicas", paths: &[&["status", "replicas"]], missing: "0" }],
    scale: Some(workload::SCALE),
    columns: COLUMNS,
    cells: |set, print| row(set, workload::wide_cells(set), print),
    default: |object| workload::default_template(object),
    prepare_create: |object| blank_status::set(object, json!({"replicas": 0})),
    validate_status: |new, _, errors| STATUS.validate(new, errors),
    validate,
    warnings: workload::warnings,
    ..Behavior::PLAIN
};

/// Replication controllers print the same way.
pub(super) const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::integer("Desired"),
    Column::integer("Current"),
    Column::integer("Ready"),
    Column::AGE,
    workload::CONTAINERS,
    workload::IMAGES,
    workload::SELECTOR,
];

pub(super) fn row(set: &Value, [names, images, selector]: [Value; 3], print: &Print) -> Vec<Value> {
    vec![
        cells::name(set),
        cells::count(set, &["spec", "replicas"]).into(),
        cells::count(set, &["status", "replicas"]).into(),
        cells::count(set, &["status", "readyReplicas"]).into(),
        cells::age(set, print),
        names,
        images,
        selector,
    ]
}

fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = FieldPath::root("spec");
    let spec = new.get("spec").unwrap_or(&Value::Null);
    checks::not_negative(spec, &["replicas", "minReadySeconds"], &path, errors);
    // Upstream names the deployment here, too.
    workload::validate_selector(spec, "deployment", &path, errors);
    let around = Surroundings::default();
    workload::validate_selected_template(spec, "ReplicaSet", INVALID_SELECTOR, around, &path, errors);
    if let Some(old) = old.and_then(|old| old.get("spec")) {
        checks::immutable(spec, old, "selector", &path, errors);
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{prints, refuses};
    use super::REPLICASETS;

    #[test]
    fn cells() {
        prints(
            &REPLICASETS,
            r#"{"metadata":{"name":"r"},"spec":{"replicas":3,"selector":{"matchLabels":{"a":"b"}}},"status":{"replicas":2,"readyReplicas":1}}"#,
            "r|3|2|1|<unknown>|||a=b",
        );
    }

    #[test]
    fn the_selector_stays() {
        let set = |label: &str| {
            format!(
                r#"{{"spec":{{"selector":{{"matchLabels":{{"a":"{label}"}}}},
                "template":{{"metadata":{{"labels":{{"a":"{label}"}}}},"spec":{{"containers":[{{"name":"x","image":"i"}}]}}}}}}}}"#
            )
        };
        refuses(&REPLICASETS, &set("b"), Some(&set("b")), &[]);
        refuses(
            &REPLICASETS,
            &set("b"),
            Some(&set("c")),
            &[r#"spec.selector: Invalid value: {"matchLabels":{"a":"b"}}: field is immutable"#],
        );
    }
}
