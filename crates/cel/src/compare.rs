//! Equality and order of values.

use std::cmp::Ordering;

use polder_model::Value as Json;

use crate::list::{self, List};
use crate::map::Map;
use crate::meter::{Fault, Meter};
use crate::shape::ListKind;
use crate::value::Value;

/// Whether two values are equal. Values of different types are not; numbers are compared by what they mean.
pub(crate) fn equal<'a>(one: &Value<'a>, two: &Value<'a>, meter: &mut Meter<'_>) -> Result<bool, Fault> {
    meter.work(1)?;
    Ok(match (one, two) {
        (Value::Null, Value::Null) => true,
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::Bool(one), Value::Bool(two)) => one == two,
        (Value::String(one), Value::String(two)) => {
            meter.work(one.len().min(two.len()) as u64 / 64)?;
            **one == **two
        }
        (Value::Bytes(one), Value::Bytes(two)) => one == two,
        (Value::Duration(one), Value::Duration(two)) => one == two,
        (Value::Timestamp(one), Value::Timestamp(two)) => one == two,
        (Value::Type(one), Value::Type(two)) => one == two,
        (Value::Optional(one), Value::Optional(two)) => match (one, two) {
            (None, None) => true,
            (Some(one), Some(two)) => equal(one, two, meter)?,
            _ => false,
        },
        (Value::Opaque(_), _) if one.made().is_some() => match (one.made(), two.made()) {
            (Some(one), Some(two)) => one.equal(two, meter)?,
            _ => false,
        },
        (Value::Opaque(one), Value::Opaque(two)) => return one.equal(two).ok_or_else(Fault::no_overload),
        (Value::Opaque(_), _) => return Err(Fault::no_overload()),
        (Value::List(one), Value::List(two)) => return equal_lists(one, two, meter),
        (Value::List(one), _) if one.shape().is_some() => return Err(Fault::no_overload()),
        (Value::Map(one), Value::Map(two)) => return equal_maps(one, two, meter),
        (Value::Map(Map::Json(_, Some(_))), _) => return Err(Fault::no_overload()),
        _ => numbers(one, two) == Some(Ordering::Equal),
    })
}

fn equal_lists<'a>(one: &List<'a>, two: &List<'a>, meter: &mut Meter<'_>) -> Result<bool, Fault> {
    if one.len() != two.len() {
        return Ok(false);
    }
    if let Some(kind) = one.kind().filter(|kind| **kind != ListKind::Atomic) {
        // In any order: every item has its equal on the other side.
        let items = one.iter().collect::<Result<Vec<_>, _>>()?;
        for (at, item) in two.iter().enumerate() {
            let item = item?;
            // Most often nothing was moved.
            if equal(&items[at], &item, meter)? {
                continue;
            }
            match list::find_same(&items, &item, kind, meter)? {
                Some(at) if equal(&items[at], &item, meter)? => {}
                _ => return Ok(false),
            }
        }
        return Ok(true);
    }
    for (one, two) in one.iter().zip(two.iter()) {
        if !equal(&one?, &two?, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal_maps<'a>(one: &Map<'a>, two: &Map<'a>, meter: &mut Meter<'_>) -> Result<bool, Fault> {
    if one.len() != two.len() {
        return Ok(false);
    }
    for key in one.keys() {
        let (Some(one), Some(two)) = (one.find(&key)?, two.find(&key)?) else {
            // A null member of an object is as good as none.
            if one.find(&key)?.is_some() != two.find(&key)?.is_some() {
                return Ok(false);
            }
            continue;
        };
        if !equal(&one, &two, meter)? {
            return Ok(false);
        }
    }
    // What the shape does not know is compared as it stands in the documents.
    if let (Map::Json(one, Some(shape)), Map::Json(two, _)) = (one, two)
        && matches!(shape.kind, crate::shape::ShapeKind::Object { .. })
    {
        for (name, member) in one.iter().filter(|(name, _)| shape.field(name).is_none()) {
            if two.get(name).is_some_and(|other| !same_json(member, other, meter)) {
                return Ok(false);
            }
        }
    }
    meter.work(0).map(|()| true)
}

fn same_json(one: &Json, two: &Json, meter: &mut Meter<'_>) -> bool {
    if meter.work(1).is_err() {
        return false;
    }
    match (one, two) {
        (Json::Array(one), Json::Array(two)) => {
            one.len() == two.len() && one.iter().zip(two).all(|(one, two)| same_json(one, two, meter))
        }
        (Json::Object(one), Json::Object(two)) => {
            let mut pairs = one.iter().zip(two.iter());
            one.len() == two.len() && pairs.all(|(one, two)| one.0 == two.0 && same_json(one.1, two.1, meter))
        }
        _ => one == two,
    }
}

/// The order of two values of types that have one.
pub(crate) fn order(one: &Value<'_>, two: &Value<'_>) -> Result<Ordering, Fault> {
    match (one, two) {
        (Value::Bool(one), Value::Bool(two)) => Ok(one.cmp(two)),
        (Value::String(one), Value::String(two)) => Ok((**one).cmp(two)),
        (Value::Bytes(one), Value::Bytes(two)) => Ok(one.cmp(two)),
        (Value::Duration(one), Value::Duration(two)) => Ok(one.cmp(two)),
        (Value::Timestamp(one), Value::Timestamp(two)) => Ok(one.cmp(two)),
        (Value::Double(number), _) | (_, Value::Double(number)) if number.is_nan() => {
            match (is_number(one), is_number(two)) {
                (true, true) => Err(Fault::error("NaN values cannot be ordered")),
                _ => Err(Fault::no_overload()),
            }
        }
        _ => numbers(one, two).ok_or_else(Fault::no_overload),
    }
}

fn is_number(value: &Value<'_>) -> bool {
    matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_))
}

#[expect(clippy::cast_precision_loss, reason = "as cel-go compares: integers become floats")]
fn numbers(one: &Value<'_>, two: &Value<'_>) -> Option<Ordering> {
    let whole = |value: &Value<'_>| match value {
        Value::Int(number) => Some(i128::from(*number)),
        Value::Uint(number) => Some(i128::from(*number)),
        _ => None,
    };
    let float = |value: &Value<'_>| match value {
        Value::Double(number) => Some(*number),
        other => whole(other).map(|number| number as f64),
    };
    match (whole(one), whole(two)) {
        (Some(one), Some(two)) => Some(one.cmp(&two)),
        _ => float(one)?.partial_cmp(&float(two)?),
    }
}
