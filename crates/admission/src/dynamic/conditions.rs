//! Match conditions: expressions that decide whether a webhook or policy is about a request at all.

use polder_cel::{Program, Type, Value as Cel};
use polder_model::{FieldError, FieldPath, SmolStr, Value};

use super::expressions::Scope;
use super::request::Inputs;
use super::running::{Failure, Meter, OUT_OF_BUDGET, Running};

/// Upstream's budget for all conditions of one webhook or policy.
const BUDGET: u64 = 2_500_000;
/// What upstream allows; more were stored by nobody.
const LEN_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Conditions {
    all: Vec<Condition>,
}

#[derive(Debug)]
struct Condition {
    source: SmolStr,
    program: Result<Program, String>,
}

/// Whether a request is meant.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Matched {
    Yes,
    No,
    /// Nobody can tell, and that counts as a failure.
    Unknown(String),
}

impl Conditions {
    /// Compiles `matchConditions`, and says what is wrong with them.
    pub(crate) fn read(
        owner: &Value,
        scope: &Scope,
        path: &FieldPath<'_>,
        problems: &mut Vec<FieldError>,
    ) -> Conditions {
        let list = path.member("matchConditions");
        let one = |(index, condition): (usize, &Value)| {
            let source = condition.str_at(&["expression"]).unwrap_or_default().trim();
            let program = scope.compile(source, &[Type::Bool]).map_err(|problem| {
                let path = list.index(index);
                problems.push(problem.field_error(&path.member("expression"), source));
                problem.text
            });
            Condition { source: source.into(), program }
        };
        let all = owner.array_at(&["matchConditions"]).iter().take(LEN_MAX).enumerate().map(one);
        Conditions { all: all.collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.all.iter().map(|one| one.program.as_ref().map_or(64, Program::memory_bytes)).sum()
    }

    /// One that is false decides, whatever else fails. `fail` says what it means when nobody can tell; `meter` is told
    /// what it cost.
    pub(crate) fn hold(&self, inputs: &Inputs<'_>, fail: bool, meter: &mut Meter) -> Matched {
        let bindings = inputs.bindings(false, true);
        let running = Running::new(&bindings, &[], BUDGET.min(meter.limit));
        let mut errors: Vec<String> = Vec::new();
        let mut note = |error: String| {
            if !errors.contains(&error) {
                errors.push(error);
            }
        };
        let mut decided = false;
        for condition in &self.all {
            let outcome = match &condition.program {
                Ok(program) => running.run(&condition.source, program),
                Err(problem) => Err(Failure::Error(format!("compilation error: {problem}"))),
            };
            match outcome {
                Ok(Cel::Bool(false)) => {
                    decided = true;
                    break;
                }
                Ok(_) => {}
                Err(Failure::Error(text)) => note(text),
                Err(Failure::OutOfBudget) => {
                    meter.ran_out = true;
                    errors = vec![OUT_OF_BUDGET.into()];
                    break;
                }
            }
        }
        meter.add(&running);
        match errors.as_slice() {
            _ if decided => Matched::No,
            [] => Matched::Yes,
            _ if !fail => Matched::No,
            [one] => Matched::Unknown(one.clone()),
            several => Matched::Unknown(format!("[{}]", several.join(", "))),
        }
    }
}
