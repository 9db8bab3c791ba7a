//! The key Kubernetes would store an object under. Ours are different; one error text shows it.

use crate::definition::Target;

/// Groups whose servers keep the group in the key. Those of custom resources do, too, and show the key from its root.
const KEYED_BY_GROUP: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];

/// `/pods/default/web`.
pub(crate) fn upstream_key(target: &Target) -> String {
    let definition = &target.definition;
    let (group, plural) = (definition.storage.group.as_str(), definition.plural.as_str());
    let by_group = KEYED_BY_GROUP.contains(&group);
    let mut key = if definition.is_custom() {
        format!("/registry/{group}/{plural}")
    } else if by_group {
        format!("/{group}/{plural}")
    } else {
        format!("/{}", prefix(group, plural))
    };
    for part in [&target.namespace, &target.name] {
        if !part.is_empty() {
            key.push('/');
            key.push_str(part);
        }
    }
    key
}

/// A few kinds are stored under names they once had.
fn prefix<'a>(group: &str, plural: &'a str) -> &'a str {
    match (group, plural) {
        ("", "replicationcontrollers") => "controllers",
        ("", "endpoints") => "services/endpoints",
        ("", "nodes") => "minions",
        ("", "services") => "services/specs",
        ("networking.k8s.io", "ingresses") => "ingress",
        _ => plural,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_names() {
        let rows = [
            ("", "pods", "pods"),
            ("", "nodes", "minions"),
            ("", "services", "services/specs"),
            ("apps", "deployments", "deployments"),
            ("networking.k8s.io", "ingresses", "ingress"),
        ];
        for (group, plural, expected) in rows {
            assert_eq!(prefix(group, plural), expected, "{group}/{plural}");
        }
    }
}
