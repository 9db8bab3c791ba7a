//! Answers, believed or not, as upstream does it.

use super::*;

const QUESTION: Question<'static> =
    Question { version: ReviewVersion::V1, uid: "u", desired: "stable.example.com/v2" };
const KIND: &str = "stable.example.com/v1, Kind=Widget";

fn parse(text: &str) -> Value {
    Value::parse(text.as_bytes()).unwrap()
}

fn original() -> Value {
    parse(
        r#"{"apiVersion":"stable.example.com/v1","kind":"Widget","spec":{"a":1},"metadata":{"name":"w","namespace":"n",
            "uid":"1","resourceVersion":"7","generation":2,"labels":{"l":"x"},"finalizers":["f.io/f"]}}"#,
    )
}

fn review(response: &str) -> String {
    format!(r#"{{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","response":{response}}}"#)
}

fn converted(objects: &str) -> String {
    review(&format!(r#"{{"uid":"u","result":{{"status":"Success"}},"convertedObjects":[{objects}]}}"#))
}

fn object(metadata: &str) -> String {
    format!(
        r#"{{"kind":"Widget","apiVersion":"stable.example.com/v2","metadata":{metadata},"spec":{{"b":1}}}}"#
    )
}

#[track_caller]
fn check(body: &str, expected: &str) {
    let found = match read(QUESTION, &[original()], body.as_bytes()) {
        Ok(objects) => objects[0].to_string(),
        Err(error) => error.to_string().replace(KIND, "KIND"),
    };
    assert_eq!(found, expected, "{body}");
}

#[test]
fn a_webhook_decides_about_labels_annotations_and_the_rest() {
    let rest = r#""name":"w","namespace":"n","uid":"1""#;
    let whole = |metadata: &str| {
        parse(&format!(
            r#"{{"kind":"Widget","apiVersion":"stable.example.com/v2","spec":{{"b":1}},"metadata":{metadata}}}"#
        ))
        .to_string()
    };
    let kept = r#""name":"w","namespace":"n","uid":"1","resourceVersion":"7","generation":2,"finalizers":["f.io/f"]"#;
    let same = |found: &str, expected: &str| {
        let body = converted(&object(found));
        let found = read(QUESTION, &[original()], body.as_bytes()).unwrap().remove(0);
        assert_eq!(found, parse(&whole(expected)), "{body}");
    };
    same(&format!("{{{rest}}}"), &format!("{{{kept}}}"));
    same(
        &format!(
            r#"{{{rest},"labels":{{"l":"y"}},"annotations":{{"a":"b"}},"generation":9,"finalizers":[]}}"#
        ),
        &format!(r#"{{{kept},"labels":{{"l":"y"}},"annotations":{{"a":"b"}}}}"#),
    );
    same(&format!(r#"{{{rest},"labels":null,"ownerReferences":[{{}}]}}"#), &format!("{{{kept}}}"));
}

#[test]
fn answers_that_are_not_believed() {
    let own = r#""name":"w","namespace":"n","uid":"1""#;
    let rows = [
        (
            "nothing",
            "conversion webhook for KIND failed: couldn't get version/kind; json parse error: expected ident at line 1 column 2",
        ),
        (
            "{}",
            "conversion webhook for KIND failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind=",
        ),
        (
            "",
            "conversion webhook for KIND failed: 0-length response with status code: 200 and content type: application/json",
        ),
        (
            "[]",
            r#"conversion webhook for KIND failed: couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#,
        ),
        (
            r#"{"kind":"Pod","apiVersion":"v1"}"#,
            r#"conversion webhook for KIND failed: no kind "Pod" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111""#,
        ),
        (
            r#"{"kind":"Status","apiVersion":"v1"}"#,
            "conversion webhook for KIND failed: converting (v1.Status) to (v1.ConversionReview): unknown conversion",
        ),
        (
            r#"{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1beta1"}"#,
            "conversion webhook for KIND failed: converting (v1beta1.ConversionReview) to (v1.ConversionReview): unknown conversion",
        ),
        (&converted("\"x\""), "json: cannot unmarshal string into Go value of type map[string]interface {}"),
        (
            &converted(r#"{"kind":"Widget","apiVersion":"a/b/c"}"#),
            r#"Object 'Kind' is missing in '{"apiVersion":"a/b/c","kind":"Widget"}'"#,
        ),
        (&review("null"), "conversion webhook for KIND failed: no response provided"),
        (
            &review(r#"{"uid":"v"}"#),
            r#"conversion webhook for KIND failed: expected response.uid="u", got "v""#,
        ),
        (
            &review(r#"{"uid":"u"}"#),
            "conversion webhook for KIND failed: response.result.status was '', not 'Success'",
        ),
        (
            &review(r#"{"uid":"u","result":{"status":"Failure","message":"cannot"}}"#),
            "conversion webhook for KIND failed: cannot",
        ),
        (&converted(""), "conversion webhook for KIND returned 0 objects, expected 1"),
        (&converted("{},{}"), "conversion webhook for KIND returned 2 objects, expected 1"),
        (&converted("null"), "unexpected end of JSON input"),
        (&converted("{}"), "Object 'Kind' is missing in '{}'"),
        (
            &converted(r#"{"kind":"Widget","apiVersion":"stable.example.com/v1"}"#),
            "conversion webhook for KIND returned invalid object at index 0: invalid groupVersion (expected stable.example.com/v2, received stable.example.com/v1)",
        ),
        (
            &converted(r#"{"kind":"Gadget","apiVersion":"stable.example.com/v2"}"#),
            "conversion webhook for KIND returned invalid object at index 0: invalid kind (expected Widget, received Gadget)",
        ),
        (
            &converted(r#"{"kind":"Widget","apiVersion":"stable.example.com/v2"}"#),
            "conversion webhook for KIND returned invalid object: must have the same name: w != ",
        ),
        (
            &converted(&object(r#"{"name":"w"}"#)),
            "conversion webhook for KIND returned invalid object: must have the same namespace: n != ",
        ),
        (
            &converted(&object(r#"{"name":"w","namespace":"n","uid":"2"}"#)),
            "conversion webhook for KIND returned invalid object: must have the same UID: 1 != 2",
        ),
        (
            &converted(&object(&format!(r#"{{{own},"labels":[]}}"#))),
            "conversion webhook for KIND returned invalid metadata: invalid metadata.labels of type []interface {} in converted object",
        ),
        (
            &converted(&object(&format!(r#"{{{own},"annotations":{{"a":1}}}}"#))),
            "conversion webhook for KIND returned invalid metadata: metadata.annotations[a] must be a string, but is int64 in converted object",
        ),
        (
            &converted(&object(&format!(r#"{{{own},"labels":{{"l":"no spaces"}}}}"#))),
            "conversion webhook for KIND returned invalid metadata: metadata.labels: Invalid value: \"no spaces\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ),
    ];
    for (body, expected) in rows {
        check(body, expected);
    }
}

#[test]
fn the_old_form_is_believed_more_easily() {
    let question = Question { version: ReviewVersion::V1beta1, ..QUESTION };
    let own = object(r#"{"name":"w","namespace":"n","uid":"1"}"#);
    let body = format!(r#"{{"response":{{"result":{{"status":"Success"}},"convertedObjects":[{own}]}}}}"#);
    assert_eq!(read(question, &[original()], body.as_bytes()).unwrap().len(), 1);
}

#[test]
fn a_question_has_all_it_needs() {
    let asked = parse(std::str::from_utf8(&ask(QUESTION, &[original(), original()])).unwrap());
    assert_eq!(asked.str_at(&["apiVersion"]), Some("apiextensions.k8s.io/v1"));
    assert_eq!(asked.str_at(&["request", "uid"]), Some("u"));
    assert_eq!(asked.str_at(&["request", "desiredAPIVersion"]), Some("stable.example.com/v2"));
    assert_eq!(asked.array_at(&["request", "objects"]), [original(), original()]);
    let known = |text: &str| ReviewVersion::first_known(parse(text).as_array().unwrap());
    assert_eq!(known(r#"["v2","v1beta1","v1"]"#), Some(ReviewVersion::V1beta1));
    assert_eq!(known(r#"["v2"]"#), None);
}

#[test]
fn what_a_webhook_says_is_passed_on_in_bounds() {
    let long = "x".repeat(1 << 20);
    let body = review(&format!(r#"{{"uid":"u","result":{{"message":"{long}"}}}}"#));
    let said = read(QUESTION, &[original()], body.as_bytes()).unwrap_err().to_string();
    assert!(said.len() < 2 * TEXT_LEN_MAX);
}
