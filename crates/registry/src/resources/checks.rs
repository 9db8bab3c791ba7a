//! Checks that many kinds share, with the texts clients know.
//!
//! A missing member, `null` and an empty text are the same here, as in Go. Lists are walked with [`each`], which stops
//! once an object has been found wrong often enough, so that a hostile object cannot make an endless report.

use std::net::IpAddr;

use polder_model::names::{
    dns_label_problem, dns_subdomain_problem, label_value_problem, path_segment_problem,
    qualified_name_problem,
};
use polder_model::{FieldError, FieldPath, Value};

pub(super) type Errors = Vec<FieldError>;

/// No list is looked at further once there are this many errors.
pub(super) const ERRORS_MAX: usize = 200;

const IMMUTABLE: &str = "field is immutable";
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
pub(super) fn each(
    object: &Value,
    key: &str,
    path: &FieldPath<'_>,
    errors: &mut Errors,
    mut check: impl FnMut(&Value, &FieldPath<'_>, &mut Errors),
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

/// A member that must be there; says whether it is.
pub(super) fn required(object: &Value, key: &str, path: &FieldPath<'_>, errors: &mut Errors) -> bool {
    let there = some(object, key).is_some_and(|value| value.as_str() != Some(""));
    if !there {
        errors.push(FieldError::required(path.member(key), ""));
    }
    there
}

/// Notes what is wrong with a text, if anything.
pub(super) fn problem(
    value: &str,
    problem: Option<impl Into<String>>,
    path: &FieldPath<'_>,
    errors: &mut Errors,
) {
    if let Some(problem) = problem {
        errors.push(FieldError::invalid(path, value, problem));
    }
}

pub(super) fn dns_label(value: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    problem(value, dns_label_problem(value), path, errors);
}

pub(super) fn dns_subdomain(value: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    problem(value, dns_subdomain_problem(value), path, errors);
}

pub(super) fn path_segment(value: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    problem(value, path_segment_problem(value), path, errors);
}

pub(super) fn qualified_name(value: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    problem(value, qualified_name_problem(value), path, errors);
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
    problem(name, dns_subdomain_problem(&name.to_ascii_lowercase()), path, errors);
}

pub(super) fn port_problem(port: i64) -> Option<&'static str> {
    (!(1..=65535).contains(&port)).then_some("must be between 1 and 65535, inclusive")
}

pub(super) fn port_number(port: i64, path: &FieldPath<'_>, errors: &mut Errors) {
    if let Some(problem) = port_problem(port) {
        errors.push(FieldError::invalid(path, port, problem));
    }
}

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

pub(super) fn ip(value: &str, path: &FieldPath<'_>, errors: &mut Errors) -> Option<IpAddr> {
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

/// An address written the one right way.
pub(super) fn canonical_ip(value: &str, path: &FieldPath<'_>, errors: &mut Errors) -> Option<IpAddr> {
    let address = ip(value, path, errors)?;
    if matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
        errors.push(FieldError::invalid(path, value, "must not be an IPv4-mapped IPv6 address"));
        return None;
    }
    let canonical = address.to_string();
    if value != canonical {
        errors.push(FieldError::invalid(path, value, format!("must be in canonical form ({canonical:?})")));
        return None;
    }
    Some(address)
}

/// An address block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cidr {
    pub(super) address: IpAddr,
    pub(super) prefix_len: u32,
}

impl Cidr {
    fn parse(text: &str) -> Option<Cidr> {
        let (address, bits) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let prefix_len: u32 = bits.parse().ok().filter(|_| bits.bytes().all(|byte| byte.is_ascii_digit()))?;
        (prefix_len <= width(address)).then_some(Cidr { address, prefix_len })
    }

    /// The block without the bits beyond its prefix.
    fn network(self) -> u128 {
        let unused = width(self.address) - self.prefix_len;
        bits(self.address).checked_shr(unused).unwrap_or(0).checked_shl(unused).unwrap_or(0)
    }

    /// Whether `inner` lies in this block and is smaller.
    pub(super) fn contains_strictly(self, inner: Cidr) -> bool {
        width(self.address) == width(inner.address)
            && self.prefix_len < inner.prefix_len
            && Cidr { prefix_len: self.prefix_len, ..inner }.network() == self.network()
    }
}

fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

pub(super) fn cidr(value: &str, path: &FieldPath<'_>, errors: &mut Errors) -> Option<Cidr> {
    let parsed = Cidr::parse(value);
    if parsed.is_none() {
        errors.push(FieldError::invalid(
            path,
            value,
            "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
        ));
    }
    parsed
}

/// An address block written the one right way, with no bits beyond its prefix.
pub(super) fn canonical_cidr(value: &str, path: &FieldPath<'_>, errors: &mut Errors) -> Option<Cidr> {
    let block = cidr(value, path, errors)?;
    if bits(block.address) != block.network() {
        let text = "must not have bits set beyond the prefix length";
        errors.push(FieldError::invalid(path, value, text));
        return None;
    }
    let canonical = format!("{}/{}", block.address, block.prefix_len);
    if value != canonical {
        errors.push(FieldError::invalid(path, value, format!("must be in canonical form ({canonical:?})")));
        return None;
    }
    Some(block)
}

/// An address that something outside can be reached at.
pub(super) fn endpoint_ip(address: IpAddr, value: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    let (link_local, link_local_multicast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), v6.segments()[0] & 0xff0f == 0xff02),
    };
    let unspecified = format!("may not be unspecified ({value})");
    let problems = [
        (address.is_unspecified(), unspecified.as_str()),
        (address.is_loopback(), "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        (link_local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        (link_local_multicast, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
    ];
    for (wrong, text) in problems {
        problem(value, wrong.then_some(text), path, errors);
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
        let value = value.as_str().unwrap_or_default();
        problem(value, label_value_problem(value), path, errors);
    }
}

/// A label selector; a missing one is fine.
pub(super) fn label_selector(selector: Option<&Value>, path: &FieldPath<'_>, errors: &mut Errors) {
    let Some(selector) = selector else { return };
    labels(selector.get("matchLabels"), &path.member("matchLabels"), errors);
    each(selector, "matchExpressions", path, errors, |expression, path, errors| {
        let values = path.member("values");
        let values_empty = expression.array_at(&["values"]).is_empty();
        match (text(expression, "operator"), values_empty) {
            ("In" | "NotIn", false) | ("Exists" | "DoesNotExist", true) => {}
            ("In" | "NotIn", true) => {
                errors.push(FieldError::required(
                    values,
                    "must be specified when `operator` is 'In' or 'NotIn'",
                ));
            }
            ("Exists" | "DoesNotExist", false) => errors.push(FieldError::forbidden(
                values,
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            (unknown, _) => errors.push(FieldError::invalid(
                path.member("operator"),
                unknown,
                "not a valid selector operator",
            )),
        }
        qualified_name(text(expression, "key"), &path.member("key"), errors);
        each(expression, "values", path, errors, |value, path, errors| {
            let value = value.as_str().unwrap_or_default();
            problem(value, label_value_problem(value), path, errors);
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks() {
        let rows = [
            ("10.0.0.0/8", "10.1.0.0/16", true),
            ("10.0.0.0/8", "10.0.0.0/8", false),
            ("10.0.0.0/8", "11.0.0.0/16", false),
            ("0.0.0.0/0", "11.0.0.0/16", true),
            ("::/0", "fd00::/8", true),
            ("::/0", "11.0.0.0/16", false),
        ];
        for (outer, inner, within) in rows {
            let (outer, inner) = (Cidr::parse(outer).unwrap(), Cidr::parse(inner).unwrap());
            assert_eq!(outer.contains_strictly(inner), within, "{inner:?} in {outer:?}");
        }
        for bad in ["", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/+8", "10.0.0.0/", "x/8", "::/129"] {
            assert_eq!(Cidr::parse(bad), None, "{bad}");
        }
    }

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

    #[test]
    fn canonical_forms() {
        let rows = [
            ("10.0.0.1", ""),
            ("10.0.0", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
            ("2001:DB8::1", r#"must be in canonical form ("2001:db8::1")"#),
            ("::ffff:1.2.3.4", "must not be an IPv4-mapped IPv6 address"),
        ];
        for (text, problem) in rows {
            let mut errors = Errors::new();
            canonical_ip(text, &FieldPath::ROOT, &mut errors);
            assert_eq!(errors.first().map_or("", |error| error.detail.as_str()), problem);
        }
    }
}
