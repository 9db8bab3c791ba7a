//! Inputs of ours with what upstream makes of them.

use super::super::random_texts;
use super::*;
use crate::json;

type Row = (&'static str, Result<&'static str, &'static str>);

/// Long texts of names are taken from `names`.
fn check((text, expected): Row, found: Result<LabelSelector, SelectorError>) {
    let names = |text: &str| {
        let name = key_problem("a b").unwrap();
        let value = label_value_problems("a b").next().unwrap();
        let subdomain = crate::names::dns_subdomain_problem("A").unwrap();
        text.replace("{name}", &name).replace("{value}", value).replace("{subdomain}", subdomain)
    };
    let found = found.map(|selector| selector.to_string()).map_err(|error| error.to_string());
    assert_eq!(found, expected.map(str::to_string).map_err(names), "{text}");
}

#[test]
fn parses_like_upstream() {
    const ROWS: &[Row] = &[
        ("", Ok("")),
        ("a", Ok("a")),
        ("!a", Ok("!a")),
        ("a=b", Ok("a=b")),
        ("a==b", Ok("a==b")),
        ("a!=b", Ok("a!=b")),
        ("a = b", Ok("a=b")),
        (" a  ==  b ", Ok("a==b")),
        ("a=", Ok("a=")),
        ("a==", Ok("a==")),
        ("a!=", Ok("a!=")),
        ("a in (b)", Ok("a in (b)")),
        ("a in (c,b,b)", Ok("a in (b,c)")),
        ("a notin (b, c)", Ok("a notin (b,c)")),
        ("a in ()", Ok("a in ()")),
        ("a in (,)", Ok("a in ()")),
        ("a in (b,,c)", Ok("a in (,b,c)")),
        ("a in (,b)", Ok("a in (,b)")),
        ("a in (b,)", Ok("a in (,b)")),
        ("a notin ()", Ok("a notin ()")),
        ("b=1,a=2", Ok("a=2,b=1")),
        ("x in (foo,,baz),y,z notin ()", Ok("x in (,baz,foo),y,z notin ()")),
        ("a>5", Ok("a>5")),
        ("a<5", Ok("a<5")),
        ("a > -1", Err(r#"unable to parse requirement: values[0][a]: Invalid value: "-1": {value}"#)),
        ("in in (in,notin)", Ok("in in (in,notin)")),
        ("notin", Ok("notin")),
        ("!in", Ok("!in")),
        ("example.com/a=b", Ok("example.com/a=b")),
        ("a=in", Ok("a=in")),
        ("a,a", Ok("a,a")),
        ("a\t in\n(b)", Ok("a in (b)")),
        ("a=b,", Err("found '', expected: identifier after ','")),
        (",a", Err("found ',', expected: !, identifier, or 'end of string'")),
        (",", Err("found ',', expected: !, identifier, or 'end of string'")),
        ("a b", Err("unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt")),
        ("a in", Err("unable to parse requirement: found '' expected: '('")),
        ("a in b", Err("unable to parse requirement: found 'b' expected: '('")),
        ("a in (b", Err("unable to parse requirement: found '', expected: ',' or ')'")),
        ("a in (", Err("unable to parse requirement: found '', expected: ',', ')' or identifier")),
        ("a in (b c)", Err("unable to parse requirement: found 'c', expected: ',' or ')'")),
        ("a in (b,", Err("unable to parse requirement: found '', expected: ',', or identifier")),
        ("a in (=)", Err("unable to parse requirement: found '=', expected: ',', ')' or identifier")),
        ("a in b)", Err("unable to parse requirement: found 'b' expected: '('")),
        ("!a=b", Err("found '=', expected: ',' or 'end of string'")),
        ("!", Err("unable to parse requirement: found '', expected: identifier")),
        ("!!a", Err("unable to parse requirement: found '!', expected: identifier")),
        ("a=b=c", Err("found '=', expected: ',' or 'end of string'")),
        ("a===b", Err("unable to parse requirement: found '=', expected: identifier")),
        ("a=!b", Err("unable to parse requirement: found '!', expected: identifier")),
        ("a!b", Err("unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt")),
        ("a!==b", Err("unable to parse requirement: found '=', expected: identifier")),
        (
            "a>x",
            Err(
                r#"unable to parse requirement: values[0]: Invalid value: "x": for 'Gt', 'Lt' operators, the value must be an integer"#,
            ),
        ),
        (
            "a>",
            Err(
                r#"unable to parse requirement: values[0]: Invalid value: "": for 'Gt', 'Lt' operators, the value must be an integer"#,
            ),
        ),
        (
            "a<1.5",
            Err(
                r#"unable to parse requirement: values[0]: Invalid value: "1.5": for 'Gt', 'Lt' operators, the value must be an integer"#,
            ),
        ),
        ("(a)", Err("found '(', expected: !, identifier, or 'end of string'")),
        ("a)", Err("unable to parse requirement: found ')', expected: in, notin, =, ==, !=, gt, lt")),
        ("a gt 5", Err("unable to parse requirement: found 'gt', expected: in, notin, =, ==, !=, gt, lt")),
        ("a,,b", Err("found ',', expected: identifier after ','")),
        ("a=b c=d", Err("found 'c', expected: ',' or 'end of string'")),
        ("a=(b)", Err("unable to parse requirement: found '(', expected: identifier")),
        ("=b", Err("found '=', expected: !, identifier, or 'end of string'")),
        ("a-=b", Err(r#"unable to parse requirement: <nil>: Invalid value: "a-": {name}"#)),
        ("-a", Err(r#"unable to parse requirement: <nil>: Invalid value: "-a": {name}"#)),
        ("a=b-", Err(r#"unable to parse requirement: values[0][a]: Invalid value: "b-": {value}"#)),
        ("A.B_c-d=E", Ok("A.B_c-d=E")),
        ("é=b", Err(r#"unable to parse requirement: <nil>: Invalid value: "é": {name}"#)),
        ("a=é", Err(r#"unable to parse requirement: values[0][a]: Invalid value: "é": {value}"#)),
        (
            "a in (b-,c-)",
            Err(
                r#"unable to parse requirement: [values[0][a]: Invalid value: "b-": {value}, values[1][a]: Invalid value: "c-": {value}]"#,
            ),
        ),
        (
            "/a",
            Err(r#"unable to parse requirement: <nil>: Invalid value: "/a": prefix part must be non-empty"#),
        ),
        (
            "A.com/b",
            Err(r#"unable to parse requirement: <nil>: Invalid value: "A.com/b": prefix part {subdomain}"#),
        ),
        (
            "a>9223372036854775808",
            Err(
                r#"unable to parse requirement: values[0]: Invalid value: "9223372036854775808": for 'Gt', 'Lt' operators, the value must be an integer"#,
            ),
        ),
        ("a in (b) c", Err("found 'c', expected: ',' or 'end of string'")),
        ("a notin b", Err("unable to parse requirement: found 'b' expected: '('")),
        ("a==(", Err("unable to parse requirement: found '(', expected: identifier")),
        ("a=,b", Ok("a=,b")),
        ("a in (!)", Err("unable to parse requirement: found '!', expected: ',', ')' or identifier")),
    ];
    for row in ROWS {
        check(*row, LabelSelector::parse(row.0));
    }
}

#[test]
fn reads_json_like_upstream() {
    const ROWS: &[Row] = &[
        ("null", Ok("")),
        ("{}", Ok("")),
        (r#"{"matchLabels":{"b":"1","a":"2"}}"#, Ok("a=2,b=1")),
        (
            r#"{"matchExpressions":[{"key":"a","operator":"In","values":["y","x"]},{"key":"b","operator":"Exists"},{"key":"c","operator":"DoesNotExist","values":[]},{"key":"d","operator":"NotIn","values":["q"]}]}"#,
            Ok("a in (x,y),b,!c,d notin (q)"),
        ),
        (
            r#"{"matchLabels":{"z":"1"},"matchExpressions":[{"key":"a","operator":"In","values":["x"]}]}"#,
            Ok("a in (x),z=1"),
        ),
        (
            r#"{"matchExpressions":[{"key":"a","operator":"Gt","values":["1"]}]}"#,
            Err(r#""Gt" is not a valid label selector operator"#),
        ),
        (
            r#"{"matchExpressions":[{"key":"a","operator":"In"}]}"#,
            Err("values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"),
        ),
        (
            r#"{"matchExpressions":[{"key":"a","operator":"Exists","values":["x"]}]}"#,
            Err(r#"values: Invalid value: ["x"]: values set must be empty for exists and does not exist"#),
        ),
        (r#"{"matchLabels":{"a b":"1"}}"#, Err(r#"key: Invalid value: "a b": {name}"#)),
        (r#"{"matchLabels":{"a":"1 2"}}"#, Err(r#"values[0][a]: Invalid value: "1 2": {value}"#)),
        (
            r#"{"matchExpressions":[{"key":"a b","operator":"In","values":["x y"]}]}"#,
            Err(r#"[key: Invalid value: "a b": {name}, values[0][a b]: Invalid value: "x y": {value}]"#),
        ),
    ];
    for row in ROWS {
        check(*row, LabelSelector::from_value(&Value::parse(row.0.as_bytes()).unwrap()));
    }
}

#[test]
fn matches_like_upstream() {
    const ROWS: &[(&str, bool)] = &[
        ("", true),
        ("a", true),
        ("z", false),
        ("!a", false),
        ("!z", true),
        ("a=1", true),
        ("a=2", false),
        ("z=1", false),
        ("z=", false),
        ("e=", true),
        ("e", true),
        ("a!=1", false),
        ("a!=2", true),
        ("z!=1", true),
        ("a in (1,2)", true),
        ("a in (2)", false),
        ("z in (1)", false),
        ("a notin (1)", false),
        ("a notin (2)", true),
        ("z notin (1)", true),
        ("a>0", true),
        ("a>1", false),
        ("a<2", true),
        ("a<1", false),
        ("b>0", false),
        ("b<0", false),
        ("z>0", false),
        ("a=1,b=x", true),
        ("a=1,b=y", false),
        ("e in (,x)", true),
        ("e notin ()", false),
    ];
    let labels = json!({"a": "1", "b": "x", "e": ""});
    for (text, expected) in ROWS {
        let selector = LabelSelector::parse(text).unwrap();
        assert_eq!(selector.matches(|key| labels.str_at(&[key])), *expected, "{text}");
    }
}

#[test]
fn everything_and_nothing() {
    let rows = [
        (LabelSelector::everything(), true, true),
        (LabelSelector::parse(" ").unwrap(), true, true),
        (LabelSelector::from_value(&json!({})).unwrap(), true, true),
        (LabelSelector::from_value(&Value::Null).unwrap(), false, false),
        (LabelSelector::parse("!a").unwrap(), false, true),
    ];
    for (selector, everything, matches) in rows {
        assert_eq!(selector.is_everything(), everything);
        assert_eq!(selector.matches(|_| None), matches);
    }
}

#[test]
fn no_text_panics_and_what_parses_prints_the_same() {
    for text in
        random_texts(&["a", "b1", "=", "!", ",", "(", ")", " in ", " notin ", ">", "<", "7", "é", " ", "\0"])
    {
        if let Ok(selector) = LabelSelector::parse(&text) {
            assert_eq!(LabelSelector::parse(&selector.to_string()).unwrap(), selector, "{text}");
        }
    }
    assert!(LabelSelector::parse(&"a".repeat(1 << 20)).is_err());
    let wide = format!("a in ({})", "b,".repeat(60_000));
    assert_eq!(LabelSelector::parse(&wide).unwrap().requirements()[0].values().len(), 2);
}
