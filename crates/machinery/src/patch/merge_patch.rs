//! JSON merge patch (RFC 7386), with the habits of upstream's implementation.
//!
//! The habit: where the patch puts something new, nulls vanish from all objects in it, those in lists included.

use polder_model::{Object, SmolStr, Value};

use super::{PatchError, go_json_type};

/// Merges `patch` into `doc`. Nesting is that of the deeper of the two.
pub fn apply_merge_patch(doc: Value, patch: Value) -> Result<Value, PatchError> {
    match patch {
        Value::Object(patch) => Ok(merge(doc, patch)),
        Value::Null => Err(PatchError::Malformed("Invalid JSON Patch".into())),
        other => Err(PatchError::Malformed(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            go_json_type(&other)
        ))),
    }
}

fn merge(doc: Value, patch: Object) -> Value {
    let Value::Object(doc) = doc else {
        let mut patch = Value::Object(patch);
        drop_nulls(&mut patch);
        return patch;
    };
    let changes: Vec<(SmolStr, Value)> = patch.into_iter().collect();
    let joined = doc.merge_with(changes, |_, own, new| {
        Ok::<_, std::convert::Infallible>(match (own, new) {
            (_, Value::Null) => None,
            (Some(own), Value::Object(new)) => Some(merge(own, new)),
            // A list over an object is taken as it is: upstream's habit.
            (Some(Value::Object(_)), new) => Some(new),
            (_, mut new) => {
                drop_nulls(&mut new);
                Some(new)
            }
        })
    });
    match joined {
        Ok(object) => Value::Object(object),
        Err(never) => match never {},
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(object) => object.retain(|_, member| {
            drop_nulls(member);
            !member.is_null()
        }),
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Inputs of ours, results as upstream gave them.
    const ROWS: &[(&str, &str, &str, &str)] = &[
        (
            "members are added, changed and deleted",
            r#"{"a":1,"b":2,"d":{"x":1}}"#,
            r#"{"a":null,"b":3,"c":{"y":null,"z":1},"d":{"x":null,"w":2}}"#,
            r#"{"b":3,"c":{"z":1},"d":{"w":2}}"#,
        ),
        (
            "a list replaces a list and loses nulls in its objects",
            r#"{"l":[{"a":1}]}"#,
            r#"{"l":[{"a":null,"b":[{"c":null}]},null]}"#,
            r#"{"l":[{"b":[{}]},null]}"#,
        ),
        (
            "a list replaces an object and keeps its nulls",
            r#"{"l":{"a":1}}"#,
            r#"{"l":[{"a":null}]}"#,
            r#"{"l":[{"a":null}]}"#,
        ),
        ("an object replaces a list", r#"{"l":[1]}"#, r#"{"l":{"a":null,"b":1}}"#, r#"{"l":{"b":1}}"#),
        (
            "an object replaces a scalar",
            r#"{"a":"x"}"#,
            r#"{"a":{"b":null,"c":{"d":null}}}"#,
            r#"{"a":{"c":{}}}"#,
        ),
        ("an object over null", r#"{"a":null}"#, r#"{"a":{"b":null,"c":1}}"#, r#"{"a":{"c":1}}"#),
        ("a scalar replaces an object", r#"{"a":{"b":1}}"#, r#"{"a":5}"#, r#"{"a":5}"#),
        ("null for what is not there", r#"{"a":1}"#, r#"{"b":null}"#, r#"{"a":1}"#),
        ("null below what is not there", r#"{"a":1}"#, r#"{"b":{"c":null}}"#, r#"{"a":1,"b":{}}"#),
        ("an empty object changes nothing", r#"{"a":{"b":1}}"#, r#"{"a":{}}"#, r#"{"a":{"b":1}}"#),
        ("an empty object is added", r#"{}"#, r#"{"a":{}}"#, r#"{"a":{}}"#),
        ("null in the object stays", r#"{"a":null,"b":1}"#, r#"{"b":2}"#, r#"{"a":null,"b":2}"#),
        ("a null patch", r#"{"a":1}"#, r#"null"#, r#"400: Invalid JSON Patch"#),
        (
            "a list patch",
            r#"{"a":1}"#,
            r#"[1]"#,
            r#"400: error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"#,
        ),
        (
            "a string patch",
            r#"{"a":1}"#,
            r#""x""#,
            r#"400: error decoding patch: json: cannot unmarshal string into Go value of type map[string]interface {}"#,
        ),
        (
            "a number patch",
            r#"{"a":1}"#,
            r#"5"#,
            r#"400: error decoding patch: json: cannot unmarshal number into Go value of type map[string]interface {}"#,
        ),
    ];

    #[test]
    fn like_upstream() {
        for (name, doc, patch, expected) in ROWS {
            let doc = Value::parse(doc.as_bytes()).unwrap();
            let found = match apply_merge_patch(doc, Value::parse(patch.as_bytes()).unwrap()) {
                Ok(value) => value.to_string(),
                Err(PatchError::Malformed(text)) => format!("400: {text}"),
                Err(other) => panic!("{name}: {other}"),
            };
            assert_eq!(found, *expected, "{name}");
        }
    }

    #[test]
    fn a_wide_patch_is_merged_in_one_pass() {
        let wide = |from: usize| -> Value {
            let entries = (0..100_000)
                .map(|number| (SmolStr::from(format!("{:06}", from + 2 * number)), Value::Int(1)));
            Value::Object(entries.collect())
        };
        let merged = apply_merge_patch(wide(0), wide(1)).unwrap();
        assert_eq!(merged.as_object().unwrap().len(), 200_000);
    }
}
