//! Names of compute resources (`cpu`, `example.com/gpu`) and where each may stand.

use polder_model::names::qualified_name_problems;
use polder_model::{FieldError, FieldPath};

use super::checks::problem;

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

pub(super) fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_quota_huge_pages(name: &str) -> bool {
    is_huge_pages(name) || name.starts_with("requests.hugepages-")
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether a name is one of the provider's own resources, and stays one in a quota.
fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && qualified_name_problems(&format!("requests.{name}")).is_empty()
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
    let problems = qualified_name_problems(name);
    if !problems.is_empty() {
        problem(name, problems, path, errors);
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
    } else if !is_native(name) && !is_extended(name) {
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

/// A resource that containers of a pod can share.
pub(super) fn pod(name: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let before = errors.len();
    any(name, path, errors);
    if errors.len() == before && !["cpu", "memory"].contains(&name) && !is_huge_pages(name) {
        errors.push(FieldError::not_supported(path, name, ["cpu", "hugepages-", "memory"]));
    }
}

/// Whether a resource is counted in whole numbers.
pub(super) fn is_counted(name: &str) -> bool {
    OBJECTS.contains(&name) || is_extended(name)
}
