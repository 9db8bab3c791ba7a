//! JSON values as this system holds them while it looks at or changes an object.
//!
//! Objects are vectors sorted by key: compact, mutable, binary-searched, and written in one canonical order, so
//! that equal objects have equal bytes (ADR 0003 weighs this against a tape). Numbers follow Go's decoder:
//! 64-bit integers stay integers, everything else is a float, and a whole float prints without a fraction.

mod own;

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use smol_str::SmolStr;

/// One JSON value.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    #[default]
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    String(SmolStr),
    Array(Vec<Value>),
    Object(Object),
}

/// A JSON object: entries sorted by key, no key twice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Object {
    entries: Vec<(SmolStr, Value)>,
}

/// Bytes that are not one JSON document.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

/// A parsed document, and the paths of the keys that stood twice (the last one wins, as in Go).
#[derive(Debug)]
pub struct Parsed {
    pub value: Value,
    pub duplicates: Vec<String>,
}

/// More repeated keys than this are not named: a hostile document gets a bounded report.
const DUPLICATES_MAX: usize = 32;
/// Of longer keys the report shows the beginning, or 32 reports could each repeat a key as large as the document.
const DUPLICATE_KEY_SHOWN_MAX: usize = 256;

impl Value {
    /// Parses one JSON document; nesting is limited to 128 levels.
    pub fn parse(bytes: &[u8]) -> Result<Value, ParseError> {
        parse(bytes).map(|parsed| parsed.value)
    }

    /// Parses what [`Value::write`] wrote, which takes half the time; anything else takes a little longer.
    pub fn parse_own(bytes: &[u8]) -> Result<Value, ParseError> {
        own::read(bytes, &[]).map_or_else(|| Value::parse(bytes), Ok)
    }

    /// The same without the member at a path, which is skipped.
    pub fn parse_own_except(bytes: &[u8], path: &[&str]) -> Result<Value, ParseError> {
        own::read(bytes, path).map_or_else(
            || {
                let mut value = Value::parse(bytes)?;
                value.remove_at(path);
                Ok(value)
            },
            Ok,
        )
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Value::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// The number as a float, whichever way it was written.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "JSON numbers compare as floats, as in Go")]
            Value::Int(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            _ => None,
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    pub fn as_array_mut(&mut self) -> Option<&mut Vec<Value>> {
        match self {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }

    pub fn as_object_mut(&mut self) -> Option<&mut Object> {
        match self {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// The value's JSON type, as error messages name it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Int(_) => "integer",
            Value::Float(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        }
    }

    /// A member of an object; `None` when this is no object or has no such member.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.as_object()?.get(key)
    }

    /// Walks object members: `value.at(&["metadata", "name"])`.
    pub fn at(&self, path: &[&str]) -> Option<&Value> {
        path.iter().try_fold(self, |value, key| value.get(key))
    }

    pub fn str_at(&self, path: &[&str]) -> Option<&str> {
        self.at(path)?.as_str()
    }

    pub fn i64_at(&self, path: &[&str]) -> Option<i64> {
        self.at(path)?.as_i64()
    }

    pub fn array_at(&self, path: &[&str]) -> &[Value] {
        self.at(path).and_then(Value::as_array).unwrap_or_default()
    }

    pub fn at_mut(&mut self, path: &[&str]) -> Option<&mut Value> {
        path.iter().try_fold(self, |value, key| value.as_object_mut()?.get_mut(key))
    }

    /// Sets a member deep inside, making the objects on the way; what stands in the way and is no object is replaced.
    pub fn set_at(&mut self, path: &[&str], new: impl Into<Value>) {
        let mut here = self;
        for key in path {
            if !matches!(here, Value::Object(_)) {
                *here = Value::Object(Object::new());
            }
            let Value::Object(object) = here else { unreachable!("made an object above") };
            here = object.get_or_insert(key);
        }
        *here = new.into();
    }

    /// What the value takes up beside itself: what its lists, members and long texts hold in memory.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Value::String(text) => text_heap_bytes(text),
            Value::Array(items) => {
                items.capacity() * size_of::<Value>() + items.iter().map(Value::heap_bytes).sum::<usize>()
            }
            Value::Object(object) => {
                let members = object.entries.iter();
                object.entries.capacity() * size_of::<(SmolStr, Value)>()
                    + members.map(|(key, value)| text_heap_bytes(key) + value.heap_bytes()).sum::<usize>()
            }
            Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) => 0,
        }
    }

    /// Takes a member out from deep inside.
    pub fn remove_at(&mut self, path: &[&str]) -> Option<Value> {
        let (last, parents) = path.split_last()?;
        self.at_mut(parents)?.as_object_mut()?.remove(last)
    }

    /// Appends the value as compact JSON.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Value::Null => out.extend_from_slice(b"null"),
            Value::Bool(true) => out.extend_from_slice(b"true"),
            Value::Bool(false) => out.extend_from_slice(b"false"),
            Value::Int(number) => out.extend_from_slice(itoa::Buffer::new().format(*number).as_bytes()),
            Value::Float(number) => write_float(*number, out),
            Value::String(text) => write_string(text, out),
            Value::Array(items) => {
                out.push(b'[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    item.write(out);
                }
                out.push(b']');
            }
            Value::Object(object) => object.write(out),
        }
    }

    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        self.write(&mut out);
        out
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.to_vec()))
    }
}

impl Object {
    pub const fn new() -> Object {
        Object { entries: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        self.position(key).ok().map(|index| &self.entries[index].1)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.position(key).ok().map(|index| &mut self.entries[index].1)
    }

    pub fn contains_key(&self, key: &str) -> bool {
        self.position(key).is_ok()
    }

    pub fn str(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_str()
    }

    /// Sets a member and returns what stood there.
    pub fn insert(&mut self, key: impl Into<SmolStr>, value: impl Into<Value>) -> Option<Value> {
        let key = key.into();
        match self.position(&key) {
            Ok(index) => Some(std::mem::replace(&mut self.entries[index].1, value.into())),
            Err(index) => {
                self.entries.insert(index, (key, value.into()));
                None
            }
        }
    }

    /// The member, made as `null` if it was missing.
    pub fn get_or_insert(&mut self, key: &str) -> &mut Value {
        let index = match self.position(key) {
            Ok(index) => index,
            Err(index) => {
                self.entries.insert(index, (SmolStr::new(key), Value::Null));
                index
            }
        };
        &mut self.entries[index].1
    }

    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.position(key).ok().map(|index| self.entries.remove(index).1)
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&SmolStr, &Value)> + DoubleEndedIterator {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = (&SmolStr, &mut Value)> {
        self.entries.iter_mut().map(|(key, value)| (&*key, value))
    }

    pub fn keys(&self) -> impl ExactSizeIterator<Item = &SmolStr> {
        self.entries.iter().map(|(key, _)| key)
    }

    pub fn values(&self) -> impl ExactSizeIterator<Item = &Value> {
        self.entries.iter().map(|(_, value)| value)
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&SmolStr, &mut Value) -> bool) {
        self.entries.retain_mut(|(key, value)| keep(key, value));
    }

    /// Changes many members in one pass over both sorted lists, where an insertion for each would be quadratic.
    ///
    /// `changes` are sorted by key, none twice. `join` sees each of them with the member that stands there and says
    /// what stands there afterwards; members without a change stay.
    pub fn merge_with<T, E>(
        self,
        changes: Vec<(SmolStr, T)>,
        mut join: impl FnMut(&SmolStr, Option<Value>, T) -> Result<Option<Value>, E>,
    ) -> Result<Object, E> {
        debug_assert!(changes.is_sorted_by(|(left, _), (right, _)| left < right));
        let mut entries = Vec::with_capacity(self.entries.len() + changes.len());
        let mut own = self.entries.into_iter().peekable();
        for (key, change) in changes {
            while let Some(entry) = own.next_if(|(own_key, _)| *own_key < key) {
                entries.push(entry);
            }
            let here = own.next_if(|(own_key, _)| *own_key == key).map(|(_, value)| value);
            if let Some(value) = join(&key, here, change)? {
                entries.push((key, value));
            }
        }
        entries.extend(own);
        Ok(Object { entries })
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        for (index, (key, value)) in self.entries.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            write_string(key, out);
            out.push(b':');
            value.write(out);
        }
        out.push(b'}');
    }

    fn position(&self, key: &str) -> Result<usize, usize> {
        self.entries.binary_search_by(|(own, _)| own.as_str().cmp(key))
    }

    /// Sorts freshly collected entries; of equal keys the last one stays. Returns the repeated keys.
    fn from_unsorted(mut entries: Vec<(SmolStr, Value)>) -> (Object, Vec<SmolStr>) {
        let mut repeated = Vec::new();
        if !entries.is_sorted_by(|(left, _), (right, _)| left < right) {
            entries.sort_by(|(left, _), (right, _)| left.cmp(right));
            entries.dedup_by(|later, kept| {
                let same = later.0 == kept.0;
                if same {
                    kept.1 = std::mem::take(&mut later.1);
                    if repeated.len() < DUPLICATES_MAX {
                        repeated.push(kept.0.clone());
                    }
                }
                same
            });
        }
        (Object { entries }, repeated)
    }
}

impl FromIterator<(SmolStr, Value)> for Object {
    fn from_iter<I: IntoIterator<Item = (SmolStr, Value)>>(entries: I) -> Object {
        Object::from_unsorted(entries.into_iter().collect()).0
    }
}

impl IntoIterator for Object {
    type Item = (SmolStr, Value);
    type IntoIter = std::vec::IntoIter<(SmolStr, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

macro_rules! value_from {
    ($($from:ty => $make:expr),* $(,)?) => {
        $(impl From<$from> for Value {
            fn from(from: $from) -> Value {
                ($make)(from)
            }
        })*
    };
}

value_from! {
    bool => Value::Bool,
    i64 => Value::Int,
    i32 => |number: i32| Value::Int(number.into()),
    u32 => |number: u32| Value::Int(number.into()),
    u16 => |number: u16| Value::Int(number.into()),
    &str => |text: &str| Value::String(SmolStr::new(text)),
    &SmolStr => |text: &SmolStr| Value::String(text.clone()),
    String => |text: String| Value::String(SmolStr::from(text)),
    SmolStr => Value::String,
    Vec<Value> => Value::Array,
    Object => Value::Object,
}

/// Builds a [`Value`] in JSON's own notation: `json!({"kind": "Status", "code": code})`.
///
/// Keys are literals, values are any expression that converts into a `Value`.
#[macro_export]
macro_rules! json {
    (null) => { $crate::Value::Null };
    ([ $($item:tt),* $(,)? ]) => { $crate::Value::Array(vec![ $($crate::json!($item)),* ]) };
    ({ $($key:literal : $value:tt),* $(,)? }) => {
        $crate::Value::Object([ $(($crate::SmolStr::new($key), $crate::json!($value))),* ].into_iter().collect())
    };
    ($other:expr) => { $crate::Value::from($other) };
}

/// Parses one JSON document and reports repeated keys.
pub fn parse(bytes: &[u8]) -> Result<Parsed, ParseError> {
    let duplicates = RefCell::new(Vec::new());
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Seed { duplicates: &duplicates }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|error| ParseError(error.to_string()))?;
    Ok(Parsed { value, duplicates: duplicates.into_inner() })
}

impl<'de> serde::Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        Seed { duplicates: &RefCell::new(Vec::new()) }.deserialize(deserializer)
    }
}

impl serde::Serialize for Value {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(flag) => serializer.serialize_bool(*flag),
            Value::Int(number) => serializer.serialize_i64(*number),
            Value::Float(number) => serializer.serialize_f64(*number),
            Value::String(text) => serializer.serialize_str(text),
            Value::Array(items) => serializer.collect_seq(items),
            Value::Object(object) => serializer.collect_map(object.iter()),
        }
    }
}

/// Parses with a place to note the paths of repeated keys. A path is built from the inside out, only when there
/// is something to report, so that ordinary documents pay nothing.
#[derive(Clone, Copy)]
struct Seed<'a> {
    duplicates: &'a RefCell<Vec<String>>,
}

impl Seed<'_> {
    fn prefix_since(self, mark: usize, prefix: impl Fn() -> String) {
        let mut duplicates = self.duplicates.borrow_mut();
        if duplicates.len() > mark {
            let prefix = prefix();
            for path in &mut duplicates[mark..] {
                let dot = if path.starts_with('[') { "" } else { "." };
                *path = format!("{prefix}{dot}{path}");
            }
        }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Int(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        #[expect(clippy::cast_precision_loss, reason = "Go reads integers past 64 bits as floats")]
        Ok(i64::try_from(number).map_or(Value::Float(number as f64), Value::Int))
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Value, E> {
        if number.is_finite() { Ok(Value::Float(number)) } else { Err(E::custom("number out of range")) }
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(SmolStr::new(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            let mark = self.duplicates.borrow().len();
            let Some(item) = access.next_element_seed(self)? else { break };
            self.prefix_since(mark, || format!("[{}]", items.len()));
            items.push(item);
        }
        items.shrink_to_fit();
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = access.next_key_seed(KeySeed)? {
            let mark = self.duplicates.borrow().len();
            let value = access.next_value_seed(self)?;
            self.prefix_since(mark, || shown_key(&key));
            entries.push((key, value));
        }
        if entries.len() > u32::MAX as usize {
            return Err(A::Error::custom("too many members"));
        }
        let (object, repeated) = Object::from_unsorted(entries);
        let mut duplicates = self.duplicates.borrow_mut();
        for key in repeated {
            if duplicates.len() < DUPLICATES_MAX {
                duplicates.push(shown_key(&key));
            }
        }
        Ok(Value::Object(object))
    }
}

/// A key as a report of duplicates shows it.
fn shown_key(key: &str) -> String {
    if key.len() <= DUPLICATE_KEY_SHOWN_MAX {
        return key.to_string();
    }
    format!("{}...", &key[..key.floor_char_boundary(DUPLICATE_KEY_SHOWN_MAX)])
}

/// Reads an object key straight into a small string.
struct KeySeed;

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = SmolStr;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<SmolStr, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed {
    type Value = SmolStr;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object key")
    }

    fn visit_str<E>(self, text: &str) -> Result<SmolStr, E> {
        Ok(SmolStr::new(text))
    }
}

/// Short texts stand in their place; long ones are counted references.
fn text_heap_bytes(text: &SmolStr) -> usize {
    if text.is_heap_allocated() { text.len() + 2 * size_of::<usize>() } else { 0 }
}

fn write_float(number: f64, out: &mut Vec<u8>) {
    #[expect(clippy::cast_possible_truncation, reason = "whole and within the exact range")]
    if number.fract() == 0.0 && number.abs() < 1e15 {
        out.extend_from_slice(itoa::Buffer::new().format(number as i64).as_bytes());
    } else {
        out.extend_from_slice(ryu::Buffer::new().format_finite(number).as_bytes());
    }
}

/// Appends a JSON string literal.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut plain_from = 0;
    for (index, &byte) in bytes.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&bytes[plain_from..index]);
        plain_from = index + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => {
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(byte >> 4)]);
                out.push(HEX[usize::from(byte & 15)]);
            }
        }
    }
    out.extend_from_slice(&bytes[plain_from..]);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &str, canonical: &str, duplicates: &[&str]) {
        let parsed = parse(input.as_bytes()).unwrap();
        assert_eq!(parsed.value.to_string(), canonical);
        assert_eq!(parsed.duplicates, duplicates);
        assert_eq!(
            Value::parse(canonical.as_bytes()).unwrap().to_string(),
            canonical,
            "canonical form is stable"
        );
    }

    #[test]
    fn canonical_form() {
        check(r#"{"b":1,"a":[true,null,"x"]}"#, r#"{"a":[true,null,"x"],"b":1}"#, &[]);
        check(r#"[1.0,1.5,-0.25,9223372036854775807]"#, "[1,1.5,-0.25,9223372036854775807]", &[]);
        check(r#""\u0001\n\"\\é""#, r#""\u0001\n\"\\é""#, &[]);
        check("18446744073709551615", "1.8446744073709552e19", &[]);
    }

    #[test]
    fn duplicate_keys_are_named_and_the_last_wins() {
        check(r#"{"data":{"a":1,"b":0,"a":2}}"#, r#"{"data":{"a":2,"b":0}}"#, &["data.a"]);
        check(r#"{"l":[{},{"x":1,"x":2}],"l2":0}"#, r#"{"l":[{},{"x":2}],"l2":0}"#, &["l[1].x"]);
        check(r#"{"a":1,"a":2,"a":3}"#, r#"{"a":3}"#, &["a", "a"]);
    }

    #[test]
    fn reports_of_duplicates_are_short() {
        let (key, inner) = ("é".repeat(100_000), r#""a":1,"#.repeat(100));
        let document = format!(r#"{{"x":{{"{key}":{{{inner}"b":0}}}}}}"#);
        let duplicates = parse(document.as_bytes()).unwrap().duplicates;
        assert_eq!(duplicates.len(), DUPLICATES_MAX);
        assert_eq!(duplicates[0], format!("x.{}....a", "é".repeat(128)));
    }

    #[test]
    fn hostile_documents_are_refused() {
        assert!(Value::parse(&b"[".repeat(100_000)).is_err());
        assert!(Value::parse(b"{} x").is_err());
        assert!(Value::parse(b"{\"a\":1e999}").is_err());
        assert!(Value::parse(b"\xff").is_err());
    }

    #[test]
    fn many_changes_in_one_pass() {
        let object = json!({"a": 1, "c": 3, "d": 4}).as_object().unwrap().clone();
        let changes =
            vec![("b".into(), Some(2)), ("c".into(), None), ("d".into(), Some(5)), ("e".into(), None)];
        let mut seen = Vec::new();
        let joined = object.merge_with(changes, |key, own, new: Option<i64>| {
            seen.push((key.to_string(), own));
            Ok::<_, ()>(new.map(Value::Int))
        });
        assert_eq!(Value::Object(joined.unwrap()), json!({"a": 1, "b": 2, "d": 5}));
        let expected = [("b", None), ("c", Some(3)), ("d", Some(4)), ("e", None)];
        assert_eq!(seen, expected.map(|(key, own)| (key.to_string(), own.map(Value::Int))));
    }

    #[test]
    fn what_values_take_up() {
        let check = |text: &str, expected: usize| {
            assert_eq!(Value::parse(text.as_bytes()).unwrap().heap_bytes(), expected, "{text}");
        };
        let (value, member) = (size_of::<Value>(), size_of::<(SmolStr, Value)>());
        check("1", 0);
        check(r#""short""#, 0);
        check(&format!(r#""{}""#, "x".repeat(100)), 116);
        check("[1,[],null]", 3 * value);
        check(r#"[{"a":1}]"#, value + member.max(Value::parse(br#"{"a":1}"#).unwrap().heap_bytes()));
    }

    #[test]
    fn deep_members() {
        let mut value = json!({"metadata": {"name": "a"}});
        value.set_at(&["metadata", "labels", "x"], "y");
        assert_eq!(value.str_at(&["metadata", "labels", "x"]), Some("y"));
        assert_eq!(value.remove_at(&["metadata", "name"]), Some("a".into()));
        assert_eq!(value.to_string(), r#"{"metadata":{"labels":{"x":"y"}}}"#);
    }
}
