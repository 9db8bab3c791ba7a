//! A compiled expression: immutable, shared between threads, of known size.

use crate::cost::Range;
use crate::eval;
use crate::meter::{Budget, Fault, Outcome};
use crate::plan::{Node, NodeId};
use crate::types::Type;
use crate::value::Value;

#[derive(Debug)]
pub struct Program {
    pub(crate) nodes: Vec<Node>,
    pub(crate) root: NodeId,
    pub(crate) locals: usize,
    pub(crate) result: Type,
    pub(crate) estimate: Range,
    pub(crate) variables: Vec<u32>,
    pub(crate) memory_bytes: usize,
}

/// The values of variables, by their number in the environment.
#[derive(Clone, Debug, Default)]
pub struct Bindings<'a> {
    values: Vec<Option<Value<'a>>>,
}

/// Answers for variables that were not bound, member by member: `variables` of an admission policy.
pub trait Members<'a> {
    /// The member of a variable; `None` when there is none.
    fn member(&self, variable: u32, name: &str) -> Option<Outcome<'a>>;
}

impl<'a> Bindings<'a> {
    pub fn new() -> Bindings<'a> {
        Bindings::default()
    }

    /// Binds the next variable.
    #[must_use]
    pub fn with(mut self, value: Value<'a>) -> Bindings<'a> {
        self.values.push(Some(value));
        self
    }

    /// Leaves the next variable out: using it is an error, unless a host knows its members.
    #[must_use]
    pub fn without(mut self) -> Bindings<'a> {
        self.values.push(None);
        self
    }

    pub(crate) fn get(&self, variable: u32) -> Option<&Value<'a>> {
        self.values.get(variable as usize)?.as_ref()
    }
}

/// What came out, and what it cost.
#[derive(Debug)]
pub struct Evaluation<'a> {
    pub value: Result<Value<'a>, Fault>,
    pub cost: u64,
}

impl Program {
    /// The type of the result.
    pub fn result(&self) -> &Type {
        &self.result
    }

    /// The least and the most it can cost on documents of the declared shapes.
    pub fn cost_estimate(&self) -> Range {
        self.estimate
    }

    /// Whether the expression mentions a variable.
    pub fn uses(&self, variable: u32) -> bool {
        self.variables.contains(&variable)
    }

    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Runs the expression. Values may borrow from the program, the bindings and what they borrow from.
    pub fn evaluate<'a>(&'a self, bindings: &'a Bindings<'a>, budget: Budget<'_>) -> Evaluation<'a> {
        eval::run(self, bindings, None, budget)
    }

    /// Runs the expression with a host that answers for variables which are not bound. What comes out does not borrow
    /// from the host, so that it can keep it.
    pub fn evaluate_with<'a>(
        &'a self,
        bindings: &'a Bindings<'a>,
        host: &dyn Members<'a>,
        budget: Budget<'_>,
    ) -> Evaluation<'a> {
        eval::run(self, bindings, Some(host), budget)
    }
}
