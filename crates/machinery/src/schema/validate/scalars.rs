//! Checks of single values: their type, what is allowed, length and pattern of texts, bounds of numbers.

use std::cmp::Ordering;

use polder_model::field::bounded;
use polder_model::{FieldError, FieldPath, Value};

use super::super::go_text::float;
use super::super::{Checks, Kind, Node};
use super::shown::{SHOWN_BYTES_MAX, clipped};
use super::{ERRORS_MAX, Outcome, Validator, shown};

impl Validator {
    pub(super) fn check_null(&self, node: &Node, name: &FieldPath<'_>, outcome: &mut Outcome) {
        match type_text(node.kind) {
            // Times read null as absent.
            Some(expected) if !node.nullable && !matches!(node.kind, Kind::Time | Kind::MicroTime) => {
                outcome.add(self.wrong_type(name, expected, "null"));
            }
            _ => outcome.matches += 1,
        }
    }

    pub(super) fn check_allowed(
        &self,
        node: &Node,
        value: &Value,
        name: &FieldPath<'_>,
        outcome: &mut Outcome,
    ) {
        let is_same = |allowed: &Value| match (allowed.as_f64(), value.as_f64()) {
            (Some(allowed), Some(value)) => allowed == value,
            _ => allowed == value && !value.is_null(),
        };
        if node.allowed.is_empty() || node.allowed.iter().any(is_same) {
            return;
        }
        let mut bytes_left = SHOWN_BYTES_MAX;
        let texts = node.allowed.iter().map_while(|allowed| {
            let text = match shown(allowed) {
                Value::String(text) => text.to_string(),
                other => other.to_string(),
            };
            let listed = bytes_left > 0;
            bytes_left = bytes_left.saturating_sub(text.len());
            listed.then_some(text)
        });
        outcome.add(FieldError::not_supported(self.at(name), shown(value), texts.take(ERRORS_MAX)));
    }

    pub(super) fn string_problem(
        &mut self,
        checks: &Checks,
        text: &str,
        name: &FieldPath<'_>,
    ) -> Option<FieldError> {
        self.spend(text.len() / 64);
        if checks.max_length.is_some() || checks.min_length.is_some() {
            let length = text.chars().count() as u64;
            if let Some(max) = checks.max_length.filter(|max| length > *max) {
                return Some(FieldError::too_long(self.at(name), usize::try_from(max).unwrap_or(usize::MAX)));
            }
            if let Some(min) = checks.min_length.filter(|min| length < *min) {
                let problem = format!("should be at least {min} chars long");
                return Some(self.invalid(name, Value::from(clipped(text).as_ref()), &problem));
            }
        }
        let (pattern, regex) = checks.pattern.as_ref()?;
        if regex.is_match(text) {
            return None;
        }
        let problem = format!("should match '{}'", clipped(pattern));
        Some(self.invalid(name, Value::from(clipped(text).as_ref()), &problem))
    }

    pub(super) fn check_number(
        &self,
        checks: &Checks,
        value: &Value,
        name: &FieldPath<'_>,
        outcome: &mut Outcome,
    ) {
        // Integers are compared as integers, with bounds cut to integers, as in Go.
        let bound = |bound: f64| match value {
            Value::Int(_) => truncated(bound).to_string(),
            _ => float(bound),
        };
        let order = |bound: f64| match value {
            Value::Int(number) => Some(number.cmp(&truncated(bound))),
            _ => value.as_f64()?.partial_cmp(&bound),
        };
        if let Some(factor) = checks.multiple_of {
            let is_multiple = match value {
                // An integer takes only the whole part of the factor, so that one below 1 refuses all integers.
                Value::Int(_) if truncated(factor) <= 0 => false,
                Value::Int(number) => number.checked_rem(truncated(factor)).is_none_or(|rest| rest == 0),
                _ => value.as_f64().is_some_and(|number| {
                    is_json_integer(if factor < 1.0 { 1.0 / factor * number } else { number / factor })
                }),
            };
            if factor <= 0.0 || (matches!(value, Value::Int(_)) && truncated(factor) <= 0) {
                let detail = format!(
                    "factor MultipleOf declared for {} must be positive: {}",
                    bounded(name),
                    bound(factor)
                );
                let shown = match value {
                    Value::Int(_) => Value::Int(truncated(factor)),
                    _ => Value::Float(factor),
                };
                outcome.add(FieldError::invalid(self.at(name), shown, detail));
            } else if !is_multiple {
                let problem = format!("should be a multiple of {}", bound(factor));
                outcome.add(self.invalid(name, value.clone(), &problem));
            }
        }
        let bounds = [
            (checks.minimum, checks.exclusive_minimum, Ordering::Less, "greater"),
            (checks.maximum, checks.exclusive_maximum, Ordering::Greater, "less"),
        ];
        for (limit, is_exclusive, outside, word) in bounds {
            let Some(limit) = limit else { continue };
            let order = order(limit);
            if order == Some(outside) || (is_exclusive && order == Some(Ordering::Equal)) {
                let or_equal = if is_exclusive { "" } else { " or equal to" };
                let problem = format!("should be {word} than{or_equal} {}", bound(limit));
                outcome.add(self.invalid(name, value.clone(), &problem));
            }
        }
    }
}

/// The schema's type as messages name it; `None` when anything goes.
pub(super) fn type_text(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Any | Kind::Quantity => None,
        Kind::Object => Some("object"),
        Kind::Array => Some("array"),
        Kind::String | Kind::Time | Kind::MicroTime | Kind::Bytes => Some("string"),
        Kind::Integer => Some("integer"),
        Kind::Number => Some("number"),
        Kind::Boolean => Some("boolean"),
        Kind::IntOrString => Some("integer,string"),
    }
}

/// What was expected and what was found, when the type does not fit.
pub(super) fn wrong_type<'a>(
    kind: Kind,
    format: Option<&'a str>,
    value: &Value,
) -> Option<(&'a str, &'static str)> {
    let fits = match value {
        Value::Null => true,
        Value::Bool(_) => kind == Kind::Boolean,
        Value::Int(_) => matches!(kind, Kind::Integer | Kind::Number | Kind::IntOrString),
        Value::Float(number) => {
            kind == Kind::Number
                || (matches!(kind, Kind::Integer | Kind::IntOrString) && is_json_integer(*number))
        }
        Value::String(_) => {
            matches!(kind, Kind::String | Kind::IntOrString | Kind::Time | Kind::MicroTime | Kind::Bytes)
        }
        Value::Array(_) => kind == Kind::Array,
        Value::Object(_) => kind == Kind::Object,
    };
    match (format, value) {
        _ if fits => None,
        (Some(format), Value::Int(_)) => Some((format, "int64")),
        (Some(format), Value::Float(_)) => Some((format, "float64")),
        (Some(format), Value::Bool(_) | Value::Object(_)) => Some((format, "")),
        (Some(_), Value::String(_)) if !matches!(kind, Kind::Integer | Kind::Number) => None,
        _ => Some((type_text(kind)?, value.type_name())),
    }
}

/// Whether a float is a whole number that JSON readers agree on, give or take a rounding error.
fn is_json_integer(number: f64) -> bool {
    const EXACT_MAX: f64 = 9_007_199_254_740_991.0;
    let difference = (number - number.trunc()).abs();
    number.abs() <= EXACT_MAX
        && (difference == 0.0 || (number > 1.0 && difference / (number + number.trunc()) < 1e-9))
}

#[expect(clippy::cast_possible_truncation, reason = "Go cuts the bound the same way; a cast saturates")]
fn truncated(bound: f64) -> i64 {
    bound as i64
}
