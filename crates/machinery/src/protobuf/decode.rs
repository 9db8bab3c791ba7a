//! Bytes to JSON.
//!
//! A message is read in two steps: first every field is put in its slot, then the slots become members. So a field
//! that stands several times (which the format allows, and which means joining the messages) costs no more than its
//! bytes, and members come out complete.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polder_model::{Object, SmolStr, Value};

use super::leaf::{self, Precision};
use super::schema_props;
use super::wire::{Payload, Reader};
use super::{Field, Layout, MessageId, MessageRef, Presence, ProtobufError, Shape};

/// Messages inside messages. Only JSON schemas go deeper than a few.
const DEPTH_MAX: u32 = 128;
/// Values made plus fields looked at. An empty message costs two bytes on the wire and may be dozens of members.
const WORK_MAX: usize = 4 << 20;

/// Reads a message. The result has no `apiVersion` and `kind`: those stand in the envelope.
pub fn decode(bytes: &[u8], message: MessageRef<'_>) -> Result<Value, ProtobufError> {
    let mut decoder = Decoder { layout: message.layout, work: 0, depth: 0 };
    decoder.message(bytes, message.id).map(Value::Object)
}

pub(super) struct Decoder<'l> {
    layout: &'l Layout,
    work: usize,
    depth: u32,
}

type Members = Vec<(SmolStr, Value)>;

/// What was found for one field of a message.
enum Slot<'b> {
    Empty,
    /// A scalar: the last one counts.
    Scalar(Payload<'b>),
    /// A message that stands several times.
    Joined(Vec<u8>),
    List(Vec<Value>),
    Map(Members),
}

impl<'l> Decoder<'l> {
    pub(super) fn message(&mut self, bytes: &[u8], id: MessageId) -> Result<Object, ProtobufError> {
        let mut members = Members::new();
        self.members(bytes, id, &mut members)?;
        Ok(members.into_iter().collect())
    }

    /// Runs one level deeper.
    pub(super) fn nested<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, ProtobufError>,
    ) -> Result<T, ProtobufError> {
        if self.depth == DEPTH_MAX {
            return Err(ProtobufError::Depth);
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    fn members(&mut self, bytes: &[u8], id: MessageId, out: &mut Members) -> Result<(), ProtobufError> {
        let layout: &'l Layout = self.layout;
        let message = layout.get(id);
        self.spend(message.fields.len())?;
        let mut slots: Vec<Slot<'_>> = Vec::new();
        slots.resize_with(message.fields.len(), || Slot::Empty);
        let mut reader = Reader::new(bytes);
        while let Some((number, payload)) = reader.field()? {
            if let Some(index) = message.find(number) {
                self.fill(&mut slots[index], &message.fields[index], payload)?;
            }
        }
        for (field, slot) in message.fields.iter().zip(slots) {
            self.member(field, slot, out)?;
        }
        Ok(())
    }

    fn fill<'b>(
        &mut self,
        slot: &mut Slot<'b>,
        field: &Field,
        payload: Payload<'b>,
    ) -> Result<(), ProtobufError> {
        match (&field.shape, payload) {
            (Shape::List(element), payload) => {
                if !matches!(slot, Slot::List(_)) {
                    *slot = Slot::List(Vec::new());
                }
                let Slot::List(items) = slot else { unreachable!("made a list above") };
                match (&**element, payload) {
                    (Shape::Int32 | Shape::Int64 | Shape::Bool, Payload::Bytes(packed)) => {
                        let mut reader = Reader::new(packed);
                        while let Some(number) = reader.packed()? {
                            items.push(self.value(element, Payload::Varint(number), field)?);
                        }
                    }
                    (element, payload) => items.push(self.value(element, payload, field)?),
                }
            }
            (Shape::Map(element), Payload::Bytes(entry)) => {
                let entry = self.entry(element, entry, field)?;
                match slot {
                    Slot::Map(entries) => entries.push(entry),
                    _ => *slot = Slot::Map(vec![entry]),
                }
            }
            (
                Shape::Message(_)
                | Shape::Inlined(_)
                | Shape::IntOrString
                | Shape::Raw
                | Shape::Wrapped(_)
                | Shape::Union(..),
                Payload::Bytes(more),
            ) => match slot {
                Slot::Scalar(Payload::Bytes(first)) => *slot = Slot::Joined([*first, more].concat()),
                Slot::Joined(joined) => joined.extend_from_slice(more),
                _ => *slot = Slot::Scalar(payload),
            },
            (_, payload) => *slot = Slot::Scalar(payload),
        }
        Ok(())
    }

    /// What a slot is in JSON, if anything.
    fn member(&mut self, field: &Field, slot: Slot<'_>, out: &mut Members) -> Result<(), ProtobufError> {
        let joined;
        let payload = match slot {
            Slot::Empty if field.presence == Presence::Pointer => return Ok(()),
            Slot::Empty if field.presence == Presence::NullPointer => {
                out.push((field.name.clone(), Value::Null));
                return Ok(());
            }
            Slot::Empty => None,
            Slot::Scalar(payload) => Some(payload),
            Slot::Joined(bytes) => {
                joined = bytes;
                Some(Payload::Bytes(&joined))
            }
            Slot::List(items) => {
                // A packed list may be there and empty.
                if !items.is_empty() || field.presence != Presence::OmitEmpty {
                    out.push((field.name.clone(), Value::Array(items)));
                }
                return Ok(());
            }
            Slot::Map(entries) => {
                out.push((field.name.clone(), Value::Object(entries.into_iter().collect())));
                return Ok(());
            }
        };
        if let Shape::Inlined(id) = field.shape {
            let bytes = match payload {
                None => &[][..],
                Some(Payload::Bytes(bytes)) => bytes,
                Some(payload) => return Err(leaf::wrong(payload, &self.layout.get(id).name)),
            };
            return self.nested(|decoder| decoder.members(bytes, id, out));
        }
        let value = match payload {
            Some(payload) => self.value(&field.shape, payload, field)?,
            None => self.zero(&field.shape)?,
        };
        if field.presence != Presence::OmitEmpty || !is_empty(&value) {
            out.push((field.name.clone(), value));
        }
        Ok(())
    }

    fn entry(
        &mut self,
        element: &Shape,
        bytes: &[u8],
        field: &Field,
    ) -> Result<(SmolStr, Value), ProtobufError> {
        let (mut key, mut payload) = (SmolStr::default(), None);
        let mut reader = Reader::new(bytes);
        while let Some((number, found)) = reader.field()? {
            match (number, found) {
                (1, Payload::Bytes(bytes)) => key = SmolStr::from(String::from_utf8_lossy(bytes)),
                (2, found) => payload = Some(found),
                (1, found) => return Err(leaf::wrong(found, &field.name)),
                _ => {}
            }
        }
        let value = match (payload, element) {
            (Some(payload), element) => self.value(element, payload, field)?,
            (None, Shape::Bytes) => Value::from(""),
            (None, Shape::Wrapped(_)) => Value::Array(Vec::new()),
            (None, element) => self.zero(element)?,
        };
        Ok((key, value))
    }

    fn value(&mut self, shape: &Shape, payload: Payload<'_>, field: &Field) -> Result<Value, ProtobufError> {
        self.spend(1)?;
        let name = field.name.as_str();
        Ok(match (shape, payload) {
            (Shape::String, Payload::Bytes(bytes)) => leaf::string(bytes),
            (Shape::Int32, Payload::Varint(number)) => Value::from(leaf::int32(number)),
            (Shape::Int64, Payload::Varint(number)) => Value::Int(number.cast_signed()),
            (Shape::Bool, Payload::Varint(number)) => Value::Bool(number != 0),
            (Shape::Double, Payload::Fixed64(bits)) => double(f64::from_bits(bits), name)?,
            (Shape::Bytes, Payload::Bytes(bytes)) => Value::from(STANDARD.encode(bytes)),
            (Shape::Quantity, Payload::Bytes(bytes)) => leaf::quantity_decode(bytes, name)?,
            (Shape::IntOrString, Payload::Bytes(bytes)) => leaf::int_or_string_decode(bytes, name)?,
            (Shape::Time, Payload::Bytes(bytes)) => leaf::time_decode(bytes, Precision::Seconds, name)?,
            (Shape::MicroTime, Payload::Bytes(bytes)) => leaf::time_decode(bytes, Precision::Micros, name)?,
            (Shape::Raw, Payload::Bytes(bytes)) => {
                // JSON text makes at most one value of two bytes.
                self.spend(bytes.len() / 2)?;
                leaf::raw_decode(bytes, name)?
            }
            (Shape::Message(id), Payload::Bytes(bytes)) => {
                Value::Object(self.nested(|decoder| decoder.message(bytes, *id))?)
            }
            (Shape::Wrapped(element), Payload::Bytes(bytes)) => {
                let mut items = Vec::new();
                let mut reader = Reader::new(bytes);
                while let Some((number, payload)) = reader.field()? {
                    if number == 1 {
                        items.push(self.nested(|decoder| decoder.value(element, payload, field))?);
                    }
                }
                Value::Array(items)
            }
            (Shape::Union(union, id), Payload::Bytes(bytes)) => {
                self.nested(|decoder| schema_props::decode(decoder, *union, *id, bytes, name))?
            }
            _ => return Err(leaf::wrong(payload, name)),
        })
    }

    /// What a Go field that was never set is in JSON.
    fn zero(&mut self, shape: &Shape) -> Result<Value, ProtobufError> {
        self.spend(1)?;
        Ok(match shape {
            Shape::String => Value::from(""),
            Shape::Int32 | Shape::Int64 | Shape::IntOrString => Value::Int(0),
            Shape::Double => Value::Float(0.0),
            Shape::Bool => Value::Bool(false),
            Shape::Quantity => Value::from("0"),
            Shape::Message(id) => Value::Object(self.nested(|decoder| decoder.message(&[], *id))?),
            Shape::Union(union, id) => schema_props::decode(self, *union, *id, &[], "")?,
            Shape::Bytes
            | Shape::Time
            | Shape::MicroTime
            | Shape::Raw
            | Shape::Inlined(_)
            | Shape::List(_)
            | Shape::Map(_)
            | Shape::Wrapped(_) => Value::Null,
        })
    }

    fn spend(&mut self, work: usize) -> Result<(), ProtobufError> {
        self.work += work;
        if self.work > WORK_MAX { Err(ProtobufError::Work) } else { Ok(()) }
    }
}

/// Empty as Go's `omitempty` has it, for the shapes it can see as empty; times because of `omitzero`.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Int(number) => *number == 0,
        Value::Float(number) => *number == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(object) => object.is_empty(),
    }
}

fn double(number: f64, field: &str) -> Result<Value, ProtobufError> {
    if number.is_finite() {
        return Ok(Value::Float(number));
    }
    Err(ProtobufError::Value { field: field.into(), problem: format!("unsupported value: {number}") })
}
