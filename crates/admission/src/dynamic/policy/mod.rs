//! Admission policies, compiled. What is compiled depends on the text of a policy only, so planes with the same policy
//! share it.

mod basis;
mod mutation;
mod run;
#[cfg(test)]
mod tests;
mod types;

use polder_cel::{Program, Type};
use polder_model::{FieldError, SmolStr, Value};

use basis::{TOO_LARGE, frame_only, program_bytes, text};

pub(crate) use basis::Basis;
pub use mutation::MutatingPolicy;
pub(crate) use mutation::{CHANGE_BYTES_MAX, Change};
pub(crate) use run::{AnnotationOutcome, Judged, judge};
pub use types::{CheckedKind, kinds_to_check, type_warnings};

/// A policy, ready to judge.
#[derive(Debug)]
pub struct Policy {
    pub(crate) basis: Basis,
    validations: Vec<Validation>,
    annotations: Vec<Annotation>,
}

#[derive(Debug)]
struct Validation {
    expression: SmolStr,
    program: Result<Program, String>,
    message: SmolStr,
    message_program: Option<(SmolStr, Result<Program, String>)>,
    reason: SmolStr,
}

#[derive(Debug)]
struct Annotation {
    key: SmolStr,
    expression: SmolStr,
    program: Result<Program, String>,
}

impl Policy {
    /// Compiles the `spec` of a policy. One that does not compile judges too: its failure policy counts.
    pub fn compile(spec: &Value) -> Policy {
        let (mut basis, scope) = Basis::read(spec, false);
        let mut message_scope = scope.clone();
        message_scope.authorizer = false;
        let mut validations = Vec::new();
        for (index, validation) in basis.parts(spec, "validations") {
            let expression = text(validation, "expression");
            let program = scope.compile(&expression, &[Type::Bool]);
            let program = program.map_err(|problem| {
                basis.report("validations", index, &["expression"], &problem, &expression)
            });
            let source = text(validation, "messageExpression");
            let message_program = (!source.trim().is_empty()).then(|| {
                let program = message_scope.compile(&source, &[Type::String]);
                let program = program.map_err(|problem| {
                    basis.report("validations", index, &["messageExpression"], &problem, &source)
                });
                (source, program)
            });
            validations.push(Validation {
                expression,
                program,
                message: text(validation, "message"),
                message_program,
                reason: text(validation, "reason"),
            });
        }
        let mut annotations = Vec::new();
        for (index, annotation) in basis.parts(spec, "auditAnnotations") {
            let written = text(annotation, "valueExpression");
            let expression: SmolStr = written.trim().into();
            let program = scope.compile(&expression, &[Type::String, Type::Null]);
            let program = program.map_err(|problem| {
                basis.report("auditAnnotations", index, &["valueExpression"], &problem, &written)
            });
            annotations.push(Annotation { key: text(annotation, "key"), expression, program });
        }
        Policy { basis, validations, annotations }
    }

    /// Stands for a policy that takes more memory than there is for it: it fails.
    pub fn too_large(spec: &Value) -> Policy {
        let failing = Validation {
            expression: SmolStr::default(),
            program: Err(TOO_LARGE.into()),
            message: SmolStr::default(),
            message_program: None,
            reason: SmolStr::default(),
        };
        Policy { validations: vec![failing], ..Policy::compile(&frame_only(spec)) }
    }

    /// What is wrong with its expressions.
    pub fn problems(&self) -> &[FieldError] {
        &self.basis.problems
    }

    /// About how much memory it takes.
    pub fn bytes(&self) -> usize {
        let validation = |own: &Validation| {
            let message = own
                .message_program
                .as_ref()
                .map_or(0, |(source, program)| source.len() + program_bytes(program));
            size_of::<Validation>()
                + program_bytes(&own.program)
                + message
                + own.expression.len()
                + own.message.len()
        };
        let annotation = |own: &Annotation| size_of::<Annotation>() + program_bytes(&own.program);
        size_of::<Policy>()
            + self.basis.bytes()
            + self.validations.iter().map(validation).sum::<usize>()
            + self.annotations.iter().map(annotation).sum::<usize>()
    }
}
