//! Reading JSON into built-in kinds the way Go's decoder does: types are checked, `null` vanishes, times become UTC.
//!
//! Types that Go knows and the schema does not (aliases of string, embedded structs) appear by their JSON type, so
//! the texts equal upstream's up to such names. Unknown members are left alone: pruning is another walk.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polder_model::quantity::{Quantity, QuantityError};
use polder_model::{Object, SmolStr, Value};

use super::timestamp::{self, Precision};
use super::{Kind, Node, NodeRef};

/// JSON that does not decode into its kind. The text is what follows `cannot be handled as a Foo: `.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CoerceError {
    #[error("json: cannot unmarshal {found} into Go {place} of type {expected}")]
    Type { found: String, place: String, expected: String },
    #[error("{0}")]
    Time(String),
    #[error("illegal base64 data at input byte {at}")]
    Base64 { at: usize },
    #[error(transparent)]
    Quantity(#[from] QuantityError),
}

/// Checks the JSON types of a value of a built-in kind and brings it into the form Kubernetes would write.
pub fn coerce(node: NodeRef<'_>, value: &mut Value) -> Result<(), CoerceError> {
    if value.is_null() {
        *value = zero(node.get().kind);
    }
    coerce_at(node, value, None)
}

/// The struct field that is being decoded, with those around it. Lists and maps add nothing, as in Go.
#[derive(Clone, Copy)]
struct Place<'a> {
    parent: Option<&'a Place<'a>>,
    owner: &'a Node,
    field: &'a str,
}

impl Place<'_> {
    fn path(&self, out: &mut String) {
        if let Some(parent) = self.parent {
            parent.path(out);
            out.push('.');
        }
        out.push_str(self.field);
    }
}

fn coerce_at(node: NodeRef<'_>, value: &mut Value, place: Option<&Place<'_>>) -> Result<(), CoerceError> {
    let own = node.get();
    match (own.kind, &mut *value) {
        (Kind::Any, _)
        | (Kind::String | Kind::IntOrString, Value::String(_))
        | (Kind::Boolean, Value::Bool(_))
        | (Kind::Number, Value::Int(_)) => Ok(()),
        (Kind::Number, Value::Float(_)) => {
            // Whole ones are written as such.
            if let Some(whole) = coerce_integer(own, value) {
                *value = whole;
            }
            Ok(())
        }
        (Kind::Object, Value::Object(object)) => coerce_members(node, object, place),
        (Kind::Array, Value::Array(items)) => {
            let Some(item_node) = node.items() else { return Ok(()) };
            for item in items {
                if item.is_null() {
                    *item = zero(item_node.get().kind);
                }
                coerce_at(item_node, item, place)?;
            }
            Ok(())
        }
        (Kind::Integer | Kind::IntOrString, Value::Int(_) | Value::Float(_)) => {
            *value = coerce_integer(own, value).ok_or_else(|| mismatch(node, value, place))?;
            Ok(())
        }
        (Kind::Quantity, _) => {
            *value = Quantity::from_value(value)?.to_string().into();
            Ok(())
        }
        (Kind::Time | Kind::MicroTime, Value::String(text)) => {
            let precision = if own.kind == Kind::Time { Precision::Seconds } else { Precision::Micros };
            let normal = timestamp::normalize(text, precision).map_err(CoerceError::Time)?;
            *value = normal.map_or(Value::Null, Value::from);
            Ok(())
        }
        (Kind::Bytes, Value::String(text)) => coerce_bytes(text),
        (Kind::Time | Kind::MicroTime, Value::Null) => Ok(()),
        _ => Err(mismatch(node, value, place)),
    }
}

fn coerce_members(
    node: NodeRef<'_>,
    object: &mut Object,
    place: Option<&Place<'_>>,
) -> Result<(), CoerceError> {
    let mut failure = None;
    object.retain(|key, value| {
        if failure.is_some() {
            return true;
        }
        let result = if let Some(member) = node.property(key) {
            if value.is_null() {
                // A list that must be there is there, and empty: Go cannot tell the two apart.
                let is_empty_list = member.get().kind == Kind::Array && node.get().required.contains(key);
                if is_empty_list {
                    *value = Value::Array(Vec::new());
                }
                return is_empty_list;
            }
            let result =
                coerce_at(member, value, Some(&Place { parent: place, owner: node.get(), field: key }));
            let nothing = || is_empty(member.get(), value) && !node.get().required.contains(key);
            if result.is_ok() && (value.is_null() || is_zero(member.get(), value) || nothing()) {
                return false;
            }
            result
        } else if let Some(id) = node.get().additional {
            let member = node.at(id);
            if value.is_null() {
                *value = zero(member.get().kind);
            }
            coerce_at(member, value, place)
        } else {
            Ok(())
        };
        failure = result.err();
        true
    });
    failure.map_or(Ok(()), Err)
}

/// A zero that Go does not write: to write one changes nothing, and defaults stand in its place.
fn is_zero(node: &Node, value: &Value) -> bool {
    node.omits_zero
        && match value {
            Value::String(text) => text.is_empty(),
            Value::Bool(truth) => !truth,
            Value::Int(number) => *number == 0,
            Value::Float(number) => *number == 0.0,
            _ => false,
        }
}

/// An empty list or map, which Go writes only where it must: writing one where there is none changes nothing. A
/// struct without members is something.
fn is_empty(node: &Node, value: &Value) -> bool {
    match (node.kind, value) {
        (Kind::Array, Value::Array(items)) => items.is_empty(),
        (Kind::Object, Value::Object(members)) => members.is_empty() && node.additional.is_some(),
        _ => false,
    }
}

/// The integer when it fits; whole floats count.
fn coerce_integer(node: &Node, value: &Value) -> Option<Value> {
    const BOUND: f64 = 9_223_372_036_854_775_808.0;
    let number = match value {
        Value::Int(number) => *number,
        #[expect(clippy::cast_possible_truncation, reason = "whole and in range")]
        Value::Float(number) if number.fract() == 0.0 && (-BOUND..BOUND).contains(number) => *number as i64,
        _ => return None,
    };
    let fits = integer_type(node) == "int64" || i32::try_from(number).is_ok();
    fits.then_some(Value::Int(number))
}

fn integer_type(node: &Node) -> &'static str {
    match (node.kind, node.format.as_deref()) {
        (Kind::IntOrString, _) | (_, Some("int32")) => "int32",
        _ => "int64",
    }
}

/// Go skips line breaks in base64; without them the text is written back as it came.
fn coerce_bytes(text: &mut SmolStr) -> Result<(), CoerceError> {
    if text.contains(['\r', '\n']) {
        *text = SmolStr::from(text.replace(['\r', '\n'], ""));
    }
    STANDARD.decode(text.as_bytes()).map(|_| ()).map_err(|error| CoerceError::Base64 {
        at: match error {
            base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
            base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => text.len() / 4 * 4,
        },
    })
}

/// What Go leaves in a list or map where the JSON says `null`.
fn zero(kind: Kind) -> Value {
    match kind {
        Kind::Any | Kind::Time | Kind::MicroTime => Value::Null,
        Kind::Object => Value::Object(Object::new()),
        Kind::Array => Value::Array(Vec::new()),
        Kind::String | Kind::Bytes => Value::from(""),
        Kind::Integer | Kind::Number | Kind::IntOrString => Value::Int(0),
        Kind::Boolean => Value::Bool(false),
        Kind::Quantity => Value::from("0"),
    }
}

fn mismatch(node: NodeRef<'_>, value: &Value, place: Option<&Place<'_>>) -> CoerceError {
    let is_integer = matches!(node.get().kind, Kind::Integer | Kind::IntOrString);
    let found = match value {
        Value::Null => "null".into(),
        Value::Bool(_) => "bool".into(),
        Value::Int(_) | Value::Float(_) if is_integer => format!("number {value}"),
        Value::Int(_) | Value::Float(_) => "number".into(),
        other => other.type_name().into(),
    };
    let place = match place {
        None => "value".into(),
        Some(place) => {
            let owner = place.owner.type_name.as_deref().unwrap_or("object");
            let mut text = format!("struct field {}.", owner.rsplit('.').next().unwrap_or(owner));
            place.path(&mut text);
            text
        }
    };
    CoerceError::Type { found, place, expected: go_type(node, 8) }
}

/// The Go type of a node as far as its definition tells.
fn go_type(node: NodeRef<'_>, depth_left: u8) -> String {
    let own = node.get();
    let below = |id: Option<NodeRef<'_>>| match id {
        Some(node) if depth_left > 0 => go_type(node, depth_left - 1),
        _ => "interface {}".into(),
    };
    match own.kind {
        Kind::Object => match (&own.type_name, own.additional) {
            (Some(name), _) => {
                let mut parts = name.rsplit('.');
                match (parts.next(), parts.next()) {
                    (Some(name), Some(package)) => format!("{package}.{name}"),
                    _ => name.to_string(),
                }
            }
            (None, additional) => format!("map[string]{}", below(additional.map(|id| node.at(id)))),
        },
        Kind::Array => format!("[]{}", below(node.items())),
        Kind::String | Kind::Time | Kind::MicroTime => "string".into(),
        Kind::Integer | Kind::IntOrString => integer_type(own).into(),
        Kind::Number => "float64".into(),
        Kind::Boolean => "bool".into(),
        Kind::Quantity => "resource.Quantity".into(),
        Kind::Bytes => "[]uint8".into(),
        Kind::Any => "interface {}".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Arena, NodeId, Schema};

    fn schema() -> Schema {
        let mut arena = Arena::default();
        let leaf = |arena: &mut Arena, kind| arena.add(Node { kind, ..Node::default() });
        let string = leaf(&mut arena, Kind::String);
        let int32 = arena.add(Node { kind: Kind::Integer, format: Some("int32".into()), ..Node::default() });
        let list = arena.add(Node { kind: Kind::Array, items: Some(string), ..Node::default() });
        let map = arena.add(Node { kind: Kind::Object, additional: Some(string), ..Node::default() });
        let mut members: Vec<(SmolStr, NodeId)> = vec![
            ("args".into(), list),
            ("labels".into(), map),
            ("replicas".into(), int32),
            ("any".into(), leaf(&mut arena, Kind::Any)),
            ("paused".into(), leaf(&mut arena, Kind::Boolean)),
            ("cpu".into(), leaf(&mut arena, Kind::Quantity)),
            ("port".into(), leaf(&mut arena, Kind::IntOrString)),
            ("time".into(), leaf(&mut arena, Kind::Time)),
            ("micro".into(), leaf(&mut arena, Kind::MicroTime)),
            ("data".into(), leaf(&mut arena, Kind::Bytes)),
        ];
        members.sort_by(|left, right| left.0.cmp(&right.0));
        let named = |name: &str, properties| Node {
            kind: Kind::Object,
            properties,
            type_name: Some(name.into()),
            ..Node::default()
        };
        let spec = arena.add(named("io.k8s.api.apps.v1.DeploymentSpec", members));
        let root = arena.add(named("io.k8s.api.apps.v1.Deployment", vec![("spec".into(), spec)]));
        Schema { arena: arena.into(), root }
    }

    #[track_caller]
    fn check(spec: &str, expected: Result<&str, &str>) {
        let mut value = Value::parse(format!(r#"{{"spec":{spec}}}"#).as_bytes()).unwrap();
        let result = coerce(schema().node(), &mut value).map_err(|error| error.to_string());
        match expected {
            Ok(spec) => {
                assert_eq!(result, Ok(()));
                assert_eq!(value.get("spec").unwrap().to_string(), spec);
            }
            Err(text) => assert_eq!(result, Err(text.into())),
        }
    }

    #[test]
    fn values_are_normalized() {
        check(
            r#"{"replicas":null,"any":{"x":null},"unknown":null}"#,
            Ok(r#"{"any":{"x":null},"unknown":null}"#),
        );
        check(r#"{"args":["a",null],"labels":{"a":null}}"#, Ok(r#"{"args":["a",""],"labels":{"a":""}}"#));
        check(r#"{"replicas":3.0,"cpu":0.5,"port":80}"#, Ok(r#"{"cpu":"500m","port":80,"replicas":3}"#));
        let text =
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
        check(r#"{"cpu":"much"}"#, Err(text));
        check(r#"{"cpu":"1024Ki"}"#, Ok(r#"{"cpu":"1Mi"}"#));
        check(r#"{"port":"http","cpu":"100m"}"#, Ok(r#"{"cpu":"100m","port":"http"}"#));
        check(r#"{"time":"2024-01-01T01:00:00.5+01:00"}"#, Ok(r#"{"time":"2024-01-01T00:00:00Z"}"#));
        check(
            r#"{"time":null,"micro":"2024-01-01T00:00:00.000001Z"}"#,
            Ok(r#"{"micro":"2024-01-01T00:00:00.000001Z"}"#),
        );
        check(r#"{"time":"0001-01-01T00:00:00Z"}"#, Ok("{}"));
        check(r#"{"data":"YWJj\nZA=="}"#, Ok(r#"{"data":"YWJjZA=="}"#));
        check(r#"{"args":[],"labels":{},"any":{},"unknown":[]}"#, Ok(r#"{"any":{},"unknown":[]}"#));
    }

    #[test]
    fn wrong_types_read_like_go() {
        let rows = [
            (
                r#"{"replicas":"1"}"#,
                "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
            (
                r#"{"replicas":1.5}"#,
                "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
            (
                r#"{"replicas":3000000000}"#,
                "json: cannot unmarshal number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
            (
                r#"{"args":"x"}"#,
                "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.args of type []string",
            ),
            (
                r#"{"args":[1]}"#,
                "json: cannot unmarshal number into Go struct field DeploymentSpec.spec.args of type string",
            ),
            (
                r#"{"labels":{"a":true}}"#,
                "json: cannot unmarshal bool into Go struct field DeploymentSpec.spec.labels of type string",
            ),
            (
                r#"{"labels":[]}"#,
                "json: cannot unmarshal array into Go struct field DeploymentSpec.spec.labels of type map[string]string",
            ),
            (
                r#"{"paused":"yes"}"#,
                "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.paused of type bool",
            ),
            (
                r#"{"time":"x"}"#,
                r#"parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#,
            ),
            (r#"{"data":"a*=="}"#, "illegal base64 data at input byte 1"),
            (
                r#"{"port":true}"#,
                "json: cannot unmarshal bool into Go struct field DeploymentSpec.spec.port of type int32",
            ),
            (
                "[]",
                "json: cannot unmarshal array into Go struct field Deployment.spec of type v1.DeploymentSpec",
            ),
        ];
        for (spec, text) in rows {
            check(spec, Err(text));
        }
        let mut value = Value::from(1_i64);
        let error = coerce(schema().node(), &mut value).unwrap_err();
        assert_eq!(error.to_string(), "json: cannot unmarshal number into Go value of type v1.Deployment");
    }
}
