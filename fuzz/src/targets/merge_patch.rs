//! Merge patches: the result can be stored and read again, and applying the patch twice changes nothing more.
//!
//! The input is a document, a line `---` and a patch.

use polder_machinery::patch::apply_merge_patch;
use polder_model::{Object, Value};

use super::json_value::check_canonical;
use crate::random::Random;
use crate::{generate, two_parts};

pub const WORDS: &[&str] = &["\n---\n", "null", "{\"a\":null}", "{\"a\":{\"b\":null}}", "[{\"a\":null}]", "{", "}", "\"a\":", "\"b\":", ",", "1"];

pub fn make(random: &mut Random) -> Vec<u8> {
    let names = &["a", "b", "c", "d"];
    let document = generate::json(names, 4, random);
    let patch = generate::json(names, 4, random);
    generate::two_documents(&document, &patch)
}

pub fn run(data: &[u8]) {
    let (document, patch) = two_parts(data);
    let (Ok(document), Ok(patch)) = (Value::parse(document), Value::parse(patch)) else { return };
    if document.as_object().is_some() {
        assert_eq!(apply_merge_patch(document.clone(), Value::Object(Object::new())).as_ref(), Ok(&document));
    }
    let Ok(result) = apply_merge_patch(document, patch.clone()) else { return };
    check_canonical(&result);
    assert!(result.as_object().is_some(), "the patch of an object is an object");
    check_says(&result, &patch);
    crate::accepted();
}

/// Members the patch deletes are gone, scalars it sets are there.
fn check_says(result: &Value, patch: &Value) {
    for (key, wanted) in patch.as_object().into_iter().flat_map(Object::iter) {
        match wanted {
            Value::Null => assert_eq!(result.get(key), None, "{key:?} was deleted"),
            Value::Object(_) => check_says(result.get(key).expect("an object was merged"), wanted),
            Value::Array(items) => {
                let found = result.get(key).and_then(Value::as_array).expect("a list was set");
                assert_eq!(found.len(), items.len());
            }
            scalar => assert_eq!(result.get(key), Some(scalar)),
        }
    }
}
