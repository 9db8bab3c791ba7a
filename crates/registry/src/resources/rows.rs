//! What the tests of kinds share: an object in, errors, cells or defaults out.

use polder_model::Value;

use crate::behavior::{Behavior, Print};

pub(super) fn parse(text: &str) -> Value {
    Value::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// What is wrong with a new object.
pub(super) fn errors(behavior: &Behavior, new: &str) -> Vec<String> {
    validate(behavior, new, None)
}

/// What is wrong with a change.
pub(super) fn update_errors(behavior: &Behavior, old: &str, new: &str) -> Vec<String> {
    validate(behavior, new, Some(parse(old)))
}

fn validate(behavior: &Behavior, new: &str, old: Option<Value>) -> Vec<String> {
    let mut errors = Vec::new();
    (behavior.validate)(&parse(new), old.as_ref(), &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

/// Each row is a new object and its errors.
pub(super) fn check(behavior: &Behavior, rows: &[(&str, &[&str])]) {
    for (new, expected) in rows {
        assert_eq!(errors(behavior, new), *expected, "{new}");
    }
}

/// Each row is an old object, a new one, and the errors of the change.
pub(super) fn check_update(behavior: &Behavior, rows: &[(&str, &str, &[&str])]) {
    for (old, new, expected) in rows {
        assert_eq!(update_errors(behavior, old, new), *expected, "{old} -> {new}");
    }
}

/// The object with its defaults.
pub(super) fn check_default(behavior: &Behavior, rows: &[(&str, &str)]) {
    for (before, after) in rows {
        let mut object = parse(before);
        (behavior.default)(&mut object);
        assert_eq!(object.to_string(), parse(after).to_string(), "{before}");
        (behavior.default)(&mut object);
        assert_eq!(object.to_string(), parse(after).to_string(), "defaulting twice changes nothing");
    }
}

/// The cells of a row, 100 seconds after 2026 began.
pub(super) fn check_cells(behavior: &Behavior, rows: &[(&str, &str)]) {
    for (object, cells) in rows {
        let row = (behavior.cells)(&parse(object), &Print { now: 1_767_225_700 });
        assert_eq!(Value::Array(row).to_string(), *cells, "{object}");
    }
}
