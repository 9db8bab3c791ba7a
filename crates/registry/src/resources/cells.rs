//! Cells of `kubectl get` rows that many kinds share. Every function answers something, whatever the object holds.

use polder_machinery::age::human_duration;
use polder_model::Value;

use crate::behavior::{Column, Print};

/// The second column of kinds for which upstream has no printer: Name, Created At.
pub(super) const CREATED_AT: Column = Column { name: "Created At", kind: "date", format: "", wide: false };

pub(super) fn name(object: &Value) -> Value {
    text(object, &["metadata", "name"], "")
}

/// How long ago the object was created.
pub(super) fn age(object: &Value, print: &Print) -> Value {
    let created = object.str_at(&["metadata", "creationTimestamp"]);
    let created: Option<jiff::Timestamp> = created.and_then(|text| text.parse().ok());
    match created {
        Some(created) => human_duration(print.now.saturating_sub(created.as_second())).into(),
        None => "<unknown>".into(),
    }
}

pub(super) fn created_at(object: &Value) -> Value {
    text(object, &["metadata", "creationTimestamp"], "")
}

/// A string, or the text for when there is none.
pub(super) fn text(object: &Value, path: &[&str], missing: &str) -> Value {
    object.str_at(path).unwrap_or(missing).into()
}

pub(super) fn flag(object: &Value, path: &[&str], missing: bool) -> Value {
    object.at(path).and_then(Value::as_bool).unwrap_or(missing).into()
}

/// How many elements a list has.
pub(super) fn len(object: &Value, path: &[&str]) -> Value {
    i64::try_from(object.array_at(path).len()).unwrap_or(i64::MAX).into()
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

/// A label selector on one line, requirements sorted by key.
pub(super) fn label_selector(selector: Option<&Value>) -> Value {
    let mut terms: Vec<(&str, String)> = Vec::new();
    if let Some(labels) = selector.and_then(|selector| selector.get("matchLabels")).and_then(Value::as_object)
    {
        for (key, value) in labels.iter() {
            terms.push((key, format!("{key}={}", value.as_str().unwrap_or_default())));
        }
    }
    for expression in selector.map(|selector| selector.array_at(&["matchExpressions"])).unwrap_or_default() {
        let key = expression.str_at(&["key"]).unwrap_or_default();
        let mut values: Vec<&str> =
            expression.array_at(&["values"]).iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let term = match expression.str_at(&["operator"]) {
            Some("In") => format!("{key} in ({values})"),
            Some("NotIn") => format!("{key} notin ({values})"),
            Some("Exists") => key.to_owned(),
            Some("DoesNotExist") => format!("!{key}"),
            _ => return "<error>".into(),
        };
        terms.push((key, term));
    }
    if terms.is_empty() {
        return "<none>".into();
    }
    terms.sort_by_key(|(key, _)| *key);
    let terms: Vec<String> = terms.into_iter().map(|(_, term)| term).collect();
    terms.join(",").into()
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
    fn selectors_on_one_line() {
        let rows = [
            ("{}", "<none>"),
            (r#"{"matchLabels":{"b":"1","a":"2"}}"#, "a=2,b=1"),
            (
                r#"{"matchLabels":{"m":"1"},"matchExpressions":[{"key":"z","operator":"Exists"},
                    {"key":"a","operator":"In","values":["y","x"]},{"key":"n","operator":"DoesNotExist"}]}"#,
                "a in (x,y),m=1,!n,z",
            ),
            (r#"{"matchExpressions":[{"key":"z","operator":"What"}]}"#, "<error>"),
        ];
        for (selector, cell) in rows {
            let selector = Value::parse(selector.as_bytes()).unwrap();
            assert_eq!(label_selector(Some(&selector)).as_str(), Some(cell));
        }
        assert_eq!(label_selector(None).as_str(), Some("<none>"));
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
