//! Kubernetes' list functions, and the lists extension, version 3.

use std::cmp::Ordering;

use super::operators;
use crate::compare;
use crate::cost::Cost;
use crate::list::List;
use crate::meter::{Fault, Meter, Outcome};
use crate::overload::{Overload, global, member};
use crate::value::Value;

macro_rules! per_type {
    ($table:ident, $prefix:literal, $suffix:literal, $function:literal, $result:expr, $call:expr, $cost:expr, [$($type:literal),*]) => {
        $($table.push(member(
            concat!($prefix, $type, $suffix),
            &format!(concat!("list(", $type, ").", $function, "() -> {}"), $result($type)),
            $call,
            $cost($type),
        ));)*
    };
}

pub(super) fn table() -> Vec<Overload> {
    let mut table = vec![
        member("list_a_index_of_int", "list(A).indexOf(A) -> int", index_of, Cost::Elements),
        member("list_a_last_index_of_int", "list(A).lastIndexOf(A) -> int", last_index_of, Cost::Elements),
        member("list_int_sum", "list(int).sum() -> int", sum_int, Cost::Elements),
        member("list_uint_sum", "list(uint).sum() -> uint", sum_uint, Cost::Elements),
        member("list_double_sum", "list(double).sum() -> double", sum_double, Cost::Elements),
        member("list_duration_sum", "list(duration).sum() -> duration", sum_duration, Cost::Elements),
        member("list_slice", "list(T).slice(int, int) -> list(T)", slice, Cost::Slice),
        member("list_flatten", "list(list(T)).flatten() -> list(T)", flatten, Cost::Flatten),
        member("list_flatten_int", "list(dyn).flatten(int) -> list(dyn)", flatten, Cost::Flatten),
        global("lists_range", "lists.range(int) -> list(int)", range, Cost::Range),
        member("list_reverse", "list(T).reverse() -> list(T)", reverse, Cost::Reverse),
        member("list_distinct", "list(T).distinct() -> list(T)", distinct, Cost::Distinct),
    ];
    let is_text = |name: &str| matches!(name, "string" | "bytes");
    let elements = |_: &str| Cost::Elements;
    let own = |name: &str| name.to_string();
    let sort_cost = |name: &str| Cost::Sort { text: is_text(name) };
    let listed = |name: &str| format!("list({name})");
    let flag = |_: &str| "bool".to_string();
    per_type!(
        table,
        "list_",
        "_is_sorted_bool",
        "isSorted",
        flag,
        is_sorted,
        elements,
        ["int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"]
    );
    per_type!(
        table,
        "list_",
        "_max",
        "max",
        own,
        max,
        elements,
        ["int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"]
    );
    per_type!(
        table,
        "list_",
        "_min",
        "min",
        own,
        min,
        elements,
        ["int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"]
    );
    per_type!(
        table,
        "list_",
        "_sort",
        "sort",
        listed,
        sort,
        sort_cost,
        ["int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"]
    );
    macro_rules! sort_by {
        ($($type:literal),*) => {
            $(table.push(member(
                concat!("list_", $type, "_sortByAssociatedKeys"),
                concat!("list(T).@sortByAssociatedKeys(list(", $type, ")) -> list(T)"),
                sort_by_keys,
                Cost::SortBy { text: is_text($type) },
            ));)*
        };
    }
    sort_by!("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes");
    table
}

fn list<'v, 'a>(args: &'v [Value<'a>], at: usize) -> Result<&'v List<'a>, Fault> {
    match args.get(at) {
        Some(Value::List(list)) => Ok(list),
        _ => Err(Fault::no_overload()),
    }
}

/// All items, paid for.
fn items<'a>(list: &List<'a>, meter: &mut Meter<'_>) -> Result<Vec<Value<'a>>, Fault> {
    meter.allocate(list.len() * size_of::<Value<'_>>())?;
    list.iter().collect()
}

fn position(index: Option<usize>) -> Value<'static> {
    Value::Int(index.and_then(|index| i64::try_from(index).ok()).unwrap_or(-1))
}

fn index_of<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    for (at, item) in list(args, 0)?.iter().enumerate() {
        if compare::equal(&item?, &args[1], meter)? {
            return Ok(position(Some(at)));
        }
    }
    Ok(position(None))
}

fn last_index_of<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let mut found = None;
    for (at, item) in list(args, 0)?.iter().enumerate() {
        if compare::equal(&item?, &args[1], meter)? {
            found = Some(at);
        }
    }
    Ok(position(found))
}

fn is_sorted<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let mut last: Option<Value<'a>> = None;
    for item in list(args, 0)?.iter() {
        let item = item?;
        if let Some(last) = &last
            && compare::order(last, &item)? == Ordering::Greater
        {
            return Ok(Value::Bool(false));
        }
        last = Some(item);
    }
    Ok(Value::Bool(true))
}

fn sum<'a>(meter: &mut Meter<'_>, args: &[Value<'a>], nothing: Value<'a>) -> Outcome<'a> {
    let mut sum = nothing;
    for item in list(args, 0)?.iter() {
        sum = operators::add(meter, &[sum, item?])?;
    }
    Ok(sum)
}

fn sum_int<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    sum(meter, args, Value::Int(0))
}

fn sum_uint<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    sum(meter, args, Value::Uint(0))
}

fn sum_double<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    sum(meter, args, Value::Double(0.0))
}

fn sum_duration<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    sum(meter, args, Value::Duration(0))
}

fn max<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    extreme(args, "max", Ordering::Greater)
}

fn min<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    extreme(args, "min", Ordering::Less)
}

fn extreme<'a>(args: &[Value<'a>], name: &str, wins: Ordering) -> Outcome<'a> {
    let mut best: Option<Value<'a>> = None;
    for item in list(args, 0)?.iter() {
        let item = item?;
        best = Some(match best {
            Some(best) if compare::order(&item, &best)? != wins => best,
            _ => item,
        });
    }
    best.ok_or_else(|| Fault::error(format!("{name} called on empty list")))
}

fn slice<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let list = list(args, 0)?;
    let (Value::Int(start), Value::Int(end)) = (&args[1], &args[2]) else { return Err(Fault::no_overload()) };
    let problem = match (usize::try_from(*start), usize::try_from(*end)) {
        (Err(_), _) | (_, Err(_)) => "negative indexes not supported".to_string(),
        (Ok(start), Ok(end)) if start > end => "start index must be less than or equal to end index".into(),
        (Ok(_), Ok(end)) if end > list.len() => format!("list is length {}", list.len()),
        (Ok(start), Ok(end)) => {
            meter.allocate((end - start) * size_of::<Value<'_>>())?;
            let items = (start..end).filter_map(|at| list.get(at)).collect::<Result<_, _>>()?;
            return Ok(Value::list(items));
        }
    };
    Err(Fault::error(format!("cannot slice({start}, {end}), {problem}")))
}

fn flatten<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let depth = match args.get(1) {
        None => 1,
        Some(Value::Int(depth)) if *depth < 0 => return Err(Fault::error("level must be non-negative")),
        Some(Value::Int(depth)) => *depth,
        Some(_) => return Err(Fault::no_overload()),
    };
    // Lists wait with the depth they are taken apart to; those inside come first.
    let mut out = Vec::new();
    let mut waiting = vec![(Value::List(list(args, 0)?.clone()), depth + 1)];
    while let Some((value, depth)) = waiting.pop() {
        match value {
            Value::List(list) if depth > 0 => {
                let inner = items(&list, meter)?;
                waiting.extend(inner.into_iter().rev().map(|item| (item, depth - 1)));
            }
            other => {
                meter.allocate(size_of::<Value<'_>>())?;
                out.push(other);
            }
        }
    }
    Ok(Value::list(out))
}

fn range<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let Value::Int(count) = args[0] else { return Err(Fault::no_overload()) };
    let len = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
    meter.allocate(len.saturating_mul(size_of::<Value<'_>>()))?;
    Ok(Value::list((0..count.max(0)).map(Value::Int).collect()))
}

fn reverse<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let mut items = items(list(args, 0)?, meter)?;
    items.reverse();
    Ok(Value::list(items))
}

fn distinct<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let mut unique: Vec<Value<'a>> = Vec::new();
    for item in list(args, 0)?.iter() {
        let item = item?;
        let mut seen = false;
        for known in &unique {
            seen = compare::equal(&item, known, meter)?;
            if seen {
                break;
            }
        }
        if !seen {
            meter.allocate(size_of::<Value<'_>>())?;
            unique.push(item);
        }
    }
    Ok(Value::list(unique))
}

fn sort<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let items = items(list(args, 0)?, meter)?;
    sorted(items.clone(), items, meter)
}

fn sort_by_keys<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (list, keys) = (list(args, 0)?, list(args, 1)?);
    if list.len() != keys.len() {
        return Err(Fault::error(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} elements respectively",
            list.len(),
            keys.len()
        )));
    }
    let items = items(list, meter)?;
    let keys = keys.iter().collect::<Result<Vec<_>, _>>()?;
    sorted(items, keys, meter)
}

fn sorted<'a>(items: Vec<Value<'a>>, keys: Vec<Value<'a>>, meter: &mut Meter<'_>) -> Outcome<'a> {
    let Some(first) = keys.first() else { return Ok(Value::list(items)) };
    if compare::order(first, first).is_err() {
        return Err(Fault::error("list elements must be comparable"));
    }
    if keys.iter().any(|key| key.type_name() != first.type_name()) {
        return Err(Fault::error("list elements must have the same type"));
    }
    meter.work(keys.len() as u64 * u64::from(keys.len().ilog2() + 1))?;
    let mut pairs: Vec<(Value<'a>, Value<'a>)> = keys.into_iter().zip(items).collect();
    pairs.sort_by(|one, two| compare::order(&one.0, &two.0).unwrap_or(Ordering::Equal));
    Ok(Value::list(pairs.into_iter().map(|(_, item)| item).collect()))
}
