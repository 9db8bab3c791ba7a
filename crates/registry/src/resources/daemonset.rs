//! Daemon sets.

use polder_model::{FieldError, FieldPath, Object, Value};

use super::blank_status;
use super::status_rules::Counters;
use super::{cells, checks, label_selector, workload};
use crate::behavior::{Behavior, Column, Print};

/// The old counter of template changes, which apps/v1 keeps in an annotation.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

const STATUS: Counters = Counters {
    not_negative: &[
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ],
    at_most: &[],
};

pub(super) const DAEMONSETS: Behavior = Behavior {
    group: "apps",
    resource: "daemonsets",
    generation: true,
    columns: &[
        Column::NAME,
        Column::integer("Desired"),
        Column::integer("Current"),
        Column::integer("Ready"),
        Column::integer("Up-to-date"),
        Column::integer("Available"),
        Column::text("Node Selector"),
        Column::AGE,
        workload::CONTAINERS,
        workload::IMAGES,
        workload::SELECTOR,
    ],
    cells,
    default,
    prepare_create,
    prepare_update,
    validate_status: |new, _, errors| STATUS.validate(new, errors),
    warnings: workload::template_warnings,
    validate,
    ..Behavior::PLAIN
};

fn cells(set: &Value, print: &Print) -> Vec<Value> {
    let [names, images, selector] = workload::wide_cells(set);
    let count = |key: &str| cells::count(set, &["status", key]).into();
    vec![
        cells::name(set),
        count("desiredNumberScheduled"),
        count("currentNumberScheduled"),
        count("numberReady"),
        count("updatedNumberScheduled"),
        count("numberAvailable"),
        cells::labels(set.at(&["spec", "template", "spec", "nodeSelector"])),
        cells::age(set, print),
        names,
        images,
        selector,
    ]
}

fn default(set: &mut Value) {
    let amounts = [("maxUnavailable", Value::Int(1)), ("maxSurge", Value::Int(0))];
    workload::default_rolling_update(set, "updateStrategy", &amounts);
    workload::default_template(set);
}

fn template_generation(set: &Value) -> i64 {
    let text = set.str_at(&["metadata", "annotations", TEMPLATE_GENERATION]);
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn prepare_create(set: &mut Value) {
    let counts = ["currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"];
    let status: Object = counts.into_iter().map(|key| (key.into(), Value::Int(0))).collect();
    blank_status::set(set, status.into());
    if set.as_object().is_some() {
        let generation = template_generation(set).max(1);
        set.set_at(&["metadata", "annotations", TEMPLATE_GENERATION], generation.to_string());
    }
}

fn prepare_update(new: &mut Value, old: &Value) {
    if new.as_object().is_some() {
        let changed = new.at(&["spec", "template"]) != old.at(&["spec", "template"]);
        let generation = template_generation(old).saturating_add(i64::from(changed));
        new.set_at(&["metadata", "annotations", TEMPLATE_GENERATION], generation.to_string());
    }
}

fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = FieldPath::root("spec");
    let spec = new.get("spec").unwrap_or(&Value::Null);
    if let Some(old) = old.and_then(|old| old.get("spec")) {
        checks::immutable(spec, old, "selector", &path, errors);
    }
    let selector = checks::some(spec, "selector");
    label_selector::validate(selector, &path.member("selector"), errors);
    workload::validate_selects(spec, &path, errors);
    if let Some(selector) = selector.filter(|selector| label_selector::is_empty(selector)) {
        let text = "empty selector is invalid for daemonset";
        errors.push(FieldError::invalid(path.member("selector"), selector.clone(), text));
    }
    workload::validate_template(spec, "DaemonSet", Default::default(), &path, errors);
    checks::not_negative(spec, &["minReadySeconds"], &path, errors);
    validate_strategy(spec, &path.member("updateStrategy"), errors);
    checks::not_negative(spec, &["revisionHistoryLimit"], &path, errors);
}

fn validate_strategy(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let Some(strategy) = spec.get("updateStrategy") else { return };
    let rolling_path = path.member("rollingUpdate");
    match checks::text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let Some(rolling) = checks::some(strategy, "rollingUpdate") else { return };
            let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            let (unavailable_path, surge_path) =
                (rolling_path.member("maxUnavailable"), rolling_path.member("maxSurge"));
            checks::positive_int_or_percent(unavailable, &unavailable_path, errors);
            checks::positive_int_or_percent(surge, &surge_path, errors);
            checks::at_most_100_percent(unavailable, &unavailable_path, errors);
            checks::at_most_100_percent(surge, &surge_path, errors);
            match (checks::int_or_percent(unavailable), checks::int_or_percent(surge)) {
                (0, 0) => {
                    errors.push(FieldError::required(unavailable_path, "cannot be 0 when maxSurge is 0"))
                }
                (0, _) | (_, 0) => {}
                _ => errors.push(FieldError::invalid(
                    surge_path,
                    surge.cloned().unwrap_or_default(),
                    "may not be set when maxUnavailable is non-zero",
                )),
            }
        }
        _ => errors.push(FieldError::not_supported(path, strategy.clone(), ["RollingUpdate", "OnDelete"])),
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{creates, defaults, prints, refuses, updates};
    use super::DAEMONSETS;

    #[test]
    fn cells() {
        prints(
            &DAEMONSETS,
            r#"{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"spec":{"nodeSelector":{"x":"y"},"containers":[{"name":"c","image":"i"}]}}},
                "status":{"desiredNumberScheduled":5,"currentNumberScheduled":4,"numberReady":3,"updatedNumberScheduled":2,"numberAvailable":1}}"#,
            "d|5|4|3|2|1|x=y|<unknown>|c|i|a=b",
        );
    }

    #[test]
    fn default() {
        defaults(
            &DAEMONSETS,
            r#"{"spec":{}}"#,
            r#"{"spec":{"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0,"maxUnavailable":1}}}}"#,
        );
        let on_delete = r#"{"spec":{"updateStrategy":{"type":"OnDelete"}}}"#;
        defaults(&DAEMONSETS, on_delete, on_delete);
    }

    #[test]
    fn template_changes_are_counted() {
        let set = |generation: u8, name: &str| {
            format!(
                r#"{{"metadata":{{"annotations":{{"deprecated.daemonset.template.generation":"{generation}"}}}},"spec":{{"template":"{name}"}}}}"#
            )
        };
        let made = r#"{"metadata":{"annotations":{"deprecated.daemonset.template.generation":"1"}},"spec":{"template":"a"},
            "status":{"currentNumberScheduled":0,"numberMisscheduled":0,"desiredNumberScheduled":0,"numberReady":0}}"#;
        creates(&DAEMONSETS, r#"{"spec":{"template":"a"}}"#, made);
        updates(&DAEMONSETS, &set(9, "a"), &set(1, "a"), &set(1, "a"));
        updates(&DAEMONSETS, r#"{"spec":{"template":"b"}}"#, &set(1, "a"), &set(2, "b"));
    }

    #[test]
    fn checks() {
        refuses(
            &DAEMONSETS,
            r#"{"spec":{"selector":{"matchLabels":{"a":"c"}},"updateStrategy":{"rollingUpdate":{"maxSurge":1,"maxUnavailable":"101%"}},
                "template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"x","image":"i"}]}}}}"#,
            Some(r#"{"spec":{"selector":{"matchLabels":{"a":"b"}}}}"#),
            &[
                r#"spec.selector: Invalid value: {"matchLabels":{"a":"c"}}: field is immutable"#,
                r#"spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`"#,
                r#"spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: "101%": must not be greater than 100%"#,
                "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero",
            ],
        );
    }
}
