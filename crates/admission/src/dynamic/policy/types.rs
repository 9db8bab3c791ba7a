//! Whether the expressions of a policy fit the kinds it is about. Nothing depends on it: whoever wrote the policy reads
//! it in its status.

use std::sync::Arc;

use polder_cel::{Shape, Type};
use polder_model::{GroupVersionKind, SmolStr, Value, json};

use super::basis::{PARTS_MAX, text};
use crate::dynamic::expressions::{Params, Problem, Scope};

/// Upstream looks at no more.
const KINDS_MAX: usize = 10;
/// What all warnings of a policy may take: they are stored with it.
const WARNINGS_BYTES_MAX: usize = 64 << 10;

/// A kind a policy is about.
#[derive(Clone, Debug)]
pub struct CheckedKind {
    pub kind: GroupVersionKind,
    pub shape: Arc<Shape>,
}

/// The resources a policy names without a wildcard: group, version, plural.
pub fn kinds_to_check(spec: &Value) -> Vec<(SmolStr, SmolStr, SmolStr)> {
    let mut found = Vec::new();
    for rule in spec.array_at(&["matchConstraints", "resourceRules"]) {
        let sorted = |field: &str| {
            let mut all: Vec<&str> = rule.array_at(&[field]).iter().filter_map(Value::as_str).collect();
            all.sort_unstable();
            all
        };
        let (groups, versions, resources) = (sorted("apiGroups"), sorted("apiVersions"), sorted("resources"));
        if groups.iter().chain(&versions).any(|name| name.contains('*')) {
            continue;
        }
        for group in &groups {
            for version in &versions {
                for resource in resources.iter().filter(|name| !name.contains(['*', '/'])) {
                    let one = (SmolStr::new(group), SmolStr::new(version), SmolStr::new(resource));
                    if !found.contains(&one) {
                        found.push(one);
                    }
                    if found.len() == KINDS_MAX {
                        return found;
                    }
                }
            }
        }
    }
    found
}

/// `status.typeChecking.expressionWarnings`.
pub fn type_warnings(spec: &Value, kinds: &[CheckedKind], params: Option<&Arc<Shape>>) -> Vec<Value> {
    let mut warnings = Vec::new();
    let mut bytes = 0;
    let scopes: Vec<(&CheckedKind, Scope)> =
        kinds.iter().map(|kind| (kind, scope(spec, kind, params))).collect();
    let mut check = |index: usize, field: &str, source: &str| {
        if source.is_empty() || bytes > WARNINGS_BYTES_MAX {
            return;
        }
        let of = |(kind, scope): &(&CheckedKind, Scope)| {
            let problem = scope.compile_any(source).err()?;
            let GroupVersionKind { group, version, kind } = &kind.kind;
            Some(format!("{group}/{version}, Kind={kind}: {}\n", bare(&problem)))
        };
        let texts: Vec<String> = scopes.iter().filter_map(of).collect();
        if !texts.is_empty() {
            let warning = texts.join("\n");
            bytes += warning.len();
            warnings.push(json!({
                "fieldRef": (format!("spec.validations[{index}].{field}")), "warning": warning,
            }));
        }
    };
    for (index, validation) in spec.array_at(&["validations"]).iter().take(PARTS_MAX).enumerate() {
        check(index, "expression", &text(validation, "expression"));
        check(index, "messageExpression", &text(validation, "messageExpression"));
    }
    warnings
}

/// What the expressions may mention, with the types of one kind.
fn scope(spec: &Value, kind: &CheckedKind, params: Option<&Arc<Shape>>) -> Scope {
    let mut scope = Scope {
        object: Some(kind.shape.clone()),
        params: params.cloned().map(Params::Of),
        authorizer: true,
        ..Scope::default()
    };
    for variable in spec.array_at(&["variables"]).iter().take(PARTS_MAX) {
        let program = scope.compile_any(&text(variable, "expression"));
        let found = program.map_or(Type::Dyn, |program| program.result().clone());
        scope.variables.push((text(variable, "name"), found));
    }
    scope
}

/// The report of the compiler, and nothing else.
fn bare(problem: &Problem) -> &str {
    problem.text.strip_prefix("compilation failed: ").unwrap_or(&problem.text)
}
