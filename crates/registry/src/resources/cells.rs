//! Cells of `kubectl get` rows that many kinds share: ages, counts, containers, labels.
//!
//! Objects come from tenants and may be of any shape; a cell that cannot be computed prints what upstream prints for
//! the field's zero value.

use jiff::Timestamp;
use polder_machinery::age::human_duration;
use polder_model::Value;

use crate::behavior::{Column, Print};

/// The second column of kinds for which upstream has no printer: Name, Created At.
pub(super) const CREATED_AT: Column = Column { name: "Created At", kind: "date", format: "", wide: false };

pub(super) fn name(object: &Value) -> Value {
    text(object, &["metadata", "name"])
}

/// How long ago the object was created.
pub(super) fn age(object: &Value, print: &Print) -> Value {
    since(object.str_at(&["metadata", "creationTimestamp"]), print).into()
}

/// Whether the object is on its way out.
pub(super) fn is_terminating(object: &Value) -> bool {
    object.at(&["metadata", "deletionTimestamp"]).is_some_and(|timestamp| !timestamp.is_null())
}

pub(super) fn created_at(object: &Value) -> Value {
    text(object, &["metadata", "creationTimestamp"])
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

pub(super) fn flag(object: &Value, path: &[&str], missing: bool) -> Value {
    object.at(path).and_then(Value::as_bool).unwrap_or(missing).into()
}

/// The first three texts and how many more there are.
pub(super) fn first_three(texts: impl IntoIterator<Item = String>) -> String {
    let mut texts = texts.into_iter();
    let shown: Vec<String> = texts.by_ref().take(3).collect();
    match (shown.join(","), texts.count()) {
        (shown, 0) if shown.is_empty() => "<unset>".into(),
        (shown, 0) => shown,
        (shown, more) => format!("{shown} + {more} more..."),
    }
}

/// All strings of a list with a separator between them.
pub(super) fn joined(object: &Value, path: &[&str], separator: &str) -> String {
    let texts: Vec<&str> = object.array_at(path).iter().filter_map(Value::as_str).collect();
    texts.join(separator)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_cut_after_three() {
        let rows: [(&[&str], &str); 4] = [
            (&[], "<unset>"),
            (&["a"], "a"),
            (&["a", "b", "c"], "a,b,c"),
            (&["a", "b", "c", "d", "e"], "a,b,c + 2 more..."),
        ];
        for (texts, cell) in rows {
            assert_eq!(first_three(texts.iter().map(ToString::to_string)), cell);
        }
    }

    #[test]
    fn ages() {
        let print = Print { now: 1_767_225_700 };
        let rows = [
            (r#"{"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z"}}"#, "100s"),
            (r#"{"metadata":{"creationTimestamp":"yesterday"}}"#, "<unknown>"),
            ("{}", "<unknown>"),
        ];
        for (object, cell) in rows {
            let object = Value::parse(object.as_bytes()).unwrap();
            assert_eq!(age(&object, &print).as_str(), Some(cell));
        }
    }
}
