//! Messages that are one value in JSON: times, quantities, ports that may be names, raw JSON.

use jiff::Timestamp;
use polder_model::quantity::Quantity;
use polder_model::{SmolStr, Value};

use super::ProtobufError;
use super::wire::{Payload, Reader, write_bytes, write_int};

/// The zero time of Go: to it, 0001-01-01T00:00:00Z is no time at all.
const GO_ZERO_SECONDS: i64 = -62_135_596_800;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precision {
    Seconds,
    Micros,
}

pub(super) fn time_decode(bytes: &[u8], precision: Precision, field: &str) -> Result<Value, ProtobufError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0_i64, 0_i32);
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.field()? {
        match (number, payload) {
            (1, Payload::Varint(value)) => seconds = value.cast_signed(),
            (2, Payload::Varint(value)) => nanos = int32(value),
            (1 | 2, _) => return Err(wrong(payload, field)),
            _ => {}
        }
    }
    let micros = match precision {
        Precision::Seconds => 0,
        Precision::Micros => nanos / 1000,
    };
    if (seconds, micros) == (GO_ZERO_SECONDS, 0) {
        return Ok(Value::Null);
    }
    let outside = || ProtobufError::Value { field: field.into(), problem: "the time is out of range".into() };
    let time = Timestamp::new(seconds, micros * 1000).map_err(|_| outside())?;
    let text = match precision {
        Precision::Seconds => time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        Precision::Micros => time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
    };
    // JSON has no years before 0 or after 9999.
    if text.starts_with('-') || text.find('-') != Some(4) {
        return Err(outside());
    }
    Ok(Value::from(text))
}

/// Nothing is written for what is no time.
pub(super) fn time_encode(value: &Value, precision: Precision, out: &mut Vec<u8>) {
    let Some(time) = value.as_str().and_then(|text| text.parse::<Timestamp>().ok()) else { return };
    let nanos = match precision {
        Precision::Seconds => 0,
        Precision::Micros => i64::from(time.subsec_nanosecond().div_euclid(1000) * 1000),
    };
    let second = time.as_nanosecond().div_euclid(1_000_000_000);
    write_int(1, i64::try_from(second).unwrap_or_default(), out);
    write_int(2, nanos.rem_euclid(1_000_000_000), out);
}

pub(super) fn quantity_decode(bytes: &[u8], field: &str) -> Result<Value, ProtobufError> {
    let text = last_bytes(bytes, field)?.unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    let quantity = Quantity::parse(&text)
        .map_err(|error| ProtobufError::Value { field: field.into(), problem: error.to_string() })?;
    Ok(Value::from(quantity.to_string()))
}

/// As Go writes it: in its shortest form, and zero when there is none.
pub(super) fn quantity_encode(value: &Value, out: &mut Vec<u8>) {
    match Quantity::from_value(value) {
        Ok(quantity) => write_bytes(1, quantity.to_string().as_bytes(), out),
        Err(_) => write_bytes(1, value.as_str().unwrap_or("0").as_bytes(), out),
    }
}

pub(super) fn int_or_string_decode(bytes: &[u8], field: &str) -> Result<Value, ProtobufError> {
    let (mut kind, mut number_value, mut text) = (0, 0, Value::from(""));
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.field()? {
        match (number, payload) {
            (1, Payload::Varint(value)) => kind = value,
            (2, Payload::Varint(value)) => number_value = int32(value),
            (3, Payload::Bytes(bytes)) => text = string(bytes),
            (1..=3, _) => return Err(wrong(payload, field)),
            _ => {}
        }
    }
    match kind {
        0 => Ok(Value::from(number_value)),
        1 => Ok(text),
        _ => Err(ProtobufError::Value {
            field: field.into(),
            problem: "impossible IntOrString.Type".to_owned(),
        }),
    }
}

pub(super) fn int_or_string_encode(value: &Value, out: &mut Vec<u8>) {
    let (kind, number, text) = match value {
        Value::String(text) => (1, 0, text.as_str()),
        Value::Int(number) => (0, *number, ""),
        _ => (0, 0, ""),
    };
    write_int(1, kind, out);
    write_int(2, number, out);
    write_bytes(3, text.as_bytes(), out);
}

/// JSON inside a message; nothing is `null`.
pub(super) fn raw_decode(bytes: &[u8], field: &str) -> Result<Value, ProtobufError> {
    match last_bytes(bytes, field)? {
        None | Some([]) => Ok(Value::Null),
        Some(json) => Value::parse(json)
            .map_err(|error| ProtobufError::Value { field: field.into(), problem: error.to_string() }),
    }
}

pub(super) fn raw_encode(value: &Value, out: &mut Vec<u8>) {
    if !value.is_null() {
        write_bytes(1, &value.to_vec(), out);
    }
}

/// Go keeps any bytes in a string, and writes those that are no text as U+FFFD.
pub(super) fn string(bytes: &[u8]) -> Value {
    Value::String(SmolStr::from(String::from_utf8_lossy(bytes)))
}

pub(super) fn int32(value: u64) -> i32 {
    #[expect(clippy::cast_possible_truncation, reason = "the wire carries the number sign-extended")]
    let low = value as u32;
    low.cast_signed()
}

pub(super) fn wrong(payload: Payload<'_>, field: &str) -> ProtobufError {
    ProtobufError::Wire { wire: payload.wire_type(), field: field.into() }
}

/// The last field number one of a message that has no other.
fn last_bytes<'a>(bytes: &'a [u8], field: &str) -> Result<Option<&'a [u8]>, ProtobufError> {
    let mut found = None;
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.field()? {
        match (number, payload) {
            (1, Payload::Bytes(bytes)) => found = Some(bytes),
            (1, _) => return Err(wrong(payload, field)),
            _ => {}
        }
    }
    Ok(found)
}
