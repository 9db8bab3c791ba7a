//! Runtime classes: names for container runtimes.

use polder_model::{FieldPath, Value};

use super::cells;
use super::checks::{Errors, dns_label, immutable, labels, some, text};
use crate::behavior::{Behavior, Column};

pub(super) const RUNTIME_CLASS: Behavior = Behavior {
    group: "node.k8s.io",
    resource: "runtimeclasses",
    create_on_update: true,
    unconditional_update: false,
    columns: &[Column::NAME, Column::text("Handler"), Column::AGE],
    cells: |object, print| {
        vec![cells::name(object), cells::text(object, &["handler"]), cells::age(object, print)]
    },
    validate,
    ..Behavior::PLAIN
};

fn validate(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    dns_label(text(new, "handler"), &FieldPath::root("handler"), errors);
    if let Some(scheduling) = some(new, "scheduling") {
        let path = FieldPath::root("scheduling");
        labels(scheduling.get("nodeSelector"), &path.member("nodeSelector"), errors);
    }
    if let Some(old) = old {
        immutable(new, old, "handler", &FieldPath::ROOT, errors);
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells, check_update, errors};
    use super::*;

    #[test]
    fn handlers() {
        check(&RUNTIME_CLASS, &[(r#"{"handler":"runc"}"#, &[])]);
        assert!(
            errors(&RUNTIME_CLASS, r#"{"handler":"Run"}"#, None)[0]
                .starts_with("handler: Invalid value: \"Run\": a lowercase RFC 1123 label")
        );
        check_update(
            &RUNTIME_CLASS,
            &[(
                r#"{"handler":"a"}"#,
                r#"{"handler":"b"}"#,
                &[r#"handler: Invalid value: "b": field is immutable"#],
            )],
        );
    }

    #[test]
    fn cells() {
        check_cells(
            &RUNTIME_CLASS,
            &[(r#"{"metadata":{"name":"r"},"handler":"h"}"#, r#"["r","h","<unknown>"]"#)],
        );
    }
}
