//! What makes a job succeed or fail early: pod failure policies and success policies.

use std::collections::HashSet;

use polder_model::{FieldError, FieldErrorKind, FieldPath, Value};

use super::checks::{Errors, each, not_negative, qualified_name, some, text};

const RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;
const CONDITIONS_MAX: usize = 20;
const INDEXES_LEN_MAX: usize = 64 << 10;
const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];

/// Checks the `podFailurePolicy` of a job's spec.
pub(super) fn validate_failure(spec: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let Some(policy) = some(spec, "podFailurePolicy") else { return };
    let count = policy.array_at(&["rules"]).len();
    if count > RULES_MAX {
        errors.push(FieldError::too_many(path.member("rules"), count, RULES_MAX));
    }
    let containers: HashSet<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| spec.array_at(&["template", "spec", list]))
        .map(|container| text(container, "name"))
        .collect();
    let per_index = some(spec, "backoffLimitPerIndex").is_some();
    each(policy, "rules", path, errors, |rule, path, errors| {
        failure_rule(rule, per_index, &containers, path, errors);
    });
}

fn failure_rule(
    rule: &Value,
    per_index: bool,
    containers: &HashSet<&str>,
    path: &FieldPath<'_>,
    errors: &mut Errors,
) {
    let action = text(rule, "action");
    let action_path = path.member("action");
    if action == "FailIndex" && !per_index {
        let text = "requires the backoffLimitPerIndex to be set";
        errors.push(FieldError::invalid(action_path, action, text));
    }
    required_one_of(action, &ACTIONS, &action_path, errors);
    let codes = some(rule, "onExitCodes");
    if let Some(codes) = codes {
        exit_codes(codes, containers, &path.member("onExitCodes"), errors);
    }
    let conditions = rule.array_at(&["onPodConditions"]).len();
    if conditions > CONDITIONS_MAX {
        errors.push(FieldError::too_many(path.member("onPodConditions"), conditions, CONDITIONS_MAX));
    }
    each(rule, "onPodConditions", path, errors, |pattern, path, errors| {
        qualified_name(text(pattern, "type"), &path.member("type"), errors);
        required_one_of(
            text(pattern, "status"),
            &["False", "True", "Unknown"],
            &path.member("status"),
            errors,
        );
    });
    let text = match (codes.is_some(), conditions > 0) {
        (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
        (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
        _ => return,
    };
    errors.push(FieldError {
        kind: FieldErrorKind::Invalid,
        path: path.to_string(),
        value: None,
        detail: text.into(),
    });
}

fn required_one_of(value: &str, supported: &[&str], path: &FieldPath<'_>, errors: &mut Errors) {
    if value.is_empty() {
        let quoted: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        errors.push(FieldError::required(path, format!("valid values: [{}]", quoted.join(" "))));
    } else if !supported.contains(&value) {
        errors.push(FieldError::not_supported(path, value, supported));
    }
}

fn exit_codes(codes: &Value, containers: &HashSet<&str>, path: &FieldPath<'_>, errors: &mut Errors) {
    let operator = text(codes, "operator");
    required_one_of(operator, &["In", "NotIn"], &path.member("operator"), errors);
    if let Some(name) = some(codes, "containerName").and_then(Value::as_str)
        && !containers.contains(name)
    {
        let text = "must be one of the container or initContainer names in the pod template";
        errors.push(FieldError::invalid(path.member("containerName"), name, text));
    }
    let values_path = path.member("values");
    let values = codes.array_at(&["values"]);
    if values.is_empty() {
        errors.push(FieldError::invalid(values_path, values.to_vec(), "at least one value is required"));
    } else if values.len() > EXIT_CODES_MAX {
        errors.push(FieldError::too_many(values_path, values.len(), EXIT_CODES_MAX));
        return;
    }
    let mut seen = HashSet::new();
    for (index, value) in values.iter().enumerate() {
        let code = value.as_i64().unwrap_or_default();
        if operator == "In" && code == 0 {
            let text = "must not be 0 for the In operator";
            errors.push(FieldError::invalid(values_path.index(index), code, text));
        }
        if !seen.insert(code) {
            errors.push(FieldError::duplicate(values_path.index(index), code));
        }
    }
    if !values.is_sorted_by_key(|value| value.as_i64()) {
        errors.push(FieldError::invalid(values_path, values.to_vec(), "must be ordered"));
    }
}

/// Checks the `successPolicy` of an indexed job.
pub(super) fn validate_success(policy: &Value, completions: i64, path: &FieldPath<'_>, errors: &mut Errors) {
    let rules = policy.array_at(&["rules"]);
    if rules.is_empty() {
        let text = "at least one rules must be specified when the successPolicy is specified";
        errors.push(FieldError::required(path.member("rules"), text));
    }
    if rules.len() > RULES_MAX {
        errors.push(FieldError::too_many(path.member("rules"), rules.len(), RULES_MAX));
    }
    each(policy, "rules", path, errors, |rule, path, errors| {
        let indexes = some(rule, "succeededIndexes").and_then(Value::as_str);
        let count = rule.i64_at(&["succeededCount"]);
        if indexes.is_none() && count.is_none() {
            let text = "at least one of succeededCount or succeededIndexes must be specified";
            errors.push(FieldError::required(path, text));
        }
        let mut total = None;
        if let Some(indexes) = indexes {
            let path = path.member("succeededIndexes");
            if indexes.len() > INDEXES_LEN_MAX {
                errors.push(FieldError::too_long(path, INDEXES_LEN_MAX));
            }
            match count_indexes(indexes, completions) {
                Ok(found) => total = Some(found),
                Err(why) => {
                    total = Some(0);
                    let text = format!("error parsing succeededIndexes: {why}");
                    errors.push(FieldError::invalid(path, indexes, text));
                }
            }
        }
        let Some(count) = count else { return };
        not_negative(rule, &["succeededCount"], path, errors);
        let path = path.member("succeededCount");
        if count > completions {
            let text =
                format!("must be less than or equal to {completions} (the number of specified completions)");
            errors.push(FieldError::invalid(path, count, text));
        }
        if let Some(total) = total.filter(|total| count > *total) {
            let text = format!(
                "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
            );
            errors.push(FieldError::invalid(path, count, text));
        }
    });
}

/// How many indexes `0,2-4` names; intervals grow and stay below the number of completions.
fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let (mut total, mut last) = (0, None);
    for interval in text.split(',') {
        let mut limits = interval.split('-').map(|limit| {
            let number: i64 = limit
                .parse()
                .map_err(|_| format!("cannot convert string to integer for index: {limit:?}"))?;
            match number {
                number if number >= completions => Err(format!("too large index: {limit:?}")),
                number => Ok(number),
            }
        });
        let first = limits.next().unwrap_or_else(|| Err("empty interval".into()))?;
        let end = limits.next().transpose()?.unwrap_or(first);
        if limits.next().is_some() {
            return Err(format!(
                "the fragment {interval:?} violates the requirement that an index interval can have at most two parts separated by '-'"
            ));
        }
        if interval.contains('-') && first >= end {
            return Err(format!("non-increasing order, previous: {first}, current: {end}"));
        }
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(format!("non-increasing order, previous: {last}, current: {first}"));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::super::rows::parse;
    use super::*;

    fn texts(errors: &Errors) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn failures() {
        let rows: &[(&str, &[&str])] = &[
            (r#"{"action":"FailJob","onExitCodes":{"operator":"In","values":[1,2]}}"#, &[]),
            (r#"{"action":"Ignore","onPodConditions":[{"type":"DisruptionTarget","status":"True"}]}"#, &[]),
            (
                r#"{"action":"x","onExitCodes":{"operator":"y","values":[]}}"#,
                &[
                    r#"p.rules[0].action: Unsupported value: "x": supported values: "Count", "FailIndex", "FailJob", "Ignore""#,
                    r#"p.rules[0].onExitCodes.operator: Unsupported value: "y": supported values: "In", "NotIn""#,
                    "p.rules[0].onExitCodes.values: Invalid value: []: at least one value is required",
                ],
            ),
            (
                r#"{"action":"FailJob","onExitCodes":{"operator":"In","values":[0,3,3,2],"containerName":"z"}}"#,
                &[
                    r#"p.rules[0].onExitCodes.containerName: Invalid value: "z": must be one of the container or initContainer names in the pod template"#,
                    "p.rules[0].onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator",
                    "p.rules[0].onExitCodes.values[2]: Duplicate value: 3",
                    "p.rules[0].onExitCodes.values: Invalid value: [0,3,3,2]: must be ordered",
                ],
            ),
            (
                r#"{"action":"FailIndex"}"#,
                &[
                    r#"p.rules[0].action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set"#,
                    "p.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
                ],
            ),
        ];
        for (rule, expected) in rows {
            let mut spec = parse(r#"{"template":{"spec":{"containers":[{"name":"c"}]}}}"#);
            spec.set_at(&["podFailurePolicy", "rules"], vec![parse(rule)]);
            let mut errors = Errors::new();
            validate_failure(&spec, &FieldPath::root("p"), &mut errors);
            assert_eq!(texts(&errors), *expected, "{rule}");
        }
    }

    #[test]
    fn successes() {
        let rows: &[(&str, &[&str])] = &[
            (r#"{"rules":[{"succeededIndexes":"0,2-4","succeededCount":4}]}"#, &[]),
            (
                r#"{}"#,
                &[
                    "p.rules: Required value: at least one rules must be specified when the successPolicy is specified",
                ],
            ),
            (
                r#"{"rules":[{"succeededIndexes":"3-9","succeededCount":-2},{},{"succeededCount":9},{"succeededIndexes":"1,0"}]}"#,
                &[
                    r#"p.rules[0].succeededIndexes: Invalid value: "3-9": error parsing succeededIndexes: too large index: "9""#,
                    "p.rules[0].succeededCount: Invalid value: -2: must be greater than or equal to 0",
                    "p.rules[1]: Required value: at least one of succeededCount or succeededIndexes must be specified",
                    "p.rules[2].succeededCount: Invalid value: 9: must be less than or equal to 5 (the number of specified completions)",
                    r#"p.rules[3].succeededIndexes: Invalid value: "1,0": error parsing succeededIndexes: non-increasing order, previous: 1, current: 0"#,
                ],
            ),
        ];
        for (policy, expected) in rows {
            let mut errors = Errors::new();
            validate_success(&parse(policy), 5, &FieldPath::root("p"), &mut errors);
            assert_eq!(texts(&errors), *expected, "{policy}");
        }
    }
}
