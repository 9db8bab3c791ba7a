//! Random schemas and values: nothing panics, whatever is thrown at the walkers.

use polder_model::{FieldPath, Object, SmolStr, Value};

use super::structural::tests::object_meta;
use super::{coerce, default, embedded, prune, required, structural, validate};

/// A small deterministic generator (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    fn scalar(&mut self) -> Value {
        match self.below(8) {
            0 => Value::Null,
            1 => Value::Bool(true),
            2 => Value::Int(i64::MIN),
            3 => Value::Float(-1.5),
            4 => Value::Int(3),
            5 => Value::from("2024-01-01T00:00:00Z"),
            6 => Value::from("é\u{0}'["),
            _ => Value::from("x".repeat(self.below(40))),
        }
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 1 } else { 3 }) {
            0 => self.scalar(),
            1 => Value::Array((0..self.below(4)).map(|_| self.value(depth - 1)).collect()),
            _ => Value::Object(
                (0..self.below(5))
                    .map(|_| (SmolStr::new(self.pick(&NAMES)), self.value(depth - 1)))
                    .collect(),
            ),
        }
    }

    fn schema(&mut self, depth: usize) -> Value {
        let mut object = Object::new();
        object.insert(
            "type",
            self.pick(&["object", "object", "array", "string", "integer", "number", "boolean", ""]),
        );
        for _ in 0..self.below(5) {
            let key = self.pick(&KEYWORDS);
            let value = match key {
                _ if self.below(12) == 0 => self.value(2),
                "items" | "not" | "additionalProperties" if depth > 0 => self.schema(depth - 1),
                "allOf" | "anyOf" | "oneOf" if depth > 0 => {
                    Value::Array((0..self.below(3)).map(|_| self.schema(depth - 1)).collect())
                }
                "properties" if depth > 0 => Value::Object(
                    (0..self.below(4))
                        .map(|_| (SmolStr::new(self.pick(&NAMES)), self.schema(depth - 1)))
                        .collect(),
                ),
                "pattern" => {
                    Value::from(self.pick(&["^a", "(", "[", "\\", "a{9}", "[\\d-", "\\Q", "{", "[^"]))
                }
                "format" => {
                    Value::from(self.pick(&["date-time", "uri", "duration", "mac", "isbn", "email", "byte"]))
                }
                "required" | "x-kubernetes-list-map-keys" => {
                    Value::Array(vec![Value::from(self.pick(&NAMES))])
                }
                "x-kubernetes-list-type" => Value::from(self.pick(&["set", "map", "atomic"])),
                _ if key.starts_with("x-kubernetes") || key == "nullable" => Value::Bool(true),
                "enum" => Value::Array(vec![self.scalar()]),
                _ => self.scalar(),
            };
            object.insert(key, value);
        }
        Value::Object(object)
    }
}

const NAMES: [&str; 7] = ["apiVersion", "kind", "metadata", "spec", "a", "b", "x-y"];
const KEYWORDS: [&str; 24] = [
    "items",
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
    "minimum",
    "maximum",
    "multipleOf",
    "maxLength",
    "minItems",
    "nullable",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
];

#[test]
fn nothing_panics() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let meta = object_meta();
    let mut compiled = 0;
    for _ in 0..3000 {
        let mut json = random.schema(4);
        if random.below(2) == 0 {
            json.set_at(&["type"], "object");
        }
        structural::structural_problems(&json, &FieldPath::root("s"));
        let Ok(schema) = structural::compile(&json, &meta) else { continue };
        compiled += 1;
        for _ in 0..3 {
            let node = schema.node();
            let mut value = random.value(5);
            let mut errors = Vec::new();
            validate::validate(node, &value, &FieldPath::ROOT, &mut errors);
            required::check_required(node, &value, &FieldPath::ROOT, &mut errors);
            required::check_allowed(node, &value, &FieldPath::ROOT, &mut errors);
            let _ = coerce::coerce(node, &mut value.clone());
            let _ = embedded::coerce_embedded(node, &mut value, &FieldPath::ROOT);
            prune::prune(node, &mut value, &mut Vec::new());
            let mut again = Vec::new();
            prune::prune(node, &mut value, &mut again);
            assert_eq!(again, Vec::<String>::new(), "pruning twice changes nothing");
            default::apply_defaults(node, &mut value).unwrap();
            let once = value.clone();
            default::apply_defaults(node, &mut value).unwrap();
            assert_eq!(once, value, "defaulting twice changes nothing");
        }
    }
    assert!(compiled > 300, "only {compiled} schemas were worth trying");
}
