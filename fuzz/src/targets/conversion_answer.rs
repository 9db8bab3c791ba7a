//! What a conversion webhook answers: whatever it is, an object that comes out is of the version that was asked for and is
//! still the one that went in.

use polder_machinery::conversion::{Question, ReviewVersion, ask, read};
use polder_model::{Value, json};

use super::json_value::check_canonical;
use crate::generate;
use crate::random::Random;

pub const WORDS: &[&str] = &[
    "\"response\":{", "\"uid\":\"u\"", "\"result\":{\"status\":\"Success\"}", "\"status\":\"Failed\"", "\"message\":\"m\"",
    "\"convertedObjects\":[", "\"kind\":\"Widget\"", "\"apiVersion\":\"example.com/v2\"", "\"apiVersion\":\"example.com/v1\"",
    "\"metadata\":{", "\"name\":\"a\"", "\"namespace\":\"n\"", "\"labels\":{\"l\":\"x\"}", "\"annotations\":{\"a b\":\"\"}",
    "\"finalizers\":[]", "null", "{", "}", "[", "]", ",",
];

const QUESTION: Question<'static> =
    Question { version: ReviewVersion::V1, uid: "u", desired: "example.com/v2" };

fn originals() -> Vec<Value> {
    let one = |name: &str| {
        json!({"kind": "Widget", "apiVersion": "example.com/v1", "spec": {"a": 1}, "metadata": {"name": name,
            "namespace": "n", "uid": "1", "labels": {"l": "x"}, "finalizers": ["example.com/f"]}})
    };
    vec![one("a"), one("b")]
}

pub fn make(random: &mut Random) -> Vec<u8> {
    let mut objects = originals();
    for object in &mut objects {
        object.set_at(&["apiVersion"], "example.com/v2");
        object.set_at(&["spec"], generate::json(&["a", "b"], 3, random));
        for field in ["labels", "annotations", "finalizers", "uid", "managedFields"] {
            if random.below(6) == 0 {
                object.set_at(&["metadata", field], generate::json(&["a", "b.c/d", "e f"], 2, random));
            }
        }
    }
    json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "response": {
        "uid": "u", "result": {"status": "Success"}, "convertedObjects": objects}})
    .to_vec()
}

pub fn run(data: &[u8]) {
    let originals = originals();
    assert!(Value::parse(&ask(QUESTION, &originals)).is_ok());
    for version in [ReviewVersion::V1, ReviewVersion::V1beta1] {
        match read(Question { version, ..QUESTION }, &originals, data) {
            Err(error) => assert!(error.to_string().len() < 64 << 10),
            Ok(converted) => {
                assert_eq!(converted.len(), originals.len());
                for (object, original) in converted.iter().zip(&originals) {
                    check(object, original);
                }
                crate::accepted();
            }
        }
    }
}

fn check(object: &Value, original: &Value) {
    check_canonical(object);
    assert_eq!(object.str_at(&["apiVersion"]), Some(QUESTION.desired));
    assert_eq!(object.get("kind"), original.get("kind"));
    let rest = |value: &Value| {
        let mut metadata = value.get("metadata").cloned().unwrap_or_default();
        metadata.remove_at(&["labels"]);
        metadata.remove_at(&["annotations"]);
        metadata
    };
    assert_eq!(rest(object), rest(original));
    for field in ["labels", "annotations"] {
        let words = object.at(&["metadata", field]).and_then(Value::as_object);
        assert!(words.into_iter().flat_map(|words| words.values()).all(|word| word.as_str().is_some()));
    }
}
