//! The default roles and bindings, read from a table of facts (`bootstrap-rbac.txt`, which explains its own format).
//!
//! Aggregated roles (`admin`, `edit`, `view`) start with the rules that the aggregation controller would give them, so
//! that a plane is usable before any controller has looked at it.

use polder_model::{Value, json};

use super::{BootstrapObject, Kind, list, one};

const TABLE: &str = include_str!("../bootstrap-rbac.txt");
const GROUP: &str = "rbac.authorization.k8s.io";
const CLUSTER_ROLE: Kind = Kind::new(GROUP, "clusterroles", "ClusterRole");
const CLUSTER_ROLE_BINDING: Kind = Kind::new(GROUP, "clusterrolebindings", "ClusterRoleBinding");
const ROLE: Kind = Kind::new(GROUP, "roles", "Role");
const ROLE_BINDING: Kind = Kind::new(GROUP, "rolebindings", "RoleBinding");

/// Aggregation can go through this many roles: `view` into `edit` into `admin`.
const AGGREGATION_DEPTH: usize = 3;

pub(super) fn objects() -> Vec<BootstrapObject> {
    let mut objects = read(TABLE).expect("the table is compiled in; a test reads it");
    aggregate(&mut objects);
    for object in &mut objects {
        // A binding of nobody says nothing about whom.
        if object.value.array_at(&["subjects"]).is_empty() {
            object.value.remove_at(&["subjects"]);
        }
    }
    objects
}

#[derive(Debug, PartialEq, thiserror::Error)]
#[error("line {line} of the RBAC table: {text:?}")]
struct TableError {
    line: usize,
    text: String,
}

fn read(table: &str) -> Result<Vec<BootstrapObject>, TableError> {
    let mut objects: Vec<BootstrapObject> = Vec::new();
    for (index, line) in table.lines().enumerate() {
        let wrong = || TableError { line: index + 1, text: line.to_owned() };
        if line.starts_with('#') {
            continue;
        }
        let Some(detail) = line.strip_prefix(' ') else {
            objects.push(head(line).ok_or_else(wrong)?);
            continue;
        };
        let object = objects.last_mut().ok_or_else(wrong)?;
        add(&mut object.value, detail).ok_or_else(wrong)?;
    }
    Ok(objects)
}

/// The line an object starts with.
fn head(line: &str) -> Option<BootstrapObject> {
    let metadata = json!({
        "labels": (one("kubernetes.io/bootstrapping", "rbac-defaults")),
        "annotations": (one("rbac.authorization.kubernetes.io/autoupdate", "true")),
    });
    let bound = |kind: &str, role: &str| {
        let role = json!({"apiGroup": GROUP, "kind": kind, "name": role});
        json!({"metadata": (metadata.clone()), "roleRef": role, "subjects": []})
    };
    let with_rules = || json!({"metadata": (metadata.clone()), "rules": []});
    match line.split(' ').collect::<Vec<_>>()[..] {
        ["clusterrole", name] => Some(CLUSTER_ROLE.object(None, name, with_rules())),
        ["clusterrolebinding", name, role] => {
            Some(CLUSTER_ROLE_BINDING.object(None, name, bound("ClusterRole", role)))
        }
        ["role", place] => {
            let (namespace, name) = place.split_once('/')?;
            Some(ROLE.object(Some(namespace), name, with_rules()))
        }
        ["rolebinding", place, kind, role] => {
            let (namespace, name) = place.split_once('/')?;
            Some(ROLE_BINDING.object(Some(namespace), name, bound(kind, role)))
        }
        _ => None,
    }
}

/// An indented line: something the object holds.
fn add(object: &mut Value, detail: &str) -> Option<()> {
    let words: Vec<&str> = detail.split(' ').collect();
    match words[..] {
        ["label", pair] => {
            let (key, value) = pair.split_once('=')?;
            object.set_at(&["metadata", "labels", key], value);
        }
        ["aggregate", pair] => {
            let (key, value) = pair.split_once('=')?;
            let selectors = json!([{"matchLabels": (one(key, value))}]);
            object.set_at(&["aggregationRule", "clusterRoleSelectors"], selectors);
        }
        [kind @ ("Group" | "User"), name] => {
            push(object, "subjects", json!({"apiGroup": GROUP, "kind": kind, "name": name}))?;
        }
        ["ServiceAccount", place] => {
            let (namespace, name) = place.split_once('/')?;
            push(
                object,
                "subjects",
                json!({"kind": "ServiceAccount", "namespace": namespace, "name": name}),
            )?;
        }
        [verbs, "urls", urls] => {
            push(object, "rules", json!({"verbs": (words_of(verbs)), "nonResourceURLs": (words_of(urls))}))?;
        }
        [verbs, groups, resources] => push(object, "rules", rule(verbs, groups, resources))?,
        [verbs, groups, resources, "names", names] => {
            let mut rule = rule(verbs, groups, resources);
            rule.set_at(&["resourceNames"], words_of(names));
            push(object, "rules", rule)?;
        }
        _ => return None,
    }
    Some(())
}

fn rule(verbs: &str, groups: &str, resources: &str) -> Value {
    json!({
        "verbs": (words_of(verbs)), "apiGroups": (words_of(groups)), "resources": (words_of(resources)),
    })
}

fn words_of(text: &str) -> Value {
    list(text.split(',').map(|word| if word == "''" { "" } else { word }))
}

fn push(object: &mut Value, key: &str, item: Value) -> Option<()> {
    object.at_mut(&[key])?.as_array_mut()?.push(item);
    Some(())
}

/// Gives aggregating roles the rules of the roles they select, in the order of their names and without repeats.
fn aggregate(objects: &mut [BootstrapObject]) {
    for _ in 0..AGGREGATION_DEPTH {
        for index in 0..objects.len() {
            let Some((key, value)) = selected(&objects[index].value) else { continue };
            let mut sources: Vec<&BootstrapObject> = objects
                .iter()
                .filter(|source| source.value.str_at(&["metadata", "labels", &key]) == Some(value.as_str()))
                .collect();
            sources.sort_by_key(|source| &source.name);
            let mut rules: Vec<Value> = Vec::new();
            for rule in sources.iter().flat_map(|source| source.value.array_at(&["rules"])) {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
            objects[index].value.set_at(&["rules"], rules);
        }
    }
}

/// The label an aggregating role looks for.
fn selected(role: &Value) -> Option<(String, String)> {
    let selector = role.array_at(&["aggregationRule", "clusterRoleSelectors"]).first()?;
    let (key, value) = selector.get("matchLabels")?.as_object()?.iter().next()?;
    Some((key.to_string(), value.as_str()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(resource: &str, name: &str) -> Value {
        let mut objects = objects().into_iter();
        objects.find(|object| object.resource == resource && object.name == name).unwrap().value
    }

    #[test]
    fn lines_become_objects() {
        let rows = [
            (
                "cluster-admin",
                "rules",
                r#"[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]},{"nonResourceURLs":["*"],"verbs":["*"]}]"#,
            ),
            (
                "admin",
                "aggregationRule",
                r#"{"clusterRoleSelectors":[{"matchLabels":{"rbac.authorization.k8s.io/aggregate-to-admin":"true"}}]}"#,
            ),
        ];
        for (name, key, json) in rows {
            assert_eq!(find("clusterroles", name).get(key).unwrap().to_string(), json);
        }
        let binding = find("clusterrolebindings", "cluster-admin");
        assert_eq!(
            binding.get("subjects").unwrap().to_string(),
            r#"[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"system:masters"}]"#
        );
        assert_eq!(
            binding.get("roleRef").unwrap().to_string(),
            r#"{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"}"#
        );
        let reader = find("roles", "extension-apiserver-authentication-reader");
        assert_eq!(
            reader.get("rules").unwrap().to_string(),
            r#"[{"apiGroups":[""],"resourceNames":["extension-apiserver-authentication"],"resources":["configmaps"],"verbs":["get","list","watch"]}]"#
        );
    }

    #[test]
    fn aggregated_roles_have_rules() {
        let (admin, edit, view) =
            (find("clusterroles", "admin"), find("clusterroles", "edit"), find("clusterroles", "view"));
        let rules = |role: &Value| role.array_at(&["rules"]).to_vec();
        assert!(!rules(&view).is_empty());
        assert!(rules(&view).iter().all(|rule| rules(&edit).contains(rule)), "edit includes view");
        assert!(rules(&edit).iter().all(|rule| rules(&admin).contains(rule)), "admin includes edit");
        assert!(rules(&admin).len() > rules(&edit).len());
    }

    #[test]
    fn bad_lines_are_named() {
        let rows = [
            (" get '' pods", 1),
            ("clusterrole a\n what", 2),
            ("# comment\nrobot a", 2),
            ("role nameless", 1),
            ("clusterrole a\n Group g", 2),
        ];
        for (table, line) in rows {
            assert_eq!(read(table).unwrap_err().line, line, "{table}");
        }
    }
}
