//! One step of a path into an object, as `fieldsV1` writes it: `f:spec`, `k:{"name":"web"}`, `v:"x"`, `i:3`.
//!
//! A step has exactly one spelling here: sorted keys, no spaces, whole numbers without a fraction. So sets of fields
//! compare steps as texts and take them apart only to show them to people. [`canonical`] makes that spelling from
//! whatever a client wrote; [`write_field`], [`write_keys`] and [`write_item`] make it from an object.

use std::cmp::Ordering;
use std::fmt;

use polder_model::value::write_string;
use polder_model::{Object, SmolStr, Value};
use smol_str::SmolStrBuilder;

use crate::schema::go_text;

/// A step, taken apart. The order is the one in which upstream lists fields.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<'a> {
    /// A member of an object.
    Field(&'a str),
    /// The element of a list whose key members have these values.
    Keys(Object),
    /// The element of a set with this value.
    Item(Value),
    /// The element at this place.
    Index(i64),
}

/// A text that is no step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    #[error("key must be 2 characters long:")]
    Short,
    #[error("missing colon: {0}")]
    NoColon(String),
    /// Something a later version may know: whoever reads a set skips it.
    #[error("unknown path element type")]
    Unknown,
    #[error("{0}")]
    Malformed(String),
}

impl<'a> Step<'a> {
    pub fn parse(text: &'a str) -> Result<Step<'a>, StepError> {
        let malformed = |error: &dyn fmt::Display| StepError::Malformed(error.to_string());
        if text.len() < 2 {
            return Err(StepError::Short);
        }
        if text.as_bytes()[1] != b':' {
            return Err(StepError::NoColon(text.chars().take(64).collect()));
        }
        let (kind, rest) = (text.as_bytes()[0], text.get(2..).unwrap_or_default());
        match kind {
            b'f' => Ok(Step::Field(rest)),
            b'k' => match Value::parse(rest.as_bytes()).map_err(|error| malformed(&error))? {
                Value::Object(keys) => Ok(Step::Keys(keys)),
                other => Err(StepError::Malformed(format!("expected an object, got {}", other.type_name()))),
            },
            b'v' => Value::parse(rest.as_bytes()).map(Step::Item).map_err(|error| malformed(&error)),
            b'i' => rest.parse().map(Step::Index).map_err(|error| malformed(&error)),
            _ => Err(StepError::Unknown),
        }
    }

    /// The one spelling of this step.
    pub fn write(&self) -> SmolStr {
        match self {
            Step::Field(name) => write_field(name),
            Step::Keys(keys) => write_keys(keys.iter().map(|(name, value)| (name.as_str(), value))),
            Step::Item(value) => write_item(value),
            Step::Index(index) => SmolStr::from(format!("i:{index}")),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Step::Field(_) => 0,
            Step::Keys(_) => 1,
            Step::Item(_) => 2,
            Step::Index(_) => 3,
        }
    }

    /// Fields first, then keys, items and places; within each by value, numbers as numbers.
    pub fn order(&self, other: &Step<'_>) -> Ordering {
        match (self, other) {
            (Step::Field(own), Step::Field(other)) => own.cmp(other),
            (Step::Keys(own), Step::Keys(other)) => {
                let pairs = own.iter().zip(other.iter());
                pairs
                    .map(|((name, value), (other_name, other_value))| {
                        name.cmp(other_name).then_with(|| value_order(value, other_value))
                    })
                    .find(|order| order.is_ne())
                    .unwrap_or_else(|| own.len().cmp(&other.len()))
            }
            (Step::Item(own), Step::Item(other)) => value_order(own, other),
            (Step::Index(own), Step::Index(other)) => own.cmp(other),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

/// As conflicts show it: `.spec`, `[name="web"]`, `[="x"]`, `[3]`.
impl fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Field(name) => write!(f, ".{name}"),
            Step::Keys(keys) => {
                f.write_str("[")?;
                for (index, (name, value)) in keys.iter().enumerate() {
                    let comma = if index > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", shown(value))?;
                }
                f.write_str("]")
            }
            Step::Item(value) => write!(f, "[={}]", shown(value)),
            Step::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// The one spelling of a step that somebody else wrote.
pub(super) fn canonical(text: &SmolStr) -> Result<SmolStr, StepError> {
    match Step::parse(text)? {
        Step::Field(_) => Ok(text.clone()),
        step => Ok(step.write()),
    }
}

/// How the step to a member begins.
pub(super) const FIELD: &str = "f:";

pub(super) fn write_field(name: &str) -> SmolStr {
    let mut out = SmolStrBuilder::new();
    out.push_str(FIELD);
    out.push_str(name);
    out.finish()
}

/// The keys must come sorted by name.
pub(super) fn write_keys<'a>(keys: impl Iterator<Item = (&'a str, &'a Value)>) -> SmolStr {
    let mut out = Vec::with_capacity(48);
    out.extend_from_slice(b"k:");
    for (index, (name, value)) in keys.enumerate() {
        out.push(if index == 0 { b'{' } else { b',' });
        write_string(name, &mut out);
        out.push(b':');
        write_value(value, &mut out);
    }
    if out.len() == 2 {
        out.push(b'{');
    }
    out.push(b'}');
    text(&out)
}

pub(super) fn write_item(value: &Value) -> SmolStr {
    let mut out = Vec::with_capacity(32);
    out.extend_from_slice(b"v:");
    write_value(value, &mut out);
    text(&out)
}

fn text(bytes: &[u8]) -> SmolStr {
    SmolStr::new(String::from_utf8_lossy(bytes))
}

/// Upstream's encoder writes values so that they can stand in HTML; names of members it writes as they are.
fn write_value(value: &Value, out: &mut Vec<u8>) {
    match value.as_str() {
        Some(text) if text.contains(HTML) => out.extend_from_slice(for_html(&value.to_string()).as_bytes()),
        _ => value.write(out),
    }
}

const HTML: [char; 5] = ['<', '>', '&', '\u{2028}', '\u{2029}'];

/// JSON as Go's encoder writes it unless told otherwise.
pub(super) fn for_html(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for char in json.chars() {
        if HTML.contains(&char) {
            out.push_str(&format!("\\u{:04x}", char as u32));
        } else {
            out.push(char);
        }
    }
    out
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => go_text::quoted(text),
        Value::Float(number) => go_text::float(*number),
        Value::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(",")),
        Value::Object(object) => {
            object.iter().map(|(name, value)| format!("{name}={}", shown(value))).collect()
        }
        other => other.to_string(),
    }
}

fn value_order(own: &Value, other: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Int(_) | Value::Float(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    };
    match (own, other) {
        (Value::Int(own), Value::Int(other)) => own.cmp(other),
        (Value::String(own), Value::String(other)) => own.cmp(other),
        (Value::Bool(own), Value::Bool(other)) => own.cmp(other),
        _ => match (own.as_f64(), other.as_f64()) {
            (Some(own), Some(other)) => own.total_cmp(&other),
            // Lists and maps are no keys; any fixed order will do.
            _ => rank(own).cmp(&rank(other)).then_with(|| own.to_string().cmp(&other.to_string())),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, spelling: &str, shown: &str) {
        let step = Step::parse(text).unwrap();
        assert_eq!(step.write(), spelling);
        assert_eq!(canonical(&text.into()).unwrap(), spelling);
        assert_eq!(step.to_string(), shown);
    }

    #[test]
    fn steps_have_one_spelling() {
        check("f:spec", "f:spec", ".spec");
        check("f:", "f:", ".");
        check("f:a.b/c", "f:a.b/c", ".a.b/c");
        check("i:0", "i:0", "[0]");
        check("i:-05", "i:-5", "[-5]");
        check(r#"k:{"name":"web"}"#, r#"k:{"name":"web"}"#, r#"[name="web"]"#);
        check(
            r#"k:{ "protocol":"TCP", "port":80.0 }"#,
            r#"k:{"port":80,"protocol":"TCP"}"#,
            r#"[port=80,protocol="TCP"]"#,
        );
        check("k:{}", "k:{}", "[]");
        check(r#"v:"x""#, r#"v:"x""#, r#"[="x"]"#);
        check("v:1.5", "v:1.5", "[=1.5]");
        check("v:true", "v:true", "[=true]");
        check("v:null", "v:null", "[=null]");
        check("v:[1,2]", "v:[1,2]", "[=[1,2]]");
        check(r#"v:"a<\n\u00e9""#, r#"v:"a\u003c\né""#, r#"[="a<\né"]"#);
    }

    #[test]
    fn what_is_no_step() {
        let rows = [
            ("", "key must be 2 characters long:"),
            ("f", "key must be 2 characters long:"),
            ("spec", "missing colon: spec"),
            ("x:spec", "unknown path element type"),
            ("i:one", "invalid digit found in string"),
            ("é:", "missing colon: é:"),
        ];
        for (text, expected) in rows {
            assert_eq!(Step::parse(text).unwrap_err().to_string(), expected, "{text}");
        }
        for text in ["k:{\"name\":\"a\"", "k:[]", "k:", "v:", "v:{} x"] {
            assert!(matches!(Step::parse(text), Err(StepError::Malformed(_))), "{text}");
        }
    }

    #[test]
    fn order_is_by_value() {
        let sorted = [
            "f:a",
            "f:b",
            "k:{}",
            r#"k:{"a":9}"#,
            r#"k:{"a":10}"#,
            r#"k:{"a":"x"}"#,
            r#"k:{"a":"x","b":1}"#,
            r#"k:{"b":1}"#,
            "v:2",
            "v:10",
            "v:10.5",
            r#"v:"1""#,
            "v:true",
            "v:null",
            "i:2",
            "i:10",
        ];
        for pair in sorted.windows(2) {
            let [left, right] = [pair[0], pair[1]].map(|text| Step::parse(text).unwrap());
            assert_eq!(left.order(&right), Ordering::Less, "{left} {right}");
            assert_eq!(right.order(&left), Ordering::Greater);
        }
    }
}
