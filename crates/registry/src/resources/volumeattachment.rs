//! Volume attachments: a volume is to be attached to a node.

use polder_model::{FieldError, FieldPath, Value, json};

use super::blank_status;
use super::cells;
use super::checks::{Errors, dns_subdomain, driver_name, immutable, required, some, text};
use crate::behavior::{Behavior, Column};

pub(super) const VOLUME_ATTACHMENT: Behavior = Behavior {
    group: "storage.k8s.io",
    resource: "volumeattachments",
    unconditional_update: false,
    delete_returns_object: true,
    columns: &[
        Column::NAME,
        Column { name: "Attacher", kind: "string", format: "name", wide: false },
        Column::text("PV"),
        Column::text("Node"),
        Column::boolean("Attached"),
        Column::AGE,
    ],
    cells: |object, print| {
        vec![
            cells::name(object),
            cells::text(object, &["spec", "attacher"]),
            cells::text(object, &["spec", "source", "persistentVolumeName"]),
            cells::text(object, &["spec", "nodeName"]),
            cells::flag(object, &["status", "attached"], false),
            cells::age(object, print),
        ]
    },
    prepare_create: |object| blank_status::set(object, json!({"attached": false})),
    validate,
    ..Behavior::PLAIN
};

fn validate(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    const ONE_SOURCE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let empty = Value::Null;
    let path = FieldPath::root("spec");
    let spec = new.get("spec").unwrap_or(&empty);
    required(spec, "attacher", &path, errors);
    let source = spec.get("source").unwrap_or(&empty);
    let source_path = path.member("source");
    let volume = some(source, "persistentVolumeName").map(|name| name.as_str().unwrap_or_default());
    match (some(source, "inlineVolumeSpec"), volume) {
        (None, None) => errors.push(FieldError::required(source_path, ONE_SOURCE)),
        (Some(_), Some(_)) => errors.push(FieldError::forbidden(source_path, ONE_SOURCE)),
        (None, Some("")) => errors.push(FieldError::required(
            source_path.member("persistentVolumeName"),
            "must specify non empty persistentVolumeName",
        )),
        _ => {}
    }
    dns_subdomain(text(spec, "nodeName"), &path.member("nodeName"), errors);
    match old {
        Some(old) => immutable(new, old, "spec", &FieldPath::ROOT, errors),
        None => {
            driver_name(text(spec, "attacher"), &path.member("attacher"), errors);
            if let Some(volume) = volume {
                dns_subdomain(volume, &source_path.member("persistentVolumeName"), errors);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells, check_update};
    use super::*;

    const GOOD: &str =
        r#"{"spec":{"attacher":"d.example","source":{"persistentVolumeName":"v"},"nodeName":"n"}}"#;

    #[test]
    fn fields() {
        check(
            &VOLUME_ATTACHMENT,
            &[
                (GOOD, &[]),
                (
                    r#"{"spec":{"nodeName":"n"}}"#,
                    &[
                        "spec.attacher: Required value",
                        "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName",
                        "spec.attacher: Required value",
                    ],
                ),
            ],
        );
        check_update(
            &VOLUME_ATTACHMENT,
            &[
                (GOOD, GOOD, &[]),
                (
                    GOOD,
                    r#"{"spec":{"attacher":"d.example","source":{"persistentVolumeName":"v"},"nodeName":"m"}}"#,
                    &[
                        r#"spec: Invalid value: {"attacher":"d.example","nodeName":"m","source":{"persistentVolumeName":"v"}}: field is immutable"#,
                    ],
                ),
            ],
        );
        check_cells(&VOLUME_ATTACHMENT, &[(GOOD, r#"["","d.example","v","n",false,"<unknown>"]"#)]);
    }
}
