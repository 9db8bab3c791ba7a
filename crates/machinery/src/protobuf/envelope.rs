//! What stands around messages: the magic bytes and the kind of a single object, and the frames of a watch.

use polder_model::{Object, SmolStr, Value};

use super::wire::{Payload, Reader, write_bytes, write_nested, write_varint};
use super::{MessageRef, ProtobufError, Shape, decode, encode, leaf};

const MAGIC: &[u8; 4] = b"k8s\0";
/// The number of an object in its envelope, and of the items in all lists.
const PART: u32 = 2;

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
    let (api_version, kind) = type_of(value);
    envelope_head(api_version, kind, out);
    encode_part(value, message, out);
    envelope_tail(out);
}

/// Appends an object as a part of something longer. Lists and envelopes have the same number for theirs, so that a part that
/// was made once fits in both.
pub fn encode_part(value: &Value, message: MessageRef<'_>, out: &mut Vec<u8>) {
    write_nested(PART, out, |out| encode(value, message, out));
}

/// Appends the envelope around a part that is there.
pub fn envelope_part(api_version: &str, kind: &str, part: &[u8], out: &mut Vec<u8>) {
    envelope_head(api_version, kind, out);
    out.extend_from_slice(part);
    envelope_tail(out);
}

/// What an object says it is.
fn type_of(value: &Value) -> (&str, &str) {
    let text = |key: &str| value.as_object().and_then(|object: &Object| object.str(key)).unwrap_or_default();
    (text("apiVersion"), text("kind"))
}

fn envelope_head(api_version: &str, kind: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(MAGIC);
    write_nested(1, out, |out| {
        write_bytes(1, api_version.as_bytes(), out);
        write_bytes(2, kind.as_bytes(), out);
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
            Shape::List(item) if field.number == PART => match **item {
                Shape::Message(id) => Some(MessageRef { layout: list.layout, id }),
                _ => None,
            },
            _ => None,
        })?;
        Some(ListMessage { list, item })
    }

    /// Appends one item.
    pub fn item(&self, value: &Value, out: &mut Vec<u8>) {
        encode_part(value, self.item, out);
    }

    /// Appends what stands in front of the items. `list` is the list without them, `items_len` what all of them
    /// together take.
    pub fn head(&self, list: &Value, items_len: u64, out: &mut Vec<u8>) {
        let mut own = Vec::new();
        encode(list, self.list, &mut own);
        let (api_version, kind) = type_of(list);
        envelope_head(api_version, kind, out);
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
    encode_event_with(kind, out, |out| encode_envelope(value, message, out));
}

/// The same with whatever writes the envelope.
pub fn encode_event_with(kind: &str, out: &mut Vec<u8>, envelope: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write_bytes(1, kind.as_bytes(), out);
    write_nested(2, out, |out| write_nested(1, out, envelope));
    let length = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

fn text_of(bytes: &[u8]) -> SmolStr {
    SmolStr::from(String::from_utf8_lossy(bytes))
}
