//! Documents read through shapes.

use std::sync::Arc;

use polder_model::{Value as Json, json};

use super::run_in;
use crate::{Bindings, Environment, Field, ListKind, Shape, Value};

/// One member of each kind.
pub(super) fn shape() -> Shape {
    let field = |name: &str, shape: Shape| Field::new(name, Arc::new(shape)).unwrap();
    let text = |max: Option<u64>| Arc::new(Shape::string(max));
    let element = Shape::object(
        "self.lm",
        vec![
            field("name", Shape::string(Some(63))),
            field("v", Shape::int()),
            field("tags", Shape::list(text(None), ListKind::Atomic, Some(3))),
        ],
        Shape::required_bytes("name", &Shape::string(Some(63))),
    );
    let object = Shape::object(
        "self.o",
        vec![
            field("p", Shape::string(None)),
            field("q", Shape::int()),
            field("name-space", Shape::string(None)),
            field("namespace", Shape::string(None)),
        ],
        Shape::required_bytes("p", &Shape::string(None)),
    );
    let preserving = Shape::object("self.pu", vec![field("k", Shape::string(None))], 0);
    let fields = vec![
        field("i", Shape::int()),
        field("i2", Shape::int()),
        field("d", Shape::double()),
        field("b", Shape::boolean()),
        field("s", Shape::string(None)),
        field("s2", Shape::string(Some(10))),
        field("e", Shape::string_of(["aa", "bbbb"].into_iter())),
        field("dt", Shape::timestamp()),
        field("date", Shape::date()),
        field("dur", Shape::duration()),
        field("by", Shape::bytes(Some(20))),
        field("ios", Shape::int_or_string(None)),
        field("ls", Shape::list(text(Some(5)), ListKind::Atomic, Some(10))),
        field("li", Shape::list(Arc::new(Shape::int()), ListKind::Atomic, None)),
        field("set", Shape::list(text(None), ListKind::Set, None)),
        field("lm", Shape::list(Arc::new(element), ListKind::Map(vec!["name".into()]), Some(20))),
        field("m", Shape::map(text(Some(7)), Some(5))),
        field("mo", Shape::map(Arc::new(Shape::object("self.mo", vec![field("x", Shape::int())], 0)), None)),
        field("o", object),
        field("n", Shape::string(None).nullable(true)),
        field("ln", Shape::list(Arc::new(Shape::int().nullable(true)), ListKind::Atomic, None)),
        field("pu", preserving),
    ];
    Shape::object("self", fields, 0)
}

pub(super) fn document() -> Json {
    Json::parse(
        br#"{"i":3,"i2":5,"d":1.5,"b":true,"s":"hello","s2":"ab","e":"aa","dt":"2021-01-01T00:00:00Z",
        "date":"2021-01-02","dur":"1h30m","by":"aGk=","ios":"50%","ls":["a","b","c"],"li":[1,2,3],"set":["x","y"],
        "lm":[{"name":"a","v":1,"tags":["t"]},{"name":"b","v":2}],"m":{"k1":"v1","k2":"v2"},"mo":{"z":{"x":4}},
        "o":{"p":"pp","name-space":"dash","namespace":"ns"},"n":null,"ln":[1,null],"pu":{"k":"v","other":1}}"#,
    )
    .unwrap()
}

#[track_caller]
fn check(rows: &[(&str, &str)]) {
    let shape = Arc::new(shape());
    let env = Environment::new().document("self", &shape).optional_document("oldSelf", &shape);
    let document = document();
    let mut wrong = String::new();
    for (source, expected) in rows {
        let found = run_in(&env, source, |()| {
            Bindings::new().with(Value::shaped(&document, &shape).unwrap()).with(Value::Optional(None))
        });
        let found = found.lines().next().unwrap_or_default();
        if found != *expected {
            wrong.push_str(&format!("\n{source}\n  expected {expected}\n  found    {found}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn members_have_the_types_of_their_shapes() {
    check(&[
        ("self.dt < timestamp('2022-01-01T00:00:00Z')", "true"),
        ("self.date.getFullYear()", "2021"),
        ("self.dur", "duration(5400s)"),
        ("self.by", r#"b"hi""#),
        ("self.d > self.i", "false"),
        ("type(self.ios) == string ? self.ios.endsWith('%') : self.ios > 5", "true"),
        (
            "self.i == 'x'",
            "compile: ERROR: <input>:1:8: found no matching overload for '_==_' applied to '(int, string)'",
        ),
        ("self.missing", "compile: ERROR: <input>:1:5: undefined field 'missing'"),
        ("has(self.missing)", "compile: ERROR: <input>:1:4: undefined field 'missing'"),
        ("self.lm[0].q", "compile: ERROR: <input>:1:11: undefined field 'q'"),
        ("self.m.any", "error: no such key: any"),
        ("self.mo.z.x", "4"),
        ("oldSelf.hasValue() ? oldSelf.i : optional.of(1)", "some(1)"),
        ("oldSelf.optMap(o, o.i < self.i).orValue(true)", "true"),
        ("oldSelf.i", "none"),
    ]);
}

#[test]
fn names_are_escaped() {
    check(&[
        ("self.o.name__dash__space", r#""dash""#),
        ("self.o.__namespace__", r#""ns""#),
        ("self.o.namespace", r#""ns""#),
        ("has(self.o.name__dash__space)", "true"),
        ("self.o.name__what__space", "compile: ERROR: <input>:1:7: undefined field 'name__what__space'"),
    ]);
}

#[test]
fn null_and_unknown_members() {
    check(&[
        ("has(self.n)", "false"),
        ("self.n", "error: no such key: n"),
        ("self.ln[1]", "null"),
        ("dyn(self.ln[1]) == null", "true"),
        ("self.ln.all(x, x > 0)", "error: no such overload: _>_"),
        ("has(self.pu.k)", "true"),
        ("has(self.pu.other)", "compile: ERROR: <input>:1:4: undefined field 'other'"),
        ("self.pu == self.pu && self == self", "true"),
    ]);
}

#[test]
fn sets_and_lists_with_keys() {
    check(&[
        ("self.set + ['x', 'z']", r#"["x", "y", "z"]"#),
        ("self.set == ['y', 'x']", "true"),
        ("self.set == ['y', 'q']", "false"),
        ("self.ls == ['b', 'a', 'c']", "false"),
        ("self.ls + ['d']", r#"["a", "b", "c", "d"]"#),
        ("self.lm == self.lm", "true"),
        ("(self.lm + self.lm).size()", "2"),
    ]);
}

#[test]
fn documents_that_do_not_fit_are_errors() {
    let rows = [
        (json!({"i": "x"}), "self.i == 1", "error: invalid data, expected int, got string"),
        (json!({"b": 1}), "self.b", "error: invalid data, expected bool, got int64"),
        (json!({"s": [1]}), "self.s", "error: invalid data, expected string, got []interface {}"),
        (
            json!({"ls": 1}),
            "self.ls.size() > 0",
            "error: invalid data, expected an array for the provided schema with type=array",
        ),
        (
            json!({"m": 1}),
            "self.m.size() > 0",
            "error: invalid data, expected a map for the provided schema with type=object",
        ),
        (
            json!({"ios": true}),
            "self.ios == 1",
            "error: invalid data, expected XIntOrString value to be either a string or integer",
        ),
        (
            json!({"li": [null]}),
            "self.li[0] == 1",
            "error: invalid data, got null for schema with nullable=false",
        ),
        (json!({"dt": "x"}), "self.dt == self.dt", "error: Invalid date-time formatted string x"),
        (json!({"d": 2}), "self.d", "2.0"),
        (json!({}), "self.s == ''", "error: no such key: s"),
    ];
    let shape = Arc::new(shape());
    let env = Environment::new().document("self", &shape);
    for (document, source, expected) in &rows {
        let found = run_in(&env, source, |()| Bindings::new().with(Value::shaped(document, &shape).unwrap()));
        assert_eq!(found, *expected, "{source}");
    }
}
