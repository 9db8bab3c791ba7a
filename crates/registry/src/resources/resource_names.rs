//! Names of compute resources (`cpu`, `example.com/gpu`) and where each may stand.
//!
//! Amounts are the quantity type's business; here are only names.

use polder_model::names::qualified_name_problem;
use polder_model::{FieldError, FieldPath, Value};

use super::checks;

const CONTAINER: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const OBJECTS: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];
const COMPUTE_QUOTA: [&str; 10] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "requests.storage",
];

fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_quota_huge_pages(name: &str) -> bool {
    is_huge_pages(name) || name.starts_with("requests.hugepages-")
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether requests may be lower than limits.
pub(super) fn is_overcommittable(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

/// Whether a name is one that quotas know without a domain.
pub(super) fn is_standard_quota(name: &str) -> bool {
    COMPUTE_QUOTA.contains(&name) || OBJECTS.contains(&name) || is_quota_huge_pages(name)
}

/// Any resource: a known word, or a qualified name.
pub(super) fn any(name: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if let Some(problem) = qualified_name_problem(name) {
        errors.push(FieldError::invalid(path, name, problem));
    } else if !name.contains('/') && !is_standard_quota(name) && name != "storage" {
        let text = "must be a standard resource type or fully qualified";
        errors.push(FieldError::invalid(path, name, text));
    }
}

/// A resource a container can have.
pub(super) fn container(name: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    any(name, path, errors);
    if !name.contains('/') {
        if !CONTAINER.contains(&name) && !is_huge_pages(name) {
            errors.push(FieldError::invalid(path, name, "must be a standard resource for containers"));
        }
    } else if !is_native(name)
        && (name.starts_with("requests.") || qualified_name_problem(&format!("requests.{name}")).is_some())
    {
        errors.push(FieldError::invalid(path, name, "doesn't follow extended resource name standard"));
    }
}

/// A resource a quota can limit.
pub(super) fn quota(name: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    any(name, path, errors);
    if !name.contains('/') && !is_standard_quota(name) {
        errors.push(FieldError::invalid(path, name, "must be a standard resource for quota"));
    }
}

/// Limits and requests of a container.
pub(super) fn requirements(resources: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let names =
        |key: &str| resources.get(key).and_then(Value::as_object).into_iter().flat_map(|all| all.keys());
    let limits_path = path.member("limits");
    for name in names("limits") {
        container(name, &limits_path.key(name), errors);
    }
    for name in names("requests") {
        container(name, &path.member("requests").key(name), errors);
        if !is_overcommittable(name) && resources.at(&["limits", name]).is_none() {
            let text = "Limit must be set for non overcommitable resources";
            errors.push(FieldError::required(limits_path, text));
        }
    }
    let has = |wanted: fn(&str) -> bool| names("limits").chain(names("requests")).any(|name| wanted(name));
    if has(is_huge_pages) && !has(|name| name == "cpu" || name == "memory") {
        errors.push(FieldError::forbidden(path, "HugePages require cpu or memory"));
    }
    if checks::some(resources, "claims").is_some() {
        let claims_path = path.member("claims");
        for (index, claim) in resources.array_at(&["claims"]).iter().enumerate() {
            if checks::text(claim, "name").is_empty() {
                errors.push(FieldError::required(claims_path.index(index), ""));
            }
        }
    }
}
