//! Resource claims: devices that pods want.

use std::collections::HashSet;
use std::fmt;

use polder_model::{FieldError, FieldPath, Value, json};

use super::blank_status;
use super::cells;
use super::checks::{Errors, IMMUTABLE, dns_label, driver_name, each, immutable, required, some, text};
use super::device_claim::{self, RequestNames};
use super::device_rules::{is_bounded, opaque_config, pool_name, raw_object};
use super::scheduling_rules::node_selector;
use crate::behavior::{Behavior, Column};

const CONSUMERS_MAX: usize = 256;
const RESULTS_MAX: usize = 32;
/// Of the class and of the claim.
const CONFIG_MAX: usize = 64;
const CONDITIONS_MAX: usize = 8;
const DATA_LEN_MAX: usize = 10 << 10;
const IPS_MAX: usize = 16;

pub(super) const RESOURCE_CLAIM: Behavior = Behavior {
    group: "resource.k8s.io",
    resource: "resourceclaims",
    delete_returns_object: true,
    columns: &[Column::NAME, Column::text("State"), Column::AGE],
    cells: |object, print| vec![cells::name(object), state(object).into(), cells::age(object, print)],
    default: |object| {
        if let Some(spec) = object.at_mut(&["spec"]) {
            device_claim::default(spec);
        }
    },
    prepare_create: |object| blank_status::set(object, json!({})),
    prepare_part: |new, old, _| drop_deallocated(new, old),
    validate,
    validate_status,
    ..Behavior::PLAIN
};

fn state(object: &Value) -> &'static str {
    let deleted = object.at(&["metadata", "deletionTimestamp"]).is_some();
    let allocated = object.at(&["status", "allocation"]).is_some_and(|allocation| !allocation.is_null());
    let reserved = !object.array_at(&["status", "reservedFor"]).is_empty();
    match (deleted, allocated, reserved) {
        (false, false, _) => "pending",
        (true, false, _) => "deleted",
        (false, true, false) => "allocated",
        (false, true, true) => "allocated,reserved",
        (true, true, false) => "deleted,allocated",
        (true, true, true) => "deleted,allocated,reserved",
    }
}

fn validate(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    match old {
        Some(old) => immutable(new, old, "spec", &FieldPath::ROOT, errors),
        None => {
            let empty = Value::Null;
            device_claim::validate(new.get("spec").unwrap_or(&empty), &FieldPath::root("spec"), errors);
        }
    }
}

/// With a device goes what its driver said about it.
fn drop_deallocated(new: &mut Value, old: &Value) {
    let empty = Value::Null;
    let of = |claim: &Value| {
        let own = allocated(claim.at(&["status", "allocation"]).unwrap_or(&empty));
        own.iter().map(ToString::to_string).collect::<HashSet<_>>()
    };
    let (now, before) = (of(new), of(old));
    let Some(devices) = new.at_mut(&["status", "devices"]).and_then(Value::as_array_mut) else { return };
    devices.retain(|device| {
        let id = DeviceId::of(device).to_string();
        now.contains(&id) || !before.contains(&id)
    });
}

fn validate_status(new: &Value, old: &Value, errors: &mut Errors) {
    let empty = Value::Null;
    let status = new.get("status").unwrap_or(&empty);
    let path = FieldPath::root("status");
    let names = RequestNames::of(new.get("spec").unwrap_or(&empty));
    validate_consumers(status, &path, errors);
    let allocation = some(status, "allocation");
    let allocated = allocation.map(allocated).unwrap_or_default();
    let mut seen = HashSet::new();
    each(status, "devices", &path, errors, |device, path, errors| {
        validate_device(device, &allocated, path, errors);
        if !seen.insert(DeviceId::of(device)) {
            errors.push(FieldError::duplicate(path, DeviceId::of(device).to_string()));
        }
    });
    let reserved_path = path.member("reservedFor");
    let old_consumers = old.array_at(&["status", "reservedFor"]);
    let mut consumers = status.array_at(&["reservedFor"]).iter();
    if allocation.is_none() && !consumers.as_slice().is_empty() {
        errors.push(FieldError::forbidden(reserved_path, "may not be specified when `allocated` is not set"));
    } else if new.at(&["metadata", "deletionTimestamp"]).is_some()
        && consumers.any(|consumer| !old_consumers.contains(consumer))
    {
        let why = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
        errors.push(FieldError::forbidden(reserved_path, why));
    }
    let allocation_path = path.member("allocation");
    match (allocation, old.at(&["status", "allocation"]).filter(|old| !old.is_null())) {
        (Some(allocation), Some(old)) if allocation != old => {
            errors.push(FieldError::invalid(allocation_path, allocation.clone(), IMMUTABLE));
        }
        (Some(allocation), None) => validate_allocation(allocation, &names, &allocation_path, errors),
        _ => {}
    }
}

/// Who uses the claim.
fn validate_consumers(status: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    if !is_bounded(status, "reservedFor", CONSUMERS_MAX, path, errors) {
        return;
    }
    let mut seen = HashSet::new();
    each(status, "reservedFor", path, errors, |consumer, path, errors| {
        for key in ["resource", "name", "uid"] {
            required(consumer, key, path, errors);
        }
        let uid = text(consumer, "uid");
        if !seen.insert(uid) {
            errors.push(FieldError::duplicate(path, uid));
        }
    });
}

fn validate_allocation(
    allocation: &Value,
    names: &RequestNames<'_>,
    path: &FieldPath<'_>,
    errors: &mut Errors,
) {
    let empty = Value::Null;
    let devices = allocation.get("devices").unwrap_or(&empty);
    let at_devices = path.member("devices");
    if is_bounded(devices, "results", RESULTS_MAX, &at_devices, errors) {
        each(devices, "results", &at_devices, errors, |result, path, errors| {
            names.validate(text(result, "request"), &path.member("request"), errors);
            validate_device_name(result, path, errors);
        });
    }
    if is_bounded(devices, "config", CONFIG_MAX, &at_devices, errors) {
        each(devices, "config", &at_devices, errors, |config, path, errors| {
            let source_path = path.member("source");
            match text(config, "source") {
                "" => errors.push(FieldError::required(source_path, "")),
                "FromClaim" | "FromClass" => {}
                other => {
                    let known = ["FromClaim", "FromClass"];
                    errors.push(FieldError::not_supported(source_path, other, known));
                }
            }
            names.validate_list(config, path, errors);
            opaque_config(config, path, errors);
        });
    }
    if let Some(selector) = some(allocation, "nodeSelector") {
        node_selector(selector, &path.member("nodeSelector"), errors);
    }
}

/// What a driver says about a device that was allocated.
fn validate_device(
    device: &Value,
    allocated: &HashSet<DeviceId<'_>>,
    path: &FieldPath<'_>,
    errors: &mut Errors,
) {
    validate_device_name(device, path, errors);
    let id = DeviceId::of(device);
    if !allocated.contains(&id) {
        let why = "must be an allocated device in the claim";
        errors.push(FieldError::invalid(path, id.to_string(), why));
    }
    is_bounded(device, "conditions", CONDITIONS_MAX, path, errors);
    if some(device, "data").is_some() {
        raw_object(device.get("data"), DATA_LEN_MAX, &path.member("data"), errors);
    }
    let Some(network) = some(device, "networkData") else { return };
    let path = path.member("networkData");
    for (key, len_max) in [("interfaceName", 256), ("hardwareAddress", 128)] {
        if text(network, key).len() > len_max {
            errors.push(FieldError::too_long(path.member(key), len_max));
        }
    }
    if is_bounded(network, "ips", IPS_MAX, &path, errors) {
        let mut seen = HashSet::new();
        each(network, "ips", &path, errors, |address, path, errors| {
            let address = address.as_str().unwrap_or_default();
            if !seen.insert(address) {
                errors.push(FieldError::duplicate(path, address));
            }
        });
    }
}

fn validate_device_name(device: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    driver_name(text(device, "driver"), &path.member("driver"), errors);
    pool_name(text(device, "pool"), &path.member("pool"), errors);
    dns_label(text(device, "device"), &path.member("device"), errors);
}

fn allocated(allocation: &Value) -> HashSet<DeviceId<'_>> {
    allocation.array_at(&["devices", "results"]).iter().take(RESULTS_MAX).map(DeviceId::of).collect()
}

#[derive(PartialEq, Eq, Hash)]
struct DeviceId<'a> {
    driver: &'a str,
    pool: &'a str,
    device: &'a str,
    share: &'a str,
}

impl<'a> DeviceId<'a> {
    fn of(device: &'a Value) -> DeviceId<'a> {
        let text = |key: &str| text(device, key);
        DeviceId {
            driver: text("driver"),
            pool: text("pool"),
            device: text("device"),
            share: text("shareID"),
        }
    }
}

impl fmt::Display for DeviceId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.driver, self.pool, self.device)?;
        if self.share.is_empty() { Ok(()) } else { write!(f, "/{}", self.share) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells, check_default, check_update, parse};
    use super::*;

    const GOOD: &str = r#"{"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c","allocationMode":"ExactCount","count":1}}],
        "constraints":[{"requests":["r"],"matchAttribute":"a/b"}]}}}"#;

    #[test]
    fn claims() {
        check(
            &RESOURCE_CLAIM,
            &[
                (GOOD, &[]),
                (
                    r#"{"spec":{"devices":{"requests":[{"name":"r"},{"name":"r","exactly":{"allocationMode":"All","count":2}}],
                        "constraints":[{"requests":["x"]}],"config":[{}]}}}"#,
                    &[
                        "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
                        r#"spec.devices.requests[1]: Duplicate value: "r""#,
                        "spec.devices.requests[1].exactly.deviceClassName: Required value",
                        "spec.devices.requests[1].exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'",
                        r#"spec.devices.constraints[0].requests[0]: Invalid value: "x": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"#,
                        "spec.devices.constraints[0].matchAttribute: Required value",
                        "spec.devices.config[0].opaque: Required value",
                    ],
                ),
            ],
        );
        check_update(
            &RESOURCE_CLAIM,
            &[
                (GOOD, GOOD, &[]),
                (
                    GOOD,
                    r#"{"spec":{"devices":{}}}"#,
                    &[r#"spec: Invalid value: {"devices":{}}: field is immutable"#],
                ),
            ],
        );
    }

    #[test]
    fn what_was_allocated() {
        let claim = |status: &str| parse(&GOOD.replacen('{', &format!(r#"{{"status":{status},"#), 1));
        let result = r#"{"request":"r","driver":"d.example","pool":"p","device":"a"}"#;
        let allocation = format!(r#""allocation":{{"devices":{{"results":[{result}]}}}}"#);
        let consumers: Vec<String> =
            (0..257).map(|uid| format!(r#"{{"resource":"pods","name":"p","uid":"{uid}"}}"#)).collect();
        let rows: [(&str, String, &[&str]); 6] = [
            ("{}", format!(r#"{{{allocation},"reservedFor":[{}]}}"#, consumers[0]), &[]),
            (
                "{}",
                format!(r#"{{"reservedFor":[{0},{0},{{}}]}}"#, consumers[0]),
                &[
                    r#"status.reservedFor[1]: Duplicate value: "0""#,
                    "status.reservedFor[2].resource: Required value",
                    "status.reservedFor[2].name: Required value",
                    "status.reservedFor[2].uid: Required value",
                    "status.reservedFor: Forbidden: may not be specified when `allocated` is not set",
                ],
            ),
            (
                "{}",
                format!(r#"{{{allocation},"reservedFor":[{}]}}"#, consumers.join(",")),
                &["status.reservedFor: Too many: 257: must have at most 256 items"],
            ),
            (
                "{}",
                r#"{"allocation":{"devices":{"results":[{"request":"x","driver":"d.example","pool":"p","device":"a"}],"config":[{"source":"Me"}]}}}"#.into(),
                &[
                    r#"status.allocation.devices.results[0].request: Invalid value: "x": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"#,
                    r#"status.allocation.devices.config[0].source: Unsupported value: "Me": supported values: "FromClaim", "FromClass""#,
                    "status.allocation.devices.config[0].opaque: Required value",
                ],
            ),
            (
                "{}",
                format!(r#"{{{allocation},"devices":[{{"driver":"d.example","pool":"p","device":"b","data":1}}]}}"#),
                &[
                    r#"status.devices[0]: Invalid value: "d.example/p/b": must be an allocated device in the claim"#,
                    r#"status.devices[0].data: Invalid value: "<value omitted>": must be a valid JSON object"#,
                ],
            ),
            (
                &format!("{{{allocation}}}"),
                r#"{"allocation":{"devices":{}}}"#.into(),
                &[r#"status.allocation: Invalid value: {"devices":{}}: field is immutable"#],
            ),
        ];
        for (old, new, expected) in rows {
            let mut errors = Vec::new();
            validate_status(&claim(&new), &claim(old), &mut errors);
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(errors, expected, "{new:.300}");
        }
    }

    #[test]
    fn what_was_said_of_a_device_goes_with_it() {
        let status = r#"{"status":{"allocation":{"devices":{"results":[{"driver":"d","pool":"p","device":"a"}]}},"devices":[{"driver":"d","pool":"p","device":"a"}]}}"#;
        let old = parse(status);
        let mut new = old.clone();
        drop_deallocated(&mut new, &old);
        assert_eq!(new, old);
        new.remove_at(&["status", "allocation"]);
        drop_deallocated(&mut new, &old);
        assert!(new.array_at(&["status", "devices"]).is_empty());
    }

    #[test]
    fn one_device_unless_said_otherwise() {
        check_default(
            &RESOURCE_CLAIM,
            &[(
                r#"{"spec":{"devices":{"requests":[{"exactly":{}},{"firstAvailable":[{"allocationMode":"All"}]}]}}}"#,
                r#"{"spec":{"devices":{"requests":[{"exactly":{"allocationMode":"ExactCount","count":1}},{"firstAvailable":[{"allocationMode":"All"}]}]}}}"#,
            )],
        );
    }

    #[test]
    fn states() {
        check_cells(
            &RESOURCE_CLAIM,
            &[
                (r#"{"metadata":{"name":"r"}}"#, r#"["r","pending","<unknown>"]"#),
                (
                    r#"{"metadata":{"name":"r"},"status":{"allocation":{},"reservedFor":[{}]}}"#,
                    r#"["r","allocated,reserved","<unknown>"]"#,
                ),
            ],
        );
    }
}
