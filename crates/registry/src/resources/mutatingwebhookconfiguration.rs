//! Mutating webhooks: outside services that may change requests.

use polder_model::Value;

use super::checks::default_at;
use super::webhook::{self, CONFIGURATION};
use crate::behavior::Behavior;

pub(super) const MUTATING_WEBHOOK_CONFIGURATION: Behavior =
    Behavior { resource: "mutatingwebhookconfigurations", default, ..CONFIGURATION };

fn default(object: &mut Value) {
    webhook::default(object);
    for webhook in object.at_mut(&["webhooks"]).and_then(Value::as_array_mut).into_iter().flatten() {
        default_at(webhook, &["reinvocationPolicy"], "Never");
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells, check_default};
    use super::*;

    #[test]
    fn reinvocation() {
        check(
            &MUTATING_WEBHOOK_CONFIGURATION,
            &[(
                r#"{"webhooks":[{"name":"a.b.c","sideEffects":"None","admissionReviewVersions":["v1"],
                    "clientConfig":{"url":"https://h/p"},"reinvocationPolicy":"Maybe"}]}"#,
                &[
                    r#"webhooks[0].reinvocationPolicy: Unsupported value: "Maybe": supported values: "IfNeeded", "Never""#,
                ],
            )],
        );
        check_default(
            &MUTATING_WEBHOOK_CONFIGURATION,
            &[(
                r#"{"webhooks":[{}]}"#,
                r#"{"webhooks":[{"failurePolicy":"Fail","matchPolicy":"Equivalent","namespaceSelector":{},
                    "objectSelector":{},"reinvocationPolicy":"Never","timeoutSeconds":10}]}"#,
            )],
        );
        check_cells(
            &MUTATING_WEBHOOK_CONFIGURATION,
            &[(r#"{"metadata":{"name":"m"},"webhooks":[{},{}]}"#, r#"["m",2,"<unknown>"]"#)],
        );
    }
}
