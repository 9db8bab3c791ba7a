//! Optional values. `or` and `orValue` are evaluated by the planner's own nodes, because they skip their argument.

use std::sync::Arc;

use super::operators;
use crate::cost::Cost;
use crate::meter::{Fault, Meter, Outcome};
use crate::overload::{Overload, global, member};
use crate::value::Value;

pub(super) fn table() -> Vec<Overload> {
    vec![
        global("optional_of", "optional.of(V) -> optional(V)", of, Cost::One),
        global(
            "optional_ofNonZeroValue",
            "optional.ofNonZeroValue(V) -> optional(V)",
            of_non_zero,
            Cost::One,
        ),
        global("optional_none", "optional.none() -> optional(V)", none, Cost::One),
        member("optional_value", "optional(V).value() -> V", value, Cost::One),
        member("optional_hasValue", "optional(V).hasValue() -> bool", has_value, Cost::One),
        member("optional_or_optional", "optional(V).or(optional(V)) -> optional(V)", or, Cost::One),
        member("optional_orValue_value", "optional(V).orValue(V) -> V", or_value, Cost::One),
        global("list_optindex_optional_int", "_[?_](list(V), int) -> optional(V)", index, Cost::Found),
        global(
            "optional_list_optindex_optional_int",
            "_[?_](optional(list(V)), int) -> optional(V)",
            index,
            Cost::Found,
        ),
        global("map_optindex_optional_value", "_[?_](map(K, V), K) -> optional(V)", index, Cost::Found),
        global(
            "optional_map_optindex_optional_value",
            "_[?_](optional(map(K, V)), K) -> optional(V)",
            index,
            Cost::Found,
        ),
        member("list_last", "list(V).last() -> optional(V)", last, Cost::One),
        member("list_first", "list(V).first() -> optional(V)", first, Cost::One),
        global("optional_unwrap", "optional.unwrap(list(optional(V))) -> list(V)", unwrap, Cost::One),
        member("optional_unwrapOpt", "list(optional(V)).unwrapOpt() -> list(V)", unwrap, Cost::One),
    ]
}

fn of<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::some(args[0].clone()))
}

fn of_non_zero<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(if args[0].is_zero() { Value::Optional(None) } else { Value::some(args[0].clone()) })
}

fn none<'a>(_: &mut Meter<'_>, _: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Optional(None))
}

fn value<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match &args[0] {
        Value::Optional(Some(inner)) => Ok((**inner).clone()),
        Value::Optional(None) => Err(Fault::error("optional.none() dereference")),
        _ => Err(Fault::no_overload()),
    }
}

fn has_value<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match &args[0] {
        Value::Optional(inner) => Ok(Value::Bool(inner.is_some())),
        _ => Err(Fault::no_overload()),
    }
}

fn or<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match &args[0] {
        Value::Optional(None) => Ok(args[1].clone()),
        other => Ok(other.clone()),
    }
}

fn or_value<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match &args[0] {
        Value::Optional(None) => Ok(args[1].clone()),
        Value::Optional(_) => value(meter, args),
        other => Ok(other.clone()),
    }
}

fn index<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let container = match &args[0] {
        Value::Optional(None) => return Ok(Value::Optional(None)),
        Value::Optional(Some(inner)) => inner,
        other => other,
    };
    operators::find(container, &args[1]).map(|found| Value::Optional(found.map(Arc::new)))
}

fn at<'a>(args: &[Value<'a>], position: fn(usize) -> Option<usize>) -> Outcome<'a> {
    let Value::List(list) = &args[0] else { return Err(Fault::no_overload()) };
    let found = position(list.len()).and_then(|at| list.get(at)).transpose()?;
    Ok(Value::Optional(found.map(Arc::new)))
}

fn last<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    at(args, |len| len.checked_sub(1))
}

fn first<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    at(args, |_| Some(0))
}

fn unwrap<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let Value::List(list) = &args[0] else { return Err(Fault::no_overload()) };
    let mut out = Vec::new();
    for item in list.iter() {
        match item? {
            Value::Optional(None) => {}
            Value::Optional(Some(inner)) => {
                meter.allocate(size_of::<Value<'_>>())?;
                out.push((*inner).clone());
            }
            other => {
                let text = format!("value {} is not optional", super::convert::plain(&other));
                return Err(Fault::error(text));
            }
        }
    }
    Ok(Value::list(out))
}
