//! Mutating admission policy bindings: where a policy applies, and with which parameters.

use polder_model::{FieldPath, Value};

use super::checks::{Errors, some};
use super::mutatingadmissionpolicy::validate_operations;
use super::validatingadmissionpolicybinding::{VALIDATING_ADMISSION_POLICY_BINDING, validate_reference};
use crate::behavior::Behavior;

pub(super) const MUTATING_ADMISSION_POLICY_BINDING: Behavior = Behavior {
    resource: "mutatingadmissionpolicybindings",
    validate: |new, _, errors| validate(new, errors),
    ..VALIDATING_ADMISSION_POLICY_BINDING
};

fn validate(binding: &Value, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = binding.get("spec").unwrap_or(&empty);
    let path = FieldPath::root("spec");
    validate_reference(spec, &path, errors);
    if let Some(matcher) = some(spec, "matchResources") {
        validate_operations(matcher, &path.member("matchResources"), errors);
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::check;
    use super::*;

    #[test]
    fn shapes() {
        check(
            &MUTATING_ADMISSION_POLICY_BINDING,
            &[
                (r#"{"spec":{"policyName":"p"}}"#, &[]),
                (
                    r#"{"spec":{"paramRef":{},"matchResources":{"matchPolicy":"Exact","namespaceSelector":{},"objectSelector":{},
                        "resourceRules":[{"operations":["DELETE"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"]}]}}}"#,
                    &[
                        "spec.policyName: Required value",
                        "spec.paramRef: Required value: one of name or selector must be specified",
                        "spec.paramRef.parameterNotFoundAction: Required value",
                        r#"spec.matchResources.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", "CONNECT", "CREATE", "UPDATE""#,
                    ],
                ),
            ],
        );
    }
}
