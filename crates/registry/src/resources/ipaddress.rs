//! IP addresses that services hold. An address is the name of its object.

use polder_model::{FieldError, FieldPath, Value};

use super::addresses::canonical_ip;
use super::cells;
use super::checks::{Errors, dns_subdomain, immutable, path_segment, required, some, text};
use crate::behavior::{Behavior, Column, NameRule};

pub(super) const IP_ADDRESS: Behavior = Behavior {
    group: "networking.k8s.io",
    resource: "ipaddresses",
    names: NameRule::PathSegment,
    columns: &[Column::NAME, Column::text("ParentRef")],
    cells: |object, _| vec![cells::name(object), parent(object).into()],
    validate,
    ..Behavior::PLAIN
};

fn parent(object: &Value) -> String {
    let Some(parent) = object.at(&["spec", "parentRef"]).filter(|parent| !parent.is_null()) else {
        return "<none>".into();
    };
    let group = match text(parent, "group") {
        "" => String::new(),
        group => format!(".{group}"),
    };
    let namespace = match text(parent, "namespace") {
        "" => String::new(),
        namespace => format!("/{namespace}"),
    };
    let resource = format!("{}{group}", text(parent, "resource")).to_lowercase();
    format!("{resource}{namespace}/{}", text(parent, "name"))
}

fn validate(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let metadata = FieldPath::root("metadata");
    let name = new.str_at(&["metadata", "name"]).unwrap_or_default();
    canonical_ip(name, &metadata.member("name"), errors);
    let path = FieldPath::root("spec");
    let empty = Value::Null;
    let spec = new.get("spec").unwrap_or(&empty);
    match some(spec, "parentRef") {
        None => errors.push(FieldError::required(path.member("parentRef"), "")),
        Some(parent) => validate_parent(parent, &path.member("parentRef"), errors),
    }
    if let Some(old) = old {
        immutable(spec, old.get("spec").unwrap_or(&empty), "parentRef", &path, errors);
    }
}

fn validate_parent(parent: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    if !text(parent, "group").is_empty() {
        dns_subdomain(text(parent, "group"), &path.member("group"), errors);
    }
    for key in ["resource", "name"] {
        if required(parent, key, path, errors) {
            path_segment(text(parent, key), &path.member(key), errors);
        }
    }
    path_segment(text(parent, "namespace"), &path.member("namespace"), errors);
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells, check_update};
    use super::*;

    #[test]
    fn names_and_parents() {
        let good = r#"{"metadata":{"name":"10.0.0.1"},"spec":{"parentRef":{"resource":"services","namespace":"d","name":"k"}}}"#;
        check(
            &IP_ADDRESS,
            &[
                (good, &[]),
                (
                    r#"{"metadata":{"name":"ten"}}"#,
                    &[
                        r#"metadata.name: Invalid value: "ten": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#,
                        "spec.parentRef: Required value",
                    ],
                ),
            ],
        );
        check_update(
            &IP_ADDRESS,
            &[(
                good,
                r#"{"metadata":{"name":"10.0.0.1"},"spec":{"parentRef":{"resource":"services","name":"k"}}}"#,
                &[r#"spec.parentRef: Invalid value: {"name":"k","resource":"services"}: field is immutable"#],
            )],
        );
        check_cells(&IP_ADDRESS, &[(good, r#"["10.0.0.1","services/d/k"]"#)]);
    }
}
