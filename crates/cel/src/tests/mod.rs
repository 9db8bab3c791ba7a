//! Rows of data: expression and bindings, and what comes out. Expectations are facts of cel-go and Kubernetes.

mod cost_rows;
mod costs;
mod errors;
mod language;
mod libraries;
mod limits;
mod objects;
mod real_rules;
mod shapes;

use polder_model::{Value as Json, json};

use crate::{Bindings, Budget, Environment, Type, Value};

/// The result as text: a value, `error: ...` from running, or `compile: ...`.
pub(crate) fn run(source: &str, document: &Json) -> String {
    let env = Environment::new().variable_of("x", Type::Dyn).with_bind();
    run_in(&env, source, |_| Bindings::new().with(Value::json(document)))
}

pub(crate) fn run_in<'a>(
    env: &Environment,
    source: &str,
    bindings: impl FnOnce(&()) -> Bindings<'a>,
) -> String {
    let program = match env.compile(source) {
        Ok(program) => program,
        Err(error) => return format!("compile: {error}"),
    };
    let bindings = bindings(&());
    shown(&program, &bindings)
}

fn shown<'a>(program: &'a crate::Program, bindings: &'a Bindings<'a>) -> String {
    match program.evaluate(bindings, Budget::default()).value {
        Ok(value) => show(&value),
        Err(fault) => format!("error: {fault}"),
    }
}

/// A value as it could be written.
pub(crate) fn show(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(flag) => flag.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => format!("{number}u"),
        Value::Double(number) => format!("{number:?}"),
        Value::String(text) => format!("{text:?}"),
        Value::Bytes(bytes) => format!("b{:?}", String::from_utf8_lossy(bytes)),
        Value::Duration(nanos) => format!("duration({})", crate::time::show_duration(*nanos)),
        Value::Timestamp(at) => format!("timestamp({at})"),
        Value::List(list) => {
            let items: Vec<String> = list.iter().map(|item| show(&item.unwrap())).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(map) => {
            let entry =
                |key: &Value<'_>| format!("{}: {}", show(key), show(&map.find(key).unwrap().unwrap()));
            let entries: Vec<String> = map.keys().iter().map(entry).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Optional(None) => "none".into(),
        Value::Optional(Some(inner)) => format!("some({})", show(inner)),
        Value::Type(name) => format!("type({name})"),
        Value::Opaque(opaque) => opaque.opaque().name().into(),
    }
}

/// Checks rows without a document.
#[track_caller]
pub(crate) fn check_rows(rows: &[(&str, &str)]) {
    check_rows_on(&json!({}), rows);
}

#[track_caller]
pub(crate) fn check_rows_on(document: &Json, rows: &[(&str, &str)]) {
    let mut wrong = String::new();
    for (source, expected) in rows {
        let found = run(source, document);
        if found != *expected {
            wrong.push_str(&format!("\n{source}\n  expected {expected}\n  found    {found}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
