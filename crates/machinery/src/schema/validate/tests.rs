//! Values against schemas, with the texts of all that is wrong.

use super::*;
use crate::schema::structural::tests::compiled;

#[track_caller]
fn check(property: &str, input: &str, expected: &[&str]) {
    let schema = compiled(&format!(
        r#"{{"type":"object","properties":{{"spec":{{"type":"object","properties":{{"x":{property}}}}}}}}}"#
    ));
    let value = Value::parse(format!(r#"{{"spec":{{"x":{input}}}}}"#).as_bytes()).unwrap();
    let mut errors = Vec::new();
    validate(schema.node(), &value, &FieldPath::ROOT, &mut errors);
    assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
}

/// Values of `spec` before and after an update, and what is held against it.
#[track_caller]
fn check_update(old: &str, new: &str, expected: &[&str]) {
    let schema = compiled(
        r#"{"type":"object","required":["root"],"properties":{"root":{"type":"string"},"spec":{"type":"object","properties":{
            "a":{"type":"string","maxLength":1},"b":{"type":"string","maxLength":1},
            "list":{"type":"array","items":{"type":"string","maxLength":1}},
            "map":{"type":"object","additionalProperties":{"type":"string","maxLength":1}},
            "any":{"type":"object","properties":{"x":{"type":"string"},"y":{"type":"string"}},
                "anyOf":[{"properties":{"x":{"maxLength":1}}},{"required":["z"]}]},
            "set":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},
            "keyed":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":
                {"type":"object","required":["k"],"properties":{"k":{"type":"string"},"v":{"type":"string","maxLength":1}}}}
        }}}}"#,
    );
    let object = |spec: &str| Value::parse(format!(r#"{{"root":"r","spec":{spec}}}"#).as_bytes()).unwrap();
    let mut errors = Vec::new();
    validate_update(schema.node(), &object(new), &object(old), &mut errors);
    assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), expected, "{new}");
}

#[test]
fn what_an_update_leaves_alone_is_excused() {
    const LONG: &str = ": Too long: may not be more than 1 byte";
    let long =
        |paths: &[&str]| -> Vec<String> { paths.iter().map(|path| format!("spec.{path}{LONG}")).collect() };
    let rows: [(&str, &str, &[&str]); 13] = [
        (r#"{"a":"aa"}"#, r#"{"a":"aa","b":"b"}"#, &[]),
        (r#"{"a":"aa"}"#, r#"{"a":"aa","b":"bb"}"#, &["b"]),
        (r#"{"a":"aa"}"#, r#"{"a":"aaa"}"#, &["a"]),
        (r#"{"list":["aa"]}"#, r#"{"list":["aa"],"b":"b"}"#, &[]),
        // Elements that nothing identifies are not what they were before once the list has changed.
        (r#"{"list":["aa"]}"#, r#"{"list":["aa","b"]}"#, &["list[0]"]),
        (r#"{"map":{"k":"vv"}}"#, r#"{"map":{"k":"vv","l":"w"}}"#, &[]),
        (r#"{"map":{"k":"vv"}}"#, r#"{"map":{"l":"vv"}}"#, &["map.l"]),
        (r#"{"keyed":[{"k":"1","v":"vv"}]}"#, r#"{"keyed":[{"k":"2"},{"k":"1","v":"vv"}]}"#, &[]),
        (r#"{"keyed":[{"k":"1","v":"vv"}]}"#, r#"{"keyed":[{"k":"2","v":"vv"}]}"#, &["keyed[0].v"]),
        (r#"{"set":["a","a"]}"#, r#"{"set":["a","a","a"]}"#, &[]),
        // An alternative fits if all that speaks against it was there before.
        (r#"{"any":{"x":"xx"}}"#, r#"{"any":{"x":"xx","y":"y"}}"#, &[]),
        (r#"{"a":1}"#, r#"{"a":1,"b":"b"}"#, &[]),
        (r#"{}"#, r#"{"a":"aa"}"#, &["a"]),
    ];
    for (old, new, paths) in rows {
        let expected = long(paths);
        check_update(old, new, &expected.iter().map(String::as_str).collect::<Vec<_>>());
    }
    check_update(r#"{"set":["a"]}"#, r#"{"set":["a","a"]}"#, &[r#"spec.set[1]: Duplicate value: "a""#]);
    check_update(
        r#"{"any":{"x":"xx"}}"#,
        r#"{"any":{"x":"xxx"}}"#,
        &[
            r#"<nil>: Invalid value: "": "spec.any" must validate at least one schema (anyOf)"#,
            "spec.any.x: Too long: may not be more than 1 byte",
        ],
    );
}

#[test]
fn a_status_is_checked_alone() {
    let schema = compiled(
        r#"{"type":"object","required":["root"],"properties":{"spec":{"type":"string"},"status":{"type":"object",
            "properties":{"phase":{"type":"string"},"old":{"type":"string"}}}}}"#,
    );
    let check = |status: &str, expected: &[&str]| {
        let object =
            |status: &str| Value::parse(format!(r#"{{"spec":1,"status":{status}}}"#).as_bytes()).unwrap();
        let mut errors = Vec::new();
        validate_status(schema.node(), &object(status), &object(r#"{"old":1}"#), &mut errors);
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), expected, "{status}");
    };
    check(r#"{"old":1,"phase":"x"}"#, &[]);
    check(
        r#"{"phase":1}"#,
        &[r#"status.phase: Invalid value: "integer": phase in body must be of type string: "integer""#],
    );
    check("1", &[r#"status: Invalid value: "integer":  in body must be of type object: "integer""#]);
}

#[test]
fn types() {
    let integer = r#"{"type":"integer"}"#;
    check(integer, "1", &[]);
    check(integer, "1.0", &[]);
    check(
        integer,
        r#""a""#,
        &[r#"spec.x: Invalid value: "string": spec.x in body must be of type integer: "string""#],
    );
    check(
        integer,
        "1.5",
        &[r#"spec.x: Invalid value: "number": spec.x in body must be of type integer: "number""#],
    );
    check(
        integer,
        "null",
        &[r#"spec.x: Invalid value: "null": spec.x in body must be of type integer: "null""#],
    );
    check(r#"{"type":"integer","nullable":true}"#, "null", &[]);
    check(r#"{"type":"number"}"#, "1", &[]);
    check(
        r#"{"type":"object"}"#,
        "[]",
        &[r#"spec.x: Invalid value: "array": spec.x in body must be of type object: "array""#],
    );
    check(r#"{"x-kubernetes-int-or-string":true}"#, r#""1""#, &[]);
    check(
        r#"{"x-kubernetes-int-or-string":true}"#,
        "true",
        &[r#"spec.x: Invalid value: "boolean": spec.x in body must be of type integer,string: "boolean""#],
    );
    check(r#"{"x-kubernetes-preserve-unknown-fields":true}"#, "[1]", &[]);
}

#[test]
fn formats() {
    let date = r#"{"type":"string","format":"date"}"#;
    check(date, r#""2024-01-01""#, &[]);
    check(date, r#""x""#, &[r#"spec.x: Invalid value: "x": spec.x in body must be of type date: "x""#]);
    check(date, "1", &[r#"spec.x: Invalid value: "int64": spec.x in body must be of type date: "int64""#]);
    check(r#"{"type":"integer","format":"int32"}"#, "3000000000", &[]);
    check(r#"{"type":"string","format":"made-up"}"#, r#""x""#, &[]);
}

#[test]
fn strings() {
    check(
        r#"{"type":"string","maxLength":2}"#,
        r#""äöü""#,
        &["spec.x: Too long: may not be more than 2 bytes"],
    );
    check(
        r#"{"type":"string","minLength":3}"#,
        r#""ab""#,
        &[r#"spec.x: Invalid value: "ab": spec.x in body should be at least 3 chars long"#],
    );
    check(
        r#"{"type":"string","pattern":"^a+$"}"#,
        r#""b""#,
        &[r#"spec.x: Invalid value: "b": spec.x in body should match '^a+$'"#],
    );
    check(
        r#"{"type":"string","enum":["A","B"]}"#,
        r#""C""#,
        &[r#"spec.x: Unsupported value: "C": supported values: "A", "B""#],
    );
}

#[test]
fn numbers() {
    let bounded = r#"{"type":"number","minimum":1,"maximum":10,"exclusiveMaximum":true,"multipleOf":0.5}"#;
    check(bounded, "1.5", &[]);
    check(
        bounded,
        "0.5",
        &["spec.x: Invalid value: 0.5: spec.x in body should be greater than or equal to 1"],
    );
    check(bounded, "10.5", &["spec.x: Invalid value: 10.5: spec.x in body should be less than 10"]);
    check(bounded, "1.3", &["spec.x: Invalid value: 1.3: spec.x in body should be a multiple of 0.5"]);
    check(
        bounded,
        "2",
        &["spec.x: Invalid value: 0: factor MultipleOf declared for spec.x must be positive: 0"],
    );
    check(r#"{"type":"integer","enum":[1,2]}"#, "2.0", &[]);
    check(
        r#"{"type":"integer","enum":[1,2]}"#,
        "3",
        &[r#"spec.x: Unsupported value: 3: supported values: "1", "2""#],
    );
}

#[test]
fn lists_and_maps() {
    let list = r#"{"type":"array","minItems":1,"maxItems":2,"items":{"type":"string"}}"#;
    check(list, "[]", &["spec.x: Invalid value: 0: spec.x in body should have at least 1 items"]);
    check(list, r#"["a","b","c"]"#, &["spec.x: Too many: 3: must have at most 2 items"]);
    check(
        list,
        "[1]",
        &[r#"spec.x[0]: Invalid value: "integer": spec.x[0] in body must be of type string: "integer""#],
    );
    let map =
        r#"{"type":"object","minProperties":1,"maxProperties":1,"additionalProperties":{"type":"boolean"}}"#;
    check(map, "{}", &["spec.x: Invalid value: 0: spec.x in body should have at least 1 properties"]);
    check(map, r#"{"a":true,"b":true}"#, &["spec.x: Too many: 2: must have at most 1 item"]);
    check(
        map,
        r#"{"a":1}"#,
        &[r#"spec.x.a: Invalid value: "integer": spec.x.a in body must be of type boolean: "integer""#],
    );
    check(
        r#"{"type":"object","additionalProperties":false}"#,
        r#"{"a":1}"#,
        &[r#"spec.x: Invalid value: "a": spec.x.a in body is a forbidden property"#],
    );
    check(
        r#"{"type":"object","required":["a"],"properties":{"a":{"type":"string"}}}"#,
        "{}",
        &["spec.x.a: Required value"],
    );
}

#[test]
fn combinations() {
    let object = |rest: &str| {
        format!(
            r#"{{"type":"object","properties":{{"a":{{"type":"string"}},"b":{{"type":"string"}}}},{rest}}}"#
        )
    };
    let one_of = object(r#""oneOf":[{"required":["a"]},{"required":["b"]}]"#);
    check(&one_of, r#"{"a":""}"#, &[]);
    check(
        &one_of,
        "{}",
        &[
            r#"<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found none valid"#,
            "spec.x.a: Required value",
        ],
    );
    check(
        &one_of,
        r#"{"a":"","b":""}"#,
        &[
            r#"<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
        ],
    );
    check(
        &object(r#""anyOf":[{"required":["a"]},{"required":["b"]}]"#),
        "{}",
        &[
            r#"<nil>: Invalid value: "": "spec.x" must validate at least one schema (anyOf)"#,
            "spec.x.a: Required value",
        ],
    );
    check(
        &object(r#""allOf":[{"required":["a"]},{"required":["b"]}]"#),
        r#"{"b":""}"#,
        &[
            "spec.x.a: Required value",
            r#"<nil>: Invalid value: "": "spec.x" must validate all the schemas (allOf)"#,
        ],
    );
    check(
        &object(r#""not":{"required":["a"]}"#),
        r#"{"a":""}"#,
        &[r#"<nil>: Invalid value: "": "spec.x" must not validate the schema (not)"#],
    );
}

#[test]
fn errors_and_time_are_bounded() {
    let alternatives = vec![r#"{"minimum":5}"#; 2000].join(",");
    let schema = compiled(&format!(
        r#"{{"type":"object","properties":{{"l":{{"type":"array","items":{{"type":"integer","anyOf":[{alternatives}]}}}}}}}}"#
    ));
    let list = vec!["1"; 50_000].join(",");
    let value = Value::parse(format!(r#"{{"l":[{list}]}}"#).as_bytes()).unwrap();
    let mut validator = Validator::new(&FieldPath::ROOT);
    validator.steps_left = 10_000;
    let mut errors = Vec::new();
    validator.validate(schema.node(), &value, &mut errors);
    assert!(errors.last().unwrap().to_string().contains("takes too long"));
    let mut errors = Vec::new();
    let schema =
        compiled(r#"{"type":"object","properties":{"l":{"type":"array","items":{"type":"string"}}}}"#);
    validate(schema.node(), &value, &FieldPath::ROOT, &mut errors);
    assert_eq!(errors.len(), ERRORS_MAX + 1);
    let last = errors.last().unwrap().to_string();
    assert!(last.contains("too many errors; only the first 100 are listed"), "{last}");
}

#[test]
fn long_keys_do_not_make_long_answers() {
    let schema = compiled(
        r#"{"type":"object","properties":{"m":{"type":"object","additionalProperties":{"type":"object",
            "additionalProperties":{"type":"array","items":{"type":"string"}}}}}}"#,
    );
    let key = "k".repeat(1 << 18);
    let map = |value: Value| Value::Object([(key.as_str().into(), value)].into_iter().collect());
    let list = Value::Array(vec![Value::Int(1); 1000]);
    let value = Value::Object([("m".into(), map(map(list)))].into_iter().collect());
    let mut errors = Vec::new();
    validate(schema.node(), &value, &FieldPath::ROOT, &mut errors);
    assert!(!errors.is_empty());
    assert!(errors.iter().map(|error| error.to_string().len()).sum::<usize>() < 500_000);
}
