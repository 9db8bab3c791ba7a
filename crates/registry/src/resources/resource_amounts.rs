//! Amounts of compute resources: limits and requests of containers, pods and quotas.
//!
//! What is no quantity at all has been refused when the object was read; here it counts as nothing.

use std::collections::{BTreeSet, HashSet};

use polder_model::quantity::Quantity;
use polder_model::{FieldError, FieldPath, Value};

use super::checks::{Errors, NOT_NEGATIVE, dns_label, text};
use super::resource_names;

/// The amount, if it is one.
pub(super) fn amount(value: Option<&Value>) -> Option<Quantity> {
    Quantity::from_value(value?).ok()
}

/// An amount may not be negative.
pub(super) fn not_negative(value: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    if let Some(amount) = amount(Some(value)).filter(Quantity::is_negative) {
        errors.push(FieldError::invalid(path, amount.to_string(), NOT_NEGATIVE));
    }
}

/// An amount, if there is one, is more than nothing.
pub(super) fn positive(value: Option<&Value>, path: &FieldPath<'_>, errors: &mut Errors) {
    if let Some(amount) = amount(value).filter(|amount| amount.is_zero() || amount.is_negative()) {
        errors.push(FieldError::invalid(path, amount.to_string(), "must be greater than zero"));
    }
}

/// Things that are counted come in whole numbers, and nothing in less than none.
pub(super) fn validate_amount(name: &str, value: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    not_negative(value, path, errors);
    let whole = resource_names::is_counted(name);
    if let Some(amount) = amount(Some(value)).filter(|amount| whole && amount.as_milli() % 1000 != 0) {
        errors.push(FieldError::invalid(path, amount.to_string(), "must be an integer"));
    }
}

/// Limits, requests and claims of a container.
pub(super) fn validate_container(
    resources: &Value,
    claims: &BTreeSet<&str>,
    path: &FieldPath<'_>,
    errors: &mut Errors,
) {
    validate(resources, resource_names::container, path, errors);
    validate_claims(resources, claims, &path.member("claims"), errors);
}

/// Limits and requests of a pod as a whole.
pub(super) fn validate_pod(resources: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    if resources.get("claims").is_some_and(|claims| !claims.is_null()) {
        let text = "claims may not be set for Resources at pod-level";
        errors.push(FieldError::forbidden(path.member("claims"), text));
    }
    validate(resources, resource_names::pod, path, errors);
}

fn validate(
    resources: &Value,
    check_name: impl Fn(&str, &FieldPath<'_>, &mut Errors),
    path: &FieldPath<'_>,
    errors: &mut Errors,
) {
    let (limits_path, requests_path) = (path.member("limits"), path.member("requests"));
    let members =
        |key: &str| resources.get(key).and_then(Value::as_object).into_iter().flat_map(|all| all.iter());
    for (name, value) in members("limits") {
        let path = limits_path.key(name);
        check_name(name, &path, errors);
        validate_amount(name, value, &path, errors);
        huge_pages(name, value, &path, errors);
    }
    for (name, value) in members("requests") {
        let path = requests_path.key(name);
        check_name(name, &path, errors);
        validate_amount(name, value, &path, errors);
        let flexible = resource_names::is_overcommittable(name);
        match (amount(Some(value)), resources.at(&["limits", name])) {
            (Some(request), Some(limit)) => {
                let Some(limit) = amount(Some(limit)) else { continue };
                let relation = match request.cmp(&limit) {
                    std::cmp::Ordering::Equal => None,
                    _ if !flexible => Some("equal"),
                    std::cmp::Ordering::Greater => Some("less than or equal"),
                    std::cmp::Ordering::Less => None,
                };
                if let Some(relation) = relation {
                    let text = format!("must be {relation} to {name} limit of {limit}");
                    errors.push(FieldError::invalid(requests_path, request.to_string(), text));
                }
            }
            (_, None) if !flexible => {
                let text = "Limit must be set for non overcommitable resources";
                errors.push(FieldError::required(limits_path, text));
            }
            _ => {}
        }
        huge_pages(name, value, &path, errors);
    }
    let has =
        |wanted: fn(&str) -> bool| members("limits").chain(members("requests")).any(|(name, _)| wanted(name));
    if has(resource_names::is_huge_pages) && !has(|name| name == "cpu" || name == "memory") {
        errors.push(FieldError::forbidden(path, "HugePages require cpu or memory"));
    }
}

/// Huge pages come in whole pages.
fn huge_pages(name: &str, value: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let (Some(page), Some(amount)) = (name.strip_prefix("hugepages-"), amount(Some(value))) else { return };
    let bytes = Quantity::parse(page).map_or(0, |page| page.as_i64());
    if bytes <= 0 || amount.as_i64() % bytes != 0 {
        let text = format!("{amount} is not positive integer multiple of {name}");
        errors.push(FieldError::invalid(path, amount.to_string(), text));
    }
}

fn validate_claims(resources: &Value, known: &BTreeSet<&str>, path: &FieldPath<'_>, errors: &mut Errors) {
    let mut seen: HashSet<String> = HashSet::new();
    let mut requested: HashSet<&str> = HashSet::new();
    for (index, claim) in resources.array_at(&["claims"]).iter().enumerate() {
        let path = path.index(index);
        let (name, request) = (text(claim, "name"), text(claim, "request"));
        if name.is_empty() {
            errors.push(FieldError::required(path, ""));
            continue;
        }
        let key = if request.is_empty() { name.to_owned() } else { format!("{name}/{request}") };
        if !request.is_empty() {
            dns_label(request, &path.member("request"), errors);
        }
        let whole_and_part = request.is_empty() && requested.contains(name);
        if seen.contains(name) || whole_and_part {
            errors.push(FieldError::duplicate(path, name));
        } else if !seen.insert(key.clone()) {
            errors.push(FieldError::duplicate(path, key));
        }
        if !request.is_empty() {
            requested.insert(name);
        }
        if !known.contains(name) {
            let mut error = FieldError::not_found(path, name);
            error.detail = match known.is_empty() {
                true => "must be one of the names in pod.spec.resourceClaims which is empty".into(),
                false => {
                    let known: Vec<&str> = known.iter().copied().collect();
                    format!("must be one of the names in pod.spec.resourceClaims: {}", known.join(", "))
                }
            };
            errors.push(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::parse;
    use super::*;

    #[test]
    fn limits_and_requests() {
        let rows: &[(&str, &[&str])] = &[
            (r#"{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"1000m","memory":"1024Mi"}}"#, &[]),
            (
                r#"{"limits":{"cpu":"1"},"requests":{"cpu":"2"}}"#,
                &[r#"r.requests: Invalid value: "2": must be less than or equal to cpu limit of 1"#],
            ),
            (
                r#"{"limits":{"memory":"1Gi"},"requests":{"memory":"1025Mi"}}"#,
                &[
                    r#"r.requests: Invalid value: "1025Mi": must be less than or equal to memory limit of 1Gi"#,
                ],
            ),
            (
                r#"{"limits":{"cpu":"-1"}}"#,
                &[r#"r.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0"#],
            ),
            (
                r#"{"limits":{"example.com/gpu":"1.5"}}"#,
                &[r#"r.limits[example.com/gpu]: Invalid value: "1500m": must be an integer"#],
            ),
            (
                r#"{"limits":{"example.com/gpu":"2"},"requests":{"example.com/gpu":"1"}}"#,
                &[r#"r.requests: Invalid value: "1": must be equal to example.com/gpu limit of 2"#],
            ),
            (
                r#"{"requests":{"example.com/gpu":"1"}}"#,
                &["r.limits: Required value: Limit must be set for non overcommitable resources"],
            ),
            (
                r#"{"limits":{"cpu":"1","hugepages-2Mi":"3Mi"}}"#,
                &[
                    r#"r.limits[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of hugepages-2Mi"#,
                ],
            ),
            (r#"{"limits":{"hugepages-2Mi":"4Mi"}}"#, &["r: Forbidden: HugePages require cpu or memory"]),
            (
                r#"{"claims":[{"name":"a"},{"name":"a"},{"name":"b"},{}]}"#,
                &[
                    r#"r.claims[1]: Duplicate value: "a""#,
                    r#"r.claims[2]: Not found: "b": must be one of the names in pod.spec.resourceClaims: a"#,
                    "r.claims[3]: Required value",
                ],
            ),
        ];
        for (resources, expected) in rows {
            let mut errors = Errors::new();
            validate_container(&parse(resources), &BTreeSet::from(["a"]), &FieldPath::root("r"), &mut errors);
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(texts, *expected, "{resources}");
        }
    }

    #[test]
    fn pods_share_fewer_resources() {
        let mut errors = Errors::new();
        let resources = parse(r#"{"limits":{"cpu":"1","ephemeral-storage":"1"},"claims":[]}"#);
        validate_pod(&resources, &FieldPath::root("r"), &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "r.claims: Forbidden: claims may not be set for Resources at pod-level",
                r#"r.limits[ephemeral-storage]: Unsupported value: "ephemeral-storage": supported values: "cpu", "hugepages-", "memory""#,
            ]
        );
    }
}
