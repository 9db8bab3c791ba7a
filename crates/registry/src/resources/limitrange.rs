//! Limit ranges.

use std::collections::{BTreeSet, HashSet};

use polder_model::names::qualified_name_problems;
use polder_model::quantity::Quantity;
use polder_model::{FieldError, FieldPath, Object, Value};

use super::{cells, checks, resource_amounts, resource_names};
use crate::behavior::{Behavior, Column, Print};

const AMOUNTS: [&str; 5] = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];

pub(super) const LIMITRANGES: Behavior = Behavior {
    resource: "limitranges",
    create_on_update: true,
    columns: &[Column::NAME, Column { name: "Created At", kind: "date", format: "", wide: false }],
    cells,
    default,
    validate,
    ..Behavior::PLAIN
};

fn cells(range: &Value, _: &Print) -> Vec<Value> {
    vec![cells::name(range), cells::text(range, &["metadata", "creationTimestamp"])]
}

/// For containers: a limit defaults to the maximum, a request to the limit or else to the minimum.
fn default(range: &mut Value) {
    let items = range.at_mut(&["spec", "limits"]).and_then(Value::as_array_mut);
    for item in items.into_iter().flatten() {
        if checks::text(item, "type") != "Container" {
            continue;
        }
        let Some(item) = item.as_object_mut() else { continue };
        for (target, source) in [("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")]
        {
            fill(item, target, source);
        }
    }
}

fn fill(item: &mut Object, target: &str, source: &str) {
    let Some(source) = item.get(source).and_then(Value::as_object).cloned() else { return };
    if source.is_empty() {
        return;
    }
    let target = item.get_or_insert(target);
    if target.is_null() {
        *target = Value::Object(Object::new());
    }
    let Some(target) = target.as_object_mut() else { return };
    for (name, amount) in source {
        if !target.contains_key(&name) {
            target.insert(name, amount);
        }
    }
}

fn validate(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = FieldPath::root("spec");
    let path = path.member("limits");
    let mut types = HashSet::new();
    for (index, item) in new.array_at(&["spec", "limits"]).iter().enumerate() {
        let path = path.index(index);
        let kind = checks::text(item, "type");
        validate_type(kind, &path.member("type"), errors);
        if !types.insert(kind) {
            errors.push(FieldError::duplicate(path.member("type"), kind));
        }
        for amounts in AMOUNTS {
            let path = path.member(amounts);
            let named = item.get(amounts).and_then(Value::as_object).filter(|named| !named.is_empty());
            let Some(named) = named else { continue };
            if kind == "Pod" && amounts.starts_with("default") {
                errors.push(FieldError::forbidden(path, "may not be specified when `type` is 'Pod'"));
                continue;
            }
            for name in named.keys() {
                match kind {
                    "Pod" | "Container" => resource_names::container(name, &path.key(name), errors),
                    _ => resource_names::any(name, &path.key(name), errors),
                }
            }
        }
        compare(item, &path, errors);
        if kind == "PersistentVolumeClaim"
            && ["min", "max"].iter().all(|key| item.at(&[key, "storage"]).is_none())
        {
            let text = "either minimum or maximum storage value is required, but neither was provided";
            errors.push(FieldError::required(path.member("limits"), text));
        }
    }
}

/// Minima are below defaults, defaults below maxima, for each resource.
fn compare(item: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let names: BTreeSet<&str> = AMOUNTS
        .iter()
        .filter_map(|amounts| item.get(amounts)?.as_object())
        .flat_map(|named| named.keys().map(|name| name.as_str()))
        .collect();
    for name in names {
        let amount = |key: &str| resource_amounts::amount(item.at(&[key, name]));
        let (min, max, ratio) = (amount("min"), amount("max"), amount("maxLimitRequestRatio"));
        let (request, limit) = (amount("defaultRequest"), amount("default"));
        let mut problem = |key: &str, shown: &Quantity, text: String| {
            let path = path.member(key);
            errors.push(FieldError::invalid(path.key(name), shown.to_string(), text));
        };
        let pairs = [
            (&min, "min value", &max, "max value", "min", true),
            (&min, "min value", &request, "default request value", "defaultRequest", false),
            (&request, "default request value", &max, "max value", "defaultRequest", true),
            (&request, "default request value", &limit, "default limit value", "defaultRequest", true),
            (&min, "min value", &limit, "default value", "default", true),
            (&limit, "default value", &max, "max value", "default", false),
        ];
        for (lower, lower_name, upper, upper_name, key, shows_lower) in pairs {
            if let (Some(lower), Some(upper)) = (lower, upper)
                && lower > upper
            {
                let text = format!("{lower_name} {lower} is greater than {upper_name} {upper}");
                problem(key, if shows_lower { lower } else { upper }, text);
            }
        }
        if let Some(ratio) = &ratio {
            if *ratio < Quantity::from_i64(1) {
                problem("maxLimitRequestRatio", ratio, format!("ratio {ratio} is less than 1"));
            }
            if let (Some(min), Some(max)) = (&min, &max) {
                #[expect(clippy::cast_precision_loss, reason = "upstream compares floats, too")]
                let float = |amount: &Quantity| amount.as_milli() as f64;
                let most = float(max) / float(min);
                if float(ratio) / 1000.0 > most {
                    let text = format!("ratio {ratio} is greater than max/min = {most:.6}");
                    problem("maxLimitRequestRatio", ratio, text);
                }
            }
        }
        if let (Some(request), Some(limit)) = (&request, &limit)
            && !resource_names::is_overcommittable(name)
            && request != limit
        {
            let text =
                format!("default value {limit} must equal to defaultRequest value {request} in {name}");
            problem("defaultRequest", request, text);
        }
    }
}

fn validate_type(kind: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let problems = qualified_name_problems(kind);
    if !problems.is_empty() {
        checks::problem(kind, problems, path, errors);
    } else if !kind.contains('/') && !["Pod", "Container", "PersistentVolumeClaim"].contains(&kind) {
        let text = "must be a standard limit type or fully qualified";
        errors.push(FieldError::invalid(path, kind, text));
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{defaults, prints, refuses};
    use super::LIMITRANGES;

    #[test]
    fn cells() {
        prints(
            &LIMITRANGES,
            r#"{"metadata":{"name":"l","creationTimestamp":"2026-01-01T00:00:00Z"}}"#,
            "l|2026-01-01T00:00:00Z",
        );
    }

    #[test]
    fn default() {
        defaults(
            &LIMITRANGES,
            r#"{"spec":{"limits":[{"type":"Container","max":{"cpu":"2"},"min":{"memory":"1"},"default":{"memory":"3"}},
                {"type":"Container","min":{"cpu":"1"}},{"type":"Pod","max":{"cpu":"2"}}]}}"#,
            r#"{"spec":{"limits":[{"type":"Container","max":{"cpu":"2"},"min":{"memory":"1"},"default":{"cpu":"2","memory":"3"},"defaultRequest":{"cpu":"2","memory":"3"}},
                {"type":"Container","min":{"cpu":"1"},"defaultRequest":{"cpu":"1"}},{"type":"Pod","max":{"cpu":"2"}}]}}"#,
        );
    }

    #[test]
    fn checks() {
        refuses(
            &LIMITRANGES,
            r#"{"spec":{"limits":[{"type":"Pod","default":{"cpu":"1"}},{"type":"Pod"},{"type":"X"},{"type":"PersistentVolumeClaim"},{"type":"Container","max":{"storage":"1"}}]}}"#,
            None,
            &[
                "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'",
                r#"spec.limits[1].type: Duplicate value: "Pod""#,
                r#"spec.limits[2].type: Invalid value: "X": must be a standard limit type or fully qualified"#,
                "spec.limits[3].limits: Required value: either minimum or maximum storage value is required, but neither was provided",
                r#"spec.limits[4].max[storage]: Invalid value: "storage": must be a standard resource for containers"#,
                r#"spec.limits[4].default[storage]: Invalid value: "storage": must be a standard resource for containers"#,
                r#"spec.limits[4].defaultRequest[storage]: Invalid value: "storage": must be a standard resource for containers"#,
            ],
        );
    }

    #[test]
    fn amounts_are_in_order() {
        let range = |limits: &str| format!(r#"{{"spec":{{"limits":[{{"type":"Container",{limits}}}]}}}}"#);
        let rows: &[(&str, &[&str])] = &[
            (
                r#""max":{"cpu":"2"},"min":{"cpu":"1"},"default":{"cpu":"1500m"},"defaultRequest":{"cpu":"1"}"#,
                &[],
            ),
            (
                r#""max":{"cpu":"2"},"min":{"cpu":"3"}"#,
                &[
                    r#"spec.limits[0].min[cpu]: Invalid value: "3": min value 3 is greater than max value 2"#,
                    r#"spec.limits[0].defaultRequest[cpu]: Invalid value: "2": min value 3 is greater than default request value 2"#,
                    r#"spec.limits[0].default[cpu]: Invalid value: "3": min value 3 is greater than default value 2"#,
                ],
            ),
            (
                r#""default":{"cpu":"1500m"},"defaultRequest":{"cpu":"2"}"#,
                &[
                    r#"spec.limits[0].defaultRequest[cpu]: Invalid value: "2": default request value 2 is greater than default limit value 1500m"#,
                ],
            ),
            (
                r#""max":{"cpu":"2"},"min":{"cpu":"1"},"maxLimitRequestRatio":{"cpu":"9"}"#,
                &[
                    r#"spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "9": ratio 9 is greater than max/min = 2.000000"#,
                ],
            ),
            (
                r#""maxLimitRequestRatio":{"cpu":"0.5"}"#,
                &[
                    r#"spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "500m": ratio 500m is less than 1"#,
                ],
            ),
            (
                r#""default":{"example.com/a":"2"},"defaultRequest":{"example.com/a":"1"}"#,
                &[
                    r#"spec.limits[0].defaultRequest[example.com/a]: Invalid value: "1": default value 2 must equal to defaultRequest value 1 in example.com/a"#,
                ],
            ),
        ];
        for (limits, expected) in rows {
            refuses(&LIMITRANGES, &range(limits), None, expected);
        }
    }
}
