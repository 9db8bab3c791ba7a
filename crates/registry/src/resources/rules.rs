//! Small checks that many kinds share, with the texts that clients know.

use std::net::IpAddr;

use polder_model::names::{
    dns_label_problem, dns_subdomain_problem, label_value_problem, qualified_name_problem,
};
use polder_model::{FieldError, FieldPath, Value};

pub(super) const IMMUTABLE: &str = "field is immutable";
pub(super) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
pub(super) const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// A string member; missing ones are empty, as in Go.
pub(super) fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// A member that is there and not null.
pub(super) fn some<'a>(object: &'a Value, key: &str) -> Option<&'a Value> {
    object.get(key).filter(|value| !value.is_null())
}

pub(super) fn not_negative(
    object: &Value,
    keys: &[&str],
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    for key in keys {
        if let Some(number) = object.get(key).and_then(Value::as_i64).filter(|number| *number < 0) {
            errors.push(FieldError::invalid(path.member(key), number, NOT_NEGATIVE));
        }
    }
}

/// A member whose value may not differ from the old one; missing, null and empty are the same.
pub(super) fn immutable(
    new: &Value,
    old: &Value,
    key: &str,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    if !same(new.get(key), old.get(key)) {
        let value = new.get(key).cloned().unwrap_or_default();
        errors.push(FieldError::invalid(path.member(key), value, IMMUTABLE));
    }
}

/// Equality in Go's eyes: missing, null and empty collections do not differ.
pub(super) fn same(left: Option<&Value>, right: Option<&Value>) -> bool {
    let empty = |value: Option<&Value>| match value {
        None | Some(Value::Null) => true,
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(object)) => object.is_empty(),
        _ => false,
    };
    left == right || (empty(left) && empty(right))
}

/// Whether a value is one of an enumeration; an empty one is required to be there.
pub(super) fn one_of(
    object: &Value,
    key: &str,
    supported: &[&str],
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    match object.get(key).and_then(Value::as_str) {
        None => {}
        Some("") => errors.push(FieldError::required(path.member(key), "")),
        Some(value) if supported.contains(&value) => {}
        Some(value) => errors.push(FieldError::not_supported(path.member(key), value, supported)),
    }
}

/// A required DNS label.
pub(super) fn name_label(object: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    match text(object, "name") {
        "" => errors.push(FieldError::required(path.member("name"), "")),
        name => dns_label(name, &path.member("name"), errors),
    }
}

pub(super) fn dns_label(value: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if let Some(problem) = dns_label_problem(value) {
        errors.push(FieldError::invalid(path, value, problem));
    }
}

pub(super) fn dns_subdomain(value: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if let Some(problem) = dns_subdomain_problem(value) {
        errors.push(FieldError::invalid(path, value, problem));
    }
}

pub(super) fn qualified_name(value: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if let Some(problem) = qualified_name_problem(value) {
        errors.push(FieldError::invalid(path, value, problem));
    }
}

/// Label keys and values; problems are reported at the map, as upstream does.
pub(super) fn labels(labels: Option<&Value>, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let Some(labels) = labels.and_then(Value::as_object) else { return };
    for (key, value) in labels.iter() {
        qualified_name(key, path, errors);
        let value = value.as_str().unwrap_or_default();
        if let Some(problem) = label_value_problem(value) {
            errors.push(FieldError::invalid(path, value, problem));
        }
    }
}

pub(super) fn port_number(port: i64, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if !(1..=65535).contains(&port) {
        errors.push(FieldError::invalid(path, port, "must be between 1 and 65535, inclusive"));
    }
}

/// A port by number, or by an IANA service name.
pub(super) fn port_or_name(port: Option<&Value>, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    match port {
        Some(Value::String(name)) => port_name(name, path, errors),
        port => port_number(port.and_then(Value::as_i64).unwrap_or_default(), path, errors),
    }
}

/// Reports everything wrong with a port name.
pub(super) fn port_name(name: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let mut problem = |text: &str| errors.push(FieldError::invalid(path, name, text));
    let bytes = name.as_bytes();
    if bytes.len() > 15 {
        problem("must be no more than 15 characters");
    }
    let allowed = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    if bytes.is_empty() || !bytes.iter().all(allowed) {
        problem("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !bytes.iter().any(u8::is_ascii_lowercase) {
        problem("must contain at least one letter (a-z)");
    }
    if name.contains("--") {
        problem("must not contain consecutive hyphens");
    }
    if name.starts_with('-') || name.ends_with('-') {
        problem("must not begin or end with a hyphen");
    }
}

/// A key of a config map or secret.
pub(super) fn config_key(key: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
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
pub(super) fn positive_int_or_percent(
    value: Option<&Value>,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
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

pub(super) fn at_most_100_percent(value: Option<&Value>, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if let Some(text) = value.and_then(Value::as_str)
        && percent(text).is_some_and(|percent| percent > 100)
    {
        errors.push(FieldError::invalid(path, text, "must not be greater than 100%"));
    }
}

pub(super) fn ip(value: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) -> Option<IpAddr> {
    let parsed = value.parse().ok();
    if parsed.is_none() {
        errors.push(FieldError::invalid(
            path,
            value,
            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ));
    }
    parsed
}

pub(super) fn cidr(value: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let valid = value.split_once('/').is_some_and(|(address, bits)| {
        let bits_max = match address.parse() {
            Ok(IpAddr::V4(_)) => 32,
            Ok(IpAddr::V6(_)) => 128,
            Err(_) => return false,
        };
        !bits.starts_with('+') && bits.parse::<u8>().is_ok_and(|bits| bits <= bits_max)
    });
    if !valid {
        errors.push(FieldError::invalid(
            path,
            value,
            "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
        ));
    }
}

/// An address that something outside can be reached at.
pub(super) fn endpoint_ip(value: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let Ok(address) = value.parse::<IpAddr>() else {
        errors.push(FieldError::invalid(path, value, "must be a valid IP address"));
        return;
    };
    let (link_local, link_local_multicast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.segments()[0] & 0xffc0 == 0xfe80, v6.segments()[0] & 0xff0f == 0xff02),
    };
    let mut problem = |text: String| errors.push(FieldError::invalid(path, value, text));
    if address.is_unspecified() {
        problem(format!("may not be unspecified ({value})"));
    }
    if address.is_loopback() {
        problem("may not be in the loopback range (127.0.0.0/8, ::1/128)".into());
    }
    if link_local {
        problem("may not be in the link-local range (169.254.0.0/16, fe80::/10)".into());
    }
    if link_local_multicast {
        problem("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".into());
    }
}
