//! The language itself: literals, operators, errors as values, macros, conversions.

use polder_model::{Value as Json, json};

use super::{check_rows, check_rows_on};

#[test]
fn literals() {
    check_rows(&[
        ("1", "1"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("0x1F", "31"),
        ("-0x1f", "-31"),
        ("42u", "42u"),
        ("0xFFu", "255u"),
        ("1.5e3", "1500.0"),
        (".5", "0.5"),
        ("1e2", "100.0"),
        ("true && !false", "true"),
        ("null", "null"),
        (r#""a\tb\"\u00e9\x41\101""#, r#""a\tb\"éAA""#),
        (
            r"'it''s'",
            "compile: ERROR: <input>:1:5: Syntax error: extraneous input ''s'' expecting <EOF>\n | 'it''s'\n | ....^",
        ),
        (r#"r'\d\n'"#, r#""\\d\\n""#),
        ("'''a\n'b\"'''", r#""a\n'b\"""#),
        (r#"b'\xff\101é'"#, "b\"\u{fffd}Aé\""),
        ("[1, 2, 3,]", "[1, 2, 3]"),
        ("{'a': 1, 'b': 2,}", r#"{"a": 1, "b": 2}"#),
        ("{1: 'a', 2: 'b'}", r#"{1: "a", 2: "b"}"#),
        ("1 + 2 // a comment\n + 3", "6"),
        ("[]", "[]"),
        ("{}", "{}"),
    ]);
}

#[test]
fn operators_and_precedence() {
    check_rows(&[
        ("1 + 2 * 3 - 4 / 2", "5"),
        ("(1 + 2) * 3", "9"),
        ("7 % 3 == 1 && 7 / 2 == 3", "true"),
        ("-7 / 2", "-3"),
        ("-7 % 3", "-1"),
        ("- - 1", "1"),
        ("!!true", "true"),
        ("-(1)", "-1"),
        ("1 < 2 == true", "true"),
        ("true ? 1 : 2", "1"),
        ("false ? 1 : true ? 2 : 3", "2"),
        (
            "1 + 1u",
            "compile: ERROR: <input>:1:3: found no matching overload for '_+_' applied to '(int, uint)'\n | 1 + 1u\n | ..^",
        ),
        ("'a' + 'b'", r#""ab""#),
        ("b'a' + b'b'", r#"b"ab""#),
        ("[1] + [2, 3]", "[1, 2, 3]"),
        ("[1, 2][1]", "2"),
        ("{'a': 1}['a']", "1"),
        ("{'a': 1}.a", "1"),
        ("{'a': {'b': 2}}.a.b", "2"),
        ("2 in [1, 2]", "true"),
        ("'a' in {'a': 1}", "true"),
        ("3 in [1, 2]", "false"),
        ("1u in [1u] && !(2u in [1u])", "true"),
        ("dyn(1.0) in [1, 2]", "true"),
    ]);
}

#[test]
fn numbers_do_not_wrap() {
    check_rows(&[
        ("9223372036854775807 + 1", "error: integer overflow"),
        ("-9223372036854775808 - 1", "error: integer overflow"),
        ("9223372036854775807 * 2", "error: integer overflow"),
        ("-9223372036854775808 / -1", "error: integer overflow"),
        ("-(-9223372036854775808)", "error: integer overflow"),
        ("18446744073709551615u + 1u", "error: unsigned integer overflow"),
        ("1u - 2u", "error: unsigned integer overflow"),
        ("1 / 0", "error: division by zero"),
        ("1 % 0", "error: modulus by zero"),
        ("1u / 0u", "error: division by zero"),
        ("1.0 / 0.0", "inf"),
        ("int(1e19)", "compile: integer overflow"),
        (
            "duration('9000000h')",
            "compile: ERROR: <input>:1:10: invalid duration argument\n | duration('9000000h')\n | .........^",
        ),
        ("duration('2000000h') + duration('2000000h')", "error: integer overflow"),
        ("timestamp('9999-12-31T23:59:59Z') + duration('1s')", "error: timestamp overflow"),
    ]);
}

#[test]
fn comparisons_cross_numeric_types() {
    check_rows(&[
        ("1 < 1.5 && 2u > 1 && 1.5 < 2u && 1 <= 1u", "true"),
        ("dyn(1) == 1.0 && dyn(1u) == 1 && dyn(1.0) == 1u", "true"),
        ("dyn(1) != 1.1", "true"),
        ("-1 < 18446744073709551615u", "true"),
        ("9223372036854775807 < 9.3e18", "true"),
        ("double('NaN') == double('NaN')", "false"),
        ("double('NaN') < 1.0", "error: NaN values cannot be ordered"),
        ("'a' < 'b' && b'a' < b'b' && false < true", "true"),
        ("duration('1m') > duration('59s')", "true"),
        ("timestamp(1) < timestamp(2)", "true"),
        ("dyn(1) == 'a'", "false"),
        ("dyn('1') != 1", "true"),
        ("[1, 2] == [1, 2] && [1] != [1, 2] && dyn([1.0]) == [1]", "true"),
        ("{'a': 1, 'b': 2} == {'b': 2, 'a': 1}", "true"),
        ("{'a': 1} == {'a': 2}", "false"),
        ("null == null && dyn(1) != null", "true"),
        ("dyn('a') < 1", "error: no such overload"),
    ]);
}

#[test]
fn logic_absorbs_errors() {
    let document = json!({"a": 1, "list": [1, 0, 2]});
    check_rows_on(
        &document,
        &[
            ("x.missing == 1 || true", "true"),
            ("true || x.missing == 1", "true"),
            ("x.missing == 1 && false", "false"),
            ("x.missing == 1 && true", "error: no such key: missing"),
            ("x.missing == 1 || false", "error: no such key: missing"),
            ("false || x.missing == 1 || true", "true"),
            ("x.a && true", "error: no such overload"),
            ("x.a || true", "true"),
            ("(x.missing == 1) ? 1 : 2", "error: no such key: missing"),
            ("true ? 1 : x.missing", "1"),
            ("x.list.all(i, 10 / i > 0)", "error: division by zero"),
            ("x.list.all(i, 10 / i > 5)", "false"),
            ("x.list.exists(i, 10 / i == 5)", "true"),
            ("x.list.exists(i, 10 / i == 7)", "error: division by zero"),
            ("x.list.exists_one(i, 10 / i == 5)", "error: division by zero"),
            ("x.list.map(i, 10 / i)", "error: division by zero"),
            ("x.list.filter(i, 10 / i > 1)", "error: division by zero"),
            ("x.a ? 1 : 2", "error: no such overload"),
        ],
    );
}

#[test]
fn access_to_members_and_elements() {
    let document =
        json!({"a": {"b": [1, {"c": null}]}, "in-x": "y", "n": (Json::Float(1.5)), "e": "", "z": 0});
    check_rows_on(
        &document,
        &[
            ("x.a.b[0]", "1"),
            ("x.a.b[1].c", "null"),
            ("x['in-x']", r#""y""#),
            ("x.n", "1.5"),
            ("x.q", "error: no such key: q"),
            ("x.a.b[2]", "error: index out of bounds: 2"),
            ("x.a.b[-1]", "error: index out of bounds: -1"),
            ("x.a.b['k']", "error: unsupported index type 'string' in list"),
            ("x.a.b[dyn(0.0)] == 1 && x.a.b[dyn(0u)] == 1", "true"),
            ("x.n.q", "error: no such key: q"),
            ("has(x.a.b) && !has(x.q) && has(x.e) && has(x.z)", "true"),
            ("has(x.a.q)", "false"),
            ("has(x.q.r)", "error: no such key: q"),
            ("'a' in x && !('q' in x)", "true"),
            ("x.a.b.size() + size(x) + size('héllo') + size(b'abc')", "15"),
            (
                "{1: 'a', true: 'b'}[dyn(1.0)]",
                "compile: ERROR: <input>:1:10: expected type 'int' but found 'bool'\n | {1: 'a', true: 'b'}[dyn(1.0)]\n | .........^",
            ),
            ("{1: 'a'}[dyn(1.0)] + {2u: 'b'}[dyn(2)]", r#""ab""#),
            ("{'a': 1}.b", "error: no such key: b"),
        ],
    );
}

#[test]
fn loops() {
    check_rows(&[
        ("[1, 2, 3].all(i, i > 0)", "true"),
        ("[1, 2, 3].all(i, i > 1)", "false"),
        ("[].all(i, false)", "true"),
        ("[1, 2, 3].exists(i, i == 2)", "true"),
        ("[].exists(i, true)", "false"),
        ("[1, 2, 2].exists_one(i, i == 1) && ![1, 2, 2].exists_one(i, i == 2)", "true"),
        ("[1, 2, 3].map(i, i * 2)", "[2, 4, 6]"),
        ("[1, 2, 3].map(i, i > 1, i * 2)", "[4, 6]"),
        ("[1, 2, 3].filter(i, i != 2)", "[1, 3]"),
        ("{'a': 1, 'b': 2}.all(k, k < 'c')", "true"),
        ("{'a': 1, 'b': 2}.map(k, k)", r#"["a", "b"]"#),
        ("{'a': 1, 'b': 2}.filter(k, k == 'b')", r#"["b"]"#),
        ("[[1, 2], [3]].map(l, l.map(i, i + l.size()))", "[[3, 4], [4]]"),
        ("[1, 2].map(i, [3, 4].map(j, i * j))", "[[3, 4], [6, 8]]"),
        ("[1, 2, 3].all(i, v, i < v)", "true"),
        ("{'a': 1, 'b': 2}.exists(k, v, k == 'b' && v == 2)", "true"),
        ("[5, 6].existsOne(i, v, i == 1) && [5, 6].exists_one(i, v, v == 5)", "true"),
        ("[1, 2, 3].transformList(i, v, i * v + v)", "[1, 4, 9]"),
        ("[1, 2, 3].transformList(i, v, i % 2 == 0, i * v + v)", "[1, 9]"),
        ("{'a': 1}.transformList(k, v, k)", r#"["a"]"#),
        ("[1, 2, 3].transformMap(i, v, v * v)", "{0: 1, 1: 4, 2: 9}"),
        ("{'a': 1, 'b': 2}.transformMap(k, v, v > 1, v + 1)", r#"{"b": 3}"#),
        ("{'a': 'b'}.transformMapEntry(k, v, {v: k})", r#"{"b": "a"}"#),
        ("['x', 'y'].transformMapEntry(i, v, {v: i})", r#"{"x": 0, "y": 1}"#),
        ("['x', 'x'].transformMapEntry(i, v, {v: i})", r#"error: insert failed: key x already exists"#),
        ("cel.bind(a, 3, a * a)", "9"),
        ("cel.bind(a, 3, cel.bind(b, a + 1, a * b))", "12"),
        ("[1].all(i, [2].all(i, i == 2) && i == 1)", "true"),
    ]);
}

#[test]
fn optionals() {
    let document = json!({"a": {"b": 1}, "l": [7], "n": null});
    check_rows_on(
        &document,
        &[
            ("x.?a.?b", "some(1)"),
            ("x.?a.b", "some(1)"),
            ("x.?q.b.c", "none"),
            ("x.?q.orValue('d')", r#""d""#),
            ("x.?a.?b.orValue(2)", "1"),
            ("x.l[?0].orValue(1) + x.l[?5].orValue(1)", "8"),
            ("x[?'q'].hasValue()", "false"),
            ("x.?q.or(x.?a.b).value()", "1"),
            ("x.?q.value()", "error: optional.none() dereference"),
            ("optional.of(1).optMap(i, i + 1)", "some(2)"),
            ("optional.none().optMap(i, i)", "none"),
            ("x.?a.optFlatMap(a, a.?b)", "some(1)"),
            ("x.?a.optFlatMap(a, a.?c)", "none"),
            ("optional.ofNonZeroValue(0)", "none"),
            ("optional.ofNonZeroValue('a')", r#"some("a")"#),
            ("[dyn(1), ?x.?q, ?x.?a.b]", "[1, 1]"),
            ("{'k': dyn(1), ?'m': x.?q, ?'n': x.?a.b}", r#"{"k": 1, "n": 1}"#),
            ("optional.of(1) == optional.of(1) && optional.none() != optional.of(dyn(1))", "true"),
            ("has(x.?a.b) && !has(x.?q.b)", "true"),
            (
                "has(x.?a)",
                "compile: ERROR: <input>:1:6: invalid argument to has() macro\n | has(x.?a)\n | .....^",
            ),
            ("[1, 2].first().value() + [1, 2].last().value()", "3"),
            ("[].first()", "none"),
            ("[optional.of(1), optional.none()].unwrapOpt()", "[1]"),
            ("optional.unwrap([optional.of(1)])", "[1]"),
            ("x.?l[0]", "some(7)"),
            ("x.?l[?3].orValue(9)", "9"),
            (
                "[1, ?2]",
                "compile: ERROR: <input>:1:6: expected type 'optional_type(int)' but found 'int'\n | [1, ?2]\n | .....^",
            ),
        ],
    );
}

#[test]
fn conversions() {
    check_rows(&[
        ("int('42') + int(2.9) + int(3u)", "47"),
        ("int(-2.9)", "-2"),
        ("int('x')", "compile: type conversion error from 'string' to 'int'"),
        ("uint(3) + uint('4') + uint(1.9)", "8u"),
        ("uint(-1)", "compile: unsigned integer overflow"),
        ("double(1) + double('2.5') + double(1u)", "4.5"),
        ("string(1) + string(1u) + string(true) + string(1.5) + string(b'x')", r#""11true1.5x""#),
        ("string(1e21) + ' ' + string(1e-7) + ' ' + string(100000.0)", r#""1e+21 1e-07 100000""#),
        ("string(timestamp('2009-02-13T23:31:30.5Z'))", r#""2009-02-13T23:31:30.5Z""#),
        ("string(duration('90m'))", r#""5400s""#),
        ("bytes('é') == b'é'", "true"),
        ("string(b'\\xff')", "compile: invalid UTF-8 in bytes, cannot convert to string"),
        ("bool('true') && !bool('0') && bool('T')", "true"),
        ("bool('yes')", "compile: type conversion error from 'string' to 'bool'"),
        ("int(timestamp('1970-01-01T00:01:00Z'))", "60"),
        ("timestamp(60) == timestamp('1970-01-01T00:01:00Z')", "true"),
        ("int(duration('1s'))", "1000000000"),
        ("type(1) == int && type('') == string && type([]) == list && type({}) == map", "true"),
        ("type(null) == null_type && type(type(1)) == type && type(1u) == uint", "true"),
        ("type(timestamp(0)) == google.protobuf.Timestamp", "true"),
        ("type(optional.none()) == optional_type", "true"),
        ("dyn(1)", "1"),
    ]);
}

#[test]
fn times() {
    check_rows(&[
        ("timestamp('2009-02-13T23:31:30Z').getFullYear()", "2009"),
        ("timestamp('2009-02-13T23:31:30Z').getMonth()", "1"),
        ("timestamp('2009-02-13T23:31:30Z').getDayOfMonth()", "12"),
        ("timestamp('2009-02-13T23:31:30Z').getDate()", "13"),
        ("timestamp('2009-02-13T23:31:30Z').getDayOfYear()", "43"),
        ("timestamp('2009-02-13T23:31:30Z').getDayOfWeek()", "5"),
        ("timestamp('2009-02-13T23:31:30Z').getHours()", "23"),
        ("timestamp('2009-02-13T23:31:30Z').getHours('+02:00')", "1"),
        ("timestamp('2009-02-13T23:31:30Z').getMinutes('-00:30')", "1"),
        ("timestamp('2009-02-13T23:31:30Z').getHours('America/New_York')", "18"),
        ("timestamp('2009-02-13T23:31:30Z').getDate('Australia/Sydney')", "14"),
        ("timestamp('2009-02-13T23:31:30Z').getHours('Nowhere')", "error: unknown time zone Nowhere"),
        ("timestamp('2009-02-13T23:31:30.123Z').getMilliseconds()", "123"),
        ("timestamp('2009-02-13T23:31:30Z').getSeconds()", "30"),
        ("duration('3h25m45s').getHours() + duration('3h25m45s').getMinutes()", "208"),
        ("duration('10.5s').getSeconds() + duration('10.5s').getMilliseconds()", "10510"),
        ("timestamp('2009-02-13T23:31:30Z') - timestamp('2009-02-13T23:31:00Z')", "duration(30s)"),
        ("timestamp('2009-02-13T23:31:30Z') - duration('30s')", "timestamp(2009-02-13T23:31:00Z)"),
        ("timestamp('2009-02-13T23:31:30+01:00')", "timestamp(2009-02-13T23:31:30+01:00)"),
        (
            "timestamp('nope')",
            "compile: ERROR: <input>:1:11: invalid timestamp argument\n | timestamp('nope')\n | ..........^",
        ),
    ]);
}
