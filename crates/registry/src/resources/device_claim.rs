//! Device claims: what resource claims and their templates ask for.

use std::collections::{HashMap, HashSet};

use polder_model::{FieldError, FieldPath, Value};

use super::checks::{Errors, default_at, dns_label, dns_subdomain, each, required, some, text};
use super::device_rules::{Selectors, fully_qualified_name, is_bounded, opaque_config};

const REQUESTS_MAX: usize = 32;
const FIRST_AVAILABLE_MAX: usize = 8;
pub(super) const SELECTORS_MAX: usize = 32;
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
    let names = RequestNames::of(claim_spec);
    let (mut seen, mut selectors) = (HashSet::new(), Selectors::default());
    if is_bounded(devices, "requests", REQUESTS_MAX, &path, errors) {
        each(devices, "requests", &path, errors, |request, path, errors| {
            let name = text(request, "name");
            if !seen.insert(name) {
                errors.push(FieldError::duplicate(path, name));
            }
            validate_request(request, &mut selectors, path, errors);
        });
    }
    for key in ["constraints", "config"] {
        if is_bounded(devices, key, REQUESTS_MAX, &path, errors) {
            each(devices, key, &path, errors, |item, path, errors| names.validate_list(item, path, errors));
        }
    }
    each(devices, "constraints", &path, errors, |constraint, path, errors| {
        let attribute = ["matchAttribute", "distinctAttribute"]
            .into_iter()
            .find_map(|key| Some((key, some(constraint, key)?.as_str()?)));
        match attribute {
            Some((key, name)) => fully_qualified_name(name, &path.member(key), errors),
            None => errors.push(FieldError::required(path.member("matchAttribute"), "")),
        }
    });
    each(devices, "config", &path, errors, opaque_config);
}

/// The requests of a claim, and the choices of each.
pub(super) struct RequestNames<'a>(HashMap<&'a str, HashSet<&'a str>>);

impl<'a> RequestNames<'a> {
    pub(super) fn of(claim_spec: &'a Value) -> RequestNames<'a> {
        let requests = claim_spec.array_at(&["devices", "requests"]).iter();
        let one = |request: &'a Value| {
            let choices = request.array_at(&["firstAvailable"]);
            (text(request, "name"), choices.iter().map(|choice| text(choice, "name")).collect())
        };
        RequestNames(requests.map(one).collect())
    }

    /// The member `requests` of constraints and configurations.
    pub(super) fn validate_list(&self, item: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
        if !is_bounded(item, "requests", REQUESTS_MAX, path, errors) {
            return;
        }
        let mut seen = HashSet::new();
        each(item, "requests", path, errors, |name, path, errors| {
            let name = name.as_str().unwrap_or_default();
            self.validate(name, path, errors);
            if !seen.insert(name) {
                errors.push(FieldError::duplicate(path, name));
            }
        });
    }

    /// `request` or `request/subrequest`.
    pub(super) fn validate(&self, name: &str, path: &FieldPath<'_>, errors: &mut Errors) {
        let (request, choice) = match name.split_once('/') {
            Some((request, choice)) => (request, Some(choice)),
            None => (name, None),
        };
        let known =
            self.0.get(request).is_some_and(|choices| choice.is_none_or(|choice| choices.contains(choice)));
        if !known {
            let why = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
            errors.push(FieldError::invalid(path, name, why));
        }
    }
}

fn validate_request(request: &Value, selectors: &mut Selectors, path: &FieldPath<'_>, errors: &mut Errors) {
    const ONE_OF: &str = "exactly one of `exactly` or `firstAvailable` is required";
    dns_label(text(request, "name"), &path.member("name"), errors);
    match (some(request, "exactly"), request.array_at(&["firstAvailable"]).is_empty()) {
        (None, true) => errors.push(FieldError::required(path, ONE_OF)),
        (Some(_), false) => {
            let why = format!("{ONE_OF}, but multiple fields are set");
            errors.push(FieldError::invalid(path, Value::Null, why));
        }
        (Some(exactly), true) => validate_devices(exactly, selectors, &path.member("exactly"), errors),
        (None, false) => {
            if !is_bounded(request, "firstAvailable", FIRST_AVAILABLE_MAX, path, errors) {
                return;
            }
            let mut names = HashSet::new();
            each(request, "firstAvailable", path, errors, |choice, path, errors| {
                let name = text(choice, "name");
                dns_label(name, &path.member("name"), errors);
                if !names.insert(name.to_owned()) {
                    errors.push(FieldError::duplicate(path, name));
                }
                validate_devices(choice, selectors, path, errors);
            });
        }
    }
}

fn validate_devices(request: &Value, selectors: &mut Selectors, path: &FieldPath<'_>, errors: &mut Errors) {
    if required(request, "deviceClassName", path, errors) {
        dns_subdomain(text(request, "deviceClassName"), &path.member("deviceClassName"), errors);
    }
    if is_bounded(request, "selectors", SELECTORS_MAX, path, errors) {
        each(request, "selectors", path, errors, |one, path, errors| selectors.validate(one, path, errors));
    }
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
