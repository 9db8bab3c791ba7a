//! The strings extension, version 2. Positions count characters.

use crate::cost::Cost;
use crate::meter::{Fault, Meter, Outcome};
use crate::overload::{Overload, global, member};
use crate::value::{Text, Value};

pub(super) fn table() -> Vec<Overload> {
    vec![
        member("string_char_at_int", "string.charAt(int) -> string", char_at, Cost::One),
        member("string_index_of_string", "string.indexOf(string) -> int", index_of, Cost::Elements),
        member("string_index_of_string_int", "string.indexOf(string, int) -> int", index_of, Cost::Elements),
        member(
            "string_last_index_of_string",
            "string.lastIndexOf(string) -> int",
            last_index_of,
            Cost::Elements,
        ),
        member(
            "string_last_index_of_string_int",
            "string.lastIndexOf(string, int) -> int",
            last_index_of,
            Cost::Elements,
        ),
        member("string_lower_ascii", "string.lowerAscii() -> string", lower, Cost::Scan),
        member("string_upper_ascii", "string.upperAscii() -> string", upper, Cost::Scan),
        member(
            "string_replace_string_string",
            "string.replace(string, string) -> string",
            replace,
            Cost::Replace,
        ),
        member(
            "string_replace_string_string_int",
            "string.replace(string, string, int) -> string",
            replace,
            Cost::Replace,
        ),
        member("string_split_string", "string.split(string) -> list(string)", split, Cost::Split),
        member("string_split_string_int", "string.split(string, int) -> list(string)", split, Cost::Split),
        member("string_substring_int", "string.substring(int) -> string", substring, Cost::Scan),
        member("string_substring_int_int", "string.substring(int, int) -> string", substring, Cost::Scan),
        member("string_trim", "string.trim() -> string", trim, Cost::Scan),
        global("strings_quote", "strings.quote(string) -> string", quote, Cost::Quote),
        member("list_join", "list(string).join() -> string", join, Cost::Join),
        member("list_join_string", "list(string).join(string) -> string", join, Cost::Join),
    ]
}

fn text<'v, 'a>(args: &'v [Value<'a>], at: usize) -> Result<&'v Text<'a>, Fault> {
    match args.get(at) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(Fault::no_overload()),
    }
}

fn int(args: &[Value<'_>], at: usize) -> Result<i64, Fault> {
    match args.get(at) {
        Some(Value::Int(number)) => Ok(*number),
        _ => Err(Fault::no_overload()),
    }
}

/// A part of a text that stays borrowed when the text is.
fn part<'a>(text: &Text<'a>, range: std::ops::Range<usize>) -> Value<'a> {
    match text {
        Text::Borrowed(text) => Value::str(&text[range]),
        Text::Shared(text) => Value::text(&text[range]),
    }
}

fn out_of_range(index: i64) -> Fault {
    Fault::error(format!("index out of range: {index}"))
}

/// The byte where the character with this number begins; the end counts too.
fn byte_of(text: &str, index: i64) -> Option<usize> {
    let index = usize::try_from(index).ok()?;
    text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(index)
}

fn char_at<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (text, index) = (text(args, 0)?, int(args, 1)?);
    meter.work(text.len() as u64 / 16)?;
    let start = byte_of(text, index).ok_or_else(|| out_of_range(index))?;
    let len = text[start..].chars().next().map_or(0, char::len_utf8);
    Ok(part(text, start..start + len))
}

fn count(text: &str) -> Value<'static> {
    Value::Int(i64::try_from(text.chars().count()).unwrap_or(i64::MAX))
}

fn index_of<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (text, wanted) = (text(args, 0)?, text(args, 1)?);
    let offset = if args.len() > 2 { int(args, 2)? } else { 0 };
    meter.work(text.len() as u64 / 16)?;
    if wanted.is_empty() {
        return Ok(Value::Int(offset));
    }
    if offset < 0 {
        return Err(out_of_range(offset));
    }
    let Some(start) = byte_of(text, offset) else { return Ok(Value::Int(-1)) };
    Ok(match text[start..].find(&**wanted) {
        Some(at) => count(&text[..start + at]),
        None => Value::Int(-1),
    })
}

fn last_index_of<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (text, wanted) = (text(args, 0)?, text(args, 1)?);
    meter.work(text.len() as u64 / 16)?;
    let offset = if args.len() > 2 { Some(int(args, 2)?) } else { None };
    if wanted.is_empty() {
        return Ok(offset.map_or_else(|| count(text), Value::Int));
    }
    let before = match offset {
        None => text.len(),
        Some(offset) if offset < 0 => return Err(out_of_range(offset)),
        // A match may begin at the offset at the latest.
        Some(offset) => match byte_of(text, offset).filter(|start| *start < text.len()) {
            Some(start) => (start + wanted.len()).min(text.len()),
            None => return Ok(Value::Int(-1)),
        },
    };
    let mut before = before;
    while !text.is_char_boundary(before) {
        before -= 1;
    }
    Ok(match text[..before].rfind(&**wanted) {
        Some(at) => count(&text[..at]),
        None => Value::Int(-1),
    })
}

fn lower<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let text = text(args, 0)?;
    meter.allocate(text.len())?;
    Ok(Value::text(text.to_ascii_lowercase()))
}

fn upper<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let text = text(args, 0)?;
    meter.allocate(text.len())?;
    Ok(Value::text(text.to_ascii_uppercase()))
}

fn replace<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (text, old, new) = (text(args, 0)?, text(args, 1)?, text(args, 2)?);
    let limit = if args.len() > 3 { int(args, 3)? } else { -1 };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let found = if old.is_empty() { text.chars().count() + 1 } else { text.matches(&**old).count() };
    let grown = found.min(limit).saturating_mul(new.len());
    meter.allocate(text.len().saturating_add(grown))?;
    Ok(Value::text(text.replacen(&**old, new, limit)))
}

fn split<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (text, separator) = (text(args, 0)?, text(args, 1)?);
    let limit = if args.len() > 2 { int(args, 2)? } else { -1 };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if limit == 0 {
        return Ok(Value::list(Vec::new()));
    }
    let mut ranges = Vec::new();
    let mut start = 0;
    if separator.is_empty() {
        // Every character on its own; the last part takes the rest.
        for (at, char) in text.char_indices() {
            if ranges.len() + 1 == limit {
                break;
            }
            ranges.push(at..at + char.len_utf8());
            start = at + char.len_utf8();
        }
        if start < text.len() {
            ranges.push(start..text.len());
        }
    } else {
        for (at, _) in text.match_indices(&**separator) {
            if ranges.len() + 1 >= limit {
                break;
            }
            ranges.push(start..at);
            start = at + separator.len();
        }
        ranges.push(start..text.len());
    }
    meter.allocate(ranges.len() * size_of::<Value<'_>>() + text.len())?;
    Ok(Value::list(ranges.into_iter().map(|range| part(text, range)).collect()))
}

fn substring<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (text, start) = (text(args, 0)?, int(args, 1)?);
    meter.allocate(text.len())?;
    meter.work(text.len() as u64 / 16)?;
    let end = if args.len() > 2 { Some(int(args, 2)?) } else { None };
    if let Some(end) = end.filter(|end| start > *end) {
        return Err(Fault::error(format!("invalid substring range. start: {start}, end: {end}")));
    }
    let from = byte_of(text, start).ok_or_else(|| out_of_range(start))?;
    let to = match end {
        None => text.len(),
        Some(end) => byte_of(text, end).ok_or_else(|| out_of_range(end))?,
    };
    Ok(part(text, from..to))
}

fn trim<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let text = text(args, 0)?;
    let start = text.len() - text.trim_start().len();
    let end = start + text.trim().len();
    Ok(part(text, start..end))
}

fn quote<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let text = text(args, 0)?;
    meter.allocate(text.len() * 2 + 2)?;
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for char in text.chars() {
        match char {
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            other => out.push(other),
        }
    }
    out.push('"');
    Ok(Value::text(out))
}

fn join<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let Value::List(list) = &args[0] else { return Err(Fault::no_overload()) };
    let separator: &str = if args.len() > 1 { text(args, 1)? } else { "" };
    let mut out = String::new();
    for (at, item) in list.iter().enumerate() {
        let item = item?;
        let Value::String(item) = &item else {
            return Err(Fault::error(format!("join: invalid input: {}", super::convert::plain(&item))));
        };
        meter.allocate(item.len() + separator.len())?;
        if at > 0 {
            out.push_str(separator);
        }
        out.push_str(item);
    }
    Ok(Value::text(out))
}
