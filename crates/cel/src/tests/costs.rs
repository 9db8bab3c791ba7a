//! Costs, estimated and counted: numbers that cel-go and Kubernetes give for the same expression and document.

use std::sync::Arc;

use super::shapes::{document, shape};
use crate::{Bindings, Budget, Environment, Value};

/// Expression; least and most it is estimated to cost; what it cost on the document.
#[track_caller]
fn check(rows: &[(&str, u64, u64, u64)]) {
    let shape = Arc::new(shape());
    let env = Environment::new().document("self", &shape);
    let document = document();
    let mut wrong = String::new();
    for (source, min, max, cost) in rows {
        let program = env.compile(source).unwrap_or_else(|error| panic!("{source}: {error}"));
        let bindings = Bindings::new().with(Value::shaped(&document, &shape).unwrap());
        let evaluation = program.evaluate(&bindings, Budget::default());
        let estimate = program.cost_estimate();
        let found = (*source, estimate.min, estimate.max, evaluation.cost);
        if found != (*source, *min, *max, *cost) {
            wrong.push_str(&format!("\n{found:?}, expected {:?}", (min, max, cost)));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn like_upstream() {
    check(super::cost_rows::ROWS);
}
