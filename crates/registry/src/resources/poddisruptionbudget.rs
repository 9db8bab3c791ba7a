//! Pod disruption budgets.

use polder_model::{FieldError, FieldPath, Value, json};

use super::blank_status;
use super::status_rules::Counters;
use super::{cells, checks, label_selector};
use crate::behavior::{Behavior, Column, Print};

const STATUS: Counters = Counters {
    not_negative: &["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"],
    at_most: &[],
};

pub(super) const PODDISRUPTIONBUDGETS: Behavior = Behavior {
    group: "policy",
    resource: "poddisruptionbudgets",
    generation: true,
    unconditional_update: false,
    columns: &[
        Column::NAME,
        Column::text("Min Available"),
        Column::text("Max Unavailable"),
        Column::integer("Allowed Disruptions"),
        Column::AGE,
    ],
    cells,
    prepare_create: |object| {
        blank_status::set(
            object,
            json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}),
        )
    },
    validate_status: |new, _, errors| STATUS.validate(new, errors),
    validate,
    ..Behavior::PLAIN
};

fn cells(budget: &Value, print: &Print) -> Vec<Value> {
    let amount = |key: &str| -> Value {
        let amount = budget.at(&["spec", key]).filter(|amount| !amount.is_null());
        amount.map_or("N/A".into(), |amount| cells::int_or_string(amount).into())
    };
    vec![
        cells::name(budget),
        amount("minAvailable"),
        amount("maxUnavailable"),
        cells::count(budget, &["status", "disruptionsAllowed"]).into(),
        cells::age(budget, print),
    ]
}

fn validate(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = FieldPath::root("spec");
    let spec = new.get("spec").unwrap_or(&Value::Null);
    let (min, max) = (checks::some(spec, "minAvailable"), checks::some(spec, "maxUnavailable"));
    if min.is_some() && max.is_some() {
        let text = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::invalid(path, spec.clone(), text));
    }
    for (key, amount) in [("minAvailable", min), ("maxUnavailable", max)] {
        checks::positive_int_or_percent(amount, &path.member(key), errors);
        checks::at_most_100_percent(amount, &path.member(key), errors);
    }
    label_selector::validate(checks::some(spec, "selector"), &path.member("selector"), errors);
    let policies = ["AlwaysAllow", "IfHealthyBudget"];
    if let Some(policy) =
        spec.str_at(&["unhealthyPodEvictionPolicy"]).filter(|policy| !policies.contains(policy))
    {
        errors.push(FieldError::not_supported(path.member("unhealthyPodEvictionPolicy"), policy, policies));
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{prints, refuses};
    use super::PODDISRUPTIONBUDGETS;

    #[test]
    fn cells() {
        prints(
            &PODDISRUPTIONBUDGETS,
            r#"{"metadata":{"name":"b"},"spec":{"minAvailable":"50%"},"status":{"disruptionsAllowed":2}}"#,
            "b|50%|N/A|2|<unknown>",
        );
        prints(&PODDISRUPTIONBUDGETS, r#"{"spec":{"maxUnavailable":1}}"#, "|N/A|1|0|<unknown>");
    }

    #[test]
    fn checks() {
        refuses(
            &PODDISRUPTIONBUDGETS,
            r#"{"spec":{"minAvailable":-1,"maxUnavailable":"101%","unhealthyPodEvictionPolicy":"X"}}"#,
            None,
            &[
                r#"spec: Invalid value: {"maxUnavailable":"101%","minAvailable":-1,"unhealthyPodEvictionPolicy":"X"}: minAvailable and maxUnavailable cannot be both set"#,
                "spec.minAvailable: Invalid value: -1: must be greater than or equal to 0",
                r#"spec.maxUnavailable: Invalid value: "101%": must not be greater than 100%"#,
                r#"spec.unhealthyPodEvictionPolicy: Unsupported value: "X": supported values: "AlwaysAllow", "IfHealthyBudget""#,
            ],
        );
        refuses(
            &PODDISRUPTIONBUDGETS,
            r#"{"spec":{"minAvailable":"x"}}"#,
            None,
            &[
                r#"spec.minAvailable: Invalid value: "x": a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"#,
            ],
        );
    }
}
