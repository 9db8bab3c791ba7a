//! Who and what: planes, groups, versions, kinds, resources, and the syntax of names.

use std::fmt;
use std::str::FromStr;

use smol_str::SmolStr;

/// A plane as the store knows it. Never reused: a plane deleted and made again under the same name is another
/// plane, so nothing that remembers the old one can reach the new one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlaneId(pub u64);

impl PlaneId {
    /// The provider's own plane, where `Plane` objects live. It always exists.
    pub const CORE: PlaneId = PlaneId(1);
}

impl fmt::Debug for PlaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "plane:{}", self.0)
    }
}

impl fmt::Display for PlaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A plane as people name it: a DNS label, because it is also a host name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PlaneName(SmolStr);

impl PlaneName {
    pub const CORE: PlaneName = PlaneName(SmolStr::new_static("core"));

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text that is no plane name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is no plane name: {reason}")]
pub struct PlaneNameError {
    name: String,
    reason: &'static str,
}

impl FromStr for PlaneName {
    type Err = PlaneNameError;

    fn from_str(text: &str) -> Result<PlaneName, PlaneNameError> {
        match dns_label_problem(text) {
            None => Ok(PlaneName(SmolStr::new(text))),
            Some(reason) => Err(PlaneNameError { name: text.chars().take(80).collect(), reason }),
        }
    }
}

impl fmt::Display for PlaneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `apps/v1`, or `v1` for the core group.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupVersion {
    pub group: SmolStr,
    pub version: SmolStr,
}

impl GroupVersion {
    pub fn new(group: impl Into<SmolStr>, version: impl Into<SmolStr>) -> GroupVersion {
        GroupVersion { group: group.into(), version: version.into() }
    }

    /// Parses an `apiVersion`; more than one slash is no group version.
    pub fn parse(text: &str) -> Option<GroupVersion> {
        match text.split_once('/') {
            None if !text.is_empty() => Some(GroupVersion::new("", text)),
            Some((group, version)) if !group.is_empty() && !version.is_empty() && !version.contains('/') => {
                Some(GroupVersion::new(group, version))
            }
            _ => None,
        }
    }

    pub fn kind(&self, kind: impl Into<SmolStr>) -> GroupVersionKind {
        GroupVersionKind { group: self.group.clone(), version: self.version.clone(), kind: kind.into() }
    }
}

impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.version)
        } else {
            write!(f, "{}/{}", self.group, self.version)
        }
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupVersionKind {
    pub group: SmolStr,
    pub version: SmolStr,
    pub kind: SmolStr,
}

impl GroupVersionKind {
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion { group: self.group.clone(), version: self.version.clone() }
    }

    pub fn group_kind(&self) -> GroupKind {
        GroupKind { group: self.group.clone(), kind: self.kind.clone() }
    }
}

/// `Deployment.apps`: how error messages name a kind.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupKind {
    pub group: SmolStr,
    pub kind: SmolStr,
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.kind)
        } else {
            write!(f, "{}.{}", self.kind, self.group)
        }
    }
}

/// `deployments.apps`: how error messages name a resource, and what objects are stored under.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupResource {
    pub group: SmolStr,
    pub resource: SmolStr,
}

impl GroupResource {
    pub fn new(group: impl Into<SmolStr>, resource: impl Into<SmolStr>) -> GroupResource {
        GroupResource { group: group.into(), resource: resource.into() }
    }

    pub fn with_version(&self, version: impl Into<SmolStr>) -> GroupVersionResource {
        GroupVersionResource {
            group: self.group.clone(),
            version: version.into(),
            resource: self.resource.clone(),
        }
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.resource)
        } else {
            write!(f, "{}.{}", self.resource, self.group)
        }
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupVersionResource {
    pub group: SmolStr,
    pub version: SmolStr,
    pub resource: SmolStr,
}

impl GroupVersionResource {
    pub fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.group.clone(), resource: self.resource.clone() }
    }

    pub fn group_version(&self) -> GroupVersion {
        GroupVersion { group: self.group.clone(), version: self.version.clone() }
    }
}

const LABEL_LEN_MAX: usize = 63;
const SUBDOMAIN_LEN_MAX: usize = 253;

const DNS_LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
     must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const DNS_SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
     or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const DNS_1035_LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with \
     an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
     validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED_NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and \
     end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_KEY: &str = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and \
     end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. \
     'example.com/MyName')";
const LABEL_TOO_LONG: &str = "must be no more than 63 characters";
const SUBDOMAIN_TOO_LONG: &str = "must be no more than 253 characters";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
     '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
     used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Whether the characters are those of a DNS label, however many.
pub fn is_dns_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    !bytes.is_empty()
        && bytes.iter().all(inner)
        && bytes.first() != Some(&b'-')
        && bytes.last() != Some(&b'-')
}

/// Whether all segments are DNS labels, however long.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.split('.').all(is_dns_label)
}

/// Everything wrong with a DNS label (namespace names, plane names); nothing when it is one.
pub fn dns_label_problems(text: &str) -> impl Iterator<Item = &'static str> + use<> {
    let syntax = match () {
        () if is_dns_label(text) => None,
        () if is_dns_subdomain(text) => Some("must not contain dots"),
        () => Some(DNS_LABEL),
    };
    [too_long(text, LABEL_LEN_MAX, LABEL_TOO_LONG), syntax].into_iter().flatten()
}

/// The first thing wrong with a DNS label.
pub fn dns_label_problem(text: &str) -> Option<&'static str> {
    dns_label_problems(text).next()
}

/// Everything wrong with a DNS label that must start with a letter (service names).
pub fn dns_1035_label_problems(text: &str) -> impl Iterator<Item = &'static str> + use<> {
    let good = is_dns_label(text) && text.starts_with(|first: char| first.is_ascii_lowercase());
    let syntax = (!good).then_some(DNS_1035_LABEL);
    [too_long(text, LABEL_LEN_MAX, LABEL_TOO_LONG), syntax].into_iter().flatten()
}

/// The first thing wrong with a DNS label that must start with a letter.
pub fn dns_1035_label_problem(text: &str) -> Option<&'static str> {
    dns_1035_label_problems(text).next()
}

/// Everything wrong with a DNS subdomain (most object names).
pub fn dns_subdomain_problems(text: &str) -> impl Iterator<Item = &'static str> + use<> {
    let syntax = (!is_dns_subdomain(text)).then_some(DNS_SUBDOMAIN);
    [too_long(text, SUBDOMAIN_LEN_MAX, SUBDOMAIN_TOO_LONG), syntax].into_iter().flatten()
}

/// The first thing wrong with a DNS subdomain.
pub fn dns_subdomain_problem(text: &str) -> Option<&'static str> {
    dns_subdomain_problems(text).next()
}

fn too_long(text: &str, len_max: usize, problem: &'static str) -> Option<&'static str> {
    (text.len() > len_max).then_some(problem)
}

/// What is wrong with a name that is only a path segment (RBAC objects and a few others).
pub fn path_segment_problem(text: &str) -> Option<&'static str> {
    match text {
        "." => Some("may not be '.'"),
        ".." => Some("may not be '..'"),
        _ if text.contains('/') => Some("may not contain '/'"),
        _ if text.contains('%') => Some("may not contain '%'"),
        // Upstream has nothing against these, but no path here leads to them: such an object could be made and not be read.
        _ if text.contains('\\') => Some("may not contain '\\'"),
        _ if text.contains(char::is_control) => Some("may not contain control characters"),
        _ => None,
    }
}

fn is_name_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    bytes.iter().all(inner)
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}

/// Everything wrong with a label key, annotation key, finalizer or other `[prefix/]name`. Upstream counts the length
/// of these in bytes, and that of host names in characters; the texts say so, and both mean bytes.
pub fn qualified_name_problems(text: &str) -> Vec<String> {
    let (prefix, name) = match text.split_once('/') {
        None => (None, text),
        Some((_, name)) if name.contains('/') => return vec![LABEL_KEY.into()],
        Some((prefix, name)) => (Some(prefix), name),
    };
    let mut problems = Vec::new();
    match prefix {
        None => {}
        Some("") => problems.push("prefix part must be non-empty".into()),
        Some(prefix) => {
            if prefix.len() > SUBDOMAIN_LEN_MAX {
                problems.push("prefix part must be no more than 253 bytes".into());
            }
            if !is_dns_subdomain(prefix) {
                problems.push(format!("prefix part {DNS_SUBDOMAIN}"));
            }
        }
    }
    if name.is_empty() {
        problems.push("name part must be non-empty".into());
    } else if name.len() > LABEL_LEN_MAX {
        problems.push("name part must be no more than 63 bytes".into());
    }
    if !is_name_part(name) {
        problems.push(QUALIFIED_NAME.into());
    }
    problems
}

/// Everything wrong with a label value.
pub fn label_value_problems(text: &str) -> impl Iterator<Item = &'static str> + use<> {
    let syntax = (!text.is_empty() && !is_name_part(text)).then_some(LABEL_VALUE);
    [too_long(text, LABEL_LEN_MAX, "must be no more than 63 bytes"), syntax].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plane_names() {
        for good in ["a", "acme", "a-1", "0", &"x".repeat(63)] {
            assert!(good.parse::<PlaneName>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a/b", "a%2fb", "..", &"x".repeat(64), "é"] {
            assert!(bad.parse::<PlaneName>().is_err(), "{bad}");
        }
    }

    /// Names, and how each of their problems begins.
    #[test]
    fn name_syntax() {
        let long = format!("{}.b", "x".repeat(63));
        let (longer, longest) = ("X".repeat(64), "x.".repeat(127) + "x");
        let texts = |found: &mut dyn Iterator<Item = &'static str>| -> Vec<String> {
            found.map(str::to_owned).collect()
        };
        let label = |text: &str| texts(&mut dns_label_problems(text));
        let letter = |text: &str| texts(&mut dns_1035_label_problems(text));
        let subdomain = |text: &str| texts(&mut dns_subdomain_problems(text));
        let value = |text: &str| texts(&mut label_value_problems(text));
        type Problems<'a> = &'a dyn Fn(&str) -> Vec<String>;
        let rows: &[(Problems<'_>, &str, &[&str])] = &[
            (&label, "a-1", &[]),
            (&label, "a.b", &["must not contain dots"]),
            (&label, "a..b", &["a lowercase RFC 1123 label must"]),
            (&label, &long, &["must be no more than 63 characters", "must not contain dots"]),
            (&label, &longer, &["must be no more than 63 characters", "a lowercase RFC 1123 label must"]),
            (&letter, "1a", &["a DNS-1035 label must"]),
            (&letter, "", &["a DNS-1035 label must"]),
            (&subdomain, "a.b-c.d", &[]),
            (&subdomain, "a..b", &["a lowercase RFC 1123 subdomain must"]),
            (&subdomain, &longest, &["must be no more than 253 characters"]),
            (&qualified_name_problems, "example.com/My_Name", &[]),
            (&qualified_name_problems, "", &["name part must be non-empty", "name part must consist of"]),
            (&qualified_name_problems, "/a", &["prefix part must be non-empty"]),
            (&qualified_name_problems, "a/", &["name part must be non-empty", "name part must consist of"]),
            (&qualified_name_problems, "a/b/c", &["a valid label key must consist of"]),
            (
                &qualified_name_problems,
                "Example.com/-x",
                &["prefix part a lowercase RFC 1123 subdomain", "name part must consist of"],
            ),
            (&qualified_name_problems, &longer, &["name part must be no more than 63 bytes"]),
            (
                &qualified_name_problems,
                &format!("{longest}/a"),
                &["prefix part must be no more than 253 bytes"],
            ),
            (&value, "", &[]),
            (&value, "a b", &["a valid label must be an empty string or"]),
            (&value, &longer, &["must be no more than 63 bytes"]),
        ];
        for (problems, text, expected) in rows {
            let found = problems(text);
            let fits = |(found, expected): (&String, &&str)| found.starts_with(*expected);
            assert!(
                found.len() == expected.len() && found.iter().zip(*expected).all(fits),
                "{text}: {found:?}"
            );
        }
    }

    #[test]
    fn api_versions() {
        assert_eq!(GroupVersion::parse("v1"), Some(GroupVersion::new("", "v1")));
        assert_eq!(GroupVersion::parse("apps/v1").unwrap().to_string(), "apps/v1");
        for bad in ["", "/v1", "a/", "a/b/c"] {
            assert_eq!(GroupVersion::parse(bad), None, "{bad}");
        }
    }
}
