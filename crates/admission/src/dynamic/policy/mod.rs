//! Validating admission policies, compiled. What is compiled depends on the text of a policy only, so planes with the
//! same policy share it.

mod run;
#[cfg(test)]
mod tests;
mod types;

use polder_cel::{Program, Type};
use polder_model::{FieldError, FieldPath, GroupVersion, GroupVersionKind, SmolStr, Value};

use super::conditions::Conditions;
use super::expressions::{Params, Scope};
use super::matching::Matcher;
use super::running::Variable;

pub(crate) use run::{AnnotationOutcome, Judged, judge};
pub use types::{CheckedKind, kinds_to_check, type_warnings};

/// No honest policy has more of a kind; the work of compiling grows with their square.
const PARTS_MAX: usize = 1000;

/// A policy, ready to judge.
#[derive(Debug)]
pub struct Policy {
    pub(crate) matcher: Matcher,
    /// A failure refuses the request.
    pub(crate) fail: bool,
    pub(crate) param_kind: Option<GroupVersionKind>,
    conditions: Conditions,
    variables: Vec<Variable>,
    validations: Vec<Validation>,
    annotations: Vec<Annotation>,
    problems: Vec<FieldError>,
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
        let mut problems = Vec::new();
        let path = FieldPath::root("spec");
        let param_kind = spec.get("paramKind").filter(|kind| !kind.is_null()).map(param_kind);
        let mut scope = Scope {
            params: param_kind.as_ref().map(|_| Params::Untyped),
            authorizer: true,
            ..Scope::default()
        };
        let conditions = Conditions::read(spec, &scope, &path, &mut problems);
        let mut parts = |list: &'static str| {
            let all = spec.array_at(&[list]);
            if all.len() > PARTS_MAX {
                problems.push(FieldError::too_many(path.member(list), all.len(), PARTS_MAX));
            }
            all.iter().take(PARTS_MAX).enumerate()
        };
        let lists = [parts("variables"), parts("validations"), parts("auditAnnotations")];
        let [listed_variables, listed_validations, listed_annotations] = lists;
        let mut report =
            |list: &str, index: usize, field: &str, problem: super::expressions::Problem, source: &str| {
                let list = path.member(list);
                let one = list.index(index);
                problems.push(problem.field_error(&one.member(field), source));
                problem.text
            };
        let mut variables = Vec::new();
        for (index, variable) in listed_variables {
            let (name, source) = (text(variable, "name"), text(variable, "expression"));
            let program = scope.compile_any(&source);
            let found = program.as_ref().map_or(Type::Dyn, |program| program.result().clone());
            scope.variables.push((name.clone(), found));
            let program =
                program.map_err(|problem| report("variables", index, "expression", problem, &source));
            variables.push(Variable { name, program });
        }
        let mut message_scope = scope.clone();
        message_scope.authorizer = false;
        let mut validations = Vec::new();
        for (index, validation) in listed_validations {
            let expression = text(validation, "expression");
            let program = scope.compile(&expression, &[Type::Bool]);
            let program =
                program.map_err(|problem| report("validations", index, "expression", problem, &expression));
            let source = text(validation, "messageExpression");
            let message_program = (!source.trim().is_empty()).then(|| {
                let program = message_scope.compile(&source, &[Type::String]);
                let program = program
                    .map_err(|problem| report("validations", index, "messageExpression", problem, &source));
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
        for (index, annotation) in listed_annotations {
            let written = text(annotation, "valueExpression");
            let expression: SmolStr = written.trim().into();
            let program = scope.compile(&expression, &[Type::String, Type::Null]);
            let program = program
                .map_err(|problem| report("auditAnnotations", index, "valueExpression", problem, &written));
            annotations.push(Annotation { key: text(annotation, "key"), expression, program });
        }
        let empty = Value::Null;
        let constraints = spec.get("matchConstraints").unwrap_or(&empty);
        Policy {
            matcher: Matcher::read(constraints, "resourceRules"),
            fail: spec.str_at(&["failurePolicy"]) != Some("Ignore"),
            param_kind,
            conditions,
            variables,
            validations,
            annotations,
            problems,
        }
    }

    /// Stands for a policy that takes more memory than there is for it: it fails.
    pub fn too_large(spec: &Value) -> Policy {
        let failing = Validation {
            expression: SmolStr::default(),
            program: Err("the admission policies of this plane are too large together".into()),
            message: SmolStr::default(),
            message_program: None,
            reason: SmolStr::default(),
        };
        let mut small = Value::Object(polder_model::Object::new());
        for field in ["matchConstraints", "failurePolicy"] {
            small.set_at(&[field], spec.get(field).cloned().unwrap_or_default());
        }
        Policy { validations: vec![failing], ..Policy::compile(&small) }
    }

    /// What is wrong with its expressions.
    pub fn problems(&self) -> &[FieldError] {
        &self.problems
    }

    /// About how much memory it takes.
    pub fn bytes(&self) -> usize {
        let one = |program: &Result<Program, String>| program.as_ref().map_or(64, Program::memory_bytes);
        let validation = |own: &Validation| {
            let message =
                own.message_program.as_ref().map_or(0, |(source, program)| source.len() + one(program));
            size_of::<Validation>() + one(&own.program) + message + own.expression.len() + own.message.len()
        };
        size_of::<Policy>()
            + self.conditions.bytes()
            + self.variables.iter().map(|own| size_of::<Variable>() + one(&own.program)).sum::<usize>()
            + self.validations.iter().map(validation).sum::<usize>()
            + self.annotations.iter().map(|own| size_of::<Annotation>() + one(&own.program)).sum::<usize>()
    }
}

fn text(value: &Value, field: &str) -> SmolStr {
    SmolStr::new(value.str_at(&[field]).unwrap_or_default())
}

fn param_kind(kind: &Value) -> GroupVersionKind {
    let api_version = kind.str_at(&["apiVersion"]).unwrap_or_default();
    let GroupVersion { group, version } =
        GroupVersion::parse(api_version).unwrap_or_else(|| GroupVersion::new("", api_version));
    GroupVersionKind { group, version, kind: text(kind, "kind") }
}
