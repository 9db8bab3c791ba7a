//! Inputs built from a grammar: rows of words, JSON of any shape, JSON that fits a schema, and schemas.

use polder_machinery::schema::{Kind, NodeRef, Schema, table};
use polder_model::{Object, SmolStr, Value};

use crate::random::Random;

/// Words in a row, now and then with something else between them.
pub fn words(words: &[&str], random: &mut Random) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..random.below(16) {
        match random.below(12) {
            0 => out.push(random.byte()),
            1 => out.push(b'a' + random.byte() % 26),
            _ => out.extend_from_slice(random.pick(words).as_bytes()),
        }
    }
    out
}

pub fn scalar(words: &[&str], random: &mut Random) -> Value {
    match random.below(12) {
        0 => Value::Null,
        1 => Value::Bool(random.one_in(2)),
        2 => Value::Int(*random.pick(&[0, 1, -1, 80, i64::MAX, i64::MIN, 1 << 53])),
        3 => Value::Float(*random.pick(&[0.5, -0.0, 1.0, 1e15, 1e300, -2.5e-9, 5e-324])),
        4 => Value::from(*random.pick(&[
            "",
            "é\u{0}'[",
            "\u{2028}",
            "2024-01-01T00:00:00Z",
            "100m",
            "a/b",
            "-",
        ])),
        _ => Value::from(*random.pick(words)),
    }
}

/// JSON of any shape, with words for keys and texts.
pub fn json(words: &[&str], depth: usize, random: &mut Random) -> Value {
    match random.below(if depth == 0 { 1 } else { 4 }) {
        0 => scalar(words, random),
        1 => Value::Array((0..random.below(4)).map(|_| json(words, depth - 1, random)).collect()),
        _ => {
            let mut object = Object::new();
            for _ in 0..random.below(5) {
                object.insert(*random.pick(words), json(words, depth - 1, random));
            }
            Value::Object(object)
        }
    }
}

/// A built-in type by its definition name.
pub fn builtin(type_name: &str) -> Schema {
    table::builtin().schema(type_name).unwrap_or_else(|| panic!("there is a built-in type {type_name}"))
}

/// JSON that fits a schema in most places. `depth` is in levels of the schema.
pub fn of_schema(node: NodeRef<'_>, words: &[&str], depth: usize, random: &mut Random) -> Value {
    if random.one_in(24) {
        return json(words, depth.min(2), random);
    }
    let own = node.get();
    if let Some(allowed) = own.allowed.get(random.below(own.allowed.len().max(1))) {
        return allowed.clone();
    }
    match own.kind {
        Kind::Object => {
            let mut object = Object::new();
            if depth > 0 {
                for _ in 0..random.below(6) {
                    let Some((name, id)) = own.properties.get(random.below(own.properties.len().max(1)))
                    else {
                        break;
                    };
                    object.insert(name.clone(), of_schema(node.at(*id), words, depth - 1, random));
                }
                for name in &own.required {
                    let member = node.property(name).filter(|_| !random.one_in(8));
                    if let Some(member) = member {
                        object.insert(name.clone(), of_schema(member, words, depth - 1, random));
                    }
                }
                for _ in 0..own.additional.map_or(0, |_| random.below(3)) {
                    let name = SmolStr::new(random.pick(words));
                    if let Some(member) = node.member(&name) {
                        object.insert(name, of_schema(member, words, depth - 1, random));
                    }
                }
            }
            Value::Object(object)
        }
        Kind::Array => {
            let items = node.items().filter(|_| depth > 0);
            let count = items.map_or(0, |_| random.below(4));
            Value::Array(
                items
                    .into_iter()
                    .flat_map(|items| std::iter::repeat_n(items, count))
                    .map(|items| of_schema(items, words, depth - 1, random))
                    .collect(),
            )
        }
        Kind::String => Value::from(*random.pick(words)),
        Kind::Integer => Value::Int(*random.pick(&[0, 1, 80, -1, 65535, i64::MAX])),
        Kind::Number => Value::Float(1.5),
        Kind::Boolean => Value::Bool(random.one_in(2)),
        Kind::IntOrString => scalar(&["50%", "http", "8080"], random),
        Kind::Quantity => scalar(&["1", "100m", "1.5Gi", "2e3", "-1", "1Ei", "0.1n"], random),
        Kind::Time | Kind::MicroTime => scalar(
            &["2024-02-29T00:00:00Z", "2024-01-01T00:00:00.123456Z", "0001-01-01T00:00:00+14:00"],
            random,
        ),
        Kind::Bytes => scalar(&["YQ==", "YWI=", "", "!"], random),
        Kind::Any => json(words, depth.min(3), random),
    }
}

/// What members are called in schemas and the objects to go with them.
pub const SCHEMA_NAMES: &[&str] = &["apiVersion", "kind", "metadata", "spec", "status", "a", "b", "x-y"];
const SCHEMA_KEYWORDS: &[&str] = &[
    "items",
    "properties",
    "properties",
    "properties",
    "additionalProperties",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "pattern",
    "format",
    "required",
    "enum",
    "default",
    "default",
    "minimum",
    "maximum",
    "multipleOf",
    "maxLength",
    "minItems",
    "uniqueItems",
    "nullable",
    "title",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
];

const PATTERNS: &[&str] = &["^a", "(", "[", "[a-", "[^", "[\\d-", "{", "a{9}", "(a*)*$", "\\", "\\d", "\\Q"];

/// An `openAPIV3Schema` that is structural more often than not.
pub fn structural_schema(depth: usize, random: &mut Random) -> Value {
    let mut schema = Object::new();
    let kind =
        *random.pick(&["object", "object", "object", "array", "string", "integer", "number", "boolean"]);
    schema.insert("type", kind);
    let below = |random: &mut Random| structural_schema(depth.saturating_sub(1), random);
    if kind == "array" {
        schema.insert("items", below(random));
    }
    for _ in 0..random.below(if depth == 0 { 2 } else { 4 }) {
        let keyword = *random.pick(SCHEMA_KEYWORDS);
        let value = match keyword {
            _ if random.one_in(16) => json(SCHEMA_NAMES, 2, random),
            "items" | "not" | "additionalProperties" if depth > 0 => below(random),
            "allOf" | "anyOf" | "oneOf" if depth > 0 => {
                let part =
                    |random: &mut Random| if random.one_in(8) { below(random) } else { value_checks(random) };
                Value::Array((0..random.below(3)).map(|_| part(random)).collect())
            }
            "properties" if depth > 0 => {
                let members =
                    (0..random.below(4)).map(|_| (SmolStr::new(random.pick(SCHEMA_NAMES)), below(random)));
                Value::Object(members.collect())
            }
            "pattern" => Value::from(*random.pick(PATTERNS)),
            "format" => {
                Value::from(*random.pick(&["date-time", "uri", "duration", "mac", "isbn", "email", "byte"]))
            }
            "required" | "x-kubernetes-list-map-keys" => {
                Value::Array(vec![(*random.pick(SCHEMA_NAMES)).into()])
            }
            "x-kubernetes-list-type" => Value::from(*random.pick(&["set", "map", "atomic"])),
            "x-kubernetes-map-type" => Value::from(*random.pick(&["granular", "atomic"])),
            "enum" => Value::Array(vec![scalar(SCHEMA_NAMES, random), scalar(SCHEMA_NAMES, random)]),
            "default" => match kind {
                "object" => json(SCHEMA_NAMES, 2, random),
                "array" => Value::Array(vec![json(SCHEMA_NAMES, 1, random)]),
                "string" => "d".into(),
                "boolean" => true.into(),
                _ => Value::Int(1),
            },
            "items" | "not" | "additionalProperties" | "allOf" | "anyOf" | "oneOf" | "properties" => continue,
            _ if keyword.starts_with("x-kubernetes") || matches!(keyword, "nullable" | "uniqueItems") => {
                Value::Bool(true)
            }
            _ if random.one_in(4) => scalar(SCHEMA_NAMES, random),
            _ => Value::Int(*random.pick(&[0, 1, 3, 100])),
        };
        schema.insert(keyword, value);
    }
    Value::Object(schema)
}

/// What may stand in `allOf` and the like: checks without types.
fn value_checks(random: &mut Random) -> Value {
    let mut checks = Object::new();
    for _ in 0..random.below(3) {
        let keyword = *random.pick(&["minimum", "maxLength", "minItems", "required", "pattern", "enum"]);
        let value = match keyword {
            "required" => Value::Array(vec![(*random.pick(SCHEMA_NAMES)).into()]),
            "pattern" => "^a".into(),
            "enum" => Value::Array(vec![scalar(SCHEMA_NAMES, random)]),
            _ => Value::Int(2),
        };
        checks.insert(keyword, value);
    }
    Value::Object(checks)
}

/// Two documents as the two parts of an input.
pub fn two_documents(first: &Value, second: &Value) -> Vec<u8> {
    let mut out = first.to_vec();
    out.extend_from_slice(b"\n---\n");
    second.write(&mut out);
    out
}
