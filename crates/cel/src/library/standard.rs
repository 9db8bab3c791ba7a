//! `size`, and the functions on strings that every CEL has.

use super::regexes;
use crate::cost::Cost;
use crate::meter::{Fault, Meter, Outcome};
use crate::overload::{Overload, global, member};
use crate::value::Value;

pub(super) fn table() -> Vec<Overload> {
    vec![
        global("size_bytes", "size(bytes) -> int", size, Cost::One),
        member("bytes_size", "bytes.size() -> int", size, Cost::One),
        global("size_list", "size(list(A)) -> int", size, Cost::One),
        member("list_size", "list(A).size() -> int", size, Cost::One),
        global("size_map", "size(map(A, B)) -> int", size, Cost::One),
        member("map_size", "map(A, B).size() -> int", size, Cost::One),
        global("size_string", "size(string) -> int", size, Cost::One),
        member("string_size", "string.size() -> int", size, Cost::One),
        member("contains_string", "string.contains(string) -> bool", contains, Cost::Contains),
        member("ends_with_string", "string.endsWith(string) -> bool", ends_with, Cost::Prefix),
        member("starts_with_string", "string.startsWith(string) -> bool", starts_with, Cost::Prefix),
        global("matches", "matches(string, string) -> bool", regexes::matches, Cost::One),
        member("matches_string", "string.matches(string) -> bool", regexes::matches, Cost::Matches),
    ]
}

fn size<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    if let Value::String(text) = &args[0] {
        meter.work(text.len() as u64 / 64)?;
    }
    match &args[0] {
        value @ (Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_)) => {
            i64::try_from(value.size()).map(Value::Int).map_err(|_| Fault::no_overload())
        }
        _ => Err(Fault::no_overload()),
    }
}

fn both<'v>(args: &'v [Value<'_>]) -> Result<(&'v str, &'v str), Fault> {
    match args {
        [Value::String(one), Value::String(two)] => Ok((one, two)),
        _ => Err(Fault::no_overload()),
    }
}

fn contains<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    both(args).map(|(text, part)| Value::Bool(text.contains(part)))
}

fn ends_with<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    both(args).map(|(text, end)| Value::Bool(text.ends_with(end)))
}

fn starts_with<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    both(args).map(|(text, start)| Value::Bool(text.starts_with(start)))
}
