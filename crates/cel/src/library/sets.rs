//! Lists taken as sets.

use crate::cost::Cost;
use crate::list::List;
use crate::meter::{Fault, Meter, Outcome};
use crate::overload::{Overload, global};
use crate::value::Value;

pub(super) fn table() -> Vec<Overload> {
    vec![
        global("list_sets_contains_list", "sets.contains(list(T), list(T)) -> bool", contains, Cost::Sets(1)),
        global(
            "list_sets_equivalent_list",
            "sets.equivalent(list(T), list(T)) -> bool",
            equivalent,
            Cost::Sets(2),
        ),
        global(
            "list_sets_intersects_list",
            "sets.intersects(list(T), list(T)) -> bool",
            intersects,
            Cost::Sets(1),
        ),
    ]
}

fn both<'v, 'a>(args: &'v [Value<'a>]) -> Result<(&'v List<'a>, &'v List<'a>), Fault> {
    match args {
        [Value::List(one), Value::List(two)] => Ok((one, two)),
        _ => Err(Fault::no_overload()),
    }
}

fn holds<'a>(list: &List<'a>, all: &List<'a>, meter: &mut Meter<'_>) -> Result<bool, Fault> {
    for item in all.iter() {
        if !list.contains(&item?, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn contains<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (one, two) = both(args)?;
    holds(one, two, meter).map(Value::Bool)
}

fn equivalent<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (one, two) = both(args)?;
    Ok(Value::Bool(holds(one, two, meter)? && holds(two, one, meter)?))
}

fn intersects<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (one, two) = both(args)?;
    for item in one.iter() {
        if two.contains(&item?, meter)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}
