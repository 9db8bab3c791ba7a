//! Deployments.

use polder_model::{FieldError, FieldPath, Value, json};

use super::blank_status;
use super::pod_spec_rules::Surroundings;
use super::status_rules::Counters;
use super::workload::INVALID_SELECTOR;
use super::{cells, checks, label_selector, workload};
use crate::behavior::{Behavior, Column, Occasion, Print};

const STATUS: Counters = Counters {
    not_negative: &[
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ],
    at_most: &[
        ("updatedReplicas", "replicas", "status.replicas"),
        ("readyReplicas", "replicas", "status.replicas"),
        ("availableReplicas", "replicas", "status.replicas"),
        ("availableReplicas", "readyReplicas", "readyReplicas"),
    ],
};

pub(super) const DEPLOYMENTS: Behavior = Behavior {
    group: "apps",
    resource: "deployments",
    generation: true,
    scale: Some(workload::SCALE),
    columns: &[
        Column::NAME,
        Column::text("Ready"),
        Column::text("Up-to-date"),
        Column::text("Available"),
        Column::AGE,
        workload::CONTAINERS,
        workload::IMAGES,
        workload::SELECTOR,
    ],
    cells,
    default,
    prepare_create: |object| blank_status::set(object, json!({})),
    prepare_update,
    prepare_part,
    validate_status: |new, _, errors| STATUS.validate(new, errors),
    validate,
    warnings: workload::warnings,
    ..Behavior::PLAIN
};

fn cells(deployment: &Value, print: &Print) -> Vec<Value> {
    let [names, images, _] = workload::wide_cells(deployment);
    let selector = label_selector::format(deployment.at(&["spec", "selector"]));
    vec![
        cells::name(deployment),
        workload::ready(deployment),
        cells::count(deployment, &["status", "updatedReplicas"]).into(),
        cells::count(deployment, &["status", "availableReplicas"]).into(),
        cells::age(deployment, print),
        names,
        images,
        selector.unwrap_or_else(|| "<invalid>".into()).into(),
    ]
}

fn default(deployment: &mut Value) {
    let quarter = || Value::from("25%");
    let amounts = [("maxUnavailable", quarter()), ("maxSurge", quarter())];
    workload::default_rolling_update(deployment, "strategy", &amounts);
    workload::default_template(deployment);
}

/// Annotations are copied to replica sets, so that a change of them is a change of what is wanted.
fn prepare_update(new: &mut Value, old: &Value) {
    let path = ["metadata", "annotations"];
    if !checks::same(new.at(&path), old.at(&path)) {
        let generation = old.i64_at(&["metadata", "generation"]).unwrap_or_default();
        new.set_at(&["metadata", "generation"], generation.saturating_add(1));
    }
}

/// Who reports a status does not label.
fn prepare_part(new: &mut Value, old: &Value, occasion: &Occasion<'_>) {
    if occasion.part != "status" {
        return;
    }
    match old.at(&["metadata", "labels"]) {
        Some(labels) => new.set_at(&["metadata", "labels"], labels.clone()),
        None => drop(new.remove_at(&["metadata", "labels"])),
    }
}

fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = FieldPath::root("spec");
    let spec = new.get("spec").unwrap_or(&Value::Null);
    checks::not_negative(spec, &["replicas"], &path, errors);
    workload::validate_selector(spec, "deployment", &path, errors);
    let around = Surroundings::default();
    workload::validate_selected_template(spec, "ReplicaSet", INVALID_SELECTOR, around, &path, errors);
    validate_strategy(spec, &path.member("strategy"), errors);
    checks::not_negative(
        spec,
        &["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"],
        &path,
        errors,
    );
    let min_ready = spec.i64_at(&["minReadySeconds"]).unwrap_or_default();
    if let Some(deadline) =
        spec.i64_at(&["progressDeadlineSeconds"]).filter(|deadline| *deadline <= min_ready)
    {
        let text = "must be greater than minReadySeconds";
        errors.push(FieldError::invalid(path.member("progressDeadlineSeconds"), deadline, text));
    }
    if let Some(old) = old.and_then(|old| old.get("spec")) {
        checks::immutable(spec, old, "selector", &path, errors);
    }
}

fn validate_strategy(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let Some(strategy) = spec.get("strategy") else { return };
    let rolling = checks::some(strategy, "rollingUpdate");
    let rolling_path = path.member("rollingUpdate");
    match checks::text(strategy, "type") {
        "Recreate" if rolling.is_some() => errors.push(FieldError::forbidden(
            rolling_path,
            "may not be specified when strategy `type` is 'Recreate'",
        )),
        "Recreate" => {}
        "RollingUpdate" => {
            let Some(rolling) = rolling else { return };
            let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            let unavailable_path = rolling_path.member("maxUnavailable");
            checks::positive_int_or_percent(unavailable, &unavailable_path, errors);
            checks::positive_int_or_percent(surge, &rolling_path.member("maxSurge"), errors);
            if checks::int_or_percent(unavailable) == 0 && checks::int_or_percent(surge) == 0 {
                errors.push(FieldError::invalid(
                    unavailable_path,
                    unavailable.cloned().unwrap_or_default(),
                    "may not be 0 when `maxSurge` is 0",
                ));
            }
            checks::at_most_100_percent(unavailable, &unavailable_path, errors);
        }
        _ => errors.push(FieldError::not_supported(path, strategy.clone(), ["Recreate", "RollingUpdate"])),
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{defaults, prints, refuses, updates, updates_part};
    use super::DEPLOYMENTS;

    #[test]
    fn cells() {
        prints(
            &DEPLOYMENTS,
            r#"{"metadata":{"name":"d","creationTimestamp":"2025-12-29T00:00:00Z"},"spec":{"replicas":3,"selector":{"matchLabels":{"a":"b"}},
                "template":{"spec":{"containers":[{"name":"x","image":"i"},{"name":"y","image":"j"}]}}},
                "status":{"readyReplicas":1,"updatedReplicas":2,"availableReplicas":1}}"#,
            "d|1/3|2|1|3d|x,y|i,j|a=b",
        );
        prints(&DEPLOYMENTS, "{}", "|0/0|0|0|<unknown>|||");
    }

    #[test]
    fn default() {
        defaults(
            &DEPLOYMENTS,
            r#"{"spec":{"template":{"spec":{"containers":[{"image":"i:1","resources":{"limits":{"cpu":"1"}}}]}}}}"#,
            r#"{"spec":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":"25%","maxUnavailable":"25%"}},
                "template":{"spec":{"containers":[{"image":"i:1","imagePullPolicy":"IfNotPresent","resources":{"limits":{"cpu":"1"}}}]}}}}"#,
        );
        defaults(
            &DEPLOYMENTS,
            r#"{"spec":{"strategy":{"type":"Recreate"}}}"#,
            r#"{"spec":{"strategy":{"type":"Recreate"}}}"#,
        );
        defaults(
            &DEPLOYMENTS,
            r#"{"spec":{"strategy":{"rollingUpdate":{"maxSurge":1}}}}"#,
            r#"{"spec":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1,"maxUnavailable":"25%"}}}}"#,
        );
    }

    #[test]
    fn annotations_count_and_reports_do_not_label() {
        let object = |generation: u8, annotation: &str, label: &str| {
            format!(
                r#"{{"metadata":{{"generation":{generation},"annotations":{{"a":"{annotation}"}},"labels":{{"l":"{label}"}}}}}}"#
            )
        };
        updates(&DEPLOYMENTS, &object(3, "y", "z"), &object(3, "x", "x"), &object(4, "y", "z"));
        updates(&DEPLOYMENTS, &object(3, "x", "z"), &object(3, "x", "x"), &object(3, "x", "z"));
        let bare = r#"{"metadata":{"generation":3}}"#;
        let empty = r#"{"metadata":{"annotations":{},"generation":3}}"#;
        updates(&DEPLOYMENTS, empty, bare, empty);
        updates_part(
            &DEPLOYMENTS,
            "status",
            &object(3, "y", "z"),
            &object(3, "x", "x"),
            &object(3, "y", "x"),
        );
        updates_part(
            &DEPLOYMENTS,
            "status",
            r#"{"metadata":{"labels":{"a":"b"}}}"#,
            "{}",
            r#"{"metadata":{}}"#,
        );
    }

    #[test]
    fn checks() {
        let template = r#""template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"x","image":"i"}]}}"#;
        let good = format!(r#"{{"spec":{{"selector":{{"matchLabels":{{"a":"b"}}}},{template}}}}}"#);
        refuses(&DEPLOYMENTS, &good, Some(&good), &[]);
        refuses(
            &DEPLOYMENTS,
            r#"{"spec":{"selector":{"matchLabels":{"a":" "}},"template":{"metadata":{"annotations":{" ":""}}}}}"#,
            None,
            &[
                r#"spec.selector.matchLabels: Invalid value: " ": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#,
                r#"spec.selector: Invalid value: {"matchLabels":{"a":" "}}: invalid label selector"#,
            ],
        );
        refuses(
            &DEPLOYMENTS,
            "{}",
            None,
            &[
                "spec.selector: Required value",
                "spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`",
                "spec.template.spec.containers: Required value",
            ],
        );
        refuses(
            &DEPLOYMENTS,
            &format!(
                r#"{{"spec":{{"replicas":-1,"selector":{{"matchLabels":{{"a":"c"}}}},"strategy":{{"rollingUpdate":{{"maxSurge":0,"maxUnavailable":"0%"}}}},
                    "minReadySeconds":9,"progressDeadlineSeconds":9,{template}}}}}"#
            ),
            Some(&good),
            &[
                "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
                r#"spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`"#,
                r#"spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "0%": may not be 0 when `maxSurge` is 0"#,
                "spec.progressDeadlineSeconds: Invalid value: 9: must be greater than minReadySeconds",
                r#"spec.selector: Invalid value: {"matchLabels":{"a":"c"}}: field is immutable"#,
            ],
        );
        refuses(
            &DEPLOYMENTS,
            r#"{"spec":{"selector":{},"strategy":{"type":"Recreate","rollingUpdate":{}},
                "template":{"spec":{"restartPolicy":"Never","activeDeadlineSeconds":1,"containers":[{"name":"x","image":"i"}]}}}}"#,
            None,
            &[
                "spec.selector: Invalid value: {}: empty selector is invalid for deployment",
                r#"spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always""#,
                "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported",
                "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
            ],
        );
    }
}
