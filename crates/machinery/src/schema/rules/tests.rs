//! Rules as rows: a schema, a rule, objects before and after, and what is said.

use polder_model::{FieldError, FieldPath, Value};

use crate::schema::Schema;
use crate::schema::structural::tests::{compiled, object_meta};
use crate::schema::structural::{compile_stored, structural_problems};
use crate::schema::validate::{validate, validate_update};

fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// A schema with rules at the spec, whose properties are given.
fn schema(properties: &str, rules: &str) -> String {
    format!(
        r#"{{"type":"object","properties":{{"spec":{{"type":"object","properties":{{{properties}}},"x-kubernetes-validations":[{rules}]}}}}}}"#
    )
}

fn judged(schema: &Schema, new: &str, old: Option<&str>) -> Vec<String> {
    let object = |text: &str| Value::parse(format!(r#"{{"spec":{text}}}"#).as_bytes()).unwrap();
    let mut errors = Vec::new();
    match old {
        None => validate(schema.node(), &object(new), &FieldPath::ROOT, &mut errors),
        Some(old) => validate_update(schema.node(), &object(new), &object(old), &mut errors),
    }
    texts(&errors)
}

const PROPERTIES: &str = r#"
    "n":{"type":"integer"},"m":{"type":"integer"},"s":{"type":"string","maxLength":20},
    "tags":{"type":"object","maxProperties":10,"additionalProperties":{"type":"string","maxLength":10}},
    "port":{"x-kubernetes-int-or-string":true},"when":{"type":"string","format":"date-time"}"#;

#[track_caller]
fn check(rule: &str, new: &str, old: Option<&str>, expected: &[&str]) {
    let schema = compiled(&schema(PROPERTIES, rule));
    assert_eq!(judged(&schema, new, old), expected, "{rule} on {new}");
}

#[test]
fn objects_are_judged() {
    check(r#"{"rule":"self.n < self.m"}"#, r#"{"n":1,"m":2}"#, None, &[]);
    check(
        r#"{"rule":"self.n < self.m"}"#,
        r#"{"n":3,"m":2}"#,
        None,
        &["spec: Invalid value: failed rule: self.n < self.m"],
    );
    check(
        r#"{"rule":"self.n < self.m","message":"n must be less"}"#,
        r#"{"n":3,"m":2}"#,
        None,
        &["spec: Invalid value: n must be less"],
    );
    check(
        r#"{"rule":"self.n < self.m","messageExpression":"'%d is not less than %d'.format([self.n, self.m])"}"#,
        r#"{"n":3,"m":2}"#,
        None,
        &["spec: Invalid value: 3 is not less than 2"],
    );
    check(
        r#"{"rule":"false","message":"plain","messageExpression":"'a' + '\\n' + 'b'"}"#,
        "{}",
        None,
        &["spec: Invalid value: plain"],
    );
    check(
        r#"{"rule":"self.n < 5","fieldPath":".n","reason":"FieldValueForbidden","message":"too much"}"#,
        r#"{"n":7}"#,
        None,
        &["spec.n: Forbidden: too much"],
    );
    check(
        r#"{"rule":"has(self.s)","fieldPath":".s","reason":"FieldValueRequired","message":"say s"}"#,
        "{}",
        None,
        &["spec.s: Required value: say s"],
    );
    check(
        r#"{"rule":"self.s != 'x'","fieldPath":".tags['a.b']","message":"m"}"#,
        r#"{"s":"x"}"#,
        None,
        &["spec.tags[a.b]: Invalid value: m"],
    );
    check(r#"{"rule":"self.tags.all(k, self.tags[k] != k)"}"#, r#"{"tags":{"a":"b"}}"#, None, &[]);
    check(
        r#"{"rule":"type(self.port) == int ? self.port > 0 : self.port.endsWith('%')"}"#,
        r#"{"port":"5"}"#,
        None,
        &[
            "spec: Invalid value: failed rule: type(self.port) == int ? self.port > 0 : self.port.endsWith('%')",
        ],
    );
    check(
        r#"{"rule":"self.when < timestamp('2022-01-01T00:00:00Z')"}"#,
        r#"{"when":"2021-01-01T00:00:00Z"}"#,
        None,
        &[],
    );
}

#[test]
fn rules_stand_anywhere() {
    let properties = r#"
        "n":{"type":"integer","x-kubernetes-validations":[{"rule":"self > 5"}]},
        "ss":{"type":"array","items":{"type":"string","x-kubernetes-validations":[{"rule":"self != 'x'"}]}},
        "mm":{"type":"object","additionalProperties":{"type":"integer","x-kubernetes-validations":[{"rule":"self > 1","reason":"FieldValueDuplicate"}]}}"#;
    let schema = compiled(&schema(properties, ""));
    let object = r#"{"n":3,"ss":["a","x"],"mm":{"k":1}}"#;
    let [n, ss, mm] = [
        "spec.n: Invalid value: 3: failed rule: self > 5",
        r#"spec.ss[1]: Invalid value: "x": failed rule: self != 'x'"#,
        "spec.mm[k]: Duplicate value: 1",
    ];
    assert_eq!(judged(&schema, object, None), [mm, n, ss]);
    assert_eq!(judged(&schema, object, Some(object)), Vec::<String>::new());
    // A list without keys is excused only as a whole.
    assert_eq!(
        judged(&schema, r#"{"n":3,"ss":["x","a"],"mm":{"k":1,"j":0}}"#, Some(object)),
        ["spec.mm[j]: Duplicate value: 0", r#"spec.ss[0]: Invalid value: "x": failed rule: self != 'x'"#]
    );
    assert_eq!(
        judged(&schema, r#"{"n":null,"ss":[null],"mm":{"k":null}}"#, Some(object)).len(),
        4,
        "the schema's own errors"
    );
}

#[test]
fn rules_that_fail_are_errors() {
    check(
        r#"{"rule":"self.n > 0"}"#,
        "{}",
        None,
        &[r#"spec: Invalid value: "object": no such key: n evaluating rule: self.n > 0"#],
    );
    check(
        r#"{"rule":"self.n / 0 > 0","message":"m"}"#,
        r#"{"n":1}"#,
        None,
        &[r#"spec: Invalid value: "object": division by zero evaluating rule: m"#],
    );
    check(
        r#"{"rule":"self.port > 3"}"#,
        r#"{"port":"x"}"#,
        None,
        &[
            r#"spec: Invalid value: "object": 'no such overload': call arguments did not match a supported operator, function or macro signature for rule: self.port > 3"#,
        ],
    );
}

#[test]
fn wrong_objects_are_not_judged() {
    check(
        r#"{"rule":"self.n > 0"}"#,
        r#"{"n":"x"}"#,
        None,
        &[
            r#"spec.n: Invalid value: "string": spec.n in body must be of type integer: "string""#,
            r#"<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"#,
        ],
    );
}

#[test]
fn transitions() {
    let rule = r#"{"rule":"self.n >= oldSelf.n"}"#;
    check(rule, r#"{"n":1}"#, None, &[]);
    check(rule, r#"{"n":2}"#, Some(r#"{"n":1}"#), &[]);
    check(rule, r#"{"n":1}"#, Some(r#"{"n":2}"#), &["spec: Invalid value: failed rule: self.n >= oldSelf.n"]);
    let rule = r#"{"rule":"oldSelf.hasValue() || self.n == 0","optionalOldSelf":true}"#;
    check(rule, r#"{"n":1}"#, None, &["spec: Invalid value: failed rule: oldSelf.hasValue() || self.n == 0"]);
    check(rule, r#"{"n":1}"#, Some(r#"{"n":2}"#), &[]);
    // What an update leaves alone is not held against it, unless the rule is about the change.
    check(r#"{"rule":"self.n < 5"}"#, r#"{"n":7}"#, Some(r#"{"n":7}"#), &[]);
    check(
        r#"{"rule":"self.n < 5"}"#,
        r#"{"n":7,"m":1}"#,
        Some(r#"{"n":7}"#),
        &["spec: Invalid value: failed rule: self.n < 5"],
    );
    check(
        r#"{"rule":"self.n != oldSelf.n"}"#,
        r#"{"n":7}"#,
        Some(r#"{"n":7}"#),
        &["spec: Invalid value: failed rule: self.n != oldSelf.n"],
    );
}

#[test]
fn elements_are_correlated_by_key() {
    let list = |list_type: &str, rule: &str| {
        format!(
            r#"{{"type":"object","properties":{{"spec":{{"type":"object","properties":{{"l":{{"type":"array","maxItems":5,{list_type}
            "items":{{"type":"object","required":["name"],"properties":{{"name":{{"type":"string","maxLength":9}},"v":{{"type":"integer"}}}},
            "x-kubernetes-validations":[{rule}]}}}}}}}}}}}}"#
        )
    };
    let keyed = r#""x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],"#;
    let schema = compiled(&list(keyed, r#"{"rule":"self.v >= oldSelf.v"}"#));
    let old = r#"{"l":[{"name":"a","v":1},{"name":"b","v":5}]}"#;
    assert_eq!(
        judged(&schema, r#"{"l":[{"name":"b","v":5},{"name":"a","v":2},{"name":"c","v":0}]}"#, Some(old)),
        Vec::<String>::new()
    );
    assert_eq!(
        judged(&schema, r#"{"l":[{"name":"b","v":4},{"name":"a","v":0}]}"#, Some(old)),
        [
            "spec.l[0]: Invalid value: failed rule: self.v >= oldSelf.v",
            "spec.l[1]: Invalid value: failed rule: self.v >= oldSelf.v"
        ]
    );
    let source = Value::parse(list("", r#"{"rule":"self.v >= oldSelf.v"}"#).as_bytes()).unwrap();
    assert_eq!(
        texts(&structural_problems(&source, &FieldPath::root("s"))),
        [
            r#"s.properties[spec].properties[l].items.x-kubernetes-validations[0].rule: Invalid value: "self.v >= oldSelf.v": oldSelf cannot be used on the uncorrelatable portion of the schema within s.properties[spec].properties[l]"#
        ]
    );
}

#[track_caller]
fn refused(schema: &str, expected: &[&str]) {
    let schema = Value::parse(schema.as_bytes()).unwrap();
    assert_eq!(texts(&structural_problems(&schema, &FieldPath::root("s"))), expected);
}

#[test]
fn wrong_rules_are_refused() {
    refused(
        &schema(PROPERTIES, r#"{"rule":"self.q > 0"}"#),
        &[
            "s.properties[spec].x-kubernetes-validations[0].rule: Invalid value: {\"Rule\":\"self.q \\u003e 0\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}: compilation failed: ERROR: <input>:1:5: undefined field 'q'\n | self.q > 0\n | ....^",
        ],
    );
    refused(
        &schema(PROPERTIES, r#"{"rule":"self.n"}"#),
        &[
            "s.properties[spec].x-kubernetes-validations[0].rule: Invalid value: {\"Rule\":\"self.n\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}: cel expression must evaluate to a bool",
        ],
    );
    refused(
        &schema(PROPERTIES, r#"{"rule":"self.n > 0","messageExpression":"self.n"}"#),
        &[
            "s.properties[spec].x-kubernetes-validations[0].messageExpression: Invalid value: {\"Rule\":\"self.n \\u003e 0\",\"Message\":\"\",\"MessageExpression\":\"self.n\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}: messageExpression must evaluate to a string",
        ],
    );
    refused(
        &schema(PROPERTIES, r#"{"rule":"self.n > 0","optionalOldSelf":true}"#),
        &[
            "s.properties[spec].x-kubernetes-validations[0].optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule",
        ],
    );
    refused(
        r#"{"type":"object","x-kubernetes-validations":[{"rule":"self.metadata.name.size() < 10 && self.kind != '' && self.metadata.labels.size() > 0"}]}"#,
        &[
            "s.x-kubernetes-validations[0].rule: Invalid value: {\"Rule\":\"self.metadata.name.size() \\u003c 10 \\u0026\\u0026 self.kind != '' \\u0026\\u0026 self.metadata.labels.size() \\u003e 0\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}: compilation failed: ERROR: <input>:1:67: undefined field 'labels'\n | self.metadata.name.size() < 10 && self.kind != '' && self.metadata.labels.size() > 0\n | ..................................................................^",
        ],
    );
}

#[test]
fn stored_rules_that_do_not_compile_are_errors_of_objects() {
    let source = schema(PROPERTIES, r#"{"rule":"self.q > 0"},{"rule":"self.n > 0"}"#);
    let source = Value::parse(source.as_bytes()).unwrap();
    let schema = compile_stored(&source, &object_meta()).unwrap();
    let said = judged(&schema, r#"{"n":0}"#, None);
    assert_eq!(said.len(), 2);
    assert!(
        said[0]
            .starts_with(r#"spec: Invalid value: "object": rule compile error: compilation failed: ERROR"#),
        "{said:?}"
    );
    assert!(compile_stored(&Value::parse(b"{}").unwrap(), &object_meta()).is_err());
}

const HINT: &str = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)";

#[test]
fn expensive_rules_are_refused() {
    let unbounded = r#""l":{"type":"array","items":{"type":"string"}}"#;
    refused(
        &schema(unbounded, r#"{"rule":"self.l.all(a, self.l.all(b, a == b))"}"#),
        &[
            &format!(
                "s.properties[spec].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x {HINT}"
            ),
            "s.properties[spec].x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema",
            &format!(
                "s: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of more than 100x {HINT}"
            ),
        ],
    );
    refused(
        &schema(
            r#""l":{"type":"array","maxItems":1400,"items":{"type":"string","maxLength":10}}"#,
            r#"{"rule":"self.l.all(a, self.l.all(b, a == b))"}"#,
        ),
        &[&format!(
            "s.properties[spec].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of 1.8x {HINT}"
        )],
    );
    refused(
        &schema(
            r#""l":{"type":"array","maxItems":100,"items":{"type":"string","maxLength":10}}"#,
            r#"{"rule":"self.l.all(a, self.l.all(b, a == b))"}"#,
        ),
        &[],
    );
}

#[test]
fn running_costs_are_bounded() {
    // Every element may cost a little, but not all of them together.
    let schema = compiled(&schema(
        r#""l":{"type":"array","items":{"type":"string"}}"#,
        r#"{"rule":"self.l.all(a, a.size() > 0)"}"#,
    ));
    let items = vec![r#""x""#; 300_000].join(",");
    let errors = judged(&schema, &format!(r#"{{"l":[{items}]}}"#), None);
    assert_eq!(
        errors,
        [
            r#"spec: Invalid value: "object": 'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: self.l.all(a, a.size() > 0)"#
        ]
    );
}

#[test]
fn the_memory_of_rules_is_bounded() {
    let rule = r#"{"rule":"self.s.matches('^([a-z]{1,50}[0-9]{1,50}){1,20}$')"}"#;
    let rules = vec![rule; 200].join(",");
    let source = Value::parse(schema(PROPERTIES, &rules).as_bytes()).unwrap();
    let problems = texts(&structural_problems(&source, &FieldPath::root("s")));
    assert!(
        problems.iter().any(|text| text.ends_with("the rules of the schema are too large together")),
        "{problems:?}"
    );
}
