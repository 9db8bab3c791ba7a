//! Hostile expressions and documents end, soon and with an error.

use polder_model::{Value as Json, json};
use std::sync::atomic::AtomicBool;

use super::run;
use crate::{Bindings, Budget, Environment, Fault, Members, Outcome, Type, Value};

const EXCEEDED: &str = "error: operation cancelled: actual cost limit exceeded";

/// With a tenth of the usual budget, so that the tests are as much faster.
fn run_with_little(source: &str, document: &Json) -> String {
    let env = Environment::new().variable_of("x", Type::Dyn);
    let program = env.compile(source).unwrap();
    let bindings = Bindings::new().with(Value::json(document));
    let evaluation = program.evaluate(&bindings, Budget { cost_max: 100_000, interrupt: None });
    match evaluation.value {
        Ok(value) => super::show(&value),
        Err(fault) => format!("error: {fault}"),
    }
}

#[test]
fn what_is_just_allowed_runs() {
    // As deep as the parser lets pass. A debug build takes up to 2 MB of stack for it, a release build far less.
    let deep = std::thread::Builder::new().stack_size(4 << 20).spawn(deep_expressions).unwrap();
    deep.join().unwrap();
}

fn deep_expressions() {
    let nested = |open: &str, inner: &str, close: &str, depth: usize| {
        format!("{}{inner}{}", open.repeat(depth), close.repeat(depth))
    };
    for source in [
        nested("dyn(", "1", ")", 240),
        nested("[", "1", "]", 240),
        nested("{'a': ", "1", "}", 240),
        nested("[1].all(i, ", "true", ")", 60),
        nested("[1].map(i, ", "i", ")", 60),
        nested("(true ? ", "1", " : 2)", 200),
        nested("optional.of(", "1", ")", 200),
        nested("cel.bind(a, 1, ", "a", ")", 200),
        format!("{}1", "1 + ".repeat(240)),
        format!("dyn([1]){}", ".map(i, i)".repeat(60)),
    ] {
        let found = run(&source, &json!({}));
        assert!(!found.starts_with("compile"), "{source}: {found}");
    }
}

#[test]
fn nesting_is_bounded() {
    for (open, inner, close) in
        [("(", "1", ")"), ("[", "1", "]"), ("-(", "1", ")"), ("{1:", "1", "}"), ("size(", "x", ")")]
    {
        let source = format!("{}{inner}{}", open.repeat(5000), close.repeat(5000));
        assert_eq!(
            run(&source, &json!({})),
            "compile: ERROR: <input>:-1:0: expression recursion limit exceeded: 250"
        );
    }
    for source in
        ["1 + ".repeat(5000) + "1", format!("x{}", ".a".repeat(5000)), "true ? 1 : ".repeat(5000) + "1"]
    {
        assert_eq!(
            run(&source, &json!({})),
            "compile: ERROR: <input>:-1:0: expression recursion limit exceeded: 250"
        );
    }
    assert_eq!(run(&format!("{}true", "!".repeat(10_000)), &json!({})), "true");
    // Long rows of && and || are no nesting.
    assert_eq!(run(&format!("{}true", "true && ".repeat(9000)), &json!({})), "true");
}

#[test]
fn source_is_bounded() {
    let found = run(&" ".repeat(100_001), &json!({}));
    assert_eq!(
        found,
        "compile: ERROR: <input>:-1:0: expression code point size exceeds limit: size: 100001, limit 100000"
    );
    let found = run(&"$".repeat(100_000), &json!({}));
    assert!(found.len() < 200_000, "{}", found.len());
    let found = run(&"y && ".repeat(9000), &json!({}));
    assert!(found.len() < 1 << 20, "{}", found.len());
}

#[test]
fn types_are_bounded() {
    // Each loop doubles the type of its variable.
    let mut source = String::from("[1].all(a0, ");
    for depth in 0..60 {
        source.push_str(&format!("[{{a{depth}: a{depth}}}].all(a{}, ", depth + 1));
    }
    source.push_str("true");
    source.push_str(&")".repeat(61));
    let found = run(&source, &json!({}));
    assert!(found.contains("too complex to check"), "{found}");
    // Repeated targets of optMap are not written out.
    let source = format!("optional.of(1){}", ".optMap(a, a + 1)".repeat(80));
    assert_eq!(run(&source, &json!({})), EXCEEDED);
}

#[test]
fn loops_are_bounded() {
    let list = Json::Array((0..2000).map(Json::from).collect());
    let document = json!({"l": list, "s": ("x".repeat(100_000).as_str())});
    for source in [
        "x.l.all(a, x.l.all(b, x.l.all(c, a + b + c >= 0)))",
        "x.l.map(a, x.l.map(b, a * b)).size()",
        "x.l.all(a, (x.s + x.s).size() > 0)",
        "x.l.all(a, x.s.replace('', x.s).size() > 0)",
        "x.l.map(a, x.s).join(x.s).size() > 0",
        "lists.range(1000000000).size()",
        "x.l.all(a, lists.range(100000).size() > 0)",
        "x.l.all(a, x.s.split('').size() > 0)",
        "x.l.all(a, x.s.matches(x.s))",
        "x.l.map(a, x.s).map(s, s.matches('(x+x+)+y')).size() > 0",
        "x.l.all(a, sets.contains(x.l, x.l))",
        "x.l.all(a, x.l.distinct().size() > 0)",
        "x.l.map(a, '%s%s%s%s'.format([x.s, x.s, x.s, x.s])).size()",
        "x.l.all(a, x.s.findAll('.').size() > 0)",
        "x.l.map(a, x.s.upperAscii()).size() > 0",
    ] {
        assert_eq!(run_with_little(source, &document), EXCEEDED, "{source}");
    }
}

#[test]
fn work_that_costs_little_is_bounded_too() {
    // Comparing the same deep values again and again has upstream's cost of one.
    let deep = Json::Array(vec![Json::Array((0..20_000).map(Json::from).collect())]);
    let document = json!({"l": (Json::Array((0..50_000).map(Json::from).collect::<Vec<_>>())), "a": (deep.clone()), "b": deep});
    assert_eq!(run_with_little("x.l.all(i, x.a == x.b)", &document), EXCEEDED);
    // A pattern that is computed has to be compiled every time.
    assert_eq!(
        run_with_little("x.l.all(i, 'a'.matches('(a{' + string(5 + i % 7) + '}){10}') || true)", &document),
        EXCEEDED
    );
}

#[test]
fn an_interrupt_stops_the_run() {
    let list = Json::Array((0..20_000).map(Json::from).collect());
    let env = Environment::new().variable_of("x", Type::Dyn);
    let program = env.compile("x.all(i, i >= 0)").unwrap();
    let bindings = Bindings::new().with(Value::json(&list));
    let stop = AtomicBool::new(true);
    let budget = Budget { interrupt: Some(&stop), ..Budget::default() };
    assert_eq!(program.evaluate(&bindings, budget).value.unwrap_err(), Fault::Interrupted);
    let evaluation = program.evaluate(&bindings, Budget::default());
    assert!(matches!(evaluation.value, Ok(Value::Bool(true))), "{evaluation:?}");
    assert_eq!(evaluation.cost, 20_000 * 5 + 2);
    let budget = Budget { cost_max: 1000, interrupt: None };
    assert_eq!(program.evaluate(&bindings, budget).value.unwrap_err(), Fault::CostExceeded);
}

#[test]
fn a_host_answers_for_what_is_not_bound() {
    struct Squares;
    impl<'a> Members<'a> for Squares {
        fn member(&self, variable: u32, name: &str) -> Option<Outcome<'a>> {
            let number: i64 = name.strip_prefix('n')?.parse().ok()?;
            match number {
                13 => Some(Err(Fault::error("unlucky"))),
                _ => Some(Ok(Value::Int(number * number + i64::from(variable)))),
            }
        }
    }
    let env = Environment::new().variable_of("x", Type::Dyn).variable_of("variables", Type::Dyn);
    let bindings = Bindings::new().with(Value::Int(1)).without();
    let rows = [
        ("variables.n3 + x", Ok(11)),
        ("has(variables.n3) && !has(variables.q) ? 1 : 0", Ok(1)),
        ("variables.q", Err("no such key: q")),
        ("variables.n13", Err("unlucky")),
        ("variables.?q.orValue(5)", Ok(5)),
    ];
    for (source, expected) in rows {
        let program = env.compile(source).unwrap();
        let found = program.evaluate_with(&bindings, &Squares, Budget::default()).value;
        match (found, expected) {
            (Ok(Value::Int(found)), Ok(expected)) => assert_eq!(found, expected, "{source}"),
            (Err(found), Err(expected)) => assert_eq!(found.to_string(), expected, "{source}"),
            (found, _) => panic!("{source}: {found:?}"),
        }
    }
    let program = env.compile("variables.n3").unwrap();
    assert!(program.evaluate(&bindings, Budget::default()).value.is_err());
}

#[test]
fn programs_are_shared_and_measured() {
    fn assert_shared<T: Send + Sync>() {}
    assert_shared::<crate::Program>();
    let env = Environment::new().variable_of("x", Type::Dyn);
    let small = env.compile("x.a == 1").unwrap().memory_bytes();
    let regex = env.compile("x.a.matches('^[a-z]{1,63}$')").unwrap().memory_bytes();
    assert!(small < 2000, "{small}");
    assert!(regex > 10_000, "{regex}");
}
