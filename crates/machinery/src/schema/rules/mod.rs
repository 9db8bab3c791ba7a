//! Validation rules of custom resources: `x-kubernetes-validations`.
//!
//! Compiled once with their schema and shared with it; `compile` judges them when a definition is written, `run`
//! judges objects by them. Memory of all rules of a schema is bounded, and so is what they cost per object.

mod compile;
mod run;
mod shapes;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use polder_cel::{Program, Shape};
use polder_model::SmolStr;

use super::NodeId;

pub(crate) use compile::compile;
pub use run::validate_rules;
pub use shapes::object_shape;

/// All rules of a schema.
#[derive(Debug, Default)]
pub struct Rules {
    /// Where there are rules, sorted by node.
    places: Vec<Place>,
    /// By node: whether there are rules there or below.
    below: Vec<bool>,
    bytes: usize,
}

#[derive(Debug)]
struct Place {
    node: NodeId,
    /// How rules see a value at this place.
    shape: Arc<Shape>,
    rules: Vec<Rule>,
    /// Why others did not compile.
    broken: Vec<String>,
}

#[derive(Debug)]
struct Rule {
    program: Program,
    /// The rule, or its message: how errors name it.
    name: SmolStr,
    message: SmolStr,
    message_program: Option<(Program, SmolStr)>,
    reason: Reason,
    /// Below which member the error is reported.
    field_path: SmolStr,
    uses_old: bool,
    optional_old: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Invalid,
    Forbidden,
    Required,
    Duplicate,
}

impl Rules {
    /// About how much memory they take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn at(&self, node: NodeId) -> Option<&Place> {
        let at = self.places.binary_search_by_key(&node.0, |place| place.node.0).ok()?;
        self.places.get(at)
    }

    fn has_below(&self, node: NodeId) -> bool {
        self.below.get(node.0 as usize).copied().unwrap_or_default()
    }
}
