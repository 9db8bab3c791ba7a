//! The Common Expression Language as Kubernetes 1.35 uses it.
//!
//! An [`Environment`] declares variables and compiles source text to a [`Program`]: parsed, type-checked, its cost
//! estimated, and planned. A program evaluates over documents without copying them, within a [`Budget`]. Everything
//! that comes in is taken for hostile: source, documents and what they make of each other.
//!
//! Pure: no async, no clock, no randomness, no I/O. What functions exist is written in `library`, one line each.

mod ast;
mod check;
mod compare;
mod cost;
mod depth;
mod env;
pub mod escape;
mod estimate;
mod eval;
mod lexer;
mod library;
mod list;
mod literal;
mod macros;
mod made;
mod map;
mod meter;
mod overload;
mod parser;
mod plan;
mod program;
pub mod re2;
mod shape;
mod source;
mod time;
mod types;
mod unify;
mod validate;
mod value;

#[cfg(test)]
mod tests;

pub use cost::Range;
pub use env::{CompileError, Environment};
pub use library::authorizer::{Authorizer, Decision, Question, Resource, Target};
pub use list::List;
pub use made::{JSON_PATCH, Made, NotJson, OBJECT};
pub use map::Map;
pub use meter::{Budget, CALL_COST_MAX, Fault, Outcome};
pub use program::{Bindings, Evaluation, Members, Program};
pub use shape::{Field, ListKind, REQUEST_BYTES_MAX, Shape, ShapeKind};
pub use source::{CompileErrors, Issue, Position};
pub use time::Timestamp;
pub use types::{Opaque, Type};
pub use value::{Key, Text, Value};
