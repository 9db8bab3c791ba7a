//! What is accepted and still worth a word: finalizers of custom objects without a domain, formats of CRDs that nobody
//! checks. An update is told only about what it brings.

use std::collections::BTreeSet;

use polder_machinery::crd::unknown_formats;
use polder_model::Value;
use polder_model::names::qualified_name_problems;

use super::is_crd;
use crate::definition::Target;

/// Finalizers that need no domain: Kubernetes' own.
const STANDARD: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];

pub(crate) fn warnings(target: &Target, new: &Value, old: Option<&Value>) -> Vec<String> {
    if is_crd(target) && target.subresource.is_empty() {
        let known: Vec<String> = old.map(unknown_formats).unwrap_or_default();
        let formats = unknown_formats(new).into_iter().filter(|format| !known.contains(format));
        return formats.map(|format| format!("unrecognized format {format:?}")).collect();
    }
    if !target.definition.is_custom() || target.subresource == "scale" {
        return Vec::new();
    }
    let finalizers = |object: Option<&Value>| -> BTreeSet<String> {
        let all = object.map(|object| object.array_at(&["metadata", "finalizers"])).unwrap_or_default();
        all.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let known = finalizers(old);
    finalizers(Some(new)).difference(&known).flat_map(|name| finalizer_warnings(name)).collect()
}

fn finalizer_warnings(name: &str) -> Vec<String> {
    let mut warnings: Vec<String> = qualified_name_problems(name)
        .into_iter()
        .map(|problem| format!("metadata.finalizers: {name:?}: {problem}"))
        .collect();
    if !name.contains('/') && !STANDARD.contains(&name) {
        let with_path = if name.contains('.') { " including a path (/)" } else { "" };
        warnings.push(format!(
            "metadata.finalizers: {name:?}: prefer a domain-qualified finalizer name{with_path} to avoid accidental \
             conflicts with other finalizer writers"
        ));
    }
    warnings
}
