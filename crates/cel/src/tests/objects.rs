//! Objects that expressions make: what compiles, what comes out as JSON, and what it may cost.

use polder_model::{Value as Json, json};

use crate::{Bindings, Budget, Environment, NotJson, Type, Value};

fn environment() -> Environment {
    Environment::new().variable_of("x", Type::Dyn).with_objects()
}

/// The result as JSON, `error: ...` from running or writing, or `compile: ...` and the first line.
fn run(source: &str) -> String {
    let document = json!({"a": 1, "l": [1, {"b": "c"}], "m": {"k": "v"}});
    let program = match environment().compile(source) {
        Ok(program) => program,
        Err(error) => {
            return format!("compile: {}", error.to_string().lines().next().unwrap_or_default());
        }
    };
    let bindings = Bindings::new().with(Value::json(&document));
    match program.evaluate(&bindings, Budget::default()).value {
        Ok(value) => {
            value.to_json(10_000).map_or_else(|error| format!("error: {error}"), |json| json.to_string())
        }
        Err(fault) => format!("error: {fault}"),
    }
}

#[track_caller]
fn check(source: &str, expected: &str) {
    assert_eq!(run(source), expected, "{source}");
}

#[test]
fn objects_become_json() {
    check("Object{}", "{}");
    check(
        "Object{spec: Object.spec{replicas: x.a + 2, paused: true, none: null}}",
        r#"{"spec":{"none":null,"paused":true,"replicas":3}}"#,
    );
    check(
        "Object{metadata: Object.metadata{labels: {'a': 'b', string(x.m.k): string(x.a)}}, list: x.l + [dyn(2.5)]}",
        r#"{"list":[1,{"b":"c"},2.5],"metadata":{"labels":{"a":"b","v":"1"}}}"#,
    );
    check(
        "Object{c: [Object.c{name: 'a'}], d: x.l.map(i, Object.d{at: i}), when: timestamp('2021-01-01T00:00:00Z'), long: duration('90s')}",
        r#"{"c":[{"name":"a"}],"d":[{"at":1},{"at":{"b":"c"}}],"long":"90s","when":"2021-01-01T00:00:00Z"}"#,
    );
    check("Object{?a: x.?none, ?b: x.?a, c: b'hi'}", r#"{"b":1,"c":"aGk="}"#);
    check("Object{a: 1, a: 2}", r#"{"a":2}"#);
    check("Object{a: 9007199254740993}", r#"{"a":9007199254740993}"#);
    check("9007199254740993", r#""9007199254740993""#);
    check("x", r#"{"a":1,"l":[1,{"b":"c"}],"m":{"k":"v"}}"#);
}

#[test]
fn names_must_match_where_objects_stand() {
    check(
        "Object{spec: Object.wrong{a: 1}}",
        r#"error: type mismatch: unexpected type name "Object.wrong", expected "Object.spec", which matches field name path from root Object type"#,
    );
    check(
        "Object{c: [Object.c.d{}]}",
        r#"error: type mismatch: unexpected type name "Object.c.d", expected "Object.c", which matches field name path from root Object type"#,
    );
    check("Object.spec{a: Object.spec.a{}}", r#"{"a":{}}"#);
    check("[Object.any{a: Object.other{}}]", r#"[{"a":{}}]"#);
}

#[test]
fn what_does_not_fit_is_told() {
    check("Foo{a: 1}", "compile: ERROR: <input>:1:4: undeclared reference to 'Foo' (in container '')");
    check("Objects{}", "compile: ERROR: <input>:1:8: undeclared reference to 'Objects' (in container '')");
    check("int{}", "compile: ERROR: <input>:1:4: 'int' is not a message type");
    check(
        "JSONPatch{op: 1}",
        "compile: ERROR: <input>:1:13: expected type of field 'op' is 'string' but provided type is 'int'",
    );
    check("JSONPatch{op: dyn(1)}", "error: unexpected type int64 for JSONPatchType 'op' field");
    check("Object{a: 1}.a", "error: no such key: a");
    check("Object{a: optional.none()}", "error: optional.none() dereference");
    check("Object{a: {1: 2}}", r#"error: map key "1" is of type int, not string"#);
    check(
        "Object{?a: 1}",
        "compile: ERROR: <input>:1:12: expected type 'optional_type(int)' but found 'int'",
    );
    check("Object{a: ip('1.2.3.4')}", "error: unsupported type: net.IP");
    let plain = Environment::new().variable_of("x", Type::Dyn);
    for source in ["Object{}", "JSONPatch{}", "jsonpatch.escapeKey('a')"] {
        assert!(plain.compile(source).is_err(), "{source}");
    }
}

#[test]
fn patches_have_types_and_keys_are_escaped() {
    let result = |source: &str| environment().compile(source).unwrap().result().to_string();
    assert_eq!(result("[JSONPatch{op: 'add', path: '/a', value: Object.a{}}]"), "list(JSONPatch)");
    assert_eq!(result("x.a == 1 ? [JSONPatch{op: 'test'}] : []"), "list(JSONPatch)");
    assert_eq!(result("Object.spec{}"), "Object.spec");
    check(
        "[Object.a{}, Object.b{}]",
        "compile: ERROR: <input>:1:22: expected type 'Object.a' but found 'Object.b'",
    );
    check("jsonpatch.escapeKey('a/b~c')", r#""a~1b~0c""#);
    check("Object{a: Object.a{b: 1}} == Object{a: Object.a{b: 1}}", "true");
    check("dyn(Object{a: 1}) == dyn(Object{a: 2}) || dyn(Object{}) == dyn({})", "false");
}

#[test]
fn objects_cost_as_upstream_counts() {
    let program = environment().compile("Object{a: Object.a{b: 1}, c: [1]}").unwrap();
    let bindings = Bindings::new().with(Value::Null);
    assert_eq!(program.evaluate(&bindings, Budget::default()).cost, 80);
    assert_eq!(program.cost_estimate().max, 90);
}

#[test]
fn what_is_written_is_bounded() {
    let document = json!({"a": ("x".repeat(1000))});
    let doubled = "[[x.a, x.a], [x.a, x.a]].map(i, [i, i]).map(i, [i, i]).map(i, [i, i])";
    let program = environment().compile(doubled).unwrap();
    let bindings = Bindings::new().with(Value::json(&document));
    let value = program.evaluate(&bindings, Budget::default()).value.unwrap();
    assert_eq!(value.to_json(10_000), Err(NotJson::TooLarge));
    assert!(value.to_json(100_000).is_ok());
    let deep = format!("{}1{}", "[".repeat(130), "]".repeat(130));
    let deep = environment().compile(&deep).unwrap();
    let value: Result<Json, NotJson> =
        deep.evaluate(&bindings, Budget::default()).value.unwrap().to_json(10_000);
    assert_eq!(value, Err(NotJson::TooLarge));
}

#[test]
fn values_that_others_build_on_are_bounded() {
    let mut value = Value::Int(1);
    for depth in 0..1005 {
        assert_eq!(value.is_bounded(), depth <= 1001, "{depth}");
        value = Value::list(vec![value]);
    }
    let mut shared = Value::Int(1);
    for _ in 0..40 {
        shared = Value::list(vec![shared.clone(), shared]);
    }
    assert!(!shared.is_bounded(), "it would be looked at for years");
}
