//! Device claims: what resource claims and their templates ask for.
//!
//! Selector expressions are compiled by the scheduler; here they must only be there and short.

use std::collections::{HashMap, HashSet};

use polder_model::{FieldError, FieldPath, Value};

use super::checks::{Errors, default_at, dns_label, dns_subdomain, driver_name, each, required, some, text};

const REQUESTS_MAX: usize = 32;
const FIRST_AVAILABLE_MAX: usize = 8;
const EXPRESSION_LEN_MAX: usize = 10 << 10;
const ALL: &str = "All";
const EXACT: &str = "ExactCount";

/// Each request asks for exactly one device unless it says otherwise.
pub(super) fn default(claim_spec: &mut Value) {
    let requests = claim_spec.at_mut(&["devices", "requests"]).and_then(Value::as_array_mut);
    for request in requests.into_iter().flatten() {
        if let Some(exactly) = request.at_mut(&["exactly"]).filter(|exactly| !exactly.is_null()) {
            default_count(exactly);
        }
        let choices = request.at_mut(&["firstAvailable"]).and_then(Value::as_array_mut);
        choices.into_iter().flatten().for_each(default_count);
    }
}

fn default_count(request: &mut Value) {
    if text(request, "allocationMode").is_empty() {
        request.remove_at(&["allocationMode"]);
    }
    default_at(request, &["allocationMode"], EXACT);
    if text(request, "allocationMode") == EXACT && request.i64_at(&["count"]).unwrap_or(0) == 0 {
        request.set_at(&["count"], 1);
    }
}

pub(super) fn validate(claim_spec: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let empty = Value::Null;
    let devices = claim_spec.get("devices").unwrap_or(&empty);
    let path = path.member("devices");
    let mut names: HashMap<String, HashSet<String>> = HashMap::new();
    bounded(devices, "requests", REQUESTS_MAX, &path, errors);
    each(devices, "requests", &path, errors, |request, path, errors| {
        let name = text(request, "name");
        let choices = request.array_at(&["firstAvailable"]);
        let choices = choices.iter().map(|choice| text(choice, "name").to_owned()).collect();
        if names.insert(name.to_owned(), choices).is_some() {
            errors.push(FieldError::duplicate(path, name));
        }
        validate_request(request, path, errors);
    });
    for key in ["constraints", "config"] {
        bounded(devices, key, REQUESTS_MAX, &path, errors);
        each(devices, key, &path, errors, |item, path, errors| {
            each(item, "requests", path, errors, |name, path, errors| {
                validate_request_name(name.as_str().unwrap_or_default(), &names, path, errors);
            });
        });
    }
    each(devices, "constraints", &path, errors, |constraint, path, errors| {
        if some(constraint, "matchAttribute").is_none() && some(constraint, "distinctAttribute").is_none() {
            errors.push(FieldError::required(path.member("matchAttribute"), ""));
        }
    });
    each(devices, "config", &path, errors, validate_opaque);
}

fn bounded(object: &Value, key: &str, items_max: usize, path: &FieldPath<'_>, errors: &mut Errors) {
    let count = object.array_at(&[key]).len();
    if count > items_max {
        errors.push(FieldError::too_many(path.member(key), count, items_max));
    }
}

/// Configuration for a driver.
pub(super) fn validate_opaque(config: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let opaque_path = path.member("opaque");
    match some(config, "opaque") {
        None => errors.push(FieldError::required(opaque_path, "")),
        Some(opaque) => {
            driver_name(text(opaque, "driver"), &opaque_path.member("driver"), errors);
            required(opaque, "parameters", &opaque_path, errors);
        }
    }
}

fn validate_request(request: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    const ONE_OF: &str = "exactly one of `exactly` or `firstAvailable` is required";
    dns_label(text(request, "name"), &path.member("name"), errors);
    match (some(request, "exactly"), request.array_at(&["firstAvailable"]).is_empty()) {
        (None, true) => errors.push(FieldError::required(path, ONE_OF)),
        (Some(_), false) => {
            let why = format!("{ONE_OF}, but multiple fields are set");
            errors.push(FieldError::invalid(path, Value::Null, why));
        }
        (Some(exactly), true) => validate_devices(exactly, &path.member("exactly"), errors),
        (None, false) => {
            bounded(request, "firstAvailable", FIRST_AVAILABLE_MAX, path, errors);
            let mut names = HashSet::new();
            each(request, "firstAvailable", path, errors, |choice, path, errors| {
                let name = text(choice, "name");
                dns_label(name, &path.member("name"), errors);
                if !names.insert(name.to_owned()) {
                    errors.push(FieldError::duplicate(path, name));
                }
                validate_devices(choice, path, errors);
            });
        }
    }
}

fn validate_devices(request: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    if required(request, "deviceClassName", path, errors) {
        dns_subdomain(text(request, "deviceClassName"), &path.member("deviceClassName"), errors);
    }
    each(request, "selectors", path, errors, validate_selector);
    let count = request.i64_at(&["count"]).unwrap_or(0);
    let mode = text(request, "allocationMode");
    let mut refuse_count = |why: String| errors.push(FieldError::invalid(path.member("count"), count, why));
    match mode {
        ALL if count != 0 => refuse_count(format!("must not be specified when allocationMode is '{ALL}'")),
        EXACT if count <= 0 => refuse_count("must be greater than zero".into()),
        ALL | EXACT => {}
        _ => errors.push(FieldError::not_supported(path.member("allocationMode"), mode, [ALL, EXACT])),
    }
}

/// A CEL expression about devices.
pub(super) fn validate_selector(selector: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    match some(selector, "cel") {
        None => errors.push(FieldError::required(path.member("cel"), "")),
        Some(cel) if text(cel, "expression").len() > EXPRESSION_LEN_MAX => {
            let path = path.member("cel");
            errors.push(FieldError::too_long(path.member("expression"), EXPRESSION_LEN_MAX));
        }
        Some(_) => {}
    }
}

/// `request` or `request/subrequest`.
fn validate_request_name(
    name: &str,
    names: &HashMap<String, HashSet<String>>,
    path: &FieldPath<'_>,
    errors: &mut Errors,
) {
    let (request, choice) = match name.split_once('/') {
        Some((request, choice)) => (request, Some(choice)),
        None => (name, None),
    };
    let known =
        names.get(request).is_some_and(|choices| choice.is_none_or(|choice| choices.contains(choice)));
    if !known {
        let why = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
        errors.push(FieldError::invalid(path, name, why));
    }
}
