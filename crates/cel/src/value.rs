//! Values while an expression runs: borrowed from the document where they can be, shared where they are made.
//!
//! A document is never copied or converted as a whole. A member becomes a value when it is reached, with the shape
//! that says how to read it. Cloning a value is cheap: at most a reference count.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use polder_model::Value as Json;

use crate::library::opaque::OpaqueValue;
use crate::list::List;
use crate::map::Map;
use crate::meter::{Fault, Outcome};
use crate::shape::{Shape, ShapeKind};
use crate::time::{self, Timestamp};

#[derive(Clone, Debug)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Arc<[u8]>),
    /// Nanoseconds.
    Duration(i64),
    Timestamp(Timestamp),
    List(List<'a>),
    Map(Map<'a>),
    Optional(Option<Arc<Value<'a>>>),
    /// A type, by its name.
    Type(&'static str),
    Opaque(Arc<OpaqueValue<'a>>),
}

/// A string: part of the document or the program, or made while running.
#[derive(Clone)]
pub enum Text<'a> {
    Borrowed(&'a str),
    Shared(Arc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Shared(text) => text,
        }
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// The key of a map entry. Whole numbers are equal whatever their type.
#[derive(Clone, Debug)]
pub enum Key<'a> {
    Bool(bool),
    Int(i64),
    Uint(u64),
    String(Text<'a>),
}

impl<'a> Key<'a> {
    /// What a value means as a key; `None` when it can be none.
    pub(crate) fn of(value: &Value<'a>) -> Option<Key<'a>> {
        Some(match value {
            Value::Bool(flag) => Key::Bool(*flag),
            Value::Int(number) => Key::Int(*number),
            Value::Uint(number) => Key::Uint(*number),
            Value::String(text) => Key::String(text.clone()),
            Value::Double(number) => Key::Int(whole(*number)?),
            _ => return None,
        })
    }

    pub(crate) fn value(&self) -> Value<'a> {
        match self {
            Key::Bool(flag) => Value::Bool(*flag),
            Key::Int(number) => Value::Int(*number),
            Key::Uint(number) => Value::Uint(*number),
            Key::String(text) => Value::String(text.clone()),
        }
    }

    fn number(&self) -> Option<i128> {
        match self {
            Key::Int(number) => Some((*number).into()),
            Key::Uint(number) => Some((*number).into()),
            _ => None,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Key::Bool(_) => 0,
            Key::Int(_) | Key::Uint(_) => 1,
            Key::String(_) => 2,
        }
    }
}

/// A float that is a whole number and fits.
#[expect(clippy::cast_possible_truncation, reason = "checked: in range and without a fraction")]
pub(crate) fn whole(number: f64) -> Option<i64> {
    let in_range = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number);
    (in_range && number.fract() == 0.0).then_some(number as i64)
}

impl Ord for Key<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Key::Bool(one), Key::Bool(two)) => one.cmp(two),
            (Key::String(one), Key::String(two)) => (**one).cmp(two),
            _ => (self.number().cmp(&other.number())).then(self.rank().cmp(&other.rank())),
        }
    }
}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key<'_> {}

impl<'a> Value<'a> {
    pub fn text(text: impl Into<Arc<str>>) -> Value<'a> {
        Value::String(Text::Shared(text.into()))
    }

    pub fn str(text: &'a str) -> Value<'a> {
        Value::String(Text::Borrowed(text))
    }

    pub fn list(items: Vec<Value<'a>>) -> Value<'a> {
        Value::List(List::Owned(Arc::new(items), None))
    }

    pub fn map(entries: BTreeMap<Key<'a>, Value<'a>>) -> Value<'a> {
        Value::Map(Map::Owned(Arc::new(entries)))
    }

    pub fn some(value: Value<'a>) -> Value<'a> {
        Value::Optional(Some(Arc::new(value)))
    }

    pub(crate) fn opaque(value: OpaqueValue<'a>) -> Value<'a> {
        Value::Opaque(Arc::new(value))
    }

    /// A document without a schema: its own types count.
    pub fn json(json: &'a Json) -> Value<'a> {
        match json {
            Json::Null => Value::Null,
            Json::Bool(flag) => Value::Bool(*flag),
            Json::Int(number) => Value::Int(*number),
            Json::Float(number) => Value::Double(*number),
            Json::String(text) => Value::str(text),
            Json::Array(items) => Value::List(List::Json(items, None)),
            Json::Object(object) => Value::Map(Map::Json(object, None)),
        }
    }

    /// A document read as its shape says.
    pub fn shaped(json: &'a Json, shape: &'a Shape) -> Outcome<'a> {
        if json.is_null() {
            return match shape.nullable || matches!(shape.kind, ShapeKind::Dyn) {
                true => Ok(Value::Null),
                false => Err(Fault::error("invalid data, got null for schema with nullable=false")),
            };
        }
        let expected =
            |what: &str| Fault::error(format!("invalid data, expected {what}, got {}", go_type(json)));
        match (&shape.kind, json) {
            (ShapeKind::Dyn | ShapeKind::Typed(_) | ShapeKind::Opaque(_), _) => Ok(Value::json(json)),
            (ShapeKind::IntOrString, Json::Int(_) | Json::String(_)) => Ok(Value::json(json)),
            (ShapeKind::IntOrString, _) => Err(Fault::error(
                "invalid data, expected XIntOrString value to be either a string or integer",
            )),
            (ShapeKind::Bool, Json::Bool(flag)) => Ok(Value::Bool(*flag)),
            (ShapeKind::Bool, _) => Err(expected("bool")),
            (ShapeKind::Int, Json::Int(number)) => Ok(Value::Int(*number)),
            (ShapeKind::Int, _) => Err(expected("int")),
            (ShapeKind::Double, _) => json.as_f64().map(Value::Double).ok_or_else(|| expected("float")),
            (ShapeKind::String, Json::String(text)) => Ok(Value::str(text)),
            (ShapeKind::Bytes, Json::String(text)) => {
                use base64::Engine as _;
                let decoded = base64::engine::general_purpose::STANDARD.decode(text.as_str());
                let broken = |error| Fault::error(format!("Invalid byte formatted string {text}: {error}"));
                decoded.map(|bytes| Value::Bytes(bytes.into())).map_err(broken)
            }
            (ShapeKind::Duration, Json::String(text)) => {
                time::parse_loose_duration(text).map(Value::Duration).ok_or_else(|| {
                    Fault::error(format!("Invalid duration {text}: unable to parse {text} as duration"))
                })
            }
            (ShapeKind::Date, Json::String(text)) => time::parse_date(text)
                .map(Value::Timestamp)
                .ok_or_else(|| Fault::error(format!("Invalid date formatted string {text}"))),
            (ShapeKind::Timestamp, Json::String(text)) => time::parse_loose_timestamp(text)
                .map(Value::Timestamp)
                .ok_or_else(|| Fault::error(format!("Invalid date-time formatted string {text}"))),
            (
                ShapeKind::String
                | ShapeKind::Bytes
                | ShapeKind::Duration
                | ShapeKind::Date
                | ShapeKind::Timestamp,
                _,
            ) => Err(expected("string")),
            (ShapeKind::List { .. }, Json::Array(items)) => Ok(Value::List(List::Json(items, Some(shape)))),
            (ShapeKind::List { .. }, _) => {
                Err(Fault::error("invalid data, expected an array for the provided schema with type=array"))
            }
            (ShapeKind::Map { .. } | ShapeKind::Object { .. }, Json::Object(object)) => {
                Ok(Value::Map(Map::Json(object, Some(shape))))
            }
            (ShapeKind::Map { .. } | ShapeKind::Object { .. }, _) => {
                Err(Fault::error("invalid data, expected a map for the provided schema with type=object"))
            }
        }
    }

    pub(crate) fn read(json: &'a Json, shape: Option<&'a Shape>) -> Outcome<'a> {
        match shape {
            Some(shape) => Value::shaped(json, shape),
            None => Ok(Value::json(json)),
        }
    }

    /// The name of the type, as `type(x)` gives it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "null_type",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Uint(_) => "uint",
            Value::Double(_) => "double",
            Value::String(_) => "string",
            Value::Bytes(_) => "bytes",
            Value::Duration(_) => "google.protobuf.Duration",
            Value::Timestamp(_) => "google.protobuf.Timestamp",
            Value::List(_) => "list",
            Value::Map(_) => "map",
            Value::Optional(_) => "optional_type",
            Value::Type(_) => "type",
            Value::Opaque(opaque) => opaque.opaque().name(),
        }
    }

    /// What `size` counts, and 1 for what has no size: the measure of most costs.
    pub(crate) fn size(&self) -> u64 {
        let size = match self {
            Value::String(text) => text.chars().count(),
            Value::Bytes(bytes) => bytes.len(),
            Value::List(list) => list.len(),
            Value::Map(map) => map.len(),
            Value::Opaque(opaque) => opaque.size(),
            Value::Optional(Some(inner)) => return inner.size(),
            _ => 1,
        };
        size as u64
    }

    /// Whether this is what a value of its type is when nobody set it.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Value::Null => true,
            Value::Bool(flag) => !flag,
            Value::Int(number) => *number == 0,
            Value::Uint(number) => *number == 0,
            Value::Double(number) => *number == 0.0,
            Value::String(text) => text.is_empty(),
            Value::Bytes(bytes) => bytes.is_empty(),
            Value::Duration(nanos) => *nanos == 0,
            Value::Timestamp(timestamp) => timestamp.is_zero(),
            Value::List(list) => list.is_empty(),
            Value::Map(map) => map.is_empty(),
            Value::Optional(inner) => inner.is_none(),
            Value::Type(_) | Value::Opaque(_) => false,
        }
    }
}

/// What Go's `%T` prints for a decoded value.
fn go_type(json: &Json) -> &'static str {
    match json {
        Json::Null => "<nil>",
        Json::Bool(_) => "bool",
        Json::Int(_) => "int64",
        Json::Float(_) => "float64",
        Json::String(_) => "string",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    }
}
