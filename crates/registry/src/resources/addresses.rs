//! IP addresses and address blocks: read and checked, with the texts clients know.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use polder_model::{FieldError, FieldPath, Value};

use super::checks::{Errors, problem};

/// Reads an address as Go once did: numbers of an IPv4 address may have leading zeros, and are decimal all the same.
fn parse_ip(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let mut octets = [0_u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let digits =
            parts.next().filter(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))?;
        *octet = match digits.trim_start_matches('0') {
            "" => 0,
            digits => digits.parse().ok()?,
        };
    }
    parts.next().is_none().then(|| octets.into())
}

/// An address of a field that is older than strict ones.
pub(super) fn ip(value: &str, path: &FieldPath<'_>, errors: &mut Errors) -> Option<IpAddr> {
    let parsed = parse_ip(value);
    if parsed.is_none() {
        errors.push(FieldError::invalid(
            path,
            value,
            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ));
    }
    parsed
}

/// What is said of an address that will not be understood one day, or is not written as others write it.
pub(super) fn ip_warning(value: &str, path: &str) -> Option<String> {
    let address = parse_ip(value)?;
    let plain = address.to_canonical().to_string();
    if value.parse::<IpAddr>().is_err() || address.to_canonical() != address {
        return Some(format!(
            "{path}: non-standard IP address {value:?} will be considered invalid in a future Kubernetes release: use {plain:?}"
        ));
    }
    (address.is_ipv6() && plain != value)
        .then(|| format!("{path}: IPv6 address {value:?} should be in RFC 5952 canonical format ({plain:?})"))
}

const LOOPBACK: &str = "may not be in the loopback range (127.0.0.0/8, ::1/128)";

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
        let address: IpAddr = parse_ip(address)?;
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

/// The same about a block.
pub(super) fn cidr_warnings(value: &str, path: &str) -> Vec<String> {
    let Some(block) = Cidr::parse(value) else { return Vec::new() };
    let mut warnings = Vec::new();
    let (address, prefix_len) = match block.address.to_canonical() {
        plain if plain == block.address => (plain, block.prefix_len),
        plain => (plain, block.prefix_len.saturating_sub(96)),
    };
    let plain = Cidr { address, prefix_len };
    let network = match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(plain.network()).unwrap_or_default())),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(plain.network())),
    };
    let canonical = format!("{network}/{prefix_len}");
    if network != address {
        let single = format!("{address}/{}", width(address));
        warnings.push(format!(
            "{path}: CIDR value {value:?} is ambiguous in this context (should be {canonical:?} or {single:?}?)"
        ));
    }
    let (written, bits) = value.split_once('/').unwrap_or_default();
    let zeros = bits.len() > 1 && bits.starts_with('0');
    if zeros || written.parse::<IpAddr>().is_err() || address != block.address {
        warnings.push(format!(
            "{path}: non-standard CIDR value {value:?} will be considered invalid in a future Kubernetes release: use {canonical:?}"
        ));
    }
    if warnings.is_empty() && address.is_ipv6() && canonical != value {
        warnings.push(format!(
            "{path}: IPv6 CIDR value {value:?} should be in RFC 5952 canonical format ({canonical:?})"
        ));
    }
    warnings
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
pub(super) fn endpoint_ip(value: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    let Some(address) = parse_ip(value) else {
        errors.push(FieldError::invalid(path, value, "must be a valid IP address"));
        return;
    };
    let (link_local, link_local_multicast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), v6.segments()[0] & 0xff0f == 0xff02),
    };
    let unspecified = format!("may not be unspecified ({value})");
    let problems = [
        (address.is_unspecified(), unspecified.as_str()),
        (address.is_loopback(), LOOPBACK),
        (link_local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        (link_local_multicast, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
    ];
    for (wrong, text) in problems {
        problem(value, wrong.then_some(text), path, errors);
    }
}

/// Takes back what was said of loopback addresses, if an object tells where the API itself is: a server that is tried out on somebody's own
/// machine is there, and its planes must be able to say so.
pub(super) fn spare_api(object: &Value, errors: &mut Errors) {
    let is = |field: &str, expected: &str| object.str_at(&["metadata", field]) == Some(expected);
    if is("namespace", "default") && is("name", "kubernetes") {
        errors.retain(|error| error.detail != LOOPBACK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_zeros() {
        let rows = [
            ("010.1.1.001", Some("10.1.1.1")),
            ("0.0.0.0", Some("0.0.0.0")),
            ("fd00::1", Some("fd00::1")),
            ("256.1.1.1", None),
            ("1.1.1", None),
            ("1.1.1.1.1", None),
            ("1..1.1", None),
            ("+1.1.1.1", None),
        ];
        for (text, expected) in rows {
            assert_eq!(parse_ip(text), expected.map(|text| text.parse().unwrap()), "{text}");
        }
    }

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
