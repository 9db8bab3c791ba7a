//! Stored objects: splicing gives the bytes that serializing the whole object would give.

use polder_model::{Object, Value};
use polder_store::Record;

use crate::generate;
use crate::random::Random;

pub const WORDS: &[&str] = &[
    "{\"metadata\":{", "\"labels\":{", "\"resourceVersion\":\"1\"", "\"kind\":\"X\"", "\"apiVersion\":1", "{}", "}", ",",
    "\"a\":\"b\"", "\"\":\"\"", "null", "[]", "\"metadata\":null",
];

const TYPE_META: &[u8] = br#""kind":"ConfigMap","apiVersion":"v1","#;

pub fn make(random: &mut Random) -> Vec<u8> {
    let words = &["metadata", "labels", "resourceVersion", "kind", "apiVersion", "name", "data", "é", ""];
    let mut value = generate::json(words, 4, random);
    if random.one_in(2) {
        value.set_at(&["metadata", "labels"], generate::json(&["app", "tier", "é", ""], 1, random));
    }
    value.to_vec()
}

pub fn run(data: &[u8]) {
    let Ok(value) = Value::parse(data) else { return };
    let record = Record::encode(&value);
    assert_eq!(Record::from_bytes(record.as_bytes().into()).expect("what was encoded is a record"), record);

    let mut expected = if value.as_object().is_some() { value } else { Value::Object(Object::new()) };
    if expected.get("metadata").and_then(Value::as_object).is_none() {
        expected.set_at(&["metadata"], Object::new());
    }
    expected.set_at(&["metadata", "resourceVersion"], "18446744073709551615");
    expected.remove_at(&["kind"]);
    expected.remove_at(&["apiVersion"]);
    assert_eq!(spliced(&record, b"").to_string(), expected.to_string(), "an item of a list");
    let whole = record.to_value(u64::MAX).expect("a record is JSON");
    assert_eq!(whole.to_string(), expected.to_string(), "parsed");

    let labels = expected.at(&["metadata", "labels"]).and_then(Value::as_object).cloned().unwrap_or_default();
    // No label has an empty name: that stands for the form of the record.
    let labels = labels.iter().filter(|(key, _)| !key.is_empty());
    let labels: Vec<(&str, &str)> =
        labels.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default())).collect();
    assert!(record.labels().eq(labels.iter().copied()), "labels");
    assert!(labels.iter().all(|(key, value)| record.label(key) == Some(value)));

    expected.set_at(&["kind"], "ConfigMap");
    expected.set_at(&["apiVersion"], "v1");
    assert_eq!(spliced(&record, TYPE_META).to_string(), expected.to_string(), "a whole object");
    crate::accepted();
}

fn spliced(record: &Record, type_meta: &[u8]) -> Value {
    let mut out = Vec::new();
    record.splice(type_meta, u64::MAX, &mut out);
    Value::parse(&out).unwrap_or_else(|error| panic!("{} is no JSON: {error}", String::from_utf8_lossy(&out)))
}
