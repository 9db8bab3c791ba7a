//! JSON to bytes.
//!
//! Objects that reach this have the types their schema says; where one does not, its zero is written. Members the
//! message does not know are left out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polder_model::Value;

use super::leaf::{self, Precision};
use super::schema_props;
use super::wire::{write_bytes, write_double, write_int, write_nested};
use super::{Field, Layout, MessageId, MessageRef, Presence, Shape};

/// Appends the message of an object.
pub fn encode(value: &Value, message: MessageRef<'_>, out: &mut Vec<u8>) {
    Encoder { layout: message.layout }.message(message.id, value, out);
}

pub(super) struct Encoder<'l> {
    layout: &'l Layout,
}

static NULL: Value = Value::Null;

impl Encoder<'_> {
    fn message(&self, id: MessageId, value: &Value, out: &mut Vec<u8>) {
        for field in &self.layout.get(id).fields {
            if let Shape::Inlined(inner) = field.shape {
                // Its members are the enclosing object's.
                self.nested(field.number, inner, value, out);
                continue;
            }
            let member = value.get(&field.name).unwrap_or(&NULL);
            let pointer = matches!(field.presence, Presence::Pointer | Presence::NullPointer);
            if !member.is_null() || (!pointer && has_zero(&field.shape)) {
                self.field(field, member, out);
            }
        }
    }

    pub(super) fn nested(&self, number: u32, id: MessageId, value: &Value, out: &mut Vec<u8>) {
        write_nested(number, out, |out| self.message(id, value, out));
    }

    fn field(&self, field: &Field, value: &Value, out: &mut Vec<u8>) {
        match (&field.shape, value) {
            (Shape::List(element), Value::Array(items)) => {
                items.iter().for_each(|item| self.value(field.number, element, item, out));
            }
            (Shape::Map(element), Value::Object(members)) => {
                for (key, member) in members.iter() {
                    write_nested(field.number, out, |out| {
                        write_bytes(1, key.as_bytes(), out);
                        if !(member.is_null() && **element == Shape::Bytes) {
                            self.value(2, element, member, out);
                        }
                    });
                }
            }
            (Shape::List(_) | Shape::Map(_), _) => {}
            (shape, value) => self.value(field.number, shape, value, out),
        }
    }

    fn value(&self, number: u32, shape: &Shape, value: &Value, out: &mut Vec<u8>) {
        match shape {
            Shape::String => write_bytes(number, value.as_str().unwrap_or_default().as_bytes(), out),
            Shape::Int32 | Shape::Int64 => write_int(number, value.as_i64().unwrap_or_default(), out),
            Shape::Bool => write_int(number, i64::from(value.as_bool().unwrap_or_default()), out),
            Shape::Double => write_double(number, value.as_f64().unwrap_or_default(), out),
            Shape::Bytes => {
                let bytes = STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default();
                write_bytes(number, &bytes, out);
            }
            Shape::Quantity => write_nested(number, out, |out| leaf::quantity_encode(value, out)),
            Shape::IntOrString => write_nested(number, out, |out| leaf::int_or_string_encode(value, out)),
            Shape::Time => {
                write_nested(number, out, |out| leaf::time_encode(value, Precision::Seconds, out));
            }
            Shape::MicroTime => {
                write_nested(number, out, |out| leaf::time_encode(value, Precision::Micros, out));
            }
            Shape::Raw => write_nested(number, out, |out| leaf::raw_encode(value, out)),
            Shape::Message(id) | Shape::Inlined(id) => self.nested(number, *id, value, out),
            Shape::Wrapped(element) => write_nested(number, out, |out| {
                value.as_array().into_iter().flatten().for_each(|item| self.value(1, element, item, out));
            }),
            Shape::Union(union, id) => {
                write_nested(number, out, |out| schema_props::encode(self, *union, *id, value, out));
            }
            // Only fields hold lists and maps; inside of others they are wrapped.
            Shape::List(_) | Shape::Map(_) => {}
        }
    }
}

/// Whether Go writes something for a value that was not set.
fn has_zero(shape: &Shape) -> bool {
    !matches!(shape, Shape::Bytes | Shape::List(_) | Shape::Map(_) | Shape::Wrapped(_))
}
