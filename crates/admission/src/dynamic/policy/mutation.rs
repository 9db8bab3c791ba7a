//! Policies that change objects: expressions that make either what an object should have, or a JSON patch.
//!
//! Here an expression becomes a [`Change`]; making it is left to whoever has the object and its schema.

use polder_cel::{JSON_PATCH, Made, NotJson, OBJECT, Program, Type, Value as Cel};
use polder_model::{FieldError, Object, SmolStr, Value};

use super::basis::{TOO_LARGE, frame_only, program_bytes, text};
use super::{Basis, run};
use crate::dynamic::request::Inputs;
use crate::dynamic::running::{Failure, Meter, OUT_OF_BUDGET, Running};

/// What a change may take as JSON: no object is larger.
pub(crate) const CHANGE_BYTES_MAX: usize = 3 << 20;
/// The operations of one JSON patch.
const OPERATIONS_MAX: usize = polder_machinery::patch::OPERATIONS_MAX;

/// A policy, ready to change objects.
#[derive(Debug)]
pub struct MutatingPolicy {
    pub(crate) basis: Basis,
    pub(crate) mutations: Vec<Mutation>,
    /// Asked again when something changes after it was.
    pub(crate) again: bool,
}

#[derive(Debug)]
pub(crate) struct Mutation {
    kind: MutationKind,
    expression: SmolStr,
    program: Result<Program, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MutationKind {
    Apply,
    Patch,
}

/// What is to become of an object.
#[derive(Debug, PartialEq)]
pub(crate) enum Change {
    /// These members are put over its own.
    Overlay(Value),
    /// A list of operations.
    Patch(Value),
}

impl MutatingPolicy {
    /// Compiles the `spec` of a policy. One that does not compile is asked too: its failure policy counts.
    pub fn compile(spec: &Value) -> MutatingPolicy {
        let (mut basis, mut scope) = Basis::read(spec, true);
        scope.makes_objects = true;
        let mut mutations = Vec::new();
        for (index, mutation) in basis.parts(spec, "mutations") {
            let (kind, field, wanted) = match mutation.str_at(&["patchType"]) {
                Some("JSONPatch") => {
                    let operations = Type::list(Type::Made(JSON_PATCH.into()));
                    (MutationKind::Patch, "jsonPatch", operations)
                }
                _ => (MutationKind::Apply, "applyConfiguration", Type::Made(OBJECT.into())),
            };
            let empty = Value::Null;
            let written = text(mutation.get(field).unwrap_or(&empty), "expression");
            let expression: SmolStr = written.trim().into();
            let program = scope.compile(&expression, &[wanted]).map_err(|problem| {
                basis.report("mutations", index, &[field, "expression"], &problem, &expression)
            });
            mutations.push(Mutation { kind, expression, program });
        }
        let again = spec.str_at(&["reinvocationPolicy"]) == Some("IfNeeded");
        MutatingPolicy { basis, mutations, again }
    }

    /// Stands for a policy that takes more memory than there is for it: it fails.
    pub fn too_large(spec: &Value) -> MutatingPolicy {
        let failing = Mutation {
            kind: MutationKind::Apply,
            expression: SmolStr::default(),
            program: Err(TOO_LARGE.into()),
        };
        MutatingPolicy { mutations: vec![failing], ..MutatingPolicy::compile(&frame_only(spec)) }
    }

    /// What is wrong with its expressions.
    pub fn problems(&self) -> &[FieldError] {
        &self.basis.problems
    }

    /// About how much memory it takes.
    pub fn bytes(&self) -> usize {
        let mutation =
            |own: &Mutation| size_of::<Mutation>() + program_bytes(&own.program) + own.expression.len();
        size_of::<MutatingPolicy>() + self.basis.bytes() + self.mutations.iter().map(mutation).sum::<usize>()
    }

    /// What one of its mutations makes of a request, or why it makes nothing; tells `meter` what that cost.
    pub(crate) fn change(
        &self,
        index: usize,
        inputs: &Inputs<'_>,
        meter: &mut Meter,
    ) -> Result<Change, String> {
        let Some(mutation) = self.mutations.get(index) else {
            return Err("there is no such mutation".into());
        };
        let program = mutation.program.as_ref().map_err(Clone::clone)?;
        let bindings = inputs.bindings(true, true);
        let running = Running::new(&bindings, &self.basis.variables, run::BUDGET.min(meter.limit));
        let outcome = running.run(&mutation.expression, program);
        meter.add(&running);
        match outcome {
            Ok(value) => mutation.kind.read(&value),
            Err(Failure::Error(text)) => Err(text),
            Err(Failure::OutOfBudget) => {
                meter.ran_out = true;
                Err(OUT_OF_BUDGET.into())
            }
        }
    }
}

impl MutationKind {
    fn read(self, value: &Cel<'_>) -> Result<Change, String> {
        match self {
            MutationKind::Apply => match value.to_json(CHANGE_BYTES_MAX) {
                Ok(json) if value.made().is_some() => Ok(Change::Overlay(json)),
                Ok(_) => {
                    let found = value.type_name();
                    Err(format!("unsupported return type from ApplyConfiguration expression: {found}"))
                }
                Err(NotJson::Unsupported(_)) => Err("invalid return type: *dynamic.ObjectVal".into()),
                Err(problem) => Err(problem.to_string()),
            },
            MutationKind::Patch => {
                let Cel::List(list) = value else {
                    return Err("type mismatch: JSONPatchType.expression should evaluate to array".into());
                };
                if list.len() > OPERATIONS_MAX {
                    return Err(format!("a JSON patch has at most {OPERATIONS_MAX} operations"));
                }
                let mut operations = Vec::with_capacity(list.len());
                let mut bytes_left = CHANGE_BYTES_MAX;
                for item in list.iter() {
                    let item = item.map_err(|fault| fault.to_string())?;
                    let made = item.made().filter(|made| made.name() == JSON_PATCH);
                    let made = made.ok_or_else(|| {
                        let found = item.type_name();
                        format!("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, got element of {found}")
                    })?;
                    operations.push(operation(made, &mut bytes_left)?);
                }
                Ok(Change::Patch(Value::Array(operations)))
            }
        }
    }
}

/// One operation, as a JSON patch writes it.
fn operation(made: &Made<'_>, bytes_left: &mut usize) -> Result<Value, String> {
    let mut operation = Object::new();
    let text = |field: &str| match made.get(field) {
        Some(Cel::String(text)) => SmolStr::new(&**text),
        _ => SmolStr::default(),
    };
    let mut spend = |bytes: usize| {
        *bytes_left = bytes_left.checked_sub(bytes).ok_or_else(|| NotJson::TooLarge.to_string())?;
        Ok::<(), String>(())
    };
    for field in ["op", "path", "from"] {
        let text = text(field);
        spend(text.len() + field.len())?;
        if field != "from" || !text.is_empty() {
            operation.insert(field, text);
        }
    }
    if let Some(value) = made.get("value") {
        let json = value.to_json(CHANGE_BYTES_MAX).map_err(|problem| match problem {
            NotJson::Unsupported(why) => {
                format!("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {why}")
            }
            other => other.to_string(),
        })?;
        spend(json.to_vec().len())?;
        operation.insert("value", json);
    }
    Ok(Value::Object(operation))
}
