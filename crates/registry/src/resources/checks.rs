//! Checks that many kinds share, with the texts clients know.
//!
//! A missing member, `null` and an empty text are the same here, as in Go. Lists are walked with [`each`], which stops
//! once an object has been found wrong often enough, so that a hostile object cannot make an endless report.

use std::net::IpAddr;

use polder_model::names::{
    dns_label_problems, dns_subdomain_problem, dns_subdomain_problems, label_value_problems,
    path_segment_problem, qualified_name_problems,
};
use polder_model::{FieldError, FieldPath, Value};

pub(super) type Errors = Vec<FieldError>;

/// No list is looked at further once there are this many errors.
pub(super) const ERRORS_MAX: usize = 200;

pub(super) const IMMUTABLE: &str = "field is immutable";
pub(super) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
pub(super) const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const HOST_NAME: &str = "must be a DNS name, not an IP address";
const PORT_NAME_LEN_MAX: usize = 15;

/// A string member; missing ones are empty.
pub(super) fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// A member that is there and not null.
pub(super) fn some<'a>(object: &'a Value, key: &str) -> Option<&'a Value> {
    object.get(key).filter(|value| !value.is_null())
}

/// Texts of a list; elements that are none are left out.
pub(super) fn texts<'a>(object: &'a Value, key: &str) -> Vec<&'a str> {
    object.array_at(&[key]).iter().filter_map(Value::as_str).collect()
}

/// Sets a member that is missing or null.
pub(super) fn default_at(object: &mut Value, path: &[&str], default: impl Into<Value>) {
    if object.at(path).is_none_or(Value::is_null) {
        object.set_at(path, default);
    }
}

/// Walks a list member: each element with its path.
pub(super) fn each<'v>(
    object: &'v Value,
    key: &str,
    path: &FieldPath<'_>,
    errors: &mut Errors,
    mut check: impl FnMut(&'v Value, &FieldPath<'_>, &mut Errors),
) {
    let list = path.member(key);
    for (index, item) in object.array_at(&[key]).iter().enumerate() {
        if errors.len() >= ERRORS_MAX {
            break;
        }
        check(item, &list.index(index), errors);
    }
}

/// Whether two values are equal in Go's eyes: missing, null and empty collections do not differ.
pub(super) fn same(left: Option<&Value>, right: Option<&Value>) -> bool {
    let empty = |value: Option<&Value>| match value {
        None | Some(Value::Null) => true,
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(object)) => object.is_empty(),
        _ => false,
    };
    left == right || (empty(left) && empty(right))
}

/// A member that may not change.
pub(super) fn immutable(new: &Value, old: &Value, key: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    if !same(new.get(key), old.get(key)) {
        let value = new.get(key).cloned().unwrap_or_default();
        errors.push(FieldError::invalid(path.member(key), value, IMMUTABLE));
    }
}

/// A member that, if there, is one of an enumeration.
pub(super) fn one_of(
    object: &Value,
    key: &str,
    supported: &[&str],
    path: &FieldPath<'_>,
    errors: &mut Errors,
) {
    match some(object, key).map(|value| value.as_str().unwrap_or_default()) {
        Some(value) if !supported.contains(&value) => {
            errors.push(FieldError::not_supported(path.member(key), value, supported));
        }
        _ => {}
    }
}

/// A member that is one of an enumeration and may not be empty; a missing one has got its default elsewhere.
pub(super) fn one_of_required(
    object: &Value,
    key: &str,
    supported: &[&str],
    path: &FieldPath<'_>,
    errors: &mut Errors,
) {
    match object.get(key).and_then(Value::as_str) {
        None => {}
        Some("") => errors.push(FieldError::required(path.member(key), "")),
        Some(value) if supported.contains(&value) => {}
        Some(value) => errors.push(FieldError::not_supported(path.member(key), value, supported)),
    }
}

/// A member that must be there; says whether it is.
pub(super) fn required(object: &Value, key: &str, path: &FieldPath<'_>, errors: &mut Errors) -> bool {
    let there = some(object, key).is_some_and(|value| value.as_str() != Some(""));
    if !there {
        errors.push(FieldError::required(path.member(key), ""));
    }
    there
}

pub(super) fn not_negative(object: &Value, keys: &[&str], path: &FieldPath<'_>, errors: &mut Errors) {
    for key in keys {
        if let Some(number) = object.get(key).and_then(Value::as_i64).filter(|number| *number < 0) {
            errors.push(FieldError::invalid(path.member(key), number, NOT_NEGATIVE));
        }
    }
}

/// Notes what is wrong with a text, if anything.
pub(super) fn problem(
    value: &str,
    problems: impl IntoIterator<Item = impl Into<String>>,
    path: &FieldPath<'_>,
    errors: &mut Errors,
) {
    errors.extend(problems.into_iter().map(|problem| FieldError::invalid(path, value, problem)));
}

/// A required DNS label.
pub(super) fn name_label(object: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    match text(object, "name") {
        "" => errors.push(FieldError::required(path.member("name"), "")),
        name => dns_label(name, &path.member("name"), errors),
    }
}

pub(super) fn dns_label(value: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    problem(value, dns_label_problems(value), path, errors);
}

pub(super) fn dns_subdomain(value: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    problem(value, dns_subdomain_problems(value), path, errors);
}

pub(super) fn path_segment(value: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    problem(value, path_segment_problem(value), path, errors);
}

pub(super) fn qualified_name(value: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    problem(value, qualified_name_problems(value), path, errors);
}

pub(super) fn label_value(value: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    problem(value, label_value_problems(value), path, errors);
}

/// A host name that may start with `*.`.
pub(super) fn host_pattern(host: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    const WILDCARD: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, \
         which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character \
         (e.g. '*.example.com', regex used for validation is \
         '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    if !host.contains('*') {
        return dns_subdomain(host, path, errors);
    }
    let valid = host.strip_prefix("*.").is_some_and(|rest| dns_subdomain_problem(rest).is_none());
    problem(host, (!valid).then_some(WILDCARD), path, errors);
}

/// A host must be a name.
pub(super) fn not_an_ip(host: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    problem(host, host.parse::<IpAddr>().is_ok().then_some(HOST_NAME), path, errors);
}

/// The key of a CSI or device driver: a DNS subdomain of at most 63 bytes, upper case allowed.
pub(super) fn driver_name(name: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    if name.len() > 63 {
        errors.push(FieldError::too_long(path, 63));
    }
    dns_subdomain_folded(name, path, errors);
}

fn dns_subdomain_folded(name: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    problem(name, dns_subdomain_problems(&name.to_ascii_lowercase()), path, errors);
}

pub(super) fn port_problem(port: i64) -> Option<&'static str> {
    (!(1..=65535).contains(&port)).then_some("must be between 1 and 65535, inclusive")
}

pub(super) fn port_number(port: i64, path: &FieldPath<'_>, errors: &mut Errors) {
    if let Some(problem) = port_problem(port) {
        errors.push(FieldError::invalid(path, port, problem));
    }
}

/// A port by number, or by an IANA service name.
pub(super) fn port_or_name(port: Option<&Value>, path: &FieldPath<'_>, errors: &mut Errors) {
    match port {
        Some(Value::String(name)) => port_name(name, path, errors),
        port => port_number(port.and_then(Value::as_i64).unwrap_or_default(), path, errors),
    }
}

/// Reports everything wrong with a port name.
pub(super) fn port_name(name: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let problems = [
        (name.len() > PORT_NAME_LEN_MAX, "must be no more than 15 characters"),
        (
            name.is_empty() || !name.bytes().all(plain),
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
        ),
        (!name.bytes().any(|byte| byte.is_ascii_lowercase()), "must contain at least one letter (a-z)"),
        (name.contains("--"), "must not contain consecutive hyphens"),
        (name.starts_with('-') || name.ends_with('-'), "must not begin or end with a hyphen"),
    ];
    for (wrong, text) in problems {
        problem(name, wrong.then_some(text), path, errors);
    }
}

/// Label keys and values of a map.
pub(super) fn labels(labels: Option<&Value>, path: &FieldPath<'_>, errors: &mut Errors) {
    let Some(labels) = labels.and_then(Value::as_object) else { return };
    for (key, value) in labels.iter() {
        if errors.len() >= ERRORS_MAX {
            break;
        }
        qualified_name(key, path, errors);
        label_value(value.as_str().unwrap_or_default(), path, errors);
    }
}

/// A key of a config map or secret.
pub(super) fn config_key(key: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    let mut problem = |text: &str| errors.push(FieldError::invalid(path, key, text));
    if key.len() > 253 {
        problem("must be no more than 253 characters");
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if key.is_empty() || !key.bytes().all(allowed) {
        problem(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
             'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
        );
    }
    match key {
        "." => problem("must not be '.'"),
        ".." => problem("must not be '..'"),
        _ if key.starts_with("..") => problem("must not start with '..'"),
        _ => {}
    }
}

/// The number of a `25%` or `3`; what is neither counts as 0.
pub(super) fn int_or_percent(value: Option<&Value>) -> i64 {
    match value {
        Some(Value::String(text)) => percent(text).unwrap_or_default(),
        Some(value) => value.as_i64().unwrap_or_default(),
        None => 0,
    }
}

fn percent(text: &str) -> Option<i64> {
    let digits = text.strip_suffix('%')?;
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().unwrap_or(i64::MAX))
}

/// A number that is not negative, or a percentage.
pub(super) fn positive_int_or_percent(value: Option<&Value>, path: &FieldPath<'_>, errors: &mut Errors) {
    match value {
        Some(Value::String(text)) if percent(text).is_none() => errors.push(FieldError::invalid(
            path,
            text,
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', \
             regex used for validation is '[0-9]+%')",
        )),
        Some(Value::Int(number)) if *number < 0 => {
            errors.push(FieldError::invalid(path, *number, NOT_NEGATIVE));
        }
        _ => {}
    }
}

pub(super) fn at_most_100_percent(value: Option<&Value>, path: &FieldPath<'_>, errors: &mut Errors) {
    if let Some(text) = value.and_then(Value::as_str)
        && percent(text).is_some_and(|percent| percent > 100)
    {
        errors.push(FieldError::invalid(path, text, "must not be greater than 100%"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_bounded() {
        let rules = Value::Array(vec![Value::Null; 10_000]);
        let mut object = Value::Null;
        object.set_at(&["rules"], rules);
        let mut errors = Errors::new();
        each(&object, "rules", &FieldPath::ROOT, &mut errors, |_, path, errors| {
            errors.push(FieldError::required(path, ""));
        });
        assert_eq!(errors.len(), ERRORS_MAX);
    }
}
