//! Inputs of ours with the results upstream gave, and what a hostile patch may not do.

use polder_model::{SmolStr, json};

use super::*;
use crate::xorshift::XorShift;

/// Name, object, patch, and the result or the status class and text.
const ROWS: &[(&str, &str, &str, &str)] = &[
    ("add a member", r#"{"a":1}"#, r#"[{"op":"add","path":"/b","value":{"c":2}}]"#, r#"{"a":1,"b":{"c":2}}"#),
    ("add over a member", r#"{"a":1}"#, r#"[{"op":"add","path":"/a","value":"x"}]"#, r#"{"a":"x"}"#),
    ("add null", r#"{"a":1}"#, r#"[{"op":"add","path":"/b","value":null}]"#, r#"{"a":1,"b":null}"#),
    ("add without a value", r#"{"a":1}"#, r#"[{"op":"add","path":"/b"}]"#, r#"{"a":1,"b":null}"#),
    (
        "add below a missing parent",
        r#"{"a":1}"#,
        r#"[{"op":"add","path":"/b/c","value":1}]"#,
        r#"422: add operation does not apply: doc is missing path: "/b/c": missing value"#,
    ),
    (
        "add below a scalar",
        r#"{"a":1}"#,
        r#"[{"op":"add","path":"/a/c","value":1}]"#,
        r#"422: add operation does not apply: doc is missing path: "/a/c": missing value"#,
    ),
    (
        "add below null",
        r#"{"a":null}"#,
        r#"[{"op":"add","path":"/a/c","value":1}]"#,
        r#"422: add operation does not apply: doc is missing path: "/a/c": missing value"#,
    ),
    (
        "add below what was added",
        r#"{}"#,
        r#"[{"op":"add","path":"/a","value":{}},{"op":"add","path":"/a/b","value":[]},{"op":"add","path":"/a/b/-","value":1}]"#,
        r#"{"a":{"b":[1]}}"#,
    ),
    (
        "add at the start of a list",
        r#"{"l":[1,2]}"#,
        r#"[{"op":"add","path":"/l/0","value":0}]"#,
        r#"{"l":[0,1,2]}"#,
    ),
    (
        "add at the end by number",
        r#"{"l":[1,2]}"#,
        r#"[{"op":"add","path":"/l/2","value":3}]"#,
        r#"{"l":[1,2,3]}"#,
    ),
    (
        "add past the end",
        r#"{"l":[1,2]}"#,
        r#"[{"op":"add","path":"/l/3","value":3}]"#,
        r#"422: error in add for path: '/l/3': Unable to access invalid index: 3: invalid index referenced"#,
    ),
    ("append", r#"{"l":[1,2]}"#, r#"[{"op":"add","path":"/l/-","value":3}]"#, r#"{"l":[1,2,3]}"#),
    (
        "add at a negative index",
        r#"{"l":[1,2]}"#,
        r#"[{"op":"add","path":"/l/-1","value":3},{"op":"add","path":"/l/-2","value":9}]"#,
        r#"{"l":[1,2,9,3]}"#,
    ),
    (
        "add too far below zero",
        r#"{"l":[1,2]}"#,
        r#"[{"op":"add","path":"/l/-4","value":3}]"#,
        r#"422: error in add for path: '/l/-4': Unable to access invalid index: -4: invalid index referenced"#,
    ),
    (
        "add at a word",
        r#"{"l":[1,2]}"#,
        r#"[{"op":"add","path":"/l/x","value":3}]"#,
        r#"422: error in add for path: '/l/x': value was not a proper array index: 'x': strconv.Atoi: parsing "x": invalid syntax"#,
    ),
    (
        "add at an index out of range of numbers",
        r#"{"l":[1,2]}"#,
        r#"[{"op":"add","path":"/l/99999999999999999999","value":3}]"#,
        r#"422: error in add for path: '/l/99999999999999999999': value was not a proper array index: '99999999999999999999': strconv.Atoi: parsing "99999999999999999999": value out of range"#,
    ),
    (
        "add to the root",
        r#"{"a":1}"#,
        r#"[{"op":"add","path":"","value":{}}]"#,
        r#"422: add operation does not apply: doc is missing path: "": missing value"#,
    ),
    ("add the empty key", r#"{"a":1}"#, r#"[{"op":"add","path":"/","value":2}]"#, r#"{"":2,"a":1}"#),
    (
        "escaped keys",
        r#"{"a/b":1,"c~d":2}"#,
        r#"[{"op":"replace","path":"/a~1b","value":3},{"op":"remove","path":"/c~0d"},{"op":"add","path":"/~01","value":4}]"#,
        r#"{"a/b":3,"~1":4}"#,
    ),
    (
        "a path without a slash",
        r#"{"a":1}"#,
        r#"[{"op":"add","path":"b","value":2}]"#,
        r#"422: add operation does not apply: doc is missing path: "b": missing value"#,
    ),
    (
        "a path without a leading slash",
        r#"{"a":1}"#,
        r#"[{"op":"add","path":"x/b","value":2}]"#,
        r#"{"a":1,"b":2}"#,
    ),
    ("remove a member", r#"{"a":1,"b":2}"#, r#"[{"op":"remove","path":"/a"}]"#, r#"{"b":2}"#),
    ("remove a null member", r#"{"a":null,"b":2}"#, r#"[{"op":"remove","path":"/a"}]"#, r#"{"b":2}"#),
    (
        "remove a missing member",
        r#"{"a":1}"#,
        r#"[{"op":"remove","path":"/b"}]"#,
        r#"422: error in remove for path: '/b': Unable to remove nonexistent key: b: missing value"#,
    ),
    (
        "remove below a missing parent",
        r#"{"a":1}"#,
        r#"[{"op":"remove","path":"/b/c"}]"#,
        r#"422: remove operation does not apply: doc is missing path: "/b/c": missing value"#,
    ),
    ("remove an element", r#"{"l":[1,2,3]}"#, r#"[{"op":"remove","path":"/l/1"}]"#, r#"{"l":[1,3]}"#),
    ("remove the last element", r#"{"l":[1,2,3]}"#, r#"[{"op":"remove","path":"/l/-1"}]"#, r#"{"l":[1,2]}"#),
    (
        "remove past the end",
        r#"{"l":[1]}"#,
        r#"[{"op":"remove","path":"/l/1"}]"#,
        r#"422: error in remove for path: '/l/1': Unable to access invalid index: 1: invalid index referenced"#,
    ),
    (
        "remove by a sign that is none",
        r#"{"l":[1]}"#,
        r#"[{"op":"remove","path":"/l/-"}]"#,
        r#"422: error in remove for path: '/l/-': strconv.Atoi: parsing "-": invalid syntax"#,
    ),
    (
        "remove the root",
        r#"{"a":1}"#,
        r#"[{"op":"remove","path":""}]"#,
        r#"422: remove operation does not apply: doc is missing path: "": missing value"#,
    ),
    ("replace a member", r#"{"a":1}"#, r#"[{"op":"replace","path":"/a","value":[1]}]"#, r#"{"a":[1]}"#),
    (
        "replace a missing member",
        r#"{"a":1}"#,
        r#"[{"op":"replace","path":"/b","value":2}]"#,
        r#"{"a":1,"b":2}"#,
    ),
    (
        "replace an element",
        r#"{"l":[1,2]}"#,
        r#"[{"op":"replace","path":"/l/-1","value":9}]"#,
        r#"{"l":[1,9]}"#,
    ),
    (
        "replace past the end",
        r#"{"l":[1,2]}"#,
        r#"[{"op":"replace","path":"/l/2","value":9}]"#,
        r#"422: replace operation does not apply: doc is missing key: /l/2: missing value"#,
    ),
    (
        "replace with a padded index",
        r#"{"l":[1,2]}"#,
        r#"[{"op":"replace","path":"/l/+01","value":9}]"#,
        r#"{"l":[1,9]}"#,
    ),
    (
        "replace the root",
        r#"{"a":1}"#,
        r#"[{"op":"replace","path":"","value":{"b":2}},{"op":"add","path":"/c","value":3}]"#,
        r#"{"b":2,"c":3}"#,
    ),
    (
        "replace the root by a list",
        r#"{"a":1}"#,
        r#"[{"op":"replace","path":"","value":[1]},{"op":"add","path":"/-","value":2}]"#,
        r#"[1,2]"#,
    ),
    (
        "replace the root by a scalar",
        r#"{"a":1}"#,
        r#"[{"op":"replace","path":"","value":5}]"#,
        r#"422: replace operation value must be object or array"#,
    ),
    (
        "replace below a missing parent",
        r#"{"a":1}"#,
        r#"[{"op":"replace","path":"/b/c","value":5}]"#,
        r#"422: replace operation does not apply: doc is missing path: /b/c: missing value"#,
    ),
    (
        "move a member",
        r#"{"a":{"x":1},"b":{}}"#,
        r#"[{"op":"move","from":"/a/x","path":"/b/y"}]"#,
        r#"{"a":{},"b":{"y":1}}"#,
    ),
    (
        "move an element",
        r#"{"l":[1,2,3]}"#,
        r#"[{"op":"move","from":"/l/0","path":"/l/-"}]"#,
        r#"{"l":[2,3,1]}"#,
    ),
    (
        "move a missing member",
        r#"{"a":1}"#,
        r#"[{"op":"move","from":"/x","path":"/b"}]"#,
        r#"422: error in move for path: 'x': Unable to remove nonexistent key: x: missing value"#,
    ),
    (
        "move into itself",
        r#"{"a":{"b":1}}"#,
        r#"[{"op":"move","from":"/a","path":"/a/c"}]"#,
        r#"422: move operation does not apply: doc is missing destination path: /a/c: missing value"#,
    ),
    (
        "move from nowhere",
        r#"{"a":1}"#,
        r#"[{"op":"move","path":"/b"}]"#,
        r#"422: move operation failed to decode from: operation, missing from field: missing value"#,
    ),
    (
        "move to nowhere",
        r#"{"a":1}"#,
        r#"[{"op":"move","from":"/a"}]"#,
        r#"422: move operation failed to decode path: operation missing path field: missing value"#,
    ),
    ("move onto itself", r#"{"a":1}"#, r#"[{"op":"move","from":"/a","path":"/a"}]"#, r#"{"a":1}"#),
    (
        "copy a member",
        r#"{"a":{"x":1}}"#,
        r#"[{"op":"copy","from":"/a","path":"/b"},{"op":"add","path":"/b/y","value":2}]"#,
        r#"{"a":{"x":1},"b":{"x":1,"y":2}}"#,
    ),
    (
        "copy a missing member",
        r#"{"a":1}"#,
        r#"[{"op":"copy","from":"/x","path":"/b"}]"#,
        r#"{"a":1,"b":null}"#,
    ),
    (
        "copy into itself",
        r#"{"a":{"x":1}}"#,
        r#"[{"op":"copy","from":"/a","path":"/a/b"}]"#,
        r#"{"a":{"b":{"x":1},"x":1}}"#,
    ),
    (
        "copy from below a missing parent",
        r#"{"a":1}"#,
        r#"[{"op":"copy","from":"/x/y","path":"/b"}]"#,
        r#"422: copy operation does not apply: doc is missing from path: /x/y: missing value"#,
    ),
    (
        "copy to a missing parent",
        r#"{"a":1}"#,
        r#"[{"op":"copy","from":"/a","path":"/x/y"}]"#,
        r#"422: copy operation does not apply: doc is missing destination path: /x/y: missing value"#,
    ),
    (
        "copy an element past the end",
        r#"{"l":[1]}"#,
        r#"[{"op":"copy","from":"/l/1","path":"/b"}]"#,
        r#"422: error in copy for from: '/l/1': Unable to access invalid index: 1: invalid index referenced"#,
    ),
    (
        "copy over the limit",
        r#"{"a":"0123456789"}"#,
        r#"[{"op":"copy","from":"/a","path":"/b"},{"op":"copy","from":"/a","path":"/c"},{"op":"copy","from":"/a","path":"/d"}]"#,
        r#"422: Unable to complete the copy, the accumulated size increase of copy is 36, exceeding the limit 30"#,
    ),
    (
        "a test that holds",
        r#"{"a":{"b":[1,{"c":null}]}}"#,
        r#"[{"op":"test","path":"/a","value":{"b":[1,{"c":null}]}},{"op":"remove","path":"/a"}]"#,
        r#"{}"#,
    ),
    (
        "a test that fails",
        r#"{"a":1}"#,
        r#"[{"op":"test","path":"/a","value":2}]"#,
        r#"422: testing value /a failed: test failed"#,
    ),
    (
        "a test of a number written otherwise",
        r#"{"a":1}"#,
        r#"[{"op":"test","path":"/a","value":1.0}]"#,
        r#"422: testing value /a failed: test failed"#,
    ),
    (
        "a test of a string against a number",
        r#"{"a":1}"#,
        r#"[{"op":"test","path":"/a","value":"1"}]"#,
        r#"422: testing value /a failed: test failed"#,
    ),
    (
        "a test that nothing is there",
        r#"{"a":1}"#,
        r#"[{"op":"test","path":"/b","value":null}]"#,
        r#"{"a":1}"#,
    ),
    ("a test of null", r#"{"a":null}"#, r#"[{"op":"test","path":"/a","value":null}]"#, r#"{"a":null}"#),
    (
        "a test without a value",
        r#"{"a":1}"#,
        r#"[{"op":"test","path":"/a"}]"#,
        r#"422: testing value /a failed: test failed"#,
    ),
    ("a test of nothing without a value", r#"{"a":1}"#, r#"[{"op":"test","path":"/b"}]"#, r#"{"a":1}"#),
    (
        "a test below a missing parent",
        r#"{"a":1}"#,
        r#"[{"op":"test","path":"/b/c","value":1}]"#,
        r#"422: test operation does not apply: is missing path: /b/c: missing value"#,
    ),
    (
        "a test past the end",
        r#"{"l":[]}"#,
        r#"[{"op":"test","path":"/l/0","value":1}]"#,
        r#"422: error in test for path: '/l/0': Unable to access invalid index: 0: invalid index referenced"#,
    ),
    (
        "a test of the root",
        r#"{"a":1,"b":[]}"#,
        r#"[{"op":"test","path":"","value":{"b":[],"a":1}}]"#,
        r#"{"a":1,"b":[]}"#,
    ),
    (
        "a test of the root that fails",
        r#"{"a":1}"#,
        r#"[{"op":"test","path":"","value":{}}]"#,
        r#"422: testing value  failed: test failed"#,
    ),
    (
        "an unknown operation",
        r#"{"a":1}"#,
        r#"[{"op":"merge","path":"/a","value":1}]"#,
        r#"422: Unexpected kind: merge"#,
    ),
    ("no operation", r#"{"a":1}"#, r#"[{"path":"/a","value":1}]"#, r#"422: Unexpected kind: unknown"#),
    (
        "no path",
        r#"{"a":1}"#,
        r#"[{"op":"add","value":1}]"#,
        r#"422: add operation failed to decode path: missing value"#,
    ),
    (
        "no path to remove",
        r#"{"a":1}"#,
        r#"[{"op":"remove"}]"#,
        r#"422: remove operation failed to decode path: missing value"#,
    ),
    (
        "no path to replace",
        r#"{"a":1}"#,
        r#"[{"op":"replace","value":1}]"#,
        r#"422: replace operation failed to decode path: operation missing path field: missing value"#,
    ),
    (
        "no path to test",
        r#"{"a":1}"#,
        r#"[{"op":"test","value":1}]"#,
        r#"422: test operation failed to decode path: operation missing path field: missing value"#,
    ),
    (
        "no path to copy to",
        r#"{"a":1}"#,
        r#"[{"op":"copy","from":"/a"}]"#,
        r#"422: copy operation failed to decode path: missing value"#,
    ),
    ("an empty operation", r#"{"a":1}"#, r#"[{}]"#, r#"422: Unexpected kind: unknown"#),
    ("a null operation", r#"{"a":1}"#, r#"[null]"#, r#"422: Unexpected kind: unknown"#),
    ("an empty patch", r#"{"a":1}"#, r#"[]"#, r#"{"a":1}"#),
    ("a null patch", r#"{"a":1}"#, r#"null"#, r#"{"a":1}"#),
    (
        "a patch that is an object",
        r#"{"a":1}"#,
        r#"{"op":"add"}"#,
        r#"400: error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"#,
    ),
    (
        "a patch that is a string",
        r#"{"a":1}"#,
        r#""x""#,
        r#"400: error decoding patch: json: cannot unmarshal string into Go value of type []handlers.jsonPatchOp"#,
    ),
    (
        "an operation that is a number",
        r#"{"a":1}"#,
        r#"[{"op":"test","path":"/a","value":1},5]"#,
        r#"400: error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp"#,
    ),
    (
        "an op that is a number",
        r#"{"a":1}"#,
        r#"[{"op":1,"path":"/a"}]"#,
        r#"400: error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string"#,
    ),
    (
        "a path that is a list",
        r#"{"a":1}"#,
        r#"[{"op":"add","path":["a"],"value":1}]"#,
        r#"400: error decoding patch: json: cannot unmarshal array into Go struct field jsonPatchOp.path of type string"#,
    ),
    (
        "a from that is a bool",
        r#"{"a":1}"#,
        r#"[{"op":"move","path":"/a","from":true}]"#,
        r#"400: error decoding patch: json: cannot unmarshal bool into Go struct field jsonPatchOp.from of type string"#,
    ),
];

fn outcome(result: Result<Value, PatchError>) -> String {
    match result {
        Ok(value) => value.to_string(),
        Err(PatchError::Malformed(text)) => format!("400: {text}"),
        Err(PatchError::NotApplicable(text)) => format!("422: {text}"),
        Err(other) => other.to_string(),
    }
}

#[test]
fn like_upstream() {
    for (name, doc, patch, expected) in ROWS {
        let doc = Value::parse(doc.as_bytes()).unwrap();
        let patch = Value::parse(patch.as_bytes()).unwrap();
        // The rows were made with a small limit on copies.
        let found = operations(&patch).and_then(|operations| {
            let mut patched =
                Patched { doc, copied_bytes: 0, copied_bytes_max: 30, steps: 0, test_failed: false };
            for operation in operations {
                patched.apply(operation).map_err(PatchError::NotApplicable)?;
            }
            Ok(patched.doc)
        });
        assert_eq!(outcome(found), *expected, "{name}");
    }
}

#[test]
fn unknown_members_are_named() {
    let patch = json!([{"foo": 1, "op": "add"}, {"bar": {"x": 1}}]);
    assert_eq!(
        json_patch_unknown_fields(&patch),
        [r#"json patch unknown field "[0].foo""#, r#"json patch unknown field "[1].bar""#]
    );
}

#[test]
fn too_many_operations() {
    let patch = Value::Array(vec![json!({"op": "test", "path": "/a"}); 10_001]);
    assert_eq!(
        outcome(apply_json_patch(json!({}), &patch)),
        "The allowed maximum operations in a JSON patch is 10000, got 10001"
    );
}

#[test]
fn copies_are_bounded() {
    let doc = json!({"a": ("x".repeat(1000))});
    let patch = Value::Array(vec![json!({"op": "copy", "from": "/a", "path": "/b"}); 3140]);
    let text = outcome(apply_json_patch(doc.clone(), &patch));
    assert!(
        text.starts_with("422: Unable to complete the copy, the accumulated size increase of copy is 3146")
    );
    let double = Value::Array(vec![json!({"op": "copy", "from": "/a", "path": "/a/-"}); 100]);
    assert!(apply_json_patch(json!({"a": []}), &double).is_err());
}

#[test]
fn nesting_is_bounded() {
    let deep = |levels: usize| {
        Value::parse(format!("{}{}", "[".repeat(levels), "]".repeat(levels)).as_bytes()).unwrap()
    };
    let add =
        |levels| apply_json_patch(json!({}), &json!([{"op": "add", "path": "/a", "value": (deep(levels))}]));
    assert!(Value::parse(&add(126).unwrap().to_vec()).is_ok(), "what is accepted can be read again");
    assert!(add(127).is_err());
    // Each pair of operations wraps the object once more.
    let mut operations = vec![json!({"op": "add", "path": "/a", "value": {}})];
    for _ in 0..2000 {
        operations.push(json!({"op": "add", "path": "/b", "value": {}}));
        operations.push(json!({"op": "move", "from": "/a", "path": "/b/a"}));
        operations.push(json!({"op": "move", "from": "/b", "path": "/a"}));
    }
    let text = outcome(apply_json_patch(json!({}), &Value::Array(operations)));
    assert_eq!(text, "422: the object would be nested deeper than 127 levels");
}

#[test]
fn large_lists_are_not_moved_ten_thousand_times() {
    let doc = json!({"l": (vec![Value::Int(0); 300_000])});
    let patch = Value::Array(vec![json!({"op": "add", "path": "/l/0", "value": 1}); 10_000]);
    let text = outcome(apply_json_patch(doc, &patch));
    assert_eq!(text, "422: the patch moves too many elements of large lists or objects");
}

#[test]
fn no_patch_panics() {
    let mut random = XorShift(0x5eed);
    let ops = ["add", "remove", "replace", "move", "copy", "test", "x"].map(SmolStr::new);
    let parts = ["a", "b", "l", "0", "1", "-1", "-", "~1", "~", "~0", "", "99", "é"];
    let values = [json!(null), json!(1), json!({"a": {"b": []}}), json!([1, [2]]), json!("x")];
    for _ in 0..20_000 {
        let mut path = || -> String {
            (0..random.below(4))
                .map(|_| if random.below(9) == 0 { "x" } else { "/" }.to_string() + *random.pick(&parts))
                .collect()
        };
        let (path, from) = (path(), path());
        let operations: Vec<Value> = (0..3)
            .map(|_| {
                json!({"op": (random.pick(&ops)), "path": (path.as_str()), "from": (from.as_str()), "value": (random.pick(&values).clone())})
            })
            .collect();
        let doc = json!({"a": {"b": 1, "l": [1, 2]}, "l": [{"a": null}, []], "": 0});
        let _outcome = apply_json_patch(doc, &Value::Array(operations));
    }
}
