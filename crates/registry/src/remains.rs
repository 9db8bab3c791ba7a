//! What is left in a namespace on its way out, and what its status says about that. Pure.
//!
//! Types, reasons and messages are those of Kubernetes: `kubectl` and people look for them.

use std::collections::BTreeMap;

use polder_model::{GroupResource, Value};

use crate::custom::set_condition;

/// Rows a message has at most: finalizers have any names, and as many as somebody likes.
const ROWS_MAX: usize = 100;
/// And how long those are that somebody else worded.
const ROW_LEN_MAX: usize = 256;

/// Objects that wait for something, by resource and by finalizer; and what could not be found out.
#[derive(Debug, Default)]
pub(crate) struct Remains {
    resources: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
    /// Group versions whose server does not tell what it has.
    undiscovered: Vec<String>,
    /// Why something could not be deleted.
    failures: Vec<String>,
}

impl Remains {
    pub(crate) fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.is_known()
    }

    /// Nothing is left that nobody knows of.
    fn is_known(&self) -> bool {
        self.undiscovered.is_empty() && self.failures.is_empty()
    }

    pub(crate) fn undiscovered(&mut self, group: &str, version: &str) {
        note(&mut self.undiscovered, format!("{group}/{version}"));
    }

    pub(crate) fn failed(&mut self, why: String) {
        note(&mut self.failures, why);
    }

    pub(crate) fn add(&mut self, resource: &GroupResource, object: &Value) {
        count(&mut self.resources, format!("{}.{}", resource.resource, resource.group), 1);
        for finalizer in object.array_at(&["metadata", "finalizers"]).iter().filter_map(Value::as_str) {
            count(&mut self.finalizers, finalizer.to_owned(), 1);
        }
    }

    pub(crate) fn add_all(&mut self, other: Remains) {
        other.resources.into_iter().for_each(|(name, len)| count(&mut self.resources, name, len));
        other.finalizers.into_iter().for_each(|(name, len)| count(&mut self.finalizers, name, len));
        other.undiscovered.into_iter().for_each(|row| note(&mut self.undiscovered, row));
        other.failures.into_iter().for_each(|row| note(&mut self.failures, row));
    }

    /// Reason and message of a condition that is not as it should be.
    fn problem(&self, kind: &str) -> Option<(&'static str, String)> {
        match kind {
            "NamespaceDeletionDiscoveryFailure" if !self.undiscovered.is_empty() => {
                let row = |name: &String| format!("{name}: stale GroupVersion discovery: {name}");
                let rows: Vec<String> = self.undiscovered.iter().map(row).collect();
                let message = format!(
                    "Discovery failed for some groups, {} failing: unable to retrieve the complete list of server APIs: {}",
                    rows.len(),
                    rows.join(", ")
                );
                Some(("DiscoveryFailed", message))
            }
            "NamespaceDeletionContentFailure" if !self.failures.is_empty() => {
                let mut rows = self.failures.clone();
                rows.sort();
                let (len, rows) = (rows.len(), rows.join(", "));
                let message = format!("Failed to delete all resource types, {len} remaining: {rows}");
                Some(("ContentDeletionFailed", message))
            }
            "NamespaceContentRemaining" => told(
                &self.resources,
                ("SomeResourcesRemain", "Some resources are remaining: "),
                |name, len| format!("{name} has {len} resource instances"),
            ),
            "NamespaceFinalizersRemaining" => told(
                &self.finalizers,
                ("SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: "),
                |name, len| format!("{name} in {len} resource instances"),
            ),
            _ => None,
        }
    }
}

fn note(rows: &mut Vec<String>, row: String) {
    let row: String = row.chars().take(ROW_LEN_MAX).collect();
    if rows.len() < ROWS_MAX && !rows.contains(&row) {
        rows.push(row);
    }
}

/// Counts what comes first by name. A name that was let go cannot come back, so the counts that stay are right.
fn count(rows: &mut BTreeMap<String, usize>, name: String, len: usize) {
    *rows.entry(name).or_default() += len;
    if rows.len() > ROWS_MAX {
        rows.pop_last();
    }
}

/// Writes what is left into the status of a namespace. One that goes at once, with nothing to tell, stays as it is.
pub(crate) fn report(namespace: &mut Value, remains: &Remains, now: &str) {
    let stays = !namespace.array_at(&["metadata", "finalizers"]).is_empty()
        || namespace.array_at(&["spec", "finalizers"]).len() > 1
        || !namespace.array_at(&["status", "conditions"]).is_empty();
    if remains.is_empty() && !stays {
        return;
    }
    let fine = [
        ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        (
            "NamespaceDeletionContentFailure",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
        (
            "NamespaceFinalizersRemaining",
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished",
        ),
    ];
    for (kind, reason, message) in fine {
        match remains.problem(kind) {
            Some((reason, message)) => set_condition(namespace, kind, "True", reason, &message, now),
            None => set_condition(namespace, kind, "False", reason, message, now),
        }
    }
}

fn told(
    rows: &BTreeMap<String, usize>,
    (reason, opening): (&'static str, &str),
    row: impl Fn(&str, usize) -> String,
) -> Option<(&'static str, String)> {
    if rows.is_empty() {
        return None;
    }
    let mut rows: Vec<String> = rows.iter().map(|(name, len)| row(name, *len)).collect();
    rows.sort();
    Some((reason, format!("{opening}{}", rows.join(", "))))
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    fn shown(namespace: &Value) -> Vec<String> {
        let text = |one: &Value, key: &str| one.str_at(&[key]).unwrap_or_default().to_owned();
        let row = |one: &Value| {
            let [kind, status, message, since] =
                ["type", "status", "message", "lastTransitionTime"].map(|key| text(one, key));
            format!("{kind} {status} {since}: {message}")
        };
        namespace.array_at(&["status", "conditions"]).iter().skip(3).map(row).collect()
    }

    #[test]
    fn a_status_tells_what_is_left() {
        let mut namespace = json!({"metadata": {"name": "t"}, "spec": {"finalizers": ["kubernetes"]}});
        report(&mut namespace, &Remains::default(), "1");
        assert!(namespace.get("status").is_none(), "it goes at once");
        let mut remains = Remains::default();
        let held = |finalizers: &[&str]| {
            let finalizers: Vec<Value> = finalizers.iter().map(|name| Value::from(*name)).collect();
            json!({"metadata": {"finalizers": finalizers}})
        };
        remains.add(&GroupResource::new("", "configmaps"), &held(&["a/b", "c/d"]));
        let mut more = Remains::default();
        more.add(&GroupResource::new("", "configmaps"), &held(&["a/b"]));
        more.add(&GroupResource::new("apps", "deployments"), &held(&[]));
        remains.add_all(more);
        report(&mut namespace, &remains, "2");
        assert_eq!(
            shown(&namespace),
            [
                "NamespaceContentRemaining True 2: Some resources are remaining: configmaps. has 2 resource \
                 instances, deployments.apps has 1 resource instances",
                "NamespaceFinalizersRemaining True 2: Some content in the namespace has finalizers remaining: \
                 a/b in 2 resource instances, c/d in 1 resource instances",
            ]
        );
        report(&mut namespace, &Remains::default(), "3");
        assert_eq!(
            shown(&namespace),
            [
                "NamespaceContentRemaining False 3: All content successfully removed",
                "NamespaceFinalizersRemaining False 3: All content-preserving finalizers finished",
            ]
        );
        let first = &namespace.array_at(&["status", "conditions"])[0];
        assert_eq!(first.str_at(&["lastTransitionTime"]), Some("2"));
    }

    #[test]
    fn a_status_tells_what_is_not_known() {
        let mut namespace = json!({"metadata": {"name": "t"}, "spec": {"finalizers": ["kubernetes"]}});
        let mut remains = Remains::default();
        remains.undiscovered("wardle.example.com", "v1");
        remains.failed("b".into());
        remains.failed("a".into());
        remains.failed("a".into());
        let mut all = Remains::default();
        all.add_all(remains);
        assert!(!all.is_empty());
        report(&mut namespace, &all, "1");
        let told: Vec<_> = namespace
            .array_at(&["status", "conditions"])
            .iter()
            .map(|one| {
                let [kind, status, message] =
                    ["type", "status", "message"].map(|key| one.str_at(&[key]).unwrap_or_default());
                format!("{kind} {status}: {message}")
            })
            .collect();
        assert_eq!(
            told[0],
            "NamespaceDeletionDiscoveryFailure True: Discovery failed for some groups, 1 failing: unable to retrieve the \
             complete list of server APIs: wardle.example.com/v1: stale GroupVersion discovery: wardle.example.com/v1"
        );
        assert_eq!(
            told[2],
            "NamespaceDeletionContentFailure True: Failed to delete all resource types, 2 remaining: a, b"
        );
        assert!(told[3].starts_with("NamespaceContentRemaining False"), "{}", told[3]);
    }

    #[test]
    fn many_finalizers_make_a_short_message() {
        let mut remains = Remains::default();
        for index in (0..1_000).rev() {
            let name = format!("example.com/f{index:03}");
            let object = json!({"metadata": {"finalizers": [(name), "example.com/f000"]}});
            remains.add(&GroupResource::new("", "configmaps"), &object);
        }
        assert_eq!(remains.finalizers.len(), ROWS_MAX);
        assert_eq!(remains.finalizers["example.com/f000"], 1_001);
    }
}
