//! Where expressions are compiled: the variables they may use, and the seam of this crate.

use std::sync::Arc;

use polder_model::SmolStr;

use crate::check;
use crate::estimate;
use crate::parser::{self, Grammar};
use crate::plan;
use crate::program::Program;
use crate::re2::{Effort, Patterns};
use crate::shape::Shape;
use crate::source::CompileErrors;
use crate::types::Type;
use crate::validate;

/// The variables of a set of expressions. Functions are the same everywhere: those of Kubernetes 1.35.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: Vec<Variable>,
    grammar: Grammar,
    pub(crate) makes_objects: bool,
    /// What its expressions share with others; otherwise each has its own.
    effort: Option<Effort>,
}

#[derive(Clone, Debug)]
struct Variable {
    name: SmolStr,
    declared: Type,
    /// What its sizes are estimated by.
    shape: Option<Arc<Shape>>,
}

impl Environment {
    pub fn new() -> Environment {
        Environment::default()
    }

    /// Declares a variable. Its number is that of the variables declared before it; bindings go by it.
    #[must_use]
    pub fn variable_of(mut self, name: impl Into<SmolStr>, declared: Type) -> Environment {
        self.variables.push(Variable { name: name.into(), declared, shape: None });
        self
    }

    /// Declares a variable that holds a document of a shape.
    #[must_use]
    pub fn document(mut self, name: impl Into<SmolStr>, shape: &Arc<Shape>) -> Environment {
        let declared = shape.cel_type();
        self.variables.push(Variable { name: name.into(), declared, shape: Some(shape.clone()) });
        self
    }

    /// Declares a variable that may hold a document of a shape.
    #[must_use]
    pub fn optional_document(mut self, name: impl Into<SmolStr>, shape: &Arc<Shape>) -> Environment {
        let declared = Type::optional(shape.cel_type());
        self.variables.push(Variable { name: name.into(), declared, shape: Some(shape.clone()) });
        self
    }

    /// Allows `cel.bind`, which Kubernetes does not have.
    #[must_use]
    pub fn with_bind(mut self) -> Environment {
        self.grammar.bind = true;
        self
    }

    /// Allows `Object{...}`, `JSONPatch{...}` and what goes with them, as policies that change objects have them.
    #[must_use]
    pub fn with_objects(mut self) -> Environment {
        self.makes_objects = true;
        self
    }

    /// Compiles the patterns of its expressions out of an effort.
    #[must_use]
    pub fn with_effort(mut self, effort: &Effort) -> Environment {
        self.effort = Some(effort.clone());
        self
    }

    pub fn variable_count(&self) -> usize {
        self.variables.len()
    }

    pub(crate) fn variable(&self, name: &str) -> Option<(u32, Type)> {
        let at = self.variables.iter().position(|variable| variable.name == name)?;
        Some((u32::try_from(at).ok()?, self.variables[at].declared.clone()))
    }

    pub(crate) fn shape(&self, slot: u32) -> Option<&Arc<Shape>> {
        self.variables.get(slot as usize)?.shape.as_ref()
    }

    /// Parses, checks, estimates and plans an expression. The result may have any type: see [`Program::result`].
    pub fn compile(&self, source: &str) -> Result<Program, CompileError> {
        let ast = parser::parse(source, self.grammar)?;
        let checked = check::check(&ast, source, self)?;
        let mut regexes = Patterns::of_expression(&self.effort.clone().unwrap_or_default());
        validate::validate(&ast, &checked, source, &mut regexes)?;
        let estimate = estimate::estimate(&ast, &checked, self);
        plan::plan(&ast, &checked, estimate, regexes).map_err(CompileError::Instantiation)
    }

    /// Whether an expression reads a member of a variable by its name: `claims.email`, `has(claims.email)`, `claims.?email`.
    pub fn selects(&self, source: &str, variable: &str, member: &str) -> bool {
        let Ok(ast) = parser::parse(source, self.grammar) else { return false };
        ast.selects(variable, member)
    }
}

/// Why there is no program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// The expression is wrong.
    #[error("{0}")]
    Expression(#[from] CompileErrors),
    /// A constant part of it fails whenever it runs.
    #[error("{0}")]
    Instantiation(String),
}
