//! Runs expressions with the variables of a policy, which are computed when one is first used.
//!
//! Nothing here is recursive: an expression that meets a variable nobody has computed yet stops, the variable is
//! computed, and the expression starts over. So the stack is as deep as one expression, however variables build on
//! each other, and what starting over costs is counted.

use std::cell::{Cell, RefCell};

use polder_cel::{Bindings, Budget, CALL_COST_MAX, Fault, Members, Outcome, Program, Value};
use polder_model::SmolStr;

use super::expressions::VARIABLES;

/// Runs that were in vain may cost this many times what runs may cost.
const RETRY_FACTOR: u64 = 4;

/// Shown when a budget is used up.
pub(crate) const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// What running expressions costs, and may cost.
#[derive(Debug)]
pub(crate) struct Meter {
    /// No set of expressions may cost more, whatever upstream allows.
    pub(crate) limit: u64,
    pub(crate) spent: u64,
    /// A budget was used up.
    pub(crate) ran_out: bool,
}

impl Meter {
    pub(crate) fn new(limit: u64) -> Meter {
        Meter { limit, spent: 0, ran_out: false }
    }

    pub(crate) fn add(&mut self, running: &Running<'_>) {
        self.spent = self.spent.saturating_add(running.spent());
    }
}

/// A named expression, or why there is no program.
#[derive(Debug)]
pub(crate) struct Variable {
    pub(crate) name: SmolStr,
    pub(crate) program: Result<Program, String>,
}

/// What is known of the variables of a policy for one request.
pub(crate) struct Running<'a> {
    bindings: &'a Bindings<'a>,
    variables: &'a [Variable],
    values: RefCell<Vec<Option<Outcome<'a>>>>,
    wanted: Cell<Option<usize>>,
    /// What is left of the budget.
    left: Cell<u64>,
    /// What may still be spent in vain.
    retries: Cell<u64>,
    spent: Cell<u64>,
}

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The expression says so.
    Error(String),
    /// Nothing more is run.
    OutOfBudget,
}

impl<'a> Running<'a> {
    pub(crate) fn new(bindings: &'a Bindings<'a>, variables: &'a [Variable], budget: u64) -> Running<'a> {
        Running {
            bindings,
            variables,
            values: RefCell::new(vec![None; variables.len()]),
            wanted: Cell::new(None),
            left: Cell::new(budget),
            retries: Cell::new(budget.saturating_mul(RETRY_FACTOR)),
            spent: Cell::new(0),
        }
    }

    /// All that was spent, in vain or not.
    pub(crate) fn spent(&self) -> u64 {
        self.spent.get()
    }

    pub(crate) fn run(&self, source: &str, program: &'a Program) -> Result<Value<'a>, Failure> {
        let mut waiting: Vec<usize> = Vec::new();
        let mut cost = 0;
        loop {
            let current = waiting.last().copied();
            let running = match current.map(|at| &self.variables[at].program) {
                None => program,
                Some(Ok(program)) => program,
                Some(Err(problem)) => {
                    let name = current.map(|at| self.variables[at].name.as_str()).unwrap_or_default();
                    self.keep(
                        waiting.pop(),
                        Err(format!("composited variable {name:?} fails to compile: {problem}")),
                    );
                    continue;
                }
            };
            let cost_max = CALL_COST_MAX.min(self.left.get().saturating_sub(cost).saturating_add(1));
            let budget = Budget { cost_max, interrupt: None };
            let evaluation = running.evaluate_with(self.bindings, self, budget);
            self.spent.set(self.spent.get().saturating_add(evaluation.cost));
            if cost_max < CALL_COST_MAX && matches!(evaluation.value, Err(Fault::CostExceeded)) {
                return Err(Failure::OutOfBudget);
            }
            if let Some(wanted) = self.wanted.take() {
                let left = self.retries.get().checked_sub(evaluation.cost.max(1));
                self.retries.set(left.ok_or(Failure::OutOfBudget)?);
                match waiting.contains(&wanted) {
                    true => self.keep(Some(wanted), Err("a variable is made of itself".into())),
                    false => waiting.push(wanted),
                }
                continue;
            }
            cost += evaluation.cost;
            match waiting.pop() {
                Some(at) => {
                    let name = &self.variables[at].name;
                    let value = evaluation
                        .value
                        .map_err(|fault| format!("composited variable {name:?} fails to evaluate: {fault}"));
                    self.keep(Some(at), value);
                }
                None => {
                    self.left.set(self.left.get().checked_sub(cost).ok_or(Failure::OutOfBudget)?);
                    return evaluation.value.map_err(|fault| {
                        Failure::Error(format!("expression '{source}' resulted in error: {fault}"))
                    });
                }
            }
        }
    }

    fn keep(&self, at: Option<usize>, value: Result<Value<'a>, String>) {
        if let Some(at) = at {
            let value = value.and_then(|value| match value.is_bounded() {
                true => Ok(value),
                false => Err("variables that build on each other make a value that is too large".into()),
            });
            self.values.borrow_mut()[at] = Some(value.map_err(Fault::error));
        }
    }
}

impl<'a> Members<'a> for Running<'a> {
    fn member(&self, variable: u32, name: &str) -> Option<Outcome<'a>> {
        if variable != VARIABLES {
            return None;
        }
        let at = self.variables.iter().rposition(|variable| variable.name == name)?;
        Some(match &self.values.borrow()[at] {
            Some(value) => value.clone(),
            None => {
                self.wanted.set(Some(at));
                Err(Fault::Interrupted)
            }
        })
    }
}
