//! Filling in defaults.
//!
//! Defaults are nested: what a default brings is itself completed. `null` where the schema allows none is replaced by
//! the default, or vanishes. What defaults may add to one object is bounded, because a short schema with lists of
//! empty objects as nested defaults can describe an exponentially large one.

use polder_model::{Object, SmolStr, Value};

use super::{DefaultsBelow, NodeId, NodeRef};

/// How much defaults may add to one object: roughly bytes of JSON.
const ADDED_MAX: usize = 4 << 20;

/// The defaults of the schema would make the object too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the defaults of the schema would add more than {ADDED_MAX} bytes to the object")]
pub struct DefaultsTooLarge;

/// Completes a custom resource: drops `null` where there may be none, then fills in defaults.
pub fn apply_defaults(node: NodeRef<'_>, value: &mut Value) -> Result<(), DefaultsTooLarge> {
    apply_defaults_within(node, value, ADDED_MAX)
}

/// The same for somebody who has less room. What fits is filled in before the error comes.
pub(super) fn apply_defaults_within(
    node: NodeRef<'_>,
    value: &mut Value,
    mut room: usize,
) -> Result<(), DefaultsTooLarge> {
    prune_nulls(node, value);
    fill(node, value, Empty::IsAValue, &mut room)
}

/// Fills in defaults only: for built-in kinds after coercion, where an empty text is as good as none.
pub fn fill_defaults(node: NodeRef<'_>, value: &mut Value) -> Result<(), DefaultsTooLarge> {
    fill(node, value, Empty::IsUnset, &mut ADDED_MAX.clone())
}

/// What an empty text stands for. Go cannot tell one from nothing; a custom resource can.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Empty {
    IsUnset,
    IsAValue,
}

/// Drops members that are `null` where the schema neither allows that nor has a default.
pub fn prune_nulls(node: NodeRef<'_>, value: &mut Value) {
    match value {
        Value::Object(object) => object.retain(|key, value| match node.member(key) {
            Some(member) if value.is_null() => member.get().nullable || member.get().default.is_some(),
            Some(member) => {
                prune_nulls(member, value);
                true
            }
            None => true,
        }),
        Value::Array(items) => {
            if let Some(item_node) = node.items() {
                for item in items {
                    prune_nulls(item_node, item);
                }
            }
        }
        _ => {}
    }
}

fn fill(
    node: NodeRef<'_>,
    value: &mut Value,
    empty: Empty,
    room: &mut usize,
) -> Result<(), DefaultsTooLarge> {
    if node.get().defaults_below == DefaultsBelow::None {
        return Ok(());
    }
    match value {
        Value::Object(object) => {
            fill_missing(node, object, room)?;
            for (key, value) in object.iter_mut() {
                let Some(member) = node.member(key) else { continue };
                fill_null(member, value, empty, room)?;
                fill(member, value, empty, room)?;
            }
        }
        Value::Array(items) => {
            let Some(item_node) = node.items() else { return Ok(()) };
            for item in items {
                fill_null(item_node, item, empty, room)?;
                fill(item_node, item, empty, room)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn fill_missing(node: NodeRef<'_>, object: &mut Object, room: &mut usize) -> Result<(), DefaultsTooLarge> {
    let properties = &node.get().properties;
    let mut missing: Vec<(SmolStr, Value)> = Vec::new();
    let mut look = |(name, id): &(SmolStr, NodeId)| {
        if let Some(default) = &node.at(*id).get().default
            && !object.contains_key(name)
        {
            missing.push((name.clone(), take(default, room)?));
        }
        Ok(())
    };
    match &node.get().defaults_below {
        DefaultsBelow::Some(members) => {
            members.iter().filter_map(|at| properties.get(*at as usize)).try_for_each(&mut look)?;
        }
        _ => properties.iter().try_for_each(&mut look)?,
    }
    if !missing.is_empty() {
        // All at once: one by one, each would move what stands behind it.
        *object = std::mem::take(object).into_iter().chain(missing).collect();
    }
    Ok(())
}

fn fill_null(
    node: NodeRef<'_>,
    value: &mut Value,
    empty: Empty,
    room: &mut usize,
) -> Result<(), DefaultsTooLarge> {
    let Some(default) = &node.get().default else { return Ok(()) };
    let is_unset = match value {
        Value::Null => !node.get().nullable,
        Value::String(text) => text.is_empty() && empty == Empty::IsUnset && default.as_str().is_some(),
        _ => false,
    };
    if is_unset {
        *value = take(default, room)?;
    }
    Ok(())
}

fn take(default: &Value, room: &mut usize) -> Result<Value, DefaultsTooLarge> {
    *room = room.checked_sub(weight(default)).ok_or(DefaultsTooLarge)?;
    Ok(default.clone())
}

fn weight(value: &Value) -> usize {
    8 + match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(object) => object.iter().map(|(key, value)| key.len() + weight(value)).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::structural::tests::compiled;

    #[track_caller]
    fn check(schema: &str, input: &str, expected: &str) {
        let mut schema = compiled(schema);
        for indexed in [true, false] {
            if !indexed {
                let mut arena = (*schema.arena).clone();
                arena.nodes.iter_mut().for_each(|node| node.defaults_below = DefaultsBelow::Unknown);
                schema.arena = arena.into();
            }
            let mut value = Value::parse(input.as_bytes()).unwrap();
            apply_defaults(schema.node(), &mut value).unwrap();
            assert_eq!(value.to_string(), expected, "indexed: {indexed}");
        }
    }

    #[test]
    fn nested_defaults() {
        let schema = r#"{"type":"object","properties":{"spec":{"type":"object","default":{"b":{}},"properties":{
            "a":{"type":"integer","default":1},
            "b":{"type":"object","properties":{"c":{"type":"string","default":"x"}}},
            "l":{"type":"array","items":{"type":"object","properties":{"p":{"type":"string","default":"TCP"}}}},
            "m":{"type":"object","additionalProperties":{"type":"object","properties":{"q":{"type":"boolean","default":true}}}}
            }}}}"#;
        check(schema, "{}", r#"{"spec":{"a":1,"b":{"c":"x"}}}"#);
        check(schema, r#"{"spec":{"a":2}}"#, r#"{"spec":{"a":2}}"#);
        check(
            schema,
            r#"{"spec":{"l":[{},{"p":"UDP"}],"m":{"k":{}}}}"#,
            r#"{"spec":{"a":1,"l":[{"p":"TCP"},{"p":"UDP"}],"m":{"k":{"q":true}}}}"#,
        );
    }

    #[test]
    fn nulls() {
        let schema = r#"{"type":"object","properties":{
            "d":{"type":"string","default":"x"},
            "n":{"type":"string","nullable":true,"default":"x"},
            "p":{"type":"string"},
            "m":{"type":"object","additionalProperties":{"type":"string"}},
            "l":{"type":"array","items":{"type":"string"}}}}"#;
        check(
            r#"{"type":"object","properties":{"m":{"type":"object","additionalProperties":true}}}"#,
            r#"{"m":{"k":null}}"#,
            r#"{"m":{"k":null}}"#,
        );
        check(
            schema,
            r#"{"d":null,"n":null,"p":null,"m":{"k":null},"l":[null],"unknown":null}"#,
            r#"{"d":"x","l":[null],"m":{},"n":null,"unknown":null}"#,
        );
    }

    #[test]
    fn empty_texts() {
        let schema = compiled(
            r#"{"type":"object","properties":{"a":{"type":"string","default":"x"},"b":{"type":"string"}}}"#,
        );
        for (is_builtin, expected) in [(true, r#"{"a":"x","b":""}"#), (false, r#"{"a":"","b":""}"#)] {
            let mut value = Value::parse(br#"{"a":"","b":""}"#).unwrap();
            let apply = if is_builtin { fill_defaults } else { apply_defaults };
            apply(schema.node(), &mut value).unwrap();
            assert_eq!(value.to_string(), expected);
        }
    }

    #[test]
    fn a_bomb_of_defaults_is_refused() {
        let mut schema = String::from(r#"{"type":"string","default":"boom"}"#);
        for _ in 0..12 {
            schema = format!(
                r#"{{"type":"array","default":[{{}},{{}},{{}},{{}},{{}},{{}},{{}},{{}}],
                    "items":{{"type":"object","properties":{{"n":{schema}}}}}}}"#
            );
        }
        let schema = compiled(&format!(r#"{{"type":"object","properties":{{"n":{schema}}}}}"#));
        let mut value = Value::parse(b"{}").unwrap();
        assert_eq!(apply_defaults(schema.node(), &mut value), Err(DefaultsTooLarge));
    }

    #[test]
    fn subtrees_without_defaults_are_known() {
        let schema = compiled(
            r#"{"type":"object","properties":{"a":{"type":"object","properties":{"x":{"type":"string"}}},
                "b":{"type":"object","properties":{"x":{"type":"string","default":""}}}}}"#,
        );
        let below = |name| schema.node().property(name).unwrap().get().defaults_below.clone();
        assert_eq!(below("a"), DefaultsBelow::None);
        assert_eq!(below("b"), DefaultsBelow::Some(Box::new([0])));
    }
}
