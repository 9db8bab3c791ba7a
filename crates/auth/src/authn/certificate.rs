//! X.509: the common name is the user, organizations are groups, and a URI name may confine it to one plane.

use polder_model::{PlaneId, SmolStr};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::UserInfo;

/// A certificate with the URI name `polder:plane:<id>` is good in that plane only. The id is a plane's number, not
/// its name, so that a plane made again under the same name does not accept the old one's certificates.
pub const PLANE_URI_SCHEME: &str = "polder:plane:";

/// The user of a certificate; `None` when it names nobody or confines it to something that is no plane.
pub fn user_from_certificate(der: &[u8]) -> Option<UserInfo> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?;
    if name.is_empty() {
        return None;
    }
    let groups = subject.iter_organization().map(|group| group.as_str().map(SmolStr::new));
    let mut user = UserInfo::authenticated(name, groups.collect::<Result<Vec<_>, _>>().ok()?);
    if let Some(names) = certificate.subject_alternative_name().ok()? {
        for general_name in &names.value.general_names {
            if let GeneralName::URI(uri) = general_name
                && let Some(plane) = uri.strip_prefix(PLANE_URI_SCHEME)
            {
                let plane = PlaneId(plane.parse().ok()?);
                if user.home.replace(plane).is_some_and(|other| other != plane) {
                    return None;
                }
            }
        }
    }
    Some(user)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(name: &str, groups: &[&str], uri: Option<&str>) -> Vec<u8> {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        if !name.is_empty() {
            params.distinguished_name.push(rcgen::DnType::CommonName, name);
        }
        for group in groups {
            params.distinguished_name.push(rcgen::DnType::OrganizationName, *group);
        }
        if let Some(uri) = uri {
            params.subject_alt_names.push(rcgen::SanType::URI(uri.try_into().unwrap()));
        }
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn names_groups_and_planes() {
        let user = user_from_certificate(&certificate("ann", &["system:masters"], None)).unwrap();
        assert_eq!(user.name, "ann");
        assert!(user.in_group("system:masters") && user.in_group("system:authenticated"));
        assert_eq!(user.home, None);

        let user = user_from_certificate(&certificate("ann", &[], Some("polder:plane:42"))).unwrap();
        assert_eq!(user.home, Some(PlaneId(42)));
    }

    #[test]
    fn what_names_nobody_is_refused() {
        assert_eq!(user_from_certificate(&certificate("", &["system:masters"], None)), None);
        assert_eq!(user_from_certificate(&certificate("ann", &[], Some("polder:plane:x"))), None);
        assert_eq!(user_from_certificate(b"garbage"), None);
    }
}
