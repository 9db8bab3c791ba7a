//! CSI storage capacities: how much room a storage class has somewhere.

use polder_model::{FieldPath, Value};

use super::cells;
use super::checks::{Errors, dns_subdomain, immutable, some, text};
use super::label_selector;
use super::resource_amounts;
use crate::behavior::{Behavior, Column};

pub(super) const CSI_STORAGE_CAPACITY: Behavior = Behavior {
    group: "storage.k8s.io",
    resource: "csistoragecapacities",
    unconditional_update: false,
    columns: &[Column::NAME, cells::CREATED_AT],
    cells: |object, _| vec![cells::name(object), cells::created_at(object)],
    validate,
    ..Behavior::PLAIN
};

fn validate(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    label_selector::validate(new.get("nodeTopology"), &FieldPath::root("nodeTopology"), errors);
    dns_subdomain(text(new, "storageClassName"), &FieldPath::root("storageClassName"), errors);
    if let Some(amount) = some(new, "capacity") {
        resource_amounts::not_negative(amount, &FieldPath::root("capacity"), errors);
    }
    if let Some(old) = old {
        immutable(new, old, "nodeTopology", &FieldPath::ROOT, errors);
        immutable(new, old, "storageClassName", &FieldPath::ROOT, errors);
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells, check_update};
    use super::*;

    #[test]
    fn fields() {
        let good = r#"{"metadata":{"name":"c"},"storageClassName":"s","capacity":"1Gi"}"#;
        check(&CSI_STORAGE_CAPACITY, &[(good, &[])]);
        check_update(
            &CSI_STORAGE_CAPACITY,
            &[
                (good, r#"{"storageClassName":"s","capacity":"2Gi"}"#, &[]),
                (
                    good,
                    r#"{"storageClassName":"t"}"#,
                    &[r#"storageClassName: Invalid value: "t": field is immutable"#],
                ),
            ],
        );
        check_cells(&CSI_STORAGE_CAPACITY, &[(good, r#"["c",""]"#)]);
        check(
            &CSI_STORAGE_CAPACITY,
            &[(
                r#"{"storageClassName":"s","capacity":"-1"}"#,
                &[r#"capacity: Invalid value: "-1": must be greater than or equal to 0"#],
            )],
        );
    }
}
