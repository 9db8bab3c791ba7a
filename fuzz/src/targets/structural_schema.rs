//! Schemas of custom resources and objects of theirs: both from outside, in any combination.
//!
//! The input is an `openAPIV3Schema`, a line `---` and an object.

use std::sync::LazyLock;

use polder_machinery::schema::{NodeRef, Schema, coerce, default, embedded, prune, required, structural, validate};
use polder_model::{FieldPath, Value, json};

use super::json_value::check_canonical;
use crate::generate::{self, SCHEMA_NAMES};
use crate::random::Random;
use crate::two_parts;

pub const WORDS: &[&str] = &[
    "\n---\n", "\"type\":\"object\"", "\"type\":\"array\"", "\"type\":\"string\"", "\"type\":\"integer\"", "\"properties\":{\"a\":{", "\"items\":{",
    "\"default\":", "\"additionalProperties\":", "\"x-kubernetes-preserve-unknown-fields\":true", "\"x-kubernetes-embedded-resource\":true",
    "\"x-kubernetes-int-or-string\":true", "\"x-kubernetes-list-type\":\"map\"", "\"x-kubernetes-list-map-keys\":[\"a\"]", "\"nullable\":true",
    "\"enum\":[", "\"pattern\":\"", "\"format\":\"", "\"required\":[\"a\"]", "\"allOf\":[", "\"not\":{", "\"$ref\":\"#\"", "null", "{", "}", "[", "]", ",",
];

static META: LazyLock<Schema> =
    LazyLock::new(|| generate::builtin("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"));

pub fn make(random: &mut Random) -> Vec<u8> {
    let mut schema = generate::structural_schema(4, random);
    if !random.one_in(8) {
        schema.set_at(&["type"], "object");
    }
    let object = match structural::compile(&schema, &META) {
        Ok(schema) if random.one_in(2) => generate::of_schema(schema.node(), SCHEMA_NAMES, 6, random),
        _ => generate::json(SCHEMA_NAMES, 5, random),
    };
    generate::two_documents(&schema, &object)
}

pub fn run(data: &[u8]) {
    let (schema, object) = two_parts(data);
    let Ok(source) = Value::parse(schema) else { return };
    let problems = structural::structural_problems(&source, &FieldPath::root("s"));
    assert!(problems.len() <= 100);
    let compiled = structural::compile(&source, &META);
    if let Err(problems) = &compiled {
        assert!(!problems.is_empty() && problems.len() <= 100);
    }
    let Ok(schema) = compiled else { return };
    assert!(problems.is_empty(), "a schema with problems does not compile: {problems:?}");
    let object = Value::parse(object).unwrap_or_else(|_| json!({"metadata": {"name": "x"}, "a": [{}], "spec": {}}));
    walk(&schema, object);
}

/// What a write does with an object, and that doing it again changes nothing.
fn walk(schema: &Schema, mut object: Value) {
    let node = schema.node();
    check(node, &object);
    drop(coerce::coerce(node, &mut object.clone()));
    drop(embedded::coerce_embedded(node, &mut object, &FieldPath::ROOT));
    let mut unknown = Vec::new();
    prune::prune(node, &mut object, &mut unknown);
    assert!(unknown.len() <= 64);
    let mut again = Vec::new();
    prune::prune(node, &mut object, &mut again);
    assert_eq!(again, Vec::<String>::new(), "pruning twice changes nothing");
    if default::apply_defaults(node, &mut object).is_err() {
        return;
    }
    let once = object.clone();
    default::apply_defaults(node, &mut object).expect("nothing is missing any more");
    assert_eq!(object, once, "defaulting twice changes nothing");
    check(node, &object);
    check_canonical(&object);
    crate::accepted();
}

/// Whatever is wrong with an object can be said.
fn check(node: NodeRef<'_>, object: &Value) {
    let mut errors = Vec::new();
    validate::validate(node, object, &FieldPath::ROOT, &mut errors);
    required::check_required(node, object, &FieldPath::ROOT, &mut errors);
    required::check_allowed(node, object, &FieldPath::ROOT, &mut errors);
    assert!(errors.iter().all(|error| !error.to_string().is_empty()));
}
