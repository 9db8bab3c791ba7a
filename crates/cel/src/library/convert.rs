//! Conversions between types, and the texts of values.

use crate::cost::Cost;
use crate::meter::{Fault, Meter, Outcome};
use crate::overload::{Overload, global};
use crate::time::{self, Timestamp};
use crate::value::Value;

pub(super) fn table() -> Vec<Overload> {
    vec![
        global("type", "type(A) -> type(A)", type_of, Cost::One),
        global("to_dyn", "dyn(A) -> dyn", same, Cost::One),
        global("bool_to_bool", "bool(bool) -> bool", same, Cost::One),
        global("string_to_bool", "bool(string) -> bool", to_bool, Cost::One),
        global("bytes_to_bytes", "bytes(bytes) -> bytes", same, Cost::One),
        global("string_to_bytes", "bytes(string) -> bytes", to_bytes, Cost::ToBytes),
        global("double_to_double", "double(double) -> double", same, Cost::One),
        global("int64_to_double", "double(int) -> double", to_double, Cost::One),
        global("string_to_double", "double(string) -> double", to_double, Cost::One),
        global("uint64_to_double", "double(uint) -> double", to_double, Cost::One),
        global("duration_to_duration", "duration(duration) -> duration", same, Cost::One),
        global("int64_to_duration", "duration(int) -> duration", to_duration, Cost::One),
        global("string_to_duration", "duration(string) -> duration", to_duration, Cost::One),
        global("int64_to_int64", "int(int) -> int", same, Cost::One),
        global("double_to_int64", "int(double) -> int", to_int, Cost::One),
        global("duration_to_int64", "int(duration) -> int", to_int, Cost::One),
        global("string_to_int64", "int(string) -> int", to_int, Cost::One),
        global("timestamp_to_int64", "int(timestamp) -> int", to_int, Cost::One),
        global("uint64_to_int64", "int(uint) -> int", to_int, Cost::One),
        global("string_to_string", "string(string) -> string", same, Cost::One),
        global("bool_to_string", "string(bool) -> string", to_string, Cost::One),
        global("bytes_to_string", "string(bytes) -> string", to_string, Cost::ToText),
        global("double_to_string", "string(double) -> string", to_string, Cost::One),
        global("duration_to_string", "string(duration) -> string", to_string, Cost::One),
        global("int64_to_string", "string(int) -> string", to_string, Cost::One),
        global("timestamp_to_string", "string(timestamp) -> string", to_string, Cost::One),
        global("uint64_to_string", "string(uint) -> string", to_string, Cost::One),
        global("timestamp_to_timestamp", "timestamp(timestamp) -> timestamp", same, Cost::One),
        global("int64_to_timestamp", "timestamp(int) -> timestamp", to_timestamp, Cost::One),
        global("string_to_timestamp", "timestamp(string) -> timestamp", to_timestamp, Cost::One),
        global("uint64_to_uint64", "uint(uint) -> uint", same, Cost::One),
        global("double_to_uint64", "uint(double) -> uint", to_uint, Cost::One),
        global("int64_to_uint64", "uint(int) -> uint", to_uint, Cost::One),
        global("string_to_uint64", "uint(string) -> uint", to_uint, Cost::One),
    ]
}

fn cannot(value: &Value<'_>, to: &str) -> Fault {
    Fault::error(format!("type conversion error from '{}' to '{to}'", value.type_name()))
}

fn same<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(args[0].clone())
}

fn type_of<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Type(args[0].type_name()))
}

fn to_bool<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match &args[0] {
        Value::Bool(flag) => Ok(Value::Bool(*flag)),
        Value::String(text) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => Err(cannot(&args[0], "bool")),
        },
        _ => Err(Fault::no_overload()),
    }
}

fn to_bytes<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match &args[0] {
        Value::String(text) => {
            meter.allocate(text.len())?;
            Ok(Value::Bytes(text.as_bytes().into()))
        }
        _ => Err(Fault::no_overload()),
    }
}

#[expect(clippy::cast_precision_loss, reason = "what the conversion is")]
pub(super) fn to_double<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match &args[0] {
        Value::Double(number) => Ok(Value::Double(*number)),
        Value::Int(number) => Ok(Value::Double(*number as f64)),
        Value::Uint(number) => Ok(Value::Double(*number as f64)),
        Value::String(text) => {
            parse_double(text).map(Value::Double).ok_or_else(|| cannot(&args[0], "double"))
        }
        _ => Err(Fault::no_overload()),
    }
}

/// A float as Go reads it; numbers too large for one are refused.
fn parse_double(text: &str) -> Option<f64> {
    let special = text.trim_start_matches(['+', '-']).to_ascii_lowercase();
    let number: f64 = text.parse().ok()?;
    let is_special = matches!(special.as_str(), "inf" | "infinity" | "nan");
    (number.is_finite() || is_special).then_some(number)
}

fn to_duration<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match &args[0] {
        Value::Duration(nanos) => Ok(Value::Duration(*nanos)),
        Value::String(text) => (time::parse_duration(text))
            .map(Value::Duration)
            .ok_or_else(|| cannot(&args[0], "google.protobuf.Duration")),
        Value::Int(_) => Err(cannot(&args[0], "google.protobuf.Duration")),
        _ => Err(Fault::no_overload()),
    }
}

fn to_int<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let overflow = || Fault::error("integer overflow");
    match &args[0] {
        Value::Int(number) => Ok(Value::Int(*number)),
        Value::Uint(number) => i64::try_from(*number).map(Value::Int).map_err(|_| overflow()),
        Value::Double(number) => {
            let open = *number > -9_223_372_036_854_775_808.0 && *number < 9_223_372_036_854_775_807.0;
            let whole = open.then(|| crate::value::whole(number.trunc())).flatten();
            whole.map(Value::Int).ok_or_else(overflow)
        }
        Value::Duration(nanos) => Ok(Value::Int(*nanos)),
        Value::Timestamp(at) => Ok(Value::Int(at.seconds())),
        Value::String(text) => text.parse().map(Value::Int).map_err(|_| cannot(&args[0], "int")),
        _ => Err(Fault::no_overload()),
    }
}

fn to_uint<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let overflow = || Fault::error("unsigned integer overflow");
    match &args[0] {
        Value::Uint(number) => Ok(Value::Uint(*number)),
        Value::Int(number) => u64::try_from(*number).map(Value::Uint).map_err(|_| overflow()),
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range: checked")]
        Value::Double(number) => match (0.0..18_446_744_073_709_551_615.0).contains(number) {
            true => Ok(Value::Uint(*number as u64)),
            false => Err(overflow()),
        },
        Value::String(text) if text.starts_with('+') => Err(cannot(&args[0], "uint")),
        Value::String(text) => text.parse().map(Value::Uint).map_err(|_| cannot(&args[0], "uint")),
        _ => Err(Fault::no_overload()),
    }
}

fn to_timestamp<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match &args[0] {
        Value::Timestamp(at) => Ok(Value::Timestamp(*at)),
        Value::Int(seconds) => {
            Timestamp::new(*seconds, 0).map(Value::Timestamp).ok_or(Fault::error("timestamp overflow"))
        }
        Value::String(text) => (time::parse_timestamp(text))
            .map(Value::Timestamp)
            .ok_or_else(|| cannot(&args[0], "google.protobuf.Timestamp")),
        _ => Err(Fault::no_overload()),
    }
}

pub(super) fn to_string<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    if let Value::String(_) = &args[0] {
        return Ok(args[0].clone());
    }
    let text = text(&args[0])?;
    meter.allocate(text.len())?;
    Ok(Value::text(text))
}

/// What `string(x)` gives.
pub(super) fn text(value: &Value<'_>) -> Result<String, Fault> {
    Ok(match value {
        Value::String(text) => text.to_string(),
        Value::Bool(flag) => flag.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Double(number) => go_double(*number),
        Value::Bytes(bytes) => String::from_utf8(bytes.to_vec())
            .map_err(|_| Fault::error("invalid UTF-8 in bytes, cannot convert to string"))?,
        Value::Duration(nanos) => time::show_duration(*nanos),
        Value::Timestamp(at) => at.to_string(),
        Value::Type(name) => (*name).into(),
        other => return Err(cannot(other, "string")),
    })
}

/// A value in an error message, however it can be shown.
pub(crate) fn plain(value: &Value<'_>) -> String {
    text(value).unwrap_or_else(|_| value.type_name().into())
}

/// Go's `%g`: the shortest digits, with an exponent where that is far from zero.
pub(super) fn go_double(number: f64) -> String {
    if number.is_nan() {
        return "NaN".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    if number == 0.0 {
        return if number.is_sign_negative() { "-0".into() } else { "0".into() };
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..21).contains(&exponent) {
        return format!("{number}");
    }
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}
