//! The OpenAPI v2 document in protobuf, as older kubectl asks for it:
//! `application/com.github.proto-openapi.spec.v2@v1.0+protobuf`.
//!
//! The messages are those of gnostic's `OpenAPIv2.proto`, given here as tables from JSON member to field number;
//! what a table does not name is left out, as gnostic does. Vendor extensions, defaults and enum values travel as
//! YAML text, and JSON is YAML. The writer works backwards, from the last byte to the first, so that a length is
//! known when it is written and the cost is linear however deep the document nests.

use polder_model::{Object, Value};

/// Encodes a Swagger 2.0 document.
pub fn encode(document: &Value) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.members(document, &DOCUMENT);
    writer.reversed.reverse();
    writer.reversed
}

/// The members of a message.
struct Message {
    fields: &'static [(&'static str, u32, Encoding)],
    /// Members that are not in the table: `x-` ones are extensions and go to this field, ...
    extensions: u32,
    /// ... and all others, where the message is a map with extensions, to this one.
    others: Option<(u32, &'static Encoding)>,
}

enum Encoding {
    Text,
    Texts,
    Flag,
    Integer,
    Double,
    /// YAML text.
    Any,
    Anys,
    One(&'static Message),
    List(&'static Message),
    /// A message around a list of entries with name and value.
    Map(&'static Encoding),
    /// A message that holds the value in the given field.
    Inside(u32, &'static Encoding),
    /// A list of such messages.
    InsideEach(u32, &'static Encoding),
    /// A schema or a boolean.
    Additional,
    /// The sort of parameter decides on the message.
    Parameters,
}

static DOCUMENT: Message = Message {
    fields: &[
        ("swagger", 1, Encoding::Text),
        ("info", 2, Encoding::One(&INFO)),
        ("host", 3, Encoding::Text),
        ("basePath", 4, Encoding::Text),
        ("schemes", 5, Encoding::Texts),
        ("consumes", 6, Encoding::Texts),
        ("produces", 7, Encoding::Texts),
        ("paths", 8, Encoding::One(&PATHS)),
        ("definitions", 9, Encoding::Map(&Encoding::One(&SCHEMA))),
        ("security", 12, Encoding::List(&SECURITY_REQUIREMENT)),
        ("securityDefinitions", 13, Encoding::Map(&Encoding::Inside(2, &Encoding::One(&API_KEY_SECURITY)))),
    ],
    extensions: 16,
    others: None,
};

static INFO: Message = Message {
    fields: &[
        ("title", 1, Encoding::Text),
        ("version", 2, Encoding::Text),
        ("description", 3, Encoding::Text),
    ],
    extensions: 7,
    others: None,
};

static PATHS: Message = Message { fields: &[], extensions: 1, others: Some((2, &Encoding::One(&PATH_ITEM))) };

static PATH_ITEM: Message = Message {
    fields: &[
        ("get", 2, Encoding::One(&OPERATION)),
        ("put", 3, Encoding::One(&OPERATION)),
        ("post", 4, Encoding::One(&OPERATION)),
        ("delete", 5, Encoding::One(&OPERATION)),
        ("options", 6, Encoding::One(&OPERATION)),
        ("head", 7, Encoding::One(&OPERATION)),
        ("patch", 8, Encoding::One(&OPERATION)),
        ("parameters", 9, Encoding::Parameters),
    ],
    extensions: 10,
    others: None,
};

static OPERATION: Message = Message {
    fields: &[
        ("tags", 1, Encoding::Texts),
        ("summary", 2, Encoding::Text),
        ("description", 3, Encoding::Text),
        ("operationId", 5, Encoding::Text),
        ("produces", 6, Encoding::Texts),
        ("consumes", 7, Encoding::Texts),
        ("parameters", 8, Encoding::Parameters),
        ("responses", 9, Encoding::One(&RESPONSES)),
        ("schemes", 10, Encoding::Texts),
        ("deprecated", 11, Encoding::Flag),
    ],
    extensions: 13,
    others: None,
};

static RESPONSES: Message = Message {
    fields: &[],
    extensions: 2,
    others: Some((1, &Encoding::Inside(1, &Encoding::One(&RESPONSE)))),
};

static RESPONSE: Message = Message {
    fields: &[
        ("description", 1, Encoding::Text),
        ("schema", 2, Encoding::Inside(1, &Encoding::One(&SCHEMA))),
    ],
    extensions: 5,
    others: None,
};

static BODY_PARAMETER: Message = Message {
    fields: &[
        ("description", 1, Encoding::Text),
        ("name", 2, Encoding::Text),
        ("in", 3, Encoding::Text),
        ("required", 4, Encoding::Flag),
        ("schema", 5, Encoding::One(&SCHEMA)),
    ],
    extensions: 6,
    others: None,
};

static QUERY_PARAMETER: Message = Message {
    fields: &[
        ("required", 1, Encoding::Flag),
        ("in", 2, Encoding::Text),
        ("description", 3, Encoding::Text),
        ("name", 4, Encoding::Text),
        ("type", 6, Encoding::Text),
        ("format", 7, Encoding::Text),
        ("uniqueItems", 20, Encoding::Flag),
    ],
    extensions: 23,
    others: None,
};

static PATH_PARAMETER: Message = Message {
    fields: &[
        ("required", 1, Encoding::Flag),
        ("in", 2, Encoding::Text),
        ("description", 3, Encoding::Text),
        ("name", 4, Encoding::Text),
        ("type", 5, Encoding::Text),
        ("format", 6, Encoding::Text),
        ("uniqueItems", 19, Encoding::Flag),
    ],
    extensions: 22,
    others: None,
};

static SCHEMA: Message = Message {
    fields: &[
        ("$ref", 1, Encoding::Text),
        ("format", 2, Encoding::Text),
        ("title", 3, Encoding::Text),
        ("description", 4, Encoding::Text),
        ("default", 5, Encoding::Any),
        ("multipleOf", 6, Encoding::Double),
        ("maximum", 7, Encoding::Double),
        ("exclusiveMaximum", 8, Encoding::Flag),
        ("minimum", 9, Encoding::Double),
        ("exclusiveMinimum", 10, Encoding::Flag),
        ("maxLength", 11, Encoding::Integer),
        ("minLength", 12, Encoding::Integer),
        ("pattern", 13, Encoding::Text),
        ("maxItems", 14, Encoding::Integer),
        ("minItems", 15, Encoding::Integer),
        ("uniqueItems", 16, Encoding::Flag),
        ("maxProperties", 17, Encoding::Integer),
        ("minProperties", 18, Encoding::Integer),
        ("required", 19, Encoding::Texts),
        ("enum", 20, Encoding::Anys),
        ("additionalProperties", 21, Encoding::Additional),
        ("type", 22, Encoding::Inside(1, &Encoding::Text)),
        ("items", 23, Encoding::Inside(1, &Encoding::One(&SCHEMA))),
        ("allOf", 24, Encoding::List(&SCHEMA)),
        ("properties", 25, Encoding::Map(&Encoding::One(&SCHEMA))),
        ("readOnly", 27, Encoding::Flag),
        ("example", 30, Encoding::Any),
    ],
    extensions: 31,
    others: None,
};

/// Scheme names with scopes: `{"BearerToken": []}`. The scopes are a message of texts.
static SECURITY_REQUIREMENT: Message =
    Message { fields: &[], extensions: 0, others: Some((1, &Encoding::InsideEach(1, &Encoding::Text))) };

static API_KEY_SECURITY: Message = Message {
    fields: &[
        ("type", 1, Encoding::Text),
        ("name", 2, Encoding::Text),
        ("in", 3, Encoding::Text),
        ("description", 4, Encoding::Text),
    ],
    extensions: 5,
    others: None,
};

/// Protobuf bytes, last one first.
#[derive(Default)]
struct Writer {
    reversed: Vec<u8>,
}

impl Writer {
    fn varint(&mut self, mut value: u64) {
        let start = self.reversed.len();
        loop {
            let low = value.to_le_bytes()[0] & 0x7f;
            value >>= 7;
            if value == 0 {
                self.reversed.push(low);
                break;
            }
            self.reversed.push(low | 0x80);
        }
        self.reversed[start..].reverse();
    }

    fn tag(&mut self, number: u32, wire_type: u64) {
        self.varint(u64::from(number) << 3 | wire_type);
    }

    /// Closes what was written since `start` as a field with a length.
    fn length_delimited(&mut self, number: u32, start: usize) {
        self.varint((self.reversed.len() - start) as u64);
        self.tag(number, 2);
    }

    fn message(&mut self, number: u32, content: impl FnOnce(&mut Writer)) {
        let start = self.reversed.len();
        content(self);
        self.length_delimited(number, start);
    }

    fn text(&mut self, number: u32, text: &[u8]) {
        let start = self.reversed.len();
        self.reversed.extend(text.iter().rev());
        self.length_delimited(number, start);
    }

    fn any(&mut self, number: u32, value: &Value) {
        self.message(number, |writer| writer.text(2, &value.to_vec()));
    }

    fn members(&mut self, value: &Value, message: &Message) {
        let Some(object) = value.as_object() else { return };
        for (key, value) in object.iter().rev() {
            if let Some((_, number, encoding)) = message.fields.iter().find(|(name, ..)| name == key) {
                self.field(*number, encoding, value);
            } else if key.starts_with("x-") && message.extensions != 0 {
                self.named(message.extensions, key, |writer| writer.any(2, value));
            } else if let Some((number, encoding)) = message.others {
                self.named(number, key, |writer| writer.field(2, encoding, value));
            }
        }
    }

    /// An entry of a map: name and value.
    fn named(&mut self, number: u32, name: &str, value: impl FnOnce(&mut Writer)) {
        self.message(number, |writer| {
            value(writer);
            writer.text(1, name.as_bytes());
        });
    }

    fn field(&mut self, number: u32, encoding: &Encoding, value: &Value) {
        match (encoding, value) {
            (Encoding::Text, Value::String(text)) => self.text(number, text.as_bytes()),
            (Encoding::Flag, Value::Bool(true)) => {
                self.varint(1);
                self.tag(number, 0);
            }
            (Encoding::Integer, Value::Int(integer)) => {
                self.varint(u64::from_ne_bytes(integer.to_ne_bytes()));
                self.tag(number, 0);
            }
            (Encoding::Double, value) => {
                if let Some(double) = value.as_f64() {
                    self.reversed.extend(double.to_le_bytes().iter().rev());
                    self.tag(number, 1);
                }
            }
            (Encoding::Any, value) => self.any(number, value),
            (Encoding::One(message), Value::Object(_)) => {
                self.message(number, |writer| writer.members(value, message));
            }
            (Encoding::Map(encoding), Value::Object(object)) => self.map(number, encoding, object),
            (Encoding::Inside(inner, encoding), value) => {
                self.message(number, |writer| writer.field(*inner, encoding, value));
            }
            (Encoding::InsideEach(inner, encoding), Value::Array(items)) => self.message(number, |writer| {
                items.iter().rev().for_each(|item| writer.field(*inner, encoding, item));
            }),
            (Encoding::Additional, Value::Bool(flag)) => self.message(number, |writer| {
                writer.varint(u64::from(*flag));
                writer.tag(2, 0);
            }),
            (Encoding::Additional, Value::Object(_)) => self.message(number, |writer| {
                writer.message(1, |writer| writer.members(value, &SCHEMA));
            }),
            (_, Value::Array(items)) => {
                items.iter().rev().for_each(|item| self.element(number, encoding, item));
            }
            _ => {}
        }
    }

    /// An element of a repeated field.
    fn element(&mut self, number: u32, encoding: &Encoding, item: &Value) {
        match encoding {
            Encoding::Texts => self.field(number, &Encoding::Text, item),
            Encoding::Anys => self.any(number, item),
            Encoding::List(message) => self.message(number, |writer| writer.members(item, message)),
            // ParametersItem -> Parameter -> body, or non-body -> query or path.
            Encoding::Parameters => self.message(number, |writer| {
                writer.message(1, |writer| match item.str_at(&["in"]) {
                    Some("body") => writer.message(1, |writer| writer.members(item, &BODY_PARAMETER)),
                    Some("path") => writer.message(2, |writer| {
                        writer.message(4, |writer| writer.members(item, &PATH_PARAMETER));
                    }),
                    _ => writer.message(2, |writer| {
                        writer.message(3, |writer| writer.members(item, &QUERY_PARAMETER));
                    }),
                });
            }),
            _ => {}
        }
    }

    fn map(&mut self, number: u32, encoding: &Encoding, object: &Object) {
        self.message(number, |writer| {
            for (key, value) in object.iter().rev() {
                writer.named(1, key, |writer| writer.field(2, encoding, value));
            }
        });
    }
}

#[cfg(test)]
mod tests;
