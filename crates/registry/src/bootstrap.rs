//! The objects every plane starts with: one shared layer.

use polder_model::{SmolStr, Value, json};

/// One object of the base layer.
pub struct BootstrapObject {
    pub group: &'static str,
    pub resource: &'static str,
    pub namespace: SmolStr,
    pub name: SmolStr,
    pub value: Value,
}

pub fn digest() -> String {
    "stub-1".into()
}

pub fn objects(now: &str) -> Vec<BootstrapObject> {
    ["default", "kube-node-lease", "kube-public", "kube-system"]
        .iter()
        .map(|name| BootstrapObject {
            group: "",
            resource: "namespaces",
            namespace: SmolStr::default(),
            name: SmolStr::new(name),
            value: json!({
                "metadata": {"name": (*name), "uid": (format!("stub-{name}")), "creationTimestamp": now,
                    "labels": {"kubernetes.io/metadata.name": (*name)}},
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
            }),
        })
        .collect()
}
