//! Priority levels: how many requests of a level run at once, and what happens to the rest.

use polder_model::{FieldError, FieldPath, Value, json};

use super::blank_status;
use super::cells;
use super::checks::{Errors, default_at, same, some, text};
use crate::behavior::{Behavior, Column, Print};
use crate::bootstrap;

const QUEUES_MAX: i64 = 10_000_000;
const ENTROPY_BITS_MAX: f64 = 60.0;
const ZERO_SHARES_ANNOTATION: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";

pub(super) const PRIORITY_LEVEL_CONFIGURATION: Behavior = Behavior {
    group: "flowcontrol.apiserver.k8s.io",
    resource: "prioritylevelconfigurations",
    generation: true,
    columns: &[
        Column::NAME,
        Column::text("Type"),
        Column::text("NominalConcurrencyShares"),
        Column::text("Queues"),
        Column::text("HandSize"),
        Column::text("QueueLengthLimit"),
        Column::AGE,
    ],
    cells,
    default,
    prepare_create: |object| blank_status::set(object, json!({})),
    validate: |new, _, errors| validate(new, errors),
    ..Behavior::PLAIN
};

fn cells(object: &Value, print: &Print) -> Vec<Value> {
    let number = |path: &[&str]| match object.i64_at(path) {
        Some(number) => number.into(),
        None => Value::from("<none>"),
    };
    let queuing = |key: &str| number(&["spec", "limited", "limitResponse", "queuing", key]);
    vec![
        cells::name(object),
        cells::text(object, &["spec", "type"]),
        number(&["spec", "limited", "nominalConcurrencyShares"]),
        queuing("queues"),
        queuing("handSize"),
        queuing("queueLengthLimit"),
        cells::age(object, print),
    ]
}

/// Shares may be zero on purpose; queue settings of zero mean unset.
fn default(object: &mut Value) {
    let Some(spec) = object.at_mut(&["spec"]) else { return };
    for (key, shares) in [("exempt", 0), ("limited", 30)] {
        if some(spec, key).is_some() {
            default_at(spec, &[key, "nominalConcurrencyShares"], shares);
            default_at(spec, &[key, "lendablePercent"], 0);
        }
    }
    let Some(queuing) =
        spec.at_mut(&["limited", "limitResponse", "queuing"]).filter(|queuing| !queuing.is_null())
    else {
        return;
    };
    for (key, number) in [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)] {
        if queuing.i64_at(&[key]).unwrap_or(0) == 0 {
            queuing.set_at(&[key], number);
        }
    }
}

fn validate(level: &Value, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = level.get("spec").unwrap_or(&empty);
    let path = FieldPath::root("spec");
    let name = level.str_at(&["metadata", "name"]).unwrap_or_default();
    if level.at(&["metadata", "annotations", ZERO_SHARES_ANNOTATION]).is_some() {
        let why = format!("annotation '{ZERO_SHARES_ANNOTATION}' is forbidden");
        errors.push(FieldError::forbidden("metadata.annotations", why));
    }
    let kind = text(spec, "type");
    if (name == "exempt") != (kind == "Exempt") {
        let why = "must be 'Exempt' if and only if `name` is 'exempt'";
        errors.push(FieldError::invalid(path.member("type"), kind, why));
    }
    let (exempt_path, limited_path) = (path.member("exempt"), path.member("limited"));
    match (kind, some(spec, "exempt"), some(spec, "limited")) {
        ("Exempt", exempt, limited) => {
            if limited.is_some() {
                errors.push(FieldError::forbidden(limited_path, "must be nil if the type is not Limited"));
            }
            validate_shares(exempt.unwrap_or(&empty), &exempt_path, errors);
        }
        ("Limited", exempt, limited) => {
            if exempt.is_some() {
                errors.push(FieldError::forbidden(exempt_path, "must be nil if the type is Limited"));
            }
            match limited {
                None => {
                    let why = "must not be empty when type is Limited";
                    errors.push(FieldError::required(limited_path, why));
                }
                Some(limited) => validate_limited(limited, &limited_path, errors),
            }
        }
        (kind, ..) => {
            errors.push(FieldError::not_supported(path.member("type"), kind, ["Exempt", "Limited"]));
        }
    }
    validate_fixed(name, spec, &path, errors);
}

/// The two levels every server must have cannot be changed, but for the numbers of `exempt`.
fn validate_fixed(name: &str, spec: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let Some(fixed) = bootstrap::priority_level_spec(name, bootstrap::Importance::Mandatory) else { return };
    let mut compared = spec.clone();
    let mut but = "";
    if name == "exempt" {
        if let Some(exempt) = fixed.get("exempt") {
            compared.set_at(&["exempt"], exempt.clone());
        }
        but = " except the 'spec.exempt' field";
    }
    if !same(Some(&fixed), Some(&compared)) {
        let why = format!("spec of '{name}'{but} must equal the fixed value");
        errors.push(FieldError::invalid(path, spec.clone(), why));
    }
}

fn validate_shares(settings: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let mut check = |key: &str, valid: fn(i64) -> bool, why: &str| {
        if let Some(number) = settings.i64_at(&[key]).filter(|number| !valid(*number)) {
            errors.push(FieldError::invalid(path.member(key), number, why));
        }
    };
    check("nominalConcurrencyShares", |number| number >= 0, "must be a non-negative integer");
    check("lendablePercent", |number| (0..=100).contains(&number), "must be between 0 and 100, inclusive");
    let why = "if specified, must be a non-negative integer";
    check("borrowingLimitPercent", |number| number >= 0, why);
}

fn validate_limited(limited: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    validate_shares(limited, path, errors);
    let empty = Value::Null;
    let response = limited.get("limitResponse").unwrap_or(&empty);
    let path = path.member("limitResponse");
    match (text(response, "type"), some(response, "queuing")) {
        ("Reject", None) => {}
        ("Reject", Some(_)) => errors.push(FieldError::forbidden(
            path.member("queuing"),
            "must be nil if limited.limitResponse.type is not Limited",
        )),
        ("Queue", None) => errors.push(FieldError::required(
            path.member("queuing"),
            "must not be empty if limited.limitResponse.type is Limited",
        )),
        ("Queue", Some(queuing)) => validate_queuing(queuing, &path.member("queuing"), errors),
        (kind, _) => errors.push(FieldError::not_supported(path.member("type"), kind, ["Queue", "Reject"])),
    }
}

fn validate_queuing(queuing: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let number = |key: &str| queuing.i64_at(&[key]).unwrap_or(0);
    let (queues, hand) = (number("queues"), number("handSize"));
    let mut refuse =
        |key: &str, why: String| errors.push(FieldError::invalid(path.member(key), number(key), why));
    if number("queueLengthLimit") <= 0 {
        refuse("queueLengthLimit", "must be positive".into());
    }
    if queues <= 0 {
        refuse("queues", "must be positive".into());
    } else if queues > QUEUES_MAX {
        refuse("queues", format!("must not be greater than {QUEUES_MAX}"));
    }
    if hand <= 0 {
        refuse("handSize", "must be positive".into());
    } else if hand > queues {
        refuse("handSize", format!("should not be greater than queues ({queues})"));
    } else if entropy_bits(queues, hand) > ENTROPY_BITS_MAX {
        refuse(
            "handSize",
            format!(
                "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than \
                 {ENTROPY_BITS_MAX}"
            ),
        );
    }
}

/// How many bits of a hash dealing a hand takes.
#[expect(clippy::cast_precision_loss, reason = "both are far below 2^52 where this matters")]
fn entropy_bits(queues: i64, hand: i64) -> f64 {
    ((queues as f64).log2() * hand as f64).ceil()
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells, check_default};
    use super::*;

    #[test]
    fn levels() {
        check(
            &PRIORITY_LEVEL_CONFIGURATION,
            &[
                (
                    r#"{"metadata":{"name":"a"},"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":0,"limitResponse":{"type":"Reject"}}}}"#,
                    &[],
                ),
                (
                    r#"{"metadata":{"name":"a"},"spec":{"type":"Exempt"}}"#,
                    &[
                        r#"spec.type: Invalid value: "Exempt": must be 'Exempt' if and only if `name` is 'exempt'"#,
                    ],
                ),
                (
                    r#"{"metadata":{"name":"a"},"spec":{"type":"Limited","exempt":{}}}"#,
                    &[
                        "spec.exempt: Forbidden: must be nil if the type is Limited",
                        "spec.limited: Required value: must not be empty when type is Limited",
                    ],
                ),
                (
                    r#"{"metadata":{"name":"a"},"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":-1,"lendablePercent":101,
                        "limitResponse":{"type":"Queue","queuing":{"queues":512,"handSize":8,"queueLengthLimit":-1}}}}}"#,
                    &[
                        "spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer",
                        "spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
                        "spec.limited.limitResponse.queuing.queueLengthLimit: Invalid value: -1: must be positive",
                        "spec.limited.limitResponse.queuing.handSize: Invalid value: 8: required entropy bits of deckSize 512 and handSize 8 should not be greater than 60",
                    ],
                ),
                (
                    r#"{"metadata":{"name":"exempt"},"spec":{"type":"Exempt","exempt":{"nominalConcurrencyShares":5,"lendablePercent":0}}}"#,
                    &[],
                ),
                (
                    r#"{"metadata":{"name":"catch-all"},"spec":{"type":"Limited","limited":{"limitResponse":{"type":"Reject"}}}}"#,
                    &[
                        r#"spec: Invalid value: {"limited":{"lendablePercent":0,"limitResponse":{"type":"Reject"},"nominalConcurrencyShares":30},"type":"Limited"}: spec of 'catch-all' must equal the fixed value"#,
                    ],
                ),
            ],
        );
    }

    #[test]
    fn defaults_and_cells() {
        check_default(
            &PRIORITY_LEVEL_CONFIGURATION,
            &[
                (
                    r#"{"spec":{"limited":{"nominalConcurrencyShares":0,"limitResponse":{"queuing":{"queues":0,"handSize":3}}}}}"#,
                    r#"{"spec":{"limited":{"nominalConcurrencyShares":0,"lendablePercent":0,"limitResponse":{"queuing":{"queues":64,"handSize":3,"queueLengthLimit":50}}}}}"#,
                ),
                (
                    r#"{"spec":{"exempt":{}}}"#,
                    r#"{"spec":{"exempt":{"nominalConcurrencyShares":0,"lendablePercent":0}}}"#,
                ),
            ],
        );
        check_cells(
            &PRIORITY_LEVEL_CONFIGURATION,
            &[
                (
                    r#"{"metadata":{"name":"a"},"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":5,"limitResponse":{"queuing":{"queues":1,"handSize":2,"queueLengthLimit":3}}}}}"#,
                    r#"["a","Limited",5,1,2,3,"<unknown>"]"#,
                ),
                (
                    r#"{"metadata":{"name":"exempt"},"spec":{"type":"Exempt"}}"#,
                    r#"["exempt","Exempt","<none>","<none>","<none>","<none>","<unknown>"]"#,
                ),
            ],
        );
    }
}
