//! JSON patches: the result can be stored and read again, and the patch that changes nothing changes nothing.
//!
//! The input is a document, a line `---` and a patch.

use polder_machinery::patch::{apply_json_patch, json_patch_unknown_fields};
use polder_model::{Object, Value, json};

use super::json_value::check_canonical;
use crate::random::Random;
use crate::{generate, two_parts};

pub const WORDS: &[&str] = &[
    "\n---\n", "[{\"op\":\"add\",\"path\":\"/a\",\"value\":1}]", "\"add\"", "\"remove\"", "\"replace\"", "\"move\"", "\"copy\"",
    "\"test\"", "\"from\":\"\"", "\"path\":\"/a/b\"", "/-", "/0", "/-1", "/a", "~0", "~1", "~2", "/", "//", "{\"a\":[1,2]}", ",",
    "9223372036854775807",
];

const NAMES: &[&str] = &["a", "b", "spec", "~", "/", ""];

pub fn make(random: &mut Random) -> Vec<u8> {
    let document = generate::json(NAMES, 4, random);
    let operations = (0..random.below(6)).map(|_| {
        let mut operation = Object::new();
        operation.insert("op", *random.pick(&["add", "remove", "replace", "move", "copy", "test"]));
        operation.insert("path", pointer(&document, random));
        operation.insert("from", pointer(&document, random));
        operation.insert("value", generate::json(NAMES, 2, random));
        Value::Object(operation)
    });
    let patch = Value::Array(operations.collect());
    generate::two_documents(&document, &patch)
}

/// A path that leads somewhere, or nearly.
fn pointer(document: &Value, random: &mut Random) -> String {
    let mut path = String::new();
    let mut here = document;
    while !random.one_in(4) {
        match here {
            Value::Object(object) if !object.is_empty() => {
                let Some((key, value)) = object.iter().nth(random.below(object.len())) else { break };
                path += &format!("/{}", key.replace('~', "~0").replace('/', "~1"));
                here = value;
            }
            Value::Array(items) if !items.is_empty() => {
                let index = random.below(items.len());
                path += &format!("/{index}");
                here = &items[index];
            }
            _ => break,
        }
    }
    if random.one_in(3) {
        path += *random.pick(&["/-", "/0", "/-1", "/a", "/spec", "/", "/01", "/~"]);
    }
    path
}

pub fn run(data: &[u8]) {
    let (document, patch) = two_parts(data);
    let (Ok(document), Ok(patch)) = (Value::parse(document), Value::parse(patch)) else { return };
    assert!(json_patch_unknown_fields(&patch).len() <= 32);
    assert_eq!(apply_json_patch(document.clone(), &Value::Array(Vec::new())).as_ref(), Ok(&document));
    let Ok(result) = apply_json_patch(document.clone(), &patch) else { return };
    check_canonical(&result);
    let as_expected = json!([{"op": "test", "path": "", "value": (result.clone())}]);
    assert_eq!(apply_json_patch(result.clone(), &as_expected).as_ref(), Ok(&result));
    // A patch is its operations one after the other.
    let operations = patch.as_array().unwrap_or_default();
    let one_by_one = operations
        .iter()
        .try_fold(document, |document, operation| apply_json_patch(document, &Value::Array(vec![operation.clone()])));
    assert_eq!(one_by_one, Ok(result));
    crate::accepted();
}
