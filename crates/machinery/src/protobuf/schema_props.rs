//! The three places of a JSON schema where something else may stand instead of a schema.

use polder_model::Value;

use super::decode::Decoder;
use super::encode::Encoder;
use super::leaf;
use super::wire::{Payload, Reader, write_bytes, write_int};
use super::{MessageId, ProtobufError, Union};

pub(super) fn decode(
    decoder: &mut Decoder<'_>,
    union: Union,
    schema: MessageId,
    bytes: &[u8],
    field: &str,
) -> Result<Value, ProtobufError> {
    let (mut props, mut allows, mut items) = (None::<Vec<u8>>, false, Vec::new());
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.field()? {
        match (union, number, payload) {
            (Union::Array | Union::Strings, 1, Payload::Bytes(bytes))
            | (Union::Bool, 2, Payload::Bytes(bytes)) => {
                props.get_or_insert_default().extend_from_slice(bytes);
            }
            (Union::Bool, 1, Payload::Varint(number)) => allows = number != 0,
            (Union::Array, 2, Payload::Bytes(bytes)) => {
                items.push(Value::Object(decoder.nested(|decoder| decoder.message(bytes, schema))?));
            }
            (Union::Strings, 2, Payload::Bytes(bytes)) => items.push(leaf::string(bytes)),
            (_, 1 | 2, payload) => return Err(leaf::wrong(payload, field)),
            _ => {}
        }
    }
    if !items.is_empty() {
        return Ok(Value::Array(items));
    }
    match (props, union) {
        (Some(bytes), _) => Ok(Value::Object(decoder.nested(|decoder| decoder.message(&bytes, schema))?)),
        (None, Union::Bool) => Ok(Value::Bool(allows)),
        (None, _) => Ok(Value::Null),
    }
}

pub(super) fn encode(
    encoder: &Encoder<'_>,
    union: Union,
    schema: MessageId,
    value: &Value,
    out: &mut Vec<u8>,
) {
    match (union, value) {
        (Union::Bool, value) => {
            let allows = matches!(value, Value::Object(_) | Value::Bool(true));
            write_int(1, i64::from(allows), out);
            if let Value::Object(_) = value {
                encoder.nested(2, schema, value, out);
            }
        }
        (_, Value::Object(_)) => encoder.nested(1, schema, value, out),
        (Union::Array, Value::Array(items)) => {
            items.iter().for_each(|item| encoder.nested(2, schema, item, out));
        }
        (Union::Strings, Value::Array(items)) => {
            for item in items {
                write_bytes(2, item.as_str().unwrap_or_default().as_bytes(), out);
            }
        }
        _ => {}
    }
}
