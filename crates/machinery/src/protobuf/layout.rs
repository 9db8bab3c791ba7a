//! How the types of the table stand in protobuf: numbers, presence, shapes. Made once, beside the arena of schemas,
//! and shared by all places of a type; custom resources have none.

use std::collections::HashMap;

use polder_model::SmolStr;

/// All messages, pointing at each other.
#[derive(Debug, Default)]
pub struct Layout {
    pub(crate) messages: Vec<Message>,
    pub(crate) by_type: HashMap<SmolStr, MessageId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageId(pub(crate) u32);

/// A struct of the table, or a part of one that only protobuf keeps apart.
#[derive(Debug, Default)]
pub(crate) struct Message {
    pub(crate) name: SmolStr,
    /// Sorted by number.
    pub(crate) fields: Vec<Field>,
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) number: u32,
    /// The JSON name; empty for an inlined message.
    pub(crate) name: SmolStr,
    pub(crate) presence: Presence,
    pub(crate) shape: Shape,
}

/// What Go does with a field that was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// A pointer: neither protobuf nor JSON has it.
    Pointer,
    /// A pointer: protobuf does not have it, JSON has `null`.
    NullPointer,
    /// A value: protobuf has its zero, and so has JSON.
    Always,
    /// A value: protobuf has its zero, JSON leaves it out.
    OmitEmpty,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    String,
    Int32,
    Int64,
    Bool,
    Double,
    Bytes,
    Quantity,
    IntOrString,
    Time,
    MicroTime,
    /// JSON text in a message of its own.
    Raw,
    Message(MessageId),
    /// A message whose fields stand in the enclosing object.
    Inlined(MessageId),
    List(Box<Shape>),
    Map(Box<Shape>),
    /// A list in a message of its own: protobuf has no lists of lists and no maps of lists.
    Wrapped(Box<Shape>),
    /// A JSON schema or something else; the message is that of JSON schemas.
    Union(Union, MessageId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Union {
    Array,
    Bool,
    Strings,
}

impl Layout {
    /// The message of a type, by the type's definition name.
    pub fn message(&self, type_name: &str) -> Option<MessageRef<'_>> {
        self.by_type.get(type_name).map(|id| MessageRef { layout: self, id: *id })
    }

    pub(crate) fn get(&self, id: MessageId) -> &Message {
        &self.messages[id.0 as usize]
    }
}

impl Message {
    pub(crate) fn find(&self, number: u32) -> Option<usize> {
        // Most messages number their fields from one without holes.
        let guess = number.saturating_sub(1) as usize;
        if self.fields.get(guess).is_some_and(|field| field.number == number) {
            return Some(guess);
        }
        self.fields.binary_search_by_key(&number, |field| field.number).ok()
    }
}

/// A message with its layout.
#[derive(Clone, Copy, Debug)]
pub struct MessageRef<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) id: MessageId,
}

impl MessageRef<'_> {
    /// The definition name of its type.
    pub fn name(&self) -> &SmolStr {
        &self.layout.get(self.id).name
    }
}
