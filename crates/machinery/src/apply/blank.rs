//! What a kind looks like before anybody sets a field.
//!
//! A new object of a built-in kind is compared with this to see what its creator set. Go's structs are never absent:
//! members that Go writes even when nobody set them are there from the start, so nobody is their first owner.

use polder_model::{Object, SmolStr, Value};

use crate::protobuf::{Field, Layout, MessageId, Presence, Shape};

/// Structs in structs; deeper ones do not exist.
const DEPTH_MAX: usize = 16;

/// The members of a message that nobody filled in.
pub(crate) fn blank(layout: &Layout, message: MessageId) -> Value {
    Value::Object(members(layout, message, DEPTH_MAX).into_iter().collect())
}

fn members(layout: &Layout, message: MessageId, depth_left: usize) -> Vec<(SmolStr, Value)> {
    if depth_left == 0 {
        return Vec::new();
    }
    let field = |field: &Field| match (&field.shape, field.presence) {
        (Shape::Inlined(inner), _) => members(layout, *inner, depth_left - 1),
        (_, Presence::Pointer | Presence::OmitEmpty) => Vec::new(),
        (_, Presence::NullPointer) => vec![(field.name.clone(), Value::Null)],
        (shape, Presence::Always) => vec![(field.name.clone(), zero(layout, shape, depth_left - 1))],
    };
    layout.get(message).fields.iter().flat_map(field).collect()
}

fn zero(layout: &Layout, shape: &Shape, depth_left: usize) -> Value {
    match shape {
        Shape::String => Value::from(""),
        Shape::Int32 | Shape::Int64 | Shape::Double | Shape::IntOrString => Value::Int(0),
        Shape::Bool => Value::Bool(false),
        Shape::Quantity => Value::from("0"),
        Shape::Message(inner) => {
            Value::Object(members(layout, *inner, depth_left).into_iter().collect::<Object>())
        }
        _ => Value::Null,
    }
}
