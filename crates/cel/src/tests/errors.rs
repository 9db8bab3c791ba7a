//! What is said about wrong expressions.

use polder_model::json;

use super::run;

/// The text without its picture.
#[track_caller]
fn check(source: &str, expected: &[&str]) {
    let found = run(source, &json!({}));
    let lines: Vec<&str> = found.lines().filter(|line| line.contains("ERROR: ")).collect();
    let found: Vec<&str> = lines.iter().map(|line| line.trim_start_matches("compile: ")).collect();
    let expected: Vec<String> = expected.iter().map(|text| format!("ERROR: <input>:{text}")).collect();
    assert_eq!(found, expected, "{source}");
}

const ANY: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";

#[test]
fn syntax() {
    check("1 +", &[&format!("1:4: Syntax error: mismatched input '<EOF>' expecting {ANY}")]);
    check("", &[&format!("1:1: Syntax error: mismatched input '<EOF>' expecting {ANY}")]);
    check("1 2", &["1:3: Syntax error: extraneous input '2' expecting <EOF>"]);
    check("1 2 3", &["1:3: Syntax error: mismatched input '2' expecting <EOF>"]);
    check("(1", &["1:3: Syntax error: missing ')' at '<EOF>'"]);
    check(
        "a | b",
        &[
            "1:3: Syntax error: token recognition error at: '| '",
            "1:5: Syntax error: extraneous input 'b' expecting <EOF>",
        ],
    );
    check("*1", &[&format!("1:1: Syntax error: extraneous input '*' expecting {ANY}")]);
    check("x.true", &["1:3: Syntax error: mismatched input 'true' expecting IDENTIFIER"]);
    check("for", &["1:1: reserved identifier: for"]);
    check("while(1)", &["1:1: reserved identifier: while"]);
    check("99999999999999999999", &["1:1: invalid int literal"]);
    check("99999999999999999999u", &["1:1: invalid uint literal"]);
    check("1.99e90000009", &["1:1: invalid double literal"]);
    check("'\\ud800'", &["1:1: invalid unicode code point"]);
    check("x.`a-b`", &["1:3: unsupported syntax: '`'"]);
    check(
        "1 +\n  2 +\n  $",
        &[
            "3:3: Syntax error: token recognition error at: '$'",
            &format!("3:4: Syntax error: mismatched input '<EOF>' expecting {ANY}"),
        ],
    );
    check("[1, 2", &["1:6: Syntax error: mismatched input '<EOF>' expecting {']', ','}"]);
}

#[test]
fn macros() {
    check("has(x)", &["1:5: invalid argument to has() macro"]);
    check("[].all(1, true)", &["1:8: argument must be a simple name"]);
    check("[].map(x.y, true)", &["1:9: argument is not an identifier"]);
    check("[].map(__result__, true)", &["1:8: iteration variable overwrites accumulator variable"]);
    check("[].all(a, a, true)", &["1:11: duplicate variable name: a"]);
    check("optional.of(1).optMap(1, 2)", &["1:23: optMap() variable name must be a simple identifier"]);
    check(
        "'a'.sortBy(e, e)",
        &["1:1: sortBy can only be applied to a list, identifier, comprehension, call or select expression"],
    );
}

#[test]
fn types() {
    check("y", &["1:1: undeclared reference to 'y' (in container '')"]);
    check("f(1)", &["1:2: undeclared reference to 'f' (in container '')"]);
    check("1.f()", &["1:4: undeclared reference to 'f' (in container '')"]);
    check("1 == 'a'", &["1:3: found no matching overload for '_==_' applied to '(int, string)'"]);
    check(
        "'a'.startsWith(1)",
        &["1:15: found no matching overload for 'startsWith' applied to 'string.(int)'"],
    );
    check("1 && true", &["1:1: expected type 'bool' but found 'int'"]);
    check(
        "true ? 1 : 'a'",
        &["1:6: found no matching overload for '_?_:_' applied to '(bool, int, string)'"],
    );
    check("[1].all(i, i)", &["1:12: expected type 'bool' but found 'int'"]);
    check(
        "1.all(i, true)",
        &["1:1: expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)"],
    );
    check("1.a", &["1:2: type 'int' does not support field selection"]);
    check("[1, 'a']", &["1:5: expected type 'int' but found 'string'"]);
    check("Foo{a: 1}", &["1:4: undeclared reference to 'Foo' (in container '')"]);
    check("string{}", &["1:7: 'string' is not a message type"]);
    check(
        "[1].filter(i, 2)",
        &["1:11: found no matching overload for '_?_:_' applied to '(int, list(int), list(int))'"],
    );
    check("cel.bind(1, 2, 3)", &["1:10: cel.bind() variable names must be simple identifiers"]);
    check(
        "y + z",
        &[
            "1:1: undeclared reference to 'y' (in container '')",
            "1:5: undeclared reference to 'z' (in container '')",
        ],
    );
}

#[test]
fn pictures() {
    let found = run("'é' +\n\t1", &json!({}));
    assert_eq!(
        found,
        "compile: ERROR: <input>:1:5: found no matching overload for '_+_' applied to '(string, int)'\n | 'é' +\n | .．..^"
    );
    let found = run("1 +\n\té", &json!({}));
    assert!(
        found.contains("ERROR: <input>:2:2: Syntax error: token recognition error at: 'é'\n |  é\n | .＾"),
        "{found}"
    );
}
