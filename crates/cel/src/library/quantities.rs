//! Resource quantities.

use std::cmp::Ordering;

use polder_model::quantity::Quantity;

use super::opaque::{OpaqueValue, opaque_arg, text};
use crate::cost::Cost;
use crate::meter::{Fault, Meter, Outcome};
use crate::overload::{Overload, global, member};
use crate::value::Value;

pub(super) fn table() -> Vec<Overload> {
    vec![
        global("string_to_quantity", "quantity(string) -> quantity", parse, Cost::Parse),
        global("is_quantity_string", "isQuantity(string) -> bool", is_quantity, Cost::Parse),
        global("quantity_sign", "sign(quantity) -> int", sign, Cost::One),
        member("quantity_is_greater_than", "quantity.isGreaterThan(quantity) -> bool", is_greater, Cost::One),
        member("quantity_is_less_than", "quantity.isLessThan(quantity) -> bool", is_less, Cost::One),
        member("quantity_compare_to", "quantity.compareTo(quantity) -> int", compare_to, Cost::One),
        member("quantity_get_float", "quantity.asApproximateFloat() -> double", float, Cost::One),
        member("quantity_get_int", "quantity.asInteger() -> int", integer, Cost::One),
        member("quantity_is_integer", "quantity.isInteger() -> bool", is_integer, Cost::One),
        member("quantity_add", "quantity.add(quantity) -> quantity", add, Cost::One),
        member("quantity_add_int", "quantity.add(int) -> quantity", add, Cost::One),
        member("quantity_sub", "quantity.sub(quantity) -> quantity", subtract, Cost::One),
        member("quantity_sub_int", "quantity.sub(int) -> quantity", subtract, Cost::One),
    ]
}

opaque_arg!(quantity, Quantity, Quantity);

fn made<'a>(quantity: Quantity) -> Value<'a> {
    Value::opaque(OpaqueValue::Quantity(quantity))
}

fn parse<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Quantity::parse(text(args, 0)?).map(made).map_err(|error| Fault::error(error.to_string()))
}

fn is_quantity<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Bool(Quantity::parse(text(args, 0)?).is_ok()))
}

fn sign<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(order(quantity(args, 0)?.cmp(&Quantity::from_i64(0))))
}

pub(super) fn order<'a>(order: Ordering) -> Value<'a> {
    Value::Int(match order {
        Ordering::Less => -1,
        Ordering::Equal => 0,
        Ordering::Greater => 1,
    })
}

fn is_greater<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Bool(quantity(args, 0)? > quantity(args, 1)?))
}

fn is_less<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Bool(quantity(args, 0)? < quantity(args, 1)?))
}

fn compare_to<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(order(quantity(args, 0)?.cmp(quantity(args, 1)?)))
}

fn float<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Double(quantity(args, 0)?.as_f64()))
}

fn integer<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let exact = quantity(args, 0)?.as_i64_exact();
    exact.map(Value::Int).ok_or(Fault::error("cannot convert value to integer"))
}

fn is_integer<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Bool(quantity(args, 0)?.as_i64_exact().is_some()))
}

/// The second argument, which may be a plain number.
fn operand(args: &[Value<'_>]) -> Result<Quantity, Fault> {
    match args.get(1) {
        Some(Value::Int(number)) => Ok(Quantity::from_i64(*number)),
        _ => quantity(args, 1).cloned(),
    }
}

fn add<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(made(quantity(args, 0)?.plus(&operand(args)?)))
}

fn subtract<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(made(quantity(args, 0)?.minus(&operand(args)?)))
}
