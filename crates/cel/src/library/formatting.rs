//! `string.format`: `%s`, `%d`, `%f`, `%e`, `%b`, `%x`, `%X`, `%o`. Numbers are written as in American English.

use super::convert;
use super::opaque::text;
use crate::cost::Cost;
use crate::meter::{Fault, Meter, Outcome};
use crate::overload::{Overload, member};
use crate::types::Type;
use crate::value::Value;

pub(super) fn table() -> Vec<Overload> {
    vec![member("string_format", "string.format(list(dyn)) -> string", format, Cost::Format)]
}

/// More digits than this nobody wants.
const PRECISION_MAX: usize = 100;

/// One piece of a format text.
#[derive(Debug)]
pub(crate) enum Piece<'t> {
    Text(&'t str),
    Clause { verb: char, precision: Option<usize> },
}

/// Cuts a format text apart.
pub(crate) fn pieces(text: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        if at > 0 {
            out.push(Piece::Text(&rest[..at]));
        }
        let clause = &rest[at + 1..];
        if let Some(after) = clause.strip_prefix('%') {
            out.push(Piece::Text("%"));
            rest = after;
            continue;
        }
        if clause.is_empty() {
            return Err("unexpected end of string".into());
        }
        let wrong = |text: String| format!("could not parse formatting clause: {text}");
        let (precision, verb) = match clause.strip_prefix('.') {
            None => (None, clause),
            Some(digits) => {
                let len = digits.bytes().take_while(u8::is_ascii_digit).count();
                if len == digits.len() {
                    let text = "error while parsing precision: could not find end of precision specifier";
                    return Err(wrong(text.into()));
                }
                let precision = digits[..len].parse::<usize>().map_err(|_| {
                    let number = &digits[..len];
                    wrong(format!("error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing {number:?}: invalid syntax"))
                })?;
                (Some(precision.min(PRECISION_MAX)), &digits[len..])
            }
        };
        let letter = verb.chars().next().unwrap_or_default();
        if !"sdfebxXo".contains(letter) {
            return Err(wrong(format!("unrecognized formatting clause \"{letter}\"")));
        }
        out.push(Piece::Clause { verb: letter, precision });
        rest = &verb[1..];
    }
    if !rest.is_empty() {
        out.push(Piece::Text(rest));
    }
    Ok(out)
}

/// What is wrong with an argument of this type for a clause.
pub(crate) fn type_problem(verb: char, given: &Type) -> Option<String> {
    let good = match verb {
        's' => !matches!(given, Type::Object(_) | Type::Opaque(_) | Type::Made(_) | Type::Optional(_)),
        'd' | 'o' => matches!(given, Type::Int | Type::Uint),
        'f' | 'e' => matches!(given, Type::Double | Type::String),
        'b' => matches!(given, Type::Int | Type::Uint | Type::Bool),
        _ => matches!(given, Type::Int | Type::Uint | Type::String | Type::Bytes),
    };
    let name = match given {
        Type::Object(_) => given.to_string(),
        other => other.runtime_name().into(),
    };
    (!good && !given.is_dyn()).then(|| wrong_type(verb, &name))
}

fn wrong_type(verb: char, name: &str) -> String {
    let what = match verb {
        's' => {
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
        }
        'd' => "decimal clause can only be used on integers",
        'f' => "fixed-point clause can only be used on doubles",
        'e' => "scientific clause can only be used on doubles",
        'b' => "only integers and bools can be formatted as binary",
        'o' => "octal clause can only be used on integers",
        _ => "only integers, byte buffers, and strings can be formatted as hex",
    };
    format!("error during formatting: {what}, was given {name}")
}

fn format<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let Value::List(list) = &args[1] else { return Err(Fault::no_overload()) };
    let mut out = String::new();
    let mut next = 0;
    for piece in pieces(text(args, 0)?).map_err(Fault::error)? {
        let len = out.len();
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Clause { verb, precision } => {
                let arg =
                    list.get(next).ok_or_else(|| Fault::error(format!("index {next} out of range")))??;
                next += 1;
                clause(verb, precision, &arg, meter, &mut out)?;
            }
        }
        meter.allocate(out.len() - len)?;
    }
    Ok(Value::text(out))
}

fn clause(
    verb: char,
    precision: Option<usize>,
    arg: &Value<'_>,
    meter: &mut Meter<'_>,
    out: &mut String,
) -> Result<(), Fault> {
    let signed = |number: i64, digits: String| if number < 0 { format!("-{digits}") } else { digits };
    let text = match (verb, arg) {
        ('s', value) => return show(value, true, meter, out),
        ('d', Value::Int(number)) => number.to_string(),
        ('d', Value::Uint(number)) => number.to_string(),
        ('b', Value::Int(number)) => signed(*number, format!("{:b}", number.unsigned_abs())),
        ('b', Value::Uint(number)) => format!("{number:b}"),
        ('b', Value::Bool(flag)) => u8::from(*flag).to_string(),
        ('o', Value::Int(number)) => signed(*number, format!("{:o}", number.unsigned_abs())),
        ('o', Value::Uint(number)) => format!("{number:o}"),
        ('x' | 'X', Value::Int(number)) => signed(*number, format!("{:x}", number.unsigned_abs())),
        ('x' | 'X', Value::Uint(number)) => format!("{number:x}"),
        ('x' | 'X', Value::String(text)) => hex(text.as_bytes()),
        ('x' | 'X', Value::Bytes(bytes)) => hex(bytes),
        ('f' | 'e', value) => {
            let number = match value {
                Value::Double(number) => *number,
                Value::String(text) if matches!(&**text, "NaN" | "Infinity" | "-Infinity") => {
                    text.parse().unwrap_or(f64::NAN)
                }
                other => return Err(Fault::error(wrong_type(verb, other.type_name()))),
            };
            if verb == 'f' { fixed(number, precision.unwrap_or(6)) } else { scientific(number) }
        }
        (verb, other) => return Err(Fault::error(wrong_type(verb, other.type_name()))),
    };
    let text = if verb == 'X' { text.to_uppercase() } else { text };
    out.push_str(&text);
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

fn special(number: f64) -> Option<String> {
    match number {
        _ if number.is_nan() => Some("NaN".into()),
        f64::INFINITY => Some("∞".into()),
        f64::NEG_INFINITY => Some("-∞".into()),
        _ => None,
    }
}

/// With commas between thousands.
fn fixed(number: f64, precision: usize) -> String {
    if let Some(special) = special(number) {
        return special;
    }
    let plain = format!("{:.precision$}", number.abs());
    let (whole, fraction) = plain.split_once('.').map_or((plain.as_str(), None), |(a, b)| (a, Some(b)));
    let mut out = String::from(if number.is_sign_negative() && number != 0.0 { "-" } else { "" });
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// `1.052033×10⁰³`: six digits, whatever precision was asked for.
fn scientific(number: f64) -> String {
    const RAISED: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    if let Some(special) = special(number) {
        return special;
    }
    let plain = format!("{number:.6e}");
    let (digits, exponent) = plain.split_once('e').unwrap_or((&plain, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(("", exponent), |exponent| ("⁻", exponent));
    let raised: String = format!("{exponent:0>2}")
        .bytes()
        .map(|digit| RAISED[usize::from(digit.wrapping_sub(b'0')).min(9)])
        .collect();
    format!("{digits}×10{sign}{raised}")
}

/// `%s`, and what stands inside lists and maps.
fn show(value: &Value<'_>, outer: bool, meter: &mut Meter<'_>, out: &mut String) -> Result<(), Fault> {
    meter.allocate(8)?;
    match value {
        Value::Null => out.push_str("null"),
        Value::List(list) => {
            out.push('[');
            for (at, item) in list.iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                show(&item?, false, meter, out)?;
            }
            out.push(']');
        }
        Value::Map(map) => {
            let mut entries = Vec::with_capacity(map.len());
            for key in map.keys() {
                let mut entry = String::new();
                show(&key, false, meter, &mut entry)?;
                entry.push(':');
                if let Some(value) = map.find(&key)? {
                    show(&value, false, meter, &mut entry)?;
                }
                entries.push(entry);
            }
            entries.sort();
            out.push('{');
            out.push_str(&entries.join(", "));
            out.push('}');
        }
        Value::Optional(_) | Value::Opaque(_) => {
            return Err(Fault::error(wrong_type('s', value.type_name())));
        }
        scalar => {
            let text = convert::text(scalar)?;
            meter.allocate(text.len())?;
            match scalar {
                _ if outer => out.push_str(&text),
                Value::String(_) => out.push_str(&format!("{text:?}")),
                Value::Bytes(_) => out.push_str(&format!("b{text:?}")),
                Value::Timestamp(_) => out.push_str(&format!("timestamp({text:?})")),
                Value::Duration(_) => out.push_str(&format!("duration({text:?})")),
                Value::Double(number) if number.is_finite() => out.push_str(&format!("{number:.6}")),
                Value::Double(_) => out.push_str(&format!("{text:?}")),
                _ => out.push_str(&text),
            }
        }
    }
    Ok(())
}
