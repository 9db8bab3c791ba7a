//! JSON paths: a search ends, and a path of members finds what walking finds.
//!
//! The input is a path, or a path, a line `---` and a document.

use polder_machinery::jsonpath::JsonPath;
use polder_model::{Value, json};

use crate::two_parts;

pub const WORDS: &[&str] = &[
    ".", "..", "[", "]", "*", "[*]", "[0]", "[-1]", "[0:2]", "[::2]", "[1:]", "['a']", "[\"b\"]", ",", "?(", "[?(@.type==\"Ready\")]", "@", "@.a", ")",
    "==", "!=", "<", ">=", ".spec", ".a", ".metadata.name", "$", "{", "}", "'", "\\.", "-9223372036854775808", "9223372036854775807", "1.5", "true", "\n---\n",
    ".conditions", ".status",
];

pub fn run(data: &[u8]) {
    let (path, document) = two_parts(data);
    let Ok(text) = std::str::from_utf8(path) else { return };
    let Ok(path) = JsonPath::parse(text) else { return };
    let document = Value::parse(document).unwrap_or_else(|_| {
        json!({
            "metadata": {"name": "x"}, "spec": {"a": [1, (Value::Float(2.5)), "3", null, {"b": [[], {}]}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "A", "status": "False"}]},
            "a": {"a": {"a": {"a": "b"}}},
        })
    });
    let found = path.find(&document);
    assert!(found.len() <= 200_000);
    if let Some(members) = path.simple_members() {
        let walked = document.at(&members);
        assert_eq!(found.first().copied(), walked, "{text:?} goes through {members:?}");
    }
    assert_eq!(JsonPath::parse(text).as_ref(), Ok(&path));
    crate::accepted();
}
