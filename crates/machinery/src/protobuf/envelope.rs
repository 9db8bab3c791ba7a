//! What stands around messages: the magic bytes and the kind of a single object, and the frames of a watch.

use polder_model::{Object, SmolStr, Value};

use super::wire::{Payload, Reader, write_bytes, write_nested, write_varint};
use super::{MessageRef, ProtobufError, Shape, decode, encode, leaf};

const MAGIC: &[u8; 4] = b"k8s\0";

/// An object's message with what the client says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    pub api_version: SmolStr,
    pub kind: SmolStr,
    pub raw: &'a [u8],
}

/// Opens an envelope; the message inside stays unread.
pub fn decode_envelope(bytes: &[u8]) -> Result<Envelope<'_>, ProtobufError> {
    if bytes.is_empty() {
        return Err(ProtobufError::Envelope("empty data"));
    }
    let body = bytes.strip_prefix(MAGIC).ok_or(ProtobufError::Envelope(
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]",
    ))?;
    if body.is_empty() {
        return Err(ProtobufError::Envelope("empty body"));
    }
    let mut envelope = Envelope { api_version: SmolStr::default(), kind: SmolStr::default(), raw: &[] };
    let mut reader = Reader::new(body);
    while let Some((number, payload)) = reader.field()? {
        match (number, payload) {
            (1, Payload::Bytes(type_meta)) => {
                let mut reader = Reader::new(type_meta);
                while let Some((number, payload)) = reader.field()? {
                    match (number, payload) {
                        (1, Payload::Bytes(text)) => envelope.api_version = text_of(text),
                        (2, Payload::Bytes(text)) => envelope.kind = text_of(text),
                        (1 | 2, payload) => return Err(leaf::wrong(payload, "TypeMeta")),
                        _ => {}
                    }
                }
            }
            (2, Payload::Bytes(raw)) => envelope.raw = raw,
            (1..=4, Payload::Bytes(_)) => {}
            (1..=4, payload) => return Err(leaf::wrong(payload, "Unknown")),
            _ => {}
        }
    }
    Ok(envelope)
}

/// The object of an opened envelope, with its `apiVersion` and `kind` as far as they were given.
pub fn decode_enveloped(envelope: &Envelope<'_>, message: MessageRef<'_>) -> Result<Value, ProtobufError> {
    let mut value = decode(envelope.raw, message)?;
    if let Value::Object(object) = &mut value {
        for (key, text) in [("apiVersion", &envelope.api_version), ("kind", &envelope.kind)] {
            if !text.is_empty() {
                object.insert(key, text);
            }
        }
    }
    Ok(value)
}

/// Appends an object in its envelope. What it is, it says itself.
pub fn encode_envelope(value: &Value, message: MessageRef<'_>, out: &mut Vec<u8>) {
    envelope(value, out, |out| encode(value, message, out));
}

fn envelope(value: &Value, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    envelope_head(value, out);
    write_nested(2, out, write);
    envelope_tail(out);
}

fn envelope_head(value: &Value, out: &mut Vec<u8>) {
    let text = |key: &str| value.as_object().and_then(|object: &Object| object.str(key)).unwrap_or_default();
    out.extend_from_slice(MAGIC);
    write_nested(1, out, |out| {
        write_bytes(1, text("apiVersion").as_bytes(), out);
        write_bytes(2, text("kind").as_bytes(), out);
    });
}

fn envelope_tail(out: &mut Vec<u8>) {
    // Go writes these two though they are empty.
    write_bytes(3, b"", out);
    write_bytes(4, b"", out);
}

/// A list as a message, written item by item: its length stands in front of it, so the items are measured first.
///
/// In all list messages the items are number two, behind the metadata.
#[derive(Clone, Copy)]
pub struct ListMessage<'a> {
    list: MessageRef<'a>,
    item: MessageRef<'a>,
}

impl<'a> ListMessage<'a> {
    /// `None` when a message has no items.
    pub fn new(list: MessageRef<'a>) -> Option<ListMessage<'a>> {
        let item = list.layout.get(list.id).fields.iter().find_map(|field| match &field.shape {
            Shape::List(item) if field.number == 2 => match **item {
                Shape::Message(id) => Some(MessageRef { layout: list.layout, id }),
                _ => None,
            },
            _ => None,
        })?;
        Some(ListMessage { list, item })
    }

    /// Appends one item.
    pub fn item(&self, value: &Value, out: &mut Vec<u8>) {
        write_nested(2, out, |out| encode(value, self.item, out));
    }

    /// Appends what stands in front of the items. `list` is the list without them, `items_len` what all of them
    /// together take.
    pub fn head(&self, list: &Value, items_len: u64, out: &mut Vec<u8>) {
        let mut own = Vec::new();
        encode(list, self.list, &mut own);
        envelope_head(list, out);
        write_varint(2 << 3 | 2, out);
        write_varint(own.len() as u64 + items_len, out);
        out.extend_from_slice(&own);
    }

    /// Appends what stands behind the items.
    pub fn tail(out: &mut Vec<u8>) {
        envelope_tail(out);
    }
}

/// Appends one event of a watch: its length as four bytes, then the event with the enveloped object.
pub fn encode_event(kind: &str, value: &Value, message: MessageRef<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write_bytes(1, kind.as_bytes(), out);
    write_nested(2, out, |out| write_nested(1, out, |out| encode_envelope(value, message, out)));
    let length = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

fn text_of(bytes: &[u8]) -> SmolStr {
    SmolStr::from(String::from_utf8_lossy(bytes))
}
