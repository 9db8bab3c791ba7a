//! What policies that judge and policies that change have in common: which requests they are about, with which
//! parameters, and their variables.

use polder_cel::{Program, Type};
use polder_model::{FieldError, FieldPath, GroupVersion, GroupVersionKind, Object, SmolStr, Value};

use crate::dynamic::conditions::Conditions;
use crate::dynamic::expressions::{Params, Problem, Scope};
use crate::dynamic::matching::Matcher;
use crate::dynamic::running::Variable;

/// No honest policy has more of a kind; the work of compiling grows with their square.
pub(super) const PARTS_MAX: usize = 1000;

/// Why a policy of a plane that has too many fails.
pub(super) const TOO_LARGE: &str = "the admission policies of this plane are too large together";

/// The frame of a policy.
#[derive(Debug)]
pub(crate) struct Basis {
    pub(crate) matcher: Matcher,
    /// A failure refuses the request.
    pub(crate) fail: bool,
    pub(crate) param_kind: Option<GroupVersionKind>,
    pub(crate) conditions: Conditions,
    pub(super) variables: Vec<Variable>,
    pub(super) problems: Vec<FieldError>,
}

impl Basis {
    /// Reads the frame of a `spec`, and gives what its other expressions may mention: `variables` if it has any, or
    /// `always`.
    pub(super) fn read(spec: &Value, always: bool) -> (Basis, Scope) {
        let mut problems = Vec::new();
        let param_kind = spec.get("paramKind").filter(|kind| !kind.is_null()).map(param_kind);
        let mut scope = Scope {
            params: param_kind.as_ref().map(|_| Params::Untyped),
            authorizer: true,
            ..Scope::default()
        };
        let conditions = Conditions::read(spec, &scope, &FieldPath::root("spec"), &mut problems);
        let empty = Value::Null;
        let constraints = spec.get("matchConstraints").unwrap_or(&empty);
        let mut basis = Basis {
            matcher: Matcher::read(constraints, "resourceRules"),
            fail: spec.str_at(&["failurePolicy"]) != Some("Ignore"),
            param_kind,
            conditions,
            variables: Vec::new(),
            problems,
        };
        scope.composed = always || !spec.array_at(&["variables"]).is_empty();
        let scope = basis.read_variables(spec, scope);
        (basis, scope)
    }

    fn read_variables(&mut self, spec: &Value, mut scope: Scope) -> Scope {
        for (index, variable) in self.parts(spec, "variables") {
            let (name, source) = (text(variable, "name"), text(variable, "expression"));
            let program = scope.compile_any(&source);
            let found = program.as_ref().map_or(Type::Dyn, |program| program.result().clone());
            scope.variables.push((name.clone(), found));
            let program = program
                .map_err(|problem| self.report("variables", index, &["expression"], &problem, &source));
            self.variables.push(Variable { name, program });
        }
        scope
    }

    /// The elements of a list of the policy, as many as there may be.
    pub(super) fn parts<'s>(
        &mut self,
        spec: &'s Value,
        list: &'static str,
    ) -> impl Iterator<Item = (usize, &'s Value)> + use<'s> {
        let all = spec.array_at(&[list]);
        if all.len() > PARTS_MAX {
            let path = FieldPath::root("spec");
            self.problems.push(FieldError::too_many(path.member(list), all.len(), PARTS_MAX));
        }
        all.iter().take(PARTS_MAX).enumerate()
    }

    /// Notes what is wrong with an expression, and gives it as a text.
    pub(super) fn report(
        &mut self,
        list: &str,
        index: usize,
        fields: &[&str],
        problem: &Problem,
        source: &str,
    ) -> String {
        let path = FieldPath::root("spec");
        let list = path.member(list);
        let one = list.index(index);
        let error = match fields {
            [field] => problem.field_error(&one.member(field), source),
            [outer, field] => problem.field_error(&one.member(outer).member(field), source),
            _ => problem.field_error(&one, source),
        };
        self.problems.push(error);
        problem.text.clone()
    }

    pub(super) fn bytes(&self) -> usize {
        let variable = |own: &Variable| size_of::<Variable>() + program_bytes(&own.program);
        self.conditions.bytes() + self.variables.iter().map(variable).sum::<usize>()
    }
}

/// What is left of a `spec` whose expressions do not fit: which requests it is about.
pub(super) fn frame_only(spec: &Value) -> Value {
    let mut small = Value::Object(Object::new());
    for field in ["matchConstraints", "failurePolicy"] {
        small.set_at(&[field], spec.get(field).cloned().unwrap_or_default());
    }
    small
}

pub(super) fn program_bytes(program: &Result<Program, String>) -> usize {
    program.as_ref().map_or(64, Program::memory_bytes)
}

pub(super) fn text(value: &Value, field: &str) -> SmolStr {
    SmolStr::new(value.str_at(&[field]).unwrap_or_default())
}

fn param_kind(kind: &Value) -> GroupVersionKind {
    let api_version = kind.str_at(&["apiVersion"]).unwrap_or_default();
    let GroupVersion { group, version } =
        GroupVersion::parse(api_version).unwrap_or_else(|| GroupVersion::new("", api_version));
    GroupVersionKind { group, version, kind: text(kind, "kind") }
}
