//! Horizontal pod autoscalers, kept in the shape of autoscaling/v2.

use polder_model::{FieldError, FieldPath, Value, json};

use super::blank_status;
use super::resource_amounts;
use super::status_rules::Counters;
use super::{autoscaler_v1, cells, checks};
use crate::behavior::{Behavior, Column, Print};

/// More metrics than these are only counted.
const SHOWN_MAX: usize = 2;

/// Metric types, each with its member.
const SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

const STATUS: Counters = Counters { not_negative: &["currentReplicas", "desiredReplicas"], at_most: &[] };

pub(super) const HORIZONTALPODAUTOSCALERS: Behavior = Behavior {
    group: "autoscaling",
    resource: "horizontalpodautoscalers",
    columns: &[
        Column::NAME,
        Column::text("Reference"),
        Column::text("Targets"),
        Column::text("MinPods"),
        Column::text("MaxPods"),
        Column::text("Replicas"),
        Column::AGE,
    ],
    cells,
    default,
    prepare_create: |object| blank_status::set(object, json!({"desiredReplicas": 0})),
    validate_status: |new, _, errors| STATUS.validate(new, errors),
    validate,
    convert: autoscaler_v1::convert,
    ..Behavior::PLAIN
};

fn cells(autoscaler: &Value, print: &Print) -> Vec<Value> {
    let target = autoscaler.at(&["spec", "scaleTargetRef"]).unwrap_or(&Value::Null);
    let min = autoscaler.i64_at(&["spec", "minReplicas"]);
    vec![
        cells::name(autoscaler),
        format!("{}/{}", checks::text(target, "kind"), checks::text(target, "name")).into(),
        targets(autoscaler).into(),
        min.map_or_else(|| "<unset>".into(), |min| min.to_string()).into(),
        cells::count(autoscaler, &["spec", "maxReplicas"]).into(),
        cells::count(autoscaler, &["status", "currentReplicas"]).into(),
        cells::age(autoscaler, print),
    ]
}

fn targets(autoscaler: &Value) -> String {
    let metrics = autoscaler.array_at(&["spec", "metrics"]);
    let current = autoscaler.array_at(&["status", "currentMetrics"]);
    if metrics.is_empty() {
        return "<none>".into();
    }
    let shown: Vec<String> = metrics
        .iter()
        .enumerate()
        .take(SHOWN_MAX)
        .map(|(index, metric)| target(metric, current.get(index).unwrap_or(&Value::Null)))
        .collect();
    let text = shown.join(", ");
    match metrics.len().checked_sub(SHOWN_MAX) {
        None | Some(0) => text,
        Some(more) => format!("{text} + {more} more..."),
    }
}

/// Where a metric is and where it should be.
fn target(metric: &Value, status: &Value) -> String {
    let kind = checks::text(metric, "type");
    let Some((_, member)) = SOURCES.iter().find(|(name, _)| *name == kind) else {
        return "<unknown type>".into();
    };
    let source = metric.get(member).unwrap_or(&Value::Null);
    let wanted = |key: &str| source.at(&["target", key]).filter(|value| !value.is_null());
    let status = checks::some(status, member);
    let now =
        |key: &str| status.and_then(|status| status.at(&["current", key])).filter(|value| !value.is_null());
    let amount = |value: Option<&Value>| {
        value.map_or_else(|| "<unknown>".to_owned(), |value| cells::quantity(Some(value)))
    };
    // A status without the amount counts as zero, no status as unknown.
    let reported = |key: &str| match status {
        Some(_) => cells::quantity(now(key)),
        None => "<unknown>".into(),
    };
    let percent = |value: Option<&Value>, missing: &str| {
        value.and_then(Value::as_i64).map_or_else(|| missing.to_owned(), |value| format!("{value}%"))
    };
    let average = wanted("averageValue");
    match (kind, average) {
        ("External" | "Object", Some(average)) => {
            format!("{}/{} (avg)", amount(now("averageValue")), cells::quantity(Some(average)))
        }
        ("External" | "Object", None) => {
            format!(
                "{}/{}",
                reported("value"),
                wanted("value").map_or_else(|| "<nil>".into(), |value| cells::quantity(Some(value)))
            )
        }
        ("Pods", average) => {
            let average = average.map_or_else(|| "<nil>".into(), |value| cells::quantity(Some(value)));
            format!("{}/{average}", reported("averageValue"))
        }
        (_, Some(average)) => format!(
            "{}: {}/{}",
            checks::text(source, "name"),
            reported("averageValue"),
            cells::quantity(Some(average))
        ),
        (_, None) => format!(
            "{}: {}/{}",
            checks::text(source, "name"),
            percent(now("averageUtilization"), "<unknown>"),
            percent(wanted("averageUtilization"), "<auto>")
        ),
    }
}

/// The one metric that autoscaling/v1 has a field for.
const CPU_TARGET: &str = "targetCPUUtilizationPercentage";

fn default(autoscaler: &mut Value) {
    let is_v1 = autoscaler.str_at(&["apiVersion"]) == Some("autoscaling/v1");
    let elsewhere = autoscaler.at(&["metadata", "annotations", autoscaler_v1::METRICS]).is_some();
    let Some(spec) = autoscaler.at_mut(&["spec"]).filter(|spec| spec.as_object().is_some()) else { return };
    if spec.get("minReplicas").is_none_or(Value::is_null) {
        spec.set_at(&["minReplicas"], 1);
    }
    if is_v1 {
        if !elsewhere && checks::some(spec, CPU_TARGET).is_none() {
            spec.set_at(&[CPU_TARGET], autoscaler_v1::DEFAULT_CPU_PERCENT);
        }
        return;
    }
    if spec.array_at(&["metrics"]).is_empty() {
        spec.set_at(&["metrics"], vec![autoscaler_v1::cpu_metric(autoscaler_v1::DEFAULT_CPU_PERCENT)]);
    }
    let Some(behavior) = spec.at_mut(&["behavior"]).filter(|behavior| behavior.as_object().is_some()) else {
        return;
    };
    let policy = |kind: &str, value: i64| json!({"type": kind, "value": value, "periodSeconds": 15});
    let defaults = [
        ("scaleUp", "selectPolicy", Value::from("Max")),
        ("scaleUp", "stabilizationWindowSeconds", 0.into()),
        ("scaleUp", "policies", vec![policy("Pods", 4), policy("Percent", 100)].into()),
        ("scaleDown", "selectPolicy", "Max".into()),
        ("scaleDown", "policies", vec![policy("Percent", 100)].into()),
    ];
    for (direction, key, value) in defaults {
        if behavior.at(&[direction, key]).is_none_or(Value::is_null) {
            behavior.set_at(&[direction, key], value);
        }
    }
}

fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = FieldPath::root("spec");
    let spec = new.get("spec").unwrap_or(&Value::Null);
    let min = spec.i64_at(&["minReplicas"]);
    let max = spec.i64_at(&["maxReplicas"]).unwrap_or_default();
    if let Some(min) = min.filter(|min| *min < 1) {
        let text = "must be greater than or equal to 1";
        errors.push(FieldError::invalid(path.member("minReplicas"), min, text));
    }
    if max < 1 {
        errors.push(FieldError::invalid(path.member("maxReplicas"), max, "must be greater than 0"));
    }
    if min.is_some_and(|min| max < min) {
        let text = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid(path.member("maxReplicas"), max, text));
    }
    reference(spec.get("scaleTargetRef"), &path.member("scaleTargetRef"), errors);
    let version_path = path.member("scaleTargetRef");
    let target = |object: &'_ Value| {
        let member = |key| object.str_at(&["spec", "scaleTargetRef", key]).unwrap_or_default().to_owned();
        (member("apiVersion"), member("kind"))
    };
    if old.is_none_or(|old| target(old) != target(new)) {
        target_version(spec.get("scaleTargetRef"), &version_path.member("apiVersion"), errors);
    }
    for (index, metric) in spec.array_at(&["metrics"]).iter().enumerate() {
        validate_metric(metric, &path.member("metrics").index(index), errors);
    }
    let is_of_others = |metric: &Value| matches!(checks::text(metric, "type"), "Object" | "External");
    if min == Some(0) && !spec.array_at(&["metrics"]).iter().any(is_of_others) {
        let text = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.push(FieldError::forbidden(path.member("metrics"), text));
    }
    if let Some(percent) = spec.i64_at(&[CPU_TARGET]).filter(|percent| *percent < 1) {
        let path = "spec.metrics[0].resource.target.averageUtilization";
        errors.push(FieldError::invalid(path, percent, "must be greater than 0"));
    }
    for direction in ["scaleUp", "scaleDown"] {
        if let Some(scaling) = spec.at(&["behavior", direction]).filter(|scaling| !scaling.is_null()) {
            validate_scaling(scaling, &path.member("behavior").member(direction), errors);
        }
    }
}

fn reference(reference: Option<&Value>, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let reference = reference.unwrap_or(&Value::Null);
    for key in ["kind", "name"] {
        match checks::text(reference, key) {
            "" => errors.push(FieldError::required(path.member(key), "")),
            text => {
                if let Some(problem) = polder_model::names::path_segment_problem(text) {
                    errors.push(FieldError::invalid(path.member(key), text, problem));
                }
            }
        }
    }
}

/// What is scaled belongs to a group, or is one of the core kinds that can be scaled.
fn target_version(reference: Option<&Value>, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let reference = reference.unwrap_or(&Value::Null);
    let (version, kind) = (checks::text(reference, "apiVersion"), checks::text(reference, "kind"));
    if version.matches('/').count() > 1 {
        let text = format!("unexpected GroupVersion string: {version}");
        errors.push(FieldError::invalid(path, version, text));
    } else if !version.contains('/') && kind != "ReplicationController" {
        errors.push(FieldError::invalid(path, version, "apiVersion must specify API group"));
    }
}

fn validate_metric(metric: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let kind = checks::text(metric, "type");
    let names = SOURCES.map(|(name, _)| name);
    if kind.is_empty() {
        errors.push(FieldError::required(path.member("type"), "must specify a metric source type"));
    }
    if !names.contains(&kind) {
        errors.push(FieldError::not_supported(path.member("type"), kind, names));
    }
    for (name, member) in SOURCES {
        let source = checks::some(metric, member);
        match source {
            None if name == kind => {
                let text = "must populate information for the given metric source";
                errors.push(FieldError::required(path.member(member), text));
            }
            Some(_) if name != kind => {
                let text = "must populate the given metric source only";
                errors.push(FieldError::forbidden(path.member(member), text));
            }
            Some(source) => validate_source(member, source, &path.member(member), errors),
            None => {}
        }
    }
}

fn validate_source(member: &str, source: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if member == "object" {
        reference(source.get("describedObject"), &path.member("describedObject"), errors);
    }
    if member.ends_with("esource") {
        if checks::text(source, "name").is_empty() {
            errors.push(FieldError::required(path.member("name"), "must specify a resource name"));
        }
        if member == "containerResource" && checks::text(source, "container").is_empty() {
            errors.push(FieldError::required(path.member("container"), "must specify a container"));
        }
    } else if source.str_at(&["metric", "name"]).unwrap_or_default().is_empty() {
        errors.push(FieldError::required(path.member("metric").member("name"), "must specify a metric name"));
    }
    let path = path.member("target");
    let has = |key: &str| source.at(&["target", key]).is_some_and(|value| !value.is_null());
    let kind = source.str_at(&["target", "type"]).unwrap_or_default();
    if kind.is_empty() {
        errors.push(FieldError::required(path.member("type"), "must specify a metric target type"));
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind) {
        let text = "must be either Utilization, Value, or AverageValue";
        errors.push(FieldError::invalid(path.member("type"), kind, text));
    }
    if let Some(percent) = source.i64_at(&["target", "averageUtilization"]).filter(|percent| *percent < 1) {
        errors.push(FieldError::invalid(
            path.member("averageUtilization"),
            percent,
            "must be greater than 0",
        ));
    }
    for key in ["value", "averageValue"] {
        if let Some(amount) = resource_amounts::amount(source.at(&["target", key]))
            && (amount.is_zero() || amount.is_negative())
        {
            errors.push(FieldError::invalid(path.member(key), amount.to_string(), "must be positive"));
        }
    }
    let (missing, text) = match member {
        "object" => (!has("value") && !has("averageValue"), "must set either a target value or averageValue"),
        "external" => (
            !has("value") && !has("averageValue"),
            "must set either a target value for metric or a per-pod target",
        ),
        "pods" => (!has("averageValue"), "must specify a positive target averageValue"),
        _ => (
            !has("averageUtilization") && !has("averageValue"),
            "must set either a target raw value or a target utilization",
        ),
    };
    if missing {
        let key = if member.ends_with("esource") { "averageUtilization" } else { "averageValue" };
        errors.push(FieldError::required(path.member(key), text));
    }
    if member == "external" && has("value") && has("averageValue") {
        let text = "may not set both a target value for metric and a per-pod target";
        errors.push(FieldError::forbidden(path.member("value"), text));
    }
    if member.ends_with("esource") && has("averageUtilization") && has("averageValue") {
        let text = "may not set both a target raw value and a target utilization";
        errors.push(FieldError::forbidden(path.member("averageValue"), text));
    }
}

fn validate_scaling(scaling: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let window_path = path.member("stabilizationWindowSeconds");
    match scaling.i64_at(&["stabilizationWindowSeconds"]) {
        Some(window) if window < 0 => {
            errors.push(FieldError::invalid(window_path, window, "must be greater than or equal to zero"));
        }
        Some(window) if window > 3600 => {
            errors.push(FieldError::invalid(window_path, window, "must be less than or equal to 3600"));
        }
        _ => {}
    }
    let selections = ["Disabled", "Max", "Min"];
    if let Some(policy) = scaling.str_at(&["selectPolicy"]).filter(|policy| !selections.contains(policy)) {
        errors.push(FieldError::not_supported(path.member("selectPolicy"), policy, selections));
    }
    let policies = scaling.array_at(&["policies"]);
    let path = path.member("policies");
    if policies.is_empty() {
        errors.push(FieldError::required(path, "must specify at least one Policy"));
    }
    for (index, policy) in policies.iter().enumerate() {
        let path = path.index(index);
        let kind = checks::text(policy, "type");
        if !["Percent", "Pods"].contains(&kind) {
            errors.push(FieldError::not_supported(path.member("type"), kind, ["Percent", "Pods"]));
        }
        for (key, max) in [("value", i64::MAX), ("periodSeconds", 1800)] {
            let number = cells::count(policy, &[key]);
            if number <= 0 {
                errors.push(FieldError::invalid(path.member(key), number, "must be greater than zero"));
            } else if number > max {
                let text = format!("must be less than or equal to {max}");
                errors.push(FieldError::invalid(path.member(key), number, text));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{defaults, prints, refuses};
    use super::HORIZONTALPODAUTOSCALERS;

    #[test]
    fn cells() {
        let rows = [
            ("", "", "<none>"),
            (
                r#"{"type":"Resource","resource":{"name":"cpu","target":{"averageUtilization":80}}}"#,
                "",
                "cpu: <unknown>/80%",
            ),
            (
                r#"{"type":"Resource","resource":{"name":"cpu","target":{"averageUtilization":80}}}"#,
                r#"{"resource":{"current":{"averageUtilization":50}}}"#,
                "cpu: 50%/80%",
            ),
            (
                r#"{"type":"Resource","resource":{"name":"memory","target":{"averageValue":"100Mi"}}}"#,
                r#"{"resource":{"current":{"averageValue":"50Mi"}}}"#,
                "memory: 50Mi/100Mi",
            ),
            (
                r#"{"type":"Pods","pods":{"target":{"averageValue":"100m"}}},{"type":"External","external":{"target":{"averageValue":"1"}}},{"type":"Object"}"#,
                "",
                "<unknown>/100m, <unknown>/1 (avg) + 1 more...",
            ),
            (
                r#"{"type":"Object","object":{"target":{"value":"100"}}}"#,
                r#"{"object":{"current":{"value":"50"}}}"#,
                "50/100",
            ),
        ];
        for (metrics, current, expected) in rows {
            prints(
                &HORIZONTALPODAUTOSCALERS,
                &format!(
                    r#"{{"metadata":{{"name":"h"}},"spec":{{"scaleTargetRef":{{"kind":"Deployment","name":"d"}},"maxReplicas":5,"metrics":[{metrics}]}},
                        "status":{{"currentReplicas":3,"currentMetrics":[{current}]}}}}"#
                ),
                &format!("h|Deployment/d|{expected}|<unset>|5|3|<unknown>"),
            );
        }
    }

    #[test]
    fn default() {
        defaults(
            &HORIZONTALPODAUTOSCALERS,
            r#"{"spec":{"behavior":{"scaleUp":{"selectPolicy":"Min"}}}}"#,
            r#"{"spec":{"minReplicas":1,"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":80}}}],
                "behavior":{"scaleUp":{"selectPolicy":"Min","stabilizationWindowSeconds":0,"policies":[{"type":"Pods","value":4,"periodSeconds":15},{"type":"Percent","value":100,"periodSeconds":15}]},
                "scaleDown":{"selectPolicy":"Max","policies":[{"type":"Percent","value":100,"periodSeconds":15}]}}}}"#,
        );
        defaults(
            &HORIZONTALPODAUTOSCALERS,
            r#"{"apiVersion":"autoscaling/v1","spec":{}}"#,
            r#"{"apiVersion":"autoscaling/v1","spec":{"minReplicas":1,"targetCPUUtilizationPercentage":80}}"#,
        );
    }

    #[test]
    fn checks() {
        refuses(
            &HORIZONTALPODAUTOSCALERS,
            r#"{"spec":{"minReplicas":3,"maxReplicas":2,"scaleTargetRef":{"kind":"D/"},"metrics":[{"type":"Pods"},{"type":"Resource","pods":{},"resource":{"name":"cpu","target":{"type":"X"}}}],
                "behavior":{"scaleUp":{"policies":[{"type":"X","value":1,"periodSeconds":1801}]}}}}"#,
            None,
            &[
                "spec.maxReplicas: Invalid value: 2: must be greater than or equal to `minReplicas`",
                r#"spec.scaleTargetRef.kind: Invalid value: "D/": may not contain '/'"#,
                "spec.scaleTargetRef.name: Required value",
                r#"spec.scaleTargetRef.apiVersion: Invalid value: "": apiVersion must specify API group"#,
                "spec.metrics[0].pods: Required value: must populate information for the given metric source",
                "spec.metrics[1].pods: Forbidden: must populate the given metric source only",
                r#"spec.metrics[1].resource.target.type: Invalid value: "X": must be either Utilization, Value, or AverageValue"#,
                "spec.metrics[1].resource.target.averageUtilization: Required value: must set either a target raw value or a target utilization",
                r#"spec.behavior.scaleUp.policies[0].type: Unsupported value: "X": supported values: "Percent", "Pods""#,
                "spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800",
            ],
        );
        refuses(
            &HORIZONTALPODAUTOSCALERS,
            r#"{"spec":{"minReplicas":0,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"D","name":"d"}}}"#,
            None,
            &[
                "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1",
                "spec.maxReplicas: Invalid value: 0: must be greater than 0",
                "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas",
            ],
        );
    }

    #[test]
    fn targets_are_positive() {
        refuses(
            &HORIZONTALPODAUTOSCALERS,
            r#"{"apiVersion":"autoscaling/v1","spec":{"maxReplicas":2,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"D","name":"d"},"targetCPUUtilizationPercentage":0}}"#,
            None,
            &["spec.metrics[0].resource.target.averageUtilization: Invalid value: 0: must be greater than 0"],
        );
        refuses(
            &HORIZONTALPODAUTOSCALERS,
            r#"{"spec":{"maxReplicas":2,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"D","name":"d"},
                "metrics":[{"type":"Pods","pods":{"metric":{"name":"m"},"target":{"type":"AverageValue","averageValue":"-1"}}}]}}"#,
            None,
            &[r#"spec.metrics[0].pods.target.averageValue: Invalid value: "-1": must be positive"#],
        );
    }
}
