//! What the answers of metrics APIs mean. Pure.

use std::sync::Arc;

use polder_model::quantity::Quantity;
use polder_model::{SmolStr, Value, format_smolstr};

use super::replicas::{Sample, Samples};
use crate::{meta, timestamp};

/// What a pod says it uses, by resource: `polder.dev/simulated-cpu: 250m`.
const SIMULATED: &str = "polder.dev/simulated-";
/// A metric that does not say over which time it was measured.
const WINDOW_SECONDS: i64 = 60;

/// What one pod uses, as its metrics tell; nothing if they do not.
pub(super) fn of_containers(metric: &Value, resource: &str, container: &str) -> Option<(SmolStr, Sample)> {
    let containers = metric.array_at(&["containers"]).iter();
    let mut containers =
        containers.filter(|one| container.is_empty() || one.str_at(&["name"]) == Some(container)).peekable();
    containers.peek()?;
    let mut value = 0_i64;
    for one in containers {
        value = value.saturating_add(quantity(one.at(&["usage", resource])?)?);
    }
    let at = metric.str_at(&["timestamp"]).and_then(timestamp::seconds).unwrap_or_default();
    let window = metric.str_at(&["window"]).and_then(seconds).unwrap_or(WINDOW_SECONDS);
    Some((meta::name(metric).into(), Sample { value, at, window }))
}

/// What pods say themselves.
pub(super) fn simulated(pods: &[Arc<Value>], resource: &str, now: i64) -> Samples {
    let annotation = format_smolstr!("{SIMULATED}{resource}");
    let said = pods.iter().filter_map(|pod| {
        let value = quantity(pod.at(&["metadata", "annotations", &annotation])?)?;
        Some((meta::name(pod).into(), Sample { value, at: now, window: 0 }))
    });
    said.collect()
}

/// What one item of a list of custom metrics says about the object it names.
pub(super) fn of_object(metric: &Value) -> Option<(SmolStr, Sample)> {
    let name = metric.str_at(&["describedObject", "name"])?;
    let value = quantity(metric.get("value")?)?;
    let at = metric.str_at(&["timestamp"]).and_then(timestamp::seconds).unwrap_or_default();
    // Versions of the API name it differently.
    let window = metric.i64_at(&["windowSeconds"]).or_else(|| metric.i64_at(&["window"]));
    Some((name.into(), Sample { value, at, window: window.unwrap_or(WINDOW_SECONDS) }))
}

pub(super) fn items(list: &Value) -> &[Value] {
    list.array_at(&["items"])
}

/// In thousandths.
pub(super) fn quantity(value: &Value) -> Option<i64> {
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
            |resource, container| of_containers(&metric, resource, container).map(|(_, sample)| sample.value);
        assert_eq!(value("cpu", ""), Some(1250));
        assert_eq!(value("cpu", "a"), Some(250));
        assert_eq!(value("memory", ""), None, "one container does not tell");
        assert_eq!(value("memory", "a"), Some(1_024_000));
        assert_eq!(value("cpu", "c"), None);
        let (name, found) = of_containers(&metric, "cpu", "").unwrap();
        assert_eq!((name.as_str(), found.at, found.window), ("p", 60, 30));
    }

    #[test]
    fn custom_metrics_are_read() {
        let metric = |window: &str| {
            let mut metric = json!({
                "describedObject": {"kind": "Pod", "name": "p"}, "timestamp": "1970-01-01T00:01:00Z", "value": "1500m",
            });
            metric.set_at(&[window], 30);
            metric
        };
        for (window, expected) in [("windowSeconds", 30), ("window", 30), ("other", 60)] {
            let (name, found) = of_object(&metric(window)).unwrap();
            assert_eq!(name, "p");
            assert_eq!(found, Sample { value: 1500, at: 60, window: expected });
        }
        assert_eq!(of_object(&json!({"value": "1"})), None, "of what?");
        assert_eq!(of_object(&json!({"describedObject": {"name": "p"}, "value": {}})), None);
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
