//! What `kubectl get` cells have in common: ages, counts, containers, labels.
//!
//! Objects come from tenants and may be of any shape; a cell that cannot be computed prints what upstream prints for
//! the field's zero value.

use jiff::Timestamp;
use polder_machinery::age::human_duration;
use polder_model::Value;

use crate::behavior::Print;

/// The object's name.
pub(super) fn name(object: &Value) -> Value {
    text(object, &["metadata", "name"])
}

/// How long ago the object was made.
pub(super) fn age(object: &Value, print: &Print) -> Value {
    since(object.str_at(&["metadata", "creationTimestamp"]), print).into()
}

/// How long ago a timestamp was.
pub(super) fn since(timestamp: Option<&str>, print: &Print) -> String {
    match timestamp.and_then(seconds) {
        Some(then) => human_duration(print.now.saturating_sub(then)),
        None => "<unknown>".into(),
    }
}

/// Seconds since 1970; `None` for what is no timestamp.
pub(super) fn seconds(timestamp: &str) -> Option<i64> {
    timestamp.parse::<Timestamp>().ok().map(Timestamp::as_second)
}

/// A string member, or nothing.
pub(super) fn text(object: &Value, path: &[&str]) -> Value {
    object.str_at(path).unwrap_or_default().into()
}

/// A string member, or another text when it is missing or empty.
pub(super) fn text_or<'a>(object: &'a Value, path: &[&str], missing: &'a str) -> &'a str {
    object.str_at(path).filter(|text| !text.is_empty()).unwrap_or(missing)
}

/// A number, 0 when missing.
pub(super) fn count(object: &Value, path: &[&str]) -> i64 {
    object.i64_at(path).unwrap_or_default()
}

/// How many members an object or list has.
pub(super) fn len(value: Option<&Value>) -> i64 {
    let len = match value {
        Some(Value::Object(object)) => object.len(),
        Some(Value::Array(items)) => items.len(),
        _ => 0,
    };
    i64::try_from(len).unwrap_or(i64::MAX)
}

/// A quantity as it is written; a missing one is zero.
pub(super) fn quantity(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.to_string(),
        Some(number @ (Value::Int(_) | Value::Float(_))) => number.to_string(),
        _ => "0".into(),
    }
}

/// An integer or string as it is written.
pub(super) fn int_or_string(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Names and images of a pod spec's containers.
pub(super) fn containers(pod_spec: Option<&Value>) -> [Value; 2] {
    let containers = pod_spec.map(|spec| spec.array_at(&["containers"])).unwrap_or_default();
    let joined = |key: &str| {
        containers
            .iter()
            .map(|container| container.get(key).and_then(Value::as_str).unwrap_or_default())
            .collect::<Vec<_>>()
            .join(",")
    };
    [joined("name").into(), joined("image").into()]
}

/// `a=b,c=d`, or `<none>`.
pub(super) fn labels(labels: Option<&Value>) -> Value {
    let Some(labels) = labels.and_then(Value::as_object).filter(|labels| !labels.is_empty()) else {
        return "<none>".into();
    };
    let pairs: Vec<String> =
        labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    pairs.join(",").into()
}

/// The status of a condition: `True`, `False`, `Unknown`.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    object
        .array_at(&["status", "conditions"])
        .iter()
        .find(|condition| condition.str_at(&["type"]) == Some(kind))?
        .str_at(&["status"])
}

/// `RWO,ROX` for a list of access modes.
pub(super) fn access_modes(modes: &[Value]) -> String {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let has = |mode: &str| modes.iter().any(|own| own.as_str() == Some(mode));
    let short: Vec<&str> = SHORT.iter().filter(|(mode, _)| has(mode)).map(|(_, short)| *short).collect();
    short.join(",")
}
