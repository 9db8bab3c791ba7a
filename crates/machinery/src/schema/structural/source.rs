//! Reading the JSON of a schema: missing members and members of a wrong type read as absent.

use polder_model::{Object, Value};

/// One schema object as written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a>(&'a Object);

/// What `additionalProperties` says.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Additional<'a> {
    Allowed,
    Refused,
    Schema(Source<'a>),
}

impl<'a> Source<'a> {
    pub(crate) fn new(value: &'a Value) -> Option<Source<'a>> {
        value.as_object().map(Source)
    }

    pub(crate) fn get(self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    /// Whether the member says anything: `false`, `""` and empty collections do not.
    pub(crate) fn has(self, key: &str) -> bool {
        match self.get(key) {
            None | Some(Value::Bool(false)) => false,
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Array(items)) => !items.is_empty(),
            Some(Value::Object(object)) => {
                !object.is_empty() || matches!(key, "not" | "items" | "additionalProperties" | "default")
            }
            Some(_) => true,
        }
    }

    pub(crate) fn keys(self) -> impl Iterator<Item = &'a str> {
        self.0.keys().map(|key| key.as_str())
    }

    pub(crate) fn text(self, key: &str) -> &'a str {
        self.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn flag(self, key: &str) -> bool {
        self.get(key).and_then(Value::as_bool).unwrap_or_default()
    }

    pub(crate) fn list(self, key: &str) -> &'a [Value] {
        self.get(key).and_then(Value::as_array).unwrap_or_default()
    }

    pub(crate) fn texts(self, key: &str) -> impl Iterator<Item = &'a str> {
        self.list(key).iter().filter_map(Value::as_str)
    }

    pub(crate) fn float(self, key: &str) -> Option<f64> {
        self.get(key)?.as_f64()
    }

    pub(crate) fn count(self, key: &str) -> Option<u64> {
        let number = self.float(key)?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a cast saturates, and a negative bound means zero"
        )]
        Some(number as u64)
    }

    /// A schema in a member.
    pub(crate) fn schema(self, key: &str) -> Option<Source<'a>> {
        Source::new(self.get(key)?)
    }

    /// Schemas in a list.
    pub(crate) fn schemas(self, key: &str) -> impl Iterator<Item = Source<'a>> {
        self.list(key).iter().filter_map(Source::new)
    }

    pub(crate) fn properties(self) -> impl Iterator<Item = (&'a str, Source<'a>)> {
        let members = self.get("properties").and_then(Value::as_object).map(Object::iter);
        members.into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), Source::new(value)?)))
    }

    pub(crate) fn has_properties(self) -> bool {
        self.has("properties")
    }

    pub(crate) fn property(self, name: &str) -> Option<Source<'a>> {
        Source::new(self.get("properties")?.get(name)?)
    }

    pub(crate) fn additional(self) -> Option<Additional<'a>> {
        Some(match self.get("additionalProperties")? {
            Value::Bool(false) => Additional::Refused,
            Value::Object(object) => Additional::Schema(Source(object)),
            _ => Additional::Allowed,
        })
    }

    pub(crate) fn preserves_unknown(self) -> bool {
        self.flag("x-kubernetes-preserve-unknown-fields")
    }

    pub(crate) fn is_embedded(self) -> bool {
        self.flag("x-kubernetes-embedded-resource")
    }

    pub(crate) fn is_int_or_string(self) -> bool {
        self.flag("x-kubernetes-int-or-string")
    }
}
