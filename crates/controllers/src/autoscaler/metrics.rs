//! Where numbers come from: the metrics APIs, if the plane serves them.
//!
//! A plane without `metrics.k8s.io` takes what pods use from their own annotations: there are no real pods then that anybody
//! could measure, and people want to see autoscalers work on simulated nodes.

use std::sync::Arc;

use polder_client::InPlane;
use polder_model::quantity::Quantity;
use polder_model::selector::LabelSelector;
use polder_model::{GroupVersionResource, SmolStr, Status, Value, format_smolstr};

use super::replicas::{Sample, Samples};
use crate::{meta, timestamp};

/// What a pod says it uses, by resource: `polder.dev/simulated-cpu: 250m`.
const SIMULATED: &str = "polder.dev/simulated-";
const POD_METRICS: (&str, &str, &str) = ("metrics.k8s.io", "v1beta1", "pods");
const EXTERNAL: (&str, &str) = ("external.metrics.k8s.io", "v1beta1");
const NOT_SERVED: &str = "the server could not find the requested resource";

/// What pods use of a resource: all containers of each, or one.
pub(super) async fn of_pods(
    plane: &InPlane,
    namespace: &str,
    selector: &LabelSelector,
    pods: &[Arc<Value>],
    resource: &str,
    container: &str,
) -> Result<Samples, String> {
    let failed = |why: String| {
        format!(
            "unable to get metrics for resource {resource}: unable to fetch metrics from resource metrics API: {why}"
        )
    };
    let (group, version, plural) = POD_METRICS;
    let at = GroupVersionResource { group: group.into(), version: version.into(), resource: plural.into() };
    let metrics = match plane.list_selected(&at, namespace, selector.clone()).await {
        Ok(metrics) => metrics,
        Err(status) if status.code == 404 => {
            let simulated = simulated(pods, resource, plane.client.now());
            return match simulated.is_empty() {
                true => Err(failed(format!("{NOT_SERVED} (get {plural}.{group})"))),
                false => Ok(simulated),
            };
        }
        Err(status) => return Err(failed(status.message.to_string())),
    };
    if metrics.is_empty() {
        return Err(format!(
            "unable to get metrics for resource {resource}: no metrics returned from resource metrics API"
        ));
    }
    Ok(metrics.iter().filter_map(|metric| sample(metric, resource, container)).collect())
}

/// What one pod uses, as its metrics tell; nothing if they do not.
fn sample(metric: &Value, resource: &str, container: &str) -> Option<(SmolStr, Sample)> {
    let containers = metric.array_at(&["containers"]).iter();
    let mut containers =
        containers.filter(|one| container.is_empty() || one.str_at(&["name"]) == Some(container)).peekable();
    containers.peek()?;
    let mut value = 0_i64;
    for one in containers {
        value = value.saturating_add(quantity(one.at(&["usage", resource])?)?);
    }
    let at = metric.str_at(&["timestamp"]).and_then(timestamp::seconds).unwrap_or_default();
    let window = metric.str_at(&["window"]).and_then(seconds).unwrap_or(60);
    Some((meta::name(metric).into(), Sample { value, at, window }))
}

fn simulated(pods: &[Arc<Value>], resource: &str, now: i64) -> Samples {
    let annotation = format_smolstr!("{SIMULATED}{resource}");
    let said = pods.iter().filter_map(|pod| {
        let value = quantity(pod.at(&["metadata", "annotations", &annotation])?)?;
        Some((meta::name(pod).into(), Sample { value, at: now, window: 0 }))
    });
    said.collect()
}

/// The sum of all values of an external metric.
pub(super) async fn external(
    plane: &InPlane,
    namespace: &str,
    metric: &str,
    selector: Option<&Value>,
) -> Result<i64, String> {
    let failed = |why: String| {
        let selector = described(selector);
        format!("unable to get external metric {namespace}/{metric}/{selector}: {why}")
    };
    let fetch = |status: Status| {
        let why = if status.code == 404 { NOT_SERVED.into() } else { status.message.to_string() };
        failed(format!("unable to fetch metrics from external metrics API: {why}"))
    };
    let labels = match selector.filter(|selector| !selector.is_null()) {
        Some(selector) => LabelSelector::from_value(selector).map_err(|error| error.to_string())?,
        None => LabelSelector::everything(),
    };
    let (group, version) = EXTERNAL;
    let at = GroupVersionResource { group: group.into(), version: version.into(), resource: metric.into() };
    let values = plane.list_selected(&at, namespace, labels).await.map_err(fetch)?;
    if values.is_empty() {
        return Err(failed("no metrics returned from external metrics API".into()));
    }
    let numbers = values.iter().filter_map(|value| quantity(value.get("value")?));
    Ok(numbers.fold(0_i64, i64::saturating_add))
}

/// Custom metrics are parts of objects that have no fixed name, which nobody serves here.
pub(super) fn custom(metric: &str) -> String {
    format!("unable to get metric {metric}: unable to fetch metrics from custom metrics API: {NOT_SERVED}")
}

/// A selector as messages have it.
pub(super) fn described(selector: Option<&Value>) -> String {
    let Some(labels) = selector.and_then(|selector| selector.at(&["matchLabels"])).and_then(Value::as_object)
    else {
        return "nil".into();
    };
    let labels: String =
        labels.iter().map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default())).collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{}},}}"
    )
}

fn quantity(value: &Value) -> Option<i64> {
    Quantity::from_value(value).ok().map(|quantity| quantity.as_milli())
}

/// Seconds of a duration such as `1m30s`; parts of a second are left out.
fn seconds(text: &str) -> Option<i64> {
    let (mut total, mut digits) = (0.0_f64, String::new());
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '0'..='9' | '.' => digits.push(char),
            _ => {
                let number: f64 = std::mem::take(&mut digits).parse().ok()?;
                let unit = match (char, chars.peek()) {
                    ('m', Some('s')) => {
                        chars.next();
                        0.001
                    }
                    ('h', _) => 3600.0,
                    ('m', _) => 60.0,
                    ('s', _) => 1.0,
                    _ => return None,
                };
                total += number * unit;
            }
        }
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is clamped")]
    let whole = total.clamp(0.0, 86_400.0) as i64;
    digits.is_empty().then_some(whole)
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    #[test]
    fn samples_are_read() {
        let metric = json!({
            "metadata": {"name": "p"}, "timestamp": "1970-01-01T00:01:00Z", "window": "30s",
            "containers": [
                {"name": "a", "usage": {"cpu": "250m", "memory": "1Ki"}},
                {"name": "b", "usage": {"cpu": "1"}},
            ],
        });
        let value =
            |resource, container| sample(&metric, resource, container).map(|(_, sample)| sample.value);
        assert_eq!(value("cpu", ""), Some(1250));
        assert_eq!(value("cpu", "a"), Some(250));
        assert_eq!(value("memory", ""), None, "one container does not tell");
        assert_eq!(value("memory", "a"), Some(1_024_000));
        assert_eq!(value("cpu", "c"), None);
        let (name, found) = sample(&metric, "cpu", "").unwrap();
        assert_eq!((name.as_str(), found.at, found.window), ("p", 60, 30));
    }

    #[test]
    fn durations_are_read() {
        for (text, expected) in [
            ("30s", Some(30)),
            ("1m0s", Some(60)),
            ("1h1m1.5s", Some(3661)),
            ("20ms", Some(0)),
            ("x", None),
            ("5", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }
}
