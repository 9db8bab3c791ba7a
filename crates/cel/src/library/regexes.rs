//! Regular expressions: `matches`, `find`, `findAll`.
//!
//! Patterns that are written in the expression are compiled once, by the planner. Others are compiled at every call,
//! within a smaller limit.

use regex::Regex;

use crate::cost::Cost;
use crate::meter::{Fault, Meter, Outcome};
use crate::overload::{Overload, member};
use crate::re2;
use crate::value::{Text, Value};

pub(super) fn table() -> Vec<Overload> {
    vec![
        member("string_find_string", "string.find(string) -> string", find, Cost::Find),
        member("string_find_all_string", "string.findAll(string) -> list(string)", find_all, Cost::Find),
        member(
            "string_find_all_string_int",
            "string.findAll(string, int) -> list(string)",
            find_all,
            Cost::Find,
        ),
    ]
}

/// A pattern that is computed may compile to this many bytes.
const COMPUTED_BYTES_MAX: usize = 64 << 10;

fn compile(meter: &mut Meter<'_>, pattern: &str, what: &str) -> Result<Regex, Fault> {
    // Compiling is the one thing here that costs far more than its text is long.
    meter.work(5_000 + 50 * pattern.len() as u64)?;
    re2::compile(pattern, COMPUTED_BYTES_MAX).map_err(|error| Fault::error(format!("{what}{error}")))
}

fn texts<'v, 'a>(args: &'v [Value<'a>]) -> Result<(&'v Text<'a>, &'v str), Fault> {
    match (&args[0], &args[1]) {
        (Value::String(text), Value::String(pattern)) => Ok((text, pattern)),
        _ => Err(Fault::no_overload()),
    }
}

pub(super) fn matches<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (text, pattern) = texts(args)?;
    let regex = compile(meter, pattern, "")?;
    matches_with(&regex, text)
}

fn find<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (_, pattern) = texts(args)?;
    let regex = compile(meter, pattern, "Illegal regex: ")?;
    with(&regex, "find", meter, args)
}

fn find_all<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (_, pattern) = texts(args)?;
    let regex = compile(meter, pattern, "Illegal regex: ")?;
    with(&regex, "findAll", meter, args)
}

fn matches_with<'a>(regex: &Regex, text: &str) -> Outcome<'a> {
    Ok(Value::Bool(regex.is_match(text)))
}

/// A call of one of these functions with its pattern compiled.
pub(crate) fn with<'a>(
    regex: &Regex,
    function: &str,
    meter: &mut Meter<'_>,
    args: &[Value<'a>],
) -> Outcome<'a> {
    let (text, _) = texts(args)?;
    meter.work(text.len() as u64 / 16)?;
    let part = |found: regex::Match<'_>| match text {
        Text::Borrowed(text) => Value::str(&text[found.range()]),
        Text::Shared(text) => Value::text(&text[found.range()]),
    };
    match function {
        "matches" => matches_with(regex, text),
        "find" => Ok(regex.find(text).map_or(Value::str(""), part)),
        _ => {
            let limit = match args.get(2) {
                None => usize::MAX,
                Some(Value::Int(limit)) => usize::try_from(*limit).unwrap_or(usize::MAX),
                Some(_) => return Err(Fault::no_overload()),
            };
            let mut found = Vec::new();
            for one in regex.find_iter(text).take(limit) {
                meter.allocate(size_of::<Value<'_>>() + one.len())?;
                found.push(part(one));
            }
            Ok(Value::list(found))
        }
    }
}
