//! Autoscalers as autoscaling/v1 shows them: one CPU target in the spec, everything else in annotations, so that no
//! field is lost on the way there and back.

use polder_model::{Object, Value, json};

use super::checks;

pub(super) const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

pub(super) const DEFAULT_CPU_PERCENT: i64 = 80;

/// Where each part of a metric is: the source, its place in v2 and in v1. `$` is `target` in specs and `current` in
/// statuses, in v1 as a prefix.
const PLACES: [(&str, &[&str], &str); 19] = [
    ("resource", &["name"], "name"),
    ("resource", &["$", "averageUtilization"], "$AverageUtilization"),
    ("resource", &["$", "averageValue"], "$AverageValue"),
    ("containerResource", &["name"], "name"),
    ("containerResource", &["container"], "container"),
    ("containerResource", &["$", "averageUtilization"], "$AverageUtilization"),
    ("containerResource", &["$", "averageValue"], "$AverageValue"),
    ("pods", &["metric", "name"], "metricName"),
    ("pods", &["metric", "selector"], "selector"),
    ("pods", &["$", "averageValue"], "$AverageValue"),
    ("object", &["describedObject"], "target"),
    ("object", &["metric", "name"], "metricName"),
    ("object", &["metric", "selector"], "selector"),
    ("object", &["$", "value"], "$Value"),
    ("object", &["$", "averageValue"], "averageValue"),
    ("external", &["metric", "name"], "metricName"),
    ("external", &["metric", "selector"], "metricSelector"),
    ("external", &["$", "value"], "$Value"),
    ("external", &["$", "averageValue"], "$AverageValue"),
];

/// A metric for the average CPU use of the pods.
pub(super) fn cpu_metric(percent: i64) -> Value {
    json!({
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}},
    })
}

/// Between `v1` and `v2`.
pub(super) fn convert(autoscaler: &mut Value, from: &str, to: &str) {
    if autoscaler.as_object().is_none() {
        return;
    }
    match (from, to) {
        ("autoscaling/v1", "autoscaling/v2") => to_v2(autoscaler),
        ("autoscaling/v2", "autoscaling/v1") => to_v1(autoscaler),
        _ => return,
    }
    if autoscaler.get("apiVersion").is_some() {
        autoscaler.set_at(&["apiVersion"], to);
    }
}

fn to_v1(autoscaler: &mut Value) {
    for annotation in [METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR] {
        autoscaler.remove_at(&["metadata", "annotations", annotation]);
    }
    let mut annotate = Vec::new();
    if let Some(Value::Array(metrics)) = autoscaler.remove_at(&["spec", "metrics"]) {
        if let Some(percent) = metrics.iter().find_map(cpu_percent) {
            autoscaler.set_at(&["spec", "targetCPUUtilizationPercentage"], percent);
        }
        let others: Vec<Value> = metrics
            .iter()
            .filter(|metric| cpu_percent(metric).is_none())
            .map(|metric| metric_to_v1(metric, "target"))
            .collect();
        annotate.push((METRICS, Value::Array(others)));
    }
    if let Some(behavior) = autoscaler.remove_at(&["spec", "behavior"]) {
        annotate.push((BEHAVIOR, with_first_letters(&behavior, char::to_ascii_uppercase)));
    }
    if let Some(Value::Array(metrics)) = autoscaler.remove_at(&["status", "currentMetrics"]) {
        let percent = metrics
            .iter()
            .filter(|metric| is_cpu(metric))
            .filter_map(|metric| metric.i64_at(&["resource", "current", "averageUtilization"]))
            .next_back();
        if let Some(percent) = percent {
            autoscaler.set_at(&["status", "currentCPUUtilizationPercentage"], percent);
        }
        let metrics = metrics.iter().map(|metric| metric_to_v1(metric, "current")).collect();
        annotate.push((CURRENT_METRICS, Value::Array(metrics)));
    }
    if let Some(conditions) = autoscaler.remove_at(&["status", "conditions"]) {
        annotate.push((CONDITIONS, conditions));
    }
    for (annotation, value) in annotate {
        if !checks::same(Some(&value), None) {
            autoscaler.set_at(&["metadata", "annotations", annotation], value.to_string());
        }
    }
}

fn to_v2(autoscaler: &mut Value) {
    let mut taken = |annotation: &str| {
        let text = autoscaler.remove_at(&["metadata", "annotations", annotation])?;
        Value::parse(text.as_str()?.as_bytes()).ok()
    };
    let [metrics, current, conditions, behavior] =
        [METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR].map(&mut taken);
    let list = |value: Option<Value>, prefix: &str| -> Option<Vec<Value>> {
        Some(value?.as_array()?.iter().map(|metric| metric_to_v2(metric, prefix)).collect())
    };

    let mut metrics = list(metrics, "target").unwrap_or_default();
    let percent = autoscaler.remove_at(&["spec", "targetCPUUtilizationPercentage"]);
    if let Some(percent) = percent.as_ref().and_then(Value::as_i64) {
        metrics.push(cpu_metric(percent));
    }
    if metrics.is_empty() {
        metrics.push(cpu_metric(DEFAULT_CPU_PERCENT));
    }
    autoscaler.set_at(&["spec", "metrics"], metrics);
    if let Some(behavior) =
        behavior.filter(|behavior| behavior.as_object().is_some_and(|own| !own.is_empty()))
    {
        let behavior = with_first_letters(&behavior, char::to_ascii_lowercase);
        autoscaler.set_at(&["spec", "behavior"], without_nulls(behavior));
    }

    let percent = autoscaler.remove_at(&["status", "currentCPUUtilizationPercentage"]);
    let current = list(current, "current").or_else(|| {
        let percent = percent?.as_i64()?;
        Some(vec![json!({
            "type": "Resource",
            "resource": {"name": "cpu", "current": {"averageUtilization": percent}},
        })])
    });
    if let Some(current) = current {
        autoscaler.set_at(&["status", "currentMetrics"], current);
    }
    if let Some(conditions) = conditions.filter(|conditions| conditions.as_array().is_some()) {
        autoscaler.set_at(&["status", "conditions"], conditions);
    }
}

fn is_cpu(metric: &Value) -> bool {
    checks::text(metric, "type") == "Resource" && metric.str_at(&["resource", "name"]) == Some("cpu")
}

fn cpu_percent(metric: &Value) -> Option<i64> {
    metric.i64_at(&["resource", "target", "averageUtilization"]).filter(|_| is_cpu(metric))
}

/// `$Value` in v1: `targetValue` or `currentValue`.
fn v1_name(name: &str, prefix: &str) -> String {
    name.replace('$', prefix)
}

fn metric_to_v1(metric: &Value, prefix: &str) -> Value {
    let mut converted = json!({"type": (checks::text(metric, "type"))});
    for (source, v2, v1) in PLACES {
        let path: Vec<&str> = std::iter::once(source)
            .chain(v2.iter().map(|step| if *step == "$" { prefix } else { step }))
            .collect();
        if let Some(value) = metric.at(&path) {
            converted.set_at(&[source, &v1_name(v1, prefix)], value.clone());
        }
    }
    converted
}

fn metric_to_v2(metric: &Value, prefix: &str) -> Value {
    let mut converted = json!({"type": (checks::text(metric, "type"))});
    for (source, v2, v1) in PLACES {
        let path: Vec<&str> = std::iter::once(source)
            .chain(v2.iter().map(|step| if *step == "$" { prefix } else { step }))
            .collect();
        // A zero target value is how v1 says that there is none.
        let value = metric.at(&[source, &v1_name(v1, prefix)]);
        let absent = v1 == "$Value"
            && source == "object"
            && prefix == "target"
            && value.is_some_and(|value| value.as_str() == Some("0"));
        if let Some(value) = value.filter(|_| !absent) {
            converted.set_at(&path, value.clone());
        }
    }
    if prefix == "target" {
        for source in ["resource", "containerResource", "pods", "object", "external"] {
            let Some(target) = converted.at(&[source, "target"]) else { continue };
            let kind = if target.get("averageUtilization").is_some() {
                "Utilization"
            } else if target.get("averageValue").is_some() {
                "AverageValue"
            } else {
                "Value"
            };
            converted.set_at(&[source, "target", "type"], kind);
        }
    }
    converted
}

/// The behavior annotation has Go's field names, which are ours with a capital first letter.
fn with_first_letters(value: &Value, change: fn(&char) -> char) -> Value {
    match value {
        Value::Array(items) => {
            Value::Array(items.iter().map(|item| with_first_letters(item, change)).collect())
        }
        Value::Object(object) => {
            let renamed: Object = object
                .iter()
                .map(|(key, value)| {
                    let mut letters = key.chars();
                    let first = letters.next().map(|first| change(&first));
                    let key: String = first.into_iter().chain(letters).collect();
                    (key.into(), with_first_letters(value, change))
                })
                .collect();
            Value::Object(renamed)
        }
        other => other.clone(),
    }
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(object) => {
            let kept: Object = object
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key, without_nulls(value)))
                .collect();
            Value::Object(kept)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::horizontalpodautoscaler::HORIZONTALPODAUTOSCALERS;
    use super::super::rows::{converts, parse};
    use super::convert;

    #[test]
    fn one_cpu_target() {
        let v1 = r#"{"apiVersion":"autoscaling/v1","spec":{"maxReplicas":3,"targetCPUUtilizationPercentage":50},"status":{"currentCPUUtilizationPercentage":40}}"#;
        let v2 = r#"{"apiVersion":"autoscaling/v2","spec":{"maxReplicas":3,"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":50}}}]},
            "status":{"currentMetrics":[{"type":"Resource","resource":{"name":"cpu","current":{"averageUtilization":40}}}]}}"#;
        converts(&HORIZONTALPODAUTOSCALERS, "autoscaling/v1", "autoscaling/v2", v1, v2);
        converts(
            &HORIZONTALPODAUTOSCALERS,
            "autoscaling/v1",
            "autoscaling/v2",
            r#"{"spec":{}}"#,
            r#"{"spec":{"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":80}}}]}}"#,
        );
        converts(
            &HORIZONTALPODAUTOSCALERS,
            "autoscaling/v2",
            "autoscaling/v1",
            v2,
            r#"{"apiVersion":"autoscaling/v1","metadata":{"annotations":{
                "autoscaling.alpha.kubernetes.io/current-metrics":"[{\"resource\":{\"currentAverageUtilization\":40,\"name\":\"cpu\"},\"type\":\"Resource\"}]"}},
                "spec":{"maxReplicas":3,"targetCPUUtilizationPercentage":50},"status":{"currentCPUUtilizationPercentage":40}}"#,
        );
    }

    #[test]
    fn nothing_is_lost() {
        let v2 = parse(
            r#"{"metadata":{"annotations":{"a":"b"}},"spec":{"metrics":[
                {"type":"Pods","pods":{"metric":{"name":"m","selector":{"matchLabels":{"x":"y"}}},"target":{"type":"AverageValue","averageValue":"1"}}},
                {"type":"Object","object":{"describedObject":{"kind":"K","name":"n"},"metric":{"name":"m"},"target":{"type":"Value","value":"2"}}},
                {"type":"External","external":{"metric":{"name":"m"},"target":{"type":"AverageValue","averageValue":"3"}}},
                {"type":"ContainerResource","containerResource":{"name":"cpu","container":"c","target":{"type":"Utilization","averageUtilization":5}}},
                {"type":"Resource","resource":{"name":"memory","target":{"type":"AverageValue","averageValue":"1Gi"}}},
                {"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":50}}}],
                "behavior":{"scaleDown":{"selectPolicy":"Max","policies":[{"type":"Percent","value":100,"periodSeconds":15}]}}},
                "status":{"conditions":[{"type":"AbleToScale","status":"True"}],
                "currentMetrics":[{"type":"Pods","pods":{"metric":{"name":"m"},"current":{"averageValue":"9"}}}]}}"#,
        );
        let mut there = v2.clone();
        convert(&mut there, "autoscaling/v2", "autoscaling/v1");
        assert_eq!(there.i64_at(&["spec", "targetCPUUtilizationPercentage"]), Some(50));
        assert!(there.at(&["spec", "metrics"]).is_none() && there.at(&["spec", "behavior"]).is_none());
        assert!(
            there
                .str_at(&["metadata", "annotations", "autoscaling.alpha.kubernetes.io/behavior"])
                .is_some_and(|text| text.contains(r#""ScaleDown":{"Policies":[{"PeriodSeconds":15"#))
        );
        convert(&mut there, "autoscaling/v1", "autoscaling/v2");
        assert_eq!(there.to_string(), v2.to_string());
    }
}
