//! Service CIDRs: where cluster IPs are taken from.

use polder_model::{FieldError, FieldPath, Value, json};

use super::addresses::canonical_cidr;
use super::blank_status;
use super::cells;
use super::checks::{Errors, texts};
use crate::behavior::{Behavior, Column};

pub(super) const SERVICE_CIDR: Behavior = Behavior {
    group: "networking.k8s.io",
    resource: "servicecidrs",
    columns: &[Column::NAME, Column::text("CIDRs"), Column::AGE],
    cells: |object, print| {
        vec![
            cells::name(object),
            cells::joined(object, &["spec", "cidrs"], ",").into(),
            cells::age(object, print),
        ]
    },
    prepare_create: |object| blank_status::set(object, json!({})),
    validate,
    ..Behavior::PLAIN
};

fn validate(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = new.get("spec").unwrap_or(&empty);
    let new_blocks = texts(spec, "cidrs");
    let path = FieldPath::root("spec");
    let path = path.member("cidrs");
    let Some(old) = old else { return validate_blocks(spec, &new_blocks, &path, errors) };
    let old_blocks = texts(old.get("spec").unwrap_or(&empty), "cidrs");
    // A block may be added once, to become dual-stack; nothing else may change.
    let dual_stacked = old_blocks.len() == 1 && new_blocks.len() == 2;
    if new_blocks.len() != old_blocks.len() && !dual_stacked {
        let value = spec.get("cidrs").cloned().unwrap_or_default();
        errors.push(FieldError::invalid(path, value, "field is immutable"));
        return;
    }
    for (index, (old, new)) in old_blocks.iter().zip(&new_blocks).enumerate() {
        if old != new {
            errors.push(FieldError::invalid(path.index(index), *new, "field is immutable"));
        }
    }
    if dual_stacked {
        validate_blocks(spec, &new_blocks, &path, errors);
    }
}

fn validate_blocks(spec: &Value, blocks: &[&str], path: &FieldPath<'_>, errors: &mut Errors) {
    if blocks.is_empty() {
        errors.push(FieldError::required(path, "at least one CIDR required"));
        return;
    }
    if blocks.len() > 2 {
        errors.push(FieldError::invalid(path, spec.clone(), "may only hold up to 2 values"));
        return;
    }
    let families: Vec<Option<bool>> = blocks
        .iter()
        .enumerate()
        .map(|(index, block)| {
            canonical_cidr(block, &path.index(index), errors);
            // Of what family one is can be seen although it is not written as it should be.
            let (address, _) = block.split_once('/')?;
            address.parse::<std::net::IpAddr>().ok().map(|address| address.is_ipv4())
        })
        .collect();
    if let [Some(first), Some(second)] = families[..]
        && first == second
    {
        errors.push(FieldError::invalid(
            path,
            spec.get("cidrs").cloned().unwrap_or_default(),
            "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64",
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells, check_update};
    use super::*;

    #[test]
    fn blocks() {
        check(
            &SERVICE_CIDR,
            &[
                (r#"{"spec":{"cidrs":["10.96.0.0/16","fd00::/108"]}}"#, &[]),
                ("{}", &["spec.cidrs: Required value: at least one CIDR required"]),
                (
                    r#"{"spec":{"cidrs":["10.96.0.1/16"]}}"#,
                    &[
                        r#"spec.cidrs[0]: Invalid value: "10.96.0.1/16": must not have bits set beyond the prefix length"#,
                    ],
                ),
                (
                    r#"{"spec":{"cidrs":["10.0.0.0/16","10.1.0.0/16"]}}"#,
                    &[
                        r#"spec.cidrs: Invalid value: ["10.0.0.0/16","10.1.0.0/16"]: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"#,
                    ],
                ),
            ],
        );
    }

    #[test]
    fn changes() {
        let old = r#"{"spec":{"cidrs":["10.0.0.0/16"]}}"#;
        check_update(
            &SERVICE_CIDR,
            &[
                (old, r#"{"spec":{"cidrs":["10.0.0.0/16","fd00::/108"]}}"#, &[]),
                (
                    old,
                    r#"{"spec":{"cidrs":["10.1.0.0/16"]}}"#,
                    &[r#"spec.cidrs[0]: Invalid value: "10.1.0.0/16": field is immutable"#],
                ),
                (old, r#"{"spec":{"cidrs":[]}}"#, &["spec.cidrs: Invalid value: []: field is immutable"]),
            ],
        );
        check_cells(&SERVICE_CIDR, &[(old, r#"["","10.0.0.0/16","<unknown>"]"#)]);
    }
}
