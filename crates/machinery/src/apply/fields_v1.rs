//! Reading `fieldsV1` that a client sent.
//!
//! What this program wrote is a set as it stands; what comes from elsewhere is brought into the one spelling of every
//! step first. The size is bounded by the request, the depth here: sets are walked by recursion.

use polder_model::{Object, SmolStr, Value};

use super::path::{StepError, canonical};
use super::set::{FieldSet, below, children, is_member, place};

/// Sets of real objects are a dozen levels deep; JSON documents end at 128.
const DEPTH_MAX: usize = 128;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldsError {
    #[error("parsing key as path element: {0}")]
    Step(#[from] StepError),
    #[error("expected a map of fields, got {0}")]
    NoMap(&'static str),
    #[error("fields are nested more than {DEPTH_MAX} levels deep")]
    Deep,
}

/// The set that `fieldsV1` describes. Steps of kinds we do not know are left out with all below them.
pub fn read(fields: &Value) -> Result<FieldSet, FieldsError> {
    match read_below(fields, DEPTH_MAX)? {
        // Nobody owns "the whole object".
        Some(Value::Object(mut tree)) => {
            tree.remove(".");
            Ok(FieldSet::from_tree(tree))
        }
        _ => Ok(FieldSet::new()),
    }
}

/// A place and what is below it. One that has nothing below is in the set, whether or not it says so.
fn read_below(node: &Value, depth_left: usize) -> Result<Option<Value>, FieldsError> {
    if depth_left == 0 {
        return Err(FieldsError::Deep);
    }
    let tree = match node {
        Value::Null => below(node),
        Value::Object(tree) => tree,
        other => return Err(FieldsError::NoMap(other.type_name())),
    };
    let mut steps: Vec<(SmolStr, Value)> = Vec::with_capacity(tree.len());
    for (text, node) in children(tree) {
        let step = match canonical(text) {
            Ok(step) => step,
            Err(StepError::Unknown) => continue,
            Err(error) => return Err(error.into()),
        };
        steps.extend(read_below(node, depth_left - 1)?.map(|node| (step, node)));
    }
    let steps: Object = steps.into_iter().collect();
    let in_set = steps.is_empty() || (!tree.is_empty() && is_member(tree));
    Ok(place(in_set, steps))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<&str, &str>) {
        let read = read(&Value::parse(text.as_bytes()).unwrap());
        let read = read.map(|set| set.into_value().to_string()).map_err(|error| error.to_string());
        assert_eq!(read, expected.map(String::from).map_err(String::from));
    }

    #[test]
    fn sets_are_read() {
        check("{}", Ok("{}"));
        check("null", Ok("{}"));
        check(r#"{".":{}}"#, Ok("{}"));
        check(r#"{"f:a":{},"f:b":null,"f:c":{".":{}}}"#, Ok(r#"{"f:a":{},"f:b":{},"f:c":{}}"#));
        check(r#"{"f:a":{".":{},"f:b":{}}}"#, Ok(r#"{"f:a":{".":{},"f:b":{}}}"#));
        // Two spellings of one key are one place; the last one counts.
        check(r#"{"f:l":{"k:{\"a\":1}":{},"k:{\"a\": 1}":{"f:x":{}}}}"#, Ok(r#"{"f:l":{"k:{\"a\":1}":{}}}"#));
        check(r#"{"x:later":{"f:a":{}},"f:a":{"x:later":{}}}"#, Ok(r#"{"f:a":{}}"#));
    }

    #[test]
    fn what_is_no_set() {
        check("[]", Err("expected a map of fields, got array"));
        check(r#"{"f:a":1}"#, Err("expected a map of fields, got integer"));
        check(r#"{"a":{}}"#, Err("parsing key as path element: key must be 2 characters long:"));
        check(r#"{"spec":{}}"#, Err("parsing key as path element: missing colon: spec"));
        assert!(read(&Value::parse(br#"{"f:a":{"k:{":{}}}"#).unwrap()).is_err());
    }

    #[test]
    fn nesting_is_bounded() {
        let mut value = Value::Null;
        for _ in 0..DEPTH_MAX {
            value = Value::Object(Object::from_iter([(SmolStr::new("f:a"), value)]));
        }
        assert_eq!(read(&value), Err(FieldsError::Deep));
        assert!(read(value.get("f:a").unwrap()).is_ok());
    }
}
