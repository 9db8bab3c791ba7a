//! Arithmetic, comparison and membership. Integers do not wrap: what does not fit is an error.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::compare;
use crate::cost::Cost;
use crate::meter::{Fault, Meter, Outcome};
use crate::overload::{Overload, global};
use crate::value::Value;

pub(super) fn table() -> Vec<Overload> {
    let mut table = vec![
        global("equals", "_==_(A, A) -> bool", equals, Cost::Compare),
        global("not_equals", "_!=_(A, A) -> bool", not_equals, Cost::Compare),
        global("logical_not", "!_(bool) -> bool", not, Cost::One),
        global("add_bytes", "_+_(bytes, bytes) -> bytes", add, Cost::AddText),
        global("add_double", "_+_(double, double) -> double", add, Cost::One),
        global("add_duration_duration", "_+_(duration, duration) -> duration", add, Cost::One),
        global("add_duration_timestamp", "_+_(duration, timestamp) -> timestamp", add, Cost::One),
        global("add_timestamp_duration", "_+_(timestamp, duration) -> timestamp", add, Cost::One),
        global("add_int64", "_+_(int, int) -> int", add, Cost::One),
        global("add_list", "_+_(list(A), list(A)) -> list(A)", add, Cost::AddList),
        global("add_string", "_+_(string, string) -> string", add, Cost::AddText),
        global("add_uint64", "_+_(uint, uint) -> uint", add, Cost::One),
        global("subtract_double", "_-_(double, double) -> double", subtract, Cost::One),
        global("subtract_duration_duration", "_-_(duration, duration) -> duration", subtract, Cost::One),
        global("subtract_int64", "_-_(int, int) -> int", subtract, Cost::One),
        global("subtract_timestamp_duration", "_-_(timestamp, duration) -> timestamp", subtract, Cost::One),
        global("subtract_timestamp_timestamp", "_-_(timestamp, timestamp) -> duration", subtract, Cost::One),
        global("subtract_uint64", "_-_(uint, uint) -> uint", subtract, Cost::One),
        global("multiply_double", "_*_(double, double) -> double", multiply, Cost::One),
        global("multiply_int64", "_*_(int, int) -> int", multiply, Cost::One),
        global("multiply_uint64", "_*_(uint, uint) -> uint", multiply, Cost::One),
        global("divide_double", "_/_(double, double) -> double", divide, Cost::One),
        global("divide_int64", "_/_(int, int) -> int", divide, Cost::One),
        global("divide_uint64", "_/_(uint, uint) -> uint", divide, Cost::One),
        global("modulo_int64", "_%_(int, int) -> int", modulo, Cost::One),
        global("modulo_uint64", "_%_(uint, uint) -> uint", modulo, Cost::One),
        global("negate_double", "-_(double) -> double", negate, Cost::One),
        global("negate_int64", "-_(int) -> int", negate, Cost::One),
        global("index_list", "_[_](list(A), int) -> A", index, Cost::One),
        global("index_map", "_[_](map(A, B), A) -> B", index, Cost::One),
        global("optional_list_index_int", "_[_](optional(list(V)), int) -> optional(V)", index, Cost::One),
        global("optional_map_index_value", "_[_](optional(map(K, V)), K) -> optional(V)", index, Cost::One),
        global("in_list", "@in(A, list(A)) -> bool", contained, Cost::InList),
        global("in_map", "@in(A, map(A, B)) -> bool", contained, Cost::One),
    ];
    // Every pair of comparable types, for each of the four comparisons.
    let orders: [(&str, &str, [&'static str; 14], crate::overload::Call); 4] = [
        ("_<_", "less", LESS, less),
        ("_<=_", "less_equals", LESS_EQUALS, less_equals),
        ("_>_", "greater", GREATER, greater),
        ("_>=_", "greater_equals", GREATER_EQUALS, greater_equals),
    ];
    for (operator, _, ids, call) in orders {
        for (id, (one, two)) in ids.into_iter().zip(ORDERED) {
            let cost = if matches!(one, "string" | "bytes") { Cost::Compare } else { Cost::One };
            table.push(global(id, &format!("{operator}({one}, {two}) -> bool"), call, cost));
        }
    }
    table
}

const ORDERED: [(&str, &str); 14] = [
    ("bool", "bool"),
    ("int", "int"),
    ("int", "double"),
    ("int", "uint"),
    ("uint", "uint"),
    ("uint", "double"),
    ("uint", "int"),
    ("double", "double"),
    ("double", "int"),
    ("double", "uint"),
    ("string", "string"),
    ("bytes", "bytes"),
    ("timestamp", "timestamp"),
    ("duration", "duration"),
];

macro_rules! order_ids {
    ($name:ident, $prefix:literal) => {
        const $name: [&str; 14] = [
            concat!($prefix, "_bool"),
            concat!($prefix, "_int64"),
            concat!($prefix, "_int64_double"),
            concat!($prefix, "_int64_uint64"),
            concat!($prefix, "_uint64"),
            concat!($prefix, "_uint64_double"),
            concat!($prefix, "_uint64_int64"),
            concat!($prefix, "_double"),
            concat!($prefix, "_double_int64"),
            concat!($prefix, "_double_uint64"),
            concat!($prefix, "_string"),
            concat!($prefix, "_bytes"),
            concat!($prefix, "_timestamp"),
            concat!($prefix, "_duration"),
        ];
    };
}
order_ids!(LESS, "less");
order_ids!(LESS_EQUALS, "less_equals");
order_ids!(GREATER, "greater");
order_ids!(GREATER_EQUALS, "greater_equals");

fn equals<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    compare::equal(&args[0], &args[1], meter).map(Value::Bool)
}

fn not_equals<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    compare::equal(&args[0], &args[1], meter).map(|equal| Value::Bool(!equal))
}

fn not<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args[0] {
        Value::Bool(flag) => Ok(Value::Bool(!flag)),
        _ => Err(Fault::no_overload()),
    }
}

fn less<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    compare::order(&args[0], &args[1]).map(|order| Value::Bool(order == Ordering::Less))
}

fn less_equals<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    compare::order(&args[0], &args[1]).map(|order| Value::Bool(order != Ordering::Greater))
}

fn greater<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    compare::order(&args[0], &args[1]).map(|order| Value::Bool(order == Ordering::Greater))
}

fn greater_equals<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    compare::order(&args[0], &args[1]).map(|order| Value::Bool(order != Ordering::Less))
}

fn int<'a>(number: Option<i64>) -> Outcome<'a> {
    number.map(Value::Int).ok_or(Fault::error("integer overflow"))
}

fn uint<'a>(number: Option<u64>) -> Outcome<'a> {
    number.map(Value::Uint).ok_or(Fault::error("unsigned integer overflow"))
}

fn duration<'a>(nanos: Option<i64>) -> Outcome<'a> {
    nanos.map(Value::Duration).ok_or(Fault::error("integer overflow"))
}

pub(super) fn add<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match (&args[0], &args[1]) {
        (Value::Int(one), Value::Int(two)) => int(one.checked_add(*two)),
        (Value::Uint(one), Value::Uint(two)) => uint(one.checked_add(*two)),
        (Value::Double(one), Value::Double(two)) => Ok(Value::Double(one + two)),
        (Value::String(one), Value::String(two)) => {
            meter.allocate(one.len() + two.len())?;
            Ok(Value::text([&**one, &**two].concat()))
        }
        (Value::Bytes(one), Value::Bytes(two)) => {
            meter.allocate(one.len() + two.len())?;
            Ok(Value::Bytes(Arc::from([&**one, &**two].concat())))
        }
        (Value::List(one), Value::List(two)) => one.plus(two, meter).map(Value::List),
        (Value::Duration(one), Value::Duration(two)) => duration(one.checked_add(*two)),
        (Value::Timestamp(at), Value::Duration(by)) | (Value::Duration(by), Value::Timestamp(at)) => {
            at.plus(*by).map(Value::Timestamp).ok_or(Fault::error("timestamp overflow"))
        }
        _ => Err(Fault::no_overload()),
    }
}

fn subtract<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match (&args[0], &args[1]) {
        (Value::Int(one), Value::Int(two)) => int(one.checked_sub(*two)),
        (Value::Uint(one), Value::Uint(two)) => uint(one.checked_sub(*two)),
        (Value::Double(one), Value::Double(two)) => Ok(Value::Double(one - two)),
        (Value::Duration(one), Value::Duration(two)) => duration(one.checked_sub(*two)),
        (Value::Timestamp(one), Value::Timestamp(two)) => duration(one.minus(*two)),
        (Value::Timestamp(at), Value::Duration(by)) => by
            .checked_neg()
            .and_then(|by| at.plus(by))
            .map(Value::Timestamp)
            .ok_or(Fault::error("timestamp overflow")),
        _ => Err(Fault::no_overload()),
    }
}

fn multiply<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match (&args[0], &args[1]) {
        (Value::Int(one), Value::Int(two)) => int(one.checked_mul(*two)),
        (Value::Uint(one), Value::Uint(two)) => uint(one.checked_mul(*two)),
        (Value::Double(one), Value::Double(two)) => Ok(Value::Double(one * two)),
        _ => Err(Fault::no_overload()),
    }
}

fn divide<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match (&args[0], &args[1]) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => {
            Err(Fault::error("division by zero"))
        }
        (Value::Int(one), Value::Int(two)) => int(one.checked_div(*two)),
        (Value::Uint(one), Value::Uint(two)) => uint(one.checked_div(*two)),
        (Value::Double(one), Value::Double(two)) => Ok(Value::Double(one / two)),
        _ => Err(Fault::no_overload()),
    }
}

fn modulo<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match (&args[0], &args[1]) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => {
            Err(Fault::error("modulus by zero"))
        }
        (Value::Int(one), Value::Int(two)) => int(one.checked_rem(*two)),
        (Value::Uint(one), Value::Uint(two)) => uint(one.checked_rem(*two)),
        _ => Err(Fault::no_overload()),
    }
}

fn negate<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match &args[0] {
        Value::Int(number) => int(number.checked_neg()),
        Value::Double(number) => Ok(Value::Double(-number)),
        _ => Err(Fault::no_overload()),
    }
}

/// `container[key]`; on an optional container the result is optional.
pub(crate) fn index<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match (&args[0], &args[1]) {
        (Value::Optional(inner), key) => match inner {
            None => Ok(Value::Optional(None)),
            Some(inner) => find(inner, key).map(|found| Value::Optional(found.map(Arc::new))),
        },
        (container, key) => find(container, key)?.ok_or_else(|| missing(container, key)),
    }
}

/// The element at a key, if there is one.
pub(crate) fn find<'a>(container: &Value<'a>, key: &Value<'a>) -> Result<Option<Value<'a>>, Fault> {
    match (container, key) {
        (Value::Map(map), key) => map.find(key),
        (Value::List(list), key) => {
            let index = match key {
                Value::Int(index) => usize::try_from(*index).ok(),
                Value::Uint(index) => usize::try_from(*index).ok(),
                Value::Double(number) => {
                    let index = crate::value::whole(*number);
                    let unsupported = || Fault::error(format!("unsupported index value {number} in list"));
                    usize::try_from(index.ok_or_else(unsupported)?).ok()
                }
                other => {
                    return Err(Fault::error(format!(
                        "unsupported index type '{}' in list",
                        other.type_name()
                    )));
                }
            };
            index.and_then(|index| list.get(index)).transpose()
        }
        _ => Err(Fault::no_overload()),
    }
}

fn missing(container: &Value<'_>, key: &Value<'_>) -> Fault {
    let key = super::convert::plain(key);
    match container {
        Value::List(_) => Fault::error(format!("index out of bounds: {key}")),
        _ => Fault::error(format!("no such key: {key}")),
    }
}

pub(crate) fn contained<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match &args[1] {
        Value::List(list) => list.contains(&args[0], meter).map(Value::Bool),
        Value::Map(map) => map.find(&args[0]).map(|found| Value::Bool(found.is_some())),
        _ => Err(Fault::no_overload()),
    }
}
