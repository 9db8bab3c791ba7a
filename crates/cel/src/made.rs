//! Objects that expressions make, `Object{spec: Object.spec{replicas: 3}}`, and how they become JSON.
//!
//! Nothing is known of their members but their names: what they mean is up to whoever takes the object. The name an
//! object is made with must be the path of the members that lead to it, which is checked when it becomes JSON.
//!
//! A value can hold the same part many times, so it may be far larger written out than it is: what comes out is bounded
//! in bytes and in depth.

use std::collections::BTreeMap;

use polder_model::{Object, SmolStr, Value as Json};

use crate::compare;
use crate::library::opaque::OpaqueValue;
use crate::library::plain;
use crate::meter::{Fault, Meter};
use crate::types::Type;
use crate::value::{Key, Value};

/// The object itself; its parts are `Object.spec`, `Object.spec.template` and so on.
pub const OBJECT: &str = "Object";
/// One operation of a JSON patch.
pub const JSON_PATCH: &str = "JSONPatch";

/// Deeper documents cannot be read again.
const DEPTH_MAX: usize = 120;
/// More mismatches than this are not named.
const MISMATCHES_MAX: usize = 16;
/// Whole numbers beyond it do not survive where numbers are floats, so they become text.
const SAFE_INT_MAX: u64 = (1 << 53) - 1;

/// An object that an expression made.
#[derive(Clone, Debug)]
pub struct Made<'a> {
    name: &'a str,
    pub(crate) fields: BTreeMap<&'a str, Value<'a>>,
}

/// Why a value is no JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotJson {
    /// Names of objects that do not match where they stand.
    #[error("type mismatch: {0}")]
    Names(String),
    #[error("{0}")]
    Unsupported(String),
    #[error("the value is too large or too deep")]
    TooLarge,
}

/// Whether objects of this name can be made.
pub(crate) fn is_name(name: &str) -> bool {
    name == JSON_PATCH
        || name.strip_prefix(OBJECT).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The type of a member of an object that is made.
pub(crate) fn field_type(object: &str, field: &str) -> Option<Type> {
    match (object, field) {
        (JSON_PATCH, "op" | "path" | "from") => Some(Type::String),
        (JSON_PATCH, "value") => Some(Type::Dyn),
        (JSON_PATCH, _) => None,
        _ => Some(Type::Dyn),
    }
}

impl<'a> Made<'a> {
    pub(crate) fn new(name: &'a str) -> Made<'a> {
        Made { name, fields: BTreeMap::new() }
    }

    pub(crate) fn set(&mut self, field: &'a str, value: Value<'a>) -> Result<(), Fault> {
        if self.name == JSON_PATCH && field != "value" && !matches!(value, Value::String(_)) {
            let found = go_type(&value);
            let text = format!("unexpected type {found} for JSONPatchType '{field}' field");
            return Err(Fault::error(text));
        }
        self.fields.insert(field, value);
        Ok(())
    }

    pub(crate) fn unset(&mut self, field: &str) {
        self.fields.remove(field);
    }

    /// The name it was made with.
    pub fn name(&self) -> &'a str {
        self.name
    }

    pub fn get(&self, field: &str) -> Option<&Value<'a>> {
        self.fields.get(field)
    }

    pub(crate) fn equal(&self, other: &Made<'a>, meter: &mut Meter<'_>) -> Result<bool, Fault> {
        if self.name != other.name || self.fields.len() != other.fields.len() {
            return Ok(false);
        }
        for ((name, one), (other_name, two)) in self.fields.iter().zip(&other.fields) {
            if name != other_name || !compare::equal(one, two, meter)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl<'a> Value<'a> {
    /// The object, if an expression made it.
    pub fn made(&self) -> Option<&Made<'a>> {
        match self {
            Value::Opaque(opaque) => match &**opaque {
                OpaqueValue::Made(made) => Some(made),
                _ => None,
            },
            _ => None,
        }
    }

    /// The value as JSON of no more than so many bytes.
    pub fn to_json(&self, bytes_max: usize) -> Result<Json, NotJson> {
        let made = self.made();
        let mut writer = Writer {
            bytes_left: bytes_max,
            path: made.map(|made| made.name.to_owned()),
            mismatches: Vec::new(),
            of_object: made.is_some(),
        };
        let json = writer.value(self, 0)?;
        match writer.mismatches.is_empty() {
            true => Ok(json),
            false => Err(NotJson::Names(writer.mismatches.join("\n"))),
        }
    }
}

struct Writer {
    bytes_left: usize,
    /// The name an object must have here; none where nobody looks.
    path: Option<String>,
    mismatches: Vec<String>,
    /// It is an object that becomes JSON: large whole numbers stay what they are.
    of_object: bool,
}

impl Writer {
    fn take(&mut self, bytes: usize) -> Result<(), NotJson> {
        self.bytes_left = self.bytes_left.checked_sub(bytes.max(1)).ok_or(NotJson::TooLarge)?;
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<Json, NotJson> {
        self.take(text.len() + 2)?;
        Ok(Json::String(SmolStr::new(text)))
    }

    fn value(&mut self, value: &Value<'_>, depth: usize) -> Result<Json, NotJson> {
        if depth > DEPTH_MAX {
            return Err(NotJson::TooLarge);
        }
        self.take(1)?;
        Ok(match value {
            Value::Null => Json::Null,
            Value::Bool(flag) => Json::Bool(*flag),
            Value::Int(number) if self.of_object || number.unsigned_abs() <= SAFE_INT_MAX => {
                Json::Int(*number)
            }
            Value::Uint(number) if self.of_object || *number <= SAFE_INT_MAX => number_json(*number),
            Value::Int(number) => self.text(&number.to_string())?,
            Value::Uint(number) => self.text(&number.to_string())?,
            Value::Double(number) if !number.is_finite() => {
                return Err(NotJson::Unsupported(format!("unsupported value: {number}")));
            }
            Value::Double(number) => Json::Float(*number),
            Value::String(text) => self.text(text)?,
            Value::Bytes(bytes) => {
                use base64::Engine as _;
                self.take(bytes.len())?;
                self.text(&base64::engine::general_purpose::STANDARD.encode(bytes))?
            }
            Value::Timestamp(_) | Value::Duration(_) => self.text(&plain(value))?,
            Value::List(list) => {
                let mut items = Vec::new();
                for item in list.iter() {
                    let item = item.map_err(|fault| NotJson::Unsupported(fault.to_string()))?;
                    items.push(self.value(&item, depth + 1)?);
                }
                Json::Array(items)
            }
            Value::Map(map) => {
                let mut object = Object::new();
                for key in map.keys() {
                    let found = map.find(&key).map_err(|fault| NotJson::Unsupported(fault.to_string()))?;
                    let value = self.value(&found.unwrap_or(Value::Null), depth + 1)?;
                    let name = match Key::of(&key) {
                        Some(Key::String(name)) => SmolStr::new(&*name),
                        _ => {
                            let (shown, found) = (plain(&key), key.type_name());
                            let text = match self.of_object {
                                true => format!("map key {shown:?} is of type {found}, not string"),
                                false => format!("unsupported type conversion from '{found}' to string"),
                            };
                            return Err(NotJson::Unsupported(text));
                        }
                    };
                    self.take(name.len() + 3)?;
                    object.insert(name, value);
                }
                Json::Object(object)
            }
            Value::Optional(Some(inner)) => self.value(inner, depth + 1)?,
            Value::Optional(None) => return Err(NotJson::Unsupported("optional.none() dereference".into())),
            Value::Opaque(_) | Value::Type(_) => match value.made() {
                Some(made) => self.made(made, depth)?,
                None => {
                    let text = format!("unsupported type: {}", value.type_name());
                    return Err(NotJson::Unsupported(text));
                }
            },
        })
    }

    fn made(&mut self, made: &Made<'_>, depth: usize) -> Result<Json, NotJson> {
        if let Some(path) = &self.path
            && made.name != path
            && self.mismatches.len() < MISMATCHES_MAX
        {
            self.mismatches.push(format!(
                "unexpected type name {:?}, expected {path:?}, which matches field name path from root Object type",
                made.name,
            ));
        }
        let above = self.path.as_ref().map(String::len);
        let mut object = Object::new();
        for (name, value) in &made.fields {
            self.take(name.len() + 3)?;
            if let Some(path) = &mut self.path {
                path.push('.');
                path.push_str(name);
            }
            let json = self.value(value, depth + 1)?;
            if let (Some(path), Some(above)) = (&mut self.path, above) {
                path.truncate(above);
            }
            object.insert(SmolStr::new(name), json);
        }
        Ok(Json::Object(object))
    }
}

#[expect(clippy::cast_precision_loss, reason = "larger than any whole number JSON has here")]
fn number_json(number: u64) -> Json {
    i64::try_from(number).map_or(Json::Float(number as f64), Json::Int)
}

/// What Go's `%T` prints.
fn go_type(value: &Value<'_>) -> &'static str {
    match value {
        Value::Null => "structpb.NullValue",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int64",
        Value::Uint(_) => "uint64",
        Value::Double(_) => "float64",
        Value::String(_) => "string",
        Value::Bytes(_) => "[]uint8",
        Value::Duration(_) => "time.Duration",
        Value::Timestamp(_) => "time.Time",
        Value::List(_) => "[]ref.Val",
        Value::Map(_) => "map[ref.Val]ref.Val",
        other => other.type_name(),
    }
}
