//! Strategic merge patches on a Pod: the result can be stored and read again, and has no directives of its own.
//!
//! The input is a document, a line `---` and a patch.

use std::sync::LazyLock;

use polder_machinery::patch::apply_strategic_merge_patch;
use polder_machinery::schema::Schema;
use polder_model::{Object, Value};

use super::json_value::check_canonical;
use crate::random::Random;
use crate::{generate, two_parts};

pub const WORDS: &[&str] = &[
    "\n---\n", "\"$patch\":\"delete\"", "\"$patch\":\"replace\"", "\"$retainKeys\":[\"name\"]", "\"$setElementOrder/containers\":[{\"name\":\"a\"}]",
    "\"$deleteFromPrimitiveList/finalizers\":[\"x\"]", "{\"spec\":{\"containers\":[{\"name\":\"a\"}]}}", "\"name\":\"a\"", "null",
    "\"ports\":[{\"containerPort\":80}]", "\"mountPath\":\"/\"", "\"volumes\":[]", ",", "{", "}", "[", "]",
];

static POD: LazyLock<Schema> = LazyLock::new(|| generate::builtin("io.k8s.api.core.v1.Pod"));
const NAMES: &[&str] = &["a", "b", "TCP", "x/y", ""];

pub fn make(random: &mut Random) -> Vec<u8> {
    let document = generate::of_schema(POD.node(), NAMES, 6, random);
    let mut patch = if random.one_in(3) { document.clone() } else { generate::of_schema(POD.node(), NAMES, 6, random) };
    direct(&mut patch, random);
    generate::two_documents(&document, &patch)
}

/// Puts directives into the objects of a patch.
fn direct(value: &mut Value, random: &mut Random) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| direct(item, random)),
        Value::Object(object) => {
            let lists: Vec<(String, Value)> = (object.iter())
                .filter(|(_, value)| value.as_array().is_some())
                .map(|(key, value)| (key.to_string(), value.clone()))
                .collect();
            object.iter_mut().for_each(|(_, value)| direct(value, random));
            if random.one_in(8) {
                object.insert("$patch", *random.pick(&["delete", "replace", "merge", "x"]));
            }
            if random.one_in(12) {
                object.insert("$retainKeys", Value::Array(vec!["name".into(), "containers".into()]));
            }
            for (key, value) in lists {
                if random.one_in(3) {
                    let directive = random.pick(&["$setElementOrder", "$deleteFromPrimitiveList"]);
                    object.insert(format!("{directive}/{key}"), value);
                }
            }
        }
        _ => {}
    }
}

pub fn run(data: &[u8]) {
    let (document, patch) = two_parts(data);
    let (Ok(document), Ok(patch)) = (Value::parse(document), Value::parse(patch)) else { return };
    let schema = POD.node();
    if document.as_object().is_some() {
        let nothing = Value::Object(Object::new());
        assert_eq!(apply_strategic_merge_patch(document.clone(), nothing, schema).as_ref(), Ok(&document));
    }
    let Ok(result) = apply_strategic_merge_patch(document.clone(), patch.clone(), schema) else { return };
    check_canonical(&result);
    assert!(result.as_object().is_some(), "the patch of an object is an object");
    let again = apply_strategic_merge_patch(document, patch, schema);
    assert_eq!(again, Ok(result), "the same every time");
    crate::accepted();
}
