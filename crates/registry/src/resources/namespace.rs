//! Namespaces: always labeled with their name, deleted through a finalizer in their spec.

use polder_model::{FieldError, FieldPath, Value, json};

use super::{cells, checks};
use crate::behavior::{Behavior, Column, NameRule, Print, Selectable};
use crate::metadata::STANDARD_FINALIZERS;

const NAME_LABEL: &str = "kubernetes.io/metadata.name";

pub(super) const NAMESPACES: Behavior = Behavior {
    resource: "namespaces",
    names: NameRule::Label,
    delete_returns_object: true,
    selectable: &[Selectable { label: "status.phase", paths: &[&["status", "phase"]], missing: "" }],
    columns: &[Column::NAME, Column::text("Status"), Column::AGE],
    cells,
    default,
    prepare_create,
    prepare_update,
    validate_status,
    validate,
    ..Behavior::PLAIN
};

fn cells(namespace: &Value, print: &Print) -> Vec<Value> {
    vec![cells::name(namespace), cells::text(namespace, &["status", "phase"]), cells::age(namespace, print)]
}

fn default(namespace: &mut Value) {
    if let Some(name) = namespace.str_at(&["metadata", "name"]).filter(|name| !name.is_empty()) {
        let name = name.to_owned();
        namespace.set_at(&["metadata", "labels", NAME_LABEL], name);
    }
}

fn prepare_create(namespace: &mut Value) {
    if namespace.as_object().is_none() {
        return;
    }
    // Generated names are only known by now.
    default(namespace);
    namespace.set_at(&["status"], json!({"phase": "Active"}));
    let mut finalizers = namespace.array_at(&["spec", "finalizers"]).to_vec();
    if !finalizers.iter().any(|finalizer| finalizer.as_str() == Some("kubernetes")) {
        finalizers.push("kubernetes".into());
        namespace.set_at(&["spec", "finalizers"], finalizers);
    }
}

/// Finalizers change only through their subresource.
fn prepare_update(new: &mut Value, old: &Value) {
    match old.at(&["spec", "finalizers"]) {
        Some(finalizers) => new.set_at(&["spec", "finalizers"], finalizers.clone()),
        None => {
            new.remove_at(&["spec", "finalizers"]);
        }
    }
}

fn validate(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = FieldPath::root("spec");
    let path = path.member("finalizers");
    for finalizer in new.array_at(&["spec", "finalizers"]) {
        let finalizer = finalizer.as_str().unwrap_or_default();
        checks::qualified_name(finalizer, &path, errors);
        if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer) {
            let text = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(path, finalizer, text));
        }
    }
}

fn validate_status(new: &Value, _: &Value, errors: &mut Vec<FieldError>) {
    let deleted = new.at(&["metadata", "deletionTimestamp"]).is_some_and(|time| !time.is_null());
    let phase = new.str_at(&["status", "phase"]).unwrap_or_default();
    let (expected, not) = if deleted { ("Terminating", " not") } else { ("Active", "") };
    if phase != expected {
        let text = format!("may only be '{expected}' if `deletionTimestamp` is{not} empty");
        errors.push(FieldError::invalid("status.Phase", phase, text));
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{creates, defaults, prints, refuses, updates};
    use super::NAMESPACES;

    #[test]
    fn cells() {
        prints(&NAMESPACES, r#"{"metadata":{"name":"n"},"status":{"phase":"Active"}}"#, "n|Active|<unknown>");
    }

    #[test]
    fn filled_in() {
        let labels = r#""labels":{"kubernetes.io/metadata.name":"n"}"#;
        defaults(
            &NAMESPACES,
            r#"{"metadata":{"name":"n"}}"#,
            &format!(r#"{{"metadata":{{"name":"n",{labels}}}}}"#),
        );
        creates(
            &NAMESPACES,
            r#"{"metadata":{"name":"n"},"spec":{"finalizers":["a/b"]},"status":{"phase":"X","conditions":[]}}"#,
            &format!(
                r#"{{"metadata":{{"name":"n",{labels}}},"spec":{{"finalizers":["a/b","kubernetes"]}},"status":{{"phase":"Active"}}}}"#
            ),
        );
        updates(
            &NAMESPACES,
            r#"{"spec":{}}"#,
            r#"{"spec":{"finalizers":["kubernetes"]}}"#,
            r#"{"spec":{"finalizers":["kubernetes"]}}"#,
        );
    }

    #[test]
    fn checks() {
        refuses(
            &NAMESPACES,
            r#"{"spec":{"finalizers":["kubernetes","x"]}}"#,
            None,
            &[
                r#"spec.finalizers: Invalid value: "x": name is neither a standard finalizer name nor is it fully qualified"#,
            ],
        );
    }
}
