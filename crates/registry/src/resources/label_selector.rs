//! Label selectors as objects carry them (`matchLabels`, `matchExpressions`): check, match, print.
//!
//! A selector that is missing selects nothing; an empty one selects everything.

use polder_model::{FieldError, FieldPath, Value};

use super::checks::{Errors, each, label_value, labels, qualified_name, text};

/// Checks syntax; a missing selector is fine here.
pub(super) fn validate(selector: Option<&Value>, path: &FieldPath<'_>, errors: &mut Errors) {
    let Some(selector) = selector else { return };
    labels(selector.get("matchLabels"), &path.member("matchLabels"), errors);
    each(selector, "matchExpressions", path, errors, validate_expression);
}

fn validate_expression(expression: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    if !validate_operator(expression, path, errors) {
        let (operator, why) = (text(expression, "operator"), "not a valid selector operator");
        errors.push(FieldError::invalid(path.member("operator"), operator, why));
    }
    validate_labels(expression, path, errors);
}

/// Checks whether the operator of an expression goes with its values; it may be one that nobody knows.
pub(super) fn validate_operator(expression: &Value, path: &FieldPath<'_>, errors: &mut Errors) -> bool {
    let values_empty = expression.array_at(&["values"]).is_empty();
    let path = path.member("values");
    match (text(expression, "operator"), values_empty) {
        ("In" | "NotIn", false) | ("Exists" | "DoesNotExist", true) => {}
        ("In" | "NotIn", true) => {
            errors.push(FieldError::required(path, "must be specified when `operator` is 'In' or 'NotIn'"));
        }
        ("Exists" | "DoesNotExist", false) => errors.push(FieldError::forbidden(
            path,
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        )),
        _ => return false,
    }
    true
}

/// Checks that an expression is about a label, and what it may be.
pub(super) fn validate_labels(expression: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    qualified_name(text(expression, "key"), &path.member("key"), errors);
    each(expression, "values", path, errors, |value, path, errors| {
        label_value(value.as_str().unwrap_or_default(), path, errors);
    });
}

/// Whether a selector can be read; a missing one selects nothing.
pub(super) fn is_valid(selector: Option<&Value>) -> bool {
    let mut errors = Errors::new();
    validate(selector, &FieldPath::ROOT, &mut errors);
    errors.is_empty()
}

/// Whether the selector has no requirements.
pub(super) fn is_empty(selector: &Value) -> bool {
    let no_labels =
        selector.get("matchLabels").and_then(Value::as_object).is_none_or(polder_model::Object::is_empty);
    no_labels && selector.array_at(&["matchExpressions"]).is_empty()
}

/// Whether labels are selected.
pub(super) fn matches(selector: Option<&Value>, labels: Option<&Value>) -> bool {
    let Some(selector) = selector else { return false };
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
    let all_labels = selector
        .get("matchLabels")
        .and_then(Value::as_object)
        .is_none_or(|wanted| wanted.iter().all(|(key, value)| label(key) == value.as_str()));
    all_labels
        && selector.array_at(&["matchExpressions"]).iter().all(|expression| {
            let own = label(expression.str_at(&["key"]).unwrap_or_default());
            let listed = || {
                let values = expression.array_at(&["values"]);
                own.is_some_and(|own| values.iter().any(|value| value.as_str() == Some(own)))
            };
            match expression.str_at(&["operator"]) {
                Some("In") => listed(),
                Some("NotIn") => !listed(),
                Some("Exists") => own.is_some(),
                Some("DoesNotExist") => own.is_none(),
                _ => false,
            }
        })
}

/// `a=b,c in (d,e)`; `None` for a selector that is no selector.
pub(super) fn format(selector: Option<&Value>) -> Option<String> {
    let Some(selector) = selector else { return Some(String::new()) };
    let mut requirements: Vec<(&str, String)> = Vec::new();
    if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
        for (key, value) in labels.iter() {
            requirements.push((key, format!("{key}={}", value.as_str().unwrap_or_default())));
        }
    }
    for expression in selector.array_at(&["matchExpressions"]) {
        let key = expression.str_at(&["key"]).unwrap_or_default();
        let mut values: Vec<&str> =
            expression.array_at(&["values"]).iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let text = match expression.str_at(&["operator"])? {
            "In" if !values.is_empty() => format!("{key} in ({})", values.join(",")),
            "NotIn" if !values.is_empty() => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return None,
        };
        requirements.push((key, text));
    }
    requirements.sort_by_key(|(key, _)| *key);
    let texts: Vec<String> = requirements.into_iter().map(|(_, text)| text).collect();
    Some(texts.join(","))
}

/// The selector as a cell.
pub(super) fn cell(selector: Option<&Value>) -> Value {
    match format(selector) {
        None => "<error>".into(),
        Some(text) if text.is_empty() => "<none>".into(),
        Some(text) => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_model::json;

    #[test]
    fn format_match_and_check() {
        let selector = Value::parse(
            br#"{"matchLabels":{"b":"1"},"matchExpressions":[
                {"key":"a","operator":"In","values":["y","x"]},{"key":"c","operator":"DoesNotExist"}]}"#,
        )
        .unwrap();
        assert_eq!(cell(Some(&selector)), "a in (x,y),b=1,!c".into());
        assert!(matches(Some(&selector), Some(&json!({"a": "x", "b": "1"}))));
        assert!(!matches(Some(&selector), Some(&json!({"a": "x", "b": "1", "c": ""}))));
        assert!(!matches(Some(&selector), None));
        assert!(matches(Some(&json!({})), None));
        assert!(!matches(None, Some(&json!({}))));
        assert_eq!(cell(None), "<none>".into());
        assert_eq!(
            cell(Some(&json!({"matchExpressions": [{"key": "a", "operator": "X"}]}))),
            "<error>".into()
        );

        let bad = Value::parse(
            br#"{"matchLabels":{"b":"-"},"matchExpressions":[
                {"key":"a","operator":"In"},{"key":"/","operator":"What","values":["_"]}]}"#,
        )
        .unwrap();
        let mut errors = Vec::new();
        validate(Some(&bad), &FieldPath::root("spec").member("selector"), &mut errors);
        let paths: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "spec.selector.matchLabels",
                "spec.selector.matchExpressions[0].values",
                "spec.selector.matchExpressions[1].operator",
                "spec.selector.matchExpressions[1].key",
                "spec.selector.matchExpressions[1].key",
                "spec.selector.matchExpressions[1].key",
                "spec.selector.matchExpressions[1].values[0]",
            ]
        );
    }
}
